package recorder

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/evidence"
	"policy-service/pdp/pdptest/night"
)

const againPolicies = `
@id("level") permit(principal is user, action == Action::"read", resource) when { context has token && context.token < 5 };
@id("listed") permit(principal, action == Action::"list", resource) unless { context has note && context.note == "no" };
@id("asks") @obligation("approval_required") permit(principal, action == Action::"push", resource);
@id("logs") @obligation("log") permit(principal, action == Action::"read", resource) when { principal has pin };
@id("held") permit(principal is agent, action == Action::"read", resource) when { context.pdp.capability.held && context.pdp.capability.id != "cap_2" };
@id("never") forbid(principal, action, resource) when { context has arguments && context.arguments has x && context.arguments.x.pin == 7 };
`

// TestPropertyDecisionsAreMadeAgain: the call that is read from a record gives the decision of the record with the same
// policies, or it is said on which hidden places it hangs.
func TestPropertyDecisionsAreMadeAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"p.cedar": againPolicies, "obligations.yaml": "log: {type: log, properties: {level: high}}\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r, recorded := logged(t)
	n := 0
	p, err := pdp.New(pdp.Dir(dir), pdp.Options{Recorder: r, Capabilities: tokens{}, NewID: func() string { n++; return fmt.Sprint("d", n) }})
	if err != nil {
		t.Fatal(err)
	}
	again := pdp.Of(p.Bundle(), pdp.Options{})
	known, unknown, possible, masked, adopted, cases := 0, 0, 0, 0, 0, night.Cases(2000)
	reasons := map[evaluation.Reason]int{}
	for seed := range uint64(cases) {
		seed += 700 // so that the first few have one of each kind
		g := rand.New(rand.NewPCG(seed, 9))
		maybe := func(o map[string]any, name string, values ...any) {
			if g.IntN(2) == 0 {
				o[name] = values[g.IntN(len(values))]
			}
		}
		subject, context := map[string]any{}, map[string]any{}
		maybe(subject, "pin", 1, 0.5, "x")
		maybe(context, "token", 3, 7, 0.5, "hunter22", map[string]any{"x": 1}, true, []any{1, nil})
		maybe(context, "note", "no", "hunter22", "yes", "masked:x", map[string]any{"hunter22": 1})
		maybe(context, "arguments", map[string]any{"x": map[string]any{"pin": 7}}, map[string]any{"x": map[string]any{"pin": 0.5}}, map[string]any{"y": 0.25})
		maybe(context, "capability", map[string]any{"token": "cap_1", "proof": "hunter22"}, map[string]any{"token": "cap_2"}, map[string]any{"token": "expired"})
		maybe(context, "supported_obligations", []string{"log"}, []string{"log", "approval_required"}, []string{"hunter22"}, []string{"custom"}, []string{"custom", "approval_required"})
		draft := evaluation.July
		switch g.IntN(6) {
		case 0: // as an item of a batch, of which another item has the member
			draft = evaluation.October
		case 1, 2:
			draft, context["supported_mandatory_extensions"] = evaluation.October, [][]string{{"obligations"}, {"hunter22"}, {"hunter22", "obligations"}}[g.IntN(3)]
		}
		of := func(members map[string]any) evaluation.Object {
			o, err := evaluation.NewObject(members)
			if err != nil {
				t.Fatal(err)
			}
			return o
		}
		call := pdp.Call{
			Request: evaluation.Request{
				Shape: evaluation.Shape(g.IntN(2)), Draft: draft, Tenant: "default", Subject: evaluation.Entity{Type: []string{"user", "agent"}[g.IntN(2)], ID: "a", Properties: of(subject)},
				Action: evaluation.Action{Name: []string{"read", "list", "push"}[g.IntN(3)]}, Resource: evaluation.Entity{Type: "doc", ID: "1"}, Context: of(context),
			},
			Asker: evaluation.Asker{Name: "key:a", Registered: g.IntN(2) == 0, Obligations: [][]string{{}, {"log"}}[g.IntN(2)], Forwards: g.IntN(4) == 0},
			Now:   time.Date(2026, 11, 22, 0, 0, int(seed%60), 0, time.UTC),
		}
		if !call.Registered {
			call.Obligations = nil
		}
		if g.IntN(4) == 0 {
			call.Request.Shape = evaluation.AuthZEN
			call.Request.Context = call.Request.Context.Without(func(name string) bool { return name == "capability" })
			var some []string
			for _, at := range []string{"/context/token", "/context/note", "/context/arguments/x/pin", "/subject/properties/pin", "/context/odd", "/context/note/hunter22"} {
				if g.IntN(4) == 0 {
					some = append(some, at)
				}
			}
			if call.Request.Unknown, err = evaluation.UnknownAt(some...); err != nil {
				t.Fatal(err)
			}
		}
		d, err := p.Evaluate(t.Context(), call)
		if err != nil {
			t.Fatal(err)
		}
		reasons[d.Reason]++
		if d.Adopted && len(d.Obligations) > 0 {
			adopted++
		}
		record := recorded(d.ID)
		asked, err := CallOf(record, p.Bundle(), evaluation.DefaultLimits())
		if err != nil && slices.ContainsFunc(record.Unknown, func(at string) bool { return strings.Contains(at, "masked:") || strings.HasSuffix(at, "…") }) {
			masked++
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", record.Line, err)
		}
		if call.Request.Unknown != nil {
			possible++
		}
		if record.Adopted = nil; call.Request.Unknown == nil {
			if before, err := CallOf(record, p.Bundle(), evaluation.DefaultLimits()); err != nil || before.Request.Draft != evaluation.July {
				t.Fatalf("%s: if the record had no member adopted, its obligations were July's: %v", record.Line, err)
			}
		}
		got, err := again.Evaluate(t.Context(), asked)
		var hangs *pdp.Unknown
		switch {
		case errors.As(err, &hangs) && len(asked.Hidden) > 0:
			unknown++
			for _, path := range hangs.Paths {
				if !slices.ContainsFunc(asked.Hidden, func(h evaluation.Hidden) bool { return h.At == path }) {
					t.Errorf("%s hangs on %s, which is not hidden: %v", record.Line, path, asked.Hidden)
				}
			}
			continue
		case err != nil:
			t.Fatalf("%s: %v", record.Line, err)
		}
		known++
		if got.Allow != d.Allow || got.Possible != d.Possible || got.Reason != d.Reason || !reflect.DeepEqual(got.Required, d.Required) || len(got.Obligations) != len(d.Obligations) ||
			call.Request.Unknown == nil && (got.Draft != d.Draft || got.Adopted != d.Adopted) {
			t.Errorf("%s\nagain %+v\nwas   %+v\nhidden %+v", record.Line, got, d, asked.Hidden)
		}
		if len(asked.Hidden) == 0 && (!reflect.DeepEqual(got.Determining, d.Determining) || !reflect.DeepEqual(got.Overruled, d.Overruled) || !reflect.DeepEqual(got.Errors, d.Errors)) {
			t.Errorf("%s\nagain %+v\nwas   %+v", record.Line, got, d)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("%d decisions were made again, %d hang on what is hidden; %d asked what is possible, besides %d of which that is masked", known, unknown, possible, masked)
	if reasons[evaluation.CapabilityInvalid] < cases/100 || reasons[evaluation.CapabilityRequired] < cases/100 {
		t.Errorf("too few about capabilities: %v", reasons)
	}
	if known < cases/2 || unknown < cases/100 || possible < cases/10 || masked == 0 || adopted == 0 {
		t.Error("too few")
	}
}

// tokens are capabilities by their ids; any other text is the reason why one does not count.
type tokens struct{ pdp.Capabilities }

func (tokens) Check(_ context.Context, p pdp.PresentedCapability) (h pdp.HeldCapability, more *evaluation.CapabilityAnswer, err error) {
	if !strings.HasPrefix(p.Token, "cap_") {
		h.Capability = evaluation.Capability{ID: "cap_1", Depth: 1}
		return h, &evaluation.CapabilityAnswer{Reason: p.Token}, nil
	}
	h.Capability = evaluation.Capability{Held: true, ID: p.Token, Depth: 1}
	h.Proof = &pdp.SpentProof{Key: "k", ID: "j", Signature: evidence.Of("s")}
	return h, nil, nil
}
