package upstream

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/rpc"
)

// The codes of servers of the legacy era beside a status for an unknown session: SDKs have settled on them.
const (
	sessionNotFound = -32001 // with 404
	noSession       = -32000 // with 400
)

// errorCode is the code of the error of a response, 0 if it has none.
func errorCode(e jsontext.Value) int {
	read, _ := rpc.ReadError(e)
	return read.Code
}

// refused explains a status that refuses: by the response, if there is one, or by the reason why there is none.
func (s *httpSession) refused(t *httpStream) (Stream, error) {
	if t.status/100 == 3 {
		return nil, &Error{Detail: "the upstream answers with a redirect, which is not followed; configure the url that it leads to"}
	}
	m, err := response(t, s.upstream.options.Dropped)
	var broken *Error
	if errors.As(err, &broken) && !errors.Is(err, ErrAmbiguous) && !errors.Is(err, io.EOF) {
		return nil, err
	}
	e := &Error{Detail: "the upstream answers with status " + strconv.Itoa(t.status), Answer: forClients(t.status, m)}
	switch code := errorCode(m.Error); {
	case s.era == era.Legacy && s.id != "" && s.lost(t, code):
		e.Gone, e.NotSent = true, t.status == http.StatusNotFound && t.turnedAway(m)
	case t.status == http.StatusBadRequest && (code == era.UnsupportedVersion || code == era.HeaderMismatch && s.era == era.Legacy):
		// The server was replaced by one of the other era, for the handshake went well.
		s.upstream.forget(s.era)
		e.Gone, e.NotSent = true, t.turnedAway(m)
	case m.Error == nil && s.era == era.Modern && slices.Contains(withErrors, t.status):
		s.upstream.forget(s.era)
		e.Gone = true
	case m.Error != nil && (t.shown.named || !ofServer(t.status)):
		return &single{message: m}, nil
	}
	return nil, e
}

// forClients is the error of a response that names no request, nil if it is about the gateway: what a server says of its
// credentials is for no client.
func forClients(status int, m rpc.Message) jsontext.Value {
	if ofServer(status) {
		return nil
	}
	return m.Error
}

// lost reports whether a refusal says that the server does not have the session. An error that names the request comes
// from a server that has it, unless its code says otherwise.
func (s *httpSession) lost(t *httpStream, code int) bool {
	switch t.status {
	case http.StatusNotFound:
		return !t.shown.named || code == sessionNotFound
	case http.StatusBadRequest:
		return !t.shown.named && code == noSession
	}
	return false
}

// turnedAway reports whether a refusal leaves no doubt that the server has not begun on the request. m is the response,
// if there is one. A stream of events that ends without an error may be that of a request which was begun.
func (t *httpStream) turnedAway(m rpc.Message) bool {
	return !t.shown.begun && (t.events == nil || m.Error != nil)
}

// ofWork reports whether a text is, or looks like, one of a server that has begun on a request.
func ofWork(text []byte) bool {
	o, err := rpc.ParseObject(text)
	if err != nil {
		text = bytes.TrimSpace(text)
		return bytes.HasPrefix(text, []byte("{")) || bytes.HasPrefix(text, []byte("["))
	}
	return o.Get("result") != nil || o.Get("method") != nil
}

// withErrors are the statuses with which a server of the modern era answers a request by a JSON-RPC error alone.
var withErrors = []int{http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed}

// single is the stream of a response that was read already.
type single struct {
	message rpc.Message
	read    bool
}

func (s *single) Next() (rpc.Message, error) {
	if s.read {
		return rpc.Message{}, io.EOF
	}
	s.read = true
	return s.message, nil
}

func (s *single) Close() {}
