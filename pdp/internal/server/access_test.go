package server_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"policy-service/pdp"
	"policy-service/pdp/pdptest"
)

const accessQuestion = `{"subject":{"type":"agent","id":"alice"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"desk:read"}}`

// Each mistake in a tool access declaration leaves the bundle before it in force, and /readyz says
// where it is. The declaration that mends it comes into force by itself.
func TestADeclarationWithAMistakeLeavesTheBundle(t *testing.T) {
	t.Parallel()
	const closed = "mode: allowlist\nrules:\n  - {agent: bob, tools: [read]}\n"
	open := strings.Replace(closed, "bob", "alice", 1)
	rule := func(text string) string { return "mode: allowlist\nrules:\n  - " + text + "\n" }
	dir := t.TempDir()
	replace := func(name, text string) {
		at := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(at), 0o755))
		next := filepath.Join(dir, ".next")
		must(t, os.WriteFile(next, []byte(text), 0o644))
		must(t, os.Rename(next, at))
	}
	replace("a.cedar", "@id(\"all\") permit(principal, action, resource);\n@id(\"not\") forbid(principal == agent::\"mallory\", action, resource);\n")
	replace("access/desk.yaml", closed)
	replace("tenants/acme/access/desk.yaml", open)
	s := pdptest.Start(t, pdp.Dir(dir))
	allowed := func() bool { return s.Post(evaluationPath, accessQuestion).Body == `{"decision":true}` }
	refused := func() string {
		_, problems, _ := strings.Cut(s.Get("/readyz").Body, `"refused":`)
		return strings.TrimPrefix(problems, `null,"log":null}`)
	}
	if allowed() || refused() != "" {
		t.Fatalf("it begins with alice allowed: %v, and %s", allowed(), s.Get("/readyz").Body)
	}
	const desk = "access/desk.yaml"
	for _, c := range []struct{ what, file, text, at, code string }{
		{"no YAML", desk, "mode: [", `"line":1,"column":1`, "yaml_syntax"},
		{"two documents", desk, open + "---\n" + open, `"line":4,"column":1`, "yaml_documents"},
		{"an unknown key", desk, open + "ruels: []\n", `"line":4,"column":1`, "unknown_key"},
		{"an owner of no form", desk, "owner: a b\n" + open, `"line":1,"column":8`, "access_owner"},
		{"an unknown mode", desk, "mode: allow\n", `"line":1,"column":7`, "yaml_value"},
		{"a default of another mode", desk, open + "default: allow\n", `"line":4,"column":10`, "access_default"},
		{"capabilities", desk, open + "capability: always\n", `"line":4,"column":13`, "yaml_value"},
		{"no subjects", desk, open + "subjects: []\n", `"line":4,"column":11`, "access_subjects"},
		{"an unknown key of a rule", desk, rule("{agent: alice, tool: x, tools: y}"), `"line":3,"column":20`, "unknown_key"},
		{"no agent", desk, rule("{tools: x}"), `"line":3,"column":5`, "missing_key"},
		{"an agent of no form", desk, rule("{agent: {id: alice}, tools: x}"), `"line":3,"column":13`, "access_agent"},
		{"a star in between", desk, rule("{agent: alice, tools: [re*d]}"), `"line":3,"column":28`, "access_glob"},
		{"no tools", desk, rule("{agent: alice, tools: []}"), `"line":3,"column":27`, "access_no_tools"},
		{"a time without a zone", desk, rule("{agent: alice, tools: x, expires: 2030-01-02T03:04:05}"), `"line":3,"column":39`, "access_expires"},
		{"an effect", desk, rule("{agent: alice, tools: x, effect: allow}"), `"line":3,"column":38`, "access_effect"},
		{"two equal rules", desk, open + "  - {agent: alice, tools: [read]}\n", `"line":4,"column":5`, "access_equal_rules"},
		{"an approval of a denial", desk, "mode: denylist\nrules:\n  - {agent: alice, tools: x, requires_approval: true}\n", `"line":3,"column":49`, "access_approval"},
		{"an open rule that does nothing", desk, "mode: open\nrules:\n  - {agent: alice, tools: x}\n", `"line":3,"column":5`, "access_open_rule"},
		{"a rule that never counts", desk, "mode: hybrid\ndefault: deny\nrules:\n  - {agent: alice, tools: x, effect: allow}\n  - {agent: alice, tools: '*', effect: deny}\n", `"line":4,"column":5`, "access_shadowed"},
		{"approval of no form", desk, open + "approval:\n  quorum: all\n", `"line":5,"column":11`, "obligation_properties"},
		{"a group that is no entity", desk, rule("{agent: {in: release}, tools: x}"), `"line":3,"column":18`, "access_agent"},
		{"the same owner again", "access/other.yaml", "owner: desk\n" + open, `"line":1,"column":8`, "access_owner_twice"},
		{"a reserved name", "b.cedar", "@id(\"access.desk.7\") permit(principal, action, resource);", `"line":1,"column":1`, "access_reserved"},
		{"a tenant's", "tenants/acme/access/desk.yaml", "mode: no\n", `"line":1,"column":7`, "yaml_value"},
		{"empty", desk, "\n", `"line":0,"column":0`, "empty_file"},
	} {
		replace(desk, closed)
		replace(c.file, c.text)
		_ = s.Reload(t.Context()) // and need not be noticed first
		want := `"file":"` + c.file + `",` + c.at + `,"code":"` + c.code + `"`
		eventually(t, c.what+" is refused at "+want, func() bool { return strings.Contains(refused(), want) })
		if got := refused(); strings.Count(got, `"severity":"error"`) != 1 {
			t.Errorf("%s: more is told: %s", c.what, got)
		}
		if allowed() {
			t.Errorf("%s: another bundle is in force", c.what)
		}
		if c.file != desk { // in whose place the next one comes
			must(t, os.Remove(filepath.Join(dir, c.file)))
			must(t, s.Reload(t.Context()))
			eventually(t, c.what+" is mended", func() bool { return refused() == "" })
		}
	}
	replace(desk, open)
	eventually(t, "what is mended is in force", func() bool { return refused() == "" && allowed() })
}
