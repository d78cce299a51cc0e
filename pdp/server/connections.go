package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/labstack/echo/v4"
)

// connections bounds how many there are. One too many takes the place of another, whose
// other side keeps it waiting: first of one without good credentials whose body does not
// come, then of one whose body, or whose reader of an answer, was not heard of for a
// while, then of that which has waited longest for who asks on it to be known, and then of
// that on which nothing more was asked for longest. So a flood of connections that ask
// nothing, or not to the end, pushes itself out, and who asks often keeps theirs. Where all
// are being answered it is one of the caller's with most, if that is many, or else the new
// one is closed.
type connections struct {
	limit   int
	refused func()

	mu     sync.Mutex
	open   map[net.Conn]*connection
	lines  [noLine]connection // each the anchor of a ring, longest first
	unsent int                // bodies that are waited for, of all
	none   chan struct{}      // closed when the last one goes; nil while nobody waits for that
	ending bool
}

// connection is one that is open. On one of HTTP/2 several requests may be under way.
type connection struct {
	conn     net.Conn
	caller   string    // who asked on it last; "" where that is not known, or nobody is told apart
	idle     bool      // a request is to come
	worked   int       // requests whose answers have not begun
	strange  int       // bodies to come, of whom nobody knows
	unsent   int       // bodies to come, of callers
	waitedOn time.Time // since when

	before, after *connection // in its line; nil while it is worked on
}

// The lines of those that wait for the other side, in the order in which they go.
const (
	ofStrangers = iota // whose bodies do not come
	ofCallers          // the same
	ofReaders          // whose answer was begun, and no request came after it
	ofNewcomers        // of whom nobody knows yet who they are
	ofIdlers           // who ask nothing more
	noLine
)

// notHeardOf is how long a caller's body, or the reader of an answer, is waited for before
// that costs the connection.
const notHeardOf = time.Second

func newConnections(limit int, refused func()) *connections {
	if limit == 0 {
		limit = defaultMaxConnections
		if d := descriptors(); d > 0 {
			limit = max(1, min(limit, d-keptDescriptors))
		}
	}
	c := &connections{limit: limit, refused: refused, open: map[net.Conn]*connection{}}
	for n := range c.lines {
		anchor := &c.lines[n]
		anchor.before, anchor.after = anchor, anchor
	}
	return c
}

// connectionShares is how many parts there are of all connections, where all are worked on.
const connectionShares = 4

// keptDescriptors are for what is no connection: segments of the log above all.
const keptDescriptors = 256

type connectionKey struct{}

// named is [http.Server.ConnContext]: a request knows by it which connection it came on.
func (c *connections) named(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, conn)
}

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
		one := &connection{conn: conn, idle: true}
		c.open[conn] = one
		c.listed(one)
	case http.StateActive, http.StateIdle:
		if one := c.open[conn]; one != nil { // else it was pushed out
			one.idle = state == http.StateIdle
			c.listed(one)
		}
	case http.StateClosed, http.StateHijacked:
		c.forget(conn)
	}
}

// tell changes what is known of the connection of a request.
func (c *connections) tell(ctx context.Context, change func(*connection)) {
	conn, _ := ctx.Value(connectionKey{}).(net.Conn)
	c.mu.Lock()
	defer c.mu.Unlock()
	if one := c.open[conn]; one != nil {
		before := one.strange + one.unsent
		change(one)
		c.unsent += one.strange + one.unsent - before
		c.listed(one)
	}
}

// A request comes; then its answer begins.
func (c *connections) asked(ctx context.Context) { c.tell(ctx, func(o *connection) { o.worked++ }) }
func (c *connections) answers(ctx context.Context) {
	c.tell(ctx, func(o *connection) { o.worked-- })
}

// knows says who asks on a connection.
func (c *connections) knows(ctx context.Context, caller string) {
	conn, _ := ctx.Value(connectionKey{}).(net.Conn)
	c.mu.Lock()
	defer c.mu.Unlock()
	if one := c.open[conn]; one != nil {
		one.caller = caller
	}
}

// attend tells of each request, from its header to the first of its answer.
func (s *Server) attend(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		asked := c.Request().Context()
		s.connections.asked(asked)
		c.Response().Before(func() { s.connections.answers(asked) })
		defer func() {
			if !c.Response().Committed {
				s.connections.answers(asked)
			}
		}()
		return next(c)
	}
}

// awaits says that a body is to come, of a caller or of somebody unknown, and came that it
// has, or never will. There are never more of them than there may be connections: HTTP/2
// has many on one, and the one with most of them goes.
func (c *connections) awaits(ctx context.Context, known bool) {
	c.tell(ctx, func(o *connection) { o.bodies(known, 1) })
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unsent > c.limit {
		c.refused()
		c.push(slices.MaxFunc(slices.Collect(maps.Values(c.open)), func(a, b *connection) int {
			return cmp.Compare(a.strange+a.unsent, b.strange+b.unsent)
		}))
	}
}

func (c *connections) came(ctx context.Context, known bool) {
	c.tell(ctx, func(o *connection) { o.bodies(known, -1) })
}

func (o *connection) bodies(known bool, more int) {
	if known {
		o.unsent += more
	} else {
		o.strange += more
	}
}

// heard says that some of a body came, or that some of an answer was taken.
func (c *connections) heard(ctx context.Context) { c.tell(ctx, func(*connection) {}) }

// listed puts a connection at the end of the line in which it waits now.
func (c *connections) listed(one *connection) {
	one.unlist()
	line := ofReaders
	switch {
	case one.strange > 0:
		line = ofStrangers
	case one.unsent > 0:
		line = ofCallers
	case one.worked > 0:
		return
	case one.idle && one.caller == "":
		line = ofNewcomers
	case one.idle:
		line = ofIdlers
	}
	anchor := &c.lines[line]
	one.before, one.after, one.waitedOn = anchor.before, anchor, time.Now()
	one.before.after, anchor.before = one, one
}

func (o *connection) unlist() {
	if o.after != nil {
		o.before.after, o.after.before = o.after, o.before
		o.before, o.after = nil, nil
	}
}

func (c *connections) forget(conn net.Conn) {
	if one := c.open[conn]; one != nil {
		one.unlist()
		c.unsent -= one.strange + one.unsent
		delete(c.open, conn)
	}
	if c.ending && len(c.open) == 0 {
		close(c.none)
		c.ending = false
	}
}

// makeRoom pushes one out.
func (c *connections) makeRoom() bool {
	c.refused()
	return c.pushOut(ofStrangers, 0) || c.pushOut(ofCallers, notHeardOf) || c.pushOut(ofReaders, notHeardOf) || c.pushOut(ofNewcomers, 0) || c.pushOut(ofIdlers, 0) || c.pushMost()
}

// pushMost pushes out one of the caller who has most connections, where that is more than a
// share: who keeps all of them busy must not keep everybody else out.
func (c *connections) pushMost() bool {
	of, most := map[string]int{}, ""
	for _, one := range c.open {
		of[one.caller]++
	}
	for caller, n := range of {
		if caller != "" && (n > of[most] || most == "") {
			most = caller
		}
	}
	if most == "" || of[most] <= c.limit/connectionShares {
		return false
	}
	for _, one := range c.open {
		if one.caller == most {
			c.push(one)
			break
		}
	}
	return true
}

// pushOut pushes out the first of a line, where it has been there so long.
func (c *connections) pushOut(line int, atLeast time.Duration) bool {
	one := c.lines[line].after
	if one == &c.lines[line] || time.Since(one.waitedOn) < atLeast {
		return false
	}
	c.push(one)
	return true
}

func (c *connections) push(one *connection) {
	c.forget(one.conn)
	hangUp(one.conn)
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
