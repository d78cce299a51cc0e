package server

import (
	"context"
	"net/http"
	"runtime"
	"time"

	"github.com/labstack/echo/v4"
)

// newWork is where requests are decided that may keep a processor for long: batches, searches,
// and those of large bodies. As many go on at once as there are processors but one, and
// callers take turns, also in the middle of a request: Go gives each goroutine as much time
// as any other, so that one caller's many would leave little to everybody else. What is
// short waits for no turn.
func newWork(patience time.Duration) *gate {
	return &gate{limit: max(1, runtime.GOMAXPROCS(0)-1), queue: longQueue, patience: patience}
}

// shiftTime is how long a request goes on before others are let in.
const shiftTime = 5 * time.Millisecond

// shift is the time of one request in a gate where others have their turn in between.
type shift struct {
	of     *gate
	caller string
	since  time.Time
	inside bool
}

type shiftKey struct{}

// shift has a request wait for its turn. It begins before anything is made of the body, and
// its end is called whatever comes of the request.
func (s *Server) shift(c echo.Context, caller Caller) (*shift, error) {
	ctx, cancel := s.within(c)
	defer cancel()
	out := &shift{of: s.work, caller: caller.Name}
	if out.begin(ctx) != nil {
		return out, s.noTurn(c)
	}
	c.SetRequest(c.Request().WithContext(context.WithValue(c.Request().Context(), shiftKey{}, out)))
	return out, nil
}

// noTurn is the answer to what had no turn, or none again.
func (s *Server) noTurn(c echo.Context) *Problem {
	return s.limited(c, "work", time.Second, newProblem(http.StatusServiceUnavailable, "more is asked at once than can be worked on in time; ask again after Retry-After seconds, with fewer batches, searches and large bodies at once"))
}

func (s *shift) begin(ctx context.Context) error {
	err := s.of.enter(ctx, s.caller)
	s.since, s.inside = time.Now(), err == nil
	return err
}

// end lets the next one in. A second end is none.
func (s *shift) end() {
	if s.inside {
		s.inside = false
		s.of.leave(s.caller)
	}
}

// goOn is asked between two parts of a request: other callers have their turn where this one
// has had its own.
func (s *shift) goOn(ctx context.Context) error {
	if time.Since(s.since) < shiftTime || !s.of.wanted(s.caller) {
		return ctx.Err()
	}
	s.end()
	return s.begin(ctx)
}

// goesOn is that of the request of a context, which may have no shift.
func goesOn(ctx context.Context) error {
	if s, ok := ctx.Value(shiftKey{}).(*shift); ok && s.inside {
		return s.goOn(ctx)
	}
	return ctx.Err()
}

// rests ends the shift of a request that has no more to do than to wait, if it has one.
func rests(ctx context.Context) {
	if s, ok := ctx.Value(shiftKey{}).(*shift); ok {
		s.end()
	}
}
