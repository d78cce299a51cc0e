package pdp_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/evidence"
)

const capabilityPolicies = `
@id("suffices") permit (principal is agent, action == Action::"tool.invoke", resource is tool) when { context.pdp.capability.held };
@id("by_id") forbid (principal, action, resource) when { context.pdp.capability.id == "cap_bad" || context.pdp.capability.depth > 1 };
`

// TestCapabilityIsAFact: policies see the capability by which a call is decided, and see none otherwise.
func TestCapabilityIsAFact(t *testing.T) {
	t.Parallel()
	p := pdp.Of(loadFiles(t, map[string]string{"p.cedar": capabilityPolicies}), pdp.Options{})
	call := pdp.Call{Request: evaluation.Request{
		Tenant:   evaluation.DefaultTenant,
		Subject:  evaluation.Entity{Type: "agent", ID: "agent-a"},
		Action:   evaluation.Action{Name: "tool.invoke"},
		Resource: evaluation.Entity{Type: "tool", ID: "agent-b:dangerous_operation"},
	}}
	for _, c := range []struct {
		capability evaluation.Capability
		allow      bool
	}{
		{evaluation.Capability{}, false},
		{evaluation.Capability{Held: true, ID: "cap_good"}, true},
		{evaluation.Capability{Held: true, ID: "cap_bad"}, false},
		{evaluation.Capability{Held: true, ID: "cap_good", Depth: 2}, false},
	} {
		call.Capability = c.capability
		if d, err := p.Evaluate(t.Context(), call); err != nil || d.Allow != c.allow {
			t.Errorf("%+v: %v, %v", c.capability, d.Allow, err)
		}
	}
}

// purse says what capabilities are worth as an embedding program might: "good" is, as often as it likes, and "counted"
// once for each use that is left. Any other has the reason that its text is.
type purse struct {
	desk
	left            int
	spends, keeps   []string
	failing, raced  error
	asked           []pdp.PresentedCapability
	capabilityEnded []settled

	capabilityUnsettled error
}

func (u *purse) Check(_ context.Context, p pdp.PresentedCapability) (h pdp.HeldCapability, more *evaluation.CapabilityAnswer, err error) {
	if u.asked = append(u.asked, p); u.failing != nil {
		return h, nil, u.failing
	}
	if p.Spends {
		u.spends = append(u.spends, p.Proof)
	}
	h = pdp.HeldCapability{
		Capability: evaluation.Capability{Held: true, ID: "cap_1"},
		Counted:    p.Token == "counted",
		Proof:      &pdp.SpentProof{Key: "k", ID: p.Proof, Tool: p.Resource.ID, Signature: evidence.Of("s")},
	}
	if p.Token != "good" && (!h.Counted || u.left == 0) {
		return pdp.HeldCapability{}, &evaluation.CapabilityAnswer{Reason: p.Token, NextAction: "request"}, nil
	}
	return h, nil, nil
}

func (u *purse) Reserve(_ context.Context, h pdp.HeldCapability, _ string) (pdp.Reservation, int, *evaluation.CapabilityAnswer, error) {
	if u.raced != nil {
		return nil, 0, nil, u.raced
	}
	if u.left < 1 {
		return nil, 0, &evaluation.CapabilityAnswer{ID: h.ID, Reason: "used_up", NextAction: "request"}, nil
	}
	u.left--
	return (*purseUse)(u), u.left, nil, nil
}

func (u *purse) Keep(_ context.Context, h pdp.HeldCapability, approval string, _ time.Time) {
	u.keeps = append(u.keeps, h.Presented.Proof+" for "+approval)
}

type purseUse purse

func (u *purseUse) Again(context.Context, string) (bool, error) {
	panic("a capability has one use for a call")
}
func (u *purseUse) Spent(ctx context.Context) error {
	u.capabilityEnded = append(u.capabilityEnded, settled{"spent", ctx.Err()})
	return u.capabilityUnsettled
}
func (u *purseUse) InDoubt() {
	u.capabilityEnded = append(u.capabilityEnded, settled{"in doubt", nil})
}

// approvalsOf are the approvals of a purse, whose Reserve is another.
type approvalsOf struct{ *desk }

// recordsOf keeps whole records.
type recordsOf struct {
	*purse
	all []pdp.Record
}

func (r *recordsOf) Record(ctx context.Context, records []pdp.Record) error {
	for _, one := range records {
		one.Decision.Obligations = nil
		r.all = append(r.all, one)
	}
	return r.desk.Record(ctx, records)
}

// purseOf is a PDP of policies, with its purse and its records.
func purseOf(t *testing.T, b bundle) (*pdp.PDP, *purse, *recordsOf) {
	t.Helper()
	loaded, problems := pdp.Load(b.Source())
	if problems.Refuse() {
		t.Fatalf("the bundle does not load:\n%v", problems)
	}
	u := &purse{desk: desk{approved: map[string]int{}}, left: 1}
	r, n := &recordsOf{purse: u}, 0
	p := pdp.Of(loaded, pdp.Options{
		Now: clock, Capabilities: u, Approvals: approvalsOf{&u.desk}, Recorder: r,
		NewID: func() string { n++; return fmt.Sprintf("d%d", n) },
	})
	return p, u, r
}

const (
	held     = `@id("held") permit(principal is agent, action == Action::"tool.invoke", resource) when { context.pdp.capability.held };`
	anybody  = `@id("anybody") permit(principal, action == Action::"tool.invoke", resource);`
	guarded  = `@id("guard") forbid(principal, action, resource) unless { context.pdp.capability.held };`
	nobody   = `@id("nobody") forbid(principal, action, resource); @id("other") permit(principal, action == Action::"other", resource);`
	required = `{"allow":false,"reason":"capability_required","capability":{"audience":"b","tools":["b:t"],"next_action":"request"}}`
	invalid  = `{"allow":false,"reason":"capability_invalid","capability":{"reason":"expired","next_action":"request"}}`
)

// shows is a native request that shows a capability; without a token it shows none.
func shows(token string, more ...string) string {
	context := strings.Join(more, ",")
	if token != "" {
		context = strings.Join(append(more, `"capability":{"token":"`+token+`","proof":"p"}`), ",")
	}
	return strings.Replace(native(context), `"id":"t"`, `"id":"b:t"`, 1)
}

// TestCapabilityShown: what the capability that a request shows does to its answer, its record and its uses.
func TestCapabilityShown(t *testing.T) {
	t.Parallel()
	const used, left = "d1 held cap_1 spent", "d1 held cap_1"
	for name, test := range map[string]struct {
		policies, request string
		want, ends        string
	}{
		"none, and one is required":         {held, shows(""), required, "d1"},
		"none, and a guard wants one":       {anybody + guarded, shows(""), required, "d1"},
		"none, and it would change nothing": {held + nobody, shows(""), `{"allow":false}`, "d1"},
		"none, and no policy looks":         {nobody, shows(""), `{"allow":false}`, "d1"},
		"a good one":                        {held, shows("good"), `{"allow":true,"capability":{"id":"cap_1"}}`, left},
		"a good one that is not needed":     {anybody, shows("good"), `{"allow":true,"capability":{"id":"cap_1"}}`, left},
		"a good one, and a forbid":          {held + nobody, shows("good"), `{"allow":false}`, left},
		"a good one that does not suffice":  {nobody, shows("good"), `{"allow":false}`, left},
		"a counted one":                     {held, shows("counted"), `{"allow":true,"capability":{"id":"cap_1","uses_left":0}}`, used},
		"a counted one, and a forbid":       {held + nobody, shows("counted"), `{"allow":false}`, left},
		"a counted one, and a duty that the PEP does not know": {
			`@obligation("tell") ` + held, shows("counted"), `{"allow":false,"reason":"obligation_unsupported","required_obligations":["notification"]}`, left,
		},
		"a bad one":                           {held, shows("expired"), invalid, "d1 expired"},
		"a bad one that is not needed":        {anybody, shows("expired"), invalid, "d1 expired"},
		"a bad one, and a forbid":             {anybody + nobody, shows("expired"), invalid, "d1 expired"},
		"a bad one, and a policy that errs":   {`permit(principal, action, resource) when { context.no };`, shows("expired"), invalid, "d1 expired"},
		"a bad one beside a justification":    {held, shows("expired", approved), invalid, "d1 expired"},
		"a good one, and it waits for people": {`@obligation("ask") ` + held, shows("counted"), asking, left + " kept: p for a1"},
	} {
		t.Run(name, func(t *testing.T) {
			p, u, r := purseOf(t, one(test.policies, "obligations.yaml", askFirst))
			if got := ask(t, p, test.request, filing); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			ends := r.all[0].ID
			if c := r.all[0].Capability; c != nil && c.Held {
				ends += " held " + c.ID
			} else if c != nil {
				ends += " " + c.Reason
			}
			for _, s := range u.capabilityEnded {
				ends += " " + s.how
			}
			for _, k := range u.keeps {
				ends += " kept: " + k
			}
			if ends != test.ends || len(r.all) != 1 {
				t.Errorf("%d records, of which the first: %s\nwant %s", len(r.all), ends, test.ends)
			}
		})
	}
}

// TestCapabilityAndApproval: a call that needs both spends both, or neither.
func TestCapabilityAndApproval(t *testing.T) {
	t.Parallel()
	b := one(`@obligation("ask") `+held, "obligations.yaml", askFirst)
	start := func() (*pdp.PDP, *purse, *recordsOf) {
		p, u, r := purseOf(t, b)
		if got := ask(t, p, shows("counted"), filing); got != asking {
			t.Fatal(got)
		}
		u.approved[u.filed[0]] = 1
		return p, u, r
	}
	ends := func(u *purse) string { return fmt.Sprint(u.settled, u.capabilityEnded, u.left) }

	p, u, r := start()
	if got := ask(t, p, shows("counted", `"approval_id":"one"`), filing); got != `{"allow":true,"capability":{"id":"cap_1","uses_left":0}}` {
		t.Error(got)
	}
	if got := ends(u); got != "[{spent <nil>}] [{spent <nil>}] 0" || len(r.all[1].Decision.Met) != 1 {
		t.Errorf("both spent: %s, %+v", got, r.all[1].Decision.Met)
	}

	p, u, r = start()
	u.raced = errors.New("no disk")
	request, err := evaluation.DecodeNative([]byte(shows("counted", `"approval_id":"one"`)), evaluation.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	if d, err := p.Evaluate(t.Context(), pdp.Call{Request: request, Approvals: pdp.SpendOrFile}); !errors.Is(err, pdp.ErrNotRecorded) || d.Allow {
		t.Errorf("%+v, %v", d, err)
	}
	if got := ends(u); got != "[{in doubt <nil>}] [] 1" || len(r.all) != 1 {
		t.Errorf("neither spent after an error: %s", got)
	}

	p, u, r = start() // another call takes the last use between Check and Reserve
	u.under = func(context.Context) error { return nil }
	race := &racing{u}
	p = pdp.Of(p.Bundle(), pdp.Options{Now: clock, Capabilities: race, Approvals: approvalsOf{&u.desk}, Recorder: r, NewID: ids()})
	want := `{"allow":false,"reason":"capability_invalid","capability":{"id":"cap_1","reason":"used_up","next_action":"request"}}`
	if got := ask(t, p, shows("counted", `"approval_id":"one"`), filing); got != want {
		t.Error(got)
	}
	last := r.all[len(r.all)-1]
	if got := ends(u); got != "[{in doubt <nil>}] [] 0" || last.ID != "n2" || last.Approved || len(last.Decision.Met) > 0 || last.Capability.Reason != "used_up" {
		t.Errorf("neither spent after a race: %s, %+v", got, last)
	}

	for _, gone := range []func(){func() { u.unsettled = errors.New("it is gone") }, func() { u.capabilityUnsettled = errors.New("it is gone") }} {
		p, u, _ = start()
		gone()
		if d, err := p.Evaluate(t.Context(), pdp.Call{Request: request, Approvals: pdp.SpendOrFile}); !errors.Is(err, pdp.ErrUnsettled) || d.Allow {
			t.Errorf("%+v, %v", d, err)
		}
		if got := ends(u); got != "[{spent <nil>}] [{spent <nil>}] 0" {
			t.Errorf("one is not settled as the other is gone: %s", got)
		}
	}

	p, u, _ = start() // the record cannot be made
	u.under = func(context.Context) error { panic("no disk") }
	func() {
		defer func() { _ = recover() }()
		ask(t, p, shows("counted", `"approval_id":"one"`), filing)
	}()
	if got := ends(u); got != "[{in doubt <nil>}] [{in doubt <nil>}] 0" {
		t.Errorf("both in doubt after a panic: %s", got)
	}
}

// racing is a purse whose last use is taken between Check and Reserve.
type racing struct{ *purse }

func (r *racing) Check(ctx context.Context, p pdp.PresentedCapability) (pdp.HeldCapability, *evaluation.CapabilityAnswer, error) {
	h, more, err := r.purse.Check(ctx, p)
	r.left = 0
	return h, more, err
}

func ids() func() string {
	n := 0
	return func() string { n++; return fmt.Sprintf("n%d", n) }
}

// TestCapabilityNotTaken: where no capability is taken, showing one is never as if there was none.
func TestCapabilityNotTaken(t *testing.T) {
	t.Parallel()
	p, u, r := purseOf(t, one(anybody))
	limits := evaluation.DefaultLimits()
	const item = `{"subject":{"type":"agent","id":"a"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"b:t"},"context":{"capability":{"token":"good","proof":"p"}}`
	batch, err := evaluation.DecodeBatch([]byte(`{"evaluations":[`+item+`},`+strings.Replace(item, `"capability":{"token":"good","proof":"p"}`, "", 1)+`}]}`), "default", limits)
	if err != nil {
		t.Fatal(err)
	}
	answers, err := p.EvaluateBatch(t.Context(), pdp.BatchCall{Batch: batch})
	if err != nil {
		t.Fatal(err)
	}
	text, err := evaluation.Answers(answers.Items)
	want := `{"evaluations":[{"decision":false,"context":{"reason":"capability_invalid","capability":{"reason":"not_in_batch","next_action":"retry"}}},{"decision":true}]}`
	if string(text) != want || err != nil {
		t.Errorf("got  %s, %v\nwant %s", text, err, want)
	}
	if len(u.asked) > 0 || r.all[0].Capability == nil || r.all[0].Capability.Reason != "not_in_batch" || r.all[1].Capability != nil {
		t.Errorf("%+v", r.all)
	}
	for name, err := range map[string]error{
		"a search": func() error {
			_, err := evaluation.DecodeSearch(evaluation.ResourceSearch, []byte(item+`}`), "default", limits)
			return err
		}(),
		"a possible answer": func() error {
			_, err := evaluation.DecodeAuthZEN([]byte(item+`,"options":{"unknown":["/context/x"]}}`), "default", limits)
			return err
		}(),
		"text": func() error {
			_, err := evaluation.DecodeAuthZEN([]byte(strings.Replace(item, `{"token":"good","proof":"p"}`, `"good"`, 1)+`}`), "default", limits)
			return err
		}(),
		"another member": func() error {
			_, err := evaluation.DecodeAuthZEN([]byte(strings.Replace(item, `"proof":"p"`, `"prove":"p"`, 1)+`}`), "default", limits)
			return err
		}(),
	} {
		if err == nil || !strings.Contains(err.Error(), "capability") {
			t.Errorf("%s: %v", name, err)
		}
	}

	// Who has none knows none.
	alone := pdp.Of(p.Bundle(), pdp.Options{})
	if got := ask(t, alone, shows("good"), spending); got != `{"allow":false,"reason":"capability_invalid","capability":{"reason":"bad_signature","next_action":"none"}}` {
		t.Error(got)
	}
	// An explanation spends nothing, and says so.
	got := ask(t, p, shows("counted"), func(c *pdp.Call) { c.Explain = true })
	if !strings.HasPrefix(got, `{"allow":true,"capability":{"id":"cap_1","enforceable":false},"explain":`) || len(u.spends) > 0 || u.left != 1 {
		t.Errorf("%s, spent %v, left %d", got, u.spends, u.left)
	}
	// No error becomes an answer.
	u.failing = errors.New("no file")
	request, err := evaluation.DecodeNative([]byte(shows("good")), limits)
	if err != nil {
		t.Fatal(err)
	}
	recorded := len(r.all)
	if d, err := p.Evaluate(t.Context(), pdp.Call{Request: request}); !errors.Is(err, pdp.ErrNotRecorded) || d.Allow || len(r.all) > recorded {
		t.Errorf("%+v, %v", d, err)
	}
}

// TestEntitiesWithoutABundle: before there are policies, no name is that of an entity.
func TestEntitiesWithoutABundle(t *testing.T) {
	t.Parallel()
	p := pdp.Of(nil, pdp.Options{})
	if _, known := p.Ref("Agent", "a"); known || p.SameEntity(evaluation.Ref{Type: "agent", ID: "a"}, "Agent", "a") {
		t.Error("an entity is known")
	}
}
