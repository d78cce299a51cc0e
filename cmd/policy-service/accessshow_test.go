package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"policy-service/pdp/pdptest/inside/cli"
	"policy-service/pdp/pdptest/inside/command"
)

// What access show prints of declarations takes their place, whatever names are in them: each answer is the same, with what it
// owes and the policies that it is by.
func TestShownAccessDecidesTheSame(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(file, text string) {
		t.Helper()
		writeFile(t, filepath.Join(dir, file), text)
	}
	does := func(in string, want []cli.ExitCode, args ...string) string {
		t.Helper()
		var out, told strings.Builder
		code := command.Run(args, cli.Streams{In: strings.NewReader(in), Out: &out, Err: &told})
		for _, w := range want {
			if code == w {
				return out.String()
			}
		}
		t.Fatalf("%q: exit %d, %s%s", args, code, out.String(), told.String())
		return ""
	}
	names := []string{`"`, `\`, `") }; permit (principal, action, resource); //`, "a\nb", "\x00", "\u2028", "e\u0301", "${resource.id}", strings.Repeat("x", 1024)}
	var rules strings.Builder
	for _, name := range names {
		text, err := json.Marshal(name) // which YAML reads
		must(t, err)
		rules.WriteString("- {agent: " + string(text) + ", tools: [" + string(text) + ", other], expires: 2030-01-31T12:00:00.5+02:00}\n")
	}
	for _, bundle := range []string{"declared", "shown"} {
		write(bundle+"/a.cedar", `@id("of-all") permit (principal, action, resource) when { true };`)
		write(bundle+"/bundle.yaml", "allow_trivial: true\n")
	}
	write("declared/access/o.yaml", "mode: allowlist\nsubjects: [agent, user]\napproval: {timeout: 10m}\nrules:\n"+rules.String()+"- {agent: wait, tools: \"w\\\"*\", requires_approval: true}\n")
	write("declared/tenants/t/access/p.yaml", "mode: hybrid\ndefault: allow\nrules: [{agent: wait, tools: '*', effect: allow, requires_approval: true}, {agent: {in: 'Role::\"r\"'}, tools: x*, effect: deny}]\n")
	declared, shown := filepath.Join(dir, "declared"), filepath.Join(dir, "shown")
	for tenant, place := range map[string]string{"default": "shown/", "t": "shown/tenants/t/"} {
		write(place+"access.cedar", does("", []cli.ExitCode{cli.OK}, "access", "show", declared, "--tenant", tenant))
		write(place+"obligations.yaml", does("", []cli.ExitCode{cli.OK}, "access", "show", declared, "--tenant", tenant, "--obligations"))
	}
	seen := map[string]int{}
	ask := func(tenant, agent, tool string) {
		t.Helper()
		question, err := json.Marshal(map[string]any{
			"subject": map[string]string{"type": "agent", "id": agent}, "action": map[string]string{"name": "tool.invoke"}, "resource": map[string]string{"type": "tool", "id": tool},
			"context": map[string]any{"supported_obligations": []string{"approval_required"}},
		})
		must(t, err)
		answers := func(bundle string) string {
			var said map[string]any
			text := does(string(question), []cli.ExitCode{0, 1, 3}, "eval", "--policies", bundle, "--tenant", tenant, "--now", "2030-01-31T10:00:00Z", "--json", "-")
			must(t, json.Unmarshal([]byte(text), &said))
			delete(said, "bundle") // the digest
			again, err := json.Marshal(said)
			must(t, err)
			return string(again)
		}
		by, printed := answers(declared), answers(shown)
		if by != printed || !strings.Contains(by, `"access.`) {
			t.Errorf("%s %q %q:\n%s\n%s", tenant, agent, tool, by, printed)
		}
		seen[by[:strings.Index(by, "obligations")]]++
		seen["waits"] += strings.Count(by, `"approval_required"`)
	}
	for n, name := range names {
		ask("default", name, "o:"+name)
		ask("t", name, "o:"+names[(n+1)%len(names)])
	}
	ask("default", "wait", `o:w"x`)
	ask("t", "wait", "p:x")
	if len(seen) < 5 || seen["waits"] < 2 {
		t.Errorf("there are few answers: %v", seen)
	}
}
