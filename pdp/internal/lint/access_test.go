package lint_test

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp"
)

// declared is a bundle of a declaration of agent-b's tools, of one permit beside it and of somebody
// who decides about approvals, and pairs of name and content of other files.
func declared(declaration string, files ...string) fstest.MapFS {
	const base = `@id("base") permit (principal is user, action == Action::"other", resource);
		@id("decide") permit (principal is user, action == Action::"approval.decide", resource is Approval);`
	fsys := fstest.MapFS{
		"base.cedar":          {Data: []byte(base)},
		"access/agent-b.yaml": {Data: []byte(declaration)},
	}
	for i := 0; i < len(files); i += 2 {
		fsys[files[i]] = &fstest.MapFile{Data: []byte(files[i+1])}
	}
	return fsys
}

const (
	deniesElse = "mode: hybrid\ndefault: deny\nrules:\n"
	allowsElse = "mode: hybrid\ndefault: allow\nrules:\n"
	allowlist  = "mode: allowlist\nrules:\n"
	denylist   = "mode: denylist\nrules:\n"
	open       = "mode: open\nrules:\n"
	openHere   = "\naccess_open access/agent-b.yaml:1:7"
	byDefault  = "\naccess_open access/agent-b.yaml:2:10"
)

// At the very instant of its end a rule is over, a millisecond before it is not. Which answer that
// changes, depends on what the rule was for.
func TestCheckAccessExpired(t *testing.T) {
	t.Parallel()
	const rule = "  - {agent: a, tools: x, expires: 2026-11-20T12:00:00Z"
	for name, test := range map[string]struct{ declaration, says string }{
		"allows":                     {allowlist + rule + "}", "allows nothing any more"},
		"allows, by hybrid":          {deniesElse + rule + ", effect: allow}", "allows nothing any more"},
		"demands":                    {allowlist + rule + ", requires_approval: true}", "allows nothing any more"},
		"denies":                     {denylist + rule + "}", "what it alone denied is open again where the default or another rule allows it"},
		"denies what rules allow":    {deniesElse + rule + ", effect: deny}", "what it alone denied is open again where the default or another rule allows it"},
		"denies, where all is open":  {allowsElse + rule + ", effect: deny}", "what it alone denied is open again where the default or another rule allows it"},
		"demands, where all is open": {open + rule + ", requires_approval: true}", "what it alone demanded one for is open without"},
		"demands, where another rule does not": {allowlist + rule + ", requires_approval: true}\n  - {agent: a, tools: \"*\"}",
			"what it alone demanded one for is open without"},
		"demands, where another rule did not": {allowlist + rule + ", requires_approval: true}\n  - {agent: a, tools: \"*\", expires: 2026-11-20T12:00:00Z}",
			"allows nothing any more"},
	} {
		source := pdp.FS(declared(test.declaration))
		b, problems := pdp.Check(source, lintNow)
		if b == nil {
			t.Fatalf("%s: %v", name, problems)
		}
		told := ofCode(problems, "access_expired")
		if len(told) == 0 || told[0].Line != strings.Count(test.declaration[:strings.Index(test.declaration, "  - ")], "\n")+1 || told[0].Column != 5 {
			t.Errorf("%s: %v", name, problems)
		} else if !strings.Contains(told[0].Message, "has ended on 2026-11-20T12:00:00Z, and ") || !strings.HasSuffix(told[0].Message, test.says) || told[0].Try == "" {
			t.Errorf("%s: %s; %s", name, told[0].Message, told[0].Try)
		}
		if _, problems := pdp.Check(source, lintNow.Add(-time.Millisecond)); len(ofCode(problems, "access_expired")) > 0 {
			t.Errorf("%s, before: %v", name, problems)
		}
	}
}

func ofCode(problems pdp.Problems, code string) (of pdp.Problems) {
	for _, p := range problems {
		if p.Code == code {
			of = append(of, p)
		}
	}
	return of
}

func TestCheckAccessTools(t *testing.T) {
	t.Parallel()
	tools := func(ids ...string) string {
		var entities []string
		for _, id := range ids {
			entities = append(entities, `{"uid": {"type": "tool", "id": "`+id+`"}, "attrs": {}, "parents": []}`)
		}
		return "[" + strings.Join(entities, ",") + "]"
	}
	rule := func(tools string) string { return allowlist + "  - {agent: a, tools: " + tools + "}" }
	known := []string{"entities/tools.json", tools("agent-b:read_file", "agent-b:read_dir", "agent-c:write_file")}
	const here = "access_unknown_tool access/agent-b.yaml:3:23"
	const inList = "access_unknown_tool access/agent-b.yaml:3:24"
	for _, c := range []lintCase{
		{"unknown", declared(rule("raed_file"), known...), here},
		{"another owner's", declared(rule("write_file"), known...), here},
		{"in a list", declared(rule("[raed_file, read_file]"), known...), inList},
		{"each in a list", declared(rule("[wr_file, rd_file]"), known...), inList + "\naccess_unknown_tool access/agent-b.yaml:3:33"},
		{"as a beginning", declared(rule(`["raed_*", "read_*"]`), known...), inList},
		{"behind them all", declared(rule(`"s*"`), known...), here},
		{"a name that only begins so", declared(rule("read"), known...), here},
		{"a tenant's, named by the root", declared(rule(`["deploy*", "write"]`), append(known, "tenants/t/entities/t.json", tools("agent-b:deploy"))...), "access_unknown_tool access/agent-b.yaml:3:35"},
		{"another tenant's", declared(rule("read_file"), append(known, "tenants/s/entities/s.json", tools("agent-b:deploy"), "tenants/t/access/agent-b.yaml", rule("[read_file, deploy]"))...), "access_unknown_tool tenants/t/access/agent-b.yaml:3:35"},

		{"with its owner", declared(rule("agent-b:read_file"), known...), here},
		{"with its owner, while nothing is known", declared(rule(`[read_file, "agent-b:*"]`)), "access_unknown_tool access/agent-b.yaml:3:35"},

		{"known", declared(rule("[read_file, read_dir]"), known...), ""},
		{"known by such a name", declared(rule("agent-b:x"), "entities/tools.json", tools("agent-b:agent-b:x")), ""},
		{"known by its beginning", declared(rule(`["read_*", "read_file*"]`), known...), ""},
		{"all", declared(rule(`"*"`), known...), ""},
		{"nothing is known", declared(rule("raed_file"), "entities/tools.json", tools("agent-c:write_file")), ""},
		{"the root's, and the tenant's", declared(rule("read_file"), append(known, "tenants/t/entities/t.json", tools("agent-b:deploy"), "tenants/t/access/agent-b.yaml", rule("[read_file, deploy]"))...), ""},
		{"over", declared(strings.Replace(rule("raed_file"), "}", ", expires: 2020-01-01T00:00:00Z}", 1), known...), "access_expired access/agent-b.yaml:3:5"},
	} {
		c.run(t)
	}
	for name, says := range map[string]string{
		"raed_file": `no tool of "agent-b" in entities/ is called "raed_file"; did you mean "read_file"?`,
		`"raed*"`:   `no tool of "agent-b" in entities/ has a name that begins with "raed"; did you mean "read*"?`,
		`"rad_*"`:   `no tool of "agent-b" in entities/ has a name that begins with "rad_"; did you mean "read_*"?`,
		"overthrow": `no tool of "agent-b" in entities/ is called "overthrow"`,
		"agent-b:x": `names of tools are written without their owner: with it this one is about "agent-b:agent-b:x"`,
	} {
		if _, problems := pdp.Check(pdp.FS(declared(rule(name), known...)), lintNow); len(problems) != 1 || problems[0].Message != says {
			t.Errorf("%s: %v", name, problems)
		}
	}
}

// However many names are wrong, the list can be read.
func TestCheckAccessManyTools(t *testing.T) {
	t.Parallel()
	rule := allowlist + "  - {agent: a, tools: [x" + strings.Repeat(", x", 999) + "]}"
	for n := range 999 {
		rule = strings.Replace(rule, ", x", ", y"+strings.Repeat("z", n%40), 1)
	}
	_, problems := pdp.Check(pdp.FS(declared(rule, "entities/t.json", `[{"uid": {"type": "tool", "id": "agent-b:t"}, "attrs": {}, "parents": []}]`)), lintNow)
	told := ofCode(problems, "access_unknown_tool")
	if len(told) != 21 || told[0].Line != 1 || !strings.Contains(told[0].Message, "980 more") {
		t.Errorf("%d warnings: %v", len(told), problems)
	}
}

func TestCheckAccessOpen(t *testing.T) {
	t.Parallel()
	for _, c := range []lintCase{
		{"open", declared("mode: open"), openHere[1:]},
		{"denylist", declared("owner: agent-c\nmode: denylist"), "access_open access/agent-b.yaml:2:7"},
		{"hybrid", declared("mode: hybrid\ndefault: allow"), byDefault[1:]},
		{"denylist that denies", declared("mode: denylist\nrules: [{agent: a, tools: x}]"), ""},
		{"hybrid that denies something", declared("mode: hybrid\ndefault: allow\nrules: [{agent: a, tools: x, effect: deny}]"), ""},
		{"allowlist", declared("mode: allowlist"), ""},
		{"hybrid that denies", declared("mode: hybrid\ndefault: deny"), ""},
	} {
		c.run(t)
	}
	for declaration, says := range map[string]string{
		"mode: open": `everybody may use every tool of "agent-b"; `,
		"mode: open\nrules: [{agent: a, tools: x, requires_approval: true}]": `everybody may use every tool of "agent-b" without an approval, unless a rule demands one; `,
		"mode: denylist":                   `everybody may use every tool of "agent-b"; `,
		"mode: open\ncapability: observe":  `everybody may use every tool of "agent-b"; `,
		"mode: open\ncapability: required": `everybody may use every tool of "agent-b" with a capability, for which everybody may ask; `,
		"mode: open\ncapability: required\nrules: [{agent: a, tools: x, requires_approval: true}]": `everybody may use every tool of "agent-b" with a capability, for which everybody may ask, without an approval, unless a rule demands one; `,
	} {
		if _, problems := pdp.Check(pdp.FS(declared(declaration)), lintNow); len(problems) != 1 || !strings.HasPrefix(problems[0].Message, says) {
			t.Errorf("%q: %v", declaration, problems)
		}
	}
}

// One place for all the rules of a declaration that wait.
func TestCheckAccessNobody(t *testing.T) {
	t.Parallel()
	const rules = "  - {agent: a, tools: x, requires_approval: true}\n  - {agent: b, tools: x, requires_approval: true}\n"
	const permits = `@id("base") permit (principal is user, action == Action::"other", resource);`
	for _, c := range []lintCase{
		{"the first line", declared(allowlist+rules, "base.cedar", permits), "approval_nobody access/agent-b.yaml:1:1"},
		{"approval", declared(allowlist+rules+"approval:\n  timeout: 1m\n", "base.cedar", permits), "approval_nobody access/agent-b.yaml:6:3"},
		{"a tenant's", declared(allowlist+rules, "base.cedar", permits, "tenants/t/access/agent-c.yaml", "owner: agent-c\n"+allowlist+rules,
			"tenants/t/t.cedar", `@id("t") permit (principal is user, action == Action::"approval.decide", resource is Approval) when { resource.template == "agent-c" };`),
			"approval_nobody access/agent-b.yaml:1:1"},
		{"of another template", declared(allowlist+rules+"approval: {template: other}", "base.cedar",
			permits+`@id("d") permit (principal is user, action == Action::"approval.decide", resource is Approval) when { resource.template == "agent-b" };`),
			"approval_nobody access/agent-b.yaml:5:11"},
		{"somebody", declared(allowlist + rules), ""},
	} {
		c.run(t)
	}
}

// What is permitted without an obligation beside a declaration that demands one, and the other way
// round, is no way around it, unless a request can leave out whom it is about.
func TestCheckAccessOverlap(t *testing.T) {
	t.Parallel()
	const (
		byHand   = `@id("hand") permit (principal, action == Action::"tool.invoke", resource is tool)`
		logged   = `@id("log") @obligation("log") permit (principal is agent, action == Action::"tool.invoke", resource is tool)`
		roles    = "parents: {agent: {roles: Role}}"
		stored   = roles + "\nknown: [agent]\nattributes: {agent: store}"
		approval = "  - {agent: a, tools: x, requires_approval: true}\n"
		byRole   = "  - {agent: {in: 'Role::\"r\"'}, tools: x, requires_approval: true}\n"
		free     = "  - {agent: b, tools: \"*\"}\n"
		here     = "obligation_overlap access/agent-b.yaml:3:5"
	)
	for _, c := range []lintCase{
		{"by hand, beside an approval", declared(allowlist+approval, "hand.cedar", byHand+`;`), ""},
		{"by hand, for that very tool", declared(open+approval, "hand.cedar", byHand+` when { resource == tool::"agent-b:x" };`), openHere[1:]},
		{"two rules", declared(allowlist + approval + free), ""},
		{"the default, and a rule", declared(open + approval), openHere[1:]},
		{"two owners", declared(allowlist+"  - {agent: b, tools: [x, y]}\n", "access/c.yaml", allowlist+strings.Replace(byRole, "tools: x", "tools: [x, y]", 1), "bundle.yaml", roles), ""},
		{"by the tool", declared(allowlist+free, "log.cedar", logged+` when { resource has labels.impact && resource.labels.impact == "write" };`), ""},
		{"by the tool's group", declared(open+approval, "log.cedar", logged+` when { resource in Group::"g" };`), openHere[1:]},
		{"by who it is", declared(allowlist+free, "log.cedar", `@id("log") @obligation("log") permit (principal == agent::"b", action == Action::"tool.invoke", resource is tool) when { resource == tool::"agent-b:x" };`), ""},
		{"by a group that is stored", declared(allowlist+free+byRole, "bundle.yaml", stored), ""},
		{"by a role that is sent, of other tools", declared(allowlist+"  - {agent: b, tools: [y, \"xx*\"]}\n"+byRole, "bundle.yaml", roles), ""},
		{"a tenant's, of other tools", declared(allowlist+strings.Replace(byRole, "tools: x", "tools: [x, w]", 1), "bundle.yaml", roles, "tenants/t/access/agent-b.yaml", allowlist+"  - {agent: b, tools: [y, z]}"), ""},
		{"a tenant's, and the root's", declared("mode: open", "tenants/t/access/agent-b.yaml", allowlist+approval), openHere[1:]},
		{"by what is said of any tool", declared(allowlist+free, "bundle.yaml", roles, "log.cedar", logged+` when { context has purpose || principal in Role::"r" };`), ""},
		{"by what is said of another's tool", declared(allowlist+free, "log.cedar", logged+` when { resource in tool::"agent-bc:x" && context has purpose };`), ""},
		{"by what is said of the tool", declared(allowlist+free, "log.cedar", logged+` when { resource == tool::"agent-b:x" && resource has labels };`), ""},

		{"by what is said", declared(allowlist+free, "log.cedar", logged+` when { resource == tool::"agent-b:x" && context has purpose };`), here},
		{"by what may be absent", declared(allowlist+free, "log.cedar", logged+` when { resource == tool::"agent-b:x" && context.purpose == "x" };`), here + "\npermit_missing_attribute log.cedar@context.purpose"},
		{"by what is said of it", declared(allowlist+free, "log.cedar", logged+` when { context.pdp.resource.id like "agent-b:x*" && principal has level && principal.level == 1 };`), here},
		{"by a role that is sent", declared(allowlist+free, "bundle.yaml", roles, "log.cedar", logged+` when { resource in [tool::"agent-c:x", tool::"agent-b:x"] && principal in Role::"r" };`), here},
		{"by a role that is sent, of two tools", declared(allowlist+"  - {agent: b, tools: [y, \"x*\"]}\n"+byRole, "bundle.yaml", roles), here},
		{"by a role that is sent, in one declaration", declared(allowlist+free+byRole, "bundle.yaml", roles), here},
		{"by a role that is sent, where all is open", declared("mode: open\nrules:\n"+byRole, "bundle.yaml", roles), openHere[1:] + "\nobligation_overlap access/agent-b.yaml:1:7"},
		{"by a role that is sent, beside a permit", declared(allowlist+byRole, "bundle.yaml", roles, "hand.cedar", byHand+`;`), ""},
		{"a denial of a role that is sent", declared("mode: denylist\nrules:\n  - {agent: {in: 'Role::\"r\"'}, tools: x}", "bundle.yaml", roles), "forbid_omittable access/agent-b.yaml:3:5"},
	} {
		c.run(t)
		// What is made of a capability is no way around anything, and nothing that is mistaken.
		own := c.files["access/agent-b.yaml"].Data
		for _, capability := range []string{"observe", "required"} {
			c.files["access/agent-b.yaml"].Data = fmt.Appendf(nil, "%s\ncapability: %s\n", own, capability)
			lintCase{c.name + ", " + capability, c.files, c.want}.run(t)
		}
	}
}

// Why Check is silent about a permit by hand beside a rule that demands an approval: as long as the rule
// holds the approval is owed, and what the rule does not hold for, the declaration decides.
func TestApprovalOwedBesideHand(t *testing.T) {
	t.Parallel()
	const rule = "  - {agent: a, tools: x, requires_approval: true, expires: 2026-11-20T12:00:00Z"
	const byHand = `@id("hand") permit (principal, action, resource is tool);`
	for declaration, after := range map[string]bool{
		allowlist + rule + "}":                 false,
		open + rule + "}":                      true,
		deniesElse + rule + ", effect: allow}": false,
		allowsElse + rule + ", effect: allow}": true,
	} {
		b, problems := pdp.Load(pdp.FS(declared(declaration, "hand.cedar", byHand)))
		if b == nil {
			t.Fatal(problems)
		}
		for _, test := range []struct {
			agent string
			now   time.Time
			free  bool
		}{{"a", lintNow.Add(-time.Millisecond), false}, {"a", lintNow, after}, {"b", lintNow.Add(-time.Millisecond), after}} {
			r, err := evaluation.DecodeAuthZEN(fmt.Appendf(nil, `{"subject": {"type": "agent", "id": %q}, "action": {"name": "tool.invoke"}, "resource": {"type": "tool", "id": "agent-b:x"}}`, test.agent), "default", evaluation.DefaultLimits())
			if err != nil {
				t.Fatal(err)
			}
			d, err := pdp.Of(b, pdp.Options{}).Evaluate(t.Context(), pdp.Call{Request: r, Now: test.now})
			if err != nil {
				t.Fatal(err)
			}
			if free := d.Allow && len(d.Obligations) == 0; free != test.free {
				t.Errorf("%s\n%s at %s: %+v", declaration, test.agent, test.now, d)
			}
		}
	}
}

// TestCheckAccessBesideOurs holds declarations as their owners write them against the bundles that
// are there to begin with: there is nothing to say but what is open.
func TestCheckAccessBesideOurs(t *testing.T) {
	t.Parallel()
	users := map[string]string{
		"starter": "{type: user, id: alice}", "mcp": "{type: user, id: alice}", "always-allow": "{type: user, id: alice}",
		"always-prompt": "{type: user, id: alice}", "delegated": "{type: user, id: alice}", "selective": "{type: user, id: alice}",
	}
	groups := map[string]string{"starter": `Role::"employee"`, "mcp": `group::"assistants"`}
	capabilities := map[string]string{
		"starter": "required", "mcp": "observe", "always-allow": "required", "always-prompt": "observe", "delegated": "none", "selective": "none",
	}
	for name, user := range users {
		rules := "  - {agent: agent-a, tools: [read_file, list_files], expires: 2027-01-02T00:00:00Z%}\n" +
			"  - {agent: " + user + ", tools: \"*\", requires_approval: true%}\n"
		if group := groups[name]; group != "" {
			rules += "  - {agent: {in: '" + group + "'}, tools: [status, \"get_*\"]%}\n"
		}
		plain := strings.ReplaceAll(rules, "%", "")
		denials, _, _ := strings.Cut(strings.ReplaceAll(strings.ReplaceAll(rules, ", requires_approval: true", ""), "%", ""), "  - {agent: {in")
		allow := "  - {agent: \"*\", tools: \"public_*\", effect: allow}\n"
		capability := "capability: " + capabilities[name] + "\n"
		for mode, declaration := range map[string]string{
			"allowlist":             allowlist + plain,
			"open":                  open + "  - {agent: agent-a, tools: [\"delete_*\", drop], requires_approval: true}\n",
			"denylist":              denylist + denials,
			"hybrid, that denies":   deniesElse + strings.ReplaceAll(rules, "%", ", effect: allow") + "  - {agent: agent-a, tools: \"read_secret*\", effect: deny}\n" + allow,
			"hybrid, that allows":   allowsElse + "  - {agent: agent-a, tools: \"delete_*\", effect: deny}\n  - {agent: agent-a, tools: write, requires_approval: true, effect: allow}\n",
			"allowlist of a tenant": "",
		} {
			files := copyOf(t, "../../../policies/"+name)
			files["access/agent-b.yaml"] = &fstest.MapFile{Data: []byte(declaration + capability)}
			files["access/agent-c.yaml"] = &fstest.MapFile{Data: []byte(allowlist + plain)}
			if declaration == "" {
				files["access/agent-b.yaml"] = &fstest.MapFile{Data: []byte("mode: allowlist\n" + capability)}
				files["tenants/other/access/agent-b.yaml"] = &fstest.MapFile{Data: []byte(allowlist + plain + capability)}
			}
			decides := `@id("ours") permit (principal is %, action == Action::"approval.decide", resource is Approval) when { ["agent-b", "agent-c"].contains(resource.template) };`
			typ := "user"
			if name == "starter" {
				typ = "User"
			}
			files["ours.cedar"] = &fstest.MapFile{Data: []byte(strings.Replace(decides, "%", typ, 1))}
			b, problems := pdp.Check(pdp.FS(files), lintNow)
			if b == nil {
				t.Errorf("%s, %s: %v", name, mode, problems)
			}
			opens := 0
			for _, p := range problems {
				if opens++; p.Code != "access_open" || opens > 1 {
					t.Errorf("%s, %s: %s %v", name, mode, p.Code, p)
				}
			}
			if wants := mode == "open"; wants != (opens > 0) {
				t.Errorf("%s, %s: %d times open", name, mode, opens)
			}
		}
	}
}

// copyOf are the files of a directory, to put more beside them.
func copyOf(t *testing.T, dir string) fstest.MapFS {
	t.Helper()
	files := fstest.MapFS{}
	if err := fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(dir + "/" + name)
		files[name] = &fstest.MapFile{Data: text}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return files
}

// A gateway asks whether clients may begin, and no declaration says so.
func TestCheckAccessAlone(t *testing.T) {
	t.Parallel()
	for other, warned := range map[string]bool{
		"": true,
		`@id("d") permit (principal is user, action == Action::"approval.decide", resource is Approval);`: true,
		`@id("f") forbid (principal, action == Action::"initialize", resource);`:                          true,
		`@id("s") permit (principal, action == Action::"initialize", resource is mcp_server);`:            false,
		`@id("r") permit (principal == user::"a", action, resource is tool);`:                             false,
	} {
		files := fstest.MapFS{"access/agent-b.yaml": {Data: []byte("mode: allowlist\nrules: [{agent: agent-a, tools: [status]}]\n")}}
		if other != "" {
			files["other.cedar"] = &fstest.MapFile{Data: []byte(other)}
		}
		_, problems := pdp.Check(pdp.FS(files), lintNow)
		found := slices.ContainsFunc(problems, func(p pdp.Problem) bool { return p.Code == "access_no_session" && p.File == "access/agent-b.yaml" })
		if found != warned || problems.Refuse() {
			t.Errorf("%s: %v", other, problems)
		}
	}
}
