// Package httpclient is an HTTP client of a running server, for commands at a terminal. Start with [New]. [Server.Call]
// sends one request with bounded bodies both ways, and [Server.Ask] one request whose answer is read as it comes.
//
// It does not trust the server: it bounds every answer, and follows no redirect. It sends the credential only to the
// origin that it was given, and no error holds the credential.
package httpclient

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
)

// Server is one server, by its base URL.
type Server struct {
	base       string // without a slash at its end
	credential string
	http       http.Client
	wait       func(context.Context, time.Duration) error
}

// Options are how a server is asked. The zero value sends no credential.
type Options struct {
	// Credential is an API key or a token, sent as Bearer.
	Credential string
	// Roots are the authorities to trust; nil is those of the system.
	Roots *x509.CertPool
	// Transport carries the requests, such as to a server in the same process. The default opens connections, and
	// trusts Roots.
	Transport http.RoundTripper
	// Wait waits between attempts. The default waits in real time.
	Wait func(context.Context, time.Duration) error
}

const (
	// callTimeout bounds one call. It is long because a server reads its whole log to count.
	callTimeout = 5 * time.Minute
	dialTimeout = 10 * time.Second
)

// Socket is the path of a Unix socket in an address unix:PATH. It is not ok in any other address.
func Socket(address string) (path string, ok bool) { return strings.CutPrefix(address, "unix:") }

// SocketURL begins the URLs of requests that [OverSocket] carries: without credentials, a server takes names of this machine
// alone.
const SocketURL = "http://localhost"

// OverSocket carries requests to the server at a Unix socket; the host of their URLs does not count.
func OverSocket(path string) *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "unix", path)
		},
		IdleConnTimeout: time.Minute,
	}
}

// New makes a client of the server at a base URL, or at a Unix socket, unix:PATH. The URL is https, or http on this machine.
// New sends nothing.
func New(baseURL string, o Options) (*Server, error) {
	if path, ok := Socket(baseURL); ok && o.Transport == nil {
		baseURL, o.Transport = SocketURL, OverSocket(path)
		if !filepath.IsAbs(path) {
			return nil, errors.New("a socket needs its whole path; try unix:/run/policy-service/pdp.sock")
		}
	}
	u, err := url.Parse(baseURL)
	switch {
	case err != nil, u.Hostname() == "", u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("the server's address is no URL; write it like https://pdp.example.com, or unix:PATH for a socket")
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || strings.Contains(baseURL, "#"):
		return nil, errors.New("the server's URL holds credentials, a query or a fragment; leave them out")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return nil, errors.New("plain http to another machine lets anybody on the way read the answers and the credential; use https")
	case strings.ContainsFunc(o.Credential, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return nil, errors.New("the credential has characters that no header can carry; give the key alone, as keys add printed it")
	}
	s := &Server{base: strings.TrimRight(baseURL, "/"), credential: o.Credential, wait: o.Wait}
	if s.wait == nil {
		s.wait = wait
	}
	if s.http.Transport = o.Transport; o.Transport == nil {
		s.http.Transport = connections(o.Roots)
	}
	s.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return s, nil
}

func connections(roots *x509.CertPool) http.RoundTripper {
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout: dialTimeout,
		TLSClientConfig:     &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2:   true,
		IdleConnTimeout:     time.Minute,

		MaxResponseHeaderBytes: 64 << 10,
	}
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && ip.IsLoopback()
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Wait waits before another attempt, or until ctx ends.
func (s *Server) Wait(ctx context.Context, d time.Duration) error { return s.wait(ctx, d) }

// longestPause is the longest pause between attempts to reach a server that is away.
const longestPause = 5 * time.Second

// Again waits before another attempt after a number of failures in a row, longer after each. Its error is the one to
// give up with: err, if another attempt is of no use, or that of ctx.
func (s *Server) Again(ctx context.Context, failures int, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !Passing(err) {
		return err
	}
	return s.wait(ctx, min(50*time.Millisecond<<min(failures, 10), longestPause))
}

// Close closes idle connections.
func (s *Server) Close() { s.http.CloseIdleConnections() }

// Ask sends a request to a path of the server, and returns the answer if its status is one of those wanted. The caller
// closes its body.
func (s *Server) Ask(ctx context.Context, method, path string, header http.Header, body []byte, want ...int) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if header != nil {
		r.Header = header
	}
	if s.credential != "" {
		r.Header.Set("Authorization", "Bearer "+s.credential)
	}
	answer, err := s.http.Do(r)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // without the URL, which the caller knows
		}
		return nil, err
	}
	if slices.Contains(want, answer.StatusCode) {
		return answer, nil
	}
	defer func() { _ = answer.Body.Close() }()
	return nil, s.refusal(answer)
}

// Call is one request with a body of bounded size each way.
type Call struct {
	Method, Path string
	Query        url.Values
	// Sends is the media type of Body.
	Sends string
	Body  []byte
	// Most bounds the answer in bytes. Any status but Want is an error; 0 is 200.
	Most int64
	Want int
	// Tag is the ETag of the answer that is there already, "" if none is.
	Tag string
}

// Call sends a request, and returns the body of the answer.
func (s *Server) Call(ctx context.Context, c Call) ([]byte, error) {
	body, _, err := s.Tagged(ctx, c)
	return body, err
}

// Tagged is [Server.Call] with the ETag of the answer. If the answer still is that with the Tag, there is no body.
func (s *Server) Tagged(ctx context.Context, c Call) (body []byte, tag string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	path := c.Path
	if len(c.Query) > 0 {
		path += "?" + c.Query.Encode()
	}
	header := http.Header{}
	if c.Sends != "" {
		header.Set("Content-Type", c.Sends)
	}
	want := []int{cmp.Or(c.Want, http.StatusOK)}
	if c.Tag != "" {
		header.Set("If-None-Match", c.Tag)
		want = append(want, http.StatusNotModified)
	}
	answer, err := s.Ask(ctx, c.Method, path, header, c.Body, want...)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = answer.Body.Close() }()
	tag = answer.Header.Get("ETag")
	if answer.StatusCode == http.StatusNotModified {
		return nil, tag, nil
	}
	body, err = io.ReadAll(io.LimitReader(answer.Body, c.Most+1))
	if err == nil && int64(len(body)) > c.Most {
		err = fmt.Errorf("the server's answer has more than %d bytes", c.Most)
	}
	return body, tag, err
}

// Get reads the content of a path, of at most so many bytes.
func (s *Server) Get(ctx context.Context, path string, query url.Values, most int64) ([]byte, error) {
	return s.Call(ctx, Call{Method: http.MethodGet, Path: path, Query: query, Most: most})
}

// GetJSON is [Server.Get] of JSON, which becomes a T. what names the answer in an error.
func GetJSON[T any](ctx context.Context, s *Server, path string, query url.Values, most int64, what string) (T, error) {
	return CallJSON[T](ctx, s, Call{Method: http.MethodGet, Path: path, Query: query, Most: most}, what)
}

// PostJSON sends a value as JSON, and makes a T of the answer. what names the answer in an error.
func PostJSON[T any](ctx context.Context, s *Server, path string, value any, most int64, what string) (got T, err error) {
	body, err := json.Marshal(value)
	if err != nil {
		return got, err
	}
	c := Call{Method: http.MethodPost, Path: path, Sends: "application/json", Body: body, Most: most}
	return CallJSON[T](ctx, s, c, what)
}

// CallJSON is [Server.Call] with an answer in JSON, which becomes a T. what names the answer in an error.
func CallJSON[T any](ctx context.Context, s *Server, c Call, what string) (got T, err error) {
	body, err := s.Call(ctx, c)
	if err != nil {
		return got, err
	}
	if err := json.Unmarshal(body, &got); err != nil {
		return got, fmt.Errorf("the server's answer is no %s: %w", what, err)
	}
	return got, nil
}
