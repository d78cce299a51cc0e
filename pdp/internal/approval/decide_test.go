package approval_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"policy-service/pdp/internal/approval"
)

func quorum(n int) func(*approval.ApprovalRequest) {
	return func(q *approval.ApprovalRequest) { q.Terms.Quorum = n }
}

func delegable(q *approval.ApprovalRequest) { q.Terms.Delegable = true }

// wantState wants a conflict with a state.
func wantState(t *testing.T, err error, status approval.Status, version int) {
	t.Helper()
	var state *approval.StateError
	if !errors.As(err, &state) || state.Status != status || state.Version != version {
		t.Errorf("got %v, want a conflict with %s in version %d", err, status, version)
	}
}

// TestQuorum: so many people, and not so many names.
func TestQuorum(t *testing.T) {
	t.Parallel()
	r := newRecord()
	s := mustOpen(t, quick(t), r.options())
	a := mustFile(t, s, question("a", quorum(2)))
	decide := func(name string, counts func(approval.Vote) bool) (approval.Approval, error) {
		return s.Decide(t.Context(), a.ID, 0, by(name), counts, samePerson)
	}
	if got, err := decide("mia", all); err != nil || got.Status != approval.Pending || got.Version != 2 {
		t.Fatal(got, err)
	}
	for _, name := range []string{"mia", "mia2"} {
		if _, err := decide(name, all); !errors.Is(err, approval.ErrVoted) {
			t.Errorf("%s votes twice: %v", name, err)
		}
	}
	// Mia may not approve any more, so that ben is the first.
	if got, err := decide("ben", func(v approval.Vote) bool { return v.By != "mia" }); err != nil || got.Status != approval.Pending {
		t.Fatal(got, err)
	}
	r.Pass(time.Minute)
	got, err := decide("eva", func(v approval.Vote) bool { return v.By != "mia" })
	if err != nil || got.Status != approval.Approved || !got.ExpiresAt.Equal(start.Add(11*time.Minute)) || !got.DecidedAt.Equal(start.Add(time.Minute)) {
		t.Fatal(got, err)
	}
	_, err = decide("kai", all)
	wantState(t, err, approval.Approved, 4)
}

// TestOnePersonTurnsOut: two who voted turned out to be one, and are one.
func TestOnePersonTurnsOut(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, quick(t), newRecord().options())
	a := mustFile(t, s, question("a", quorum(3)))
	mustDecide(t, s, a.ID, by("mia"))
	mustDecide(t, s, a.ID, by("mia2"))
	got, err := s.Decide(t.Context(), a.ID, 0, by("ben"), all, samePerson)
	if err != nil || got.Status != approval.Pending || s.Approving(got, all, samePerson) != 2 {
		t.Errorf("%s, %v: two people are three", got.Status, err)
	}
}

// TestValidUntil: it holds as long as each of those who approved said, and a vote that
// does not hold any more is none.
func TestValidUntil(t *testing.T) {
	t.Parallel()
	r := newRecord()
	s := mustOpen(t, quick(t), r.options())
	until := func(name string, d time.Duration) approval.Vote {
		v := by(name)
		v.ValidUntil = start.Add(d)
		return v
	}
	a := mustFile(t, s, question("a", quorum(2)))
	mustDecide(t, s, a.ID, until("mia", 3*time.Minute))
	if got := mustDecide(t, s, a.ID, until("ben", 5*time.Minute)); !got.ExpiresAt.Equal(start.Add(3 * time.Minute)) {
		t.Errorf("it holds until %v", got.ExpiresAt)
	}
	a = mustFile(t, s, question("b", quorum(2)))
	mustDecide(t, s, a.ID, until("mia", 3*time.Minute))
	r.Pass(3 * time.Minute)
	if got := mustDecide(t, s, a.ID, by("ben")); got.Status != approval.Pending {
		t.Errorf("a vote that held until now counts: %s", got.Status)
	}
	if _, err := s.Decide(t.Context(), a.ID, 0, until("eva", 3*time.Minute), all, equal); !errors.Is(err, approval.ErrInvalid) {
		t.Errorf("a vote that holds until now is taken: %v", err)
	}
	if got := mustDecide(t, s, a.ID, until("eva", time.Hour)); !got.ExpiresAt.Equal(start.Add(13 * time.Minute)) {
		t.Errorf("it holds until %v, and the terms say 10 minutes", got.ExpiresAt)
	}
	// Whoever gave it may give another.
	a = mustFile(t, s, question("c", quorum(2)))
	mustDecide(t, s, a.ID, until("mia", 4*time.Minute))
	a, _, err := s.Get(t.Context(), a.ID)
	must(t, err)
	if err := s.MayVote(a, by("mia"), equal); !errors.Is(err, approval.ErrVoted) {
		t.Errorf("while it holds: %v", err)
	}
	r.Pass(time.Minute)
	must(t, s.MayVote(a, by("mia"), equal))
	if got := mustDecide(t, s, a.ID, by("mia")); got.Status != approval.Pending || len(got.Votes) != 1 || s.Approving(got, all, equal) != 1 {
		t.Errorf("after her second vote it is %+v", got)
	}
	if got := mustDecide(t, s, a.ID, by("ben")); got.Status != approval.Approved {
		t.Errorf("two approve: %s", got.Status)
	}
	if want := []string{"filed", "approve", "lapsed", "approve", "approve", "approved"}; !slices.Equal(r.names(a.ID), want) {
		t.Errorf("on record is %v", r.names(a.ID))
	}
}

func TestDelegate(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, quick(t), newRecord().options())
	decide := func(a approval.Approval, v approval.Vote) error {
		_, err := s.Decide(t.Context(), a.ID, 0, v, all, samePerson)
		return err
	}
	to := func(by, to string) approval.Vote {
		return approval.Vote{Statement: approval.Statement{By: by, To: to}, Kind: approval.Delegate}
	}
	fixed := mustFile(t, s, question("fixed", quorum(2)))
	if err := decide(fixed, to("mia", "ben")); !errors.Is(err, approval.ErrNotDelegable) {
		t.Errorf("what the terms do not allow is done: %v", err)
	}
	a := mustFile(t, s, question("a", quorum(2), delegable))
	must(t, decide(a, by("kai")))
	for _, name := range []string{"", "mia", "mia2", "kai"} {
		if err := decide(a, to("mia", name)); !errors.Is(err, approval.ErrNotDelegable) {
			t.Errorf("mia names %q: %v", name, err)
		}
	}
	must(t, decide(a, to("mia", "ben")))
	for _, v := range []approval.Vote{by("mia2"), to("mia", "eva")} {
		if err := decide(a, v); !errors.Is(err, approval.ErrVoted) {
			t.Errorf("mia, who named ben in her place, votes: %v", err)
		}
	}
	must(t, decide(a, by("ben")))
	if got, _, _ := s.Get(t.Context(), a.ID); got.Status != approval.Approved || len(got.Votes) != 3 {
		t.Errorf("it is %+v", got)
	}
}

// TestEnds: what ends one is said once, of the version that was seen.
func TestEnds(t *testing.T) {
	t.Parallel()
	r := newRecord()
	s := mustOpen(t, quick(t), r.options())
	a := mustFile(t, s, question("a"))
	_, err := s.Decide(t.Context(), a.ID, 7, by("mia"), all, equal)
	wantState(t, err, approval.Pending, 1)
	_, err = s.Revoke(t.Context(), a.ID, 0, by("mia"))
	wantState(t, err, approval.Pending, 1)
	got := mustDecide(t, s, a.ID, approval.Vote{Statement: approval.Statement{By: "mia", Reason: "no"}, Kind: approval.Deny})
	if got.Status != approval.Denied || !got.ExpiresAt.IsZero() || got.Votes[0].Reason != "no" || !got.EndedAt.Equal(start) {
		t.Errorf("denied it is %+v", got)
	}
	_, err = s.Cancel(t.Context(), a.ID, 0, "alice", "", "")
	wantState(t, err, approval.Denied, 2)

	b := mustFile(t, s, question("b"))
	if got, err := s.Cancel(t.Context(), b.ID, 1, "alice", "key:gateway", "done"); err != nil || got.Status != approval.Cancelled {
		t.Error(got, err)
	}
	_, err = s.Decide(t.Context(), b.ID, 0, by("mia"), all, equal)
	wantState(t, err, approval.Cancelled, 2)

	q := question("c")
	c := mustFile(t, s, q)
	mustDecide(t, s, c.ID, by("mia"))
	if got, err := s.Revoke(t.Context(), c.ID, 2, by("ben")); err != nil || got.Status != approval.Revoked {
		t.Error(got, err)
	}
	isLive(t, "what was revoked can be spent", s, q.Digest, "", false)
	r.refuses(t, "what was revoked is spent", s, c.ID, q.Digest, "d")

	d := mustFile(t, s, question("d"))
	r.Pass(time.Hour) // exactly
	_, err = s.Decide(t.Context(), d.ID, 0, by("mia"), all, equal)
	wantState(t, err, approval.Expired, 1)
	if _, err := s.Decide(t.Context(), "none", 0, by("mia"), all, equal); !errors.Is(err, approval.ErrNotFound) {
		t.Error(err)
	}
	if _, err := s.Decide(t.Context(), d.ID, 0, approval.Vote{Statement: approval.Statement{By: "mia"}, Kind: "maybe"}, all, equal); err == nil {
		t.Error("a vote that is none is taken")
	}
	if _, found, _ := s.Get(t.Context(), "none"); found {
		t.Error("there is one that is not there")
	}
}
