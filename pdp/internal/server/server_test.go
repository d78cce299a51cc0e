package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"strings"
	"testing"

	"policy-service/pdp"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest"
)

func TestListensOnLoopbackOnly(t *testing.T) {
	t.Parallel()
	for address, ok := range map[string]bool{
		"127.0.0.1:0":        true,
		"127.1.2.3:0":        true,
		"[::1]:0":            true,
		"localhost:0":        true,
		":8180":              false,
		"0.0.0.0:8180":       false,
		"[::]:8180":          false,
		"192.0.2.1:8180":     false,
		"example.com:8180":   false,
		"127.0.0.1":          false,
		"127.0.0.1.nip.io:1": false,
		"localhost.evil:1":   false,
		"8180":               false,
	} {
		_, err := server.New(server.Config{Program: server.Program{Source: bundle(t)}, Listen: address})
		if (err == nil) != ok {
			t.Errorf("%s: got %v, want accepted: %v", address, err, ok)
		}
		if err != nil && !strings.Contains(err.Error(), "; try ") {
			t.Errorf("%s: the error does not say what to try: %v", address, err)
		}
	}
}

func TestStartFailsWithAllProblems(t *testing.T) {
	t.Parallel()
	source := pdptest.Bundle(map[string]string{"a.cedar": "permit(", "b.cedar": "forbid("})
	s, err := server.New(server.Config{Program: server.Program{Source: source}, Listen: "127.0.0.1:0"})
	must(t, err)
	var problems pdp.Problems
	if err := s.Start(t.Context()); !errors.As(err, &problems) || len(problems) < 2 {
		t.Errorf("got %v, want the problems of both files", err)
	}
	if s.Addr() != "" {
		t.Errorf("it listens on %s all the same", s.Addr())
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Errorf("stopping what did not start: %v", err)
	}
}

func TestStartFailsWhereTheAddressIsTaken(t *testing.T) {
	t.Parallel()
	taken := pdptest.Start(t, bundle(t))
	s, err := server.New(server.Config{Program: server.Program{Source: bundle(t)}, Listen: taken.Addr()})
	must(t, err)
	if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "; try ") {
		t.Errorf("got %v, want an error that says what to try", err)
	}
}

func TestStopAnswersWhatWasAsked(t *testing.T) {
	t.Parallel()
	asked, release := make(chan struct{}), make(chan struct{})
	s := pdptest.Start(t, bundle(t), func(c *server.Config) {
		c.Program.PDP.Recorder = recorder(func() error { close(asked); <-release; return nil })
	})
	s.BePatient(0, patience)
	answered := make(chan pdptest.Response)
	go func() { answered <- s.Post(evaluationPath, readQuestion) }()
	<-asked

	stopped := make(chan error)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		stopped <- s.Stop(ctx)
	}()
	waitUntilRefused(t, s.Addr())
	select {
	case err := <-stopped:
		t.Fatalf("stopped with a request in flight: %v", err)
	default:
	}
	close(release)
	if got := <-answered; got.Status != 200 || got.Body != `{"decision":true}` {
		t.Errorf("got %d %s, want the answer", got.Status, got.Body)
	}
	if err := <-stopped; err != nil {
		t.Errorf("stop: %v", err)
	}
	stopAndWait(t, s) // once more does nothing
}

// waitUntilRefused returns when nobody listens on an address any more.
func waitUntilRefused(t *testing.T, addr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for ctx.Err() == nil {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if err != nil {
			return
		}
		_ = conn.Close()
	}
	t.Fatalf("still listening on %s", addr)
}

func TestStopCutsOffWhatTakesTooLong(t *testing.T) {
	t.Parallel()
	asked, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	s, err := server.New(server.Config{Program: server.Program{Source: bundle(t), PDP: pdp.Options{
		Recorder: recorder(func() error { close(asked); <-release; return nil }),
	}}, Listen: "127.0.0.1:0"})
	must(t, err)
	must(t, s.Start(t.Context()))
	conn, err := net.Dial("tcp", s.Addr())
	must(t, err)
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write(rawRequest([]byte("POST " + evaluationPath + " HTTP/1.1\nHost: localhost\nContent-Type: application/json\nContent-Length: auto\n\n" + readQuestion))); err != nil {
		t.Fatal(err)
	}
	<-asked
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Stop(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want what cut it off", err)
	}
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("read %d bytes of an answer that was cut off", n)
	}
}

func TestStartsOnce(t *testing.T) {
	t.Parallel()
	s := pdptest.Start(t, bundle(t))
	if err := s.Start(t.Context()); err == nil {
		t.Error("a second start succeeded")
	}
	replied(t, s.Post(evaluationPath, readQuestion), 200)
}

// writing is a bundle that is not read to its end before the test is over.
type writing struct{ over <-chan struct{} }

func (w writing) Open(string) (fs.File, error) {
	<-w.over
	return nil, fs.ErrNotExist
}

func TestStartEndsWithItsContext(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	defer close(over)
	s, err := server.New(server.Config{Program: server.Program{Source: pdp.FS(writing{over})}, Listen: "127.0.0.1:0"})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Start(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want what ended it", err)
	}
	if err := s.Reload(t.Context()); !errors.Is(err, pdp.ErrNoBundle) {
		t.Errorf("reload before a bundle: got %v", err)
	}
}

// TestAChunkedBodyEndsWithItsChunks: what the operator's page says to those who have a proxy that goes by the length.
func TestAChunkedBodyEndsWithItsChunks(t *testing.T) {
	t.Parallel()
	s := pdptest.Start(t, telling())
	conn, err := net.Dial("tcp", s.Addr())
	must(t, err)
	defer func() { _ = conn.Close() }()
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9999\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\nGET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
		evaluationPath, len(readQuestion), readQuestion)
	must(t, err)
	answers := bufio.NewReader(conn)
	for _, want := range []string{`{"decision":true`, `{"status":"ok"}`} {
		response, err := http.ReadResponse(answers, nil)
		must(t, err)
		body, err := io.ReadAll(response.Body)
		must(t, err)
		if response.StatusCode != http.StatusOK || !strings.HasPrefix(string(body), want) {
			t.Errorf("got %d %s, want %s", response.StatusCode, body, want)
		}
	}
}
