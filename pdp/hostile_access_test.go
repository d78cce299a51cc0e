package pdp_test

import (
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

// strangeIDs are names that break what is made by pasting text, and that many programs take for one another.
var strangeIDs = []string{
	`"`, `'`, "`", `\`, `\\`, `\"`, `\*`, `\n`, `"]`, `") };`, `", "b"`, "\n", "\r\n", "\t", "\x00", "a\x00b", "\x1b[2K", "\u007f", "\u0085", "\u2028", "\u200b", "\u202e", "\ufeff", "\ufffd", "\U0010ffff", "😀",
	"é", "e\u0301", "\u0130", "i", "I", "\u0131", "\u017f", "s", "\u212a", "k", "\u212b", "\u00c5", "A\u030a", " ", "a ", " a", "a", "A", "a/b", "a:b", ":", "::", `a::"b"`, "-", "null", "true", "~", "1", "01", "1.0", "0x1", "2024-01-01", "<<", "!!str", "&a", "[a]", "{a: b}", "# a", "%", "${principal.id}", "@id",
	"// a", "/* a */", "in", "Tool", "access.o", "o:a", "a, b",
}

// nearMisses are texts that somebody may take for a name.
func nearMisses(id string) []string {
	all := []string{id + " ", " " + id, id + "\x00", id + "\n", id + "*", "*" + id, id + id, `"` + id + `"`, `\` + id, id + `\`, strings.ToUpper(id), strings.ToLower(id), strings.ReplaceAll(id, `\`, `\\`), strings.ReplaceAll(id, "\n", `\n`)}
	if r := []rune(id); len(r) > 1 {
		all = append(all, string(r[:len(r)-1]), string(r[1:]))
	}
	return all
}

// longID is as long as an id may be, and its fellows differ in their last byte alone.
func longID(last string) string { return strings.Repeat("x", 1023) + last }

// yamlText writes a text as YAML can, whatever is in it.
func yamlText(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r < ' ' || r > '~' || r == '"' || r == '\\' {
			fmt.Fprintf(&b, `\U%08x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return `"` + b.String() + `"`
}

// Of each name a declaration opens exactly the tool that has it, to exactly the agent that has it.
func TestAccessStrangeIDs(t *testing.T) {
	t.Parallel()
	ids := slices.Concat(strangeIDs, []string{longID("a"), longID("b")})
	ids = slices.DeleteFunc(ids, func(id string) bool { return strings.Contains(id, "*") }) // which would be globs, or none
	asked := slices.Clone(ids)
	for _, id := range ids {
		asked = append(asked, nearMisses(id)...)
	}
	slices.Sort(asked)
	asked = slices.Compact(asked)
	asked = slices.DeleteFunc(asked, func(id string) bool { return len(id) > 1100 })
	forms := map[string]func(id string) string{
		"a bare name": func(id string) string { return yamlText(id) },
		"an entity":   func(id string) string { return `{type: agent, id: ` + yamlText(id) + `}` },
		"a group":     func(id string) string { return `{in: ` + yamlText("team::"+cedarText(id)) + `}` },
	}
	for form, agent := range forms {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			var rules, entities strings.Builder
			for _, id := range ids {
				fmt.Fprintf(&rules, "- {agent: %s, tools: [%s, %s]}\n", agent(id), yamlText(id), yamlText("also"+strings.TrimPrefix(id, "xxxx")))
			}
			if form == "a group" {
				for _, id := range asked { // each agent is in the team of its name
					fmt.Fprintf(&entities, `,{"uid":%s,"attrs":{},"parents":[%s]}`, jsonEntity(t, "agent", id), jsonEntity(t, "team", id))
				}
			}
			files := map[string]string{
				"bundle.yaml": "allow_trivial: true\n", "all.cedar": "permit (principal, action, resource);",
				"access/o.yaml": "mode: allowlist\nsubjects: [agent, user]\nrules:\n" + rules.String(), "entities/e.json": "[" + strings.TrimPrefix(entities.String(), ",") + "]",
			}
			b := loadFiles(t, files)
			printed := loadFiles(t, shown(b, files))
			s := pdptest.Start(t, pdptest.Bundle(files))
			opened := 0
			for all := range slices.Chunk(strangeQuestions(ids, asked, form), 1000) {
				for _, q := range all {
					if q.allow {
						opened++
					}
				}
				batch := batchOf(t, all)
				if wrong := answered(t, s.Post("/access/v1/evaluations", batch).Body, all); wrong != "" {
					t.Fatal(wrong)
				}
				if diff := sameDecisions(all, decided(t, b, "", batch, pdptest.Now), decided(t, printed, "", batch, pdptest.Now)); diff != "" {
					t.Fatalf("declared and printed: %s", diff)
				}
			}
			if opened < len(ids) {
				t.Errorf("%d questions are allowed, fewer than there are names", opened)
			}
		})
	}
}

// strangeQuestions ask for each name by each agent that could pass for its own, and by some others.
func strangeQuestions(ids, asked []string, form string) (all []question) {
	ask := func(agent, tool string) {
		for _, kind := range []string{"agent", "user"} {
			is := agent == tool && slices.Contains(ids, agent) && (kind == "agent" || form == "a bare name")
			all = append(all, question{who: worldEntity{Type: kind, ID: agent}, action: "tool.invoke", resource: "tool", tool: "o:" + tool, allow: is})
		}
	}
	for n, id := range ids {
		ask(id, id)
		for _, other := range nearMisses(id) {
			ask(id, other)
			ask(other, id)
		}
		for k := range 3 {
			ask(id, asked[(37*n+101*k)%len(asked)])
			ask(asked[(41*n+97*k)%len(asked)], id)
		}
	}
	return all
}

// some37 are some of the ids, other ones for each n.
func some37(ids []string, n int) (all []string) {
	for k := range 37 {
		all = append(all, ids[(n+k*k)%len(ids)])
	}
	return all
}

// A glob opens what begins as it does, byte for byte, and nothing else.
func TestAccessStrangeGlobs(t *testing.T) {
	t.Parallel()
	ids := slices.DeleteFunc(slices.Clone(strangeIDs), func(id string) bool { return strings.Contains(id, "*") })
	var rules strings.Builder
	var all []question
	for n, beginning := range ids {
		agent := fmt.Sprint("agent-", n)
		fmt.Fprintf(&rules, "- {agent: %s, tools: %s}\n", agent, yamlText(beginning+"*"))
		for _, id := range slices.Concat(some37(ids, n), nearMisses(beginning), []string{beginning, "", "*", beginning + `\*`, beginning + "and more", "o:" + beginning}) {
			all = append(all, question{who: worldEntity{Type: "agent", ID: agent}, action: "tool.invoke", resource: "tool", tool: "o:" + id, allow: strings.HasPrefix(id, beginning)})
		}
	}
	files := map[string]string{"bundle.yaml": "allow_trivial: true\n", "all.cedar": "permit (principal, action, resource);", "access/o.yaml": "mode: allowlist\nrules:\n" + rules.String()}
	b := loadFiles(t, files)
	printed := loadFiles(t, shown(b, files))
	s := pdptest.Start(t, pdptest.Bundle(files))
	for all := range slices.Chunk(all, 1000) {
		batch := batchOf(t, all)
		if wrong := answered(t, s.Post("/access/v1/evaluations", batch).Body, all); wrong != "" {
			t.Fatal(wrong)
		}
		indexed := decided(t, b, "", batch, pdptest.Now)
		if diff := sameDecisions(all, indexed, decided(t, b.WithoutIndex(), "", batch, pdptest.Now)); diff != "" {
			t.Fatalf("with and without the index: %s", diff)
		}
		if diff := sameDecisions(all, indexed, decided(t, printed, "", batch, pdptest.Now)); diff != "" {
			t.Fatalf("declared and printed: %s", diff)
		}
	}
}

// hostileCase is a bundle that somebody made to open a tool that the root has closed, and who then asks for it.
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

// What a tenant writes, and what a request says, opens nothing that the root has closed.
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

// Each item of a batch is decided by its own tool and agent, whatever its neighbours are.
func TestAccessOfEachItem(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"bundle.yaml":   "allow_trivial: true\n",
		"all.cedar":     `permit (principal, action, resource); forbid (principal, action, resource) when { context.pdp.subject.id == context.pdp.resource.id };`,
		"access/o.yaml": "mode: allowlist\nrules:\n- {agent: agent-1, tools: [t1, t2*]}\n- {agent: agent-2, tools: t3*, requires_approval: true}\n",
	}
	s := pdptest.Start(t, pdptest.Bundle(files))
	var all []question
	for n := range 1000 {
		q := question{who: worldEntity{Type: "agent", ID: fmt.Sprint("agent-", n%3)}, action: "tool.invoke", resource: "tool", tool: fmt.Sprint("o:t", n%500)}
		switch {
		case n%7 == 0:
			q.tool, q.allow = fmt.Sprint("other:t", n), true
		case n%11 == 0:
			q.tool, q.allow = q.who.ID, false // the policy by hand
		case n%3 == 1:
			q.allow = q.tool == "o:t1" || strings.HasPrefix(q.tool, "o:t2")
		case n%3 == 2 && strings.HasPrefix(q.tool, "o:t3"):
			q.allow, q.approval = true, fmt.Sprintf(`{"message":"agent-2 wants to use %s.","template":"o"}`, q.tool)
		}
		all = append(all, q)
	}
	if wrong := answered(t, s.Post("/access/v1/evaluations", batchOf(t, all)).Body, all); wrong != "" {
		t.Error(wrong)
	}
	// What all items have in common is the batch's.
	common := strings.Replace(batchOf(t, all), `"evaluations":`, `"subject":{"type":"agent","id":"agent-1"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"o:none"},"evaluations":`, 1)
	inherited := slices.Clone(all)
	for n := range inherited {
		q := &inherited[n]
		q.who.ID, q.approval = "agent-1", ""
		q.allow = q.tool == "o:t1" || strings.HasPrefix(q.tool, "o:t2") || !strings.HasPrefix(q.tool, "o:") && q.tool != "agent-1"
	}
	for _, agent := range []string{"agent-0", "agent-1", "agent-2"} {
		common = strings.ReplaceAll(common, fmt.Sprintf(`,"subject":{"id":%q,"type":"agent"}`, agent), "")
	}
	if wrong := answered(t, s.Post("/access/v1/evaluations", common).Body, inherited); wrong != "" {
		t.Error(wrong)
	}
}

// A schema that declares less of what the service knows is told what to add, and until then nothing is opened.
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
