package pdp_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp"
)

// reviewedIs is an approval of template owner that bot asks for, on tool t.
func reviewedIs(change ...func(*pdp.Reviewed)) pdp.Reviewed {
	a := pdp.Reviewed{ID: "a1", Template: "owner", Subject: evaluation.Ref{Type: "agent", ID: "bot"}, Resource: evaluation.Ref{Type: "tool", ID: "t"}, Action: "tool.invoke"}
	for _, c := range change {
		c(&a)
	}
	return a
}

func review(t *testing.T, p *pdp.PDP, person string, a pdp.Reviewed) pdp.Review {
	t.Helper()
	cut := strings.LastIndex(person, ":")
	typ, id := person[:cut], person[cut+1:]
	r, err := p.Reviewer("default", pdp.Approver{Entity: evaluation.Ref{Type: typ, ID: id}, Caller: "key:k"})
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.Review(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func agentIs(typ, id string) func(*pdp.Reviewed) {
	return func(a *pdp.Reviewed) { a.Agent = &evaluation.Ref{Type: typ, ID: id} }
}

func chainIs(typ, id string) func(*pdp.Reviewed) {
	return func(a *pdp.Reviewed) { a.Chain = append(a.Chain, evaluation.Ref{Type: typ, ID: id}) }
}

// Authors decide about the approvers, by all that an approval is about; by default there are none.
func TestWhoDecides(t *testing.T) {
	t.Parallel()
	const others = `permit(principal is agent, action == Action::"tool.invoke", resource);`
	const decide = `@id("d") permit(principal, action == Action::"approval.decide", resource is Approval) when { `
	const schema = `entity user, agent; entity tool; entity Approval = { template: String, resource?: tool, subject?: user };
		action "tool.invoke" appliesTo { principal: [agent], resource: [tool] }; action "approval.decide" appliesTo { principal: [user], resource: [Approval] };`
	for name, test := range map[string]struct {
		bundle bundle
		person string
		about  pdp.Reviewed
		may    bool
	}{
		"nobody":              {one(others), "user:mia", reviewedIs(), false},
		"by the template":     {one(others + decide + `resource.template == "owner" };`), "user:mia", reviewedIs(), true},
		"another template":    {one(others + decide + `resource.template == "other" };`), "user:mia", reviewedIs(), false},
		"by the action":       {one(others + decide + `resource.action == "tool.invoke" };`), "user:mia", reviewedIs(), true},
		"by the subject":      {one(others + decide + `resource.subject == agent::"bot" };`), "user:mia", reviewedIs(), true},
		"by the resource":     {one(others+decide+`resource.resource in group::"g" };`, "entities/e.json", `[{"uid":{"type":"tool","id":"t"},"attrs":{},"parents":[{"type":"group","id":"g"}]}]`), "user:mia", reviewedIs(), true},
		"by who acts":         {one(others + decide + `resource.requester == agent::"helper" };`), "user:mia", reviewedIs(agentIs("agent", "helper")), true},
		"who acts is known":   {one(others + decide + `resource.requester == agent::"bot" };`), "user:mia", reviewedIs(agentIs("", "helper")), true},
		"by the chain":        {one(others + decide + `resource.chain.contains(user::"noah") };`), "user:mia", reviewedIs(chainIs("user", "noah")), true},
		"by the store":        {one(others+decide+`principal in team::"leads" };`, "entities/e.json", `[{"uid":{"type":"user","id":"mia"},"attrs":{},"parents":[{"type":"team","id":"leads"}]}]`), "user:mia", reviewedIs(), true},
		"another action":      {one(others + `permit(principal, action == Action::"approval.see", resource);`), "user:mia", reviewedIs(), false},
		"a forbid":            {one(others + decide + `true }; forbid(principal is user, action == Action::"approval.decide", resource);`), "user:mia", reviewedIs(), false},
		"an errored forbid":   {one(others + decide + `true }; forbid(principal, action, resource) when { resource.nothing };`), "user:mia", reviewedIs(), false},
		"an obligation":       {one(others + `@obligation("log") permit(principal, action == Action::"approval.decide", resource);`), "user:mia", reviewedIs(), false},
		"whatever is owed":    {one(others+`@obligation("log") permit(principal, action == Action::"approval.decide", resource);`, "bundle.yaml", "undeclared_obligations: allow"), "user:mia", reviewedIs(), false},
		"types on the wire":   {one(`permit(principal is Agent, action, resource);`+decide+`principal == User::"mia" && resource.subject == Agent::"bot" };`, "bundle.yaml", "types: {agent: Agent, user: User, approval: Approval}"), "User:mia", reviewedIs(), true},
		"a namespace":         {one(`permit(principal is N::agent, action, resource); permit(principal == N::user::"mia", action == N::Action::"approval.decide", resource is N::Approval) when { resource.subject == N::agent::"bot" };`, "bundle.yaml", "namespace: N"), "N::user:mia", reviewedIs(), true},
		"no such type":        {one(others+decide+`true };`, "bundle.yaml", "namespace: N"), "user:mia", reviewedIs(), false},
		"a schema":            {one(others+decide+`resource has resource && resource.resource == tool::"t" && resource.template == "owner" };`, "schema.cedarschema", schema), "user:mia", reviewedIs(), true},
		"unknown to a schema": {one(others, "schema.cedarschema", `entity agent; entity tool; action "tool.invoke" appliesTo { principal: [agent], resource: [tool] };`), "user:mia", reviewedIs(), false},
		"rejecting unknown":   {one(others+decide+`resource.template == "owner" };`, "schema.cedarschema", schema, "bundle.yaml", "unknown_properties: reject"), "user:mia", reviewedIs(), true},
		"known":               {one(others+decide+`true };`, "bundle.yaml", "known: [user]"), "user:mia", reviewedIs(), false},
		"the caller":          {one(others + decide + `context.pdp.caller == "key:k" };`), "user:mia", reviewedIs(), true},
	} {
		t.Run(name, func(t *testing.T) {
			got := review(t, test.bundle.Load(t), test.person, test.about)
			if got.May != test.may || got.Own || got.May && len(got.Determining) != 1 {
				t.Errorf("got %+v", got)
			}
			may, err := test.bundle.Load(t).Decidable(t.Context(), "default", test.about)
			if impossible := slices.Contains([]string{"nobody", "another template", "another action", "no such type", "unknown to a schema"}, name); err != nil || may == impossible {
				t.Errorf("that anybody may decide is %t, %v", may, err)
			}
		})
	}
}

// No person decides about their own request, whatever policies say.
func TestNobodyDecidesTheirOwn(t *testing.T) {
	t.Parallel()
	const policies = `permit(principal is agent, action == Action::"tool.invoke", resource); permit(principal, action == Action::"approval.decide", resource);`
	const entities = `[
		{"uid":{"type":"user","id":"mia"},"attrs":{"identities":[{"__entity":{"type":"admin","id":"m"}}]},"parents":[]},
		{"uid":{"type":"agent","id":"helper"},"attrs":{"identities":[{"__entity":{"type":"user","id":"noah"}}]},"parents":[]},
		{"uid":{"type":"user","id":"zoe"},"attrs":{"identities":["ci"]},"parents":[]},
		{"uid":{"type":"user","id":"carl"},"attrs":{"identities":["carl.admin",{"__entity":{"type":"user","id":"carl.ops"}}]},"parents":[]},
		{"uid":{"type":"user","id":"carl.ops"},"attrs":{"identities":["carl.night"]},"parents":[]},
		{"uid":{"type":"user","id":"odd"},"attrs":{"identities":[{"type":"user","id":"x"}]},"parents":[]}]`
	p := one(policies, "entities/e.json", entities).Load(t)
	allowing := one(policies, "entities/e.json", entities, "bundle.yaml", "allow_self_approval: [owner]").Load(t)
	subjectIs := func(typ, id string) func(*pdp.Reviewed) {
		return func(a *pdp.Reviewed) { a.Subject = evaluation.Ref{Type: typ, ID: id} }
	}
	for name, test := range map[string]struct {
		person string
		about  pdp.Reviewed
		own    bool
	}{
		"somebody else":                     {"user:mia", reviewedIs(), false},
		"the subject":                       {"user:mia", reviewedIs(subjectIs("user", "mia")), true},
		"their other name":                  {"admin:m", reviewedIs(subjectIs("user", "mia")), true},
		"the other way round":               {"user:mia", reviewedIs(subjectIs("admin", "m")), true},
		"their agent":                       {"user:noah", reviewedIs(agentIs("agent", "helper")), true},
		"their agent, by its id alone":      {"user:noah", reviewedIs(agentIs("", "helper")), true},
		"an agent of their id":              {"user:helper", reviewedIs(agentIs("", "helper")), true},
		"an agent of their id and its type": {"user:helper", reviewedIs(agentIs("agent", "helper")), false},
		"on their behalf":                   {"user:mia", reviewedIs(chainIs("user", "zoe"), chainIs("user", "mia")), true},
		"on behalf of their other name":     {"user:mia", reviewedIs(chainIs("admin", "m")), true},
		"an identity by its id alone":       {"robot:ci", reviewedIs(subjectIs("user", "zoe")), true},
		"who has it":                        {"user:zoe", reviewedIs(subjectIs("robot", "ci")), true},
		"two other names of one person":     {"user:carl.admin", reviewedIs(subjectIs("user", "carl.ops")), true},
		"the other way round again":         {"user:carl.ops", reviewedIs(agentIs("", "carl.admin")), true},
		"a name of another name":            {"user:carl.night", reviewedIs(chainIs("user", "carl")), true},
		"and of one beside it":              {"user:carl.admin", reviewedIs(chainIs("agent", "carl.night")), true},
		"the id of a name of another type":  {"user:mia", reviewedIs(subjectIs("agent", "carl.ops")), false},
		"identities that cannot be read":    {"user:odd", reviewedIs(), true},
		"of who asks":                       {"user:mia", reviewedIs(subjectIs("user", "odd")), true},
		"a type that there is no more":      {"user:mia", reviewedIs(chainIs("__cedar::x", "a")), true},
		"an agent's that there is no more":  {"user:mia", reviewedIs(agentIs("a b", "a")), true},
		"the same id and another type":      {"user:bot", reviewedIs(), false},
		"by the credential that asked":      {"user:mia", reviewedIs(func(a *pdp.Reviewed) { a.Asker = "key:k" }), true},
		"by another credential":             {"user:mia", reviewedIs(func(a *pdp.Reviewed) { a.Asker = "key:l" }), false},
		"the agent itself":                  {"agent:bot", reviewedIs(), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := review(t, p, test.person, test.about); got.Own != test.own || got.May == test.own {
				t.Errorf("got %+v", got)
			}
			// A type that there is no more is in no question, whoever may ask it.
			if got := review(t, allowing, test.person, test.about); got.Own || got.May == strings.Contains(name, "no more") {
				t.Errorf("where the bundle lets them: %+v", got)
			}
			other := test.about
			other.Template = "another"
			if got := review(t, allowing, test.person, other); got.Own != test.own {
				t.Errorf("where the bundle lets them of another template: %+v", got)
			}
		})
	}
}

// A bundle's tests put the question who decides as a request. The answer is the one that
// the PDP gives itself, whatever is declared of an approval.
func TestWhoDecidesAsARequest(t *testing.T) {
	t.Parallel()
	const others = `permit(principal is agent, action == Action::"tool.invoke", resource);`
	const decide = `permit(principal is user, action == Action::"approval.decide", resource is Approval) when { resource.template == "owner" && `
	const schema = `entity user, agent; entity tool = { owner?: user }; action "tool.invoke" appliesTo { principal: [agent], resource: [tool] };
		action "approval.decide" appliesTo { principal: [user], resource: [Approval] }; entity Approval = { template: String, action?: String, `
	const tools = `[{"uid":{"type":"tool","id":"t"},"attrs":{"owner":{"__entity":{"type":"user","id":"mia"}}},"parents":[]}]`
	const owner = `resource.resource has owner && resource.resource.owner == principal };`
	for name, test := range map[string]struct {
		bundle     bundle
		subject    string // of the request to be approved
		allow, may string // whom a request allows, and whom an approval
	}{
		"no schema":                     {one(others+decide+owner, "entities/e.json", tools), "agent", "mia", "mia"},
		"a schema":                      {one(others+decide+owner, "entities/e.json", tools, "schema.cedarschema", schema+`resource: tool };`), "agent", "mia", "mia"},
		"no schema, by the subject":     {one(others + decide + `resource.subject == agent::"bot" };`), "agent", "mia noah", "mia noah"},
		"no schema, another type":       {one(others + decide + `resource.subject == agent::"bot" };`), "user", "", ""},
		"a type that does not hold it":  {one(others+decide+`!(resource has subject) };`, "schema.cedarschema", schema+`subject?: agent };`), "user", "mia noah", "mia noah"},
		"a type that holds it":          {one(others+decide+`resource has subject };`, "schema.cedarschema", schema+`subject?: agent };`), "agent", "mia noah", "mia noah"},
		"one that must hold it":         {one(others+decide+`resource.subject == agent::"bot" };`, "schema.cedarschema", schema+`subject: agent };`), "user", "", ""},
		"what nobody declared":          {one(others+decide+`true };`, "schema.cedarschema", schema+`};`), "agent", "mia noah", "mia noah"},
		"types that are named anew":     {one(others+decide+`resource.resource in Tool::"t" };`, "bundle.yaml", "types: {tool: Tool}"), "agent", "mia noah", "mia noah"},
		"types that there are no more":  {one(others+decide+`true };`, "bundle.yaml", "types: {hammer: tool}"), "agent", "", ""},
		"where the unknown is refused":  {one(others+decide+owner, "entities/e.json", tools, "schema.cedarschema", schema+`resource: tool, subject?: user, requester?: user, chain?: Set<user> };`, "bundle.yaml", "unknown_properties: reject"), "agent", "mia", "mia"},
		"a forbid of what was left out": {one(others+decide+`true }; forbid(principal, action, resource is Approval) when { resource.subject == agent::"x" };`, "schema.cedarschema", schema+`subject: agent };`), "user", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := test.bundle.Load(t)
			var allow, may []string
			for _, person := range []string{"mia", "noah"} {
				request := fmt.Sprintf(`{"subject":{"type":"user","id":%q},"action":{"name":"approval.decide"},"resource":{"type":"Approval","id":"a1","properties":{
					"template":"owner","action":"tool.invoke","subject":{"type":%q,"id":"bot"},"requester":{"type":%[2]q,"id":"bot"},"resource":{"type":"tool","id":"t"},"chain":[]}}}`, person, test.subject)
				switch got := ask(t, p, request); {
				case got == `{"decision":true}`:
					allow = append(allow, person)
				case !strings.HasPrefix(got, `{"decision":false`) && !strings.Contains(got, "does not declare"):
					t.Errorf("%s: %s", person, got)
				}
				of := func(a *pdp.Reviewed) { a.Subject.Type = test.subject }
				if review(t, p, "user:"+person, reviewedIs(of)).May {
					may = append(may, person)
				}
			}
			if got := strings.Join(allow, " "); got != test.allow {
				t.Errorf("requests allow %q", got)
			}
			if got := strings.Join(may, " "); got != test.may {
				t.Errorf("%q may", got)
			}
		})
	}
}
