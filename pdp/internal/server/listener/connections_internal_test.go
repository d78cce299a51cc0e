package listener

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// near is the end of a connection that the server has; closed tells whether it was hung up.
type near struct{ net.Conn }

func newNear(t *testing.T) near {
	ours, theirs := net.Pipe()
	t.Cleanup(func() { _, _ = ours.Close(), theirs.Close() })
	return near{ours}
}

func (n near) closed() bool {
	_ = n.SetWriteDeadline(time.Unix(1, 0)) // nobody reads
	_, err := n.Conn.Write([]byte{0})
	return errors.Is(err, io.ErrClosedPipe)
}

func TestConnectionsMakeRoom(t *testing.T) {
	t.Parallel()
	refused := 0
	c := NewConnections(4, func() { refused++ })
	all := make([]near, 8)
	for n := range all {
		all[n] = newNear(t)
	}
	asked := make([]Carrier, len(all))
	in := func(n int, states ...http.ConnState) {
		for _, state := range states {
			if state == http.StateNew {
				asked[n] = CarrierOf(c.ConnContext(t.Context(), all[n].Conn))
			}
			if open, _, _ := c.Counts(); open > 4 { // not for a moment
				t.Errorf("%d are open when %d is %v", open, n, state)
			}
			c.ConnState(all[n].Conn, state)
			if state == http.StateActive {
				c.Works(asked[n])
			}
			if state == http.StateIdle {
				c.Answers(asked[n])
			}
		}
	}
	in(0, http.StateNew, http.StateActive, http.StateIdle) // asked before
	in(1, http.StateNew)                                   // sends nothing
	in(2, http.StateNew, http.StateActive)                 // is answered
	in(3, http.StateNew)                                   // sends nothing
	in(0, http.StateActive, http.StateIdle)                // asks again
	in(4, http.StateNew, http.StateActive)                 // in place of 1
	in(5, http.StateNew, http.StateActive)                 // in place of 3
	in(1, http.StateClosed)                                // net/http noticed
	in(6, http.StateNew, http.StateActive)                 // in place of 0
	in(7, http.StateNew)                                   // there is no room
	for n, want := range []bool{true, true, false, true, false, false, false, true} {
		if got := all[n].closed(); got != want {
			t.Errorf("connection %d: closed %v, want %v", n, got, want)
		}
	}
	if len(c.open) != 4 || c.lines[ofIdlers].after != &c.lines[ofIdlers] || refused != 4 {
		t.Errorf("%d are open, %d were one too many, or somebody waits", len(c.open), refused)
	}
	in(3, http.StateActive) // a last word of one that was pushed out
	for n := range all {
		in(n, http.StateClosed)
	}
	if len(c.open) != 0 {
		t.Errorf("%d are left", len(c.open))
	}
	c.Drain(t.Context())
}

// Who has asked keeps what they are silent on while others come and say nothing; and who
// has more than a share of those that are all worked on makes room for others.
func TestConnectionsOfWhoIsKnownStay(t *testing.T) {
	t.Parallel()
	c := NewConnections(8, func() {})
	come := func(caller string, asks bool) near {
		one := newNear(t)
		by := CarrierOf(c.ConnContext(t.Context(), one.Conn))
		c.ConnState(one.Conn, http.StateNew)
		if caller == "" {
			return one
		}
		c.ConnState(one.Conn, http.StateActive)
		c.Works(by)
		c.Knows(by, caller)
		if !asks {
			c.Answers(by)
			c.ConnState(one.Conn, http.StateIdle)
		}
		return one
	}
	calm := come("key:calm", false)
	for range 100 {
		come("", false)
	}
	if calm.closed() {
		t.Error("who is known was pushed out by who says nothing")
	}
	for range 100 {
		come("key:loud", true)
	}
	if !calm.closed() {
		t.Error("who asks nothing is kept while others ask")
	}
	all := []near{come("key:calm", true), come("key:other", true)}
	for n, one := range all {
		if one.closed() {
			t.Errorf("%d has no place while one has all", n)
		}
	}
	for range 100 {
		come("key:loud", true)
	}
	for n, one := range all {
		if one.closed() {
			t.Errorf("%d lost its place to who has most", n)
		}
	}
	if len(c.open) != 8 {
		t.Errorf("%d are open", len(c.open))
	}
}

// Bodies of which a byte comes now and then, and answers of which one is read, fill all there is: new connections push these
// out, and not one another.
func TestSlowBodiesKeepNoNewcomerOut(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(*Connections, Carrier){
		"bodies":  func(c *Connections, by Carrier) { c.Works(by); c.Awaits(by, true) },
		"answers": func(c *Connections, by Carrier) { c.Works(by); c.Answers(by) },
	} {
		synctest.Test(t, func(t *testing.T) {
			c := NewConnections(16, func() {})
			come := func() (near, Carrier) {
				one := newNear(t)
				by := CarrierOf(c.ConnContext(t.Context(), one.Conn))
				c.ConnState(one.Conn, http.StateNew)
				return one, by
			}
			var slow []Carrier
			for range 16 {
				one, by := come()
				c.ConnState(one.Conn, http.StateActive)
				c.Knows(by, "key:slow")
				begin(c, by)
				slow = append(slow, by)
			}
			time.Sleep(notHeardOf / 2)
			for _, by := range slow {
				c.Moved(by)
			}
			first, _ := come()
			for range 4 {
				come()
			}
			if first.closed() {
				t.Errorf("%s: a new connection was pushed out by the next ones", name)
			}
		})
	}
}

// A request within another one is no second one of its connection, and says who asks there.
func TestConnectionOfRequestsWithinOthers(t *testing.T) {
	t.Parallel()
	c := NewConnections(4, func() {})
	one := newNear(t)
	ctx := c.ConnContext(t.Context(), one.Conn)
	c.ConnState(one.Conn, http.StateNew)
	c.ConnState(one.Conn, http.StateActive)
	c.Works(CarrierOf(ctx))
	within := CarrierOf(Within(ctx))
	at := func() connection { o := *c.open[one.Conn]; o.waitedOn = time.Time{}; return o }
	text := func() string { o := at(); o.end = nil; return fmt.Sprintf("%+v", o) }
	before := text()
	for _, step := range []func(){
		func() { c.Works(within) }, func() { c.Awaits(within, false) }, func() { c.Came(within, false) },
		func() { c.Awaits(within, true) }, func() { c.Moved(within) }, func() { c.Came(within, true) }, func() { c.Answers(within) },
	} {
		if step(); text() != before {
			t.Errorf("the connection is %s, and was %s", text(), before)
		}
	}
	if c.Knows(within, "key:mia"); at().caller != "key:mia" {
		t.Errorf("the connection is %+v", at())
	}
}

func TestDrainWaitsForTheLast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := NewConnections(4, func() {})
		one := newNear(t)
		c.ConnContext(t.Context(), one.Conn)
		c.ConnState(one.Conn, http.StateNew)
		began := time.Now()
		var draining sync.WaitGroup
		draining.Go(func() { c.Drain(t.Context()) })
		synctest.Wait() // until it waits
		c.ConnState(one.Conn, http.StateActive)
		c.ConnState(one.Conn, http.StateClosed)
		draining.Wait()
		if took := time.Since(began); took > 0 {
			t.Errorf("it did not see the last one go, and gave up after %v", took)
		}
	})
}
