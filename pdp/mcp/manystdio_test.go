package mcp_test

import (
	"bufio"
	"context"
	"io"
	"strings"
	"testing"

	"policy-service/pdp/mcp"
)

// A client over the standard streams has several servers behind one gateway, too: it hears all of them, and each only what is
// for it.
func TestManyOverStdio(t *testing.T) {
	t.Parallel()
	a, b := newCrier(), newCrier()
	m := newMany(t, camp{change: func(c *mcp.Config) { c.Identity = mcp.IdentityConfig{Static: &mcp.StaticConfig{Sub: "alice"}} }}, map[string]manyServer{
		"a": {answers: a.answers("legacy")}, "b": {answers: b.answers("modern")},
	})
	in, says := io.Pipe()
	heard, out := io.Pipe()
	served := make(chan error, 1)
	go func() { served <- m.gateway.ServeStdio(context.Background(), in, out) }()
	lines := bufio.NewScanner(heard)
	ask := func(text, want string) {
		t.Helper()
		if text != "" {
			_, err := io.WriteString(says, text+"\n")
			orFail(t, err)
		}
		for lines.Scan() && (strings.Contains(lines.Text(), `"notifications/welcome"`) || strings.Contains(lines.Text(), `"notifications/tool_call_blocked"`)) {
		}
		if !strings.Contains(lines.Text(), want) {
			t.Fatalf("heard %s, want %s", lines.Text(), want)
		}
	}
	ask(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","clientInfo":{"name":"x","version":"1"},"capabilities":{}}}`, `"serverInfo":{"name":"policy-service"`)
	_, err := io.WriteString(says, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
	orFail(t, err)
	<-a.came
	<-b.came
	ask(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"b__look","arguments":{}}}`, `"ran"`)
	ask(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"look","arguments":{}}}`, `unknown tool`)
	for _, c := range []*crier{a, b} {
		c.says <- manyChanged("prompts/list_changed")
		ask("", "prompts/list_changed")
	}
	if len(m.ran("a")) != 0 || len(m.ran("b")) != 1 {
		t.Errorf("%q, %q", m.ran("a"), m.ran("b"))
	}
	go func() { _, _ = io.Copy(io.Discard, heard) }() // who it is, its client may be told last of all
	orFail(t, says.Close())
	orFail(t, <-served)
}
