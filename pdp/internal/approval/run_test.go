package approval_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"policy-service/pdp/internal/approval"
)

// until waits until something is so, which a change brings about.
func until(t *testing.T, s *approval.Store, what string, is func() bool) {
	t.Helper()
	deadline, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		changed := s.Changed()
		if is() {
			return
		}
		select {
		case <-changed:
		case <-deadline.Done():
			t.Fatalf("it never came to be that %s", what)
		}
	}
}

// TestRun does what is due with nobody there: by a clock that it is not told of, by the
// log's coming back, and in its time by forgetting.
func TestRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // what fails is tried again after a while
		r := newRecord()
		s := mustOpen(t, quick(t), r.options())
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { s.Run(ctx); close(done) }()
		q := question("a")
		a, b := mustFile(t, s, q), mustFile(t, s, question("b"))
		mustDecide(t, s, b.ID, by("mia"))
		r.Pass(10 * time.Minute)
		until(t, s, "what was approved expires", func() bool { return slices.Contains(r.names(b.ID), approval.StepExpired) })
		r.Pass(50 * time.Minute)
		until(t, s, "what waits expires", func() bool { return slices.Contains(r.names(a.ID), approval.StepExpired) })

		r.Set(true, false, false)
		if _, err := s.File(t.Context(), q); err == nil {
			t.Fatal("it is filed without a record")
		}
		r.Set(false, false, false)
		until(t, s, "the step is on record", func() bool {
			page, _, err := s.StoredPage(approval.Pending, 10)
			return err == nil && len(page) == 1 && !page[0].Unrecorded
		})
		r.Pass(30 * 24 * time.Hour)
		until(t, s, "what ended long ago is forgotten", func() bool {
			page, _, err := s.List(t.Context(), approval.Filter{}, "", 10)
			return err == nil && len(page) == 1
		})
		if got := len(r.names(a.ID)); got != 2 {
			t.Errorf("the record of it has %d steps", got)
		}
		cancel()
		<-done
	})
}

// TestRunIsOnTime: what is due in a moment is done then, however often Run is woken.
func TestRunIsOnTime(t *testing.T) {
	t.Parallel()
	r := newRecord()
	o := r.options()
	o.Now = time.Now
	s := mustOpen(t, quick(t), o)
	go s.Run(t.Context())
	a := mustFile(t, s, question("a", func(q *approval.ApprovalRequest) { q.Terms.Timeout = 50 * time.Millisecond }))
	expired := func() bool { return slices.Contains(r.names(a.ID), approval.StepExpired) }
	for n := 0; !expired(); n++ {
		if b := mustFile(t, s, question(fmt.Sprint(n))); n > 5 {
			mustDecide(t, s, b.ID, by("mia"))
		}
		if time.Since(a.FiledAt) > time.Minute {
			t.Fatal("who is woken often never works")
		}
	}
}
