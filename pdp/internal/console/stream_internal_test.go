package console

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// There are no more than so many streams. A session that has one may have another in its place, and a place that is left is free.
func TestManyStreams(t *testing.T) {
	t.Parallel()
	s := streams{of: map[SessionID]*context.CancelCauseFunc{}}
	id := newTicket().id()
	first, left, err := s.begin(t.Context(), id)
	for n := 1; n < mostStreams && err == nil; n++ {
		_, _, err = s.begin(t.Context(), newTicket().id())
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.begin(t.Context(), newTicket().id()); !errors.Is(err, errCrowded) {
		t.Errorf("one more: %v", err)
	}
	ctx, done, err := s.begin(t.Context(), id)
	if err != nil || !errors.Is(context.Cause(first), errReplaced) {
		t.Errorf("another one of the same session: %v, and the one before %v", err, context.Cause(first))
	}
	left() // it knows by now that it was replaced, and takes nothing from the other one
	if ctx.Err() != nil {
		t.Errorf("the other one is over: %v", context.Cause(ctx))
	}
	s.end(id, errOver)
	if done(); !errors.Is(context.Cause(ctx), errOver) {
		t.Errorf("without its session it is over because %v", context.Cause(ctx))
	}
	if _, _, err := s.begin(t.Context(), newTicket().id()); err != nil {
		t.Errorf("a place was left: %v", err)
	}
}

// pipes are connections that hold nothing: what is written is read.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{} }

// A reader who reads nothing ends its own stream after ten seconds, and no other one.
func TestStalledReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 2)
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			to := &feed{v: &visit{w: w}}
			err := to.send("retry: 2000\n\n")
			for err == nil {
				time.Sleep(streamPause)
				err = to.send("event: beat\ndata: {}\n\n")
			}
			ended <- err
		})}
		all := make(pipes)
		go func() { _ = server.Serve(all) }()
		begun := time.Now()
		open := func() (net.Conn, *bufio.Reader) {
			client, its := net.Pipe()
			all <- its
			if _, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
				t.Error(err)
			}
			answer, err := http.ReadResponse(bufio.NewReader(client), nil)
			if err != nil {
				t.Fatal(err)
			}
			return client, bufio.NewReader(answer.Body)
		}
		stalled, _ := open()
		reading, lines := open()
		beats := make(chan int)
		go func() {
			n := 0
			for {
				line, err := lines.ReadString('\n')
				if err != nil {
					beats <- n
					return
				}
				if line == "event: beat\n" {
					n++
				}
			}
		}()
		if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begun) > streamWrite+3*streamPause {
			t.Errorf("after %v it ends with %v", time.Since(begun), err)
		}
		if err := reading.Close(); err != nil {
			t.Error(err)
		}
		if n := <-beats; n < int(streamWrite/streamPause)-1 {
			t.Errorf("another one had %d beats", n)
		}
		<-ended
		_ = stalled.Close()
		close(all)
		_ = server.Close()
	})
}
