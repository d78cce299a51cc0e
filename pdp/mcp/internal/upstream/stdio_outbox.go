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
	// count and size are those of the lines that are not taken out.
	count, size atomic.Int64
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
	// Callers take lines back while a server does not read: the writer skips so many at most.
	mostWithdrawn = 8 * mostLines
)

func newOutbox() *outbox { return &outbox{lines: make(chan *outLine, mostLines+mostWithdrawn)} }

// add adds a message. It returns nil if too much waits.
func (o *outbox) add(m rpc.Message, most int64) *outLine {
	l := &outLine{text: rpc.AppendLine(nil, m), written: make(chan struct{})}
	size := int64(len(l.text))
	count := o.count.Load()
	if count >= most || count > 0 && o.size.Load()+size > mostLineBytes || len(o.lines) == cap(o.lines) {
		return nil
	}
	o.count.Add(1)
	o.size.Add(size)
	o.lines <- l
	return l
}

// take takes a line out, once. It is not ok if its writing has begun, or its caller has it back.
func (o *outbox) take(l *outLine) (ok bool) {
	ok = l.taken.CompareAndSwap(false, true)
	if ok {
		o.count.Add(-1)
		o.size.Add(-int64(len(l.text)))
	}
	return ok
}

// withdraw takes a line back: there is room for another. The writer skips it.
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
