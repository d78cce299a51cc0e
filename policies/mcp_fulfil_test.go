package policies_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp"
)

// What a call forbids, doing it for an agent forbids too, and a request is for known agents only, also beside a permit that
// is as wide as can be: of every combination of what a question can say.
func TestFulfilMCPHolds(t *testing.T) {
	t.Parallel()
	ours := mcpDecider(t, mcpWith(t, nil))
	wide := mcpDecider(t, mcpWith(t, map[string]string{"wide.cedar": `@id("wide") permit (principal, action, resource);`}))
	read := func(q mcpQuestion, action string) evaluation.Request {
		t.Helper()
		request, err := evaluation.Decode([]byte(strings.Replace(q.body(), "tool.invoke", action, 1)), "default", evaluation.DefaultLimits())
		if err != nil {
			t.Fatalf("%s: %v", q.body(), err)
		}
		return request
	}
	decide := func(d *pdp.PDP, request evaluation.Request) evaluation.Decision {
		t.Helper()
		got, err := d.Evaluate(t.Context(), pdp.Call{Request: request})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	const job = `"requester":{"type":"agent","id":"ci"},`
	allowed := map[string]int{}
	tried := 0
	check := func(q mcpQuestion) {
		if tried++; testing.Short() && tried%11 != 0 { // of no kind there are 11, so each goes together with all others
			return
		}
		alone := q
		alone.behind = strings.ReplaceAll(q.behind, job, "")
		toFulfil, toRequest, toInvoke := read(q, "tool.fulfil"), read(q, "tool.request"), read(alone, "tool.invoke")
		for name, d := range map[string]*pdp.PDP{"ours": ours, "wide": wide} {
			fulfil, request, invoke := decide(d, toFulfil), decide(d, toRequest), decide(d, toInvoke)
			forbidden := len(invoke.Determining) > 0 && !invoke.Allow
			stranger := strings.Contains(q.subject, "mallory") || strings.Contains(q.subject, "newcomer")
			user, labelled := strings.Contains(q.subject, "user"), slices.Contains([]string{`"read"`, `"write"`, `"destroy"`}, q.impact)
			var broken string
			switch {
			case fulfil.Allow && (forbidden || invoke.Reason == evaluation.SchemaMismatch):
				broken = "the call is forbidden, and doing it for an agent is not"
			case (fulfil.Allow || request.Allow) && (stranger || !labelled):
				broken = "a stranger, or a tool without labels"
			case fulfil.Allow && !strings.Contains(q.behind, `"requester":{"type":"agent"`):
				broken = "for no agent"
			case fulfil.Allow && strings.Contains(q.subject, "desktop"):
				broken = "an assistant does it"
			case request.Allow && strings.Contains(q.subject, "desktop") && (!strings.Contains(q.behind, "alice") || strings.Contains(q.behind, "mallory")):
				broken = "an assistant requests it for nobody"
			case name == "ours" && (fulfil.Allow && !user || request.Allow && user):
				broken = "an agent does it, or a person requests it"
			case name == "ours" && (fulfil.Allow || request.Allow) && (q.impact == `"read"` || strings.Contains(q.said, `"pinned":false`)):
				broken = "it reads, or has changed"
			case name == "ours" && len(fulfil.Obligations)+len(request.Obligations) > 0:
				broken = "people are asked twice"
			}
			if broken != "" {
				t.Fatalf("%s: %s\n%s\nfulfil %+v\nrequest %+v", name, broken, q.body(), fulfil, request)
			}
			if fulfil.Allow {
				allowed[name+" fulfil"]++
			}
			if request.Allow {
				allowed[name+" request"]++
			}
		}
	}
	for _, subject := range []string{`"type":"user","id":"alice"`, `"type":"user","id":"bob","properties":{"department_id":"finance"}`, `"type":"user","id":"mallory"`, `"type":"agent","id":"desktop"`, `"type":"agent","id":"ci"`, `"type":"agent","id":"newcomer"`} {
		for _, behind := range []string{``, `"on_behalf_of":[{"type":"user","id":"alice"}],`, `"on_behalf_of":[{"type":"user","id":"alice"},{"type":"user","id":"mallory"}],`} {
			for _, requester := range []string{``, job, `"requester":{"type":"user","id":"bob"},`} {
				for _, impact := range []string{``, `"read"`, `"write"`, `"destroy"`, `"none"`} {
					for _, said := range []string{``, `,"pinned":false`, `,"approval_hint":{"required":true}`} {
						for _, at := range []struct{ tool, integration, arguments string }{
							{"tickets:x", `"tickets"`, ``},
							{"tickets:x", ``, ``},
							{"files:write_file", `"files"`, `"arguments":{"path":"drafts/a.md"},`},
							{"files:write_file", `"files"`, `"arguments":{"path":"drafts/../a.md"},`},
							{"payments:create_refund", `"payments"`, `"arguments":{"amount":100},`},
							{"payments:create_refund", `"payments"`, `"arguments":{"amount":1000000},`},
							{"mail:send_email", `"mail"`, `"arguments":{"to":"bob@example.com"},`},
							{"mail:send_email", `"mail"`, `"arguments":{"to":"bob@example.com","bcc":"eve@example.org"},`},
						} {
							check(mcpQuestion{subject, behind + requester, at.tool, impact, at.integration, said, at.arguments})
						}
					}
				}
			}
		}
	}
	if allowed["ours fulfil"] < 5 || allowed["ours request"] < 20 || allowed["wide fulfil"] <= allowed["ours fulfil"] {
		t.Errorf("allowed: %v", allowed)
	}
}

// A person does nothing for another name of theirs: no policy of the bundle says so, and the service does.
func TestFulfilMCPOwn(t *testing.T) {
	t.Parallel()
	decider := mcpDecider(t, mcpWith(t, map[string]string{"entities/own.json": `[{"uid":{"type":"agent","id":"carol.admin"},"attrs":{},"parents":[{"type":"group","id":"jobs"}]}]`}))
	for _, test := range []struct {
		subject, requester string
		reason             evaluation.Reason
	}{
		{"carol", "ci", ""}, {"dave", "carol.admin", ""}, {"carol", "carol.admin", evaluation.OwnRequest},
	} {
		q := mcpQuestion{fmt.Sprintf(`"type":"user","id":%q`, test.subject), fmt.Sprintf(`"requester":{"type":"agent","id":%q},`, test.requester), "tickets:x", `"write"`, `"tickets"`, ``, ``}
		request, err := evaluation.Decode([]byte(strings.Replace(q.body(), "tool.invoke", "tool.fulfil", 1)), "default", evaluation.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		d, err := decider.Evaluate(t.Context(), pdp.Call{Request: request})
		if err != nil || d.Allow != (test.reason == "") || d.Reason != test.reason || !d.Allow && strings.Join(d.Overruled, " ") != "people-fulfil" {
			t.Errorf("%s for %s: %t %q %q, %v", test.subject, test.requester, d.Allow, d.Reason, d.Determining, err)
		}
	}
}

// The questions of one who does what an agent requested, beside the schema of tools with actions of their own.
func TestFulfilMCPByTool(t *testing.T) {
	t.Parallel()
	decider := mcpDecider(t, mcpWith(t, map[string]string{"schema.cedarschema": toolActions, "own.cedar": `
		@id("not-for-jobs") forbid (principal, action in Action::"tool.invoke", resource == tool::"tickets:create_ticket")
		when { context has requester && context.requester in group::"jobs" };`}))
	for requester, allow := range map[string]bool{``: true, `"requester":{"type":"agent","id":"desktop"},`: true, `"requester":{"type":"agent","id":"ci"},`: false} {
		for _, action := range []string{"tool.invoke", "tickets:create_ticket"} {
			q := mcpQuestion{`"type":"user","id":"alice"`, requester, "tickets:create_ticket", `"write"`, `"tickets"`, ``, ``}
			request, err := evaluation.Decode([]byte(strings.Replace(q.body(), "tool.invoke", action, 1)), "default", evaluation.DefaultLimits())
			if err != nil {
				t.Fatal(err)
			}
			d, err := decider.Evaluate(t.Context(), pdp.Call{Request: request})
			if err != nil || d.Allow != allow {
				t.Errorf("%s%s: %t %q %q, %v", requester, action, d.Allow, d.Reason, d.Determining, err)
			}
		}
	}
}
