package mcp

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/time/rate"

	"policy-service/pdp/mcp/internal/gate"
)

// driftReports has the PDP put on record what the gateway finds not to be as it is locked. Nobody waits for it: findings
// wait in a queue, in their order, until the PDP has taken them.
type driftReports struct {
	post   func(ctx context.Context, one driftReport) driftAnswer
	now    func() time.Time
	sleep  func(ctx context.Context, d time.Duration)
	logger *slog.Logger
	pace   *rate.Limiter

	// closing ends when close is called, and sending some time after it.
	closing, sending context.Context
	hurry, stop      func()
	wake             chan struct{}
	running          sync.WaitGroup

	mu      sync.Mutex // guards the rest
	waiting []driftReport
	lost    int // since nothing waited
	started bool
}

// driftReport is a finding. The PDP gets its id as that of the request, so that two records of one finding are known.
type driftReport struct {
	found gate.Drift
	id    string
}

// driftAnswer is what became of a report. The zero driftAnswer is that it is on record.
type driftAnswer struct {
	why   string        // it is not
	again bool          // and may be later,
	after time.Duration // but not sooner than this
}

const (
	// mostDrifts is how many findings wait at most. Those that came first are kept.
	mostDrifts = 1024
	// driftBurst findings are sent at once, and then one every driftEvery. Records are for long, and a server that is
	// another again and again must not use up what the gateway may put on record.
	driftBurst = 256
	driftEvery = 10 * time.Second
	// driftAgain is after how long a finding is sent again at first, driftAgainMost in the end.
	driftAgain     = time.Second
	driftAgainMost = time.Minute
	// driftLastWords is how long a gateway that closes waits for findings to be on record.
	driftLastWords = 2 * time.Second
)

func newDriftReports(c PDPConfig, d Deps) *driftReports {
	r := &driftReports{
		post: newDriftPost(c, d), now: d.Now, sleep: sleep, logger: d.Logger,
		pace: rate.NewLimiter(rate.Every(driftEvery), driftBurst), wake: make(chan struct{}, 1),
	}
	r.sending, r.stop = context.WithCancel(context.Background())
	r.closing, r.hurry = context.WithCancel(r.sending)
	return r
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// noticed queues a finding that the gateway's log has already. It does not wait.
func (r *driftReports) noticed(found gate.Drift) {
	found = printable(found)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case slices.ContainsFunc(r.waiting, func(one driftReport) bool { return one.found == found }):
		return
	case r.closing.Err() != nil || len(r.waiting) == mostDrifts:
		r.lost++
		return
	}
	r.waiting = append(r.waiting, driftReport{found, uuid.NewString()})
	if !r.started {
		r.started = true
		r.running.Go(r.run)
	}
	select {
	case r.wake <- struct{}{}:
	default: // it is awake
	}
}

// run sends what waits. When the gateway closes it goes on as long as the PDP takes it.
func (r *driftReports) run() {
	failed, said := 0, ""
	for {
		one, ok := r.next()
		if !ok {
			return
		}
		if failed == 0 {
			r.sleep(r.closing, r.pace.ReserveN(r.now(), 1).DelayFrom(r.now()))
		}
		answer := r.post(r.sending, one)
		if answer.why != "" && answer.why != said {
			r.logger.Error("the PDP does not put on record what is not as it is locked", "why", answer.why, "again", answer.again)
		}
		said = answer.why
		if !answer.again {
			failed = 0
			r.settled()
			continue
		}
		if r.closing.Err() != nil {
			return
		}
		r.sleep(r.closing, max(answer.after, min(driftAgain<<min(failed, 10), driftAgainMost)))
		failed++
	}
}

// next is the finding that is next. It is not ok if nothing waits, and nothing will.
func (r *driftReports) next() (one driftReport, ok bool) {
	for {
		if one, ok = r.first(); ok || r.closing.Err() != nil {
			return one, ok
		}
		select {
		case <-r.wake:
		case <-r.closing.Done():
		}
	}
}

func (r *driftReports) first() (one driftReport, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) == 0 {
		return one, false
	}
	return r.waiting[0], true
}

// settled takes the first finding away.
func (r *driftReports) settled() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting = slices.Delete(r.waiting, 0, 1); len(r.waiting) == 0 {
		r.tellLost(0)
	}
}

// close gives what waits a moment to get on record.
func (r *driftReports) close() {
	r.mu.Lock()
	r.hurry()
	r.mu.Unlock() // so that nothing begins to wait from now on
	timer := time.AfterFunc(driftLastWords, r.stop)
	r.running.Wait()
	timer.Stop()
	r.stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tellLost(len(r.waiting))
	r.waiting = nil
}

// tellLost says how many findings are in the log of the gateway alone.
func (r *driftReports) tellLost(more int) {
	if lost := r.lost + more; lost > 0 {
		r.logger.Error("findings are not on record in the PDP, and stand in this log alone: too many came at once, or the gateway closed before the PDP took them", "findings", lost)
	}
	r.lost = 0
}
