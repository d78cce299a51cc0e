package mcp_test

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/mcptest"
)

// What is refused of what kind, and what its client is told: code, message and data.
const (
	refusalTools = `[{"name":"look","inputSchema":{"type":"object"}},{"name":"change","inputSchema":{"type":"object"}},{"name":"quiet","inputSchema":{"type":"object"}},
		{"name":"held","inputSchema":{"type":"object"}},{"name":"owes","inputSchema":{"type":"object"}},{"name":"masked","inputSchema":{"type":"object"}},
		{"name":"away","inputSchema":{"type":"object"}},{"name":"twice","inputSchema":{"type":"object"}},{"name":"task","inputSchema":{"type":"object"}},
		{"name":"declares","inputSchema":{"type":"object","x-authzen-mapping":{"evaluation":{"action":{"name":"read"},"resource":{"type":"case","id":"$params.arguments.case"}}}}},
		{"name":"sep","coaz":true,"inputSchema":{"type":"object","x-coaz-mapping":{"subject":{"type":"user","id":"$.token['sub']"},"action":{"name":"use"},"resource":{"type":"case","id":"$.properties.case"},"context":{"agent":"$.token.client_id"}}}},
		{"name":"sep-held","coaz":true,"inputSchema":{"type":"object","x-coaz-mapping":{"subject":{"type":"user","id":"$.token['sub']"},"action":{"name":"use"},"resource":{"type":"case","id":"$.properties.case"},"context":{"agent":"$.token.client_id"}}}}]`
	refusalPolicies = `@id("all") permit(principal, action, resource) unless { action == Action::"tool.invoke" || (action == Action::"tool.request" && resource == tool::"rec:quiet") };
		@id("some") permit(principal, action == Action::"tool.invoke", resource) unless { resource == tool::"rec:held" || resource == tool::"rec:sep-held" || resource == tool::"rec:owes" || resource == tool::"rec:masked" };
		@id("held") @obligation("approval_required") permit(principal, action == Action::"tool.invoke", resource) when { resource == tool::"rec:held" || resource == tool::"rec:sep-held" };
		@id("owes") @obligation("page") permit(principal, action == Action::"tool.invoke", resource == tool::"rec:owes");
		@id("masked") @obligation("mask") permit(principal, action == Action::"tool.invoke", resource == tool::"rec:masked");
		@id("change") @reason_user("Not for you.") forbid(principal, action == Action::"tool.invoke", resource == tool::"rec:change");
		@id("quiet") forbid(principal, action == Action::"tool.invoke", resource == tool::"rec:quiet");
		@id("case") @reason_user("Case closed.") forbid(principal, action, resource == case::"closed");
		@id("read") @reason_user("Not this one.") forbid(principal, action == Action::"resources/read", resource == resource::"mem://closed");`
	nobodyAsked = "Authorization required: a person must approve this call. Nobody was asked: ask for approval"

	refusalObligations = "mask: {type: redact, properties: {fields: [/ssn]}}\npage: {type: notification, properties: {to: ops, body: b}}\n"
)

// refusal is a request that is refused, and how.
type refusal struct {
	method, params string
	code           int
	message        string
	data           string // N is a number of seconds
}

func ofTool(tool, arguments string) string {
	return `{"name":"` + tool + `","arguments":` + arguments + `}`
}

// refusals are all kinds that do not depend on how the gateway is set up.
var refusals = map[string]refusal{
	"denied":                      {"tools/call", ofTool("change", `{}`), -32001, "Access denied: Not for you.", `{"type":"tool_call_blocked","reason":"Not for you.","suggestion":"call tools/request"}`},
	"denied, and not requested":   {"tools/request", ofTool("quiet", `{}`), -32001, "Access denied", `{"type":"tool_call_blocked"}`},
	"denied for a reason untold":  {"tools/call", ofTool("quiet", `{}`), -32001, "Access denied", `{"type":"tool_call_blocked"}`},
	"denied by what it declares":  {"tools/call", ofTool("declares", `{"case":"closed"}`), -32001, "Access denied: Case closed.", `{"type":"tool_call_blocked","reason":"Case closed."}`},
	"denied, sep":                 {"tools/call", ofTool("sep", `{"case":"closed"}`), -32401, "Access denied: Case closed.", `{"type":"tool_call_blocked","reason":"Case closed."}`},
	"denied, no call":             {"resources/read", `{"uri":"mem://closed"}`, -32001, "Access denied: Not this one.", `{"type":"authorization_denied","reason":"Not this one."}`},
	"nobody can do what it owes":  {"tools/call", ofTool("owes", `{}`), -32001, "Access denied", `{"type":"tool_call_blocked"}`},
	"a person must approve":       {"tools/call", ofTool("held", `{"n":1.0}`), -32001, nobodyAsked, `{"type":"tool_call_blocked","reason":"a person must approve this call","suggestion":"ask for approval","authorizationRequest":{"tool":"held","arguments":{"n":1.0},"requester":"agent-release","reason":"a person must approve this call"}}`},
	"a person must approve, sep":  {"tools/call", ofTool("sep-held", `{"case":"open"}`), -32401, nobodyAsked, `{"type":"tool_call_blocked","reason":"a person must approve this call","suggestion":"ask for approval","authorizationRequest":{"tool":"sep-held","arguments":{"case":"open"},"requester":"agent-release","reason":"a person must approve this call"}}`},
	"nothing to ask":              {"tools/call", ofTool("declares", `{}`), -32602, "*", `{"type":"tool_call_blocked"}`},
	"nothing to ask, sep":         {"tools/call", ofTool("sep", `{"case":7}`), -32602, "*", `{"type":"tool_call_blocked"}`},
	"nothing to ask, no call":     {"completion/complete", `{}`, -32602, "*", `{"type":"mapping_error"}`},
	"no such tool":                {"tools/call", ofTool("nonexistent", `{}`), -32602, "unknown tool", `{"type":"tool_call_blocked"}`},
	"a task":                      {"tools/call", `{"name":"look","arguments":{},"task":{"ttl":1}}`, -32602, "tasks are not offered: leave params.task out", `{"type":"tool_call_blocked"}`},
	"no such method":              {"no/such", `{}`, -32601, "unknown method", `{"type":"unknown_method"}`},
	"too large":                   {"tools/call", ofTool("look", `{"a":"`+strings.Repeat("x", 5000)+`"}`), -32602, "the arguments are larger than 4096 bytes", `{"type":"invalid_params"}`},
	"a cursor of somebody":        {"prompts/list", `{"cursor":"x"}`, -32602, "*", `{"type":"invalid_params"}`},
	"a result that cannot leave":  {"tools/call", ofTool("masked", `{}`), -32603, "the result is withheld", `{"type":"withheld"}`},
	"a server that is gone":       {"tools/call", ofTool("away", `{}`), -32603, "upstream unavailable", `{"type":"upstream_unavailable"}`},
	"a server that says it twice": {"tools/call", ofTool("twice", `{}`), -32603, "upstream answered ambiguously", `{"type":"upstream_ambiguous"}`},
	"a server that makes a task":  {"tools/call", ofTool("task", `{}`), -32603, "*", `{"type":"upstream_ambiguous"}`},
}

var secondsOf = regexp.MustCompile(`"retry_after":[1-9][0-9]*`)

// refuses fails if a request is not refused as it should be.
func refuses(t *testing.T, v *visitor, name string, want refusal) {
	t.Helper()
	got := v.ask(want.method, want.params)
	if got.fault == nil {
		t.Errorf("%s, %s: %s", v.era, name, got)
		return
	}
	status := http.StatusOK
	if v.era == "modern" && want.code == -32601 {
		status = http.StatusNotFound
	}
	if v.s.config.DenyHTTPStatus == 403 && (want.code == -32001 || want.code == -32401) {
		status = http.StatusForbidden
	}
	data := secondsOf.ReplaceAllString(string(got.fault.Data), `"retry_after":N`)
	if got.status != status || got.code() != want.code || got.finals != 1 || data != want.data || want.message != "*" && got.fault.Message != want.message {
		t.Errorf("%s, %s:\ngot  %s\nwant %d %s %s", v.era, name, got, want.code, want.message, want.data)
	}
}

func refusalCamp(change func(*mcp.Config)) camp {
	return camp{
		policies: map[string]string{"a.cedar": refusalPolicies, "obligations.yaml": refusalObligations},
		answers: mcptest.Answers{Tools: refusalTools, Handle: func(c *mcptest.Call) bool {
			if c.Method != "tools/call" {
				return false
			}
			for tool, say := range map[string]func(){
				"away":   func() { c.Raw(http.StatusServiceUnavailable, "text/plain", "away") },
				"twice":  func() { c.Result(`{"content":[],"content":[]}`) },
				"task":   func() { c.Result(`{"resultType":"task","task":{"taskId":"1"}}`) },
				"masked": func() { c.Result(`{"resultType":"complete","structuredContent":7}`) },
			} {
				if strings.Contains(string(c.Params), `"`+tool+`"`) {
					say()
					return true
				}
			}
			return false
		}},
		change: func(c *mcp.Config) {
			c.Limits.MaxArguments = 4096
			if change != nil {
				change(c)
			}
		},
	}
}

// Every kind of refusal says the same in both eras: what it is, why, and what its client can do.
func TestRefusals(t *testing.T) {
	t.Parallel()
	s := newSiege(t, refusalCamp(nil))
	for _, era := range eras {
		v := s.speaker(era, nil)
		for name, want := range refusals {
			refuses(t, v, name, want)
		}
		if got := v.call("look", `{}`); !got.ran() {
			t.Errorf("%s: %s", era, got)
		}
	}
}

// The codes of a denial are the operator's choice; what is said beside them is not.
func TestRefusalsByChoice(t *testing.T) {
	t.Parallel()
	for choice, change := range map[string]func(*mcp.Config){
		"sep":  func(c *mcp.Config) { c.Errors = "sep" },
		"mcpx": func(c *mcp.Config) { c.Errors = "mcpx" },
		"403":  func(c *mcp.Config) { c.DenyHTTPStatus = 403 },
	} {
		s := newSiege(t, refusalCamp(change))
		for _, era := range eras {
			v := s.speaker(era, nil)
			for name, want := range refusals {
				if choice == "mcpx" && strings.HasPrefix(name, "a person") { // the message is as 000 prints it
					message, says, _ := strings.Cut(want.message, ": ")
					want.message, want.data = message, strings.Replace(want.data, "ask for approval", says, 1)
				}
				switch {
				case !strings.HasPrefix(name, "denied") && !strings.HasPrefix(name, "a person") && !strings.HasPrefix(name, "nobody"):
					continue
				case choice == "sep":
					want.code = -32401
				case choice == "mcpx" && era == "legacy" && want.code == -32001 && strings.HasPrefix(want.method, "tools/") && !strings.HasPrefix(name, "a person"):
					want.code, want.message = -32002, strings.Replace(want.message, "Access", "Authorization", 1)
				}
				refuses(t, v, choice+", "+name, want)
			}
		}
		s.untouched(t)
	}
}

// With denials: result a model reads the policy's sentence, and nothing that it could not do. What is no call, and what cannot be
// meant, is an error as ever.
func TestModelReadsDenial(t *testing.T) {
	t.Parallel()
	s := newSiege(t, refusalCamp(func(c *mcp.Config) { c.Denials, c.DenyHTTPStatus = mcp.DenialsResult, 403 }))
	for _, era := range eras {
		v := s.visitor(era, nil)
		for name, want := range refusals {
			if want.method != "tools/call" || !slices.Contains([]int{-32001, -32401}, want.code) && want.message != "the result is withheld" {
				want.data = strings.Replace(want.data, `,"suggestion":"call tools/request"`, "", 1)
				refuses(t, v, name, want)
				continue
			}
			var result struct {
				Content []struct {
					Type string `json:"type"`
					Text string `json:"text"`
				} `json:"content"`
				IsError bool `json:"isError"`
			}
			got := v.ask(want.method, want.params)
			if got.result == nil || got.status != http.StatusOK || got.finals != 1 || json.Unmarshal(got.result, &result) != nil || !result.IsError ||
				len(result.Content) != 1 || result.Content[0].Type != "text" || result.Content[0].Text != want.message {
				t.Errorf("%s, %s: %s", era, name, got)
			}
		}
	}
}

// A client that never spoke MCPx is not sent to a method that it does not have. It says that it speaks it by an extension, or
// by a message.
func TestNoSuggestionToStrangersOfMCPx(t *testing.T) {
	t.Parallel()
	const suggestion = `"suggestion":"call tools/request"`
	s := newSiege(t, refusalCamp(nil))
	for _, era := range eras {
		v := s.visitor(era, mcptest.Claims{"sub": "of-" + era})
		if got := v.call("change", `{}`); got.code() != -32001 || strings.Contains(got.text, suggestion) {
			t.Errorf("%s: %s", era, got)
		}
		v.ask("tools/request", ofTool("quiet", `{}`))
		if got := v.call("change", `{}`); !strings.Contains(got.text, suggestion) {
			t.Errorf("%s, after a message: %s", era, got)
		}
		if got := s.speaker(era, nil).call("change", `{}`); !strings.Contains(got.text, suggestion) {
			t.Errorf("%s, with the extension: %s", era, got)
		}
	}
}

// Who cannot be asked is no reason to be told of, and when to come back is.
func TestRefusalsWithoutPDP(t *testing.T) {
	t.Parallel()
	s := newSiege(t, refusalCamp(nil))
	const text = "authorization service unavailable"
	visitors := []*visitor{s.visitor("legacy", nil), s.visitor("modern", nil)}
	for _, v := range visitors {
		fine(t, v)
	}
	ran := len(s.executed())
	orFail(t, s.pdp.Stop(t.Context()))
	for _, v := range visitors {
		for _, call := range []string{ofTool("look", `{}`), ofTool("sep", `{"case":"open"}`), ofTool("declares", `{"case":"open"}`), ofTool("held", `{}`)} {
			refuses(t, v, call, refusal{"tools/call", call, -32603, text, `{"type":"tool_call_blocked","suggestion":"retry after","retry_after":N}`})
		}
		for method, params := range map[string]string{"tools/list": `{}`, "prompts/list": `{}`, "resources/read": `{"uri":"mem://a"}`, "prompts/get": `{"name":"greet"}`} {
			refuses(t, v, method, refusal{method, params, -32603, text, `{"type":"authorization_unavailable","suggestion":"retry after","retry_after":N}`})
		}
	}
	if now := s.executed(); len(now) != ran {
		t.Errorf("the server got %q", now[ran:])
	}
}

// Who asks too often is told for how long to wait, and nobody is asked about him.
func TestRefusalsTooMany(t *testing.T) {
	t.Parallel()
	s := newSiege(t, refusalCamp(func(c *mcp.Config) { c.Limits.PerPrincipal.Rate, c.Limits.PerPrincipal.Burst = 0.001, 3 }))
	for _, era := range eras {
		v := s.visitor(era, mcptest.Claims{"sub": "of-" + era})
		want := refusal{"tools/call", ofTool("look", `{}`), -32001, "too many requests", `{"type":"rate_limited","limit":"limits.per_principal","suggestion":"retry after","retry_after":N}`}
		mcptest.Until(t, "it is too many", func() bool { return v.call("look", `{}`).code() != 0 })
		refuses(t, v, "too many", want)
		want.method, want.params = "prompts/get", `{"name":"greet"}`
		refuses(t, v, "too many", want)
	}
}

func fine(t *testing.T, v *visitor) {
	t.Helper()
	if got := v.call("look", `{}`); !got.ran() {
		t.Fatalf("%s: %s", v.era, got)
	}
}
