package tools_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/command/tools"
	"policy-service/pdp/internal/mcp/lock"
)

// sound is a configuration with a lock and policies in which there is nothing to find.
const sound = `resource: http://127.0.0.1:8181/mcp
identity:
  static: {sub: alice, client_id: agent-1}
pdp:
  embedded: {policies: policies}
upstreams:
  jira:
    url: http://127.0.0.1:9/mcp
    allow_networks: [127.0.0.0/8]
`

const (
	create = `{"name":"create_ticket","inputSchema":{"type":"object","properties":{"summary":{"type":"string"},"amount":{"type":"integer"},"to":{"type":"object","properties":{"team":{"type":"string"}}}},"required":["summary"]}}`
	browse = `{"name":"browse","inputSchema":{"type":"object","properties":{"query":{"type":"string"}}},"outputSchema":{"type":"object","properties":{"owner":{"type":"object","properties":{"email":{"type":"string"}}}}}}`
	begins = "@id(\"begins\") permit (principal, action in [Action::\"initialize\", Action::\"server/discover\", Action::\"tools/list\"], resource is mcp_server);\n"
	permit = "@id(\"all\") permit (principal, action == Action::\"tool.invoke\", resource is tool);\n"
)

// setup is a directory with all that is checked.
type setup struct {
	config   string
	policies map[string]string // beside the sound ones
	servers  map[string][]string
	lock     func(text string) string
}

func (u setup) write(t testing.TB) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if u.servers == nil {
		u.servers = map[string][]string{"jira": {create, browse}}
	}
	file := lock.File{Servers: map[string]lock.Server{}}
	for name, definitions := range u.servers {
		var all []lock.Tool
		for _, d := range definitions {
			one, err := lock.ParseTool([]byte(d))
			orFatal(t, err)
			all = append(all, one)
		}
		var err error
		file.Servers[name], err = lock.Of("", all)
		orFatal(t, err)
	}
	text := string(file.Text())
	if u.lock != nil {
		text = u.lock(text)
	}
	files := map[string]string{"g.yaml": u.config, "tools.lock.json": text, "policies/all.cedar": permit, "policies/begins.cedar": begins}
	for name, content := range u.policies {
		files["policies/"+name] = content
	}
	for name, content := range files {
		at := filepath.Join(dir, name)
		orFatal(t, os.MkdirAll(filepath.Dir(at), 0o700))
		orFatal(t, os.WriteFile(at, []byte(content), 0o600))
	}
	return dir
}

func orFatal(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// checked are the lines that check prints about a directory, with the files as they are in it, and how it ends.
func checked(t testing.TB, dir string) (lines []string, code cli.ExitCode) {
	t.Helper()
	var out, said bytes.Buffer
	c := tools.Check{Config: cli.Given(filepath.Join(dir, "g.yaml")), Lock: cli.Given(filepath.Join(dir, "tools.lock.json"))}
	if err := c.Run(cli.Streams{Out: &out, Err: &said}); err != nil && !errors.As(err, &code) {
		t.Fatal(err)
	}
	if said.Len() > 0 {
		t.Errorf("standard error: %s", &said)
	}
	text := strings.ReplaceAll(strings.TrimSuffix(out.String(), "\n"), dir+string(filepath.Separator), "")
	return strings.Split(text, "\n"), code
}

// without is the sound configuration with more of it.
func with(more string) string { return sound + more }

func instead(old, new string) string {
	if !strings.Contains(sound, old) {
		panic("the sound configuration has no " + old)
	}
	return strings.Replace(sound, old, new, 1)
}

// asksFirst are policies by which a tool needs an approval with such terms.
func asksFirst(terms string) map[string]string {
	return map[string]string{
		"p.cedar":          `@id("p") @obligation("ask") permit (principal, action == Action::"tool.invoke", resource == tool::"jira:browse");` + "\n",
		"bundle.yaml":      "allow_self_approval: [t]\n",
		"obligations.yaml": "ask: {type: approval_required, properties: {template: t" + terms + "}}\n",
	}
}

func permitOf(method string) string {
	return `permit (principal == agent::"a", action == Action::"` + method + `", resource) when { context has purpose };` + "\n"
}

func policy(text string) map[string]string { return map[string]string{"p.cedar": text + "\n"} }

func declares(mapping string) map[string][]string {
	return map[string][]string{"jira": {create, browse, `{"name":"own","inputSchema":{"type":"object","properties":{"id":{"type":"string"}},"required":["id"],"x-authzen-mapping":` + mapping + `}}`}}
}

func hints(authorization string) map[string][]string {
	return map[string][]string{"jira": {create, browse, `{"name":"own","authorization":` + authorization + `,"inputSchema":{"type":"object"}}`}}
}

func named(name string) string { return `{"name":"` + name + `","inputSchema":{"type":"object"}}` }

const ownMapping = `{"evaluation":{"subject":{"type":"user","id":"$token.sub"},"action":{"name":"use"},"resource":{"type":"doc","id":"$params.arguments.id"},"context":{"agent":"$token.?client_id"}}}`

// operatorMapping is a mapping in the configuration, on lines 10 to 15.
func operatorMapping(key, id string) string {
	return with("mappings:\n  " + key + ":\n    evaluation:\n      subject: {type: user, id: \"$token.sub\"}\n      action: {name: use}\n      resource: {type: doc, id: \"" + id + "\"}\n      context: {agent: \"$token.?client_id\"}\n")
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	kept := instead("{policies: policies}", "{policies: policies, data: data}")
	for name, test := range map[string]struct {
		setup
		want []string
	}{
		"nothing": {setup{}, nil},
		"a session that nobody may begin": {setup{policies: map[string]string{"begins.cedar": permitOf("initialize") + permitOf("tools/list")}},
			[]string{`policies: warning: no policy permits anybody server/discover: clients begin with that, and the gateway refuses it; permit them, as sessions.cedar of the bundle mcp does, which policy-service init --template mcp writes`}},
		"tools alone": {setup{policies: map[string]string{"begins.cedar": `permit (principal, action, resource is tool) when { context has x };`}},
			[]string{`policies: warning: no policy permits anybody initialize, server/discover, tools/list: clients begin with that, and the gateway refuses it; permit them, as sessions.cedar of the bundle mcp does, which policy-service init --template mcp writes`}},
		"a key": {setup{config: with("limits: {max_body: 64}\n")},
			[]string{`g.yaml:10:20: limits.max_body must be a size; write it like 512B, 64KiB or 4MiB`}},
		"a value": {setup{config: with("ask: perhaps\n")},
			[]string{`g.yaml:10:6: ask is not one of: tool.invoke, tool, coaz; write one of them`}},
		"an operator's mapping that is no mapping": {setup{config: operatorMapping("tools/call jira:create_ticket", `$params.(`)},
			[]string{`g.yaml:15:33: mappings."tools/call jira:create_ticket": COAZ mapping error: /evaluation/resource/id: the expression is no CEL, or nests too deep: Syntax error: no viable alternative at input '.('; mend the mapping`}},
		"a mapping for a tool that there is none of": {setup{config: operatorMapping("tools/call jira:create_tiket", "x")},
			[]string{
				`g.yaml:12:5: mappings."tools/call jira:create_tiket": the server has no such tool in the lock; did you mean create_ticket?`}},
		"a mapping that reads no argument of the tool": {setup{config: operatorMapping("tools/call jira:create_ticket", "$params.arguments.sumary")},
			[]string{`g.yaml:15:33: mappings."tools/call jira:create_ticket"/evaluation/resource/id: "$params.arguments.sumary": the inputSchema declares no sumary; correct the name; without the argument the mapping fails, or asks the same whatever is called`}},
		"a mapping that reads what may be missing": {setup{config: operatorMapping("tools/call jira:browse", "$params.arguments.query")},
			[]string{`g.yaml:15:33: warning: mappings."tools/call jira:browse"/evaluation/resource/id: "$params.arguments.query": by the inputSchema query may be missing, and then the mapping fails: require it, or read it with .? or after has() where it can be left out; mend the mapping`}},
		"a mapping for all tools that reads no argument of any": {setup{config: operatorMapping("tools/call", "$params.arguments.ticket")},
			[]string{`g.yaml:15:33: mappings.tools/call/evaluation/resource/id: "$params.arguments.ticket": the inputSchema declares no ticket; correct the name; without the argument the mapping fails, or asks the same whatever is called`}},
		"a tool in the configuration": {setup{config: with("    tools:\n      brwse: {hidden: true}\n")},
			[]string{`g.yaml:11:14: upstreams.jira.tools.brwse: the server has no such tool in the lock; did you mean browse?`}},
		"a tool in the configuration that is like none": {setup{config: with("    tools:\n      delete_everything: {hidden: true}\n")},
			[]string{`g.yaml:11:26: upstreams.jira.tools.delete_everything: the server has no such tool in the lock; correct the name, or take it out`}},
		"a server that is not locked, and one that is gone": {setup{servers: map[string][]string{"jra": {create}}},
			[]string{
				`g.yaml:8:5: upstreams.jira is not in the lock; look at its tools, and accept them with policy-service mcp lock --accept`,
				`tools.lock.json: /servers/jra: warning: the configuration has no upstream "jra"; lock again without it, or correct the name`}},
		"a name that common clients do not take": {setup{servers: map[string][]string{"jira": {create, browse, named("a.b")}}},
			[]string{`tools.lock.json: /servers/jira/tools/a.b/definition/name: warning: common clients take no tool that is called "a.b"; have the server's author choose a name of up to 64 letters, digits, _ and -`}},
		"names that differ in case": {setup{servers: map[string][]string{"jira": {create, browse, named("Browse")}}},
			[]string{`tools.lock.json: /servers/jira/tools/browse/definition/name: clients would call it browse, and jira:Browse Browse, which people take for one: neither is listed nor callable; hide one: upstreams.jira.tools.browse: {hidden: true}`}},
		"a lock that was edited": {setup{lock: func(s string) string { return strings.Replace(s, `"integer"`, `"number"`, 1) }},
			[]string{`tools.lock.json:34:22: from here on it is not as it was written: with the digest of each definition, sorted, indented by two spaces, with what cannot be seen escaped; take back what was edited, or write the file again with: policy-service mcp lock --accept`}},
		"a lock that was merged": {setup{lock: func(s string) string { return "<<<<<<< HEAD\n" + s }},
			[]string{`tools.lock.json:1:1: it is no JSON: git marks what it could not merge; an editor may have cut something off; take back what was edited, or write the file again with: policy-service mcp lock --accept`}},
		"a definition that says too much": {setup{servers: map[string][]string{"jira": {create, browse, `{"name":"own","inputSchema":{"type":"object"},"annotations":{"title":"` + strings.Repeat("x", 9000) + `"}}`}}},
			[]string{`tools.lock.json: /servers/jira/tools/own/definition: the tool is neither listed nor callable: what the definition says of the tool: the body has more than 8192 bytes; send less; have the server's author mend the definition`}},
		"a schema that cannot be applied": {setup{servers: map[string][]string{"jira": {create, browse, `{"name":"own","inputSchema":{"pattern":"(?!x)"}}`}}},
			[]string{`tools.lock.json: /servers/jira/tools/own/definition/inputSchema: warning: arguments are not held against the schema: inputSchema/pattern: the pattern is too large, or has what RE2 does not, such as looking ahead; have the server's author mend the schema, or write policies about the arguments`}},
		"a schema that cannot be closed": {setup{config: with("arguments: closed\n"), servers: map[string][]string{"jira": {create, browse, `{"name":"own","inputSchema":{"pattern":"(?!x)"}}`}}},
			[]string{`tools.lock.json: /servers/jira/tools/own/definition: the tool is neither listed nor callable: inputSchema/pattern: the pattern is too large, or has what RE2 does not, such as looking ahead; have the server's author mend the definition`}},
		"a declared mapping that is no mapping": {setup{servers: declares(`{"evaluation":{"subject":{"type":"user","id":"$token.sub"},"action":{"name":"use"},"resource":{"type":"doc","id":"$oops"}}}`)},
			[]string{`tools.lock.json: /servers/jira/tools/own/definition/inputSchema/x-authzen-mapping/evaluation/resource/id: the mapping that the tool declares: "$oops": the expression names oops, which mappings do not have, so the tool is neither listed nor callable; have the server's author mend it, or set declared: ignore`}},
		"a declared mapping that reads no argument": {setup{servers: declares(strings.Replace(ownMapping, "arguments.id", "arguments.idd", 1))},
			[]string{`tools.lock.json: /servers/jira/tools/own/definition/inputSchema/x-authzen-mapping/evaluation/resource/id: the mapping that the tool declares: "$params.arguments.idd": the inputSchema declares no idd; have the server's author mend it, or set declared: ignore`}},
		"a declared mapping that asks the same of all calls": {setup{servers: declares(strings.Replace(ownMapping, "$params.arguments.id", "$params.name", 1))},
			[]string{`tools.lock.json: /servers/jira/tools/own/definition/inputSchema/x-authzen-mapping: warning: the mapping that the tool declares: nothing of a call is in the question: the PDP is asked the same whatever the arguments are; have the server's author mend it, or set declared: ignore`}},
		"a declared mapping that reads no member of a call": {setup{servers: declares(strings.Replace(ownMapping, "params.arguments.id", "params.argument.id", 1))},
			[]string{`tools.lock.json: /servers/jira/tools/own/definition/inputSchema/x-authzen-mapping/evaluation/resource/id: the mapping that the tool declares: "$params.argument.id": a call of a tool has no argument; have the server's author mend it, or set declared: ignore`}},
		"a mapping of the older dialect": {setup{servers: map[string][]string{"jira": {create, browse, `{"name":"own","coaz":true,"inputSchema":{"type":"object","properties":{"id":{}},"x-coaz-mapping":{"resource":{"id":"$.properties.id","type":"t"},"subject":{"type":"user","id":"$.token.sub"},"context":{"x":"$.properties.y"}}}}`}}},
			[]string{
				`tools.lock.json: /servers/jira/tools/own/definition/inputSchema/x-coaz-mapping/context/x: the mapping that the tool declares: "$.properties.y": the inputSchema declares no y; have the server's author mend it, or set declared: ignore`,
				`tools.lock.json: /servers/jira/tools/own/definition/inputSchema/x-coaz-mapping/resource/id: warning: the mapping that the tool declares: "$.properties.id": by the inputSchema id may be missing, and then the mapping fails: require it, or read it with .? or after has() where it can be left out; have the server's author mend it, or set declared: ignore`}},
		"a declared mapping that is not read": {setup{config: with("declared: ignore\n"), servers: declares(`{"evaluation":{}}`)}, nil},
		"an approval that nobody demands":     {setup{servers: hints(`{"required":true}`)}, []string{`tools.lock.json: /servers/jira/tools/own/definition/authorization/required: warning: the server says that an approval is required, and no policy about jira:own demands one; write a permit with an @obligation of type approval_required, or one that reads resource.approval_hint.required`}},
		"an approval that is demanded": {setup{servers: hints(`{"required":true}`), policies: map[string]string{
			"p.cedar": `@id("a") @obligation("approval_required") permit (principal, action, resource) when { resource has approval_hint };`}}, nil},
		"a policy that is no policy": {setup{policies: policy(`permit (principal, action, resource)`)},
			[]string{`policies/p.cedar:1:37: this is not Cedar: expected ";" before the end of the file; a policy ends with a semicolon`}},
		"a forbid of a tool that is gone": {setup{policies: policy(`@id("f") forbid (principal, action, resource == tool::"jira:create_tiket");`)},
			[]string{`policies/p.cedar:1:1: forbid "f" names tool::"jira:create_tiket", which is not locked: the forbid never fires for it; did you mean jira:create_ticket?`}},
		"a permit of a tool that is gone": {setup{policies: policy(`@id("p") permit (principal, action, resource == tool::"jira:create_tiket");`)},
			[]string{`policies/p.cedar:1:1: warning: permit "p" names tool::"jira:create_tiket", which is not locked: the permit permits nothing by it; did you mean jira:create_ticket?`}},
		"a tool without its server": {setup{policies: policy(`@id("f") forbid (principal, action, resource == tool::"browse");`)},
			[]string{`policies/p.cedar:1:1: forbid "f" names tool::"browse", and in questions a tool is called server:name: the forbid never fires for it; did you mean jira:browse?`}},
		"a tool of no server": {setup{policies: policy(`@id("f") forbid (principal, action, resource == tool::"jrai:browse");`)},
			[]string{`policies/p.cedar:1:1: forbid "f" names tool::"jrai:browse", and there is no server "jrai" in the lock: the forbid never fires for it; did you mean jira?`}},
		"many tools of no server": {setup{policies: map[string]string{"p.cedar": `@id("p") permit (principal, action, resource == tool::"jrai:browse"); @id("q") permit (principal, action, resource == tool::"jrai:create_ticket");` + "\n" + `@id("f") forbid (principal, action, resource == tool::"jrai:browse");`, "access/jrai.yaml": "mode: hybrid\ndefault: allow\nrules: [{agent: a, tools: [browse], effect: deny}]\n"}},
			[]string{`policies/access/jrai.yaml: declares who may use the tools of "jrai", and there is no server "jrai" in the lock: it closes nothing here, and so in 4 more places; did you mean jira?`}},
		"a permit and a forbid of no server": {setup{policies: policy(`@id("p") permit (principal, action, resource == tool::"jrai:browse"); @id("q") permit (principal, action, resource == tool::"jrai:create_ticket");` + "\n" + `@id("z") forbid (principal, action, resource == tool::"jrai:browse");`)},
			[]string{`policies/p.cedar:2:1: forbid "z" names tool::"jrai:browse", and there is no server "jrai" in the lock: the forbid never fires for it, and so in 2 more places; did you mean jira?`}},
		"a server that is not locked yet": {setup{config: with("  mail:\n    url: http://127.0.0.1:9/mcp\n    allow_networks: [127.0.0.0/8]\n"), policies: policy(`@id("f") forbid (principal, action, resource == tool::"mail:send");`)},
			[]string{`g.yaml:11:5: upstreams.mail is not in the lock; look at its tools, and accept them with policy-service mcp lock --accept`}},
		"an exception for a tool that is gone": {setup{policies: policy(`@id("f") forbid (principal, action, resource) unless { resource == tool::"jira:gone" };`)},
			[]string{`policies/p.cedar:1:1: warning: forbid "f" names tool::"jira:gone", which is not locked; correct the name, or take the rule out`}},
		"an action for a tool, and one action for all": {setup{policies: policy(`@id("f") forbid (principal, action == Action::"jira:browse", resource);`)},
			[]string{`policies/p.cedar:1:1: forbid "f" names Action::"jira:browse", and by ask: tool.invoke the action of every call is tool.invoke: the forbid never fires for it; set ask: tool, or write resource == tool::"jira:browse"`}},
		"an action for each tool, and one for all": {setup{config: with("ask: tool\n"), policies: policy(`@id("f") forbid (principal, action == Action::"tool.invoke", resource) when { resource.labels.a == "b" };`)},
			[]string{
				`policies/all.cedar:1:1: warning: permit "all" wants the action to be Action::"tool.invoke", and ask: tool has an action for each tool: the permit permits nothing by it; write action in Action::"tool.invoke"`,
				`policies/p.cedar:1:1: forbid "f" wants the action to be Action::"tool.invoke", and ask: tool has an action for each tool: the forbid never fires for it; write action in Action::"tool.invoke"`}},
		"an action of a tool that is gone": {setup{config: with("ask: tool\n"), policies: map[string]string{"all.cedar": "@id(\"all\") permit (principal, action in Action::\"jira:*\", resource);\n", "p.cedar": `@id("f") forbid (principal, action in [Action::"jira:browse", Action::"jira:delete"], resource);` + "\n"}},
			[]string{`policies/p.cedar:1:1: forbid "f" names Action::"jira:delete", which is not locked: the forbid never fires for it; correct the name, or take the rule out`}},
		"a group that no action of a tool is in": {setup{config: with("ask: tool\n"), policies: map[string]string{"all.cedar": "@id(\"all\") permit (principal, action, resource);\n", "p.cedar": `@id("f") forbid (principal, action in Action::"tool.invoke", resource == tool::"jira:browse");` + "\n"}},
			[]string{`policies/p.cedar:1:1: forbid "f" is about a group of actions in which that of jira:browse is not, as far as the bundle says: the forbid never fires for it; write the schema of the tools into the bundle, with policy-service mcp schema -o tools.cedarschema`}},
		"a group that one action is in": {setup{config: with("ask: tool\n"), policies: map[string]string{"all.cedar": "@id(\"all\") permit (principal, action, resource);\n",
			"p.cedar":         `@id("f") forbid (principal, action in [Action::"tool.invoke", Action::"jira:*"], resource);` + "\n",
			"entities/a.json": `[{"uid":{"type":"Action","id":"jira:browse"},"attrs":{},"parents":[{"type":"Action","id":"jira:*"}]}]`}},
			[]string{`policies/p.cedar:1:1: forbid "f" is about a group of actions in which that of jira:create_ticket is not, as far as the bundle says: the forbid never fires for it; write the schema of the tools into the bundle, with policy-service mcp schema -o tools.cedarschema`}},
		"a group of a schema": {setup{config: with("ask: tool\n"), policies: map[string]string{"all.cedar": "@id(\"all\") permit (principal, action == Action::\"jira:browse\", resource);\n",
			"p.cedar": `@id("f") forbid (principal, action in Action::"tool.invoke", resource);` + "\n",
			"schema.cedarschema": `entity agent, user, tool, mcp_server; action "initialize", "server/discover", "tools/list" appliesTo {principal: [agent, user], resource: mcp_server, context: {}};
action "tool.invoke"; action "jira:*" in "tool.invoke"; action "jira:browse" in "jira:*" appliesTo {principal: [agent, user], resource: tool, context: {}};`}}, nil},
		"a declaration of access": {setup{policies: map[string]string{"access/jira.yaml": "mode: allowlist\nrules: [{agent: a, tools: [browse]}]\n"}}, nil},
		"a declaration of access that names a tool that is gone": {setup{policies: map[string]string{"access/jira.yaml": "mode: hybrid\ndefault: allow\nrules: [{agent: a, tools: [brwse], effect: deny}]\n"}},
			[]string{`policies/access/jira.yaml:3:9: forbid "access.jira.1" names tool::"jira:brwse", which is not locked: the forbid never fires for it; did you mean jira:browse?`}},
		"a declaration of access for no server": {setup{policies: map[string]string{"access/jra.yaml": "mode: denylist\n", "access/other.yaml": "mode: allowlist\n"}},
			[]string{
				`policies/access/jra.yaml: declares who may use the tools of "jra", and there is no server "jra" in the lock: it closes nothing here; did you mean jira?`,
				`policies/access/other.yaml: declares who may use the tools of "other", and there is no server "other" in the lock: it closes nothing here; correct the owner, or the name of the upstream`}},
		"a declaration of access that is not asked about": {setup{config: with("ask: coaz\n"), policies: map[string]string{"access/jira.yaml": "mode: allowlist\n"}},
			[]string{`policies/access/jira.yaml: declares who may use the tools of "jira", and ask: coaz has questions about calls that are not about the action tool.invoke: it closes nothing here; set ask: tool.invoke`}},
		"a declaration of access for actions that no group is known of": {setup{config: with("ask: tool\n"), policies: map[string]string{"access/jira.yaml": "mode: allowlist\n", "all.cedar": "@id(\"all\") permit (principal, action, resource) when { resource is tool };\n"}},
			[]string{`policies/access/jira.yaml:1:7: forbid "access.jira.guard" is about a group of actions in which that of jira:browse is not, as far as the bundle says: the forbid never fires for it; write the schema of the tools into the bundle, with policy-service mcp schema -o tools.cedarschema`}},
		"other applications": {setup{policies: policy(`@id("f") forbid (principal, action == Action::"orders:read", resource == order::"o:1") when { context.arguments.total > 3 };`)}, nil},
		"an argument that a forbid fails without": {setup{policies: policy(`@id("f") forbid (principal, action, resource == tool::"jira:create_ticket") when { context.arguments.amuont > 3 };`)},
			[]string{`policies/p.cedar:1:1: forbid "f" reads context.arguments.amuont, which jira:create_ticket does not have: the forbid fails on each call; did you mean amount?`}},
		"an argument that a forbid asks for": {setup{policies: policy(`@id("f") forbid (principal, action, resource == tool::"jira:create_ticket") when { context.arguments has amuont && context.arguments.amuont > 3 };`)},
			[]string{`policies/p.cedar:1:1: forbid "f" reads context.arguments.amuont, which jira:create_ticket does not have: the forbid never fires by it; did you mean amount?`}},
		"an argument of another tool": {setup{policies: policy(`@id("f") forbid (principal, action, resource == tool::"jira:browse") when { context.arguments has amount && context.arguments.amount > 3 };`)},
			[]string{`policies/p.cedar:1:1: forbid "f" reads context.arguments.amount, which jira:browse does not have: the forbid never fires by it; correct the name, or take it out`}},
		"an argument that a permit reads": {setup{policies: policy(`@id("p") permit (principal, action == Action::"tool.invoke", resource) when { context.arguments.amuont < 3 };`)},
			[]string{`policies/p.cedar:1:1: warning: permit "p" reads context.arguments.amuont, which any of 2 tools does not have: it permits nothing by it; did you mean amount?`}},
		"an argument that a permit stops at": {setup{policies: policy(`@id("p") permit (principal, action == Action::"tool.invoke", resource) unless { context.arguments has amuont && context.arguments.amuont > 3 };`)},
			[]string{`policies/p.cedar:1:1: permit "p" reads context.arguments.amuont, which any of 2 tools does not have: no exception is made by it, and it permits more; did you mean amount?`}},
		"an argument that a forbid stops at": {setup{policies: policy(`@id("f") forbid (principal, action, resource == tool::"jira:create_ticket") unless { context.arguments has amuont };`)},
			[]string{`policies/p.cedar:1:1: warning: forbid "f" reads context.arguments.amuont, which jira:create_ticket does not have: no exception is made by it, and it forbids more; did you mean amount?`}},
		"an argument that an unless fails without": {setup{policies: policy(`@id("p") permit (principal, action == Action::"tool.invoke", resource) unless { context.arguments.amuont > 3 };`)},
			[]string{`policies/p.cedar:1:1: warning: permit "p" reads context.arguments.amuont, which any of 2 tools does not have: it permits nothing by it; did you mean amount?`}},
		"an argument that is excepted by a not": {setup{policies: policy(`@id("p") permit (principal, action == Action::"tool.invoke", resource) when { !(context.arguments has amuont && context.arguments.amuont > 3) };`)},
			[]string{`policies/p.cedar:1:1: permit "p" reads context.arguments.amuont, which any of 2 tools does not have: no exception is made by it, and it permits more; did you mean amount?`}},
		"an argument that must be there, said twice": {setup{policies: policy(`@id("p") permit (principal, action == Action::"tool.invoke", resource) unless { !(context.arguments has amuont) };`)},
			[]string{`policies/p.cedar:1:1: warning: permit "p" reads context.arguments.amuont, which any of 2 tools does not have: it permits nothing by it; did you mean amount?`}},
		"an argument beside an unless": {setup{policies: policy(`@id("p") permit (principal, action == Action::"tool.invoke", resource) when { context.arguments has amuont } unless { context.arguments has amuont };`)},
			[]string{`policies/p.cedar:1:1: warning: permit "p" reads context.arguments.amuont, which any of 2 tools does not have: it permits nothing by it; did you mean amount?`}},
		"a part of an argument": {setup{policies: policy(`@id("f") forbid (principal, action, resource == tool::"jira:create_ticket") when { context.arguments has to && context.arguments.to has taem };`)},
			[]string{`policies/p.cedar:1:1: forbid "f" reads context.arguments.to.taem, which jira:create_ticket does not have: the forbid never fires by it; correct the name, or take it out`}},
		"an approval without rounds": {setup{config: kept + "    server_requests: {elicitation: relay}\n", policies: asksFirst("")},
			[]string{`policies/p.cedar:1:1: warning: permit "p" demands an approval without rounds (ask), and the server of jira:browse may ask for something before it answers (server_requests): such a call ends; set rounds in obligations.yaml if follow-up questions belong to what is approved`}},
		"an approval with rounds":                        {setup{config: kept + "    server_requests: {elicitation: relay}\n", policies: asksFirst(", rounds: 1")}, nil},
		"an approval, and a server that may ask nothing": {setup{config: kept, policies: asksFirst("")}, nil},
		"a field that is in no result": {setup{policies: map[string]string{"p.cedar": `@id("p") @obligation("mask") permit (principal, action == Action::"tool.invoke", resource == tool::"jira:browse");` + "\n",
			"obligations.yaml": "mask: {type: redact, properties: {fields: [/owner/email, /owner/mail, /items/*/x]}}\n"}},
			[]string{
				`policies/p.cedar:1:1: warning: permit "p" obliges to redact /items/*/x (mask), which the outputSchema of jira:browse does not have; correct the field in obligations.yaml: without it nothing is taken out`,
				`policies/p.cedar:1:1: warning: permit "p" obliges to redact /owner/mail (mask), which the outputSchema of jira:browse does not have; correct the field in obligations.yaml: without it nothing is taken out`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.config == "" {
				test.config = sound
			}
			lines, code := checked(t, test.write(t))
			got := lines[:len(lines)-1]
			if !slices.Equal(got, test.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
			problems := slices.ContainsFunc(got, func(line string) bool { return !strings.Contains(line, ": warning: ") })
			if problems != (code == cli.No) {
				t.Errorf("exit %d, with\n%s", code, strings.Join(lines, "\n"))
			}
		})
	}
}

// What a server wrote is printed so that it begins no line, and acts on no terminal.
func TestCheckIsEscaped(t *testing.T) {
	t.Parallel()
	lines, _ := checked(t, setup{config: sound, servers: map[string][]string{"jira": {
		create, browse, `{"name":"own\ng.yaml:1:1: all is well\u001b[2J\u202e","authorization":{"required":true},"inputSchema":{"type":"object",
			"x-authzen-mapping":{"evaluation":{"subject":{"type":"user","id":"$token.sub"},"action":{"name":"\u202e"},"resource":{"type":"doc","id":"$params.arguments.\u202e"}}}}}`,
	}}}.write(t))
	if len(lines) != 4 || strings.ContainsAny(strings.Join(lines, ""), "\u001b\u202e") || slices.ContainsFunc(lines[:3], func(line string) bool { return !strings.HasPrefix(line, "tools.lock.json:") }) {
		t.Errorf("%q", lines)
	}
}

// What cannot be read is no finding.
func TestCheckCannot(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(c *tools.Check){
		"no configuration": func(c *tools.Check) { c.Config += "x" },
		"no lock":          func(c *tools.Check) { c.Lock += "x" },
		"no bundle":        func(c *tools.Check) { c.Policies = c.Config + "x" },
	} {
		dir := setup{config: sound}.write(t)
		c := tools.Check{Config: cli.Given(filepath.Join(dir, "g.yaml")), Lock: cli.Given(filepath.Join(dir, "tools.lock.json"))}
		change(&c)
		var out bytes.Buffer
		if err, code := c.Run(cli.Streams{Out: &out, Err: &out}), cli.ExitCode(0); err == nil || errors.As(err, &code) || !strings.Contains(err.Error(), "; ") {
			t.Errorf("%s: %v\n%s", name, err, &out)
		}
	}
}
