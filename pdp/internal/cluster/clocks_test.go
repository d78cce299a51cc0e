package cluster_test

import (
	"errors"
	"testing"
	"time"

	"policy-service/pdp/internal/cluster"
	"policy-service/pdp/pdptest/etcdtest"
)

// timedReplica is a replica whose clock is by so much ahead.
func timedReplica(t *testing.T, origin, prefix string, ahead time.Duration) *replica {
	r := newReplica(t, origin, prefix, etcdtest.One(t)...)
	r.options.Elapsed = r.clock.Elapsed
	r.clock.Set(ahead)
	return r
}

// trusts waits until each replica takes its clock for right, or not.
func trusts(t *testing.T, what string, right map[*replica]bool) {
	t.Helper()
	for r, want := range right {
		etcdtest.Eventually(t, what+": "+r.Origin(), func() bool { return (r.Clock() == nil) == want })
	}
}

// Of three members the one whose clock is three minutes off takes no proofs, ahead or behind, and the others do. So it is when it
// starts, and when somebody sets the clock while it runs, before any member has said a word. Once its clock is right it takes them.
func TestTheWrongClockOfThree(t *testing.T) {
	t.Parallel()
	prefix := prefixOf(t)
	a, b, c := timedReplica(t, "a", prefix, 0), timedReplica(t, "b", prefix, 9*time.Second), timedReplica(t, "c", prefix, 3*time.Minute)
	for _, r := range []*replica{a, b, c} {
		r.run()
	}
	all := func(right bool) map[*replica]bool { return map[*replica]bool{a: true, b: true, c: right} }
	trusts(t, "it starts three minutes ahead", all(false))
	c.clock.Set(-3 * time.Minute)
	trusts(t, "it is put right", all(true))
	for _, by := range []time.Duration{3 * time.Minute, -3 * time.Minute} {
		c.clock.Set(by)
		if err := c.Clock(); !errors.Is(err, cluster.ErrClock) {
			t.Errorf("at once: %v", err)
		}
		trusts(t, "it is set", all(false))
		c.clock.Set(-by)
		trusts(t, "it is set back", all(true))
	}
	for _, r := range []*replica{a, b, c} {
		r.clock.Advance(time.Hour)
	}
	trusts(t, "time passes", all(true))
}

// Of two members that differ, the one goes on whose clock nobody has set since they agreed, or since it was alone. If neither is
// such a one, neither takes proofs; nor does one that nobody has answered yet.
func TestTheWrongClockOfTwo(t *testing.T) {
	t.Parallel()
	prefix := prefixOf(t)
	a, b := timedReplica(t, "a", prefix, 0), timedReplica(t, "b", prefix, 3*time.Minute)
	must(t, a.join())
	if err := a.Clock(); !errors.Is(err, cluster.ErrClock) {
		t.Errorf("before it knows who is there: %v", err)
	}
	a.stop = cluster.Background(a.Run)
	trusts(t, "alone", map[*replica]bool{a: true})
	b.run()
	trusts(t, "the second is ahead", map[*replica]bool{a: true, b: false})
	b.clock.Set(-3 * time.Minute)
	trusts(t, "it is put right", map[*replica]bool{a: true, b: true})
	a.clock.Set(-time.Minute)
	trusts(t, "the first is put back", map[*replica]bool{a: false, b: true})
	b.close()
	b.run()
	trusts(t, "the second starts again", map[*replica]bool{a: false, b: false})
	a.clock.Set(time.Minute)
	trusts(t, "they agree", map[*replica]bool{a: true, b: true})
}

// Replicas that start do not count: the one that runs goes on. Once they run, all agree.
func TestClocksOfThoseThatStart(t *testing.T) {
	t.Parallel()
	prefix := prefixOf(t)
	a, b, c := timedReplica(t, "a", prefix, 0), timedReplica(t, "b", prefix, 0), timedReplica(t, "c", prefix, 0)
	a.run()
	trusts(t, "alone", map[*replica]bool{a: true})
	must(t, b.join())
	must(t, c.join())
	etcdtest.Eventually(t, "both start", func() bool { return len(a.There()) == 2 })
	heard(t, a, b, func() {
		if err := a.Clock(); err != nil {
			t.Fatal(err)
		}
	})
	b.stop, c.stop = cluster.Background(b.Run), cluster.Background(c.Run)
	trusts(t, "all run", map[*replica]bool{a: true, b: true, c: true})
}

// Of two that start together and differ, at most one takes proofs.
func TestTwoClocksThatStartTogether(t *testing.T) {
	t.Parallel()
	prefix := prefixOf(t)
	a, b := timedReplica(t, "a", prefix, 0), timedReplica(t, "b", prefix, 3*time.Minute)
	a.run()
	b.run() // which needs a running member the first time
	a.close()
	b.close()
	must(t, a.join())
	must(t, b.join())
	a.stop, b.stop = cluster.Background(a.Run), cluster.Background(b.Run)
	etcdtest.Eventually(t, "one takes proofs", func() bool { return a.Clock() == nil || b.Clock() == nil })
	heard(t, a, b, func() {
		if a.Clock() == nil && b.Clock() == nil {
			t.Fatal("both take proofs")
		}
	})
}

// heard calls look again and again until a replica has heard another one three times, each time with another reading.
func heard(t *testing.T, r, other *replica, look func()) {
	t.Helper()
	beats := map[time.Time]bool{}
	etcdtest.Eventually(t, "another replica is heard three times", func() bool {
		look()
		for _, one := range []*replica{r, other} {
			one.clock.Advance(time.Millisecond)
		}
		for _, m := range r.There() {
			if m.Origin == other.Origin() {
				beats[m.Clock] = true
			}
		}
		return len(beats) == 3
	})
}

// A replica that starts does not go by the reading of a clock that was wrong, and a member whose clock is put right says so.
func TestAWrongClockIsForgotten(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	prefix := prefixOf(t)
	a, b, c := timedReplica(t, "a", prefix, 0), timedReplica(t, "b", prefix, 0), timedReplica(t, "c", prefix, 0)
	a.run()
	trusts(t, "alone", map[*replica]bool{a: true})
	b.run()
	says := func(what string, shows func(cluster.Origin) bool) {
		t.Helper()
		etcdtest.Eventually(t, what, func() bool {
			all, err := a.Origins(t.Context())
			must(t, err)
			return shows(all["b"])
		})
	}
	now := a.clock.Now()
	says("it is right", func(o cluster.Origin) bool { return o.Shown.Equal(now) })
	b.clock.Set(year)
	says("it is a year ahead", func(o cluster.Origin) bool { return o.Seen.After(now) })
	c.run()
	trusts(t, "the third starts", map[*replica]bool{a: true, b: false, c: true})
	if ahead := c.Shown().Sub(now); ahead < 0 || ahead > time.Hour {
		t.Errorf("the third takes a clock for right that was ahead by %v", ahead)
	}
	b.clock.Set(-year)
	trusts(t, "it is put right", map[*replica]bool{a: true, b: true, c: true})
	says("it is right again", func(o cluster.Origin) bool { return o.Seen.Equal(now) && o.Shown.Equal(now) })
}
