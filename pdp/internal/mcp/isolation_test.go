package mcp_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/pdptest/mcptest"
)

// The same sub of two issuers is two people: nothing of the one is the other's.
func TestOneSubOfTwoIssuers(t *testing.T) {
	t.Parallel()
	var whose sync.Map // by token
	exchange := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		of, known := whose.Load(r.PostFormValue("subject_token"))
		if !known {
			of = "nobody"
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"access_token":"exchanged-for-`+of.(string)+`","issued_token_type":"urn:ietf:params:oauth:token-type:access_token","token_type":"Bearer","expires_in":300}`)
	}))
	t.Cleanup(exchange.Close)
	other := mcptest.NewIssuer(t, siegeResource, time.Now)
	state := "the-state-of-the-server"
	s := newSiege(t, camp{
		policies: map[string]string{"a.cedar": `permit(principal, action, resource);
			forbid(principal == other::"agent-release", action == Action::"tool.invoke", resource == tool::"rec:change");`},
		answers: mcptest.Answers{Handle: func(c *mcptest.Call) bool {
			switch {
			case c.Method == "resources/list":
				lists(c, `"resources":[{"uri":"mem://notes","name":"notes"}],"nextCursor":"the-next-page"`)
			case c.Method == "tools/call" && c.Modern && !strings.Contains(string(c.Params), state):
				c.Result(`{"resultType":"input_required","requestState":"` + state + `"}`)
			default:
				return false
			}
			return true
		}},
		change: func(c *mcp.Config) {
			u := c.Upstreams["rec"]
			u.Auth.TokenExchange = &mcp.TokenEndpoint{
				TokenURL: exchange.URL + "/token", AllowNetworks: []string{"127.0.0.0/8"}, Audience: "rec", ClientID: "gateway", ClientSecretFile: secretFile(t, "hunter2"),
			}
			c.Upstreams["rec"] = u
			c.Identity.Issuers = append(c.Identity.Issuers, mcp.IssuerConfig{Issuer: other.URL, Algorithms: []string{"ES256"}, JWKSFile: other.KeysFile(t), SubjectType: "stranger", AgentType: "other"})
			c.Limits.PerPrincipal = mcp.PrincipalRate{Concurrent: 128}
			c.Limits.PerTool.Rate, c.Limits.PerTool.Burst = 1e-3, 40
		},
	})
	one, two := s.issuer.Token(t, nil), other.Token(t, nil)
	whose.Store(one, "one")
	whose.Store(two, "two")
	// Sessions.
	alice := s.stranger("legacy", one)
	alice.begin()
	twin := s.stranger("legacy", two)
	twin.session = alice.session
	twin.call("look", `{}`).has(t, http.StatusNotFound)
	twin.session = ""
	twin.begin()
	// Lists.
	if a, b := alice.ask("tools/list", `{}`), twin.ask("tools/list", `{}`); !strings.Contains(a.text, `"change"`) || strings.Contains(b.text, `"change"`) || !strings.Contains(b.text, `"look"`) {
		t.Errorf("lists: %s and %s", a, b)
	}
	// Pages and held answers.
	a, b := s.stranger("modern", one), s.stranger("modern", two)
	page := member(a.ask("resources/list", `{}`), "nextCursor")
	if got := b.ask("resources/list", `{"cursor":"`+page+`"}`); page == "" || got.code() != -32602 {
		t.Errorf("a page %q: %s", page, got)
	}
	if got := a.ask("resources/list", `{"cursor":"`+page+`"}`); got.fault != nil {
		t.Errorf("one's own page: %s", got)
	}
	asked := member(a.call("look", `{}`), "requestState")
	if asked == "" || strings.Contains(asked, state) {
		t.Fatalf("the state is %q", asked)
	}
	again := `{"name":"look","arguments":{},"requestState":"` + asked + `"}`
	before := len(s.executed())
	b.ask("tools/call", again).refused(t, -32602, "", "", "a state:")
	if n := len(s.executed()); n != before {
		t.Errorf("%d were executed by states that are none", n-before)
	}
	a.ask("tools/call", again).runs(t, "one's own state:")
	// Rates: what alice has used up, her twin has not.
	mcptest.Until(t, "alice has called too often", func() bool { return a.call("change", `{}`).kind() == "rate_limited" })
	if got := b.call("change", `{}`); got.kind() == "rate_limited" {
		t.Errorf("rates: %s", got)
	}
	// What the server is shown for one, it is not shown for the other.
	for name, v := range map[string]*visitor{"one": alice, "two": twin} {
		v.call("look", `{"of":"`+name+`"}`).runs(t, name)
	}
	for _, g := range s.rec.Got() {
		for _, name := range []string{"one", "two"} {
			if strings.Contains(string(g.Params), `{"of":"`+name+`"}`) && g.Header.Get("Authorization") != "Bearer exchanged-for-"+name {
				t.Errorf("a call for %s came with %q", name, g.Header.Get("Authorization"))
			}
		}
	}
	if where := s.rec.Saw("exchanged-for-nobody"); where != "" {
		t.Errorf("something else than a token of a client was exchanged: %s", where)
	}
}

// member is a text in a result.
func member(a echo, name string) string {
	_, rest, _ := strings.Cut(string(a.result), `"`+name+`":"`)
	text, _, _ := strings.Cut(rest, `"`)
	return text
}
