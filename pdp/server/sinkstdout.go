package server

import (
	"bytes"
	"context"
	"io"
	"sync"

	"policy-service/pdp/decisionlog"
)

// output is where checkpoints go and, with the sink stdout, records: whole lines of
// the one or the other. A line that begins with { is a record, every other one is of a
// checkpoint: its origin begins with a name, and what else it has with a digit, a
// letter of base64, a word or a dash.
type output struct {
	mu   sync.Mutex
	to   io.Writer
	torn bool // the last write ended within a line
}

// Write writes whole lines. After a write that failed half-way it ends that line first,
// so that it spoils no other.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.torn {
		if _, err := o.to.Write([]byte("\n")); err != nil {
			return 0, err
		}
		o.torn = false
	}
	n, err := o.to.Write(p)
	o.torn = n > 0 && n < len(p) && p[n-1] != '\n'
	return n, err
}

// records writes the lines as they were hashed.
func (o *output) records(_ context.Context, records []decisionlog.Record) error {
	var lines bytes.Buffer
	for _, r := range records {
		lines.Write(r.Line)
		lines.WriteByte('\n')
	}
	_, err := o.Write(lines.Bytes())
	return err
}
