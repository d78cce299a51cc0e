package listener

import (
	"bufio"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener of connections in memory, whose clock is that of the test.
type pipes struct {
	offered chan net.Conn
	closed  chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.offered:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error   { close(p.closed); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

func (p pipes) dial() net.Conn {
	ours, theirs := net.Pipe()
	p.offered <- theirs
	return ours
}

// serve runs a server with so many connections until the bubble ends.
func serve(t *testing.T, limit int, handle http.HandlerFunc) pipes {
	t.Helper()
	on := pipes{make(chan net.Conn), make(chan struct{})}
	connections := NewConnections(limit, func() {})
	server := HTTPServer(connections.Attend(handle), connections, slog.New(slog.DiscardHandler))
	server.WriteTimeout = 0
	done := make(chan error, 1)
	go func() { done <- server.Serve(on) }()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return on
}

func send(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

// A stream may be silent for as long as it likes, and goes on after that.
func TestStreamsLast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		on := serve(t, 4, func(w http.ResponseWriter, _ *http.Request) {
			for range 3 {
				_, _ = io.WriteString(w, "data: x\n\n")
				_ = http.NewResponseController(w).Flush()
				time.Sleep(time.Hour)
			}
		})
		c := on.dial()
		defer func() { _ = c.Close() }()
		send(t, c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(answer.Body); err != nil || strings.Count(string(body), "data: x") != 3 {
			t.Errorf("got %q, %v", body, err)
		}
	})
}

// Who reads nothing of an answer is not waited for.
func TestNobodyReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failed := make(chan time.Duration, 1)
		on := serve(t, 4, func(w http.ResponseWriter, _ *http.Request) {
			begun := time.Now()
			for {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					failed <- time.Since(begun)
					return
				}
			}
		})
		c := on.dial()
		defer func() { _ = c.Close() }()
		send(t, c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		if after := <-failed; after != writeTime {
			t.Errorf("after %v", after)
		}
	})
}

// One whose body does not arrive makes way for another; one that is answered does not.
func TestBodiesMakeWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		on := serve(t, 2, func(w http.ResponseWriter, r *http.Request) {
			_, err := io.ReadAll(r.Body)
			if r.URL.Path == "/long" {
				<-release
			}
			if err == nil {
				_, _ = io.WriteString(w, "done")
			}
		})
		slow, long := on.dial(), on.dial()
		send(t, slow, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc")
		send(t, long, "POST /long HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nok")
		time.Sleep(notHeardOf)
		next := on.dial()
		send(t, next, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		if answer, err := http.ReadResponse(bufio.NewReader(next), nil); err != nil || answer.StatusCode != http.StatusOK {
			t.Errorf("got %v, %v", answer, err)
		}
		if _, err := slow.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("the slow one: %v", err)
		}
		close(release)
		if answer, err := http.ReadResponse(bufio.NewReader(long), nil); err != nil || answer.StatusCode != http.StatusOK {
			t.Errorf("the one that is answered: %v, %v", answer, err)
		}
		for _, c := range []net.Conn{slow, long, next} {
			_ = c.Close()
		}
	})
}
