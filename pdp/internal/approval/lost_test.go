package approval_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/ledger"
	"policy-service/pdp/internal/ledger/ledgertest"
)

// TestSettleLost: what a process has left whose log is lost counts as used, and what it said is on record at another one.
func TestSettleLost(t *testing.T) {
	t.Parallel()
	both := places(t, &ledgertest.Cluster{})
	here, there := both[0], both[1]
	twice := func(q *approval.ApprovalRequest) { q.Terms.Uses = 2 }
	used, voted := mustFile(t, here.s, question("used", twice)), mustFile(t, here.s, question("voted"))
	mustDecide(t, here.s, used.ID, by("mia"))
	r, err := there.s.Reserve(t.Context(), used.ID, used.Digest, "d")
	must(t, err)
	r.InDoubt()
	there.Set(true, false, true)
	if _, err := there.s.Decide(t.Context(), voted.ID, 0, by("mia"), all, equal); !errors.Is(err, approval.ErrUnrecorded) {
		t.Fatal(err)
	}
	for _, origin := range []string{"", "place"} {
		if err := here.s.SettleLost(t.Context(), origin); !errors.Is(err, approval.ErrInvalid) {
			t.Errorf("%q is lost: %v", origin, err)
		}
	}
	must(t, here.s.SettleLost(t.Context(), "elsewhere")) // which has left nothing
	if got, _, err := here.s.Get(t.Context(), used.ID); err != nil || len(got.Reserved) != 1 {
		t.Fatalf("it is %+v, %v", got, err)
	}
	for range 2 { // the second time there is nothing to be done
		must(t, here.s.SettleLost(t.Context(), "place/1"))
		if got, _, err := here.s.Get(t.Context(), used.ID); err != nil || !slices.Equal(got.Used, []string{"d"}) || len(got.Reserved) > 0 || got.InFlight() != nil {
			t.Errorf("it is %+v, %v", got, err)
		}
		if got := here.names(used.ID); !slices.Equal(got, []string{"filed", "approve", "approved", "used"}) {
			t.Errorf("on record are %q", got)
		}
		if got := here.names(voted.ID); !slices.Equal(got, []string{"filed", "approve", "approved"}) {
			t.Errorf("on record are %q", got)
		}
	}
	if last := here.steps[used.ID][3]; last.Name != approval.StepUsed || last.Decision != "d" || last.Lost != "place/1" {
		t.Errorf("the last step is %+v", last)
	}
	if n := here.s.ReservationKeys(); n != 0 {
		t.Errorf("there are %d keys of reservations", n)
	}
	for decision, p := range map[string]*place{"e": here, "f": there} { // by the log here, and by its proof
		a := used
		if p == there {
			a = voted
		}
		there.Set(false, false, false)
		if spent, err := spend(t.Context(), p.s, a.ID, a.Digest, decision, p.vouchFor(decision, a.ID, evaluation.Continuation{})); !spent || err != nil {
			t.Errorf("%s is not used: %v, %v", a.ID, spent, err)
		}
	}
}

// inDoubtAt is an approval that one process filed and another one has reserved for a decision in doubt.
func inDoubtAt(t *testing.T, there, here *place) approval.Approval {
	t.Helper()
	a := mustFile(t, here.s, question("a"))
	mustDecide(t, here.s, a.ID, by("mia"))
	r, err := there.s.Reserve(t.Context(), a.ID, a.Digest, "d")
	must(t, err)
	r.InDoubt()
	return a
}

// TestWorkSettlesLost: a process that learns that another one is lost settles what that has left.
func TestWorkSettlesLost(t *testing.T) {
	t.Parallel()
	lost := []string{}
	both := places(t, &ledgertest.Cluster{}, func(o *approval.Options) {
		o.Lost = func(context.Context) ([]string, error) { return lost, nil }
	})
	here := both[0]
	a := inDoubtAt(t, both[1], here)
	here.s.Work(t.Context())
	if got, _, err := here.s.Get(t.Context(), a.ID); err != nil || len(got.Reserved) != 1 {
		t.Fatalf("it is %+v, %v", got, err)
	}
	lost = append(lost, "place/1")
	here.Pass(time.Minute)
	here.s.Work(t.Context())
	if got, _, err := here.s.Get(t.Context(), a.ID); err != nil || got.Status != approval.UsedUp {
		t.Errorf("it is %+v, %v", got, err)
	}
}

// TestTakenOverTwice: while one process proves a vote that it has taken over, another one takes it over and fails before it has
// proved it. It is taken over again.
func TestTakenOverTwice(t *testing.T) {
	t.Parallel()
	c, log := &ledgertest.Cluster{}, newRecord()
	log.N = 2_000_000 // ids differ
	third := log.options()
	var meanwhile sync.Once
	var takesOver func()
	both := places(t, c, func(o *approval.Options) {
		third.Verify = o.Verify
		if prove := o.Prove; o.Origin == "place" {
			o.Prove = func(ctx context.Context, record string) (ledger.Proof, bool, error) {
				if takesOver != nil {
					meanwhile.Do(takesOver)
				}
				return prove(ctx, record)
			}
		}
	})
	a := mustFile(t, both[0].s, question("a", quorum(2)))
	both[1].Set(true, false, false)
	if _, err := both[1].s.Decide(t.Context(), a.ID, 0, by("mia"), all, equal); !errors.Is(err, approval.ErrUnrecorded) {
		t.Fatal(err)
	}
	fails := errors.New("no proof")
	third.Engine, third.Origin = c.Process(), "place/2"
	third.Prove = func(context.Context, string) (ledger.Proof, bool, error) { return ledger.Proof{}, false, fails }
	other := mustOpen(t, "", third)
	takesOver = func() {
		if err := other.SettleLost(t.Context(), "place/1"); !errors.Is(err, fails) {
			t.Errorf("the other: %v", err)
		}
	}
	_ = both[0].s.SettleLost(t.Context(), "place/1")
	must(t, both[0].s.SettleLost(t.Context(), "place/1"))
	mustDecide(t, both[0].s, a.ID, by("ben"))
	if is, err := both[0].uses(t.Context(), a, "d"); !is || err != nil {
		t.Errorf("used: %t, %v", is, err)
	}
}

// TestTwoSettleLost: two processes settle at once what a third one has left. What one of them has settled, and not recorded yet, the
// other one passes over.
func TestTwoSettleLost(t *testing.T) {
	t.Parallel()
	var settled <-chan struct{}
	var goOn func()
	c := &ledgertest.Cluster{}
	both := places(t, c, func(o *approval.Options) {
		if o.Origin == "place" {
			settled, goOn = holds(o, approval.StepUsed)
		}
	})
	here := both[0]
	a := inDoubtAt(t, both[1], here)
	done := make(chan error, 1)
	engine := &between{Engine: c.Process(), do: func() { // once the other one has a list
		go func() { done <- here.s.SettleLost(t.Context(), "place/1") }()
		<-settled
	}}
	log := newRecord()
	log.N = 2_000_000 // ids differ
	o := log.options()
	o.Engine, o.Origin = engine, "place/2"
	other := mustOpen(t, "", o)
	engine.views.Store(2)
	err := other.SettleLost(t.Context(), "place/1")
	goOn()
	must(t, errors.Join(err, <-done))
	if got, _, err := other.Get(t.Context(), a.ID); got.Status != approval.UsedUp || !slices.Equal(got.Used, []string{"d"}) || err != nil {
		t.Errorf("it is %+v, %v", got, err)
	}
	if n := here.s.ReservationKeys(); n != 0 {
		t.Errorf("there are %d keys of reservations", n)
	}
}
