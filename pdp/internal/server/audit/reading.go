package audit

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"time"

	"github.com/labstack/echo/v4"

	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/server/door"
)

// Requests that read the log share the processors with requests for decisions. So few of them work at once, and a
// request that reads much lets others have their turn in between, like all long work.

// mostReading is how many requests work on the log at once: half of the processors.
func mostReading() int { return max(1, runtime.GOMAXPROCS(0)/2) }

// reads lets an auditor read some of the log, for as long as a request may take. If err is nil, the handler calls done
// at its end.
func (a *Audit) reads(c echo.Context, who auditor) (ctx context.Context, done func(), err error) {
	return a.turn(c, &a.Reading, who.Caller.Name)
}

// turn is a turn of a caller at a gate: see reads.
func (a *Audit) turn(c echo.Context, gate *door.Gate, caller string) (ctx context.Context, done func(), err error) {
	ctx, cancel := a.Door.Within(c)
	turn := &door.Shift{Gate: gate, Caller: caller}
	if err := turn.Begin(ctx); err != nil {
		cancel()
		return nil, nil, tooManyReaders()
	}
	c.Response().Before(func() { turn.End() })
	return segment.WithTurns(ctx, turn.GoOn), func() { turn.End(); cancel() }, nil
}

func tooManyReaders() error {
	return door.TooMany("log_reads", time.Second, http.StatusServiceUnavailable,
		"more of the decision log is asked for at once than can be read in time; ask again after Retry-After "+
			"seconds")
}

// noTimeFor is [logProblem] with advice of the route for a read that takes longer than a request may.
func noTimeFor(err error, what string) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return door.NewProblem(http.StatusServiceUnavailable, what)
	}
	return logProblem(err)
}
