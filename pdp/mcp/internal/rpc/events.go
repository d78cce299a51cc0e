package rpc

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// Events reads messages out of a stream of server-sent events.
type Events struct {
	in   *bufio.Reader
	most int
	// head is what of a line is kept: all of it if it is data, enough to tell if it is not.
	head []byte
	// begun reports that the first line has been read, and afterCR that the last line ended with a CR: an LF that comes
	// next is of the same end. Nobody waits for it.
	begun, afterCR bool
	failed         error
}

// ErrTooLarge is of an event, or a line, that is larger than its reader takes.
var ErrTooLarge = errors.New("an event is larger than is taken")

// NewEvents reads from r. An event with more than most bytes of data is an error.
func NewEvents(r io.Reader, most int) *Events { return &Events{in: bufio.NewReader(r), most: most} }

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
			if len(data) > 0 {
				return data, nil
			}
			has = false
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		if string(field) != "data" { // a comment, or what resumes streams, which nobody does here
			continue
		}
		value = bytes.TrimPrefix(value, []byte(" "))
		if has {
			data = append(data, '\n')
		}
		if len(data)+len(value) > e.most {
			return nil, e.fail(ErrTooLarge)
		}
		data, has = append(data, value...), true
	}
}

// line is the next line without its end, which is LF, CR LF or CR. Of a line that is no data only the head comes. It is
// good until the next call.
func (e *Events) line() ([]byte, error) {
	if e.failed != nil {
		return nil, e.failed
	}
	e.head = e.head[:0]
	for {
		piece, ends, err := e.piece()
		if err != nil {
			return nil, e.fail(err)
		}
		if !e.keep(piece) {
			return nil, e.fail(ErrTooLarge)
		}
		if ends {
			break
		}
	}
	line := e.head
	if !e.begun {
		line, e.begun = bytes.TrimPrefix(line, []byte(byteOrderMark)), true
	}
	return line, nil
}

func (e *Events) fail(err error) error {
	e.failed = err
	return err
}

// keep adds a piece to the head of a line, as far as it is of use. It reports whether the line is not too large.
func (e *Events) keep(piece []byte) bool {
	const enough = len(byteOrderMark + "data:")
	if room := enough - len(e.head); room > 0 {
		n := min(room, len(piece))
		e.head, piece = append(e.head, piece[:n]...), piece[n:]
	}
	head := e.head
	if !e.begun {
		head = bytes.TrimPrefix(head, []byte(byteOrderMark))
	}
	if len(piece) == 0 || !bytes.HasPrefix(head, []byte("data:")) {
		return true
	}
	if len(e.head)+len(piece) > e.most+enough+len(" ") {
		return false
	}
	e.head = append(e.head, piece...)
	return true
}

// piece is what has arrived of a line; ends reports that it is its last piece. It is good until the next call.
func (e *Events) piece() (piece []byte, ends bool, err error) {
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
	// What is discarded stays where it is until the buffer is filled again.
	_, _ = e.in.Discard(n)
	if ends {
		_, _ = e.in.Discard(1)
	}
	return arrived[:n], ends, nil
}

// AppendEvent writes a message as an event of one line of data.
func AppendEvent(b []byte, m Message) []byte {
	b = append(b, "event: message\ndata: "...)
	from := len(b)
	b = m.Append(b)
	// Line ends between tokens would end the data. Within strings JSON has none.
	for i := from; i < len(b); i++ {
		if b[i] == '\n' || b[i] == '\r' {
			b[i] = ' '
		}
	}
	return append(b, "\n\n"...)
}
