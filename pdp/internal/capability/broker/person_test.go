package broker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
	"policy-service/pdp"
)

// grantedFor asks for a capability for a person.
func (f *service) grantedFor(person string) (id string) {
	f.Helper()
	context, err := evaluation.NewObject(map[string]any{"person": person})
	f.must(err)
	g, err := f.asks(0, func(a *capability.Ask) { a.Context = context })
	f.must(err)
	return g.ID
}

// shown is what a call shows of a capability, with a proof of its own.
func (f *service) shown(id string, question byte) pdp.PresentedCapability {
	f.Helper()
	about, err := evaluation.ParseObject([]byte(arguments), evaluation.DefaultLimits())
	f.must(err)
	proof, err := f.holder.Prove(capability.Claim{
		Capability: id, Audience: "b", Tool: "b:read", Arguments: about, IssuedAt: f.Now(), ID: fmt.Sprintf("proof-%012d", f.proofs.Add(1)),
	})
	f.must(err)
	return pdp.PresentedCapability{
		CapabilityShown: evaluation.CapabilityShown{Token: id, Proof: proof}, Tenant: "default", Caller: "key:pep", Holder: evaluation.Ref{Type: "agent", ID: "bot"},
		Action: "tool.invoke", Resource: evaluation.Ref{Type: "tool", ID: "b:read"}, Arguments: about, Question: [32]byte{question}, Now: f.Now(), Spends: true,
	}
}

// TestKeptOfPersons: the proofs of calls that wait, of one person, push out none of another person of the same holder. Nobody takes
// one of another.
func TestKeptOfPersons(t *testing.T) {
	t.Parallel()
	f, ctx := newService(t, t.TempDir(), true), context.Background()
	alice, eve := f.grantedFor(evaluation.PersonOf("issuer", "alice")), f.grantedFor(evaluation.PersonOf("issuer", "eve"))
	check := func(p pdp.PresentedCapability, want string) pdp.HeldCapability {
		t.Helper()
		held, more, err := f.Check(ctx, p)
		f.must(err)
		if (more == nil) != (want == "") || more != nil && more.Reason != want {
			t.Fatalf("got %+v, want %q", more, want)
		}
		held.Presented = p
		return held
	}
	first := f.shown(alice, 1)
	held := check(first, "")
	if held.Owner != (evaluation.Ref{ID: evaluation.PersonOf("issuer", "alice")}) {
		t.Errorf("it counts for %+v", held.Owner)
	}
	f.Keep(ctx, held, "", time.Time{})
	for range 300 {
		f.Keep(ctx, check(f.shown(eve, 1), ""), "", time.Time{})
	}
	first.Approval = "approval"
	check(first, "")
	check(first, "proof_replayed")
}
