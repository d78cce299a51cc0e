package rpc

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Fault is why a text is no message that may go on. It names what and where, and quotes nothing.
type Fault struct {
	// ID is the request's, if it could be read.
	ID     ID
	Code   int // ParseError or InvalidRequest
	Detail string
}

func (f *Fault) Error() string { return f.Detail }

// Failure is the response that says so.
func (f *Fault) Failure() Message { return Failure(f.ID, Error{Code: f.Code, Message: f.Detail}) }

// Limits bound what a message may cost.
type Limits struct {
	// Depth is how deep containers may nest; the message itself is the first.
	Depth int
	// ID is the greatest size of an id in bytes, as it is written.
	ID int
}

// DefaultLimits are those that nobody needs more of.
func DefaultLimits() Limits { return Limits{Depth: 32, ID: 256} }

// Parse reads a text that is one message, and nothing else.
func Parse(text []byte, limits Limits) (Message, *Fault) {
	var m Message
	o, err := ParseObject(text)
	if err != nil || !jsontext.Value(text).IsValid() {
		if jsontext.Value(text).Kind() == '[' {
			return m, &Fault{Code: InvalidRequest, Detail: "batches are not taken; send one message"}
		}
		return m, &Fault{Code: ParseError, Detail: "this is not one JSON object without ambiguities"}
	}
	if id := o.Get("id"); id != nil {
		if !exact(id, limits) {
			return m, &Fault{Code: InvalidRequest, Detail: "the id is neither a string nor an integer, or it is too long"}
		}
		m.ID = ID{string(id)}
	}
	m.Method, m.Params, m.Result, m.Error = o.GetString("method"), o.Get("params"), o.Get("result"), o.Get("error")
	switch {
	case o.GetString("jsonrpc") != "2.0":
		return m, &Fault{ID: m.ID, Code: InvalidRequest, Detail: `the message is not of JSON-RPC "2.0"`}
	case (m.Method != "") == (m.Result != nil || m.Error != nil), m.Result != nil && m.Error != nil:
		return m, &Fault{ID: m.ID, Code: InvalidRequest, Detail: "a message has either a method, or a result, or an error"}
	case m.Params != nil && m.Params.Kind() != '{':
		return m, &Fault{ID: m.ID, Code: InvalidRequest, Detail: "params is not an object"}
	case m.IsNotification() && !strings.HasPrefix(m.Method, "notifications/"):
		return m, &Fault{Code: InvalidRequest, Detail: "a request has an id"}
	case m.IsResponse() && m.ID.IsZero():
		return m, &Fault{Code: InvalidRequest, Detail: "a response has the id of its request"}
	}
	return m, nil
}

// exact reports whether an id is one that comes back as it was sent.
func exact(id jsontext.Value, limits Limits) bool {
	if len(id) > limits.ID {
		return false
	}
	switch id.Kind() {
	case '"':
		return true
	case '0':
		_, err := strconv.ParseInt(string(id), 10, 64)
		return err == nil
	}
	return false
}
