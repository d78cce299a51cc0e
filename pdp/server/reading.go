package server

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"time"

	"github.com/labstack/echo/v4"

	"policy-service/pdp/decisionlog"
)

// Who reads the log shares its processors with those who ask for decisions. So few read
// at once, and who reads much has others have their turn in between, as with all that takes long.

// mostReading is how many work on what is read of the log at once: half of the processors.
func mostReading() int { return max(1, runtime.GOMAXPROCS(0)/2) }

// reads lets an auditor in who reads some of the log, for as long as a request may take.
// Whoever is let in calls done.
func (s *Server) reads(c echo.Context, a auditor) (ctx context.Context, done func(), err error) {
	ctx, cancel := s.within(c)
	turn := &shift{of: &s.reading, caller: a.caller.Name}
	if err := turn.begin(ctx); err != nil {
		cancel()
		return nil, nil, s.tooManyReaders(c)
	}
	c.Response().Before(turn.end)
	return decisionlog.WithTurns(ctx, turn.goOn), func() { turn.end(); cancel() }, nil
}

func (s *Server) tooManyReaders(c echo.Context) error {
	return s.limited(c, "log_reads", time.Second, newProblem(http.StatusServiceUnavailable, "more of the decision log is asked for at once than can be read in time; ask again after Retry-After seconds"))
}

// examinedForOne is how many candidates of a search, or records of the log, are looked at
// for one request of a caller's rate.
const examinedForOne = 1000

// charge makes a caller's next requests wait for what this one looked at.
func (s *Server) charge(caller Caller, examined int) {
	s.rates.more(caller.Name, examined/examinedForOne)
}

// noTimeFor is what to do where one look at the log takes longer than a request may.
func noTimeFor(err error, what string) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return newProblem(http.StatusServiceUnavailable, what)
	}
	return logProblem(err)
}
