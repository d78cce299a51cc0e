package mcp_test

import (
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/mcptest"
	"policy-service/pdp/pdptest"
)

const odd = `{"name":"odd","inputSchema":{"type":"object"},"coaz":false,"authorization":{"required":true},"x":[1.0,1e2,"\u00e9"]}`

// Members that nobody knows survive both ways, between all eras.
func TestErasKeepWhatTheyDoNotKnow(t *testing.T) {
	t.Parallel()
	const result = `{"content":[{"type":"hologram","x":1.0}],"_meta":{"x.example/a":1e0},"unknown":{"b":1.50},"tasks":"x"`
	for _, up := range eras {
		s := newSiege(t, camp{answers: mcptest.Answers{Eras: []string{up}, Tools: "[" + odd + "]", Results: map[string]string{"tools/call": result + `,"resultType":"complete"}`}}})
		for _, era := range eras {
			v := s.visitor(era, nil)
			if got := v.ask("tools/list", `{}`); !strings.Contains(string(got.result), odd) {
				t.Errorf("%s to %s: the list is %s", era, up, got)
			}
			const params = `"name":"odd","arguments":{"a":1.0,"b":"\u00e9"},"unknown":[1e2]`
			got := v.ask("tools/call", `{`+params+`,"capability":"x","proof":"y"}`)
			for _, part := range []string{`"content":[{"type":"hologram","x":1.0}]`, `"x.example/a":1e0`, `"unknown":{"b":1.50}`} {
				if !strings.Contains(string(got.result), part) {
					t.Errorf("%s to %s: no %s in %s", era, up, part, got)
				}
			}
			if strings.Contains(string(got.result), "resultType") != (era == "modern") {
				t.Errorf("%s to %s: %s", era, up, got)
			}
			sent := s.rec.Executed()
			if last := sent[len(sent)-1]; !strings.Contains(string(last.Params), params) || strings.Contains(string(last.Params), "proof") {
				t.Errorf("%s to %s: the server got %s", era, up, last.Params)
			}
		}
	}
}

// Methods that an era does not have are unknown, and do not reach the server.
func TestErasRefuseMethodsOfTheOther(t *testing.T) {
	t.Parallel()
	s := newSiege(t, camp{})
	for era, test := range map[string]struct {
		status  int
		methods []string
	}{
		"modern": {http.StatusNotFound, []string{"ping", "initialize", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "tasks/list", "tasks/result"}},
		"legacy": {http.StatusOK, []string{"server/discover", "subscriptions/listen"}},
	} {
		v := s.visitor(era, nil)
		for _, method := range append(test.methods, "no/such") {
			if got := v.ask(method, `{}`); got.status != test.status || got.code() != -32601 {
				t.Errorf("%s, %s: %s", era, method, got)
			}
		}
	}
	s.untouched(t)
}

// What a server asks that may not ask is refused, and the client hears nothing of it.
func TestErasDeny(t *testing.T) {
	t.Parallel()
	pdp := pdptest.Start(t, permitAll, open).URL
	for _, c := range cells() {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			b := c.between(t, pdp, mcp.ServerRequests{})
			for _, tool := range []string{"ask", "twice"} {
				result, err := b.CallTool(t.Context(), &sdk.CallToolParams{Name: tool})
				if err == nil && !result.IsError {
					t.Errorf("%s: %+v", tool, result.Content[0])
				}
			}
			if len(b.asked) > 0 {
				t.Errorf("the person was asked %q", <-b.asked)
			}
		})
	}
}

// A gateway that is closed leaves nothing behind.
func TestErasLeaveNothing(t *testing.T) { // beside no other, whose goroutines it would see
	pdp := pdptest.Start(t, permitAll, open).URL
	for _, c := range []cell{{legacy: true, upLegacy: true}, {upStdio: true}, {upLegacy: true, stdio: true}, {legacy: true, upStdio: true}} {
		t.Run(c.String(), func(t *testing.T) {
			t.Run("use", func(t *testing.T) {
				b := c.between(t, pdp, relayed)
				changes(t, b)
				asks(t, b)
			})
			http.DefaultTransport.(*http.Transport).CloseIdleConnections()
			var left string
			for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); runtime.Gosched() {
				all := make([]byte, 1<<20)
				all = all[:runtime.Stack(all, true)]
				left = ""
				for one := range strings.SplitSeq(string(all), "\n\n") {
					if strings.Contains(one, "pdp/mcp/internal/") {
						left = one
					}
				}
				if left == "" {
					return
				}
			}
			t.Errorf("something goes on:\n%s", left)
		})
	}
}
