package upstream

import (
	"os"
	"sync"
	"time"

	"policy-service/pdp/mcp/internal/rpc"
)

// outbox are the lines that are to be written to a server, in their order. So only callers that choose to
// wait for a server that does not read.
type outbox struct {
	mu    sync.Mutex
	lines []*outLine
	size  int
	over  bool
	wake  chan struct{}
}

// outLine is a line on its way.
type outLine struct {
	text    []byte
	begun   bool
	written chan struct{} // closed if it has been written
}

const (
	// The gateway's own messages, which no caller waits for, leave room for those of callers.
	mostLines     = 128
	mostOwnLines  = mostLines / 2
	mostLineBytes = 4 << 20 // one line may be larger
)

func newOutbox() *outbox { return &outbox{wake: make(chan struct{}, 1)} }

// put adds a line of a caller's. It is not ok if too much waits, or if nothing is written any more.
func (o *outbox) put(text []byte) (l *outLine, ok bool) { return o.add(text, mostLines) }

// putOwn adds a line that no caller waits for.
func (o *outbox) putOwn(m rpc.Message) bool {
	_, ok := o.add(rpc.AppendLine(nil, m), mostOwnLines)
	return ok
}

func (o *outbox) add(text []byte, most int) (l *outLine, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over || len(o.lines) >= most || len(o.lines) > 0 && o.size+len(text) > mostLineBytes {
		return nil, false
	}
	l = &outLine{text: text, written: make(chan struct{})}
	o.lines = append(o.lines, l)
	o.size += len(text)
	signal(o.wake)
	return l, true
}

// signal makes waiting goroutines look again.
func signal(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// withdraw takes a line back. It is not ok if its writing has begun.
func (o *outbox) withdraw(l *outLine) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if l.begun {
		return false
	}
	for i, other := range o.lines {
		if other == l {
			o.lines = append(o.lines[:i], o.lines[i+1:]...)
			o.size -= len(l.text)
			break
		}
	}
	return true
}

// close ends [outbox.write]. Lines that have not begun to be written are lost.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over = true
	signal(o.wake)
}

func (o *outbox) next() (l *outLine, over bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over || len(o.lines) == 0 {
		return nil, o.over
	}
	l = o.lines[0]
	o.lines = o.lines[1:]
	o.size -= len(l.text)
	l.begun = true
	return l, false
}

// write writes lines until the outbox is closed, or a line is not taken within the patience.
func (o *outbox) write(to *os.File, patience time.Duration) error {
	for {
		l, over := o.next()
		switch {
		case over:
			return nil
		case l == nil:
			<-o.wake
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
