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
}

// ErrTooLarge is of an event, or a line, that is larger than its reader takes.
var ErrTooLarge = errors.New("an event is larger than is taken")

// NewEvents reads from r. An event with more than most bytes is an error.
func NewEvents(r io.Reader, most int) *Events { return &Events{bufio.NewReader(r), most} }

// Next is the data of the next event that has any, whatever the event is called. [io.EOF] is the end of the stream; an
// event that the stream ends in is none.
func (e *Events) Next() ([]byte, error) {
	var data []byte
	has := false
	for {
		line, err := e.line()
		if err != nil {
			return nil, err
		}
		if len(line) == 0 {
			if has && len(data) > 0 {
				return data, nil
			}
			data, has = nil, false
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		if string(field) != "data" {
			continue
		}
		value = bytes.TrimPrefix(value, []byte(" "))
		if has {
			data = append(data, '\n')
		}
		if has = true; len(data)+len(value) > e.most {
			return nil, ErrTooLarge
		}
		data = append(data, value...)
	}
}

// line reads a line without its end, which is LF, CR LF or CR.
func (e *Events) line() ([]byte, error) {
	var line []byte
	for {
		b, err := e.in.ReadByte()
		if err != nil {
			return nil, err
		}
		switch b {
		case '\r':
			if next, err := e.in.Peek(1); err == nil && next[0] == '\n' {
				_, _ = e.in.ReadByte()
			}
			return line, nil
		case '\n':
			return line, nil
		}
		if len(line) > e.most+len("data: ") {
			return nil, ErrTooLarge
		}
		line = append(line, b)
	}
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
