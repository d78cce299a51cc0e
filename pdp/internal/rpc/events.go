package rpc

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"time"
)

// Events reads messages out of a stream of server-sent events.
type Events struct {
	in   *bufio.Reader
	most int
	head []byte // the part of a line that is kept
	// begun reports that the first line has been read, and afterCR that the last line ended with a CR: an LF that comes
	// next is of the same end, and is not waited for.
	begun, afterCR bool
	failed         error
	size           int // of the event that was too large
	// id and retry are those of the last event that has ended, and coming is the id of the one that has not.
	id, coming []byte
	retry      time.Duration
}

// ErrTooLarge is of an event, or a line, that is larger than its reader takes.
var ErrTooLarge = errors.New("an event is larger than is taken")

// NewEvents reads from r. An event with more than most bytes of data is an error.
func NewEvents(r io.Reader, most int) *Events { return &Events{in: bufio.NewReader(r), most: most} }

// Size is how large the event was that was too large, at least.
func (e *Events) Size() int { return e.size }

// mostSkipped is how many times as large as it may be a line is read to find its size.
const mostSkipped = 8

// mostWord is how long an id, or a time, may be that a stream gives for its resumption. A longer one is none.
const mostWord = 1024

// Resume is the id of the last event, "" for none, and after how long the stream may be opened again behind it, 0 if not said.
func (e *Events) Resume() (id string, after time.Duration) { return string(e.id), e.retry }

// word takes a field about the resumption of the stream.
func (e *Events) word(field, value []byte) {
	switch string(field) {
	case "id":
		if !bytes.ContainsRune(value, 0) {
			e.coming = append(e.coming[:0], value...)
		}
	case "retry":
		if ms, err := strconv.ParseUint(string(value), 10, 31); err == nil {
			e.retry = time.Duration(ms) * time.Millisecond
		}
	}
}

const byteOrderMark = "\uFEFF"

// Next is the data of the next event that has any, whatever the event is called, as soon as the event has ended. The data
// are the caller's. [io.EOF] is the end of the stream; an event that the stream ends in is none. An error comes again.
func (e *Events) Next() ([]byte, error) {
	var data []byte
	has := false
	for {
		line, err := e.line()
		if err != nil {
			return nil, err
		}
		if len(line) == 0 {
			e.id = append(e.id[:0], e.coming...)
			if len(data) > 0 {
				return data, nil
			}
			has = false
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		if string(field) != "data" {
			if len(line) <= mostWord {
				e.word(field, value)
			}
			continue
		}
		if has {
			data = append(data, '\n')
		}
		if len(data)+len(value) > e.most {
			e.size = len(data) + len(value)
			return nil, e.fail(ErrTooLarge)
		}
		data, has = append(data, value...), true
	}
}

// line is the next line without its end, which is LF, CR LF or CR. Of a line that is no data only the head comes: enough for
// a word, and to see that it is longer. It is good until the next call.
func (e *Events) line() ([]byte, error) {
	if e.failed != nil {
		return nil, e.failed
	}
	e.head = e.head[:0]
	for size, data, ends := 0, false, false; !ends; {
		piece, end, err := e.piece()
		size, ends = size+len(piece), end
		switch tooLarge := data && size > e.most+len("data: "); {
		case tooLarge && (err != nil || ends || size >= mostSkipped*e.most):
			e.size = size
			return nil, e.fail(ErrTooLarge)
		case err != nil:
			return nil, e.fail(err)
		case !tooLarge && (data || len(e.head) <= mostWord):
			e.head = append(e.head, piece...)
			data = bytes.HasPrefix(e.head, []byte("data:"))
		}
	}
	return e.head, nil
}

func (e *Events) fail(err error) error {
	e.failed = err
	return err
}

// piece is the part of a line that has arrived; ends reports that it is its last piece. It is good until the next call.
func (e *Events) piece() (piece []byte, ends bool, err error) {
	if !e.begun { // no event is shorter than the mark
		mark, err := e.in.Peek(len(byteOrderMark))
		if err != nil {
			return nil, false, err
		}
		if e.begun = true; string(mark) == byteOrderMark {
			_, _ = e.in.Discard(len(mark))
		}
	}
	if _, err := e.in.Peek(1); err != nil {
		return nil, false, err
	}
	arrived, _ := e.in.Peek(e.in.Buffered())
	if e.afterCR {
		e.afterCR = false
		if arrived[0] == '\n' {
			_, _ = e.in.Discard(1)
			return nil, false, nil
		}
	}
	n := bytes.IndexByte(arrived, '\n')
	ends = n >= 0
	if !ends {
		n = len(arrived)
	}
	if cr := bytes.IndexByte(arrived[:n], '\r'); cr >= 0 {
		n, ends, e.afterCR = cr, true, true
	}
	// Discarded bytes stay where they are until the buffer is filled again.
	_, _ = e.in.Discard(n)
	if ends {
		_, _ = e.in.Discard(1)
	}
	return arrived[:n], ends, nil
}

// AppendEvent writes a message as an event of one line of data.
func AppendEvent(b []byte, m Message) []byte {
	b = append(b, "event: message\ndata: "...)
	return append(AppendLine(b, m), '\n')
}

// AppendLine writes a message as one line, with its end. White space between tokens may change for it.
func AppendLine(b []byte, m Message) []byte {
	from := len(b)
	b = m.Append(b)
	for i := from; i < len(b); i++ { // within strings JSON has no line ends
		if b[i] == '\n' || b[i] == '\r' {
			b[i] = ' '
		}
	}
	return append(b, '\n')
}
