package upstream

import (
	"bufio"
	"bytes"
	"errors"
	"time"

	"policy-service/pdp/mcp/internal/rpc"
)

// Further reasons why a message from a pipe goes no further.
const (
	DropTooLarge = "too_large" // larger than is taken
	DropUnheard  = "unheard"   // without a listener
	DropOverflow = "overflow"  // more than its reader reads
	DropUnread   = "unread"    // ours, for a server that does not read
)

// read reads the output of the server until it ends, and returns the reason.
func (s *childSession) read() *Error {
	in := bufio.NewReaderSize(s.p.out, 64<<10)
	allowed := allowance(s.o.MaxResult)
	for {
		beside, err := s.readOne(in)
		if err != nil {
			return err
		}
		if beside > 0 {
			_ = pause(s.ctx, allowed.ReserveN(time.Now(), beside+eventCost).Delay())
		}
	}
}

// readOne reads a line, and hands on its message. It returns how much of it is no answer to a call, a blank line too: who
// says more of that than is taken is read more slowly, and waits.
func (s *childSession) readOne(in *bufio.Reader) (beside int, over *Error) {
	line, err := nextLine(in, s.o.MaxResult)
	var long *longLine
	switch {
	case errors.As(err, &long):
		s.tooLarge(long)
		return s.o.MaxResult, nil
	case errors.Is(err, errEndless):
		return 0, &Error{Gone: true, Detail: "a message of the server does not end"}
	case err != nil:
		return 0, s.ended("the server closed its output")
	case len(bytes.TrimSpace(line)) == 0:
		return len(line), nil
	}
	line = s.o.masked(s.o.masks, line)
	m, fault := rpc.Parse(line, rpc.DefaultLimits())
	if fault != nil {
		s.unreadable(line, fault)
		return len(line), nil
	}
	s.mu.Lock()
	reason := s.route(m)
	s.mu.Unlock()
	switch {
	case reason != "":
		s.o.Dropped(reason)
	case m.IsResponse():
		return 0, nil
	}
	return len(line), nil
}

// tooLarge drops a line that is too large. The call that it answers waits no longer; if it does not say which that is, it may
// have been any.
func (s *childSession) tooLarge(long *longLine) {
	s.o.Dropped(DropTooLarge)
	why := s.o.tooLarge(long.size)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch id, ok := long.head.answers(); {
	case long.head.method && ok:
		s.refuse(id, rpc.InternalError)
	case long.head.method:
	case ok:
		if c := s.calls[id]; c != nil {
			s.finish(c, why)
		}
	default:
		for _, c := range s.calls {
			if !c.subscription {
				s.say(cancelled(c.id))
				s.finish(c, why)
			}
		}
	}
}

// unreadable drops a line that is no message. A program may write other lines; one that looks like the answer to the only
// call, or is the one that has no id, ends that call.
func (s *childSession) unreadable(line []byte, fault *rpc.Fault) {
	s.mu.Lock()
	c := s.calls[fault.ID]
	if c == nil && fault.ID.IsZero() && bytes.Contains(line, []byte(`"jsonrpc"`)) {
		c = s.onlyCall(false)
	}
	if c != nil {
		why := &Error{Detail: "what came is not the response to the request", Err: ErrAmbiguous}
		if o, err := rpc.ParseObject(line); err == nil && (o.Get("id") == nil || o.Get("id").Kind() == 'n') {
			why.Answer = o.Get("error")
		}
		s.finish(c, why)
	}
	s.mu.Unlock()
	s.o.Dropped(DropUnreadable)
}
