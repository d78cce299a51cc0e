package mcp_test

import (
	"bufio"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/mcptest"
	"policy-service/pdp/pdptest"
)

// While something is to be taken out of a result, no word of the server's reaches the client by any other way: not by a
// message before the result, not by what the server asks, and not by an error, however it comes.
func TestWordsOfTheServer(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t-123-45"
	elicit := `"method":"elicitation/create","params":{"message":"of ` + secret + `","requestedSchema":{"type":"object","properties":{}}}`
	told := map[string]func(c *mcptest.Call){
		"result": func(c *mcptest.Call) {
			c.Result(`{"content":[{"type":"text","text":"` + secret + `"}],"structuredContent":{"ssn":"` + secret + `","name":"` + secret + `"},"_meta":{"a":"` + secret + `"}}`)
		},
		"error": func(c *mcptest.Call) { c.Error(`{"code":-32000,"message":"` + secret + `","data":"` + secret + `"}`) },
		"status": func(c *mcptest.Call) {
			c.Raw(403, "application/json", `{"jsonrpc":"2.0","id":`+string(c.ID)+`,"error":{"code":-32000,"message":"`+secret+`","data":"`+secret+`"}}`)
		},
		"without id": func(c *mcptest.Call) {
			c.Raw(400, "application/json", `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"`+secret+`"}}`)
		},
		"log": func(c *mcptest.Call) {
			c.Message(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"` + secret + `"}}`)
			c.Result(`{"content":[]}`)
		},
		"asks": func(c *mcptest.Call) {
			if c.Modern {
				c.Result(`{"resultType":"input_required","inputRequests":{"a":{` + elicit + `}},"requestState":"` + secret + `"}`)
				return
			}
			c.Message(`{"jsonrpc":"2.0","id":"` + secret + `",` + elicit + `}`)
			c.Result(`{"content":[]}`)
		},
	}
	decides := pdptest.Start(t, pdptest.Bundle(map[string]string{
		"a.cedar":          `@id("all") permit (principal, action, resource) unless { action == Action::"tool.invoke" }; @id("mask") @obligation("mask") permit (principal, action == Action::"tool.invoke", resource);`,
		"obligations.yaml": "mask: {type: redact, properties: {fields: [/ssn]}}\n", "bundle.yaml": "allow_trivial: true\n",
	}), open)
	for _, eras := range [][]string{{"legacy"}, {"modern"}} {
		upstream := mcptest.NewRecorder(t, mcptest.Answers{Eras: eras, Tools: `[{"name":"a","inputSchema":{"type":"object"}}]`, Handle: func(c *mcptest.Call) bool {
			for name, say := range told {
				if c.Method == "tools/call" && strings.Contains(string(c.Params), `"as":"`+name+`"`) {
					say(c)
					return true
				}
			}
			return false
		}})
		g, err := mcp.New(t.Context(), mcp.Config{
			Listen: "127.0.0.1:0", Resource: "http://127.0.0.1:8181/mcp", PDP: mcp.PDPConfig{URL: decides.URL},
			Identity:  mcp.IdentityConfig{Static: &mcp.StaticConfig{Sub: "alice", ClientID: "agent-1"}},
			Upstreams: map[string]mcp.UpstreamConfig{"up": {URL: upstream.URL, AllowNetworks: []string{"127.0.0.0/8"}, ServerRequests: mcp.ServerRequests{Elicitation: mcp.RelayOn}}},
		}, mcp.Deps{Logger: slog.New(slog.NewTextHandler(&logged{t}, nil))})
		if err != nil {
			t.Fatal(err)
		}
		s := httptest.NewServer(g.Handler())
		t.Cleanup(func() {
			s.Close()
			if err := g.Close(); err != nil {
				t.Error(err)
			}
		})
		for name := range told {
			got := modernCall(t, s.URL+mcp.Endpoint, name)
			if strings.Contains(got, secret) || !strings.Contains(got, `"jsonrpc":"2.0","id":7`) {
				t.Errorf("%s, %s: the client reads %s", eras, name, got)
			}
			isThis := func(g mcptest.Got) bool {
				return g.Method == "tools/call" && strings.Contains(string(g.Params), `"as":"`+name+`"`)
			}
			if !slices.ContainsFunc(upstream.Got(), isThis) {
				t.Errorf("%s, %s: the call did not arrive: %s", eras, name, got)
			}
		}
	}
}

// modernCall calls the tool a as a client of the modern era that takes forms, and returns all it reads.
func modernCall(t *testing.T, url, as string) string {
	t.Helper()
	body := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a","arguments":{"as":"` + as + `"},"_meta":{"progressToken":"p",
		"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/logLevel":"debug",
		"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{},"url":{}}}}}}`
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "a"} {
		r.Header.Set(name, v)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	read, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(read)
}

// What a server says beside the answers to requests cannot be told to be of none of them. So once something was to be taken
// out of a result of a client, it hears no free words of the server's beside any longer, and nobody asks it for the server.
func TestWordsBesideTheAnswers(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t-123-45"
	called := make(chan bool)
	upstream := mcptest.NewRecorder(t, mcptest.Answers{
		Eras: []string{"legacy"}, Tools: `[{"name":"a","inputSchema":{"type":"object"}}]`,
		Handle: func(c *mcptest.Call) bool {
			if c.Method != "tools/call" {
				return false
			}
			called <- true
			<-called
			c.Result(`{"content":[]}`)
			return true
		},
		Listen: func(c *mcptest.Call) {
			<-called
			c.Message(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"` + secret + `"}}`)
			c.Message(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"` + secret + `","requestedSchema":{"type":"object","properties":{}}}}`)
			c.Message(`{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}`)
			called <- true
			<-c.Context.Done()
		},
	})
	masks := pdptest.Bundle(map[string]string{
		"a.cedar":          `@id("all") permit (principal, action, resource) unless { action == Action::"tool.invoke" }; @id("mask") @obligation("mask") permit (principal, action == Action::"tool.invoke", resource);`,
		"obligations.yaml": "mask: {type: redact, properties: {fields: [/ssn]}}\n", "bundle.yaml": "allow_trivial: true\n",
	})
	at, _ := through(t, passage{name: "up", upstream: upstream.URL, bundle: &masks})
	session := legacySession(t, at)
	stream := session.do(t, http.MethodGet, "")
	defer func() { _ = stream.Body.Close() }()
	answer := session.do(t, http.MethodPost, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"a","arguments":{}}}`)
	if got := readAll(t, answer.Body); !strings.Contains(got, `"result"`) {
		t.Fatal(got)
	}
	var heard strings.Builder
	for lines := bufio.NewScanner(stream.Body); lines.Scan(); {
		heard.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), "list_changed") {
			break
		}
	}
	if got := heard.String(); strings.Contains(got, secret) || !strings.Contains(got, "list_changed") {
		t.Errorf("the client hears %s", got)
	}
}

// legacyOne is a session of the legacy era, with a client that takes forms.
type legacyOne struct{ at, id string }

func legacySession(t *testing.T, at string) legacyOne {
	t.Helper()
	s := legacyOne{at: at}
	answer := s.do(t, http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","clientInfo":{"name":"c","version":"1"},"capabilities":{"elicitation":{}}}}`)
	if got := readAll(t, answer.Body); !strings.Contains(got, `"result"`) {
		t.Fatal(got)
	}
	s.id = answer.Header.Get("Mcp-Session-Id")
	return s
}

func (s legacyOne) do(t *testing.T, method, body string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.at, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Mcp-Session-Id": s.id} {
		if v != "" {
			r.Header.Set(name, v)
		}
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}
