package listener

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
)

// Connections limits how many connections there are. One too many takes the place of another whose other side keeps
// the service waiting, in this order:
//
//  1. a connection without good credentials whose body does not arrive,
//  2. one whose body has not gone on for a while, then one whose answer has not been read for a while; if there are many
//     such connections, the first of them at once,
//  3. the one that has waited longest for a first request,
//  4. the one on which nothing was asked for longest.
//
// So a flood of connections that ask nothing, or not to the end, pushes itself out, and a caller that asks often keeps
// its connections. If all are being answered, the caller with most of them loses one if it has many; otherwise the new
// connection is closed.
type Connections struct {
	// NotHeardOf is how long the service waits for more of a caller's body, or for the reader of an answer, before that
	// may cost the connection.
	NotHeardOf time.Duration

	limit   int
	refused func()

	mu     sync.Mutex
	open   map[net.Conn]*connection
	lines  [noLine]connection // each is the anchor of a ring, the longest wait first
	waits  [noLine]int        // how many connections each line has
	unsent int                // bodies that are waited for, on all connections
	none   chan struct{}      // closed when the last connection goes; nil while that is of no interest
	ending bool
}

// connection is one that is open. On a connection of HTTP/2 several requests may be under way.
type connection struct {
	conn     net.Conn
	end      context.CancelFunc // of its requests
	over     bool               // it is not among the open ones any more: reports about it do not count
	caller   string             // of the last request; "" if it is not known, or callers are not distinguished
	idle     bool               // no request has begun since the last answer
	worked   int                // requests whose answers have not begun
	strange  int                // bodies to arrive, of unknown callers
	unsent   int                // bodies to arrive, of known callers
	waitedOn time.Time          // since when it has been in its line

	line          int         // in which it waits
	before, after *connection // in its line; nil while it is worked on
}

// The lines of connections that wait for the other side, in the order in which they are pushed out.
const (
	ofStrangers = iota // bodies of unknown callers do not arrive
	ofCallers          // bodies of known callers do not arrive
	ofReaders          // the answer has begun, and no request came after it
	ofNewcomers        // the caller is not known yet
	ofIdlers           // nothing more is asked
	noLine
)

const notHeardOf = time.Second

// DefaultMaxConnections is not the default of the key max_connections: how many files may be open counts as well.
const DefaultMaxConnections = 4096

// NewConnections limits them to so many; 0 is [DefaultMaxConnections], or fewer if the process may not open so many files.
// Refused is called for each connection that is refused or pushed out.
func NewConnections(limit int, refused func()) *Connections {
	if limit == 0 {
		limit = DefaultMaxConnections
		if d := descriptors(); d > 0 {
			limit = max(1, min(limit, d-keptDescriptors))
		}
	}
	c := &Connections{NotHeardOf: notHeardOf, limit: limit, refused: refused, open: map[net.Conn]*connection{}}
	for n := range c.lines {
		anchor := &c.lines[n]
		anchor.before, anchor.after = anchor, anchor
	}
	return c
}

// connectionShares is how many shares there are of the connections: a caller may have one if all of them are worked on, and
// connections that keep the service waiting may have one before they lose their time.
const connectionShares = 4

// keptDescriptors are for files that are not connections: segments of the log above all.
const keptDescriptors = 256

type carrierKey struct{}

// Carrier is the connection that carries a request. The zero Carrier is none, and reports about it do not count.
type Carrier struct {
	*connection
	within bool // see Within
}

// CarrierOf is the carrier of the request that a context belongs to.
func CarrierOf(ctx context.Context) Carrier {
	by, _ := ctx.Value(carrierKey{}).(Carrier)
	return by
}

// ConnContext is that of an [http.Server], which calls it with a new connection before anything else, and before the next
// one is accepted: it takes the connection in or refuses it, and puts the connection into the context of its requests.
func (c *Connections) ConnContext(ctx context.Context, new net.Conn) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	// By itself net/http does not notice the end of a connection before a body has arrived that no handler reads.
	ctx, end := context.WithCancel(ctx)
	one := &connection{conn: new, end: end, idle: true}
	if len(c.open) < c.limit || c.makeRoom() {
		c.open[new] = one
		c.enlist(one)
	} else {
		c.push(one)
	}
	return context.WithValue(ctx, carrierKey{}, Carrier{connection: one})
}

// ConnState is that of an [http.Server]. That a connection is new is said by ConnContext, and that a request begins on it
// by Works.
func (c *Connections) ConnState(conn net.Conn, state http.ConnState) {
	if state == http.StateNew || state == http.StateActive {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.open[conn]
	switch {
	case one == nil: // it was refused or pushed out
	case state == http.StateIdle:
		one.idle = true
		c.enlist(one)
	default: // it is closed, or not the server's any more
		c.forget(one)
	}
}

// Within is the context of a request that is made to answer another one, whose context is given. The connection of that
// one hears which caller asks, and nothing else: it carries one request, however many that one takes.
func Within(ctx context.Context) context.Context {
	by := CarrierOf(ctx)
	by.within = true
	return context.WithValue(ctx, carrierKey{}, by)
}

// update changes the account of the connection of a request, whose wait begins anew with that.
func (c *Connections) update(by Carrier, change func(*connection)) {
	if by.within || by.connection == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if one := by.connection; !one.over {
		before := one.strange + one.unsent
		change(one)
		c.unsent += one.strange + one.unsent - before
		c.enlist(one)
	}
	if c.unsent > c.limit {
		c.refused()
		c.push(slices.MaxFunc(slices.Collect(maps.Values(c.open)), func(a, b *connection) int {
			return cmp.Compare(a.strange+a.unsent, b.strange+b.unsent)
		}))
	}
}

// Works says that a request is worked on, or that more of its answer is being made.
func (c *Connections) Works(by Carrier) {
	c.update(by, func(o *connection) {
		o.worked++
		o.idle = false
	})
}

// Answers says that an answer, or the next part of it, begins to be written.
func (c *Connections) Answers(by Carrier) {
	c.update(by, func(o *connection) { o.worked-- })
}

// Knows says which caller asks on a connection.
func (c *Connections) Knows(by Carrier, caller string) {
	if by.connection == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	by.caller = caller
}

// Awaits says that the body of a known or unknown caller is to arrive. There are never more such bodies than there may
// be connections: a connection of HTTP/2 can have many, and the one with most of them is closed.
func (c *Connections) Awaits(by Carrier, known bool) {
	c.update(by, func(o *connection) { o.bodies(known, 1) })
}

// Came says that a body has arrived, or never will.
func (c *Connections) Came(by Carrier, known bool) {
	c.update(by, func(o *connection) { o.bodies(known, -1) })
}

func (o *connection) bodies(known bool, more int) {
	if known {
		o.unsent += more
	} else {
		o.strange += more
	}
}

// Moved says that a part of a body arrived, or that a part of an answer was taken.
func (c *Connections) Moved(by Carrier) { c.update(by, func(*connection) {}) }

// enlist puts a connection at the end of the line in which it waits now.
func (c *Connections) enlist(one *connection) {
	c.unlist(one)
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
	one.line, one.before, one.after, one.waitedOn = line, anchor.before, anchor, time.Now()
	c.waits[line]++
	one.before.after, anchor.before = one, one
}

func (c *Connections) unlist(one *connection) {
	if one.after != nil {
		one.before.after, one.after.before = one.after, one.before
		one.before, one.after = nil, nil
		c.waits[one.line]--
	}
}

func (c *Connections) forget(one *connection) {
	one.over = true
	one.end()
	c.unlist(one)
	c.unsent -= one.strange + one.unsent
	delete(c.open, one.conn)
	if c.ending && len(c.open) == 0 {
		close(c.none)
		c.ending = false
	}
}

// makeRoom pushes one connection out, and reports whether it could: the first one of the first line in which that one
// has waited long enough, if there is such a line.
func (c *Connections) makeRoom() bool {
	c.refused()
	for line := range c.lines {
		if one := c.lines[line].after; one != &c.lines[line] && c.makesWay(one) {
			c.push(one)
			return true
		}
	}
	return c.pushMost()
}

// pushMost pushes out a connection of the caller with most of them, if that is more than a share: a caller that keeps
// all of them busy must not keep all others out.
func (c *Connections) pushMost() bool {
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

// makesWay reports whether the first connection of a line has waited long enough. Callers and readers get some time, but not
// if they are many: each could have a byte more in that time, over and over, and new connections would push out one another.
func (c *Connections) makesWay(one *connection) bool {
	return one.line != ofCallers && one.line != ofReaders || c.waits[one.line] > c.limit/connectionShares || time.Since(one.waitedOn) >= c.NotHeardOf
}

func (c *Connections) push(one *connection) {
	c.forget(one)
	hangUp(one.conn)
}

// hangUp closes the connection below TLS: to say goodbye could take as long as the other side likes.
func hangUp(conn net.Conn) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	_ = conn.Close()
}

// lastRequests is how long a stop goes on answering on the connections there are. net/http closes an idle connection
// at once, and takes one on which a request is just arriving for idle: a caller that asks without a pause would
// sometimes get no answer.
const lastRequests = 250 * time.Millisecond

// Drain waits until all connections have gone, which they do after their next answer, or until those left have had
// time to ask.
func (c *Connections) Drain(ctx context.Context) {
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

// Counts is how many connections are open, how many bodies are waited for, and how many connections would make way for
// a new one before any idle one does.
func (c *Connections) Counts() (open, unsent, makeWay int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for line := range ofNewcomers {
		for one := c.lines[line].after; one != &c.lines[line]; one = one.after {
			if c.makesWay(one) {
				makeWay++
			}
		}
	}
	return len(c.open), c.unsent, makeWay
}
