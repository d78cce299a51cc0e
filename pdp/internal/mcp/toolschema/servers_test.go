package toolschema_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/mcp/lock"
	"policy-service/pdp/internal/mcp/toolschema"
)

// typed are policies over arguments of the servers' tools, as an author would write them.
var typed = map[string]string{
	"everything": `@id("one kind") permit(principal, action == Action::"everything:get-structured-content", resource) when { ["New York", "Chicago"].contains(context.arguments.location) };
		@id("research") permit(principal, action == Action::"everything:simulate-research-query", resource) unless { context.arguments has ambiguous && context.arguments.ambiguous };
		@id("echo") permit(principal, action == Action::"everything:echo", resource) when { context.arguments.message like "hello*" };`,
	"filesystem": `@id("read here") permit(principal is agent, action in [Action::"filesystem:read_text_file", Action::"filesystem:list_directory"], resource) when { context.arguments.path like "/srv/*" };
		@id("many") permit(principal, action == Action::"filesystem:read_multiple_files", resource) when { !context.arguments.paths.contains("/etc/passwd") };
		@id("dry") permit(principal, action == Action::"filesystem:edit_file", resource) when { context.arguments has dryRun && context.arguments.dryRun };`,
	"memory": `@id("find") permit(principal, action == Action::"memory:search_nodes", resource) when { context.arguments.query != "" };
		@id("some") permit(principal, action == Action::"memory:create_entities", resource) unless { context.arguments.entities.contains({name: "root", entityType: "person", observations: ["x"]}) };`,
	"conformance": `@id("any") permit(principal, action in Action::"conformance:*", resource) unless { action in Action::"tool.invoke" && context has purpose && context.purpose == "none" };`,
}

// The schema of what servers of others list loads with policies over their arguments, without a warning. That the files have
// what these servers list today, the test of package mcp sees that installs them (make npm).
func TestServers(t *testing.T) {
	for name := range typed {
		list, err := os.ReadFile("testdata/lists/" + name + ".json")
		must(t, err)
		loadsStrictly(t, name, list)
	}
}

func loadsStrictly(t *testing.T, name string, list []byte) {
	t.Helper()
	s := generated(t, tools(t, name, list), toolschema.Options{Whole: true})
	golden(t, name+".cedarschema", s)
	for _, n := range s.Notes {
		if n.Server != name || !strings.HasPrefix(n.Pointer, "/inputSchema") {
			t.Errorf("%+v", n)
		}
	}
	if problems := check(map[string]string{"tools.cedarschema": s.Text, "a.cedar": typed[name] + ofSession}); len(problems) > 0 {
		t.Errorf("%s: %v\n%s", name, problems, s.Text)
	}
}

// ofSession names all types that whole declares.
const ofSession = `
@id("lists") permit(principal is user, action in [Action::"tools/list", Action::"initialize"], resource is mcp_server);
@id("reads") permit(principal, action == Action::"resources/read", resource is resource);
@id("prompts") permit(principal, action == Action::"prompts/get", resource == prompt::"a");
@id("votes") permit(principal is user, action == Action::"approval.decide", resource is Approval) when { resource.template == "a" };`

// The part of the tools lies beside the bundle for gateways, whose policies hold for each tool as well as for tool.invoke.
func TestBesideTheBundle(t *testing.T) {
	list, err := os.ReadFile("testdata/lists/filesystem.json")
	must(t, err)
	part := generated(t, tools(t, "files", list), toolschema.Options{Said: []string{"agent_invocation_id"}})
	dir := t.TempDir()
	must(t, os.CopyFS(dir, os.DirFS("../../../../policies/mcp")))
	for name, text := range map[string]string{"tools.cedarschema": part.Text, "own.cedar": `@id("one-at-a-time") forbid(principal, action == Action::"files:read_multiple_files", resource) when { context.arguments.paths.contains("..") };`} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	if _, problems := pdp.Check(pdp.Dir(dir), time.Now()); len(problems) > 0 {
		t.Error(problems)
	}
}

func check(files map[string]string) pdp.Problems {
	all := fstest.MapFS{}
	for name, text := range files {
		all[name] = &fstest.MapFile{Data: []byte(text)}
	}
	_, problems := pdp.Check(pdp.FS(all), time.Now())
	return problems
}

func generated(t testing.TB, tools []toolschema.Tool, o toolschema.Options) *toolschema.Schema {
	t.Helper()
	s, err := toolschema.Generate(tools, o)
	must(t, err)
	return s
}

// tools are those of a result of tools/list.
func tools(t testing.TB, server string, list []byte) (all []toolschema.Tool) {
	t.Helper()
	var result struct{ Tools []jsontext.Value }
	must(t, json.Unmarshal(list, &result))
	for _, text := range result.Tools {
		d, err := lock.ParseTool(text)
		must(t, err)
		all = append(all, toolschema.Tool{Server: server, Name: d.Name(), Definition: d.Definition()})
	}
	return all
}

// Whatever a server lists, there is a schema of it that loads, and it has no other lines than ours.
func FuzzGenerate(f *testing.F) {
	files, err := filepath.Glob("testdata/lists/*.json")
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, file := range files {
		list, err := os.ReadFile(file)
		must(f, err)
		for _, t := range tools(f, "s", list) {
			text, err := t.Definition.MarshalJSON()
			must(f, err)
			f.Add(t.Name, text)
		}
	}
	for _, input := range []string{
		`{"$ref":"#"}`, `{"$ref":"#/a/0","a":[{"$ref":"#/a/0"}]}`, `{"type":"object","properties":{"a":{"anyOf":[{"$ref":"#"},{"type":"null"}]}}}`,
		`{"type":["object","null"],"properties":{"\u2028":{"const":"*/\n"}},"required":[1,"\u2028"]}`, `{"type":"object","properties":[1],"required":{},"$id":7}`,
	} {
		f.Add("a\n;", []byte(`{"inputSchema":`+input+`}`))
	}
	const policy = `@id("a") permit(principal is user, action == Action::"tools/list", resource is mcp_server);`
	f.Fuzz(func(t *testing.T, name string, definition []byte) {
		d, err := evaluation.ParseWithNulls(definition, evaluation.DefaultLimits())
		if err != nil {
			return // no tool has such a definition
		}
		all := []toolschema.Tool{{Server: "s", Name: name, Definition: d}, {Server: "s", Name: "other", Definition: d}}
		s, err := toolschema.Generate(all, toolschema.Options{Whole: true})
		must(t, err)
		for line := range strings.Lines(s.Text) {
			if begins := strings.TrimLeft(line, " "); strings.HasPrefix(line, "action") && !strings.Contains(line, " in ") && !strings.Contains(line, "appliesTo") && !strings.HasPrefix(begins, `action "tool.invoke";`) {
				t.Errorf("it has the line %q", line)
			}
		}
		if _, err := json.Marshal(s.Notes); err != nil {
			t.Error(err)
		}
		bundle := fstest.MapFS{"tools.cedarschema": {Data: []byte(s.Text)}, "a.cedar": {Data: []byte(policy)}}
		if _, problems := pdp.Load(pdp.FS(bundle)); problems.Refuse() {
			t.Errorf("%v\n%s", problems, s.Text)
		}
	})
}
