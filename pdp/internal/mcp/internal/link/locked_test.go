package link

import (
	"log/slog"
	"testing"

	"policy-service/pdp/internal/mcp/lock"
	"policy-service/pdp/pdptest/mcptest"
)

// A log writer may block. No other caller waits for it to get a schema.
func TestLogOutsideOfSchemas(t *testing.T) {
	tool, err := lock.ParseTool([]byte(`{"name":"a","inputSchema":{"$ref":"#/none"}}`))
	mcptest.Must(t, err)
	g, lines := &Servers{}, 0
	g.o.Logger = slog.New(slog.NewTextHandler(writes(func() {
		if lines++; g.schemas.mu.TryLock() {
			g.schemas.mu.Unlock()
		} else {
			t.Error("the schemas are locked while a line is logged")
		}
	}), nil))
	file := &lock.File{Servers: map[string]lock.Server{"s": {Tools: map[string]lock.Tool{"a": tool}}}}
	for range 2 {
		if schema, err := g.schema(file, "s", "a"); schema != nil || err != nil {
			t.Errorf("%v, %v", schema, err)
		}
	}
	if lines != 1 {
		t.Errorf("%d lines", lines)
	}
}

type writes func()

func (w writes) Write(p []byte) (int, error) { w(); return len(p), nil }
