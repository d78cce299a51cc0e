package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// ErrNotInProcess is the error of a request by [Server.Transport] to a server that listens, or does not run.
var ErrNotInProcess = errors.New("the server does not answer in its process; set Program.InProcess, and start it")

// Transport asks a server with [Program.InProcess], without any connection: a request goes to the server's routes as it
// is, whatever host its URL names. The answer is whole when it is returned.
func (s *Server) Transport() http.RoundTripper {
	return transport{s.listeners}
}

type transport struct{ listeners *listeners }

// RoundTrip implements [http.RoundTripper].
func (t transport) RoundTrip(sent *http.Request) (*http.Response, error) {
	handler := t.listeners.inProcess.Load()
	if handler == nil {
		if sent.Body != nil {
			_ = sent.Body.Close()
		}
		return nil, ErrNotInProcess
	}
	return answered(sent.Context(), *handler, sent)
}

// answered returns a handler's answer to a request that comes by no connection.
func answered(ctx context.Context, by http.Handler, sent *http.Request) (_ *http.Response, err error) {
	if sent.Body != nil {
		defer func() { _ = sent.Body.Close() }()
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	answer := &answer{header: http.Header{}}
	defer func() {
		if v := recover(); v == http.ErrAbortHandler {
			err = io.ErrUnexpectedEOF // as a client sees a connection that was cut off
		} else if v != nil {
			panic(v)
		}
	}()
	by.ServeHTTP(answer, received(ctx, sent))
	if err := ctx.Err(); err != nil && answer.status >= http.StatusInternalServerError {
		return nil, err // the client gave up, and that is no failure of the service
	}
	return answer.response(sent), nil
}

// received is a request as net/http gives it to a handler. Its header is that of the request that was sent: no route
// changes the header of a request.
func received(ctx context.Context, sent *http.Request) *http.Request {
	r := sent.WithContext(ctx)
	r.URL = &url.URL{Path: sent.URL.Path, RawPath: sent.URL.RawPath, RawQuery: sent.URL.RawQuery}
	r.RequestURI = r.URL.RequestURI()
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.1", 1, 1
	if r.Host == "" {
		r.Host = sent.URL.Host
	}
	if r.Body == nil {
		r.Body = http.NoBody
	} else if r.ContentLength == 0 && r.Body != http.NoBody { // a request to be sent says so that the length is not known
		r.ContentLength = -1
	}
	return r
}

// answer keeps what a handler writes.
type answer struct {
	header http.Header
	status int // 0 until the handler begins to write
	body   bytes.Buffer
}

// Header implements [http.ResponseWriter]: what changes after the handler began to write does not count.
func (a *answer) Header() http.Header {
	if a.status != 0 {
		return a.header.Clone()
	}
	return a.header
}

func (a *answer) WriteHeader(status int) {
	if a.status == 0 && status >= http.StatusOK {
		a.status = status
	}
}

func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

// Flush implements [http.Flusher]: a part of an answer leaves with all of it.
func (a *answer) Flush() { a.WriteHeader(http.StatusOK) }

func (a *answer) response(to *http.Request) *http.Response {
	a.WriteHeader(http.StatusOK)
	return &http.Response{
		Status:        fmt.Sprintf("%d %s", a.status, http.StatusText(a.status)),
		StatusCode:    a.status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        a.header,
		Body:          io.NopCloser(&a.body),
		ContentLength: int64(a.body.Len()),
		Request:       to,
	}
}
