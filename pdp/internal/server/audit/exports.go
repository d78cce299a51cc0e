package audit

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/server/door"
)

const (
	// MostExports is how many requests read the whole log at once, and ExportsOfOne how many of one caller: a sample
	// may hold hundreds of megabytes.
	MostExports  = 4
	ExportsOfOne = MostExports / 2
	// ExportPatience is how long a reader may take for one piece of ExportPiece bytes. If the reader takes each piece
	// in time, an export may take all day.
	ExportPatience = 30 * time.Second
	ExportPiece    = 64 << 10
	exportsRetry   = 10 * time.Second
)

// slowReaders is the limit of a reader that is cut off.
const slowReaders = "slow_readers"

var errStopping = errors.New("the server is stopping")

// readsAll gives an auditor a place to read the whole log, until the credential ends, or
// refuses. The handler writes its answer to the slowWriter, works in the writer's context,
// and calls the function when it is done.
func (a *Audit) readsAll(c echo.Context, who auditor) (*slowWriter, func(), error) {
	waits, cancel := a.Door.Within(c)
	defer cancel()
	w := &slowWriter{
		to:      c.Response(),
		control: http.NewResponseController(c.Response()),
		door:    a.Door,
		carrier: a.Door.Carrier(c),
	}
	place, err := a.Exports.Take(waits, who.Caller.Name, func() {
		a.Door.Refused(slowReaders) // here, because the piece may still be taken, and then the next one fails
		w.cut()
	})
	if err != nil {
		p := door.TooMany("exports", exportsRetry, http.StatusServiceUnavailable,
			"the whole log is being read by as many as may at once; ask again after Retry-After seconds")
		p.Bound = true
		return nil, nil, p
	}
	w.place, w.turn = place, &door.Shift{Gate: &a.Reading, Caller: who.Caller.Name}
	if err := w.turn.Begin(waits); err != nil {
		place.Leave()
		return nil, nil, tooManyReaders()
	}
	valid, done := a.Door.WhileInForce(c, who.Caller)
	ctx, end := context.WithCancel(valid)
	w.ctx = segment.WithTurns(ctx, w.turn.GoOn)
	forget := context.AfterFunc(a.stopping, end)
	keep := context.AfterFunc(ctx, w.cut)
	_ = w.deadline(time.Time{}) // the first write meets the same error
	return w, func() {
		forget()
		keep()
		end()
		done()
		_ = w.deadline(time.Now().Add(ExportPatience)) // net/http may still have to send a last piece
		w.leave()
	}, nil
}

const (
	// exportGrace is how long retention waits for readers of the whole log. Retention
	// removes the oldest records, which a reader reads first: without the wait, the reader
	// would have to begin again. A slower reader has read the oldest records by then.
	exportGrace = 20 * time.Second
	graceLook   = 50 * time.Millisecond
)

// LetExportsPass waits until no request reads the whole log, at most exportGrace.
func (a *Audit) LetExportsPass(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, exportGrace)
	defer cancel()
	tick := time.NewTicker(graceLook)
	defer tick.Stop()
	for a.Exports.Inside() > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// slowWriter writes an answer that may take long. The time limit of the server is on the
// whole answer. Here the limit is on each piece that the reader takes, and the time that
// the server needs to make the next piece has none. While a slowWriter waits for its
// reader, it gives up its turn to work on the log.
type slowWriter struct {
	ctx     context.Context
	to      http.ResponseWriter
	control *http.ResponseController
	place   *door.Place
	turn    *door.Shift
	door    *door.Door
	carrier door.Carrier
	making  bool // the server makes the next piece, after the answer has begun

	mu      sync.Mutex // guards the deadline, stopped and left
	stopped bool
	left    bool // the handler has returned, and the connection is net/http's again
}

// Write writes in pieces, each with a time limit of its own. Meanwhile it gives back its turn to read the log, so that
// a slow reader keeps nobody from the log. Meanwhile, too, the connection counts as one whose client is slow, and may
// be closed to make room. Afterwards it waits for a new turn if it had one, and counts as one that the server works
// for.
func (w *slowWriter) Write(b []byte) (written int, err error) {
	hadTurn := w.turn.End()
	w.serverAnswers()
	for err == nil && written < len(b) {
		var n int
		n, err = w.piece(b[written:min(len(b), written+ExportPiece)])
		written += n
	}
	if err == nil && hadTurn {
		w.serverWorks()
		err = w.turn.Begin(w.ctx)
	}
	return written, err
}

func (w *slowWriter) piece(b []byte) (n int, err error) {
	begun := time.Now()
	if err := w.deadline(begun.Add(ExportPatience)); err != nil {
		return 0, err
	}
	w.place.Waits()
	n, err = w.to.Write(b)
	w.place.Works()
	w.door.Connections.Moved(w.carrier)
	if err != nil && time.Since(begun) >= ExportPatience && !w.place.WasPushed() {
		w.door.Refused(slowReaders)
	}
	if err == nil {
		err = w.deadline(time.Time{})
	}
	return n, err
}

// serverWorks marks the connection as one that the server works for, although its answer has
// begun. serverAnswers takes the mark away.
func (w *slowWriter) serverWorks() {
	if !w.making {
		w.making = true
		w.door.Connections.Works(w.carrier)
	}
}

func (w *slowWriter) serverAnswers() {
	if w.making {
		w.making = false
		w.door.Connections.Answers(w.carrier)
	}
}

func (w *slowWriter) leave() {
	w.mu.Lock()
	w.left = true // cut may still be called
	w.mu.Unlock()
	w.serverAnswers()
	w.turn.End()
	w.place.Leave()
}

func (w *slowWriter) deadline(at time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return errStopping
	}
	return w.control.SetWriteDeadline(at)
}

// cut ends a write that waits for its reader, and every later write.
func (w *slowWriter) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left {
		return
	}
	w.stopped = true
	_ = w.control.SetWriteDeadline(time.Now())
}
