package mcptest

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// A recorder says whatever it is told, also what no server should; it forgets its sessions when it is told to, and speaks
// beside answers.
func TestRecorderSaysAnything(t *testing.T) {
	r := NewRecorder(t, Answers{
		Results: map[string]string{"prompts/list": `{"prompts":[],"x":1}`},
		Handle: func(c *Call) bool {
			switch c.Method {
			case "odd/raw":
				c.Raw(http.StatusTeapot, "text/plain", "\x00 no JSON")
			case "odd/other":
				c.Answer(`{"jsonrpc":"2.0","id":"other","result":{}}`)
			case "odd/error":
				c.Error(`{"code":7,"message":"no"}`)
			case "odd/stream":
				c.Message(`{"jsonrpc":"2.0","method":"notifications/message","params":{}}`)
				c.Result(`{}`)
			}
			return strings.HasPrefix(c.Method, "odd/")
		},
		Listen: func(c *Call) { c.Message(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`) },
	})
	send := func(verb, session, body string) (int, http.Header, string) {
		q, err := http.NewRequestWithContext(t.Context(), verb, r.URL, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Mcp-Session-Id", session)
		a, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = a.Body.Close() }()
		text, err := io.ReadAll(a.Body)
		if err != nil {
			t.Fatal(err)
		}
		return a.StatusCode, a.Header, string(text)
	}
	request := func(method string) string { return `{"jsonrpc":"2.0","id":"a","method":"` + method + `"}` }
	_, header, _ := send(http.MethodPost, "", request("initialize"))
	session := header.Get("Mcp-Session-Id")
	for method, want := range map[string]string{
		"odd/raw":      "418 text/plain \x00 no JSON",
		"odd/other":    `200 application/json {"jsonrpc":"2.0","id":"other","result":{}}`,
		"odd/error":    `200 application/json {"jsonrpc":"2.0","id":"a","error":{"code":7,"message":"no"}}`,
		"odd/stream":   "200 text/event-stream event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{}}\n\nevent: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":\"a\",\"result\":{}}\n\n",
		"prompts/list": `200 application/json {"jsonrpc":"2.0","id":"a","result":{"prompts":[],"x":1}}`,
		"no/such":      `404 application/json {"jsonrpc":"2.0","id":"a","error":{"code":-32601,"message":"there is no such method"}}`,
	} {
		status, header, text := send(http.MethodPost, session, request(method))
		if got := fmt.Sprint(status, " ", header.Get("Content-Type"), " ", text); got != want {
			t.Errorf("%s: got %q, want %q", method, got, want)
		}
	}
	if status, _, text := send(http.MethodGet, session, ""); status != http.StatusOK || !strings.Contains(text, "list_changed") {
		t.Errorf("GET: %d %q", status, text)
	}
	r.Forget()
	if status, _, _ := send(http.MethodPost, session, request("ping")); status != http.StatusNotFound {
		t.Errorf("a forgotten session: %d", status)
	}
}
