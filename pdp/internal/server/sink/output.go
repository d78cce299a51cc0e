package sink

import (
	"bytes"
	"context"
	"io"
	"sync"

	"policy-service/pdp/internal/decisionlog/record"
)

// Output takes checkpoints and, with the sink stdout, records: whole lines of the one or the other. A
// line that begins with { is a record. Every other line is of a checkpoint: its origin begins with a
// name, and its other lines with a digit, a letter of base64, a word or a dash.
type Output struct {
	To io.Writer

	mu   sync.Mutex
	torn bool // the last write ended within a line
}

// Write writes whole lines. After a write that failed half-way it first ends the torn line, which
// would spoil the next.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.torn {
		if _, err := o.To.Write([]byte("\n")); err != nil {
			return 0, err
		}
		o.torn = false
	}
	n, err := o.To.Write(p)
	o.torn = n > 0 && n < len(p) && p[n-1] != '\n'
	return n, err
}

// Send implements [Send]: it writes the lines as they were hashed.
func (o *Output) Send(_ context.Context, records []record.Record) error {
	var lines bytes.Buffer
	for _, r := range records {
		lines.Write(r.Line)
		lines.WriteByte('\n')
	}
	_, err := o.Write(lines.Bytes())
	return err
}
