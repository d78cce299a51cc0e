// Package rpc reads and writes JSON-RPC messages of which there is one reading only: the message that is forwarded is the
// message that was decided about, byte for byte.
//
// Begin with [Parse], which makes a [Message] of a text or names the fault in it, and [Message.Append], which writes
// one. [Object] is for changing single members of a value while all others keep their bytes. [Events] and [AppendEvent]
// are the stream form that HTTP has for messages.
//
// The package knows JSON-RPC and nothing of MCP beside which members must not be misspelt. It does no I/O but reading a
// stream it is given.
package rpc

import (
	"errors"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// Message is one JSON-RPC message. Its values are the bytes that its sender wrote.
type Message struct {
	// ID is that of a request, or of the request that is answered. Notifications have none.
	ID ID
	// Method is that of a request or notification, "" of a response.
	Method string
	// Params is nil if there are none. Otherwise it is an object.
	Params jsontext.Value
	// A response has one of these.
	Result, Error jsontext.Value

	// read is the one of these that [Parse] has read as an object.
	read Object
}

// ParamsObject are the params. They are not read again after [Parse].
func (m Message) ParamsObject() (Object, error) { return m.object(m.Params) }

// ResultObject is the result. It is not read again after [Parse].
func (m Message) ResultObject() (Object, error) { return m.object(m.Result) }

func (m Message) object(v jsontext.Value) (Object, error) {
	// A value that was read does not change: where it still stands, it is still the same.
	if m.read.Is(v) {
		return m.read, nil
	}
	return ParseObject(v)
}

// IsRequest reports whether a message wants an answer.
func (m Message) IsRequest() bool { return m.Method != "" && !m.ID.IsZero() }

// IsNotification reports whether a message gets no answer.
func (m Message) IsNotification() bool { return m.Method != "" && m.ID.IsZero() }

// IsResponse reports whether a message answers another.
func (m Message) IsResponse() bool { return m.Method == "" }

// Append writes a message. The bytes of its values are as they were.
func (m Message) Append(b []byte) []byte {
	b = slices.Grow(b, len(`{"jsonrpc":"2.0","id":null,"method":"","params":}`)+len(m.ID.text)+len(m.Method)+len(m.Params)+len(m.Result)+len(m.Error)+1)
	b = append(b, `{"jsonrpc":"2.0"`...)
	if !m.ID.IsZero() {
		b = append(append(b, `,"id":`...), m.ID.text...)
	} else if m.IsResponse() {
		b = append(b, `,"id":null`...) // JSON-RPC has it so if the request's own could not be read
	}
	if m.Method != "" {
		b = append(b, `,"method":`...)
		b, _ = jsontext.AppendQuote(b, m.Method) // it is valid UTF-8, or would not have been parsed
	}
	for _, v := range []struct {
		name  string
		value jsontext.Value
	}{{"params", m.Params}, {"result", m.Result}, {"error", m.Error}} {
		if v.value != nil {
			b = append(append(b, `,"`+v.name+`":`...), v.value...)
		}
	}
	return append(b, '}')
}

// ID is the id of a request: 1 and "1" are two, and 9007199254740993 keeps all its digits. IDs can be compared: an id that is
// written with escapes is the same as one without. The zero ID is none.
type ID struct{ text string }

// IntID is a number as an id.
func IntID(n int64) ID { return ID{strconv.FormatInt(n, 10)} }

// StringID is a text as an id. It must be valid UTF-8.
func StringID(s string) ID { return ID{string(String(s))} }

// IsZero reports whether there is no id.
func (i ID) IsZero() bool { return i.text == "" }

// Text is the id in JSON, nil if there is none.
func (i ID) Text() jsontext.Value {
	if i.text == "" {
		return nil
	}
	return jsontext.Value(i.text)
}

// Unquoted is the text of an id that is a string.
func (i ID) Unquoted() (s string, ok bool) {
	b, err := jsontext.AppendUnquote(nil, i.text)
	return string(b), err == nil && jsontext.Value(i.text).Kind() == '"'
}

// Answer is the response to a request that went well.
func Answer(id ID, result jsontext.Value) Message { return Message{ID: id, Result: result} }

// Failure is the response to a request that did not. A zero id is that of a message that could not be read.
func Failure(id ID, e Error) Message { return Message{ID: id, Error: e.Value()} }

// Error is the error member of a response.
type Error struct {
	Code    int
	Message string
	// Data is nil if there are none.
	Data jsontext.Value
}

// The codes of JSON-RPC.
const (
	ParseError     = -32700
	InvalidRequest = -32600
	MethodNotFound = -32601
	InvalidParams  = -32602
	InternalError  = -32603
)

var errNoError = errors.New("an error is an object that has an integer as its code and a string as its message")

// ReadError reads an error member. Data is a slice of v. A response without an error is none, which costs nothing.
func ReadError(v jsontext.Value) (Error, error) {
	if v == nil {
		return Error{}, errNoError
	}
	o, err := ParseObject(v)
	if err != nil {
		return Error{}, errNoError
	}
	code, err := strconv.Atoi(string(o.Get("code")))
	if err != nil || o.Get("code").Kind() != '0' || o.Get("message").Kind() != '"' {
		return Error{}, errNoError
	}
	return Error{Code: code, Message: o.GetString("message"), Data: o.Get("data")}, nil
}

// Value is the error in JSON. Bytes of the message that are not UTF-8 are replaced.
func (e Error) Value() jsontext.Value {
	o := Object{}.With("code", jsontext.Value(strconv.Itoa(e.Code))).With("message", String(e.Message))
	if e.Data != nil {
		o = o.With("data", e.Data)
	}
	return o.Value()
}
