package crowd_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"policy-service/pdp/mcp/internal/crowd"
	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/mcptest"
)

// oracle says whom news concern, as long as it is not away.
type oracle struct {
	asked atomic.Int64

	mu  sync.Mutex
	err error
}

func (o *oracle) away(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = err
}

func (o *oracle) news(id string) crowd.News {
	return crowd.News{ID: id, Say: func(context.Context, *identity.Principal) (rpc.Message, bool, error) {
		o.asked.Add(1)
		o.mu.Lock()
		defer o.mu.Unlock()
		return rpc.Message{Method: id}, true, o.err
	}}
}

// If nobody knows whom news concern, they are asked about again for as long as they stand. What comes behind them is heard
// meanwhile, and what is withdrawn, or gone for good, is told to nobody.
func TestCrowdOwes(t *testing.T) {
	s := newSquare(t)
	s.First(time.Millisecond)
	var lost, gone oracle
	lost.away(errors.New("away"))
	gone.away(errors.New("away"))
	s.Post(lost.news("lost"))
	s.Post(gone.news("gone"))
	s.Post(s.news("behind", "ann"))
	ann := s.joins(principal("ann"))
	s.hears(ann, "behind")
	mcptest.Until(t, "it is asked often", func() bool { return lost.asked.Load() > 6 && gone.asked.Load() > 3 })
	s.Withdraw("gone")
	gone.away(nil)
	mcptest.Until(t, "what is withdrawn is owed no longer", func() bool { return s.drops(crowd.Unknown) == 1 })
	lost.away(nil)
	s.hears(ann, "lost")
	lost.away(errors.New("away"))
	s.Post(lost.news("again"))
	s.Post(lost.news("")) // which does not stand
	mcptest.Until(t, "what does not stand is owed a few times", func() bool { return s.drops(crowd.Unknown) == 2 })
	s.Post(s.news("again", "ann")) // which takes its place
	s.hears(ann, "again")
	s.Tell("ann", rpc.Message{Method: "last"})
	s.hears(ann, "last")
	if got := s.drops(crowd.Unknown); got != 2 {
		t.Errorf("%d were dropped", got)
	}
}

// Nobody is asked again before the time that was said, and other streams and news go on.
func TestCrowdOwesLater(t *testing.T) {
	s := newSquare(t)
	s.First(time.Millisecond)
	const after = 400 * time.Millisecond
	var times []time.Time
	s.Post(crowd.News{ID: "busy", Say: func(context.Context, *identity.Principal) (rpc.Message, bool, error) {
		if times = append(times, time.Now()); len(times) == 1 {
			return rpc.Message{}, false, fmt.Errorf("busy: %w", &crowd.Later{Err: errors.New("too many"), After: after})
		}
		return rpc.Message{Method: "busy"}, true, nil
	}})
	s.Post(s.news("other", "ann"))
	s.hears(s.joins(principal("ann")), "other", "busy")
	if got := times[1].Sub(times[0]); got < after {
		t.Errorf("it was asked again after %v", got)
	}
}

// However much is owed to a stream, all of it is told in the end; there is a bound to it.
func TestCrowdOwesMany(t *testing.T) {
	s := newSquare(t)
	s.First(time.Millisecond)
	const many = 1500
	var all oracle
	all.away(errors.New("away"))
	for n := range many {
		s.Post(all.news(fmt.Sprint(n)))
	}
	ann := s.joins(principal("ann"))
	mcptest.Until(t, "all there is room for is asked again", func() bool { return all.asked.Load() > 1200 })
	s.Tell("ann", rpc.Message{Method: "x"})
	s.hears(ann, "x")
	all.away(nil)
	heard := map[string]bool{}
	for range many {
		heard[<-ann.heard] = true
	}
	if len(heard) != many {
		t.Errorf("%d are heard", len(heard))
	}
}

// A question goes on if its stream ends, and what is said is kept: who opens stream after stream has it put once.
func TestCrowdAsksToTheEnd(t *testing.T) {
	s := newSquare(t)
	var asked, ended atomic.Int64
	answer := make(chan struct{})
	s.Post(crowd.News{ID: "a", Say: func(ctx context.Context, _ *identity.Principal) (rpc.Message, bool, error) {
		asked.Add(1)
		select {
		case <-answer:
			return rpc.Message{Method: "a"}, true, nil
		case <-ctx.Done():
			ended.Add(1)
			return rpc.Message{}, false, ctx.Err()
		}
	}})
	for range 20 {
		l := s.joins(principal("ann"))
		mcptest.Until(t, "ann is asked about", func() bool { return asked.Load() > 0 })
		l.end()
	}
	close(answer)
	s.hears(s.joins(principal("ann")), "a")
	if asked.Load() != 1 || ended.Load() != 0 {
		t.Errorf("asked %d times, and %d were given up", asked.Load(), ended.Load())
	}
}

// What was said holds for a minute, and then it is asked again, by whoever comes then.
func TestCrowdForgets(t *testing.T) {
	s := newSquare(t)
	var knows atomic.Bool
	var asked atomic.Int64
	s.Post(crowd.News{ID: "a", Say: func(context.Context, *identity.Principal) (rpc.Message, bool, error) {
		asked.Add(1)
		return rpc.Message{Method: "a"}, knows.Load(), nil
	}})
	s.Post(s.news("b", "ann"))
	comes := func(times int64, all ...string) {
		t.Helper()
		l := s.joins(principal("ann"))
		s.hears(l, all...)
		l.end()
		if asked.Load() != times || len(l.heard) > 0 {
			t.Errorf("asked %d times", asked.Load())
		}
	}
	comes(1, "b")
	knows.Store(true)
	s.passes(59 * time.Second)
	comes(1, "b")
	s.passes(2 * time.Second)
	comes(2, "a", "b")
	knows.Store(false) // as if policies had changed
	comes(2, "a", "b")
	s.passes(time.Minute)
	comes(3, "b")
}

// A tenant whose questions take long, however many, delays no other.
func TestCrowdTenants(t *testing.T) {
	s := newSquare(t)
	var asked atomic.Int64
	hangs := func(ctx context.Context, who *identity.Principal) (rpc.Message, bool, error) {
		if strings.HasPrefix(who.Key, "slow") {
			asked.Add(1)
			<-ctx.Done()
		}
		return rpc.Message{Method: "a"}, true, ctx.Err()
	}
	for _, tenant := range []string{"acme", "other"} {
		s.Post(crowd.News{ID: "a", Tenant: tenant, Say: hangs})
	}
	for n := range 8 {
		s.joins(&identity.Principal{Key: fmt.Sprint("slow", n), Tenant: "acme"})
	}
	mcptest.Until(t, "all places of the one are taken", func() bool { return asked.Load() == 4 })
	s.hears(s.joins(&identity.Principal{Key: "ann", Tenant: "other"}), "a")
}
