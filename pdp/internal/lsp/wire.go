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

const mostFrame = 16 << 20 // bytes

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

// read reads the next message. It passes over bytes up to the next line that begins a frame. A frame that holds
// no message is a *fault.
func (w *wire) read() (*message, error) {
	length := int64(-1)
	for length < 0 {
		var err error
		if length, err = w.header(); err != nil {
			return nil, err
		}
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

// header reads lines up to an empty one. It returns the length of the frame behind them, which is negative if they are the
// header of none. A line that the reader's memory does not hold is read as several.
func (w *wire) header() (length int64, err error) {
	length = -1
	for {
		line, _, err := w.in.ReadLine()
		if err != nil || len(line) == 0 {
			return length, err
		}
		name, value, _ := strings.Cut(string(line), ":")
		if strings.EqualFold(name, "Content-Length") {
			if length, err = strconv.ParseInt(strings.TrimSpace(value), 10, 48); err != nil {
				length = -1
			}
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
