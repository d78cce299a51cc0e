package mcp_test

import (
	"bytes"
	"encoding/base64"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/internal/server/config"
	"policy-service/pdp/pdptest/mcptest"
)

// explainTools are of a server that declares mappings in both dialects.
const explainTools = `[
	{"name":"look","description":"looks","annotations":{"readOnlyHint":true},"inputSchema":{"type":"object","properties":{"path":{"type":"string"}}}},
	{"name":"change","inputSchema":{"type":"object"},"authorization":{"required":true,"message":"\u202egnp"}},
	{"name":"both","coaz":true,"inputSchema":{"type":"object","properties":{"id":{"type":"string"}},
		"x-authzen-mapping":{"evaluations":{"subject":{"type":"user","id":"$token.sub"},"action":{"name":"read"},"evaluations":[
			{"resource":{"type":"doc","id":"$params.arguments.id"},"context":{"agent":"$token.?client_id","tool":"$params.name"}},{"resource":{"type":"folder","id":"1"}}]}},
		"x-coaz-mapping":{"subject":{"type":"user","id":"$.token.sub"},"resource":{"type":"doc","id":"$.properties.id"},"context":{"x":1}}}},
	{"name":"mapped","inputSchema":{"type":"object"}}
]`

// explainMappings are an operator's.
var explainMappings = map[string]config.Object{
	"tools/call rec:mapped": config.Object(`{"evaluation":{"subject":{"type":"user","id":"$token.sub"},"action":{"name":"do"},"resource":{"type":"tool","id":"$server.name + '/' + tool.name"},"context":{"a":"$params.arguments.?amount","client":"$client.id"}}}`),
	"resources/read":        config.Object(`{"evaluations":{"subject":{"type":"user","id":"$token.sub"},"action":{"name":"read"},"evaluations":[{"resource":{"type":"uri","id":"$params.uri"}},{"resource":{"type":"server","id":"$server.resource"}}]}}`),
}

// explainMessages are a client's: method, params, and what is in _meta.
var explainMessages = [][3]string{
	{"tools/list", `{}`, ``},
	{"tools/call", `{"name":"look","arguments":{"path":"/a\u002fb","n":9007199254740993,"x":1.50,"none":null,"é":["\u202e",{}]}}`, ``},
	{"tools/call", `{"name":"change"}`, ``},
	{"tools/call", `{"name":"change","arguments":{}}`, `,"io.policy-service/purpose":"audit","io.policy-service/context":{"workflow_id":"w1"}`},
	{"tools/call", `{"name":"both","arguments":{"id":"7"}}`, ``},
	{"tools/call", `{"name":"mapped","arguments":{"amount":12}}`, ``},
	{"resources/list", `{}`, ``},
	{"resources/read", `{"uri":"mem://a b"}`, ``},
	{"resources/templates/list", `{}`, ``},
	{"prompts/list", `{}`, ``},
	{"prompts/get", `{"name":"p","arguments":{"a":"b"}}`, ``},
	{"completion/complete", `{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":"b"}}`, ``},
}

// explainPDP keeps what a PDP is asked.
type explainPDP struct {
	mu  sync.Mutex
	all []string // path, space, body
}

func (a *explainPDP) RoundTrip(r *http.Request) (*http.Response, error) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if strings.Contains(r.URL.Path, "/access/") { // other things that it is told are no questions
		a.mu.Lock()
		a.all = append(a.all, r.URL.Path+" "+string(text))
		a.mu.Unlock()
	}
	r.Body = io.NopCloser(bytes.NewReader(text))
	return http.DefaultTransport.RoundTrip(r)
}

func (a *explainPDP) take() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.all
	a.all = nil
	return all
}

// explainClaims are those of a token.
func explainClaims(t testing.TB, token string) evaluation.Object {
	t.Helper()
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	orFail(t, err)
	claims, err := evaluation.ParseWithNulls(payload, evaluation.DefaultLimits())
	orFail(t, err)
	return claims
}

// explainDefinitions are the tools of a list.
func explainDefinitions(t testing.TB, server, list string) (all []mcp.Tool) {
	t.Helper()
	o, err := evaluation.ParseWithNulls([]byte(`{"tools":`+list+`}`), evaluation.DefaultLimits())
	orFail(t, err)
	tools, _ := o.Get("tools")
	for _, tool := range tools.Elements {
		text, err := tool.MarshalJSON()
		orFail(t, err)
		all = append(all, mcp.Tool{Server: server, Definition: text})
	}
	return all
}

// lockOf is a file in which the tools of rec are locked, by a list.
func lockOf(t testing.TB, list string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "tools.lock.json")
	manyLock(t, file, map[string]string{"rec": list})
	return file
}

// What is explained is, byte for byte, what a running gateway explainPDP.
func TestExplainIsWhatIsAsked(t *testing.T) {
	t.Parallel()
	key := secretFile(t, strings.Repeat("ab", 32))
	for i, of := range []struct {
		name   string
		change func(*mcp.Config)
	}{
		{"as it comes", func(*mcp.Config) {}},
		{"several", func(c *mcp.Config) {
			one := c.Upstreams["rec"]
			c.Upstreams["two"] = one
			one.URIs = []string{"mem:"}
			c.Upstreams["rec"] = one
		}},
		{"tool", func(c *mcp.Config) { c.Ask = mcp.AskTool }},
		{"locked", func(c *mcp.Config) { c.Lock.File = lockOf(t, explainTools) }},
		{"locked otherwise", func(c *mcp.Config) {
			c.Lock = mcp.LockConfig{File: lockOf(t, strings.Replace(explainTools, "looks", "looks on", 1)), Mode: mcp.LockWarn}
		}},
		{"a lock that is not there", func(c *mcp.Config) { c.Lock = mcp.LockConfig{File: "/nowhere/lock", Mode: mcp.LockWarn} }},
		{"coaz", func(c *mcp.Config) { c.Ask = mcp.AskCOAZ }},
		{"instead", func(c *mcp.Config) { c.Declared = mcp.DeclaredInstead }},
		{"obligations, labels, tenant", func(c *mcp.Config) {
			c.Obligations = mcp.ObligationsConfig{Log: &mcp.LogConfig{File: "/nowhere/log"}, Notification: &mcp.WebhookConfig{Webhook: "http://127.0.0.1:1/", KeyFile: key}, Custom: map[string]mcp.WebhookConfig{"x": {Webhook: "http://127.0.0.1:1/", KeyFile: key}}}
			u := c.Upstreams["rec"]
			u.Labels, u.Tools = map[string]string{"zone": "a"}, map[string]mcp.ToolConfig{"look": {Labels: map[string]string{"impact": "read"}}}
			c.Upstreams["rec"] = u
			c.Identity.SubjectClaim, c.Identity.Properties, c.Identity.Issuers[0].IDPrefix = "/sub", []string{"scope", "roles"}, "acme:"
		}},
	} {
		t.Run(of.name, func(t *testing.T) {
			t.Parallel()
			kept := &explainPDP{}
			s := newSiege(t, camp{answers: mcptest.Answers{Tools: explainTools}, deps: mcp.Deps{Transport: kept}, change: func(c *mcp.Config) {
				c.Mappings = explainMappings
				of.change(c)
			}})
			for e, era := range eras {
				v := s.visitor(era, mcptest.Claims{"client_id": "agent-1", "roles": []string{"a"}, "exact": 1.5})
				for k, m := range explainMessages {
					if testing.Short() && (i+e+k)%2 == 0 { // each message in one era
						continue
					}
					kept.take()
					v.meta = m[2]
					if named := strings.NewReplacer(`"name":"`, `"name":"rec__`); of.name == "several" && m[1] != `{}` {
						m[1] = named.Replace(m[1])
					}
					text := v.text(m[0], m[1])
					if m[1] == `{}` && era == "legacy" {
						text = strings.Replace(text, `,"params":{}`, "", 1)
					}
					v.send(text, v.headers(m[0], m[1])...)
					asked := kept.take()
					wanted := mcp.Asked{Message: []byte(text), Claims: explainClaims(t, v.token)}
					if of.name != "locked" { // whose tools are those of the lock
						wanted.Tools = explainDefinitions(t, "rec", explainTools)
					}
					x, err := mcp.Explain(t.Context(), s.config, wanted)
					if err != nil || x.Refused != nil {
						t.Fatalf("%s: %v, %+v", text, err, x.Refused)
					}
					if len(x.Questions) == 0 || len(asked) < len(x.Questions) {
						t.Fatalf("%s: %d questions, and the PDP got\n%s", text, len(x.Questions), strings.Join(asked, "\n"))
					}
					for n, q := range x.Questions {
						if got := q.Path + " " + string(q.Body); got != asked[n] {
							t.Errorf("%s %s: explained\n%s\nasked\n%s", era, text, got, asked[n])
						}
					}
				}
			}
		})
	}
}

// What is hidden, or not as it is locked, looks like what does not exist.
func TestExplainUnknownTools(t *testing.T) {
	t.Parallel()
	c := mcp.Config{
		Resource: siegeResource, PDP: mcp.PDPConfig{URL: "http://127.0.0.1:1"}, Identity: mcp.IdentityConfig{Static: &mcp.StaticConfig{Sub: "alice"}},
		Upstreams: map[string]mcp.UpstreamConfig{"rec": {Command: []string{"x"}, Tools: map[string]mcp.ToolConfig{"change": {Hidden: true}}}},
		Lock:      mcp.LockConfig{File: lockOf(t, strings.Replace(explainTools, "looks", "looks on", 1))},
	}
	for tool, try := range map[string]string{
		"look":   "the tool is not as it is locked: see policy-service mcp lock --diff",
		"change": "write the name of a tool that is locked, or give the definition of the tool",
		"mappd":  "did you mean mapped?",
	} {
		message := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `"}}`)
		x, err := mcp.Explain(t.Context(), c, mcp.Asked{Message: message, Tools: explainDefinitions(t, "rec", explainTools)})
		if err != nil || x.Refused == nil || x.Refused.Message != "unknown tool" || x.Refused.Try != try || len(x.Questions) > 0 {
			t.Errorf("%s: %v, %+v", tool, err, x.Refused)
		}
	}
	// About a vote nothing is asked: the PDP takes it.
	x, err := mcp.Explain(t.Context(), c, mcp.Asked{Message: []byte(`{"jsonrpc":"2.0","id":1,"method":"` + respondMethod + `","params":` + rules("a", "approve", "") + `}`)})
	if err != nil || x.Refused != nil || len(x.Questions) > 0 {
		t.Errorf("a vote: %+v, %v", x, err)
	}
}
