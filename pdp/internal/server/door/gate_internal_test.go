package door

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func told(t *testing.T, who string, by chan bool, want bool) {
	t.Helper()
	select {
	case got := <-by:
		if got != want {
			t.Errorf("%s was told %v, want %v", who, got, want)
		}
	default:
		t.Errorf("%s was told nothing, want %v", who, want)
	}
}

func TestGateTakesTurns(t *testing.T) {
	t.Parallel()
	g := &Gate{Limit: 1, Patience: time.Hour}
	if g.join("first") != nil {
		t.Fatal("the first had to wait")
	}
	a1, a2, b, a3, c := g.join("a"), g.join("a"), g.join("b"), g.join("a"), g.join("c")
	leaves := "first"
	for _, next := range []struct {
		who, caller string
		by          chan bool
	}{{"a's newest", "a", a3}, {"b", "b", b}, {"c", "c", c}, {"a's second", "a", a2}, {"a's oldest", "a", a1}} {
		g.Leave(leaves)
		told(t, next.who, next.by, true)
		leaves = next.caller
	}
	g.Leave(leaves)
	if g.Inside() > 0 || g.waiting != 0 || len(g.lines) != 0 {
		t.Errorf("something is left: %+v", g)
	}
}

func TestGateIsFullOfWhoAsksMost(t *testing.T) {
	t.Parallel()
	g := &Gate{Limit: 1, Patience: time.Hour}
	g.join("first")
	quiet, oldest := g.join("quiet"), g.join("noisy")
	for range mostWaiting - 2 {
		g.join("noisy")
	}
	late := g.join("quiet")
	told(t, "the oldest of who asks most", oldest, false)
	if len(quiet) > 0 || len(late) > 0 {
		t.Error("who asks little was sent away")
	}
	if g.waiting != mostWaiting {
		t.Errorf("%d wait, want %d", g.waiting, mostWaiting)
	}
}

func TestGateDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	g := &Gate{Limit: 1, Patience: time.Millisecond}
	g.join("first")
	if err := g.Enter(t.Context(), "a"); !errors.Is(err, ErrBusy) {
		t.Errorf("got %v, want ErrBusy", err)
	}
	g.Patience = time.Hour
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Enter(gone, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v of who went away", err)
	}
	g.Leave("first")
	if g.Inside() > 0 || g.waiting != 0 || len(g.lines) != 0 {
		t.Errorf("something is left: %+v", g)
	}
}

// Where it takes long, not even all who wait are of one caller.
func TestGateBoundsTheQueueOfACaller(t *testing.T) {
	t.Parallel()
	g := &Gate{Limit: 1, Queue: 2}
	g.join("first")
	oldest, next := g.join("noisy"), g.join("noisy")
	newest, quiet := g.join("noisy"), g.join("quiet")
	told(t, "the oldest", oldest, false)
	if len(next)+len(newest)+len(quiet) > 0 || g.waiting != 3 {
		t.Errorf("%d wait", g.waiting)
	}
}

// One caller has its share and no more, also where there is room; and of those who wait
// whoever has fewest comes first.
func TestGateKeepsShares(t *testing.T) {
	t.Parallel()
	g := &Gate{Limit: 4, Share: 2}
	in := g.join
	a1, a2, a3, b1, b2 := in("a"), in("a"), in("a"), in("b"), in("b")
	if a1 != nil || a2 != nil || b1 != nil || b2 != nil {
		t.Fatal("somebody has not their share")
	}
	if a3 == nil {
		t.Fatal("a has more than its share")
	}
	b3, c, a4 := in("b"), in("c"), in("a")
	if b3 == nil || c == nil || a4 == nil {
		t.Fatal("there are more inside than may")
	}
	g.Leave("a") // a has one, b two, and c none
	told(t, "c", c, true)
	if len(a3)+len(a4)+len(b3) > 0 {
		t.Error("somebody came in besides")
	}
	g.Leave("c") // b has its share
	told(t, "a's newest", a4, true)
	g.Leave("a")
	told(t, "a's oldest", a3, true)
	g.Leave("a")
	g.Leave("a")
	if len(b3) > 0 {
		t.Error("b has more than its share")
	}
	g.Leave("b")
	told(t, "b", b3, true)
	g.Leave("b")
	g.Leave("b")
	if g.Inside() > 0 || g.waiting != 0 || len(g.lines)+len(g.of) != 0 {
		t.Errorf("something is left: %+v", g)
	}
}

// Whatever befalls those who wait, there are never more inside than may be, and no
// place is lost.
func TestGateKeepsCount(t *testing.T) {
	t.Parallel()
	const limit = 3
	g := &Gate{Limit: limit, Patience: 50 * time.Microsecond}
	var inside, entered atomic.Int64
	var all sync.WaitGroup
	for n := range 16 {
		all.Go(func() {
			for range 500 {
				caller := string(rune('a' + n%4))
				if g.Enter(t.Context(), caller) != nil {
					continue
				}
				entered.Add(1)
				if now := inside.Add(1); now > limit {
					t.Errorf("%d are inside", now)
				}
				inside.Add(-1)
				g.Leave(caller)
			}
		})
	}
	all.Wait()
	if g.Inside() > 0 || g.waiting != 0 || len(g.lines) != 0 {
		t.Errorf("something is left after %d: %+v", entered.Load(), g)
	}
}
