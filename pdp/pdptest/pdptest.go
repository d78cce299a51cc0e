// Package pdptest makes no promise: it is for the tests of this module alone.
// It runs a real server for tests, as net/http/httptest does: on a free port of
// loopback, with a clock that stands still and ids that count, so that what it
// answers can be compared byte for byte. Start with [Start], and give it a
// [Bundle].
package pdptest

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/tools/txtar"

	"policy-service/pdp"
	"policy-service/pdp/internal/server"
)

// Now is what the clock of every test server reads.
var Now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// patience is how long a test server may take for anything before the test
// fails instead of hanging: a bundle of 100,000 entities under the race detector
// takes a while to load.
const patience = time.Minute

// Server is a server that runs until its test ends.
type Server struct {
	*server.Server
	// URL is http://host:port, with TLS https://host:port.
	URL string
	// Client is what asks. With TLS it needs the roots to trust; see [Server.Trust].
	Client *http.Client

	t testing.TB
}

// Option changes the configuration of a test server before it starts.
type Option func(*server.Config)

// Start runs a server on a bundle and stops it when the test ends. A bundle that
// does not load fails the test.
func Start(t testing.TB, source pdp.Source, options ...Option) *Server {
	t.Helper()
	s, err := TryStart(t, source, options...)
	if err != nil {
		t.Fatalf("the test server does not start:\n%v", err)
	}
	return s
}

// TryStart starts a server as [Start] does, and returns the error if it does not start.
func TryStart(t testing.TB, source pdp.Source, options ...Option) (*Server, error) {
	t.Helper()
	config := server.Config{
		Listen: "127.0.0.1:0",
		Program: server.Program{
			Source: source,
			PDP: pdp.Options{
				Now:   func() time.Time { return Now },
				NewID: IDs(),
				Quiet: 20 * time.Millisecond, // tests write files in one go
			},
		},
	}
	for _, option := range options {
		option(&config)
	}
	s, err := server.New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Start(ctx); err != nil {
		return nil, err
	}
	scheme := "http://"
	if config.TLS.CertFile != "" {
		scheme = "https://"
	}
	running := &Server{Server: s, URL: scheme + s.Addr(), Client: http.DefaultClient, t: t}
	t.Cleanup(running.stop)
	return running, nil
}

// Serve starts a server before the tests of a package, for a TestMain. Its clock is that of the machine. The caller must call
// stop, also after an error.
func Serve(source pdp.Source, options ...Option) (addr string, stop func(), err error) {
	config := server.Config{Listen: "127.0.0.1:0", Program: server.Program{Source: source}}
	for _, option := range options {
		option(&config)
	}
	s, err := server.New(config)
	if err != nil {
		return "", func() {}, err
	}
	stop = func() { _ = s.Stop(context.Background()) }
	if err := s.Start(context.Background()); err != nil {
		return "", stop, err
	}
	return s.Addr(), stop, nil
}

// Redirect sends what the default transport of HTTP is asked of one address to another, so that an example can name an
// address that its readers have.
func Redirect(address, to string) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if addr == address {
			addr = to
		}
		return dial(ctx, network, addr)
	}
	http.DefaultTransport = transport
}

// Trust has the client trust an authority, and show certificates where some are given.
func (s *Server) Trust(a *Authority, certificates ...tls.Certificate) {
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: a.Pool, Certificates: certificates},
		ForceAttemptHTTP2: true,
	}
	s.t.Cleanup(transport.CloseIdleConnections)
	s.Client = &http.Client{Transport: transport}
}

// Stop is [server.Server.Stop], which would wait seconds for the first request of a connection that the client has to spare.
func (s *Server) Stop(ctx context.Context) error {
	s.Client.CloseIdleConnections()
	return s.Server.Stop(ctx)
}

func (s *Server) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		s.t.Errorf("the test server does not stop: %v", err)
	}
}

// IDs returns a source of ids that count from 1, in the form of a UUIDv7.
func IDs() func() string {
	var n atomic.Int64
	return func() string { return fmt.Sprintf("00000000-0000-7000-8000-%012d", n.Add(1)) }
}

// Bundle is a bundle made of files, by slash path.
func Bundle(files map[string]string) pdp.Source {
	fsys := make(fstest.MapFS, len(files))
	for name, content := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(content), Mode: 0o644}
	}
	return pdp.FS(fsys)
}

// Txtar is a bundle made of the files of a txtar archive.
func Txtar(archive string) pdp.Source {
	files := make(map[string]string)
	for _, f := range txtar.Parse([]byte(archive)).Files {
		files[f.Name] = string(f.Data)
	}
	return Bundle(files)
}

// Response is an answer, read to its end.
type Response struct {
	Status int
	Header http.Header
	Body   string
}

// Post sends a body as application/json. Headers are given as name, value, ….
func (s *Server) Post(path, body string, headers ...string) Response {
	s.t.Helper()
	return s.Do(http.MethodPost, path, body, append([]string{"Content-Type", "application/json"}, headers...)...)
}

// Get asks for a path.
func (s *Server) Get(path string, headers ...string) Response {
	s.t.Helper()
	return s.Do(http.MethodGet, path, "", headers...)
}

// Do sends any request. Headers are given as name, value, …; the last of a name
// counts, and "" takes a header away.
func (s *Server) Do(method, path, body string, headers ...string) Response {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, s.URL+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
		if headers[i+1] == "" {
			r.Header.Del(headers[i])
		}
	}
	answer, err := s.Client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	var read bytes.Buffer
	if _, err := io.Copy(&read, answer.Body); err != nil {
		s.t.Fatal(err)
	}
	return Response{answer.StatusCode, answer.Header, read.String()}
}
