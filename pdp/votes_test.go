package pdp_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp"
)

const (
	toolsOfAgents = `@id("t") permit(principal is agent, action == Action::"tool.invoke", resource);`
	decidesIf     = `@id("d") permit(principal is user, action == Action::"approval.decide", resource is Approval) when { `
	wayDeclared   = `entity user, agent, tool; entity Approval = { template: String };
		action "tool.invoke" appliesTo { principal: [agent], resource: [tool] };
		action "approval.decide" appliesTo { principal: [user], resource: [Approval]`
)

// Policies know by which way a vote comes, with a schema and without; what is not said is the API.
func TestWayOfAVote(t *testing.T) {
	t.Parallel()
	api, form := evaluation.Way{}, evaluation.Way{Via: evaluation.ViaForm, Gateway: "key:gw"}
	console, other := evaluation.Way{Via: evaluation.ViaConsole, Gateway: "key:desk"}, evaluation.Way{Via: evaluation.ViaForm, Gateway: "key:other"}
	client := evaluation.Way{Via: evaluation.ViaForm, Gateway: "key:other", Client: evaluation.Ref{Type: "agent", ID: "desk"}}
	ways := map[string]evaluation.Way{"api": api, "form": form, "console": console, "other": other, "client": client}
	files := map[string][]string{
		"no schema":        {},
		"a schema":         {"schema.cedarschema", wayDeclared + ` };`},
		"one with a way":   {"schema.cedarschema", wayDeclared + `, context: { gateway?: String, via: String, client?: { id: String, type: String } } };`},
		"in a namespace":   {"schema.cedarschema", `namespace N { ` + wayDeclared + ` }; }`, "bundle.yaml", "namespace: N"},
		"unknown rejected": {"schema.cedarschema", wayDeclared + ` };`, "bundle.yaml", "unknown_properties: reject"},
	}
	for name, more := range files {
		for _, test := range []struct{ condition, want string }{
			{`context.via == "api"`, "api"},
			{`context.via == "form"`, "form other client"},
			{`context has client && context.client == {type: "agent", id: "desk"}`, "client"},
			{`context has client && context.client.type == "agent" && context.client.id like "d*"`, "client"},
			{`!(context has client)`, "api console form other"},
			{`context.via == "console"`, "console"},
			{`["api", "console"].contains(context.via)`, "api console"},
			{`context has gateway && context.gateway == "key:gw"`, "form"},
			{`!(context has gateway)`, "api"},
			{`context.pdp.caller == "key:k"`, "api console form other client"},
		} {
			policies := toolsOfAgents + decidesIf + test.condition + ` };`
			if strings.Contains(name, "namespace") {
				policies = strings.NewReplacer("is agent", "is N::agent", "is user", "is N::user", "is Approval", "is N::Approval", "Action::", "N::Action::").Replace(policies)
			}
			p := one(policies, more...).Load(t)
			var may []string
			for _, way := range []string{"api", "console", "form", "other", "client"} {
				r, err := p.Reviewer("default", pdp.Approver{Entity: namedIn(name, "mia"), Caller: "key:k", Way: ways[way]})
				if err != nil {
					t.Fatal(err)
				}
				got, err := r.Review(t.Context(), reviewedIs(func(a *pdp.Reviewed) { a.SameClient = true }))
				if err != nil {
					t.Fatal(err)
				}
				if got.May {
					may = append(may, way)
				}
			}
			if strings.Join(may, " ") != test.want {
				t.Errorf("%s, %s: may decide by %q, want %s", name, test.condition, may, test.want)
			}
		}
	}
}

func namedIn(name, id string) evaluation.Ref {
	typ := "user"
	if strings.Contains(name, "namespace") {
		typ = "N::user"
	}
	return evaluation.Ref{Type: typ, ID: id}
}

// A PEP that asks who may decide asks about the API, or about the way that it names. That decides nothing.
func TestWayOfAQuestion(t *testing.T) {
	t.Parallel()
	request := func(action, context string) string {
		return fmt.Sprintf(`{"subject":{"type":"user","id":"mia"},"action":{"name":%q},"resource":{"type":"Approval","id":"a","properties":{"template":"owner"}},"context":{%s}}`, action, context)
	}
	const anybody = `permit(principal is user, action in [Action::"approval.decide", Action::"approval.see"], resource) when { context has via && context.via == "`
	for name, more := range map[string][]string{"no schema": {}, "a schema": {"schema.cedarschema", wayDeclared + ` };`}} {
		api, form := one(toolsOfAgents+decidesIf+`context.via == "api" };`, more...).Load(t), one(toolsOfAgents+decidesIf+`context.via == "form" };`, more...).Load(t)
		for _, test := range []struct {
			p       *pdp.PDP
			context string
			allow   bool
		}{
			{api, ``, true}, {api, `"via":null`, true}, {api, `"via":"form"`, false}, {api, `"via":"api"`, true},
			{form, ``, false}, {form, `"via":"form"`, true}, {form, `"via":7`, false}, {form, `"via":{}`, false},
		} {
			if got := ask(t, test.p, request("approval.decide", test.context)); strings.HasPrefix(got, `{"decision":true`) != test.allow {
				t.Errorf("%s, %s: %s", name, test.context, got)
			}
		}
	}
	// No other action has a way of its own, in one batch with this one either.
	p := one(anybody + `api" };`).Load(t)
	for action, want := range map[string]string{"approval.decide": `{"decision":true}`, "approval.see": `{"decision":false}`} {
		if got := ask(t, p, request(action, ``)); got != want {
			t.Errorf("%s: %s", action, got)
		}
	}
	batch, err := evaluation.DecodeBatch([]byte(`{"subject":{"type":"user","id":"mia"},"resource":{"type":"Approval","id":"a"},"context":{"x":1},
		"evaluations":[{"action":{"name":"approval.see"}},{"action":{"name":"approval.decide"}},{"action":{"name":"approval.see"}}]}`), "", evaluation.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	got, err := p.EvaluateBatch(t.Context(), pdp.BatchCall{Batch: batch})
	if err != nil || got.Items[0].Allow || !got.Items[1].Allow || got.Items[2].Allow {
		t.Errorf("a batch: %+v, %v", got.Items, err)
	}
}

// A schema that says otherwise how votes come does not load, and no check warns of what the PDP says itself.
func TestWayInASchema(t *testing.T) {
	t.Parallel()
	for context, loads := range map[string]bool{
		``:                                true,
		`, context: {}`:                   true,
		`, context: { via: String }`:      true,
		`, context: { via?: String }`:     true,
		`, context: { via: Long }`:        false,
		`, context: { via: Set<String> }`: false,
		`, context: { gateway: String }`:  false,
		`, context: { gateway?: user }`:   false,

		`, context: { client?: { type: String, id: String } }`:  true,
		`, context: { client: { type: String, id: String } }`:   false,
		`, context: { client?: { type: String, id?: String } }`: false,
		`, context: { client?: { type: String } }`:              false,
		`, context: { client?: agent }`:                         false,
		`, context: { client?: Set<{ id: String }> }`:           false,
		`, context: { via: Long, gateway: Bool}`:                false,
	} {
		_, problems := pdp.Load(one(toolsOfAgents+decidesIf+`true };`, "schema.cedarschema", wayDeclared+context+` };`).Source())
		if problems.Refuse() == loads || !loads && !strings.Contains(problems[0].Message+problems[0].Try, "declare via: String, gateway?: String and client?: {type: String, id: String}") {
			t.Errorf("%s: %v", context, problems)
		}
	}
	const forbids = ` @id("f") forbid(principal, action == Action::"approval.decide", resource) when { context.via == "form" && context has gateway && context.gateway == "key:gw" && context has client && context.client.id == "desk" };`
	for name, more := range map[string][]string{"no schema": {}, "a schema": {"schema.cedarschema", wayDeclared + ` };`}} {
		_, problems := pdp.Check(one(toolsOfAgents+decidesIf+`true };`+forbids, more...).Source(), time.Now())
		for _, p := range problems {
			if strings.Contains(p.Message, "context.via") || strings.Contains(p.Message, "context.gateway") || strings.Contains(p.Message, "context.client") {
				t.Errorf("%s: %v", name, p)
			}
		}
	}
}

// No form counts that the client which asks has answered, by whatever name, and none of a client that may be any.
func TestNoVoteThroughAClientThatAsks(t *testing.T) {
	t.Parallel()
	const policies = toolsOfAgents + decidesIf + `true };`
	const entities = `[{"uid":{"type":"agent","id":"bot"},"attrs":{"identities":["bot.night"]},"parents":[]}]`
	bySubject := func(typ, id string) func(*pdp.Reviewed) {
		return func(a *pdp.Reviewed) { a.Subject = evaluation.Ref{Type: typ, ID: id} }
	}
	requesterIs := func(typ, id string) func(*pdp.Reviewed) {
		return func(a *pdp.Reviewed) { a.Requester = &evaluation.Ref{Type: typ, ID: id} }
	}
	same := func(a *pdp.Reviewed) { a.SameClient = true }
	agent := func(id string) evaluation.Ref { return evaluation.Ref{Type: "agent", ID: id} }
	unnamed := evaluation.Ref{}
	for name, test := range map[string]struct {
		client evaluation.Ref
		about  pdp.Reviewed
		own    bool
	}{
		"the subject":                 {agent("bot"), reviewedIs(), true},
		"its other name":              {agent("bot.night"), reviewedIs(), true},
		"another client":              {agent("desk"), reviewedIs(), false},
		"of another type":             {evaluation.Ref{Type: "user", ID: "bot"}, reviewedIs(), false},
		"of no type there can be":     {evaluation.Ref{Type: "a b", ID: "bot"}, reviewedIs(), true},
		"the agent":                   {agent("helper"), reviewedIs(agentIs("agent", "helper")), true},
		"the agent, by its id alone":  {agent("helper"), reviewedIs(agentIs("", "helper")), true},
		"one in the chain":            {agent("first"), reviewedIs(chainIs("agent", "first")), true},
		"the requester":               {agent("asker"), reviewedIs(bySubject("user", "noah"), requesterIs("agent", "asker")), true},
		"another of a requester":      {agent("desk"), reviewedIs(bySubject("user", "noah"), requesterIs("agent", "asker")), false},
		"of a token that names none":  {evaluation.NoClient, reviewedIs(), false},
		"unnamed":                     {unnamed, reviewedIs(), true},
		"unnamed, a person asks":      {unnamed, reviewedIs(bySubject("user", "noah")), false},
		"unnamed, by an agent":        {unnamed, reviewedIs(bySubject("user", "noah"), agentIs("agent", "helper")), true},
		"unnamed, by an id":           {unnamed, reviewedIs(bySubject("user", "noah"), agentIs("", "helper")), true},
		"unnamed, an agent requested": {unnamed, reviewedIs(bySubject("user", "noah"), requesterIs("agent", "asker")), true},
		"unnamed, a person requested": {unnamed, reviewedIs(bySubject("user", "noah"), requesterIs("user", "zoe")), false},
		"the subject, as terms let":   {agent("bot"), reviewedIs(same), false},
		"unnamed, as terms let":       {unnamed, reviewedIs(same), false},
	} {
		for _, bundle := range []struct {
			yaml string
			lets bool
		}{{"unknown_properties: drop", false}, {"allow_self_approval: [owner]", true}, {"allow_self_approval: [another]", false}} {
			p := one(policies, "entities/e.json", entities, "bundle.yaml", bundle.yaml).Load(t)
			for via, own := range map[evaluation.Via]bool{evaluation.ViaForm: test.own && !bundle.lets, evaluation.ViaConsole: false, evaluation.ViaAPI: false} {
				r, err := p.Reviewer("default", pdp.Approver{
					Entity: evaluation.Ref{Type: "user", ID: "mia"}, Caller: "jwt:i#mia",
					Way: evaluation.Way{Via: via, Gateway: "key:gw", Client: test.client},
				})
				if err != nil {
					t.Fatal(err)
				}
				if got, err := r.Review(t.Context(), test.about); err != nil || got.Own != own || got.May == own {
					t.Errorf("%s by %s, %s: got %+v, %v", name, via, bundle.yaml, got, err)
				}
			}
		}
	}
}

// Whoever a question is asked for does not decide it by another name, unless the bundle says so.
func TestOnePersonByTwoNames(t *testing.T) {
	t.Parallel()
	const policies = toolsOfAgents + decidesIf + `true };`
	mia := evaluation.PersonOf("https://login.example.com", "mia")
	noah := evaluation.PersonOf("https://login.example.com", "noah")
	for name, test := range map[string]struct {
		asked, approver string
		own             bool
	}{
		"she herself":      {mia, mia, true},
		"somebody else":    {mia, noah, false},
		"by no token":      {mia, "", false},
		"asked for nobody": {"", mia, false},
		"neither":          {"", "", false},
		"one of two":       {noah + " " + mia, mia, true},
		"none of two":      {noah + " " + evaluation.PersonOf("i", "zoe"), mia, false},
		"by no token, two": {noah + " " + mia, "", false},
	} {
		for _, bundle := range []struct {
			yaml string
			lets bool
		}{{"", false}, {"allow_self_approval: [owner]", true}, {"allow_self_approval: [another]", false}} {
			files := []string{}
			if bundle.yaml != "" {
				files = append(files, "bundle.yaml", bundle.yaml)
			}
			r, err := one(policies, files...).Load(t).Reviewer("default", pdp.Approver{
				Entity: evaluation.Ref{Type: "user", ID: "corp|mia"}, Caller: "jwt:x#mia", Persons: []string{test.approver},
			})
			if err != nil {
				t.Fatal(err)
			}
			got, err := r.Review(t.Context(), reviewedIs(chainIs("user", "mia"), func(a *pdp.Reviewed) { a.Person = test.asked }))
			if own := test.own && !bundle.lets; err != nil || got.Own != own || got.May == own {
				t.Errorf("%s, %q: got %+v, %v", name, bundle.yaml, got, err)
			}
		}
	}
}

// An approval is bound to the person it was asked for, and a gateway that names nobody has nobody asked.
func TestPersonIsBound(t *testing.T) {
	t.Parallel()
	b := one(`@id("p") @obligation("ask") permit(principal is agent, action, resource) when { !(context has person) };`, "obligations.yaml", askFirst)
	mia, noah := evaluation.PersonOf("i", "mia"), evaluation.PersonOf("i", "noah")
	relaying := func(c *pdp.Call) { c.Asker.Relays, c.Approvals = true, pdp.SpendOrFile }
	p, d := deskOf(t, b)
	for _, context := range []string{`"person":"` + mia + `"`, `"person":"` + noah + `"`, ``} {
		if got := ask(t, p, native(context), filing); !strings.Contains(got, `"status":"pending"`) {
			t.Errorf("%s: %s", context, got)
		}
	}
	if len(d.filed) != 3 || d.filed[0] == d.filed[1] || d.filed[0] == d.filed[2] || d.filed[1] == d.filed[2] {
		t.Errorf("filed %q", d.filed)
	}
	d.approved[d.filed[0]], d.approved[d.filed[2]] = 1, 1
	for context, goes := range map[string]bool{
		`"person":"` + noah + `",` + approved: false,
		`"person":"` + mia + `",` + approved:  true,
	} {
		if got := ask(t, p, native(context), spending); (got == `{"allow":true}`) != goes {
			t.Errorf("%s: %s", context, got)
		}
	}
	// By a gateway: with the person it is as before; without, nothing is filed, offered or spent.
	filed := len(d.filed)
	if got := ask(t, p, native(``), relaying); got != stands+`}` {
		t.Errorf("nobody: %s", got)
	}
	if got := ask(t, p, native(approved), relaying); got != stands+`}` || d.approved[d.filed[2]] != 1 {
		t.Errorf("nobody, approved: %s", got)
	}
	if len(d.filed) != filed {
		t.Error("an approval was filed for nobody")
	}
	if got := ask(t, p, native(`"person":"`+mia+`"`), relaying); !strings.Contains(got, `"status":"pending"`) {
		t.Errorf("her: %s", got)
	}
	authzen := func(context string) string {
		return `{"subject":{"type":"agent","id":"bot"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"t"},"context":{` + context + `}}`
	}
	offering := func(c *pdp.Call) { c.Asker.Relays, c.Approvals = true, pdp.SpendOrOffer }
	for context, offers := range map[string]bool{``: false, `"person":"` + mia + `"`: true} {
		if got := ask(t, p, authzen(context), offering); strings.Contains(got, "evaluation_id") != offers {
			t.Errorf("%s: %s", context, got)
		}
		r, err := evaluation.DecodeAuthZEN([]byte(authzen(context)), "", evaluation.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		if _, ok, err := p.Requestable(t.Context(), pdp.Call{Request: r, Asker: evaluation.Asker{Relays: true}}); ok != offers || err != nil {
			t.Errorf("%s is requestable: %t, %v", context, ok, err)
		}
	}
}
