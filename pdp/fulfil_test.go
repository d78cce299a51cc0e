package pdp_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp"
)

const (
	fulfilAll      = `@id("all") permit(principal, action, resource is tool);`
	fulfilEntities = `[
		{"uid":{"type":"user","id":"mia"},"attrs":{"identities":[{"__entity":{"type":"admin","id":"m"}},"mia.night"]},"parents":[]},
		{"uid":{"type":"user","id":"noah"},"attrs":{"identities":["shared"]},"parents":[]},
		{"uid":{"type":"agent","id":"helper"},"attrs":{"identities":["shared"]},"parents":[]},
		{"uid":{"type":"user","id":"odd"},"attrs":{"identities":[{"type":"user","id":"x"}]},"parents":[]}]`
)

// fulfils asks in both shapes whether a subject fulfils a request, with members of the context.
func fulfils(subject, context string) (authzen, native string) {
	typ, id, _ := strings.Cut(subject, ":")
	return fmt.Sprintf(`{"subject":{"type":%q,"id":%q},"action":{"name":"tool.fulfil"},"resource":{"type":"tool","id":"t"},"context":{%s}}`, typ, id, context),
		fmt.Sprintf(`{"tenant_id":"default","actor":{"actor_type":%q,"actor_id":%q},"action":"tool.fulfil","resource":{"type":"tool","id":"t"},"context":{%s}}`, typ, id, context)
}

func requestedBy(typ, id string) string {
	return fmt.Sprintf(`"requester":{"type":%q,"id":%q}`, typ, id)
}

// No person fulfils their own request, whatever policies say, or one whose requester is not known.
func TestFulfilOwn(t *testing.T) {
	t.Parallel()
	p := one(fulfilAll, "entities/e.json", fulfilEntities, "bundle.yaml", "allow_self_approval: [owner]\n").Load(t)
	for name, test := range map[string]struct {
		subject, context string
		own              bool
	}{
		"another's":                         {"user:zoe", requestedBy("agent", "bot"), false},
		"another person's":                  {"user:zoe", requestedBy("user", "mia"), false},
		"their own":                         {"user:zoe", requestedBy("user", "zoe"), true},
		"the same id of another type":       {"user:zoe", requestedBy("agent", "zoe"), false},
		"by another name of theirs":         {"admin:m", requestedBy("user", "mia"), true},
		"the other way round":               {"user:mia", requestedBy("admin", "m"), true},
		"by an id alone":                    {"user:mia", requestedBy("agent", "mia.night"), true},
		"by two other names of one":         {"admin:m", requestedBy("user", "mia.night"), true},
		"a shared identity":                 {"user:noah", requestedBy("agent", "helper"), true},
		"identities that cannot be read":    {"user:odd", requestedBy("agent", "bot"), true},
		"of the requester":                  {"user:zoe", requestedBy("user", "odd"), true},
		"the agent that acts":               {"user:zoe", `"agent":{"type":"agent","id":"bot"},` + requestedBy("agent", "bot"), true},
		"the agent that acts, by its id":    {"user:zoe", `"agent":"bot",` + requestedBy("agent", "bot"), true},
		"another agent":                     {"user:zoe", `"agent":"desktop",` + requestedBy("agent", "bot"), false},
		"an agent that nobody knows":        {"user:zoe", `"agent":7,` + requestedBy("agent", "bot"), true},
		"the requester in the chain":        {"user:zoe", `"on_behalf_of":[{"type":"agent","id":"bot"}],` + requestedBy("agent", "bot"), false},
		"no requester":                      {"user:zoe", ``, true},
		"null":                              {"user:zoe", `"requester":null`, true},
		"a type that nobody can name":       {"user:zoe", requestedBy("__cedar::x", "bot"), true},
		"more beside":                       {"user:zoe", `"arguments":{"requester":{"type":"user","id":"zoe"}},` + requestedBy("agent", "bot"), false},
		"a word of the requester elsewhere": {"user:zoe", `"requested_by":{"type":"agent","id":"bot"}`, true},
	} {
		authzen, native := fulfils(test.subject, test.context)
		for shape, want := range map[string]string{authzen: `{"decision":true}`, native: `{"allow":true}`} {
			if test.own && shape == native {
				want = `{"allow":false,"reason":"own_request"}`
			} else if test.own {
				want = `{"decision":false,"context":{"reason":"own_request"}}`
			}
			if got := ask(t, p, shape); got != want {
				t.Errorf("%s: %s\ngot  %s\nwant %s", name, shape, got, want)
			}
		}
		if got := ask(t, p, strings.ReplaceAll(authzen, "tool.fulfil", "tool.request")); got != `{"decision":true}` {
			t.Errorf("%s: another action is denied: %s", name, got)
		}
	}
}

// The types are those of the wire, and the action's name counts in whatever namespace.
func TestFulfilOwnByTheNamesOfTheBundle(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]bundle{
		"types":     one(`permit(principal, action, resource is Tool);`, "bundle.yaml", "types: {person: User, bot: Agent, hammer: Tool}\n"),
		"namespace": one(`permit(principal, action, resource is N::Tool);`, "bundle.yaml", "namespace: N\ntypes: {person: User, bot: Agent, hammer: Tool}\n"),
	} {
		p := b.Load(t)
		for requester, own := range map[string]bool{requestedBy("person", "zoe"): true, requestedBy("person", "mia"): false, requestedBy("bot", "zoe"): false, requestedBy("no type", "zoe"): true} {
			request, _ := fulfils("person:zoe", requester)
			request = strings.Replace(request, `"tool"`, `"hammer"`, 1)
			if got := ask(t, p, request); strings.Contains(got, "own_request") != own || strings.Contains(got, "true") == own {
				t.Errorf("%s, %s: %s", name, requester, got)
			}
		}
	}
}

// The text of a policy that denies stays, the reason is that of the service, and no use of an approval is spent.
func TestFulfilOwnSays(t *testing.T) {
	t.Parallel()
	own, _ := fulfils("user:zoe", requestedBy("user", "zoe"))
	decide := func(policies string, more ...string) evaluation.Decision {
		t.Helper()
		p := one(policies, more...).Load(t)
		d, err := p.Evaluate(t.Context(), pdp.Call{Request: decoded(t, own), Explain: true})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	if d := decide(fulfilAll); d.Allow || d.Reason != evaluation.OwnRequest || len(d.Determining) > 0 || fmt.Sprint(d.Overruled) != "[all]" || d.Explain == nil {
		t.Errorf("of an allow: %+v", d)
	}
	if d := decide(fulfilAll + `@id("no") @reason_user("no") forbid(principal, action, resource);`); d.Allow || d.Reason != evaluation.OwnRequest || fmt.Sprint(d.Determining) != "[no]" || d.ReasonUser != "no" || d.Overruled != nil {
		t.Errorf("of a forbid: %+v", d)
	}
	if d := decide(`permit(principal is doc, action, resource);`); d.Allow || d.Reason != evaluation.OwnRequest {
		t.Errorf("of no permit: %+v", d)
	}
	if d := decide(fulfilAll + `forbid(principal, action, resource) when { resource.missing };`); d.Allow || d.Reason != evaluation.OwnRequest || len(d.Errors) != 1 {
		t.Errorf("of an error: %+v", d)
	}
	if d := decide(fulfilAll, "schema.cedarschema", `entity user, tool; action "tool.fulfil" appliesTo {principal: [tool], resource: [tool]};`); d.Allow || d.Reason != evaluation.SchemaMismatch {
		t.Errorf("of what is no question: %+v", d)
	}

	p, desk := deskOf(t, one(`@id("p") @obligation("ask") permit(principal, action, resource is tool);`, "obligations.yaml", askFirst))
	_, native := fulfils("user:zoe", requestedBy("user", "zoe"))
	for _, change := range []func(*pdp.Call){filing, spending} {
		if got := ask(t, p, native, change); got != `{"allow":false,"reason":"own_request"}` || len(desk.filed)+len(desk.settled) > 0 {
			t.Errorf("%s, filed %q", got, desk.filed)
		}
	}
	_, native = fulfils("user:zoe", requestedBy("agent", "bot"))
	if got := ask(t, p, native, filing); !strings.Contains(got, `"status":"pending"`) || len(desk.filed) != 1 {
		t.Errorf("of another's: %s", got)
	}
	if last := desk.recorded[0]; last.Allow || last.Reason != evaluation.OwnRequest || fmt.Sprint(last.Overruled) != "[p]" {
		t.Errorf("on record: %+v", last)
	}
}

// The same in a batch, and in each kind of search.
func TestFulfilOwnEverywhere(t *testing.T) {
	t.Parallel()
	p := one(fulfilAll, "entities/e.json", fulfilEntities).Load(t)
	batch, err := evaluation.DecodeBatch([]byte(`{"action":{"name":"tool.fulfil"},"resource":{"type":"tool","id":"t"},"context":{"requester":{"type":"user","id":"mia"}},"evaluations":[
		{"subject":{"type":"user","id":"zoe"}}, {"subject":{"type":"admin","id":"m"}}, {"subject":{"type":"user","id":"mia"}}, {"subject":{"type":"user","id":"zoe"},"context":{}},
		{"subject":{"type":"user","id":"mia"},"action":{"name":"tool.invoke"}}, {"subject":{"type":"user","id":"zoe"}}]}`), "", evaluation.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	decided, err := p.EvaluateBatch(t.Context(), pdp.BatchCall{Batch: batch})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range decided.Items {
		got = append(got, fmt.Sprintf("%t%s", d.Allow, d.Reason))
	}
	if want := "true falseown_request falseown_request falseown_request true true"; strings.Join(got, " ") != want {
		t.Errorf("got %q", got)
	}

	search := func(kind evaluation.SearchKind, body string) string {
		t.Helper()
		s, err := evaluation.DecodeSearch(kind, []byte(body), "", evaluation.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		answer, err := p.Search(context.Background(), pdp.SearchCall{Search: s, Limit: evaluation.MaxPage})
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, f := range answer.Found {
			ids = append(ids, f.ID+f.Name)
		}
		return strings.Join(ids, " ")
	}
	about := `"action":{"name":"tool.fulfil"},"resource":{"type":"tool","id":"t"},"context":{"requester":{"type":"admin","id":"m"}}}`
	if got := search(evaluation.SubjectSearch, `{"subject":{"type":"user"},`+about); got != "noah" { // odd cannot be told, and mia is m
		t.Errorf("subjects: %q", got)
	}
	for requester, want := range map[string]string{"mia": "", "zoe": "t"} {
		p = one(`permit(principal, action == Action::"tool.fulfil", resource); permit(principal, action == Action::"tool.invoke", resource);`,
			"entities/e.json", `[{"uid":{"type":"tool","id":"t"},"attrs":{},"parents":[]}]`).Load(t)
		context := fmt.Sprintf(`"context":{%s}}`, requestedBy("user", requester))
		if got := search(evaluation.ResourceSearch, `{"subject":{"type":"user","id":"mia"},"action":{"name":"tool.fulfil"},"resource":{"type":"tool"},`+context); got != want {
			t.Errorf("resources for %s: %q", requester, got)
		}
		if got := search(evaluation.ActionSearch, `{"subject":{"type":"user","id":"mia"},"resource":{"type":"tool","id":"t"},`+context); strings.Contains(got, "tool.fulfil") != (want != "") || !strings.Contains(got, "tool.invoke") {
			t.Errorf("actions for %s: %q", requester, got)
		}
	}
}

// A tenant's own entities make two names one person there, and nowhere else.
func TestFulfilOwnOfATenant(t *testing.T) {
	t.Parallel()
	p := one(fulfilAll, "tenants/t/policies/p.cedar", `permit(principal is doc, action, resource);`,
		"tenants/t/entities/e.json", `[{"uid":{"type":"user","id":"lee"},"attrs":{"identities":["lee.admin"]},"parents":[]}]`).Load(t)
	for tenant, want := range map[string]string{"default": `{"allow":true}`, "t": `{"allow":false,"reason":"own_request"}`} {
		_, native := fulfils("user:lee", requestedBy("user", "lee.admin"))
		if got := ask(t, p, strings.Replace(native, `"default"`, `"`+tenant+`"`, 1)); got != want {
			t.Errorf("%s: %s", tenant, got)
		}
	}
}

// Where not all is known, nobody fulfils their own request either, unless who the requester is, is not known.
func TestFulfilOwnOfWhatIsPossible(t *testing.T) {
	t.Parallel()
	p := one(`permit(principal, action, resource) when { context.arguments.n == 1 };`, "entities/e.json", fulfilEntities).Load(t)
	for _, test := range []struct {
		subject, context, unknown string
		own                       bool
	}{
		{"user:mia", requestedBy("user", "mia"), "/context/arguments", true},
		{"user:mia", requestedBy("admin", "m"), "/context/arguments", true},
		{"user:mia", ``, "/context/arguments", true},
		{"user:zoe", requestedBy("user", "mia"), "/context/arguments", false},
		{"user:mia", requestedBy("user", "mia"), "/context/arguments\",\"/context/agent", true},
		{"user:mia", `"agent":7,` + requestedBy("user", "mia"), "/context/arguments\",\"/context/agent", true},
		{"user:zoe", `"agent":7,` + requestedBy("user", "mia"), "/context/arguments\",\"/context/agent", false},
		{"user:zoe", `"on_behalf_of":[],` + requestedBy("user", "mia"), "/context/arguments\",\"/context/on_behalf_of", false},
		{"user:mia", requestedBy("user", "mia"), "/context/arguments\",\"/context/requesters", true},
		{"user:mia", requestedBy("user", "mia"), "/context", false},
		{"user:mia", ``, "/context/arguments\",\"/context/requester", false},
		{"user:mia", requestedBy("user", ""), "/context/arguments\",\"/context/requester/id", false},
	} {
		request, _ := fulfils(test.subject, test.context)
		request = notKnowing(request, test.unknown)
		if got := ask(t, p, request); !strings.Contains(got, fmt.Sprintf(`"possible":%t`, !test.own)) {
			t.Errorf("%s\n%s", request, got)
		}
	}
}

// A decision on record hangs on a requester that is masked.
func TestFulfilOwnWhereTheRequesterIsMasked(t *testing.T) {
	t.Parallel()
	b := one(`permit (principal, action, resource);`, "bundle.yaml", "allow_trivial: true\n").Load(t).Bundle()
	request, _ := fulfils("user:zoe", `"token":"x","agent":"desktop",`+requestedBy("agent", "bot"))
	for at, want := range map[string]string{
		"/context/requester/id": "/context/requester/id",
		"/context/requester":    "/context/requester",
		"/context/agent":        "/context/agent",
		"/context/token":        "allow",
	} {
		typ := "string"
		if at == "/context/requester" {
			typ = "object"
		}
		for _, possible := range []bool{false, true} {
			body, want := request, want
			if possible {
				body, want = notKnowing(request, "/context/arguments"), strings.Replace(want, "allow", "possible", 1)
			}
			call := pdp.Call{Request: decoded(t, body), Hidden: []evaluation.Hidden{{At: at, Type: typ, Fit: evaluation.Fits}}}
			if got := decidedAgain(t, b, call); got != want {
				t.Errorf("%s, possible %t: got %s, want %s", at, possible, got, want)
			}
		}
	}
	own, _ := fulfils("user:zoe", `"token":"x",`+requestedBy("user", "zoe"))
	for _, body := range []string{own, notKnowing(own, "/context/arguments")} {
		call := pdp.Call{Request: decoded(t, body), Hidden: []evaluation.Hidden{{At: "/context/token", Type: "string", Fit: evaluation.Fits}}}
		if got := decidedAgain(t, one(`permit (principal, action, resource) when { context.token == "t" };`).Load(t).Bundle(), call); got != "deny own_request" {
			t.Errorf("%s: %s", body, got)
		}
	}
}
