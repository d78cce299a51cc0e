package door

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
)

func TestRefusalsAreToldTogether(t *testing.T) {
	t.Parallel()
	var r Refusals
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	for range 1000 {
		r.add("rate")
	}
	r.add("concurrency")
	r.report(log)
	if got := text.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "limit=rate count=1000") || !strings.Contains(got, "limit=concurrency count=1") {
		t.Errorf("got\n%s", got)
	}
	text.Reset()
	r.report(log)
	if text.Len() > 0 {
		t.Errorf("told again:\n%s", text.String())
	}
	r.add("rate")
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	r.run(stopped, log)
	if !strings.Contains(text.String(), "limit=rate count=1\n") {
		t.Errorf("at the stop got\n%s", text.String())
	}
}
