package pdp_test

import (
	"strings"
	"testing"

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
		r, err := p.Reviewer("default", pdp.Approver{Entity: evaluation.Ref{Type: "user", ID: "zoe"}, Caller: "jwt:i#x", Person: person})
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.Review(t.Context(), reviewedIs(requesterIs("user", "ben"), itself, func(a *pdp.Reviewed) { a.Person = zoe + " " + ben }))
		if err != nil || got.May != may || got.Own == may {
			t.Errorf("by the token of %q: got %+v, %v", person, got, err)
		}
	}
}

// A request whose requester nobody can name gets no approval, as with the other actors; nor does an approval for one
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
			if got := ask(t, p, native(`"requester":`+form), filing); !strings.Contains(got, "approval_required") || strings.Contains(got, "pending") || len(d.filed) > 0 {
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
