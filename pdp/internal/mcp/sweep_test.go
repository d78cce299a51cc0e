package mcp_test

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/pdptest/mcptest"
)

// mark is a text that stands nowhere else.
func mark(of string) string { return "mark-" + of + "-4711" }

// Nothing of a client but what is decided on reaches a server or a child, and nothing that the server alone is to know
// reaches a client or a log: unique marks in all that one can say, and a search in all that comes out.
func TestSweep(t *testing.T) {
	t.Setenv("SIEGE_OF_THE_GATEWAY", mark("environment"))
	for _, over := range []string{"http", "stdio"} {
		for _, server := range eras {
			for _, era := range eras {
				t.Run(era+" client, "+server+" server, "+over, func(t *testing.T) { sweep(t, over, server, era) })
			}
		}
	}
}

func sweep(t *testing.T, over, server, era string) {
	secret := secretFile(t, "Bearer "+mark("credential"))
	touched := filepath.Join(t.TempDir(), "touched")
	odd := []string{"$(touch " + touched + ")", "`touch " + touched + "`", "; touch " + touched, "| touch " + touched, "&& touch " + touched, "> " + touched, "*", "~", "$HOME", "a\nb", `'"\`, ""}
	counts, deps := metered()
	s := newSiege(t, camp{
		program: over == "stdio", deps: deps,
		answers: mcptest.Answers{Eras: []string{server}, Handle: func(c *mcptest.Call) bool {
			if c.Method != "tools/call" {
				return false
			}
			switch {
			case strings.Contains(string(c.Params), "fails"):
				c.Error(`{"code":-32000,"message":"it failed: Bearer ` + mark("credential") + `"}`)
			case strings.Contains(string(c.Params), mark("argument")):
				c.Result(`{"content":[{"type":"text","text":"ran by Bearer ` + mark("credential") + `"}]}`)
			case strings.Contains(string(c.Params), "breaks"):
				c.Raw(http.StatusInternalServerError, "text/plain", "it breaks: "+mark("trace")+"\n")
			default:
				return false
			}
			return true
		}},
		change: func(c *mcp.Config) {
			u := c.Upstreams["rec"]
			if over == "http" {
				u.Auth.HeaderFile = secret
			} else {
				u.EnvFiles = map[string]string{"SECRET": secret}
				u.Command = append(u.Command, odd...)
			}
			c.Upstreams["rec"] = u
			c.Meta = []string{"x-passes"}
		},
	})
	token := s.issuer.Token(t, mcptest.Claims{"jti": mark("jti"), "email": mark("claim"), "scope": mark("scope")})
	v := s.stranger(era, token)
	headers := []string{
		"Cookie", "a=" + mark("cookie"), "X-Custom", mark("header"), "X-Forwarded-For", mark("forwarded"), "X-Forwarded-Host", mark("host"), "Forwarded", "for=" + mark("for"),
		"Via", "1.1 " + mark("via"), "Proxy-Authorization", "Basic " + mark("proxy"), "User-Agent", mark("agent"), "Referer", "http://" + mark("referer"), "Baggage", "a=" + mark("baggage"),
		"Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "X-Api-Key", mark("key"), "Last-Event-Id", mark("event"), "If-None-Match", mark("etag"),
		"X-Request-Id", mark("request"), "Accept-Language", mark("language"), "Range", mark("range"), "X-Amzn-Trace-Id", mark("amazon"),
	}
	v.meta = `,"x-private":"` + mark("meta") + `","` + mark("name") + `":1,"io.policy-service/purpose":"` + mark("purpose") + `","io.policy-service/context":{"a":"` + mark("context") +
		`"},"baggage":"` + mark("metabaggage") + `","x-passes":"` + mark("passes") + `","progressToken":"` + mark("progress") + `"`
	if era == "legacy" {
		got := v.ask("initialize", `{"protocolVersion":"2025-11-25","clientInfo":{"name":"siege","version":"1"},"capabilities":{}}`, headers...)
		if v.session = got.header.Get("Mcp-Session-Id"); v.session == "" {
			t.Fatalf("%s", got)
		}
	}
	for n, arguments := range []string{`{"fine":"` + mark("argument") + `"}`, `{"fails":1}`, `{"breaks":1}`} {
		params := `{"name":"look","arguments":` + arguments + `}`
		shows := strings.TrimSuffix(params, "}") + `,"capability":"` + mark("capability") + `","proof":"` + mark("proof") + `"}`
		if over == "stdio" && n == 2 {
			continue // a program that writes no JSON is held to in its own tests
		}
		if got := v.send(v.text("tools/call", shows), append(v.headers("tools/call", shows), headers...)...); got.code() != -32003 {
			t.Errorf("%s %s, with a capability: %s", over, arguments, got)
		}
		got := v.send(v.text("tools/call", params), append(v.headers("tools/call", params), headers...)...)
		if got.ran() != (n == 0) || strings.Contains(got.text, "[masked]") != (n < 2) {
			t.Errorf("call %d: %s", n, got)
		}
	}
	params := `{"name":"look","arguments":{},"onBehalfOf":"` + mark("behalf") + `","requestId":"` + mark("requestId") + `"}`
	if got := v.send(v.text("tools/call", params), append(v.headers("tools/call", params), headers...)...); got.code() != -32602 { // nobody has requested it
		t.Errorf("it fulfils what nobody has requested: %s", got)
	}
	for _, bad := range []string{token + "x", token[:len(token)-9], mark("badtoken")} {
		v.send(v.text("tools/call", `{}`), append(append(v.headers("tools/call", "{}"), headers...), "Authorization", "Bearer "+bad)...)
	}
	// What is decided on, and what the operator lets through, arrives; the credential does, where it belongs.
	for _, of := range []string{"argument", "passes", "credential"} {
		if s.rec.Saw(mark(of)) == "" {
			t.Errorf("%s did not reach the server", of)
		}
	}
	if masked := countedBy(counts, "policy_service.mcp.masked", "server"); len(masked) != 1 || masked["rec"] != 2 {
		t.Errorf("masked: %v", masked)
	}
	if t.Failed() {
		t.Log(s.logs)
	}
	parts := strings.Split(token, ".")
	searched := map[string]string{"the token's claims": parts[1], "the token's signature": parts[2], "a session": v.session}
	for _, of := range []string{"cookie", "header", "forwarded", "host", "for", "via", "proxy", "agent", "referer", "baggage", "key", "event", "etag", "request", "language", "range", "amazon",
		"meta", "name", "purpose", "context", "metabaggage", "progress", "capability", "proof", "behalf", "requestId", "jti", "claim", "scope", "environment", "badtoken"} {
		searched[of] = mark(of)
	}
	said := s.logs.String()
	for name, text := range searched {
		if text == "" {
			continue
		}
		if where := s.rec.Saw(text); where != "" {
			t.Errorf("%s reached the server, in %s", name, where)
		}
		if strings.Contains(said, text) {
			t.Errorf("%s is in the log", name)
		}
	}
	for _, of := range []string{"credential", "trace", "environment"} {
		if strings.Contains(v.heard.String(), mark(of)) || strings.Contains(said, mark(of)) && of != "trace" {
			t.Errorf("%s reached the client, or the log", of)
		}
	}
	if strings.Contains(said, mark("argument")) {
		t.Error("an argument is in the log")
	}
	for _, g := range s.rec.Got() {
		if g.Child == nil {
			continue
		}
		if n := len(g.Child.Args) - len(odd); n < 0 || !slices.Equal(g.Child.Args[n:], odd) {
			t.Errorf("the child has the arguments %q", g.Child.Args)
		}
		for _, one := range g.Child.Env {
			if name, _, _ := strings.Cut(one, "="); name != "SECRET" {
				t.Errorf("the child has the variable %s", name)
			}
		}
	}
	if _, err := os.Stat(touched); err == nil {
		t.Error("a shell has read the arguments of the program")
	}
}
