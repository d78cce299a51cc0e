package pdp_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"policy-service/pdp"
	"policy-service/pdp/pdptest"
)

// hostileCase is a bundle that is made to open a tool that the root has closed, and a question for the tool.
type hostileCase struct {
	files  map[string]string
	tenant string
	asks   string // in the form of AuthZEN
	want   bool
}

// asksFor is an ordinary question, with members of subject and resource besides.
func asksFor(agent, tool, ofSubject, ofResource string) string {
	return fmt.Sprintf(`{"subject":{"type":"agent","id":%q%s},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":%q%s}}`, agent, ofSubject, tool, ofResource)
}

// No file of a tenant, and no member of a request, opens a tool that the root has closed.
func TestAccessNobodyWidens(t *testing.T) {
	t.Parallel()
	root := map[string]string{
		"bundle.yaml":   "allow_trivial: true\n",
		"all.cedar":     `permit (principal, action, resource);`,
		"access/o.yaml": "mode: allowlist\nrules:\n- {agent: good, tools: [a, b]}\n- {agent: {type: agent, id: exact}, tools: a}\n- {agent: {in: 'team::\"red\"'}, tools: c}\n",
		// all tenants
		"entities/e.json": `[{"uid":{"type":"agent","id":"red-one"},"attrs":{},"parents":[{"type":"team","id":"red"}]}]`,
		"tenants/t/x.cedar": `permit (principal, action, resource);
			permit (principal == agent::"evil", action == Action::"tool.invoke", resource == tool::"o:a");`,
	}
	with := func(more ...string) map[string]string {
		files := maps.Clone(root)
		for n := 0; n < len(more); n += 2 {
			files[more[n]] = more[n+1]
		}
		return files
	}
	below := func(kind, id, parentKind, parent string) string {
		return fmt.Sprintf(`[{"uid":{"type":%q,"id":%q},"attrs":{},"parents":[{"type":%q,"id":%q}]}]`, kind, id, parentKind, parent)
	}
	parents := "allow_trivial: true\nparents: {tool: {above: tool}, agent: {above: agent}}\nattributes: {tool: request, agent: request}\n"
	for what, entities := range map[string]string{
		"a tool below one that is open":   below("tool", "o:evil", "tool", "o:a"),
		"an agent below one that may":     below("agent", "evil", "agent", "good"),
		"and below one that may, exactly": below("agent", "evil", "agent", "exact"),
		"an agent in a team":              below("agent", "evil", "team", "red"),
	} {
		if _, problems := pdp.Load(pdptest.Bundle(with("tenants/t/entities/e.json", entities))); !problems.Refuse() || !strings.Contains(problems.Error(), "tenants/t/entities/e.json:1:") {
			t.Errorf("%s, by a tenant's entities: %v", what, problems)
		}
	}
	for name, c := range map[string]hostileCase{
		"who may":                             {root, "t", asksFor("good", "o:a", "", ""), true},
		"who may, exactly":                    {root, "t", asksFor("exact", "o:a", "", ""), true},
		"who may, in a team":                  {root, "t", asksFor("red-one", "o:c", "", ""), true},
		"a permit by hand":                    {root, "t", asksFor("evil", "o:a", "", ""), false},
		"a permit by hand at the root":        {root, "", asksFor("evil", "o:a", "", ""), false},
		"a tenant declares it open":           {with("tenants/t/access/o.yaml", "mode: denylist\n"), "t", asksFor("evil", "o:a", "", ""), false},
		"a tenant declares it open, unasked":  {with("tenants/t/access/x.yaml", "owner: o\nmode: open\n"), "t", asksFor("evil", "o:zzz", "", ""), false},
		"a tenant lists itself":               {with("tenants/t/access/o.yaml", "mode: allowlist\nrules: [{agent: evil, tools: \"*\"}]\n"), "t", asksFor("evil", "o:a", "", ""), false},
		"a tenant's default":                  {with("tenants/t/access/o.yaml", "mode: hybrid\ndefault: allow\n"), "t", asksFor("evil", "o:a", "", ""), false},
		"a tenant closes":                     {with("tenants/t/access/o.yaml", "mode: allowlist\n"), "t", asksFor("good", "o:a", "", ""), false},
		"and not for others":                  {with("tenants/t/access/o.yaml", "mode: allowlist\n"), "", asksFor("good", "o:a", "", ""), true},
		"a tool that is below one that may":   {with("entities/e.json", below("tool", "o:evil", "tool", "o:a")), "t", asksFor("good", "o:evil", "", ""), false},
		"an agent that is below one that may": {with("entities/e.json", below("agent", "evil", "agent", "good")), "t", asksFor("evil", "o:a", "", ""), false},
		"a tool that says what it is below":   {with("bundle.yaml", parents), "t", asksFor("good", "o:evil", "", `,"properties":{"above":"o:a"}`), false},
		"an agent that says so":               {with("bundle.yaml", parents), "t", asksFor("evil", "o:a", `,"properties":{"above":["good","exact"]}`, ""), false},
		"a tool that says its id":             {root, "t", asksFor("good", "o:evil", "", `,"properties":{"id":"o:a","type":"tool"}`), false},
		"another owner's name":                {root, "t", asksFor("good", "o:o:a", "", ""), false},
		"a name that is longer":               {root, "t", asksFor("good", "o:ab", "", ""), false},
		"no name":                             {root, "t", asksFor("good", "o:", "", ""), false},
		"another type of agent":               {root, "t", strings.Replace(asksFor("good", "o:a", "", ""), `"agent"`, `"user"`, 1), false},
		"types under other names":             {with("bundle.yaml", "allow_trivial: true\ntypes: {tool: Thing, agent: Robot}\n", "access/o.yaml", "mode: allowlist\nrules: [{agent: good, tools: a}]\n", "tenants/t/x.cedar", `permit (principal, action, resource);`), "t", asksFor("good", "o:a", "", ""), true},
		"and by those names nothing is asked": {with("bundle.yaml", "allow_trivial: true\ntypes: {tool: Thing, agent: Robot}\n", "access/o.yaml", "mode: allowlist\nrules: [{agent: good, tools: a}]\n", "tenants/t/x.cedar", `permit (principal, action, resource);`), "t", strings.Replace(asksFor("evil", "o:a", "", ""), `"tool"`, `"Thing"`, 1), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := pdptest.Start(t, pdptest.Bundle(c.files))
			answer := s.Post(pathOf(c.tenant)+"/access/v1/evaluation", c.asks)
			var got struct{ Decision *bool }
			if err := json.Unmarshal([]byte(answer.Body), &got); err != nil || got.Decision == nil || *got.Decision != c.want {
				t.Errorf("%s: %d %s, want %t", c.asks, answer.Status, answer.Body, c.want)
			}
		})
	}
}

// Each item of a batch is decided by its own tool and agent, and what it leaves out is the batch's.
func TestAccessOfEachItem(t *testing.T) {
	t.Parallel()
	s := pdptest.Start(t, pdptest.Bundle(map[string]string{
		"bundle.yaml":   "allow_trivial: true\n",
		"all.cedar":     `permit (principal, action, resource); forbid (principal, action, resource) when { context.pdp.subject.id == context.pdp.resource.id };`,
		"access/o.yaml": "mode: allowlist\nrules:\n- {agent: agent-1, tools: [t1, t2*]}\n- {agent: agent-2, tools: t3*, requires_approval: true}\n",
	}))
	const common = `"subject":{"type":"agent","id":"agent-1"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"o:t1"},`
	var all []question
	var items []string
	for agent, allowed := range map[string][]string{
		"":        {"", "o:t1", "o:t2", "o:t25", "other:t", "agent-2"},
		"agent-0": {"other:t", "agent-1", "agent-2"},
		"agent-1": {"", "o:t1", "o:t2", "o:t25", "other:t", "agent-2"},
		"agent-2": {"o:t3", "o:t31", "other:t", "agent-1"},
	} {
		for _, tool := range []string{"", "o:t", "o:t1", "o:t11", "o:t2", "o:t25", "o:t3", "o:t31", "other:t", "agent-1", "agent-2"} {
			var item []string
			q := question{
				who: worldEntity{Type: "agent", ID: cmp.Or(agent, "agent-1")}, action: "tool.invoke", resource: "tool",
				tool: cmp.Or(tool, "o:t1"), allow: slices.Contains(allowed, tool),
			}
			if agent != "" {
				item = append(item, fmt.Sprintf(`"subject":{"type":"agent","id":%q}`, agent))
			}
			if tool != "" {
				item = append(item, fmt.Sprintf(`"resource":{"type":"tool","id":%q}`, tool))
			}
			if len(all)%2 == 0 {
				item = append(item, `"action":{"name":"tool.invoke"}`)
			}
			if strings.HasPrefix(q.tool, "o:t3") && q.allow {
				q.approval = fmt.Sprintf(`{"message":"agent-2 wants to use %s.","template":"o"}`, q.tool)
			}
			all, items = append(all, q), append(items, "{"+strings.Join(item, ",")+"}")
		}
	}
	body := strings.Replace(batchOf(t, all), `"evaluations":`, common+`"evaluations":`, 1)
	body = body[:strings.Index(body, `"evaluations":`)] + `"evaluations":[` + strings.Join(items, ",") + "]}"
	if wrong := answered(t, s.Post("/access/v1/evaluations", body).Body, all); wrong != "" {
		t.Error(wrong)
	}
}

// Of each name a declaration opens exactly the tool that has it, to exactly the agent that has it.
func TestAccessStrangeIDs(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1023)
	var rules strings.Builder
	ids := []string{long + "a", long + "b", `\`, `"`, `\"`, "a", "é"}
	for _, id := range ids {
		fmt.Fprintf(&rules, "- {agent: %q, tools: %q}\n", id, id)
	}
	rules.WriteString("- {agent: 'glob', tools: '\\*'}\n")
	s := pdptest.Start(t, pdptest.Bundle(map[string]string{
		"bundle.yaml": "allow_trivial: true\n", "all.cedar": "permit (principal, action, resource);",
		"access/o.yaml": "mode: allowlist\nrules:\n" + rules.String(),
	}))
	var all []question
	ask := func(agent, tool string, allow bool) {
		all = append(all, question{who: worldEntity{Type: "agent", ID: agent}, action: "tool.invoke", resource: "tool", tool: "o:" + tool, allow: allow})
	}
	for _, id := range ids {
		for _, other := range append([]string{id + "*", "*" + id, id + " ", "*", `\*`, long, "e\u0301"}, ids...) {
			ask(id, other, id == other)
			ask(other, id, id == other)
		}
	}
	for tool, allow := range map[string]bool{`\`: true, `\x`: true, `\*`: true, `*`: false, `x`: false, `x\`: false} { // a glob has no escapes
		ask("glob", tool, allow)
		ask(`\*`, tool, false)
	}
	if wrong := answered(t, s.Post("/access/v1/evaluations", batchOf(t, all)).Body, all); wrong != "" {
		t.Error(wrong)
	}
}

// For a schema that declares too little of the service's facts, the problem names the rest, and nothing is opened.
func TestAccessNeedsItsFacts(t *testing.T) {
	t.Parallel()
	const four = `now: datetime, tenant: String, caller: String, approved: Bool`
	schema := func(members string) string {
		return `entity agent; entity tool; action "tool.invoke" appliesTo { principal: [agent], resource: [tool], context: { pdp: {` + members + `} } };`
	}
	files := map[string]string{"a.cedar": `permit (principal is agent, action == Action::"tool.invoke", resource == tool::"o:a");`, "schema.cedarschema": schema(four)}
	loadFiles(t, files)
	files["access/o.yaml"] = "mode: allowlist\nrules: [{agent: a, tools: a}]\n"
	_, problems := pdp.Load(pdptest.Bundle(files))
	if said := problems.Error(); !problems.Refuse() || !strings.Contains(said, "access/o.yaml:1:") || !strings.Contains(said, "resource") {
		t.Errorf("a schema of four members: %s", said)
	}
	files["schema.cedarschema"] = schema(four + `, subject: {type: String, id: String}, resource: {type: String, id: String}, capability: {held: Bool, id: String, depth: Long}`)
	b := loadFiles(t, files)
	all := []question{
		{who: worldEntity{Type: "agent", ID: "a"}, action: "tool.invoke", resource: "tool", tool: "o:a", allow: true},
		{who: worldEntity{Type: "agent", ID: "b"}, action: "tool.invoke", resource: "tool", tool: "o:a"},
	}
	for n, d := range decided(t, b, "", batchOf(t, all), time.Time{}) {
		if d.Allow != all[n].allow {
			t.Errorf("%s: %t", all[n], d.Allow)
		}
	}
}
