package listener

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// lazily makes connections that set few of the deadlines that net/http wants: see [conn].
type lazily struct{ net.Listener }

// Accept implements [net.Listener].
func (l lazily) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return newConn(c), nil
}

// conn sets a deadline of its connection only if the one that is set would come too late. net/http sets eight a request,
// nearly all of them later than the one before, and each costs a timer of the runtime. A read or
// write that a deadline ends too early goes on.
type conn struct {
	net.Conn
	reads, writes deadline
}

func newConn(c net.Conn) *conn { return &conn{Conn: c} }

// deadline is that of one direction. The zero time is none.
type deadline struct {
	mu     sync.Mutex
	wanted time.Time
	set    time.Time // of the connection: never later than wanted
	over   bool      // the one that is set had passed when it was set
	before time.Time // the one that was set before that: good enough, if it has not passed
}

// want makes t the deadline. change sets that of the connection.
func (d *deadline) want(t time.Time, change func(time.Time) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wanted = t
	if !d.set.IsZero() && (t.IsZero() || !t.Before(d.set)) || d.set.IsZero() && t.IsZero() {
		return nil
	}
	if d.over = !time.Now().Before(t); d.over {
		d.before = d.set
	}
	d.set = t
	return change(t)
}

// early reports whether err is that of a deadline which came too early. Then the right one is set.
func (d *deadline) early(err error, change func(time.Time) error) bool {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.wanted.IsZero() && !time.Now().Before(d.wanted) {
		return false
	}
	d.set, d.over = d.wanted, false
	return change(d.set) == nil
}

// begin sets a deadline that has not passed, if one is wanted instead of the one that is set.
func (d *deadline) begin(change func(time.Time) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.over || d.wanted.Equal(d.set) {
		return
	}
	d.set, d.over = d.wanted, false
	if time.Now().Before(d.before) && (d.wanted.IsZero() || d.before.Before(d.wanted)) {
		d.set = d.before
	}
	_ = change(d.set) // the read or write that follows reports an error
}

// Read implements [net.Conn].
func (c *conn) Read(p []byte) (int, error) {
	c.reads.begin(c.Conn.SetReadDeadline)
	for {
		n, err := c.Conn.Read(p)
		if n > 0 || err == nil || !c.reads.early(err, c.Conn.SetReadDeadline) {
			return n, err
		}
	}
}

// Write implements [net.Conn].
func (c *conn) Write(p []byte) (int, error) {
	c.writes.begin(c.Conn.SetWriteDeadline)
	for written := 0; ; {
		n, err := c.Conn.Write(p[written:])
		written += n
		if err == nil || !c.writes.early(err, c.Conn.SetWriteDeadline) {
			return written, err
		}
	}
}

// SetReadDeadline implements [net.Conn].
func (c *conn) SetReadDeadline(t time.Time) error {
	return c.reads.want(t, c.Conn.SetReadDeadline)
}

// SetWriteDeadline implements [net.Conn].
func (c *conn) SetWriteDeadline(t time.Time) error {
	return c.writes.want(t, c.Conn.SetWriteDeadline)
}

// SetDeadline implements [net.Conn].
func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// CloseWrite is for net/http, so that an answer is read before the connection is reset.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
