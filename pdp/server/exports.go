package server

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"policy-service/pdp/decisionlog"
	"policy-service/pdp/server/door"
)

// exports bounds what reads the whole log, and ends it when the server stops: an
// export can be resumed, and a slow reader must not hold up the stop.
type exports struct {
	door.Places
	ctx  context.Context // ends with the server
	stop context.CancelFunc
}

const (
	// maxExports is how many read the whole log at once, exportsOfOne how many of one
	// caller: a sample may hold hundreds of megabytes.
	maxExports   = 4
	exportsOfOne = maxExports / 2
	// exportPatience is how long a reader may take for one piece of an export, which is of
	// exportPiece bytes. As long as it goes on reading, an export may take all day.
	exportPatience = 30 * time.Second
	exportPiece    = 64 << 10
	exportsRetry   = 10 * time.Second
)

func newExports() *exports {
	e := &exports{Places: door.Places{Gate: door.Gate{
		Limit: maxExports,
		Share: exportsOfOne,
		Queue: door.LongQueue,
	}}}
	e.ctx, e.stop = context.WithCancel(context.Background())
	return e
}

var errStopping = errors.New("the server is stopping")

// readsAll lets an auditor in who reads the whole log, for as long as their credential
// counts, or refuses. What is written must be written to the patient it returns, and its
// context ends where it should.
func (s *Server) readsAll(c echo.Context, a auditor) (*patient, func(), error) {
	waits, cancel := s.door.Within(c)
	defer cancel()
	w := &patient{to: c.Response(), control: http.NewResponseController(c.Response()), server: s, asked: c.Request().Context()}
	place, err := s.exports.Take(waits, a.Caller.Name, w.cut)
	if err != nil {
		p := door.TooMany("exports", exportsRetry, http.StatusServiceUnavailable, "the whole log is being read by as many as may at once; ask again after Retry-After seconds")
		p.Bound = true
		return nil, nil, p
	}
	w.place, w.turn = place, &door.Shift{Gate: &s.reading, Caller: a.Caller.Name}
	if err := w.turn.Begin(waits); err != nil {
		place.Leave()
		return nil, nil, tooManyReaders()
	}
	valid, done := s.door.WhileInForce(c, a.Caller)
	ctx, end := context.WithCancel(valid)
	w.ctx = decisionlog.WithTurns(ctx, w.turn.GoOn)
	forget := context.AfterFunc(s.exports.ctx, end)
	keep := context.AfterFunc(ctx, w.cut)
	_ = w.deadline(time.Time{}) // an error comes again with the first write
	return w, func() {
		forget()
		keep()
		end()
		done()
		_ = w.deadline(time.Now().Add(exportPatience)) // net/http may still have a last piece
		w.leave()
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
	for e.Inside() > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// patient writes an answer that may take long. The server's limit is on the whole of an
// answer; here it is on each piece, and none is on making the next. While it waits for its
// reader it keeps nobody else from reading.
type patient struct {
	ctx     context.Context
	to      http.ResponseWriter
	control *http.ResponseController
	place   *door.Place
	turn    *door.Shift
	server  *Server
	asked   context.Context // of the request
	making  bool            // more, after the answer has begun

	mu      sync.Mutex // guards the deadline, stopped and left
	stopped bool
	left    bool // the answer is somebody else's from here on
}

func (p *patient) Write(b []byte) (written int, err error) {
	reads := p.turn.End()
	p.made()
	for err == nil && written < len(b) {
		var n int
		n, err = p.piece(b[written:min(len(b), written+exportPiece)])
		written += n
	}
	if err == nil && reads {
		p.makes()
		err = p.turn.Begin(p.ctx)
	}
	return written, err
}

func (p *patient) piece(b []byte) (n int, err error) {
	begun := time.Now()
	if err := p.deadline(begun.Add(exportPatience)); err != nil {
		return 0, err
	}
	p.place.Waits()
	n, err = p.to.Write(b)
	p.place.Works()
	p.server.door.Connections.Moved(p.asked)
	if err != nil && (p.place.WasPushed() || time.Since(begun) >= exportPatience) {
		p.server.door.Refused("slow_readers")
	}
	if err == nil {
		err = p.deadline(time.Time{})
	}
	return n, err
}

// makes says that the connection is worked on although its answer has begun, and made
// that it is not any more.
func (p *patient) makes() {
	if !p.making {
		p.making = true
		p.server.door.Connections.Works(p.asked)
	}
}

func (p *patient) made() {
	if p.making {
		p.making = false
		p.server.door.Connections.Answers(p.asked)
	}
}

func (p *patient) leave() {
	p.mu.Lock()
	p.left = true // a cut may be on its way still
	p.mu.Unlock()
	p.made()
	p.turn.End()
	p.place.Leave()
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
	if p.left {
		return
	}
	p.stopped = true
	_ = p.control.SetWriteDeadline(time.Now())
}
