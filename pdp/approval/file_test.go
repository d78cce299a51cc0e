package approval_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"policy-service/pdp/approval"
)

// wantLimit wants a limit, and when to try again.
func wantLimit(t *testing.T, err error, retry time.Duration) {
	t.Helper()
	var limit *approval.LimitError
	if !errors.As(err, &limit) || limit.RetryAfter != retry {
		t.Errorf("got %v, want a limit for %v", err, retry)
	}
}

func of(tenant, subject string) func(*approval.Question) {
	return func(q *approval.Question) { q.Tenant, q.Subject.ID = tenant, subject }
}

// TestLimits: of a subject, of its tenant, and each only of its own; after a restart
// they are what they were.
func TestLimits(t *testing.T) {
	r, data := newRecord(), t.TempDir()
	o := r.options()
	o.Limits.MaxPendingPerSubject, o.Limits.MaxPendingPerTenant = 2, 3
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
	r.pass(time.Hour)
	s.Work(t.Context())
	if s.Pending() != 0 {
		t.Errorf("%d are pending", s.Pending())
	}
	must(t, file("f", "acme", "alice"))
}

// TestRate: so many in a minute, of what is new.
func TestRate(t *testing.T) {
	r := newRecord()
	o := r.options()
	o.Limits.NewPerMinutePerSubject = 2
	s := mustOpen(t, t.TempDir(), o)
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
	r.pass(30 * time.Second)
	must(t, file(3, "alice"))
	wantLimit(t, file(5, "alice"), 30*time.Second)
}

// TestFileAtOnce: however many ask at once, one is asked for.
func TestFileAtOnce(t *testing.T) {
	r := newRecord()
	s := mustOpen(t, quick(t), r.options())
	for round := range 100 {
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
	s := mustOpen(t, t.TempDir(), newRecord().options())
	for name, c := range map[string]struct {
		change func(*approval.Question)
		want   error
	}{
		"too large":   {func(q *approval.Question) { q.Shown = []byte(`"` + strings.Repeat("x", 64<<10) + `"`) }, approval.ErrTooLarge},
		"no JSON":     {func(q *approval.Question) { q.Shown = []byte(`{"a":`) }, approval.ErrInvalid},
		"no quorum":   {func(q *approval.Question) { q.Terms.Quorum = 0 }, approval.ErrInvalid},
		"no uses":     {func(q *approval.Question) { q.Terms.Uses = 0 }, approval.ErrInvalid},
		"no timeout":  {func(q *approval.Question) { q.Terms.Timeout = 0 }, approval.ErrInvalid},
		"no validity": {func(q *approval.Question) { q.Terms.ValidFor = -1 }, approval.ErrInvalid},
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
