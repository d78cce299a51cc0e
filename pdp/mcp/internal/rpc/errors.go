package rpc

import (
	"errors"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

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

// ReadError reads an error member. Data is a slice of v.
func ReadError(v jsontext.Value) (Error, error) {
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
	b := strconv.AppendInt([]byte(`{"code":`), int64(e.Code), 10)
	b = append(b, `,"message":`...)
	b, _ = jsontext.AppendQuote(b, e.Message) // the text is whole, whatever the error says
	if e.Data != nil {
		b = append(append(b, `,"data":`...), e.Data...)
	}
	return append(b, '}')
}
