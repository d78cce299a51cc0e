package mcp_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/internal/server/config"
	"policy-service/pdp/pdptest/mcptest"
)

// announced is what a gateway says that it can beside its servers, where there are requests for tools.
const announced = `"io.policy-service/authorization":{},"io.policy-service/tool-requests":{}`

// greeting is what a client of an era begins with. It knows the extensions of those names.
func (s *siege) greeting(era string, knows ...string) echo {
	s.t.Helper()
	v := s.stranger(era, s.issuer.Token(s.t, nil))
	var names []string
	for _, name := range knows {
		names = append(names, `"`+name+`":{}`)
	}
	if era == "legacy" {
		v.capabilities = `{"experimental":{` + strings.Join(names, ",") + `}}`
		return v.ask("initialize", `{"protocolVersion":"2025-11-25","clientInfo":{"name":"siege","version":"1"},"capabilities":`+v.capabilities+`}`)
	}
	v.capabilities = `{"extensions":{` + strings.Join(names, ",") + `}}`
	return v.ask("server/discover", `{}`)
}

// What the gateway can it says in the way that clients of each era know, for one server and for several, and whatever a server
// says of that name. What a client knows of it is between the two: no server is told.
func TestRespondIsAnnounced(t *testing.T) {
	t.Parallel()
	const capabilities = `"capabilities":{"tools":{},"extensions":{"io.policy-service/tool-requests":{"planted":1},"a/b":{}},"experimental":{"io.policy-service/planted":{}}}`
	begins := config.Object(`{"evaluation":{"subject":{"type":"user","id":"$token.sub"},"action":{"name":"discover"},"resource":{"type":"mcp_server","id":"$server.name"}}}`)
	strict := map[string]config.Object{"initialize": begins, "server/discover": begins}
	for _, up := range eras {
		for name, change := range map[string]func(*mcp.Config){
			"ordinary": func(*mcp.Config) {},
			"several":  func(c *mcp.Config) { c.Upstreams["other"] = c.Upstreams["rec"] },
			"ask tool": func(c *mcp.Config) { c.Ask = "tool" },
			"strict":   func(c *mcp.Config) { c.Strict, c.Mappings = true, strict },
			"ask coaz": func(c *mcp.Config) { c.Ask = "coaz" },
		} {
			t.Run(name+" of "+up, func(t *testing.T) {
				t.Parallel()
				s := newSiege(t, camp{change: change, answers: mcptest.Answers{Eras: []string{up}, Results: map[string]string{
					"initialize":      `{"protocolVersion":"2025-11-25","serverInfo":{"name":"x","version":"1"},` + capabilities + `}`,
					"server/discover": `{"resultType":"complete","supportedVersions":["2026-07-28"],"ttlMs":0,"cacheScope":"private",` + capabilities + `}`,
				}}})
				ours := announced
				if name == "strict" || name == "ask coaz" {
					ours = `"io.policy-service/authorization":{}`
				}
				for era, want := range map[string]map[string]string{
					"legacy": {"extensions": `{"a/b":{}}`, "experimental": `{` + ours + `}`},
					"modern": {"extensions": `{"a/b":{},` + ours + `}`, "experimental": ``},
				} {
					got := s.greeting(era, "io.policy-service/authorization", "io.policy-service/tool-requests", "x/y")
					var said struct {
						Capabilities map[string]jsontext.Value `json:"capabilities"`
					}
					if !got.ran() || json.Unmarshal(got.result, &said) != nil {
						t.Fatalf("%s: %s", era, got)
					}
					for member, want := range want {
						if text := string(said.Capabilities[member]); text != want && (want != "" || text != "{}") {
							t.Errorf("%s: %s is %s, want %s", era, member, text, want)
						}
					}
					if strings.Contains(got.text, "planted") {
						t.Errorf("%s: %s", era, got)
					}
				}
				told := false
				for _, g := range s.rec.Got() {
					told = told || strings.Contains(string(g.Params), "x/y")
					if strings.Contains(string(g.Params), "io.policy-service/") {
						t.Errorf("the server is told %s", g.Params)
					}
				}
				if !told {
					t.Error("the server is not told what the client can besides")
				}
			})
		}
	}
}
