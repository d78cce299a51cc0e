package tools_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/command/tools"
	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/internal/server/config"
)

// mapped is what map prints, as far as it is looked at.
type mapped struct {
	Questions []struct {
		Mapping   struct{ Author, Digest string } `json:"mapping"`
		API       string                          `json:"api"`
		Body      jsontext.Value                  `json:"body"`
		Decisions []struct{ Decision bool }
	} `json:"questions"`
	Verdict *struct {
		Decision    bool              `json:"decision"`
		Reason      string            `json:"reason"`
		Determining []string          `json:"determining"`
		Overruled   []string          `json:"overruled"`
		Positions   map[string]string `json:"positions"`
	} `json:"verdict"`
	Missing *struct {
		Obligation string   `json:"obligation"`
		Template   string   `json:"template"`
		Policies   []string `json:"policies"`
		Asked      string   `json:"asked"`
		TakesPart  []string `json:"takes_part"`
		Try        string   `json:"try"`
	} `json:"missing_approval"`
	Refused *struct {
		Code                                        int
		Kind, Message, In, Pointer, Expression, Try string
	} `json:"refused"`
}

// authors are the tools of a server that declares a mapping of its own with one of them.
var authors = map[string]string{
	"create_ticket": create,
	"own":           `{"name":"own","inputSchema":{"type":"object","properties":{"id":{"type":"string"}},"required":["id"],"x-authzen-mapping":` + ownMapping + `}}`,
}

const (
	mapPolicies = `
@id("calls") permit (principal, action == Action::"tool.invoke", resource) unless { context.arguments has amount && context.arguments.amount > 10 };
@id("large") @obligation("second") permit (principal, action == Action::"tool.invoke", resource) when { context.arguments has amount && context.arguments.amount > 10 };
@id("huge") forbid (principal, action == Action::"tool.invoke", resource) when { context.arguments has amount && context.arguments.amount > 1000 };
@id("lists") permit (principal, action in [Action::"tools/list", Action::"resources/read", Action::"initialize"], resource);
@id("uses") permit (principal, action == Action::"use", resource) when { resource == doc::"mine" };
@id("decides") permit (principal is user, action == Action::"approval.decide", resource);
`
	modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`
)

// mapping runs map with a message about which config decides.
func mapping(t testing.TB, config, tool, message string, change func(*tools.Map)) (m mapped, text string, code cli.ExitCode, err error) {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{
		"g.yaml": config, "policies/p.cedar": mapPolicies, "policies/bundle.yaml": "unknown_entities: evaluate\n",
		"policies/obligations.yaml": "second: {type: approval_required, properties: {template: tickets, message: look}}\n",
		"tool.json":                 authors[tool], "message.json": message,
	}
	for name, content := range files {
		at := filepath.Join(dir, name)
		orFatal(t, os.MkdirAll(filepath.Dir(at), 0o700))
		orFatal(t, os.WriteFile(at, []byte(content), 0o600))
	}
	c := tools.Map{Config: cli.Given(filepath.Join(dir, "g.yaml")), Message: filepath.Join(dir, "message.json")}
	if tool != "" {
		c.Definition = cli.Given(filepath.Join(dir, "tool.json"))
	}
	if change != nil {
		change(&c)
	}
	var out bytes.Buffer
	if err = c.Run(cli.Streams{In: strings.NewReader(message), Out: &out, Err: &out}); errors.As(err, &code) {
		err = nil
	}
	if err == nil {
		orFatal(t, json.Unmarshal(out.Bytes(), &m, json.MatchCaseInsensitiveNames(true)))
	}
	return m, out.String(), code, err
}

func call(tool, arguments, more string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `","arguments":` + arguments + more + `}}`
}

func TestMapAuthors(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		config, tool, message string
		authors               string // of the questions, in their order
		body                  string // of the last
		api                   string
	}{
		"built-in": {sound, "create_ticket", call("create_ticket", `{"summary":"s"}`, ""), "built-in",
			`{"subject":{"type":"agent","id":"agent-1"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"jira:create_ticket","properties":{"digest":"6O_6ucdg1OwhWgG9I22PYv1pTwbR_td7rfW1_cYaOAo"}},"context":{"arguments":{"summary":"s"},"on_behalf_of":[{"id":"alice","type":"user"}],"person":"P_jbIGEsbQWjLbSeCZOscvnOkOh9kIRDmd9-sx_9a3Q","supported_mandatory_extensions":["obligations"],"supported_obligations":["custom"]}}`, "evaluation"},
		"modern": {sound, "create_ticket", call("create_ticket", `{}`, ","+modernMeta), "built-in", "", "evaluation"},
		"operator, for one tool": {operatorMapping("tools/call jira:create_ticket", "$params.arguments.summary"), "create_ticket", call("create_ticket", `{"summary":"mine"}`, ""), "operator",
			`{"subject":{"type":"user","id":"alice"},"action":{"name":"use"},"resource":{"type":"doc","id":"mine"},"context":{"agent":"agent-1","supported_mandatory_extensions":["obligations"],"supported_obligations":["custom"]}}`, "evaluation"},
		"operator, for a method": {operatorMapping("resources/read", "$params.uri"), "", `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"mine"}}`, "operator", "", "evaluation"},
		"binding": {sound, "", `{"jsonrpc":"2.0","id":"x","method":"resources/read","params":{"uri":"mem://a"}}`, "binding",
			`{"subject":{"type":"agent","id":"agent-1"},"action":{"name":"resources/read"},"resource":{"type":"resource","id":"mem://a"},"context":{"on_behalf_of":[{"id":"alice","type":"user"}],"person":"P_jbIGEsbQWjLbSeCZOscvnOkOh9kIRDmd9-sx_9a3Q","supported_mandatory_extensions":["obligations"],"supported_obligations":["custom"]}}`, "evaluation"},
		"declared, and built-in": {sound, "own", call("own", `{"id":"mine"}`, ""), "declared built-in", "", "evaluation"},
		"declared alone": {with("declared: instead\n"), "own", call("own", `{"id":"mine"}`, ""), "declared",
			`{"subject":{"type":"user","id":"alice"},"action":{"name":"use"},"resource":{"type":"doc","id":"mine"},"context":{"agent":"agent-1","supported_mandatory_extensions":["obligations"],"supported_obligations":["custom"]}}`, "evaluation"},
		"several, in one message": {with("mappings:\n  resources/read:\n    evaluations:\n      subject: {type: user, id: x}\n      action: {name: tools/list}\n      evaluations: [{resource: {type: a, id: b}}, {resource: {type: c, id: d}}]\n"), "",
			`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"u"}}`, "operator", "", "evaluations"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, text, code, err := mapping(t, test.config, test.tool, test.message, nil)
			orFatal(t, err)
			var wrote []string
			for _, q := range m.Questions {
				if wrote = append(wrote, q.Mapping.Author); (q.Mapping.Digest == "") != (q.Mapping.Author == "built-in") {
					t.Errorf("the mapping of %s has the digest %q", q.Mapping.Author, q.Mapping.Digest)
				}
			}
			if got := strings.Join(wrote, " "); got != test.authors || code != cli.OK || m.Verdict == nil || !m.Verdict.Decision {
				t.Fatalf("%s, exit %d:\n%s", got, code, text)
			}
			for n := range m.Questions {
				orFatal(t, m.Questions[n].Body.Compact())
			}
			last := m.Questions[len(m.Questions)-1]
			if test.body != "" && string(last.Body) != test.body || last.API != test.api {
				t.Errorf("%s\n%s\nwant\n%s", last.API, last.Body, test.body)
			}
			// What is printed is what is asked.
			var told mcp.Config
			at := filepath.Join(t.TempDir(), "g.yaml")
			orFatal(t, os.WriteFile(at, []byte(test.config), 0o600))
			_, err = mcp.Form.Read(config.Given{File: at}, &told)
			orFatal(t, err)
			x, err := mcp.Explain(t.Context(), told, mcp.Asked{Message: []byte(test.message), Tools: []mcp.Tool{{Server: "jira", Definition: jsontext.Value(authors[test.tool])}}})
			orFatal(t, err)
			for n, q := range m.Questions {
				if string(q.Body) != string(x.Questions[n].Body) {
					t.Errorf("printed\n%s\nasked\n%s", q.Body, x.Questions[n].Body)
				}
			}
		})
	}
}

func TestMapVerdicts(t *testing.T) {
	t.Parallel()
	m, text, code, err := mapping(t, sound, "create_ticket", call("create_ticket", `{"amount":1}`, ""), nil)
	if orFatal(t, err); code != cli.OK || m.Verdict.Determining[0] != "calls" || m.Verdict.Positions["calls"] != "p.cedar:2:1" || m.Missing != nil {
		t.Errorf("exit %d\n%s", code, text)
	}
	m, text, code, err = mapping(t, sound, "create_ticket", call("create_ticket", `{"amount":2000}`, ""), nil)
	if orFatal(t, err); code != cli.No || m.Verdict.Decision || m.Verdict.Determining[0] != "huge" || m.Missing != nil {
		t.Errorf("exit %d\n%s", code, text)
	}
	m, text, code, err = mapping(t, sound, "create_ticket", call("create_ticket", `{"amount":20}`, ""), nil)
	orFatal(t, err)
	if a := m.Missing; code != cli.No || m.Verdict.Reason != "approval_required" || a == nil || a.Obligation != "second" || a.Template != "tickets" ||
		a.Policies[0] != "large" || strings.Join(a.TakesPart, " ") != "agent/agent-1 user/alice" || a.Try != "" {
		t.Errorf("exit %d\n%s", code, text)
	}
	// Without the arguments in the question nobody's approval is asked for: it would be for any.
	bare := sound + "mappings:\n  tools/call:\n    evaluation:\n      subject: {type: user, id: alice}\n      action: {name: tool.invoke}\n      resource: {type: tool, id: x}\n      context: {arguments: {amount: 20}}\n"
	m, text, code, err = mapping(t, bare, "create_ticket", call("create_ticket", `{"amount":7}`, ""), nil)
	if orFatal(t, err); code != cli.No || m.Missing == nil || !strings.HasPrefix(m.Missing.Asked, "nobody: a mapping makes the question") {
		t.Errorf("exit %d\n%s", code, text)
	}
	// The declared question is denied: the message is, whatever the other says.
	m, text, code, err = mapping(t, sound, "own", call("own", `{"id":"another's"}`, ""), nil)
	if orFatal(t, err); code != cli.No || m.Verdict.Decision || m.Questions[0].Decisions[0].Decision || !m.Questions[1].Decisions[0].Decision {
		t.Errorf("exit %d\n%s", code, text)
	}
	// Nobody is asked.
	m, text, code, err = mapping(t, sound, "", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, nil)
	if orFatal(t, err); code != cli.OK || len(m.Questions) != 0 || !m.Verdict.Decision {
		t.Errorf("exit %d\n%s", code, text)
	}
	// Without policies there is no verdict.
	m, text, code, err = mapping(t, instead("embedded: {policies: policies}", "url: http://127.0.0.1:1"), "create_ticket", call("create_ticket", `{}`, ""), nil)
	if orFatal(t, err); code != cli.OK || len(m.Questions) != 1 || m.Verdict != nil {
		t.Errorf("exit %d\n%s", code, text)
	}
}

func TestMapRefusals(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		config, tool, message string
		want                  string // code, in, pointer, message; try
	}{
		"twice":         {sound, "", `{"jsonrpc":"2.0","id":1,"method":"tools/list","method":"x"}`, `-32700   at byte 46: a member stands in one object twice; write the message as a client sends it`},
		"no id":         {sound, "", `{"jsonrpc":"2.0","method":"tools/list"}`, `-32600   a request has an id; write the message as a client sends it`},
		"a method":      {sound, "", `{"jsonrpc":"2.0","id":1,"method":"tools/lst"}`, `-32601 message /method unknown method; write the method as MCP has it in the era of the message`},
		"the other era": {sound, "", `{"jsonrpc":"2.0","id":1,"method":"server/discover"}`, `-32601 message /method unknown method; write the method as MCP has it in the era of the message`},
		"tasks":         {sound, "", `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"1"}}`, `-32001 message /method Access denied; tasks are not offered, and with strict: true a method needs a mapping: write one into mappings`},
		"a tool":        {sound, "create_ticket", call("creat_ticket", `{}`, ""), `-32602 message /params/name unknown tool; did you mean create_ticket?`},
		"arguments":     {sound, "create_ticket", call("create_ticket", `[]`, ""), `-32602 message /params/arguments no question can be made of this call of create_ticket: /params/arguments: not an object; mend the message`},
		"reserved":      {sound, "create_ticket", call("create_ticket", `{}`, `,"_meta":{"io.policy-service/context":{"person":"p"}}`), `-32602 message /params/_meta/io.policy-service~1context/person no question can be made of this call of create_ticket: /params/_meta/io.policy-service~1context/person: no client sets this member of the context; mend the message`},
		"an operator's mapping": {operatorMapping("tools/call", "$params.arguments.summary"), "create_ticket", call("create_ticket", `{"summary":7}`, ""),
			`-32602 mapping /evaluation/resource/id COAZ mapping error: /evaluation/resource/id: not a string; mend the mapping, or send what it reads`},
		"a declared mapping": {sound, "own", call("own", `{}`, ""),
			`-32602 mapping /evaluation/resource/id COAZ mapping error: /evaluation/resource/id: a member that is read is missing; mend the mapping, or send what it reads`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, text, code, err := mapping(t, test.config, test.tool, test.message, nil)
			orFatal(t, err)
			if m.Refused == nil || code != cli.No || len(m.Questions) != 0 || m.Verdict != nil {
				t.Fatalf("exit %d\n%s", code, text)
			}
			r := m.Refused
			if got := strings.Join([]string{jsonNumber(r.Code), r.In, r.Pointer, r.Message}, " ") + "; " + r.Try; got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

func jsonNumber(n int) string {
	b, _ := json.Marshal(n)
	return string(b)
}

// What somebody else wrote acts on no terminal, and stays what it is for programs.
func TestMapIsEscaped(t *testing.T) {
	t.Parallel()
	const hostile = "\u202egnp\u001b[2J\u2066"
	claims := `{"iss":"https://i.example","sub":"ali\u202ece","client_id":"agent-1"}`
	configured := strings.Replace(sound, "static: {sub: alice, client_id: agent-1}", "issuers: [{issuer: https://i.example, algorithms: [ES256]}]", 1)
	message := call("create_ticket", `{"summary":"\u202egnp\u001b[2J\u2066"}`, "")
	dir := t.TempDir()
	orFatal(t, os.WriteFile(filepath.Join(dir, "claims"), []byte(strings.ReplaceAll(claims, "\\u202e", "\u202e")), 0o600))
	m, text, _, err := mapping(t, configured, "create_ticket", strings.ReplaceAll(message, `\u202e`, "\u202e"), func(c *tools.Map) { c.Claims = cli.Given(filepath.Join(dir, "claims")) })
	if err == nil { // what cannot be seen in a name is refused
		t.Fatalf("%s", text)
	}
	if strings.ContainsAny(err.Error(), "\u202e\u001b\u2066") {
		t.Errorf("%q", err)
	}
	orFatal(t, os.WriteFile(filepath.Join(dir, "claims"), []byte(`{"iss":"https://i.example","sub":"alice","roles":["`+"\u202e"+`x"]}`), 0o600))
	m, text, _, err = mapping(t, configured, "create_ticket", strings.ReplaceAll(message, `\u202e`, "\u202e"), func(c *tools.Map) { c.Claims = cli.Given(filepath.Join(dir, "claims")) })
	orFatal(t, err)
	if strings.ContainsAny(text, "\u202e\u001b\u2066") {
		t.Errorf("%q", text)
	}
	var q struct {
		Context struct{ Arguments struct{ Summary string } }
		Subject struct{ Properties struct{ Roles []string } }
	}
	if orFatal(t, json.Unmarshal(m.Questions[0].Body, &q, json.MatchCaseInsensitiveNames(true))); q.Context.Arguments.Summary != hostile || q.Subject.Properties.Roles[0] != "\u202ex" {
		t.Errorf("%q", q)
	}
}

func TestMapCannot(t *testing.T) {
	t.Parallel()
	configured := strings.Replace(sound, "static: {sub: alice, client_id: agent-1}", "issuers: [{issuer: https://i.example, algorithms: [ES256]}]", 1)
	for name, test := range map[string]struct {
		config string
		change func(*tools.Map)
		want   string
	}{
		"no claims":       {configured, nil, "give --claims FILE"},
		"no message":      {sound, func(c *tools.Map) { c.Message = "" }, "give the configuration of the gateway, and a file with one request"},
		"no such server":  {sound, func(c *tools.Map) { c.Server = "mail" }, `there is no upstream "mail"`},
		"claims are said": {sound, func(c *tools.Map) { c.Claims, c.Message = c.Config, "-" }, "write the payload of a token"},
	} {
		_, _, _, err := mapping(t, test.config, "create_ticket", call("create_ticket", `{}`, ""), test.change)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
