package mcp_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/mcptest"
)

// A request of a server that the configuration refuses is not blamed on the client: the server and the log hear which key
// refuses it, and no client takes the refusal for an address that does not exist.
func TestTheConfigurationIsNotTheClientsFault(t *testing.T) {
	t.Parallel()
	const (
		form  = `"method":"elicitation/create","params":{"message":"Who?","requestedSchema":{"type":"object","properties":{}}}`
		page  = `"method":"elicitation/create","params":{"mode":"url","message":"Open it","url":"https://bad.example/"}`
		model = `"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}`
		roots = `"method":"roots/list","params":{}`
	)
	relay := mcp.ServerRequests{Elicitation: mcp.RelayOn, Sampling: mcp.RelayOn, Roots: mcp.RelayOn, Hosts: []string{"good.example"}}
	for name, c := range map[string]struct {
		asks, key string
		may       mcp.ServerRequests
	}{
		"elicitation": {form, "elicitation", mcp.ServerRequests{}}, "sampling": {model, "sampling", mcp.ServerRequests{}},
		"roots": {roots, "roots", mcp.ServerRequests{}}, "hosts": {page, "hosts", relay},
	} {
		for _, up := range eras {
			t.Run(name+", "+up, func(t *testing.T) {
				t.Parallel()
				answered := make(chan string, 1)
				s := newSiege(t, camp{program: true, answers: mcptest.Answers{Eras: []string{up}, Handle: func(call *mcptest.Call) bool {
					switch {
					case call.Method != "tools/call":
						return false
					case up == "modern":
						call.Result(`{"resultType":"input_required","inputRequests":{"k":{` + c.asks + `}}}`)
					default: // the error comes back as that of the call, as SDKs have it
						call.Message(`{"jsonrpc":"2.0","id":"asks",` + c.asks + `}`)
						call.Answer(`{"jsonrpc":"2.0","id":` + string(call.ID) + `,` + <-answered)
					}
					return true
				}, Heard: func(g mcptest.Got) {
					if _, fault, ok := strings.Cut(string(g.Body), `"error":`); ok && string(g.ID) == `"asks"` {
						answered <- `"error":` + fault
					}
				}}, change: func(of *mcp.Config) {
					u := of.Upstreams["rec"]
					u.ServerRequests = c.may
					of.Upstreams["rec"] = u
				}})
				for _, era := range eras {
					v := s.stranger(era, s.issuer.Token(t, nil))
					v.capabilities = `{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{}}`
					v.begin()
					got := v.call("look", `{}`)
					if got.fault == nil || !strings.Contains(got.text, "the configuration of the gateway refuses") || !strings.Contains(got.text, "server_requests."+c.key) ||
						strings.Contains(got.text, "does not take") || got.status == http.StatusNotFound || era == "modern" && up == "modern" && got.code() != -32021 {
						t.Errorf("%s: %s", era, got)
					}
				}
				if want := fmt.Sprintf(`"key":"upstreams.rec.server_requests.%s"`, c.key); strings.Count(s.logs.String(), want) != 1 {
					t.Errorf("the log does not say %s once", want)
				}
			})
		}
	}
}

// The error by which a server has a page opened first is refused for the same reasons.
func TestAPageInAnErrorIsRefusedForItsReason(t *testing.T) {
	t.Parallel()
	for key, may := range map[string]mcp.ServerRequests{"elicitation": {}, "hosts": {Elicitation: mcp.RelayOn}} {
		s := newSiege(t, camp{answers: mcptest.Answers{Eras: []string{"legacy"}, Handle: func(c *mcptest.Call) bool {
			if c.Method == "tools/call" {
				c.Error(`{"code":-32042,"message":"first","data":{"elicitations":[{"mode":"url","message":"Open it","elicitationId":"e","url":"https://bad.example/"}]}}`)
			}
			return c.Method == "tools/call"
		}}, change: func(c *mcp.Config) {
			u := c.Upstreams["rec"]
			u.ServerRequests = may
			c.Upstreams["rec"] = u
		}})
		v := s.stranger("legacy", s.issuer.Token(t, nil))
		v.capabilities = `{"elicitation":{"url":{}}}`
		v.begin()
		if got := v.call("look", `{}`); got.kind() != "server_request_refused" || !strings.Contains(got.text, "server_requests."+key) || strings.Contains(got.text, "bad.example") {
			t.Errorf("%s: %s", key, got)
		}
		if want := `"key":"upstreams.rec.server_requests.` + key + `"`; !strings.Contains(s.logs.String(), want) {
			t.Errorf("the log does not say %s", want)
		}
		modern := s.visitor("modern", nil)
		if got := modern.call("look", `{}`); got.code() != -32021 || got.status != http.StatusBadRequest {
			t.Errorf("%s: %s", key, got)
		}
	}
}
