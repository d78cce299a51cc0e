package approval_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/ledger"
)

// A change has no more than some keys and bytes. This file has what is many or large all the same.

// TestManyUsesAtOnceAreSettledAtAStart: more than one change can settle are on record when the process ends.
func TestManyUsesAtOnceAreSettledAtAStart(t *testing.T) {
	t.Parallel()
	const uses = 3*ledger.MostKeys + 1
	r, data := newRecord(), quick(t)
	s := mustOpen(t, data, r.options())
	a := mustFile(t, s, question("a", func(q *approval.ApprovalRequest) { q.Terms.Uses = uses + 1 }))
	mustDecide(t, s, a.ID, by("mia"))
	use, err := s.Reserve(t.Context(), a.ID, a.Digest, "d0")
	must(t, err)
	for n := 1; n < uses; n++ {
		if took, err := s.ReserveAgain(use, fmt.Sprint("d", n)); !took || err != nil {
			t.Fatal(n, took, err)
		}
	}
	old := copyOf(t, data) // in which all are reserved
	for n := range uses {
		must(t, r.decideBy(fmt.Sprint("d", n), a.ID, evaluation.Continuation{})(t.Context()))
	}
	must(t, use.Spent(t.Context()))
	must(t, s.Close())
	for _, name := range []string{"as it was", "an older copy"} {
		s = mustOpen(t, data, r.options())
		if got, _, err := s.Get(t.Context(), a.ID); len(got.Used) != uses || len(got.Reserved) > 0 || err != nil {
			t.Errorf("%s: %d are used, and %d reserved: %v", name, len(got.Used), len(got.Reserved), err)
		}
		if left := s.ReservationKeys(); left > 0 {
			t.Errorf("%s: %d keys of reservations are left", name, left)
		}
		must(t, s.Close())
		putBack(t, data, old)
	}
}

// TestLargeApprovalsDoNotKeepAStartUp: they do not fit in one change, and the log has grown long.
func TestLargeApprovalsDoNotKeepAStartUp(t *testing.T) {
	t.Parallel()
	r, data := newRecord(), quick(t)
	s := mustOpen(t, data, r.options())
	for n := range 25 {
		mustFile(t, s, question(fmt.Sprint(n), func(q *approval.ApprovalRequest) { q.Resource.ID = strings.Repeat("x", 28<<10) }))
	}
	must(t, s.Close())
	o := r.options()
	o.Size = func() uint64 { return r.Size() + 200_000 }
	s = mustOpen(t, data, o)
	page, _, err := s.StoredPage(approval.Pending, 100)
	if len(page) != 25 || err != nil || page[24].After < 200_000 || len(r.Errors) > 0 {
		t.Errorf("%d wait, the last of them as of %d: %v, %v", len(page), page[24].After, err, r.Errors)
	}
}

// TestManyVotesLapseAtOnce: then another person still can say no.
func TestManyVotesLapseAtOnce(t *testing.T) {
	t.Parallel()
	const votes = ledger.MostKeys + 6
	r, gone := newRecord(), false
	o := r.options()
	o.InForce = func(_, caller, _ string) bool { return !gone || caller == "key:last" }
	s := mustOpen(t, quick(t), o)
	a := mustFile(t, s, question("a", quorum(80)))
	for n := range votes {
		mustDecide(t, s, a.ID, by(fmt.Sprint("p", n)))
	}
	gone = true
	no := by("last")
	no.Kind = approval.Deny
	if got := mustDecide(t, s, a.ID, no); got.Status != approval.Denied || len(r.names(a.ID)) != 1+votes+votes+2 {
		t.Errorf("it is %s, and on record are %d steps", got.Status, len(r.names(a.ID)))
	}
}

// TestTooManyWords: an approval that is too large for one more vote can be ended.
func TestTooManyWords(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, quick(t), newRecord().options())
	a := mustFile(t, s, question("a", quorum(1000)))
	var err error
	for n := 0; err == nil; n++ {
		v := by(fmt.Sprint("p", n))
		v.Reason = strings.Repeat("r", 20_000)
		_, err = s.Decide(t.Context(), a.ID, 0, v, all, equal)
	}
	if !errors.Is(err, approval.ErrInvalid) {
		t.Error(err)
	}
	if _, err := s.Cancel(t.Context(), a.ID, 0, "alice", "key:gateway", ""); err != nil {
		t.Error(err)
	}
}

// TestTheRatesAreForWhatIsFiled: of several that want the last place at once, those that do not get it pay nothing.
func TestTheRatesAreForWhatIsFiled(t *testing.T) {
	t.Parallel()
	o := newRecord().options()
	o.Limits = approval.Limits{MaxPendingPerTenant: 1, NewPerMinutePerSubject: 10, MaxPendingPerCaller: 100}
	s := mustOpen(t, quick(t), o)
	for round := range 8 {
		var all sync.WaitGroup
		for n := range 8 {
			all.Go(func() { _, _ = s.File(t.Context(), question(fmt.Sprint(round, n))) })
		}
		all.Wait()
		page, _, err := s.StoredPage(approval.Pending, 10)
		if len(page) != 1 || err != nil {
			t.Fatalf("round %d: %d wait, %v", round, len(page), err)
		}
		if _, err := s.Cancel(t.Context(), page[0].ID, 0, "alice", "key:gateway", ""); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTenantsWithAnyName: what waits in one is listed in that one.
func TestTenantsWithAnyName(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, quick(t), newRecord().options())
	names := []string{"", "a", "a/b", "a/", "/", "%", "%2F", "a%2Fb", "ü", "a b", "a\x00b", "~", "!", "a-", "a0"}
	var all []string
	for n, name := range names {
		all = append(all, mustFile(t, s, question(fmt.Sprint(n), func(q *approval.ApprovalRequest) { q.Tenant = name })).ID)
	}
	for n, name := range names {
		if ids, _ := pages(t, s, approval.Filter{Tenants: []string{name}, Status: approval.Pending}, 1); !slices.Equal(ids, all[n:n+1]) {
			t.Errorf("in %q wait %v, want %v", name, ids, all[n:n+1])
		}
	}
	for n, tenants := range [][]string{nil, {}} {
		if ids, _ := pages(t, s, approval.Filter{Tenants: tenants, Status: approval.Pending}, 2); !slices.Equal(ids, all[:len(all)*(1-n)]) {
			t.Errorf("in %v wait %v", tenants, ids)
		}
	}
}

// TestABeginningIsFoundForAsLongAsItsTask, also when what it asked for is forgotten.
func TestABeginningIsFoundForAsLongAsItsTask(t *testing.T) {
	t.Parallel()
	r := newRecord()
	o := r.options()
	o.Retain = time.Minute
	s := mustOpen(t, quick(t), o)
	a := mustFile(t, s, question("a"))
	task := approval.Task{ID: "task", Tenant: a.Tenant, Caller: a.Caller, Items: []string{a.ID}}
	_, err := s.Begin(task)
	must(t, err)
	for range 2 {
		r.Pass(3 * time.Hour)
		s.Work(t.Context())
	}
	task.ID = "another"
	if got, err := s.Begin(task); got.ID != "task" || err != nil {
		t.Errorf("it is %q, %v", got.ID, err)
	}
}
