package approval_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/pdptest/night"
)

// spend reserves a use for a decision, has the decision recorded, and settles what became of
// it, as the PDP does.
func spend(ctx context.Context, s *approval.Store, id string, digest [32]byte, decision string, record func(context.Context) error) (spent bool, err error) {
	use, err := s.Reserve(ctx, id, digest, decision)
	if use == nil || err != nil {
		return false, err
	}
	if err := record(context.WithoutCancel(ctx)); err != nil {
		use.InDoubt()
		return false, err
	}
	if err := use.Spent(ctx); err != nil {
		return false, err
	}
	s.Settled(id)
	return true, nil
}

// uses checks that a decision gets a use, and refuses that it does not.
func (r *stepLog) uses(t *testing.T, name string, s *approval.Store, id string, digest [32]byte, decision string) {
	t.Helper()
	if spent, err := spend(t.Context(), s, id, digest, decision, r.decide(decision)); !spent || err != nil {
		t.Errorf("%s: %v, %v", name, spent, err)
	}
}

func (r *stepLog) refuses(t *testing.T, name string, s *approval.Store, id string, digest [32]byte, decision string) {
	t.Helper()
	if spent, err := spend(t.Context(), s, id, digest, decision, r.decide(decision)); spent || err != nil {
		t.Errorf("%s: %v, %v", name, spent, err)
	}
}

// isLive checks whether an approval can be used.
func isLive(t *testing.T, name string, s *approval.Store, digest [32]byte, id string, want bool) {
	t.Helper()
	if _, live, _ := s.Live(digest, id); live != want {
		t.Errorf("%s: live %t, want %t", name, live, want)
	}
}

// hasStatus checks the status of an approval.
func hasStatus(t *testing.T, name string, s *approval.Store, id string, want approval.Status) {
	t.Helper()
	if got, _, err := s.Get(t.Context(), id); got.Status != want {
		t.Errorf("%s: it is %+v, %v, want %s", name, got, err, want)
	}
}

// goOn reserves a round of a use for a decision, has the decision recorded, and settles what became of it.
func goOn(
	ctx context.Context, s *approval.Store, id string, digest [32]byte, c evaluation.Continuation, decision string, record func(context.Context) error,
) (answered bool, err error) {
	round, err := s.Continue(ctx, id, digest, c, decision)
	if round == nil || err != nil {
		return false, err
	}
	if err := record(context.WithoutCancel(ctx)); err != nil {
		round.InDoubt()
		return false, err
	}
	if err := round.Spent(ctx); err != nil {
		return false, err
	}
	s.Settled(id)
	return true, nil
}

// TestReservedIsLocked: between Reserve and what settles it nothing else happens to the
// approval, and afterwards it can.
func TestReservedIsLocked(t *testing.T) {
	t.Parallel()
	for name, settle := range map[string]func(*approval.Reservation, context.Context){
		"spent":    func(r *approval.Reservation, ctx context.Context) { must(t, r.Spent(ctx)) },
		"in doubt": func(r *approval.Reservation, _ context.Context) { r.InDoubt() },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRecord()
			s := mustOpen(t, quick(t), r.options())
			q := question("a", func(q *approval.ApprovalRequest) { q.Terms.Uses = 2 })
			a := mustFile(t, s, q)
			mustDecide(t, s, a.ID, by("mia"))
			use, err := s.Reserve(t.Context(), a.ID, q.Digest, "d")
			if use == nil || err != nil {
				t.Fatal(use, err)
			}
			s.Work(t.Context()) // which leaves alone what is locked
			if got, _, _ := s.Stored(a.ID); !slices.Equal(got.Reserved, []string{"d"}) {
				t.Errorf("it is settled by another: %+v", got)
			}
			gone, cancel := context.WithCancel(t.Context())
			cancel()
			if other, err := s.Reserve(gone, a.ID, q.Digest, "e"); other != nil || !errors.Is(err, approval.ErrUnavailable) {
				t.Errorf("another use is reserved meanwhile: %v", err)
			}
			settle(use, t.Context())
			r.uses(t, "it is still locked", s, a.ID, q.Digest, "e")
		})
	}
}

// TestOneUseOnce has two callers want the one use of an approval, a thousand times.
func TestOneUseOnce(t *testing.T) {
	t.Parallel()
	r := newRecord()
	s := mustOpen(t, quick(t), r.options())
	for round := range night.Cases(1000) {
		q := question(fmt.Sprint(round))
		a := mustFile(t, s, q)
		mustDecide(t, s, a.ID, by("mia"))
		var spent, recorded atomic.Int32
		var both sync.WaitGroup
		for i := range 2 {
			both.Go(func() {
				decision := fmt.Sprint(a.ID, i)
				is, err := spend(t.Context(), s, a.ID, q.Digest, decision, func(ctx context.Context) error {
					recorded.Add(1)
					return r.decide(decision)(ctx)
				})
				if err != nil {
					t.Error(err)
				}
				if is {
					spent.Add(1)
				}
			})
		}
		both.Wait()
		if spent.Load() != 1 || recorded.Load() != 1 {
			t.Fatalf("round %d: spent %d times, recorded %d times", round, spent.Load(), recorded.Load())
		}
	}
}

// TestInDoubt: while nobody can say whether a decision is on record its use is neither
// there nor lost, and afterwards it is what the record says.
func TestInDoubt(t *testing.T) {
	t.Parallel()
	for _, half := range []bool{false, true} {
		r, data := newRecord(), quick(t)
		s := mustOpen(t, data, r.options())
		q := question("a")
		a := mustFile(t, s, q)
		mustDecide(t, s, a.ID, by("mia"))
		r.Set(true, half, true)
		if spent, err := spend(t.Context(), s, a.ID, q.Digest, "d", r.decide("d")); spent || !errors.Is(err, errRecord) {
			t.Fatal(spent, err)
		}
		must(t, s.Close())
		s = mustOpen(t, data, r.options())
		s.Work(t.Context())
		if got, _, _ := s.Get(t.Context(), a.ID); !slices.Equal(got.Reserved, []string{"d"}) || len(r.Errors) == 0 {
			t.Errorf("in doubt it is %+v, and the errors are %v", got, r.Errors)
		}
		isLive(t, "a use that is in doubt can be had", s, q.Digest, a.ID, false)
		r.refuses(t, "a use that is in doubt is spent", s, a.ID, q.Digest, "e")
		r.Set(false, false, false)
		s.Work(t.Context())
		if _, live, _ := s.Live(q.Digest, a.ID); live == half {
			t.Errorf("on record %v, and live %v", half, live)
		}
		last := map[bool]string{false: approval.StepReleased, true: approval.StepUsedUp}[half]
		if names := r.names(a.ID); names[len(names)-1] != last {
			t.Errorf("the steps are %v, and the last is not %s", names, last)
		}
	}
}

// TestUnrecorded: what is not on record counts for nothing, and is put there later.
func TestUnrecorded(t *testing.T) {
	t.Parallel()
	r := newRecord()
	s := mustOpen(t, quick(t), r.options())
	q := question("a")
	a := mustFile(t, s, q)
	r.Set(true, false, false)
	if _, err := s.Decide(t.Context(), a.ID, 0, by("mia"), all, equal); !errors.Is(err, approval.ErrUnrecorded) || !errors.Is(err, errRecord) {
		t.Fatal(err)
	}
	isLive(t, "it can be spent by an approval that is not on record", s, q.Digest, "", false)
	if spent, err := spend(t.Context(), s, a.ID, q.Digest, "d", r.decide("d")); spent || !errors.Is(err, approval.ErrUnrecorded) {
		t.Errorf("it is spent by an approval that is not on record: %v", err)
	}
	if _, err := s.Revoke(t.Context(), a.ID, 0, by("mia")); !errors.Is(err, approval.ErrUnrecorded) {
		t.Error(err)
	}
	if got, found, err := s.Get(t.Context(), a.ID); !got.Unrecorded || !found || !errors.Is(err, approval.ErrUnrecorded) {
		t.Errorf("it does not say that it is not on record: %+v, %v", got, err)
	}
	for _, status := range append(approval.Statuses(), "") {
		if ids, _ := pages(t, s, approval.Filter{Status: status}, 10); len(ids) > 0 {
			t.Errorf("it is told of as %q", status)
		}
	}
	if of, err := s.Of(t.Context(), approval.Task{Items: []string{a.ID}}); err != nil || len(of) != 1 || !of[0].Unrecorded {
		t.Errorf("its task is told %+v, %v", of, err)
	}
	if told := s.Untold(10, 10); len(told) != 0 {
		t.Errorf("people are told of what is not on record: %v", told)
	}
	r.Set(false, false, false)
	changed := s.Changed()
	s.Work(t.Context())
	<-changed
	isLive(t, "it is on record, and cannot be spent", s, q.Digest, "", true)
	if want := []string{"filed", "approve", "approved"}; !slices.Equal(r.names(a.ID), want) {
		t.Errorf("on record is %v", r.names(a.ID))
	}
}

// TestToldOnRecord: who asks while a step goes on record is told when it is there.
func TestToldOnRecord(t *testing.T) {
	t.Parallel()
	r := newRecord()
	o, under, release := r.options(), make(chan struct{}), make(chan struct{})
	o.Record = func(ctx context.Context, step approval.Step) error {
		if step.Name == approval.StepApproved {
			close(under)
			<-release
		}
		return r.Put(ctx, step)
	}
	s := mustOpen(t, quick(t), o)
	a := mustFile(t, s, question("a"))
	var everybody sync.WaitGroup
	everybody.Go(func() { mustDecide(t, s, a.ID, by("mia")) })
	<-under
	hurried, cancel := context.WithCancel(t.Context())
	cancel()
	if got, found, err := s.Get(hurried, a.ID); found || !errors.Is(err, context.Canceled) {
		t.Errorf("it is told before it is on record: %+v, %v", got, err)
	}
	everybody.Go(func() {
		if got, _, err := s.Get(t.Context(), a.ID); err != nil || got.Status != approval.Approved || got.Unrecorded || !slices.Contains(r.names(a.ID), approval.StepApproved) {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	everybody.Go(func() {
		page, _, err := s.List(t.Context(), approval.Filter{Status: approval.Approved}, "", 10)
		if err != nil || len(page) != 1 || page[0].Unrecorded || !slices.Contains(r.names(a.ID), approval.StepApproved) {
			t.Errorf("got %+v, %v", page, err)
		}
	})
	everybody.Go(func() {
		of, err := s.Of(t.Context(), approval.Task{Items: []string{a.ID}})
		if err != nil || len(of) != 1 || of[0].Unrecorded || !slices.Contains(r.names(a.ID), approval.StepApproved) {
			t.Errorf("got %+v, %v", of, err)
		}
	})
	close(release)
	everybody.Wait()
}

// TestSpendLate: at the very instant that it ends an approval is not there any more, and
// no clock brings back one whose end is on record.
func TestSpendLate(t *testing.T) {
	t.Parallel()
	r := newRecord()
	s := mustOpen(t, quick(t), r.options())
	q := question("a")
	a := mustFile(t, s, q)
	mustDecide(t, s, a.ID, by("mia"))
	r.Pass(10*time.Minute - 1)
	isLive(t, "it ends too early", s, q.Digest, "", true)
	r.Pass(1)
	isLive(t, "it is live when it ends", s, q.Digest, "", false)
	r.refuses(t, "it is spent when it ends", s, a.ID, q.Digest, "d")
	if got, _, _ := s.Get(t.Context(), a.ID); got.Status != approval.Expired || !got.EndedAt.Equal(start.Add(10*time.Minute)) {
		t.Errorf("it is %+v", got)
	}
	s.Work(t.Context())
	r.Pass(-5 * time.Minute)
	hasStatus(t, "the clock was set back, and it is", s, a.ID, approval.Expired)
	r.refuses(t, "the clock was set back, and it is spent", s, a.ID, q.Digest, "d")
	if b := mustFile(t, s, q); b.ID == a.ID {
		t.Error("one that expired is joined")
	}
}

// TestSpendTwiceForOneDecision is a mistake of the caller, whose record would be there
// for another use.
func TestSpendTwiceForOneDecision(t *testing.T) {
	t.Parallel()
	r := newRecord()
	s := mustOpen(t, quick(t), r.options())
	q := question("a", func(q *approval.ApprovalRequest) { q.Terms.Uses = 2 })
	a := mustFile(t, s, q)
	mustDecide(t, s, a.ID, by("mia"))
	for i, want := range []error{nil, approval.ErrInvalid} {
		if spent, err := spend(t.Context(), s, a.ID, q.Digest, "d", r.decide("d")); !errors.Is(err, want) || spent != (i == 0) {
			t.Errorf("%d: %v, %v", i, spent, err)
		}
	}
}
