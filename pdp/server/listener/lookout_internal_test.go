package listener

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// piped is a listener with one connection.
type piped struct {
	one  chan net.Conn
	gone chan struct{}
}

func (p *piped) Accept() (net.Conn, error) {
	select {
	case c := <-p.one:
		return c, nil
	case <-p.gone:
		return nil, net.ErrClosed
	}
}

func (p *piped) Close() error   { close(p.gone); return nil }
func (p *piped) Addr() net.Addr { return &net.TCPAddr{} }

// talk has a client send requests as a seed says, one after the other or before the one before is answered, in one piece
// or in two, and perhaps go away. It says what became of each request.
func talk(seed uint64, ours, theirs net.Conn) (all []string) {
	g := rand.New(rand.NewPCG(seed, 27))
	var mu sync.Mutex
	said := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, fmt.Sprintf(format, args...))
	}
	connections := NewConnections(10, func() {})
	server := HTTPServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		connections.Works(CarrierOf(r.Context()))
		defer connections.Answers(CarrierOf(r.Context()))
		body, err := io.ReadAll(r.Body)
		takes, _ := time.ParseDuration(r.Header.Get("Takes"))
		select {
		case <-time.After(takes):
			said("%s done, body %q, %v", r.URL.Path, body, err)
		case <-r.Context().Done():
			said("%s left, body %q, %v", r.URL.Path, body, err)
		}
		_, _ = io.WriteString(w, r.URL.Path)
	}), connections, slog.New(slog.DiscardHandler))
	on := &piped{one: make(chan net.Conn, 1), gone: make(chan struct{})}
	on.one <- ours
	var ended sync.WaitGroup
	ended.Go(func() { _ = server.Serve(on) })
	ended.Go(func() {
		answers := bufio.NewReader(theirs)
		for {
			answer, err := http.ReadResponse(answers, nil)
			if err != nil {
				return
			}
			text, _ := io.ReadAll(answer.Body)
			said("answered %s", text)
		}
	})
	// Handlers take whole tens of seconds, and what the client does comes a second later each time, between them. So it
	// does not matter for what becomes of a request that somebody's end is seen a moment later.
	for n := range 1 + g.IntN(5) {
		method, body := "GET", ""
		if g.IntN(2) == 0 {
			method, body = "POST", strings.Repeat("x", g.IntN(3))
		}
		text := fmt.Sprintf("%s /%d HTTP/1.1\r\nHost: a\r\nTakes: %ds\r\nContent-Length: %d\r\n\r\n%s", method, n, 10*g.IntN(4), len(body), body)
		cut := len(text)
		if g.IntN(3) == 0 {
			cut = 1 + g.IntN(3)
		}
		_, err := io.WriteString(theirs, text[:cut])
		if err == nil {
			time.Sleep(time.Second)
			_, err = io.WriteString(theirs, text[cut:])
		}
		if err != nil {
			said("request %d was not taken", n)
		}
		if g.IntN(2) == 0 {
			time.Sleep(time.Duration(10*g.IntN(6)) * time.Second)
		}
		if g.IntN(6) == 0 {
			break
		}
	}
	time.Sleep(time.Second)
	_ = theirs.Close()
	time.Sleep(time.Minute)
	_ = server.Close()
	ended.Wait()
	if open, _, _ := connections.Counts(); open > 0 {
		said("%d connections are open", open)
	}
	slices.Sort(all) // a client reads an answer while the next request begins
	return all
}

// Whatever is put off, each request comes to what it comes to without.
func TestLookoutChangesNoAnswer(t *testing.T) {
	t.Parallel()
	left, ahead := 0, 0
	for seed := range uint64(400) {
		synctest.Test(t, func(t *testing.T) {
			ours, theirs := net.Pipe()
			want := talk(seed, ours, theirs) // net/http looks
			ours, theirs = net.Pipe()
			if got := talk(seed, newConn(ours), theirs); !slices.Equal(got, want) {
				t.Errorf("seed %d:\n%s\nwant:\n%s", seed, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			text := strings.Join(want, "\n")
			if strings.Contains(text, "open") {
				t.Errorf("seed %d:\n%s", seed, text)
			}
			left += strings.Count(text, "left")
			ahead += strings.Count(text, "done")
		})
		if t.Failed() {
			return
		}
	}
	if left < 50 || ahead < 300 {
		t.Errorf("%d handlers were left, %d were not: too few", left, ahead)
	}
}

// reads counts how often a connection is read.
type reads struct {
	net.Conn
	n *atomic.Int64
}

func (r reads) Read(p []byte) (int, error) {
	r.n.Add(1)
	return r.Conn.Read(p)
}

// A request that is answered soon is read, and nothing is read beside its handler.
func TestLookoutReadsNothingForShortRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := HTTPServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(w, r.Body)
			time.Sleep(lookEvery / 2)
		}), NewConnections(10, func() {}), slog.New(slog.DiscardHandler))
		ours, theirs := net.Pipe()
		var n atomic.Int64
		on := &piped{one: make(chan net.Conn, 1), gone: make(chan struct{})}
		on.one <- reads{ours, &n}
		var ended sync.WaitGroup
		ended.Go(func() { _ = (*Certificates)(nil).Serve(server, on) })
		answers := bufio.NewReader(theirs)
		const requests = 20
		for range requests {
			if _, err := io.WriteString(theirs, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody"); err != nil {
				t.Fatal(err)
			}
			answer, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatal(err)
			}
			if text, err := io.ReadAll(answer.Body); err != nil || string(text) != "body" {
				t.Fatalf("got %q, %v", text, err)
			}
		}
		if n := n.Load(); n > requests+1 {
			t.Errorf("%d requests were read %d times", requests, n)
		}
		_, _ = theirs.Close(), server.Close()
		ended.Wait()
		time.Sleep(2 * lookEvery) // the lookout goes round once more
	})
}

// A read of one byte that is no look ahead, such as that of the last byte for which a header has room, reads that byte.
func TestLookoutLeavesOtherReadsAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		c := newConn(ours)
		NewConnections(10, func() {}).ConnContext(t.Context(), c)
		defer time.Sleep(2 * lookEvery) // the lookout goes round once more
		defer func() { _, _ = c.Close(), theirs.Close() }()
		go func() { _, _ = io.WriteString(theirs, "abc") }()
		for _, want := range "abc" {
			one, err := bufio.NewReaderSize(io.LimitReader(c, 1), 16).ReadByte()
			if err != nil || one != byte(want) {
				t.Fatalf("got %q, %v, want %q", one, err, want)
			}
		}
	})
}

// A read that follows a look which has begun ends when it is to, and takes what the look found.
func TestLookoutKeepsDeadlines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		c := newConn(ours)
		NewConnections(10, func() {}).ConnContext(t.Context(), c)
		defer time.Sleep(2 * lookEvery) // the lookout goes round once more
		defer func() { _, _ = c.Close(), theirs.Close() }()
		ended := false
		c.ended = func() { ended = true }
		lookNow := func() {
			if n, err := c.Read(make([]byte, 1)); n != 0 || err != nil {
				t.Fatalf("got %d, %v", n, err)
			}
			time.Sleep(3 * lookEvery)
		}
		lookNow()
		begun := time.Now()
		_ = c.SetReadDeadline(begun.Add(5 * time.Second))
		if n, err := c.Read(make([]byte, 9)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begun) != 5*time.Second || ended {
			t.Errorf("got %d, %v, after %v, ended %v", n, err, time.Since(begun), ended)
		}
		_ = c.SetReadDeadline(time.Time{})
		lookNow()
		go func() { _, _ = io.WriteString(theirs, "ab") }()
		for got := ""; got != "ab"; {
			p := make([]byte, 9)
			n, err := c.Read(p)
			if got += string(p[:n]); err != nil || !strings.HasPrefix("ab", got) {
				t.Fatalf("got %q, %v", got, err)
			}
		}
		lookNow()
		if ended {
			t.Error("the end was seen before it was there")
		}
		_ = theirs.Close()
		synctest.Wait()
		if n, err := c.Read(make([]byte, 9)); n != 0 || err != io.EOF || !ended {
			t.Errorf("got %d, %v, ended %v", n, err, ended)
		}
	})
}

// A connection that is pushed out ends what is asked on it, also while no look has begun.
func TestHungUpEndsRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer func() { _ = theirs.Close() }()
		c := newConn(ours)
		ctx := NewConnections(10, func() {}).ConnContext(t.Context(), c)
		hangUp(c)
		select {
		case <-ctx.Done():
		default:
			t.Error("what is asked goes on")
		}
	})
}
