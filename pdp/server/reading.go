package server

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"time"

	"github.com/labstack/echo/v4"

	"policy-service/pdp/decisionlog"
	"policy-service/pdp/server/door"
)

// Who reads the log shares its processors with those who ask for decisions. So few read
// at once, and who reads much has others have their turn in between, as with all that takes long.

// mostReading is how many work on what is read of the log at once: half of the processors.
func mostReading() int { return max(1, runtime.GOMAXPROCS(0)/2) }

// reads lets an auditor in who reads some of the log, for as long as a request may take.
// Whoever is let in calls done.
func (s *Server) reads(c echo.Context, a auditor) (ctx context.Context, done func(), err error) {
	ctx, cancel := s.door.Within(c)
	turn := &door.Shift{Gate: &s.reading, Caller: a.Caller.Name}
	if err := turn.Begin(ctx); err != nil {
		cancel()
		return nil, nil, tooManyReaders()
	}
	c.Response().Before(func() { turn.End() })
	return decisionlog.WithTurns(ctx, turn.GoOn), func() { turn.End(); cancel() }, nil
}

func tooManyReaders() error {
	return door.TooMany("log_reads", time.Second, http.StatusServiceUnavailable, "more of the decision log is asked for at once than can be read in time; ask again after Retry-After seconds")
}

// noTimeFor is what to do where one look at the log takes longer than a request may.
func noTimeFor(err error, what string) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return door.NewProblem(http.StatusServiceUnavailable, what)
	}
	return logProblem(err)
}
