package upstream

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/rpc"
)

const (
	jsonType    = "application/json"
	eventStream = "text/event-stream"
	both        = jsonType + ", " + eventStream
)

// errSlow is of a server that lets one wait for longer than the configuration has it.
var errSlow = errors.New("nothing came in time")

// exchange sends a request, and returns when its answer begins, whatever its status is.
func (s *httpSession) exchange(ctx context.Context, r Request) (*httpStream, error) {
	if s.ctx.Err() != nil {
		return nil, gone()
	}
	if ctx.Err() != nil {
		return nil, &Error{NotSent: true, Detail: "nobody waits for an answer any more", Err: context.Cause(ctx)}
	}
	id := rpc.IntID(s.last.Add(1))
	silence := s.upstream.options.Timeout
	if r.Method == "subscriptions/listen" {
		silence = forever
	}
	t := s.newStream(ctx, id, silence)
	response, err := s.do(t.ctx, http.MethodPost, both, r.message(id).Append(nil), r)
	if err != nil {
		t.abandon(err.NotSent)
		return nil, err
	}
	t.take(response)
	t.patience.Stop()
	return t, nil
}

// do sends an HTTP request, and follows nothing. R is the request that its body is, if it is one.
func (s *httpSession) do(ctx context.Context, method, accept string, body []byte, r Request) (*http.Response, *Error) {
	h := make(http.Header, 8)
	if c := s.upstream.options.Credentials; c != nil {
		client := *s.client.Load()
		if r.Token != "" {
			client.Token, client.Expires = r.Token, r.Expires
			s.client.Store(&client)
		}
		if err := c.Authorize(ctx, h, client); err != nil {
			return nil, &Error{NotSent: true, Detail: "there are no credentials for the upstream", Err: err}
		}
		if t, ok := c.(*tokens); !ok || !t.exchanges() {
			s.upstream.learn(h)
		}
	}
	s.header(h, accept, r)
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { connected.Store(false) }, // again only if not a byte was written
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	request := (&http.Request{Method: method, URL: s.upstream.target, Host: s.upstream.target.Host, Header: h}).WithContext(ctx)
	if body != nil {
		h["Content-Type"] = []string{jsonType}
		request.ContentLength = int64(len(body))
		request.Body = io.NopCloser(bytes.NewReader(body))
		request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	}
	response, err := s.upstream.transport.RoundTrip(request)
	if err != nil {
		return nil, &Error{NotSent: !connected.Load(), Detail: "the upstream did not answer", Err: reason(ctx, err)}
	}
	return response, nil
}

var errBroken = errors.New("the connection failed, or what came is not HTTP")

// reason is an error of net/http for operators, without the words of a server.
func reason(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	var network *net.OpError
	var certificate *tls.CertificateVerificationError
	for _, known := range []error{io.EOF, io.ErrUnexpectedEOF, errAddress, errTooMuch} {
		if errors.Is(err, known) {
			return err
		}
	}
	if errors.As(err, &network) || errors.As(err, &certificate) {
		return err
	}
	return errBroken
}

const sessionHeader = "Mcp-Session-Id"

// repeats are headers by which net/http would send a request again that may have been executed.
var repeats = []string{"Idempotency-Key", "X-Idempotency-Key"}

// header adds the headers that a server wants to h, which has credentials at most. None of them is a client's.
func (s *httpSession) header(h http.Header, accept string, r Request) {
	for _, name := range repeats {
		delete(h, name)
	}
	h["Accept"] = []string{accept}
	h["User-Agent"] = []string{s.upstream.agent}
	if s.version != "" {
		h[era.VersionHeader] = []string{s.version}
	}
	if s.id != "" {
		h[sessionHeader] = []string{s.id}
	}
	if r.after != "" {
		h["Last-Event-Id"] = []string{r.after}
	}
	if s.era == era.Modern && r.Method != "" {
		mirror(h, r)
	}
}

// mirror adds to h what the modern era wants to see of a request's body in headers, and what of its parameters the caller
// has mirrored.
func mirror(h http.Header, r Request) {
	h[era.MethodHeader] = []string{era.EncodeHeader(r.Method)}
	if member, has := era.Named[r.Method]; has {
		if name := r.Params.GetString(member); name != "" {
			h[era.NameHeader] = []string{era.EncodeHeader(name)}
		}
	}
	for name, values := range r.Headers {
		if name = http.CanonicalHeaderKey(name); strings.HasPrefix(name, era.ParamPrefix) {
			h[name] = values
		}
	}
}

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
	case m.Error != nil && (t.named || !ofServer(t.status)):
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
		return !t.named || code == sessionNotFound
	case http.StatusBadRequest:
		return !t.named && code == noSession
	}
	return false
}

// turnedAway reports whether a refusal leaves no doubt that the server has not begun on the request. m is the response,
// if there is one. A stream of events that ends without an error may be that of a request which was begun.
func (t *httpStream) turnedAway(m rpc.Message) bool {
	return !t.begun && (t.events == nil || m.Error != nil)
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
