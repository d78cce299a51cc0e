package approval_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"policy-service/pdp/internal/approval"
	"policy-service/pdp/pdptest/night"
)

// wantLimit wants a limit, and when to try again.
func wantLimit(t *testing.T, err error, retry time.Duration) {
	t.Helper()
	var limit *approval.LimitError
	if !errors.As(err, &limit) || limit.RetryAfter != retry {
		t.Errorf("got %v, want a limit for %v", err, retry)
	}
}

func of(tenant, subject string) func(*approval.ApprovalRequest) {
	return func(q *approval.ApprovalRequest) { q.Tenant, q.Subject.ID = tenant, subject }
}

// TestLimits: of a subject, of its tenant, and each only of its own; after a restart
// they are what they were.
func TestLimits(t *testing.T) {
	t.Parallel()
	r, data := newRecord(), quick(t)
	o := r.options()
	o.Limits.MaxPendingPerSubject, o.Limits.MaxPendingPerTenant, o.Limits.MaxPendingPerCaller = 2, 3, 3
	s := mustOpen(t, data, o)
	file := func(name, tenant, subject string) error {
		_, err := s.File(t.Context(), question(name, of(tenant, subject)))
		return err
	}
	a := mustFile(t, s, question("a", of("acme", "alice")))
	must(t, file("b", "acme", "alice"))
	wantLimit(t, file("c", "acme", "alice"), time.Minute)
	must(t, file("b", "acme", "alice")) // joined
	must(t, file("c", "acme", "bob"))
	wantLimit(t, file("d", "acme", "carol"), time.Minute)
	must(t, file("e", "other", "alice"))
	must(t, s.Close())
	s = mustOpen(t, data, o)
	wantLimit(t, file("d", "acme", "alice"), time.Minute)
	if s.Pending() != 4 {
		t.Errorf("%d are pending", s.Pending())
	}
	mustDecide(t, s, a.ID, by("mia"))
	must(t, file("d", "acme", "alice"))
	r.Pass(time.Hour)
	s.Work(t.Context())
	if s.Pending() != 0 {
		t.Errorf("%d are pending", s.Pending())
	}
	must(t, file("f", "acme", "alice"))
}

// TestRate: so many in a minute, of what is new.
func TestRate(t *testing.T) {
	t.Parallel()
	r := newRecord()
	o := r.options()
	o.Limits.NewPerMinutePerSubject = 2
	s := mustOpen(t, quick(t), o)
	file := func(n int, subject string) error {
		_, err := s.File(t.Context(), question(fmt.Sprint(n), of("acme", subject)))
		return err
	}
	must(t, file(1, "alice"))
	must(t, file(2, "alice"))
	wantLimit(t, file(3, "alice"), 30*time.Second)
	for range 5 {
		must(t, file(1, "alice"))
	}
	must(t, file(4, "bob"))
	r.Pass(30 * time.Second)
	must(t, file(3, "alice"))
	wantLimit(t, file(5, "alice"), 30*time.Second)
}

// TestFileAtOnce: however many ask at once, one is asked for.
func TestFileAtOnce(t *testing.T) {
	t.Parallel()
	r := newRecord()
	s := mustOpen(t, quick(t), r.options())
	for round := range night.Cases(100) {
		ids := make([]string, 4)
		var group sync.WaitGroup
		for i := range ids {
			group.Go(func() {
				a, err := s.File(t.Context(), question(fmt.Sprint(round)))
				if err != nil {
					t.Error(err)
				}
				ids[i] = a.ID
			})
		}
		group.Wait()
		if ids[0] != ids[1] || ids[1] != ids[2] || ids[2] != ids[3] || s.Pending() != min(round+1, 200) {
			t.Fatalf("%v are one question, and %d are pending", ids, s.Pending())
		}
	}
}

func TestFileRefused(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, quick(t), newRecord().options())
	for name, c := range map[string]struct {
		change func(*approval.ApprovalRequest)
		want   error
	}{
		"too large":   {func(q *approval.ApprovalRequest) { q.Shown = []byte(`"` + strings.Repeat("x", 64<<10) + `"`) }, approval.ErrTooLarge},
		"no JSON":     {func(q *approval.ApprovalRequest) { q.Shown = []byte(`{"a":`) }, approval.ErrInvalid},
		"no quorum":   {func(q *approval.ApprovalRequest) { q.Terms.Quorum = 0 }, approval.ErrInvalid},
		"no uses":     {func(q *approval.ApprovalRequest) { q.Terms.Uses = 0 }, approval.ErrInvalid},
		"no timeout":  {func(q *approval.ApprovalRequest) { q.Terms.Timeout = 0 }, approval.ErrInvalid},
		"no validity": {func(q *approval.ApprovalRequest) { q.Terms.ValidFor = -1 }, approval.ErrInvalid},
	} {
		if a, err := s.File(t.Context(), question("a", c.change)); !errors.Is(err, c.want) || a.ID != "" {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	mine := mustFile(t, s, question("a"))
	cancel()
	if a, err := s.File(gone, question("a")); err == nil && a.ID != mine.ID {
		t.Errorf("who has gone gets %s", a.ID)
	}
	if s.Pending() != 1 {
		t.Errorf("%d are pending", s.Pending())
	}
}

// TestWhatIsDrawnKeepsNobodyFromAsking: if there is no room for it, people are shown what is on record.
func TestWhatIsDrawnKeepsNobodyFromAsking(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, quick(t), newRecord().options())
	for size, drawn := range map[int]bool{100: true, 64 << 10: false} {
		a := mustFile(t, s, question(fmt.Sprint(size), func(q *approval.ApprovalRequest) { q.Drawn = []byte(`"` + strings.Repeat("x", size) + `"`) }))
		want := a.Shown
		if drawn {
			want = a.Drawn
		}
		if got := a.ForPeople(); a.Shown == nil || (a.Drawn != nil) != drawn || string(got) != string(want) {
			t.Errorf("%d bytes: people are shown %.100s", size, got)
		}
	}
}

func asked(caller, subject string) func(*approval.ApprovalRequest) {
	return func(q *approval.ApprovalRequest) { q.Tenant, q.Caller, q.Subject.ID = "acme", caller, subject }
}

// TestACallerTakesNoMoreThanItsShare: of what waits in a tenant, whatever subjects it names;
// others can ask, and after a restart that is as it was.
func TestACallerTakesNoMoreThanItsShare(t *testing.T) {
	t.Parallel()
	r, data := newRecord(), quick(t)
	o := r.options()
	o.Limits.MaxPendingPerTenant = 12
	s := mustOpen(t, data, o)
	n := 0
	file := func(caller string) (approval.Approval, error) {
		n++
		return s.File(t.Context(), question(fmt.Sprint(n), asked(caller, fmt.Sprint("agent", n))))
	}
	share := func(name, caller string, want int) (last approval.Approval) {
		t.Helper()
		for got := 0; ; got++ {
			a, err := file(caller)
			var limit *approval.LimitError
			if errors.As(err, &limit) {
				if got != want || !limit.OfCaller || limit.RetryAfter != time.Minute {
					t.Errorf("%s: %s has %d filed, want %d; then %+v", name, caller, got, want, limit)
				}
				return last
			}
			must(t, err)
			last = a
		}
	}
	last := share("at first", "key:greedy", 6)
	for range 3 {
		_, err := file("key:other")
		must(t, err)
	}
	must(t, s.Close())
	s = mustOpen(t, data, o)
	share("after a restart", "key:greedy", 0)
	mustDecide(t, s, last.ID, by("mia"))
	share("after one was decided", "key:greedy", 1)
	if _, err := s.File(t.Context(), question("other tenant", func(q *approval.ApprovalRequest) { q.Tenant, q.Caller = "other", "key:greedy" })); err != nil {
		t.Errorf("in another tenant: %v", err)
	}
	must(t, s.Close())
	o.Limits.MaxPendingPerCaller = 12
	s = mustOpen(t, data, o)
	for range 3 { // 9 wait
		if _, err := file("key:greedy"); err != nil {
			t.Errorf("whom the operator gives all: %v", err)
		}
	}
	if _, err := file("key:greedy"); err == nil {
		t.Error("there are more than the tenant may have")
	}
}

// TestLimitsCountByPerson: whoever asks by many agents has no more filed than by one, and keeps nobody else from asking by
// the same agent.
func TestLimitsCountByPerson(t *testing.T) {
	t.Parallel()
	o := newRecord().options()
	o.Limits.MaxPendingPerSubject, o.Limits.NewPerMinutePerSubject = 2, 4
	data := quick(t)
	s := mustOpen(t, data, o)
	n := 0
	file := func(person, agent string) error {
		n++
		_, err := s.File(t.Context(), question(fmt.Sprint(n), asked("key:gateway", agent), func(q *approval.ApprovalRequest) { q.Person = person }))
		return err
	}
	wants := func(what string, err error, refused bool) {
		t.Helper()
		var limit *approval.LimitError
		if refused != errors.As(err, &limit) || limit != nil && limit.OfCaller {
			t.Errorf("%s: %v", what, err)
		}
	}
	wants("one", file("mallory", "desktop"), false)
	wants("another agent", file("mallory", "phone"), false)
	wants("more than waits of one", file("mallory", "laptop"), true)
	wants("another person, by the same agent", file("alice", "desktop"), false)
	wants("for another person", file("alice mallory", "desktop"), false)
	wants("of nobody", file("", "desktop"), false)
	must(t, s.Close())
	s = mustOpen(t, data, o)
	wants("after a restart", file("mallory", "desktop"), true)
	wants("another, after a restart", file("bob", "desktop"), false)
}

// TestFilingAndCancellingHasARate: who cancels what it files has no more filed in a minute
// than its share, whatever subjects it names. A subject that asks too often uses up
// nothing of the others of its caller.
// Who names ever new subjects leaves those of others their own rate, however many there are.
func TestEverNewSubjectsOfOneCallerLeaveOthersTheirRate(t *testing.T) {
	t.Parallel()
	o := newRecord().options()
	o.Now = func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) } // nothing is made good meanwhile
	o.Limits.NewPerMinutePerSubject, o.Limits.NewPerMinutePerCaller = 60, 600
	s := mustOpen(t, quick(t), o)
	for n := range 12_000 {
		_, err := s.File(t.Context(), question(fmt.Sprint("a", n), asked("key:a", fmt.Sprint(n))))
		var limit *approval.LimitError
		if err != nil && (!errors.As(err, &limit) || !limit.OfCaller) {
			t.Fatalf("subject %d: %v", n, err)
		}
	}
	for n := range 100 { // more than one subject may have
		if _, err := s.File(t.Context(), question(fmt.Sprint("b", n), asked("key:b", fmt.Sprint("of b ", n)))); err != nil {
			t.Fatalf("subject %d of another caller: %v", n, err)
		}
	}
}

func TestFilingAndCancellingHasARate(t *testing.T) {
	t.Parallel()
	r := newRecord()
	o := r.options()
	o.Limits.NewPerMinutePerSubject, o.Limits.NewPerMinutePerCaller = 2, 5
	s := mustOpen(t, quick(t), o)
	n := 0
	filed := func(caller, subject string, tries int) (got int, ofCaller bool) {
		for range tries {
			n++
			a, err := s.File(t.Context(), question(fmt.Sprint(n), asked(caller, subject)))
			var limit *approval.LimitError
			if errors.As(err, &limit) {
				ofCaller = limit.OfCaller
				continue
			}
			must(t, err)
			_, err = s.Cancel(t.Context(), a.ID, 0, "", caller, "")
			must(t, err)
			got++
		}
		return got, ofCaller
	}
	if got, ofCaller := filed("key:a", "flood", 100); got != 2 || ofCaller {
		t.Errorf("%d of a subject, %v", got, ofCaller)
	}
	all := 2
	for k := range 10 {
		got, _ := filed("key:a", fmt.Sprint(k), 1)
		all += got
	}
	if all != 5 {
		t.Errorf("%d of a caller", all)
	}
	if _, ofCaller := filed("key:a", "one more", 1); !ofCaller {
		t.Error("it is not said that it is the caller's")
	}
	if got, _ := filed("key:b", "0", 1); got != 1 {
		t.Error("it is the share of another")
	}
}
