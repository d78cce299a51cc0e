package server

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"policy-service/pdp/approval"
)

// waiting are those who wait for something to become of an approval. They hold up
// nobody: not those who ask for decisions, and not a stop.
type waiting struct {
	ctx context.Context
	end context.CancelFunc
	// pages holds one for each page of requests that is being made.
	pages chan struct{}

	mu  sync.Mutex // guards what follows
	all int
	of  map[string]int // by caller
}

const (
	// mostPatient is how many wait at once, mostOfOne how many of one caller; others are
	// told to come back.
	mostPatient = 1000
	mostOfOne   = 500
	// longestWait ends before the time that an answer may take.
	longestWait = 30 * time.Second
	// lookAgain is how long nobody looks again who has just looked: anything that changes
	// anywhere has everybody look.
	lookAgain = 100 * time.Millisecond
	// mostPages is how many pages are made at once: each asks the policies about hundreds
	// of requests, of which each may be large.
	mostPages = 2
)

func newWaiting() *waiting {
	w := &waiting{of: map[string]int{}, pages: make(chan struct{}, mostPages)}
	w.ctx, w.end = context.WithCancel(context.Background())
	return w
}

// join reports whether there is room for one more.
func (w *waiting) join(caller string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all >= mostPatient || w.of[caller] >= mostOfOne {
		return false
	}
	w.all++
	w.of[caller]++
	return true
}

func (w *waiting) leave(caller string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all--
	if w.of[caller]--; w.of[caller] == 0 {
		delete(w.of, caller)
	}
}

// turn waits until a page can be made.
func (w *waiting) turn(ctx context.Context) (done func(), err error) {
	select {
	case w.pages <- struct{}{}:
		return func() { <-w.pages }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// patience is how long a request wants to wait.
func patience(given map[string]string) (time.Duration, error) {
	text := given["wait"]
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, badParameter("wait", "is no time; write it like 30s, which is the longest")
	}
	return min(d, longestWait), nil
}

// until looks, and looks again with each change, until there is something to answer or
// the time is up. What is not on record yet is no answer, and none is for whose
// credential has ended meanwhile.
func (s *Server) until(c echo.Context, caller Caller, wait time.Duration, look func(context.Context) (done bool, err error)) error {
	if wait == 0 {
		_, err := look(c.Request().Context())
		return err
	}
	valid, done := s.whileInForce(c, caller)
	defer done()
	ctx, cancel := context.WithTimeout(valid, wait)
	defer cancel()
	defer context.AfterFunc(s.waiting.ctx, cancel)()
	for {
		changed := s.approvals.store.Changed() // before looking: no change is missed
		done, err := look(valid)
		if lapsed := valid.lapsed(); lapsed != nil {
			return lapsed
		}
		if done || err != nil && !errors.Is(err, approval.ErrUnrecorded) || wait == 0 {
			return err
		}
		if !s.waiting.join(caller.Name) {
			return s.limited(c, "waiting", time.Second, newProblem(http.StatusServiceUnavailable, "too many are waiting at once; ask again after Retry-After seconds, or without wait"))
		}
		over := !happens(ctx, time.After(lookAgain)) || !happens(ctx, changed)
		s.waiting.leave(caller.Name)
		if over {
			wait = 0 // one more look
		}
	}
}

// happens waits for something, as long as there is time.
func happens[T any](ctx context.Context, what <-chan T) bool {
	select {
	case <-what:
		return true
	case <-ctx.Done():
		return false
	}
}
