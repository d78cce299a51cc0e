package listener

import (
	"errors"
	"os"
	"sync"
	"time"
)

// lookEvery is how often the lookout goes round. Once a request has lasted for one to two rounds, its end is looked for.
const lookEvery = 100 * time.Millisecond

// The lookout notices that the other side of a connection is gone while a request is worked on, so that the request ends.
// net/http wants to know that of every request: beside the handler it begins to read one byte of what comes next, and
// stops that before the answer. For the many requests that are answered in a few milliseconds this is a read, a
// goroutine that waits and two deadlines for nothing. So the read is put off until a request has lasted for a while.
// Over TLS net/http reads what is not encrypted, and so looks by itself.

// lookLater is called after a look was put off.
func (c *Connections) lookLater() {
	if c.looks.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.looks.Swap(true) {
		go c.lookOut()
	}
}

// lookOut goes round while any look is put off.
func (c *Connections) lookOut() {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for range tick.C {
		if !c.lookRound() {
			return
		}
	}
}

// lookRound reports whether there has to be another one.
func (c *Connections) lookRound() (again bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looks.Store(false) // before it looks: what is put off after that begins another round
	for one := range c.open {
		if own, ok := one.(*conn); ok && own.lookRound() {
			again = true
		}
	}
	if again {
		c.looks.Store(true)
	}
	return again
}

// ahead is the look of one connection at what comes after the request that is worked on.
type ahead struct {
	mu    sync.Mutex
	look  look
	done  chan struct{} // closed when a look that has begun is over
	found int           // bytes, 0 or 1
	next  [1]byte
}

type look uint8

const (
	notWanted look = iota
	putOff
	due   // in the next round
	begun // and perhaps over
)

// readAhead answers a read, if a look found something or if the read is net/http's look and is put off.
func (c *conn) readAhead(p []byte) (n int, answered bool) {
	a := &c.ahead
	a.mu.Lock()
	if a.look == begun {
		a.mu.Unlock()
		<-a.done // at the deadline of this read, if not before: both have the same
		a.mu.Lock()
	}
	n = copy(p, a.next[:a.found])
	a.found -= n
	// A read of one byte that is no look is repeated at once, as nothing came: the second is none.
	later := n == 0 && len(p) == 1 && a.look == notWanted && c.among != nil
	a.look = notWanted
	if later {
		a.look = putOff
	}
	a.mu.Unlock()
	if later {
		c.among.lookLater()
	}
	return n, n > 0 || later
}

// lookRound begins a look that is due, and reports whether one is to begin in a later round.
func (c *conn) lookRound() (later bool) {
	a := &c.ahead
	a.mu.Lock()
	defer a.mu.Unlock()
	switch a.look {
	case putOff:
		a.look = due
		return true
	case due:
		a.look, a.done = begun, make(chan struct{})
		go c.lookAhead(a.done)
	}
	return false
}

// lookAhead waits until something comes, or the connection ends.
func (c *conn) lookAhead(done chan<- struct{}) {
	defer close(done)
	n, err := c.read(c.ahead.next[:]) // which nobody else touches before it is done
	c.ahead.found = n
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.ended()
	}
}
