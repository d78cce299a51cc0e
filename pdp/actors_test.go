package pdp_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"policy-service/evaluation"
	"policy-service/pdp"
)

func requesterIs(typ, id string) func(*pdp.Reviewed) {
	return func(a *pdp.Reviewed) { a.Requester = &evaluation.Ref{Type: typ, ID: id} }
}

// Who asked for it decides about it no more than who does it, and by no other name. Nor does it let anybody decide: who
// is named in the chain may by policies that say so, and the requester is not in the chain.
func TestActorsRequesterDecidesNothing(t *testing.T) {
	t.Parallel()
	const policies = `permit(principal is agent, action == Action::"tool.invoke", resource); permit(principal, action == Action::"approval.decide", resource) when { `
	p := one(policies+`true };`, "entities/e.json", fulfilEntities).Load(t)
	for name, test := range map[string]struct {
		person string
		about  pdp.Reviewed
		own    bool
	}{
		"somebody else":                  {"user:mia", reviewedIs(requesterIs("user", "zoe")), false},
		"the requester":                  {"user:zoe", reviewedIs(requesterIs("user", "zoe")), true},
		"by another name":                {"admin:m", reviewedIs(requesterIs("user", "mia")), true},
		"the other way round":            {"user:mia", reviewedIs(requesterIs("admin", "m")), true},
		"a shared identity":              {"user:noah", reviewedIs(requesterIs("agent", "helper")), true},
		"the same id of another type":    {"user:helper", reviewedIs(requesterIs("robot", "helper")), false},
		"identities that cannot be read": {"user:mia", reviewedIs(requesterIs("user", "odd")), true},
		"a type that there is no more":   {"user:mia", reviewedIs(requesterIs("__cedar::x", "a")), true},
		"beside the chain":               {"user:mia", reviewedIs(requesterIs("user", "zoe"), chainIs("user", "mia")), true},
		"beside an agent":                {"user:mia", reviewedIs(requesterIs("user", "zoe"), agentIs("", "mia")), true},
	} {
		if got := review(t, p, test.person, test.about); got.Own != test.own || got.May == test.own {
			t.Errorf("%s: got %+v", name, got)
		}
	}
	p = one(policies+`resource.chain.contains(principal) || resource.requester == principal };`, "entities/e.json", fulfilEntities, "bundle.yaml", "allow_self_approval: [owner]").Load(t)
	if got := review(t, p, "user:zoe", reviewedIs(requesterIs("user", "zoe"))); got.May {
		t.Errorf("the requester may decide, as one of the chain or as who acts: %+v", got)
	}
	if got := review(t, p, "user:zoe", reviewedIs(requesterIs("user", "ben"), chainIs("user", "zoe"))); got.May || !got.Own {
		t.Errorf("one of the chain may decide, and nobody knows behind whom of the two they stand: %+v", got)
	}
	if got := review(t, p, "user:zoe", reviewedIs(chainIs("user", "zoe"))); !got.May {
		t.Errorf("one of the chain may not decide about what nobody has requested: %+v", got)
	}
	p = one(policies+`resource.subject == principal };`, "entities/e.json", fulfilEntities, "bundle.yaml", "allow_self_approval: [owner]").Load(t)
	itself := func(a *pdp.Reviewed) { a.Subject = evaluation.Ref{Type: "user", ID: "zoe"} }
	if got := review(t, p, "user:zoe", reviewedIs(requesterIs("user", "ben"), itself)); !got.May {
		t.Errorf("who does it may not confirm that: %+v", got)
	}
	// The requester's issuer may call the requester as others call who does it.
	zoe, ben := evaluation.PersonOf("i", "zoe"), evaluation.PersonOf("i", "ben")
	for person, may := range map[string]bool{"": true, zoe: true, ben: false, evaluation.PersonOf("i", "mia"): true} {
		r, err := p.Reviewer("default", pdp.Approver{Entity: evaluation.Ref{Type: "user", ID: "zoe"}, Caller: "jwt:i#x", Persons: []string{person}})
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.Review(t.Context(), reviewedIs(requesterIs("user", "ben"), itself, func(a *pdp.Reviewed) { a.Person = zoe + " " + ben }))
		if err != nil || got.May != may || got.Own == may {
			t.Errorf("by the token of %q: got %+v, %v", person, got, err)
		}
	}
}

// refusedAt is the native answer where no person can be asked for an approval because of the actor at a place.
func refusedAt(pointer string) string {
	return `{"allow":false,"reason":"approval_required","access_request":{"refused":{"pointer":"` + pointer + `","detail":"nobody can tell who that is, ` +
		`so nobody can be asked for the approval; say an id, or {type, id} of a type that there can be"}}}`
}

// TestNoApprovalIsOwedThatNobodyCanGive: an agent in a form that policies alone understand leaves no person to ask. The answer is no allow then, with
// whatever the PEP does besides, and says why; where no approval is owed the form changes nothing.
func TestNoApprovalIsOwedThatNobodyCanGive(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]bundle{
		"a template":   one(`@obligation("ask") permit(principal is agent, action, resource);`, "obligations.yaml", askFirst),
		"by itself":    one(`@obligation("approval_required") permit(principal is agent, action, resource);`),
		"permissively": one(`@obligation("approval_required") permit(principal is agent, action, resource);`, "bundle.yaml", "undeclared_obligations: allow\n"),
		"and another":  one(`@obligation("approval_required,log") permit(principal is agent, action, resource);`),
	} {
		p, d := deskOf(t, b)
		for _, form := range []string{`7`, `{}`, `{"id":"x"}`, `{"type":"agent"}`, `{"type":"agent","id":"x","more":1}`, `["x","y"]`, `[]`, `[7]`, `[{"type":"agent","id":"x"}]`, `{"type":"__cedar::x","id":"x"}`} {
			for _, with := range [][]func(*pdp.Call){{filing}, {spending}, {}} {
				request := native(`"supported_obligations":["log","approval_required"],"agent":` + form)
				if got := ask(t, p, request, with...); got != refusedAt("/context/agent") || len(d.filed) > 0 {
					t.Errorf("%s, %s: %s, filed %q", name, form, got, d.filed)
				}
			}
		}
		for _, form := range []string{`"x"`, `["x"]`, `""`, `{"type":"agent","id":"x"}`} {
			if got := ask(t, p, native(`"supported_obligations":["log"],"agent":`+form)); !strings.HasPrefix(got, `{"allow":true`) {
				t.Errorf("%s, %s: %s", name, form, got)
			}
		}
	}
	p := one(`permit(principal is agent, action, resource);`).Load(t)
	if got := ask(t, p, native(`"agent":7`)); got != `{"allow":true}` {
		t.Errorf("where nobody is to be asked: %s", got)
	}
	authzen := `{"subject":{"type":"agent","id":"bot"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"t"},"context":{"agent":["a","b"]}}`
	p = one(`@obligation("approval_required") permit(principal is agent, action, resource);`).Load(t)
	if got := ask(t, p, authzen); !strings.HasPrefix(got, `{"decision":false,"context":{"reason":"approval_required","required_obligations":["approval_required"],"access_request":{"refused":{"pointer":"/context/agent",`) {
		t.Error(got)
	}
	batch, err := evaluation.DecodeBatch([]byte(strings.TrimSuffix(authzen, "}")+`,"evaluations":[{},{"context":{"agent":7}},{"context":{}}]}`), "", evaluation.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	decided, err := p.EvaluateBatch(t.Context(), pdp.BatchCall{Batch: batch})
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range []string{"/context/agent", "/evaluations/1/context/agent", ""} {
		if d := decided.Items[n]; d.Allow || (d.Refused == nil) != (want == "") || d.Refused != nil && d.Refused.Pointer != want {
			t.Errorf("item %d: %+v", n, d)
		}
	}
}

// TestNoFormOfAMaskedAgentIsGuessed: whether people could be asked hangs on the form of the agent, so a record that hides it is not decided again. Of
// a text the form is known.
func TestNoFormOfAMaskedAgentIsGuessed(t *testing.T) {
	t.Parallel()
	p := one(`@obligation("approval_required") permit(principal is agent, action, resource);`).Load(t)
	for typ, form := range map[string]string{"object": `{}`, "array": `[]`, "string": `"masked:x"`} {
		call := pdp.Call{Request: decoded(t, native(`"agent":`+form)), Hidden: []evaluation.Hidden{{At: "/context/agent", Type: typ, Fit: evaluation.Fits}}}
		d, err := p.Evaluate(t.Context(), call)
		var unknown *pdp.Unknown
		if hidden := errors.As(err, &unknown); hidden != (typ != "string") || hidden && strings.Join(unknown.Paths, " ") != "/context/agent" || !hidden && !d.Allow {
			t.Errorf("%s: %+v, %v", typ, d, err)
		}
	}
}

// TestOneActorIsAListOfOne: an approval of the one form counts as it is, and shows the person behind the request.
func TestOneActorIsAListOfOne(t *testing.T) {
	t.Parallel()
	for form, want := range map[string]evaluation.Actors{
		`"agent":["x"]`: {Agent: &evaluation.Ref{ID: "x"}},
		`"agent":[""]`:  {Agent: &evaluation.Ref{}},
		`"on_behalf_of":{"type":"user","id":"a"}`:        {Chain: []evaluation.Ref{{Type: "user", ID: "a"}}},
		`"on_behalf_of":[{"type":"user","id":"a"}]`:      {Chain: []evaluation.Ref{{Type: "user", ID: "a"}}},
		`"on_behalf_of":[]`:                              {},
		`"on_behalf_of":{"type":"a b","id":"a"}`:         {Chain: []evaluation.Ref{{Type: "a b", ID: "a"}}},
		`"on_behalf_of":null,"agent":null`:               {},
		`"requester":{"type":"user","id":""}`:            {Requester: &evaluation.Ref{Type: "user"}},
		`"requester":null,"agent":{"type":"u","id":"1"}`: {Agent: &evaluation.Ref{Type: "u", ID: "1"}},
	} {
		r := decoded(t, native(form))
		if got, ok := r.Actors(); !ok || cmp.Diff(want, got, cmpopts.EquateEmpty()) != "" {
			t.Errorf("%s: %+v", form, got)
		}
	}
}

// A request without a requester that can be named gets no approval, as with the other actors; nor does an approval for one
// requester count for another, whatever the approval is bound to besides.
func TestActorsRequesterIsBound(t *testing.T) {
	t.Parallel()
	bundles := map[string]bundle{
		"as a rule":        one(`@obligation("ask") permit(principal is agent, action, resource);`, "obligations.yaml", askFirst),
		"bound to nothing": one(`@obligation("ask") permit(principal is agent, action, resource);`, "obligations.yaml", strings.Replace(askFirst, "timeout: 10m", "timeout: 10m, material: []", 1)),
		"said to change":   one(`@obligation("ask") permit(principal is agent, action, resource);`, "obligations.yaml", askFirst, "bundle.yaml", "volatile: [requester, agent]\n"),
	}
	for name, b := range bundles {
		for _, form := range []string{`"bot"`, `7`, `[]`, `{}`, `{"id":"mia"}`, `{"type":"","id":"mia"}`, `{"type":"user"}`, `{"type":"user","id":"mia","more":1}`, `[{"type":"user","id":"mia"}]`, `{"type":"__cedar::x","id":"mia"}`} {
			p, d := deskOf(t, b)
			want := "400 /context/requester"
			if strings.Contains(form, "__cedar") {
				want = refusedAt("/context/requester")
			}
			if got := ask(t, p, native(`"requester":`+form), filing); got != want || len(d.filed) > 0 {
				t.Errorf("%s: %s: %s, filed %q", name, form, got, d.filed)
			}
		}
		p, d := deskOf(t, b)
		ask(t, p, native(`"requester":{"type":"user","id":"mia"}`), filing)
		if len(d.filed) != 1 {
			t.Fatalf("%s: filed %q", name, d.filed)
		}
		d.approved[d.filed[0]] = 1
		for _, other := range []string{``, `,"requester":{"type":"user","id":"noah"}`, `,"requester":{"type":"agent","id":"mia"}`, `,"agent":{"type":"user","id":"mia"}`, `,"on_behalf_of":[{"type":"user","id":"mia"}]`} {
			if got := ask(t, p, native(approved+other), spending); !strings.Contains(got, "approval_required") {
				t.Errorf("%s: of %s: %s", name, other, got)
			}
		}
		if got := ask(t, p, native(approved+`,"requester":{"type":"user","id":"mia"}`), spending); got != `{"allow":true}` {
			t.Errorf("%s: %s", name, got)
		}
	}
}
