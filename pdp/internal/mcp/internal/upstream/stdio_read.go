package upstream

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/internal/visible"
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
	m, fault := rpc.Parse(line)
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

// tooLarge drops a line that is too large. The call that it answers waits no longer; if it is a message and does not say
// which that is, it may have been any.
func (s *childSession) tooLarge(long *longLine) {
	s.o.Dropped(DropTooLarge)
	why := s.o.tooLarge(long.size)
	s.mu.Lock()
	defer s.mu.Unlock()
	head, _ := rpc.ParseObject(long.head.text)
	switch id, ok := rpc.ReadID(head.Get("id")); {
	case ok && head.Get("method") != nil:
		s.refuse(id, rpc.InternalError)
	case head.Get("method") != nil:
	case ok:
		if c := s.calls[id]; c != nil {
			s.finish(c, why)
		}
	case bytes.Contains(long.head.text, []byte(`"jsonrpc"`)): // others are lines of a log
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
		s.finish(c, &Error{Detail: "what came is not the response to the request", Answer: unnamedError(line), Err: ErrAmbiguous})
	}
	s.mu.Unlock()
	s.o.Dropped(DropUnreadable)
}

// longLine is the error of a line that is longer than it may be. The lines after it can be read.
type longLine struct {
	size int
	head skeleton
}

func (e *longLine) Error() string {
	return fmt.Sprintf("a line of %d bytes is longer than max_result", e.size)
}

// errEndless is of a line that goes on even so.
var errEndless = errors.New("a line does not end")

// skipFactor is how many times longer than it may be a line is read to find its end.
const skipFactor = 8

// nextLine reads a line of at most so many bytes, and no more of a longer one into memory. A last line without an end is
// none: its writer was cut off.
func nextLine(in *bufio.Reader, most int) ([]byte, error) {
	var line bytes.Buffer
	var long longLine
	for {
		part, err := in.ReadSlice('\n')
		before := long.size
		if long.size += len(part); long.size <= most {
			line.Write(part)
		} else {
			if before <= most {
				long.head.read(line.Bytes())
				line = bytes.Buffer{}
			}
			long.head.read(part)
		}
		switch {
		case err == nil && long.size > most:
			return nil, &long
		case err == nil:
			return line.Bytes(), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		case long.size/skipFactor > most:
			return nil, errEndless
		}
	}
}

// mostSkeleton is how much is kept of a message that is too large: more than its own members have without their contents.
// mostText is how much is kept of a text in it: more than an id or a method has.
const (
	mostSkeleton = 4 << 10
	mostText     = 512
)

// skeleton is a message that is not kept, without the contents of its objects and arrays, and without the rest of long texts:
// enough to see which call it answers.
type skeleton struct {
	text            []byte
	depth           int
	inText, escaped bool
	length          int // of the text so far
}

func (s *skeleton) read(part []byte) {
	for _, c := range part {
		before := s.depth
		switch {
		case s.inText:
			s.inText = s.escaped || c != '"'
			s.escaped = !s.escaped && c == '\\'
		case c == '"':
			s.inText = true
		case c == '{', c == '[':
			s.depth++
		case c == '}', c == ']':
			s.depth--
		}
		if s.length++; !s.inText {
			s.length = 0
		}
		if min(before, s.depth) <= 1 && s.length < mostText && len(s.text) < mostSkeleton {
			s.text = append(s.text, c)
		}
	}
}

const (
	mostErrLine  = 1 << 10
	errLineRate  = 10 // a second
	errLineBurst = 50
)

// logErrors reads all that a server writes to its standard error, so that it never waits for us, and logs a part of it: so
// many lines a second, and the beginning of each, without the secrets that begin there.
func logErrors(from io.Reader, o *CommandOptions) {
	in := bufio.NewReaderSize(from, mostErrLine+2*o.errMasks.Longest())
	allowed := rate.NewLimiter(errLineRate, errLineBurst)
	left := 0
	for {
		line, err := in.ReadSlice('\n')
		begin, places := o.errMasks.Begin(line, mostErrLine)
		text := strings.TrimSpace(strings.ToValidUTF8(string(begin), "�"))
		for errors.Is(err, bufio.ErrBufferFull) { // the rest of a long line
			_, err = in.ReadSlice('\n')
		}
		switch {
		case text == "":
		case allowed.AllowN(time.Now(), 1):
			if places > 0 {
				o.Masked(places)
			}
			attrs := []slog.Attr{slog.String("line", visible.Quoted(text))}
			if left > 0 {
				attrs = append(attrs, slog.Int("left_out_before", left))
			}
			o.Logger.LogAttrs(context.Background(), slog.LevelInfo, "an MCP server says on its standard error", attrs...)
			left = 0
		default:
			left++
		}
		if err != nil {
			return
		}
	}
}
