package upstream

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"

	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/rpc"
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
		token, expires := s.renew(r)
		if err := c.Authorize(ctx, h, s.client.Principal, token, expires); err != nil {
			return nil, &Error{NotSent: true, Detail: "there are no credentials for the upstream", Err: err}
		}
		if _, ofPrincipal := c.(*exchange); !ofPrincipal {
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
	var (
		network     *net.OpError
		authority   x509.UnknownAuthorityError
		name        x509.HostnameError
		certificate *tls.CertificateVerificationError
	)
	for _, known := range []error{io.EOF, io.ErrUnexpectedEOF, errAddress, errTooMuch} {
		if errors.Is(err, known) {
			return err
		}
	}
	if errors.As(err, &network) || errors.As(err, &certificate) || errors.As(err, &authority) || errors.As(err, &name) {
		return err
	}
	return errBroken
}

// sessionHeader holds the id of a session in the legacy era.
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

// validSession reports whether a server's session id is one that can be sent back.
func validSession(id string) bool {
	return len(id) <= 4<<10 && !strings.ContainsFunc(id, func(r rune) bool { return r < '!' || r > '~' })
}
