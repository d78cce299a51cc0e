package rpc

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Fault is why a text is no message that may go on. It names the fault and its place, and quotes nothing.
type Fault struct {
	// ID is the request's, if it could be read.
	ID     ID
	Code   int // ParseError or InvalidRequest
	Detail string
}

func (f *Fault) Error() string { return f.Detail }

// Failure is the response that says so.
func (f *Fault) Failure() Message { return Failure(f.ID, Error{Code: f.Code, Message: f.Detail}) }

// Limits of the cost of a message. The reader of its text bounds the size. A result of some MiB that is a table has room.
const (
	// MostID is the greatest size of an id in bytes, as it is written.
	MostID     = 256
	mostDepth  = 32 // of containers; the message itself is the first
	mostValues = 250_000
)

// Respond is the one method beside notifications that a client may send without an id.
const Respond = "authorization/respond"

// Parse reads a text that is one message, and nothing else. The message has slices of text, which must not change from
// then on.
//
// A text that two readers could read differently is refused: a member twice, at any depth and however it is escaped; bytes
// that are no UTF-8, also as an escape; a number beyond a double, and -0 on its way to a server; a known member in another case;
// an id that not everybody keeps, or null; a request without an id, which is a notification to some; anything before or after the
// message; several messages in an array.
func Parse(text []byte) (Message, *Fault) {
	s, fault := scan(text)
	if fault != nil {
		return Message{}, fault
	}
	m, detail := s.message()
	if detail != "" {
		return Message{}, &Fault{ID: m.ID, Code: InvalidRequest, Detail: detail}
	}
	m.read = s.inner
	return m, nil
}

// message makes a message of its members. Detail is the fault in it; "" is none.
func (s *scanned) message() (m Message, detail string) {
	id := s.top.Get("id")
	m.Params, m.Result, m.Error = s.top.Get("params"), s.top.Get("result"), s.top.Get("error")
	if id != nil {
		var ok bool
		if m.ID, ok = ReadID(id); !ok {
			return m, fmt.Sprintf("the id is neither a string nor an integer of 64 bits, or it has more than %d bytes", MostID)
		}
	}
	method := s.top.Get("method")
	forms := slices.DeleteFunc([]jsontext.Value{method, m.Result, m.Error}, func(v jsontext.Value) bool { return v == nil })
	m.Method = s.top.GetString("method")
	switch {
	case s.top.GetString("jsonrpc") != "2.0":
		return m, `the message is not of JSON-RPC "2.0"`
	case s.misspelt:
		return m, "a member is spelt in another case than JSON-RPC or MCP has it"
	case method != nil && m.Method == "":
		return m, "the method is not a string, or it is empty"
	case len(forms) != 1:
		return m, "a message has either a method, or a result, or an error"
	case method != nil:
		return m, m.wrongRequest(s.negativeZero)
	}
	return m, m.wrongResponse()
}

func (m Message) wrongRequest(negativeZero bool) string {
	notification := strings.HasPrefix(m.Method, "notifications/")
	switch {
	case m.Params != nil && m.Params.Kind() != '{':
		return "params is not an object"
	case m.ID.IsZero() && !notification && m.Method != Respond:
		return "a request has an id"
	case !m.ID.IsZero() && notification:
		return "a notification has no id"
	case negativeZero:
		return "a number is -0, which not everybody tells from 0"
	}
	return ""
}

func (m Message) wrongResponse() string {
	switch {
	case m.Params != nil:
		return "a response has no params"
	case m.ID.IsZero():
		return "a response has the id of its request"
	case m.Result != nil && m.Result.Kind() != '{':
		return "a result is not an object"
	case m.Error != nil:
		if _, err := ReadError(m.Error); err != nil {
			return err.Error()
		}
	}
	return ""
}

// ReadID reads an id where one message names another: requestId of a cancellation, a progress token. Ok is false for a
// value that is no id, or would not come back as it was sent.
func ReadID(v jsontext.Value) (id ID, ok bool) {
	if len(v) > MostID {
		return ID{}, false
	}
	switch v.Kind() {
	case '"':
		s, err := jsontext.AppendUnquote(nil, v)
		if err != nil {
			return ID{}, false
		}
		return StringID(string(s)), true
	case '0':
		if n, err := strconv.ParseInt(string(v), 10, 64); err == nil && string(v) != "-0" {
			return IntID(n), true
		}
	}
	return ID{}, false
}
