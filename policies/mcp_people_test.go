package policies_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp"
)

// Who decides, and by which way: the very person by any, somebody else by none but console and api, and nobody by two names.
func TestMCPApprovers(t *testing.T) {
	t.Parallel()
	decider := mcpDecider(t, mcpWith(t, nil))
	hashOf := func(who string) string { return evaluation.PersonOf("https://login.example.com", who) }
	desktop, alice, carol := evaluation.Ref{Type: "agent", ID: "desktop"}, evaluation.Ref{Type: "user", ID: "alice"}, evaluation.Ref{Type: "user", ID: "carol"}
	for _, test := range []struct {
		template string
		subject  evaluation.Ref
		behind   []evaluation.Ref
		person   string // of whom the request is, as the gateway says it
		want     string
	}{
		{"confirm", desktop, []evaluation.Ref{alice}, hashOf("alice"), "alice/form alice/console alice/api"},
		{"confirm", alice, nil, hashOf("alice"), "alice/form alice/console alice/api"},
		{"confirm", desktop, []evaluation.Ref{{Type: "user", ID: "mallory"}}, "", ""},
		{"confirm", desktop, nil, "", ""},
		{"second-person", desktop, []evaluation.Ref{alice}, hashOf("alice"), "carol/console carol/api dave/console dave/api"},
		{"second-person", desktop, []evaluation.Ref{carol}, hashOf("carol"), "dave/console dave/api"},
		{"second-person", carol, nil, hashOf("carol"), "dave/console dave/api"},
		{"second-person", desktop, []evaluation.Ref{{Type: "user", ID: "carol.admin"}}, "", "dave/console dave/api"},
		// However the gateway calls her, she is the person of that token.
		{"second-person", desktop, []evaluation.Ref{{Type: "user", ID: "carol@example.com"}}, hashOf("carol"), "dave/console dave/api"},
		{"second-person", desktop, []evaluation.Ref{alice, carol}, "", "dave/console dave/api"},
	} {
		var may []string
		for _, who := range []string{"alice", "bob", "carol", "dave", "mallory", "carol.admin"} {
			for _, via := range []evaluation.Via{evaluation.ViaForm, evaluation.ViaConsole, evaluation.ViaAPI} {
				r, err := decider.Reviewer("default", pdp.Approver{Entity: evaluation.Ref{Type: "user", ID: who}, Persons: []string{hashOf(who)}, Way: evaluation.Way{Via: via}})
				if err != nil {
					t.Fatal(err)
				}
				review, err := r.Review(t.Context(), pdp.Reviewed{ID: "a-1", Template: test.template, Action: "tool.invoke", Subject: test.subject,
					Resource: evaluation.Ref{Type: "tool", ID: "files:move_file"}, Actors: evaluation.Actors{Chain: test.behind}, Person: test.person})
				if err != nil {
					t.Fatal(err)
				}
				if review.May {
					may = append(may, who+"/"+string(via))
				}
			}
		}
		if got := strings.Join(may, " "); got != test.want {
			t.Errorf("%s of %v for %v: may be decided by %q, want %q", test.template, test.subject, test.behind, got, test.want)
		}
	}
}

// asked keeps the way of asking besides.
type asked struct {
	filed
	templates []string
}

func (a *asked) File(ctx context.Context, r pdp.ApprovalRequest) (*evaluation.Approval, error) {
	a.templates = append(a.templates, r.Terms.Template)
	return a.filed.File(ctx, r)
}

// The person who is asked, and what the approval is for: this call of this definition of the tool by this agent for this
// person, also where an argument is one that no policy looks at. Asking again asks nobody anew.
func TestMCPAsks(t *testing.T) {
	t.Parallel()
	bundle, problems := pdp.Load(mcpWith(t, nil))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	people := &asked{}
	decider := pdp.Of(bundle, pdp.Options{Approvals: people})
	ask := func(impact, digest, behind, more string) {
		t.Helper()
		body := fmt.Sprintf(`{"subject":{"type":"agent","id":"desktop"},"action":{"name":"tool.invoke"},
			"resource":{"type":"tool","id":"tickets:x","properties":{"labels":{"integration":"tickets","impact":%q},"digest":%q}},
			"context":{"on_behalf_of":[{"type":"user","id":%q}]%s,"supported_obligations":["approval_required"]}}`, impact, digest, behind, more)
		request, err := evaluation.Decode([]byte(body), "default", evaluation.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		if _, err = decider.Evaluate(t.Context(), pdp.Call{Request: request, Approvals: pdp.SpendOrFile}); err != nil {
			t.Fatal(err)
		}
	}
	ask("write", "d1", "alice", `,"arguments":{"ticket":7}`)
	ask("write", "d1", "alice", `,"arguments":{"ticket":7},"agent_invocation_id":"second"`)
	ask("write", "d1", "alice", `,"arguments":{"ticket":8}`)
	ask("write", "d1", "alice", `,"arguments":{"ticket":7,"force":null}`)
	ask("write", "d1", "alice", `,"arguments":{"ticket":7},"purpose":"other"`)
	ask("write", "d2", "alice", `,"arguments":{"ticket":7}`)
	ask("write", "d1", "bob", `,"arguments":{"ticket":7}`)
	ask("destroy", "d1", "alice", `,"arguments":{"ticket":7}`)
	if got := strings.Join(people.templates, " "); got != "confirm confirm confirm confirm confirm confirm confirm second-person" {
		t.Fatalf("asked by %s", got)
	}
	if b := people.bindings; b[1] != b[0] || len(slices.Compact(slices.Sorted(slices.Values(b)))) != len(b)-1 {
		t.Errorf("asked for\n%s", strings.Join(b, "\n"))
	}
}
