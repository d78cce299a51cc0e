package server

import (
	queue "container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

// connections bounds how many there are. One too many takes the place of that on which
// no request has come for longest, be it kept alive or still to send its first header.
// So a flood of connections that ask nothing pushes itself out, and who asks often keeps
// theirs. Where all are being answered the new one is closed.
type connections struct {
	limit   int
	refused func()

	mu     sync.Mutex
	open   map[net.Conn]*queue.Element // its place among those that wait; nil while it is answered
	wait   queue.List                  // of net.Conn on which a request is to come, longest first
	none   chan struct{}               // closed when the last one goes; nil while nobody waits for that
	ending bool
}

func newConnections(limit int, refused func()) *connections {
	if limit == 0 {
		limit = defaultMaxConnections
		if d := descriptors(); d > 0 {
			limit = max(1, min(limit, d-keptDescriptors))
		}
	}
	return &connections{limit: limit, refused: refused, open: map[net.Conn]*queue.Element{}}
}

// keptDescriptors are for what is no connection: segments of the log above all.
const keptDescriptors = 256

// changed is [http.Server.ConnState]. A new connection is told of before anything is
// read from it, and before the next one is accepted.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		if len(c.open) >= c.limit && !c.makeRoom() {
			hangUp(conn)
			return
		}
		c.open[conn] = c.wait.PushBack(conn)
	case http.StateActive, http.StateIdle:
		if _, known := c.open[conn]; !known {
			return // pushed out
		}
		c.unlist(conn)
		if state == http.StateIdle {
			c.open[conn] = c.wait.PushBack(conn)
		}
	case http.StateClosed, http.StateHijacked:
		c.forget(conn)
	}
}

// unlist takes a connection from those that wait.
func (c *connections) unlist(conn net.Conn) {
	if at := c.open[conn]; at != nil {
		c.wait.Remove(at)
		c.open[conn] = nil
	}
}

func (c *connections) forget(conn net.Conn) {
	c.unlist(conn)
	delete(c.open, conn)
	if c.ending && len(c.open) == 0 {
		close(c.none)
		c.ending = false
	}
}

// makeRoom pushes one out.
func (c *connections) makeRoom() bool {
	c.refused()
	first := c.wait.Front()
	if first == nil {
		return false
	}
	conn := first.Value.(net.Conn)
	c.forget(conn)
	hangUp(conn)
	return true
}

// hangUp closes what is below TLS: to say goodbye could take as long as the other side
// likes.
func hangUp(conn net.Conn) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	_ = conn.Close()
}

// lastRequests is how long a stop goes on answering those who are connected. net/http
// closes an idle connection at once, and cannot tell it from one on which a request is
// just coming in: whoever asks without a pause would now and then get no answer.
const lastRequests = 250 * time.Millisecond

// drain waits until all connections have gone, which they do after their next answer,
// or until who is left has no more to ask.
func (c *connections) drain(ctx context.Context) {
	c.mu.Lock()
	none := make(chan struct{})
	c.none, c.ending = none, len(c.open) > 0
	if !c.ending {
		close(none)
	}
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, lastRequests)
	defer cancel()
	select {
	case <-none:
	case <-ctx.Done():
	}
}
