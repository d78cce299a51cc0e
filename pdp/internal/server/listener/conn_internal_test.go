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
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// heard is what a script of deadlines, reads and writes came to on one connection.
type heard []string

// upTo is a time to the nanosecond, so that no two things happen at once.
func upTo(g *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(g.Int64N(int64(most)))
}

// play does on a connection what a seed says. The other side sends and takes a byte now and then.
func play(seed uint64, ours, theirs net.Conn) (all heard) {
	var others sync.WaitGroup
	defer func() {
		_, _ = ours.Close(), theirs.Close()
		others.Wait()
	}()
	g := rand.New(rand.NewPCG(seed, 25))
	begun := time.Now()
	other := func(seed uint64, do func() error) {
		g := rand.New(rand.NewPCG(seed, 26))
		for {
			time.Sleep(upTo(g, time.Minute))
			if err := do(); errors.Is(err, io.ErrClosedPipe) || err == io.EOF {
				return
			}
		}
	}
	others.Go(func() { other(seed, func() error { _, err := theirs.Write([]byte("abc")); return err }) })
	others.Go(func() { other(seed+1, func() error { _, err := theirs.Read(make([]byte, 2)); return err }) })
	said := func(what string, n int, err error) {
		all = append(all, fmt.Sprintf("%v: %s %d, late %v", time.Since(begun), what, n, errors.Is(err, os.ErrDeadlineExceeded)))
	}
	moment := func() time.Time {
		switch g.IntN(6) {
		case 0:
			return time.Time{}
		case 1:
			return time.Unix(1, 0)
		}
		return time.Now().Add(1 + upTo(g, 40*time.Second))
	}
	for range 60 {
		switch g.IntN(6) {
		case 0, 1:
			_ = ours.SetReadDeadline(moment())
		case 2:
			_ = ours.SetWriteDeadline(moment())
		case 3:
			n, err := ours.Read(make([]byte, 1+g.IntN(4)))
			said("read", n, err)
		case 4:
			n, err := ours.Write([]byte("12345")[:1+g.IntN(5)])
			said("wrote", n, err)
		case 5: // what net/http does to end a read that it began for nothing
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				n, err := ours.Read(make([]byte, 1))
				said("read beside", n, err)
			}()
			time.Sleep(upTo(g, 10*time.Second))
			_ = ours.SetReadDeadline(time.Unix(1, 0))
			<-ended
			_ = ours.SetReadDeadline(moment())
		}
	}
	return all
}

// Whoever reads and writes sees each deadline at its time, and no other: just what a connection does that sets each.
func TestDeadlinesAreThoseOfTheConnection(t *testing.T) {
	t.Parallel()
	late, parts := 0, 0
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			ours, theirs := net.Pipe()
			want := play(seed, ours, theirs)
			ours, theirs = net.Pipe()
			got := play(seed, newConn(ours), theirs)
			if strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("seed %d:\n%s\nwant:\n%s", seed, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			for _, one := range want {
				if strings.HasSuffix(one, "late true") {
					late++
				}
				if strings.Contains(one, "wrote 2, late true") || strings.Contains(one, "wrote 4, late true") {
					parts++
				}
			}
		})
		if t.Failed() {
			return
		}
	}
	if late < 100 || parts < 10 {
		t.Errorf("%d deadlines ended something, %d of them a write in its middle: too few", late, parts)
	}
}

// counted is a connection that counts the deadlines that are set.
type counted struct {
	*net.TCPConn
	set *atomic.Int64
}

func (c counted) SetReadDeadline(t time.Time) error {
	c.set.Add(1)
	return c.TCPConn.SetReadDeadline(t)
}

func (c counted) SetWriteDeadline(t time.Time) error {
	c.set.Add(1)
	return c.TCPConn.SetWriteDeadline(t)
}

type countedListener struct {
	*net.TCPListener
	set *atomic.Int64
}

func (l countedListener) Accept() (net.Conn, error) {
	c, err := l.AcceptTCP()
	return counted{c, l.set}, err
}

// A request after another sets two deadlines at most, where net/http wants eight. The answer to a request that is not
// read is not cut off by a reset, for which net/http closes one half of the connection.
func TestFewDeadlinesAreSet(t *testing.T) {
	t.Parallel()
	on, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var set atomic.Int64
	server := HTTPServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength < 10 {
			_, _ = io.Copy(io.Discard, r.Body)
		}
		_, _ = io.WriteString(w, "yes")
	}), NewConnections(10, func() {}), slog.New(slog.DiscardHandler))
	ended := make(chan error, 1)
	go func() {
		ended <- (*Certificates)(nil).Serve(server, countedListener{on.(*net.TCPListener), &set})
	}()
	defer func() { _, _ = server.Close(), <-ended }()
	client, err := net.Dial("tcp", on.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	answers := bufio.NewReader(client)
	ask := func(body string, announced int) {
		t.Helper()
		if _, err := fmt.Fprintf(client, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", announced, body); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(answer.Body); err != nil || string(text) != "yes" {
			t.Fatalf("got %q, %v", text, err)
		}
	}
	ask("body", 4)
	before := set.Load()
	const requests = 100
	for range requests {
		ask("body", 4)
	}
	if n := set.Load() - before; n > 2*requests+2 {
		t.Errorf("%d requests set %d deadlines", requests, n)
	}
	ask(strings.Repeat("x", 1<<20), 10<<20)
	if _, err := answers.ReadByte(); err != io.EOF {
		t.Errorf("the connection ended with %v", err)
	}
}
