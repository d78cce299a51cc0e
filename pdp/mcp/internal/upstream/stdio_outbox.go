package upstream

import (
	"context"
	"os"
	"sync/atomic"
	"time"

	"policy-service/pdp/mcp/internal/rpc"
)

// outbox holds the lines that are to be written to a server, in their order. So only callers that choose to wait for a
// server that does not read. The lock of the session guards add.
type outbox struct {
	lines chan *outLine
	size  atomic.Int64 // of the lines that are not taken out
}

// outLine is a line on its way.
type outLine struct {
	text    []byte
	taken   atomic.Bool   // out of the outbox: to be written, or by its caller
	written chan struct{} // closed if it has been written
}

const (
	// The gateway's own messages, which no caller waits for, leave room for those of callers.
	mostLines     = 128
	mostOwnLines  = mostLines / 2
	mostLineBytes = 4 << 20 // one line may be larger
)

func newOutbox() *outbox { return &outbox{lines: make(chan *outLine, mostLines)} }

// add adds a message. It returns nil if too much waits.
func (o *outbox) add(m rpc.Message, most int) *outLine {
	l := &outLine{text: rpc.AppendLine(nil, m), written: make(chan struct{})}
	size := int64(len(l.text))
	if len(o.lines) >= most || len(o.lines) > 0 && o.size.Load()+size > mostLineBytes {
		return nil
	}
	o.size.Add(size)
	o.lines <- l
	return l
}

// take takes a line out, once. It is not ok if its writing has begun, or its caller has it back.
func (o *outbox) take(l *outLine) (ok bool) {
	ok = l.taken.CompareAndSwap(false, true)
	if ok {
		o.size.Add(-int64(len(l.text)))
	}
	return ok
}

// withdraw takes a line back. Its place stays taken until the writer comes to it; its bytes go at once.
func (o *outbox) withdraw(l *outLine) (ok bool) {
	if ok = o.take(l); ok {
		l.text = nil
	}
	return ok
}

// write writes lines until ctx ends, or a line is not taken within the patience. Lines that have not begun to be written are
// lost then.
func (o *outbox) write(ctx context.Context, to *os.File, patience time.Duration) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case l := <-o.lines:
			if !o.take(l) {
				continue
			}
			if err := to.SetWriteDeadline(time.Now().Add(patience)); err != nil {
				return err
			}
			if _, err := to.Write(l.text); err != nil {
				return err
			}
			close(l.written)
		}
	}
}
