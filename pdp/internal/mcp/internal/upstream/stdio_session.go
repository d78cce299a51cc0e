package upstream

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/rpc"
)

type childSession struct {
	o      *CommandOptions
	p      *process
	client Client
	out    *outbox
	// ctx ends with the session, or with its process.
	ctx  context.Context
	quit context.CancelFunc

	mu sync.Mutex

	// The end of the greeting writes it, before others have the session. Without a server there was no such end.
	met

	last  int64 // id of the last request
	calls map[rpc.ID]*childStream
	// asked are the requests of the server that wait for an answer, each with the stream it went to.
	asked    map[rpc.ID]*childStream
	listener *childStream // nil if there is none
	early    *time.Timer  // there was no listener yet, and messages wait for the first
	failed   func()       // is called if a server that was well ends by itself, and is nil then
	over     *Error       // why nothing can be sent any more
}

const mostAsked = 64

// drain is how long the last output of an ended process is read, and how long one that closed a pipe has to end.
const drain = time.Second

// ended is why a pipe is no more: mostly because the process ended.
func (s *childSession) ended(otherwise string) *Error {
	if how := pause(s.p.ended, drain); how != nil {
		return &Error{Gone: true, Detail: "the process of the server ended: " + how.Error()}
	}
	return &Error{Gone: true, Detail: otherwise}
}

func (s *childSession) run() {
	var pipes sync.WaitGroup
	pipes.Go(func() { s.end(s.read(), true) })
	pipes.Go(func() { logErrors(s.p.err, s.o) })
	pipes.Go(func() {
		if err := s.out.write(s.ctx, s.p.in, s.o.Timeout); err != nil {
			s.end(s.ended("the server does not read what it is sent"), true)
		}
	})
	<-s.ctx.Done()
	s.p.stop(s.o.Stop)
	// A process that left the group may hold the other ends for ever.
	until := time.Now().Add(drain)
	_ = errors.Join(s.p.out.SetReadDeadline(until), s.p.err.SetReadDeadline(until))
	pipes.Wait()
	closeAll(s.p.out, s.p.err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.o.Logger.Info("a process of an MCP server ended", "pid", s.p.pid, "how", context.Cause(s.p.ended).Error(), "by_itself", s.failed == nil)
}

// end ends the session for a reason; only the first counts. All waiting callers get it.
func (s *childSession) end(why *Error, itself bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over != nil {
		return
	}
	s.over = why
	s.quit()
	if itself {
		if s.server != nil { // the greeting reports its own failure
			s.failed() // before waiting callers hear of it, and come again
		}
		s.failed = nil
	}
	for _, c := range s.calls {
		s.finish(c, &Error{NotSent: s.out.withdraw(c.line), Gone: true, Detail: why.Detail, Err: why.Err})
	}
	if s.listener != nil {
		s.finish(s.listener, why)
	}
	if s.early != nil {
		s.early.Stop()
	}
}

// Close ends the process, and does not wait for it: [Upstream.Close] does.
func (s *childSession) Close() { s.end(&Error{Gone: true, Detail: "the session is closed"}, false) }

// ready returns an error if nothing is sent any more, for a caller or at all. The session is locked.
func (s *childSession) ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return &Error{NotSent: true, Detail: "the request was given up", Err: err}
	}
	if s.over != nil {
		return &Error{NotSent: true, Gone: true, Detail: s.over.Detail, Err: s.over.Err}
	}
	return nil
}

// deaf is of a message for which there is no room any more.
func deaf() *Error { return &Error{NotSent: true, Detail: "the server does not read what it is sent"} }

// Send sends a request, and returns when the pipe has taken it. Ctx bounds the stream too.
func (s *childSession) Send(ctx context.Context, r Request) (Stream, error) {
	c, err := s.begin(ctx, r)
	if err != nil {
		return nil, err
	}
	select {
	case <-c.line.written:
		return c, nil
	case <-c.ended:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.err != io.EOF {
		return nil, c.err
	}
	return c, nil
}

func (s *childSession) begin(ctx context.Context, r Request) (*childStream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	c := s.newStream()
	c.token = tokenKey(r.Params.GetObject("_meta").Get("progressToken"))
	c.asks = era.TakesInput(r.Method)
	if c.subscription = r.Method == "subscriptions/listen"; !c.subscription {
		c.patience = s.o.Timeout
	}
	if s.awaiting(c.token) != nil {
		return nil, &Error{NotSent: true, Detail: "two requests have one progress token"}
	}
	s.last++
	c.id = rpc.IntID(s.last)
	if c.line = s.out.add(r.message(c.id), mostLines); c.line == nil {
		return nil, deaf()
	}
	s.calls[c.id] = c
	c.watch(ctx)
	return c, nil
}

// Notify sends a notification, or the answer to a request that the server made and that has no answer yet.
func (s *childSession) Notify(ctx context.Context, m rpc.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ready(ctx); err != nil {
		return err
	}
	if m.IsResponse() && s.asked[m.ID] == nil {
		return &Error{NotSent: true, Detail: "no request of the server waits for this answer"}
	}
	if s.out.add(m, mostLines) == nil {
		return deaf()
	}
	if m.IsResponse() {
		s.answered(m.ID)
	}
	return nil
}

// say sends a message for which no caller waits. A server that does not read gets none.
func (s *childSession) say(m rpc.Message) {
	if s.out.add(m, mostOwnLines) == nil {
		s.o.Dropped(DropUnread)
	}
}

// answered notes that a request of the server waits no longer.
func (s *childSession) answered(id rpc.ID) {
	if c := s.asked[id]; c != nil {
		delete(s.asked, id)
		c.asking--
		c.signal()
	}
}

// outbox holds the lines that are to be written to a server, in their order. So only callers that choose to wait for a
// server that does not read. The lock of the session guards add.
type outbox struct {
	lines chan *outLine
	// count and size are those of the lines that are not taken out.
	count, size atomic.Int64
}

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
