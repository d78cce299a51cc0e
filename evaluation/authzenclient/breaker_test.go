package authzenclient_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"policy-service/evaluation/authzenclient"
)

type step = func(*http.Request) (*http.Response, error)

// reads is a clock that stands at *t.
func reads(t *time.Time) authzenclient.Option {
	return authzenclient.WithClock(func() time.Time { return *t }, func(context.Context, time.Duration) error { return nil })
}

func TestBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		clock := time.Now()
		c, s := scripted(t, []step{answer(500, ``)}, reads(&clock), authzenclient.WithBreaker(3, time.Minute))
		for range 3 {
			wantDeny(t, c.Evaluate(t.Context(), question), authzenclient.Unavailable)
		}
		wantDeny(t, c.Evaluate(t.Context(), question), authzenclient.Open)
		wantDeny(t, c.EvaluateBatch(t.Context(), "", question)[0], authzenclient.Open)
		for _, err := range c.SearchActions(t.Context(), question) {
			if err == nil {
				t.Error("a search got through")
			}
		}
		clock = clock.Add(time.Minute - 1)
		wantDeny(t, c.Evaluate(t.Context(), question), authzenclient.Open)
		if s.asked.Load() != 3 {
			t.Fatalf("%d requests, want 3", s.asked.Load())
		}
		clock = clock.Add(1)
		wantDeny(t, c.Evaluate(t.Context(), question), authzenclient.Unavailable) // half open, and open again
		wantDeny(t, c.Evaluate(t.Context(), question), authzenclient.Open)
		clock = clock.Add(time.Minute)
		s.steps = []step{yes}
		for range 3 {
			if d := c.Evaluate(t.Context(), question); !d.Permitted() {
				t.Error(d)
			}
		}
	})
}

// Half open, one call is let through, and a caller who gives up decides nothing.
func TestBreakerHalfOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		clock := time.Now()
		c, s := scripted(t, []step{answer(500, ``)}, reads(&clock), authzenclient.WithBreaker(1, time.Minute))
		wantDeny(t, c.Evaluate(t.Context(), question), authzenclient.Unavailable)
		clock = clock.Add(time.Minute)
		s.steps = []step{hangs}
		ctx, cancel := context.WithCancel(t.Context())
		probe := make(chan authzenclient.Decision)
		go func() { probe <- c.Evaluate(ctx, question) }()
		synctest.Wait()
		wantDeny(t, c.Evaluate(t.Context(), question), authzenclient.Open)
		cancel()
		wantDeny(t, <-probe, authzenclient.Cancelled)
		s.steps = []step{yes}
		if d := c.Evaluate(t.Context(), question); !d.Permitted() {
			t.Error(d)
		}
	})
}

// A call that began before the circuit opened has no say in whether it closes.
func TestBreakerLateAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		late := func(r *http.Request) (*http.Response, error) { <-release; return yes(r) }
		c, _ := scripted(t, []step{late, answer(500, ``)}, authzenclient.WithBreaker(1, time.Minute))
		first := make(chan authzenclient.Decision)
		go func() { first <- c.Evaluate(t.Context(), question) }()
		synctest.Wait()
		wantDeny(t, c.Evaluate(t.Context(), question), authzenclient.Unavailable)
		close(release)
		if d := <-first; !d.Permitted() {
			t.Error(d)
		}
		wantDeny(t, c.Evaluate(t.Context(), question), authzenclient.Open)
	})
}

// What is the request's fault, and an answer that is a deny, say that the PDP is alive.
func TestBreakerCounts(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		between step
		opens   bool
	}{
		"permit":      {yes, false},
		"deny":        {answer(200, `{"decision":false}`), false},
		"obligations": {answer(200, `{"decision":true,"context":{"obligations":[{"id":"a","type":"log"}]}}`), false},
		"bad request": {answer(400, ``), false},
		"too large":   {answer(413, ``), false},
		"conflict":    {answer(409, ``), false},
		"no access":   {answer(401, ``), true},
		"no right":    {answer(403, ``), true},
		"no tenant":   {answer(404, ``), true},
		"odd":         {answer(200, `{`), true},
		"limited":     {answer(429, ``), true},
		"redirect":    {answer(302, ``), true},
		"reset":       {reset, true},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := scripted(t, []step{answer(500, ``), test.between, answer(500, ``), yes}, authzenclient.WithBreaker(3, time.Hour), authzenclient.WithRetries(0))
			for range 3 {
				c.Evaluate(t.Context(), question)
			}
			if got := !c.Evaluate(t.Context(), question).Permitted(); got != test.opens {
				t.Errorf("open: %v", got)
			}
		})
	}
}

// A transport that panics must not leave the circuit half open for ever.
func TestBreakerPanic(t *testing.T) {
	t.Parallel()
	clock := time.Now()
	c, s := scripted(t, []step{answer(500, ``)}, authzenclient.WithBreaker(1, time.Minute), reads(&clock))
	c.Evaluate(t.Context(), question)
	clock = clock.Add(time.Minute)
	s.steps = []step{func(*http.Request) (*http.Response, error) { panic("transport") }}
	func() {
		defer func() { _ = recover() }()
		c.Evaluate(t.Context(), question)
	}()
	clock = clock.Add(time.Minute)
	s.steps = []step{yes}
	if d := c.Evaluate(t.Context(), question); !d.Permitted() {
		t.Error(d)
	}
}
