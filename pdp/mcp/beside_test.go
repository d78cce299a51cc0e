package mcp_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"policy-service/pdp/mcp/mcptest"
)

// masksLook takes something out of the results of look, and of nothing else.
var masksLook = map[string]string{
	"a.cedar": `@id("all") permit (principal, action, resource) unless { action == Action::"tool.invoke" && resource == tool::"rec:look" };
		@id("mask") @obligation("mask") permit (principal, action == Action::"tool.invoke", resource == tool::"rec:look");`,
	"obligations.yaml": "mask: {type: redact, properties: {fields: [/ssn]}}\n",
}

// What a server writes to its log behind an answer from which something was taken out may be just that: nothing says that it
// is of the next request, in whose course it comes.
func TestLogBehindARedactedAnswer(t *testing.T) {
	const secret = "s3cr3t-123-45"
	for _, program := range []bool{false, true} {
		s := newSiege(t, camp{policies: masksLook, program: program, answers: mcptest.Answers{Eras: []string{"legacy"}, Handle: func(c *mcptest.Call) bool {
			if c.Method == "tools/call" && strings.Contains(string(c.Params), `"change"`) {
				c.Message(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"looked at ` + secret + `"}}`)
			}
			return false
		}}})
		v := s.visitor("legacy", nil)
		for _, tool := range []string{"look", "change"} {
			if got := v.call(tool, `{}`); got.fault != nil || strings.Contains(got.text, secret) {
				t.Errorf("program %t, %s: %s", program, tool, got)
			}
		}
	}
}

// That something has changed is said in no words of the server's while something is to be taken out of its results.
func TestChangesWithoutWords(t *testing.T) {
	const secret = "s3cr3t-123-45"
	s := newSiege(t, camp{policies: masksLook, answers: mcptest.Answers{Eras: []string{"legacy"}, Handle: func(c *mcptest.Call) bool {
		if c.Method == "tools/call" {
			c.Message(`{"jsonrpc":"2.0","method":"notifications/` + secret + `/list_changed"}`)
			c.Message(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"mem://notes","title":"` + secret + `","_meta":{"a":"` + secret + `"}}}`)
			c.Message(`{"jsonrpc":"2.0","method":"notifications/prompts/list_changed","params":{"why":"` + secret + `"}}`)
		}
		return false
	}}})
	v := s.visitor("legacy", nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	orFail(t, err)
	for name, value := range map[string]string{"Accept": "text/event-stream", "Authorization": "Bearer " + v.token, "Mcp-Session-Id": v.session} {
		r.Header.Set(name, value)
	}
	stream, err := v.client.Do(r)
	orFail(t, err)
	defer func() { _ = stream.Body.Close() }()
	if got := v.call("look", `{}`); got.fault != nil {
		t.Fatal(got)
	}
	var heard strings.Builder
	for b := make([]byte, 1024); !strings.Contains(heard.String(), "prompts/list_changed"); {
		n, err := stream.Body.Read(b)
		heard.Write(b[:n])
		if err != nil && err != io.EOF {
			t.Fatal(err)
		}
	}
	if got := heard.String(); strings.Contains(got, secret) || !strings.Contains(got, `"uri":"mem://notes"`) {
		t.Errorf("the client hears %s", got)
	}
}
