package mcp

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp/pdptest/mcptest"
)

// TestLogAfterALineThatWasCutOff: what a full disk has left of a line does not spoil the next one, which counts as written.
func TestLogAfterALineThatWasCutOff(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "log")
	mcptest.Must(t, os.WriteFile(file, []byte(`{"time":"2026-`), 0o600))
	l := &logFile{path: file, now: time.Now}
	for _, id := range []string{"a", "b"} {
		mcptest.Must(t, l.write(t.Context(), evaluation.Obligation{ID: id, Type: "log"}))
	}
	text, err := os.ReadFile(file)
	mcptest.Must(t, err)
	lines := bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
	if len(lines) != 3 || !json.Valid(lines[1]) || !json.Valid(lines[2]) {
		t.Errorf("it is %s", text)
	}
}
