package server

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/labstack/echo/v4"
)

// exports bounds what reads the whole log, and ends it when the server stops: an
// export can be resumed, and a slow reader must not hold up the stop.
type exports struct {
	slots chan struct{}
	ctx   context.Context // ends with the server
	stop  context.CancelFunc
}

const (
	// maxExports is how many read the whole log at once: two cores have decisions to make.
	maxExports = 4
	// exportPatience is how long a reader may take for one piece of an export. As long as
	// it goes on reading, an export may take all day.
	exportPatience = 60 * time.Second
	retryAfter     = "10"
)

func newExports() *exports {
	e := &exports{slots: make(chan struct{}, maxExports)}
	e.ctx, e.stop = context.WithCancel(context.Background())
	return e
}

var errStopping = errors.New("the server is stopping")

// readsAll lets an auditor in who reads the whole log, for as long as their credential counts.
func (s *Server) readsAll(c echo.Context, a auditor) (*patient, func(), error) {
	valid, done := s.whileInForce(c, a.caller)
	w, leave, err := s.exports.enter(c, valid)
	if err != nil {
		done()
		return nil, nil, err
	}
	return w, func() { leave(); done() }, nil
}

// enter lets somebody in who reads the whole log, or refuses. What is written must be
// written to the patient it returns, and its context ends where it should: with valid,
// too.
func (e *exports) enter(c echo.Context, valid context.Context) (*patient, func(), error) {
	select {
	case e.slots <- struct{}{}:
	default:
		p := beyond(http.StatusServiceUnavailable, "the whole log is being read by as many as may at once; ask again after Retry-After seconds")
		p.retry = retryAfter
		return nil, nil, p
	}
	p := &patient{to: c.Response(), control: http.NewResponseController(c.Response())}
	ctx, cancel := context.WithCancel(valid)
	p.ctx = ctx
	forget := context.AfterFunc(e.ctx, cancel)
	keep := context.AfterFunc(ctx, p.cut)
	_ = p.deadline(time.Time{}) // an error comes again with the first write
	return p, func() {
		forget()
		keep()
		cancel()
		_ = p.deadline(time.Now().Add(exportPatience)) // net/http may still have a last piece
		<-e.slots
	}, nil
}

const (
	// exportGrace is how long retention waits for those who read the whole log: what it
	// takes away is what they come to first, and they would have to begin again. A reader
	// who takes longer has passed that by then.
	exportGrace = 20 * time.Second
	graceLook   = 50 * time.Millisecond
)

// letPass waits until nobody reads the whole log, or long enough.
func (e *exports) letPass(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, exportGrace)
	defer cancel()
	tick := time.NewTicker(graceLook)
	defer tick.Stop()
	for len(e.slots) > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// patient writes an answer that may take long. The server's limit is on the whole of an
// answer; here it is on each piece, and none is on making the next.
type patient struct {
	ctx     context.Context
	to      http.ResponseWriter
	control *http.ResponseController

	mu      sync.Mutex // guards the deadline and stopped
	stopped bool
}

func (p *patient) Write(b []byte) (n int, err error) {
	if err := p.deadline(time.Now().Add(exportPatience)); err != nil {
		return 0, err
	}
	if n, err = p.to.Write(b); err == nil {
		err = p.deadline(time.Time{})
	}
	return n, err
}

func (p *patient) deadline(at time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return errStopping
	}
	return p.control.SetWriteDeadline(at)
}

// cut ends a write that waits for its reader.
func (p *patient) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	_ = p.control.SetWriteDeadline(time.Now())
}
