package lsp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// The wire of the Language Server Protocol: frames of JSON-RPC 2.0. A frame is header lines, of which Content-Length counts,
// an empty line, and so many bytes. The libraries for it end a connection with the first frame that is none; an editor
// would then have no language server any more, because of one that is wrong.

const (
	mostHeader = 4 << 10 // bytes of one line of a header
	mostFrame  = 16 << 20
)

// message is a request, a notification or an answer. A notification has no id.
type message struct {
	Version string         `json:"jsonrpc"`
	ID      jsontext.Value `json:"id,omitzero"`
	Method  string         `json:"method,omitzero"`
	Params  jsontext.Value `json:"params,omitzero"`
	Result  jsontext.Value `json:"result,omitzero"`
	Error   *fault         `json:"error,omitzero"`
}

// fault is the error of an answer.
type fault struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (f *fault) Error() string { return f.Message }

// The codes of faults.
const (
	parseError     = -32700
	invalidRequest = -32600
	unknownMethod  = -32601
	invalidParams  = -32602
	notInitialized = -32002
)

// wire reads and writes messages.
type wire struct {
	in *bufio.Reader

	mu  sync.Mutex
	out io.Writer
}

// errNoFrame: the bytes are no frame, and more can follow.
var errNoFrame = errors.New("no frame")

// read reads the next message. It passes over bytes up to the next line that begins a frame. A frame that holds
// no message is a *fault.
func (w *wire) read() (*message, error) {
	length, err := w.header()
	for errors.Is(err, errNoFrame) {
		length, err = w.header()
	}
	if err != nil {
		return nil, err
	}
	if length > mostFrame {
		if _, err := io.CopyN(io.Discard, w.in, length); err != nil {
			return nil, err
		}
		return nil, &fault{invalidRequest, fmt.Sprintf("a message has at most %d bytes", mostFrame)}
	}
	text := make([]byte, length)
	if _, err := io.ReadFull(w.in, text); err != nil {
		return nil, err
	}
	m := new(message)
	if err := json.Unmarshal(text, m); err != nil {
		return nil, &fault{parseError, "this is no message of JSON-RPC"}
	}
	return m, nil
}

// header reads the header of a frame.
func (w *wire) header() (length int64, err error) {
	length = -1
	for {
		line, err := w.line()
		if err != nil {
			return 0, err
		}
		if line == "" {
			if length < 0 {
				return 0, errNoFrame
			}
			return length, nil
		}
		name, value, _ := strings.Cut(line, ":")
		if strings.EqualFold(name, "Content-Length") {
			if length, err = strconv.ParseInt(strings.TrimSpace(value), 10, 48); err != nil || length < 0 {
				length = -1
			}
		}
	}
}

// line reads a line without its end. Of one that is too long it is the beginning.
func (w *wire) line() (string, error) {
	var b strings.Builder
	for {
		part, more, err := w.in.ReadLine()
		if err != nil {
			return "", err
		}
		if b.Len() < mostHeader {
			b.Write(part)
		}
		if !more {
			return b.String(), nil
		}
	}
}

// write writes a message.
func (w *wire) write(m message) error {
	m.Version = "2.0"
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err = fmt.Fprintf(w.out, "Content-Length: %d\r\n\r\n%s", len(text), text)
	return err
}

// notify sends a notification.
func (w *wire) notify(method string, params any) error {
	text, err := json.Marshal(params)
	if err != nil {
		return err
	}
	return w.write(message{Method: method, Params: text})
}

// answer answers a request.
func (w *wire) answer(id jsontext.Value, result any, err error) error {
	m := message{ID: id}
	var text []byte
	if err == nil {
		text, err = json.Marshal(result)
	}
	m.Result = text
	if err != nil {
		if m.Result = nil; !errors.As(err, &m.Error) {
			m.Error = &fault{invalidRequest, err.Error()}
		}
	}
	if len(m.ID) == 0 {
		m.ID = jsontext.Value("null")
	}
	return w.write(m)
}
