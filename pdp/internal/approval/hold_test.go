package approval_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"policy-service/pdp/internal/approval"
)

func copyOf(t testing.TB, data string) []byte {
	t.Helper()
	whole, err := os.ReadFile(filepath.Join(data, approval.FileName))
	must(t, err)
	return whole
}

func putBack(t testing.TB, data string, whole []byte) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(data, approval.FileName), whole, 0o600))
}

// TestOlderCopyDoesNotUseTwice: what was used, or taken back, since a copy was made stays
// used and taken back.
func TestOlderCopyDoesNotUseTwice(t *testing.T) {
	t.Parallel()
	for name, since := range map[string]func(*testing.T, *approval.Store, *stepLog, approval.Approval){
		"used_up": func(t *testing.T, s *approval.Store, r *stepLog, a approval.Approval) {
			if spent, err := spend(t.Context(), s, a.ID, a.Digest, "d", r.decide("d")); !spent {
				t.Fatal(err)
			}
		},
		"revoked": func(t *testing.T, s *approval.Store, _ *stepLog, a approval.Approval) {
			_, err := s.Revoke(t.Context(), a.ID, 0, by("ben"))
			must(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, data := newRecord(), quick(t)
			s := mustOpen(t, data, r.options())
			q := question("a")
			a := mustFile(t, s, q)
			pending := copyOf(t, data)
			a = mustDecide(t, s, a.ID, by("mia"))
			approved := copyOf(t, data)
			since(t, s, r, a)
			must(t, s.Close())
			for _, older := range [][]byte{pending, approved} {
				putBack(t, data, older)
				r := r.copy()
				s := mustOpen(t, data, r.options())
				r.refuses(t, "spent", s, a.ID, q.Digest, "again")
				if got, _, err := s.Get(t.Context(), a.ID); err != nil || string(got.Status) != name {
					t.Errorf("it is %s, %v", got.Status, err)
				}
				if names := r.names(a.ID); names[len(names)-1] != approval.StepCaughtUp {
					t.Errorf("that the file was behind is not on record: %v", names)
				}
				must(t, s.Close())
			}
		})
	}
}

// TestOlderCopyCatchesUp: what people said since a copy was made counts, if the step on
// record was written with the key.
func TestOlderCopyCatchesUp(t *testing.T) {
	t.Parallel()
	r, data := newRecord(), quick(t)
	s := mustOpen(t, data, r.options())
	q := question("a", func(q *approval.ApprovalRequest) { q.Terms.Uses = 2 })
	a := mustFile(t, s, q)
	pending := copyOf(t, data)
	mustDecide(t, s, a.ID, by("mia"))
	must(t, s.Close())
	forged := r.copy()
	for n := range forged.Steps {
		forged.Steps = slices.Clone(forged.Steps)
		forged.Steps[n].Seal = ""
	}
	for _, r := range []*stepLog{r, forged} {
		putBack(t, data, pending)
		s := mustOpen(t, data, r.options())
		spent, err := spend(t.Context(), s, a.ID, q.Digest, "d", r.decide("d"))
		if err != nil || spent != (r != forged) {
			t.Errorf("forged %v, spent %v: %v", r == forged, spent, err)
		}
		must(t, s.Close())
	}
}

// TestStepThatIsGoneDoesNotAllow: what the log does not carry any more allows nothing,
// and people are asked again.
func TestStepThatIsGoneDoesNotAllow(t *testing.T) {
	t.Parallel()
	for _, gone := range []string{approval.StepApprove, approval.StepApproved} {
		r, data := newRecord(), quick(t)
		s := mustOpen(t, data, r.options())
		q := question("a")
		a := mustFile(t, s, q)
		mustDecide(t, s, a.ID, by("mia"))
		r.Steps = slices.DeleteFunc(r.Steps, func(s approval.Step) bool { return s.Name == gone })
		r.refuses(t, gone+" is gone: spent", s, a.ID, q.Digest, "d")
		if got, _, _ := s.Get(t.Context(), a.ID); got.Status != approval.Pending || !got.ExpiresAt.Equal(start.Add(time.Hour)) || len(got.Votes) > 0 {
			t.Errorf("%s is gone: %+v", gone, got)
		}
		mustDecide(t, s, a.ID, by("mia"))
		r.uses(t, "what was approved again cannot be used", s, a.ID, q.Digest, "d")
	}
}

// TestRevokedCredentialDoesNotCount: not when votes are counted, and not when what they
// approved is used.
func TestRevokedCredentialDoesNotCount(t *testing.T) {
	t.Parallel()
	r, data := newRecord(), quick(t)
	revoked := map[string]bool{}
	o := r.options()
	o.InForce = func(tenant, caller, _ string) bool { return tenant == "acme" && !revoked[caller] }
	s := mustOpen(t, data, o)
	vote := func(by, caller string) approval.Vote {
		return approval.Vote{Statement: approval.Statement{By: by}, Caller: caller, Kind: approval.Approve}
	}
	two := func(q *approval.ApprovalRequest) { q.Terms.Quorum = 2 }
	a := mustFile(t, s, question("a", two))
	mustDecide(t, s, a.ID, vote("mia", "key:mia"))
	revoked["key:mia"] = true
	if got := mustDecide(t, s, a.ID, vote("ben", "key:ben")); got.Status != approval.Pending || len(got.Votes) != 1 {
		t.Errorf("the vote of a revoked key completes a quorum: %+v", got)
	}
	got := mustDecide(t, s, a.ID, vote("mia", "key:mia-2"))
	if got.Status != approval.Approved {
		t.Errorf("the same person may not vote again: %+v", got)
	}
	revoked["key:ben"] = true
	r.refuses(t, "what a revoked key approved is used", s, a.ID, a.Digest, "d")
	if got, _, _ := s.Get(t.Context(), a.ID); got.Status != approval.Pending || s.Pending() != 1 || len(got.Votes) != 1 {
		t.Errorf("it is %+v", got)
	}
	if names := r.names(a.ID); !slices.Equal(names[len(names)-2:], []string{approval.StepLapsed, approval.StepReopened}) {
		t.Errorf("on record is %v", names)
	}
	r.Pass(2 * time.Hour)
	hasStatus(t, "after its timeout it is", s, a.ID, approval.Expired)
}

// TestDelegateCountsWithWhoNamedThem: a delegate's vote falls with the key that named them.
func TestDelegateCountsWithWhoNamedThem(t *testing.T) {
	t.Parallel()
	r := newRecord()
	revoked := map[string]bool{}
	o := r.options()
	o.InForce = func(_, caller, _ string) bool { return !revoked[caller] }
	s := mustOpen(t, quick(t), o)
	q := question("a", func(q *approval.ApprovalRequest) { q.Terms.Delegable = true })
	a := mustFile(t, s, q)
	mustDecide(t, s, a.ID, approval.Vote{Statement: approval.Statement{By: "mia", To: "ben"}, Caller: "key:mia", Kind: approval.Delegate})
	mustDecide(t, s, a.ID, approval.Vote{Statement: approval.Statement{By: "ben", From: "mia"}, Caller: "key:ben", Kind: approval.Approve})
	revoked["key:mia"] = true
	r.refuses(t, "spent", s, a.ID, q.Digest, "d")
}

// TestReservedUseIsNotGivenBack: of a copy that was made while a use was in doubt, where
// who put it back also took the decision's id from the log's index.
func TestReservedUseIsNotGivenBack(t *testing.T) {
	t.Parallel()
	r, data := newRecord(), quick(t)
	s := mustOpen(t, data, r.options())
	q := question("a")
	a := mustFile(t, s, q)
	mustDecide(t, s, a.ID, by("mia"))
	var reserved []byte
	spent, err := spend(t.Context(), s, a.ID, q.Digest, "d", func(ctx context.Context) error {
		reserved = copyOf(t, data)
		return r.decide("d")(ctx)
	})
	if !spent || err != nil {
		t.Fatal(spent, err)
	}
	must(t, s.Close())
	putBack(t, data, reserved)
	r.Steps = slices.DeleteFunc(r.Steps, func(s approval.Step) bool { return s.Name == approval.StepUsed || s.Name == approval.StepUsedUp })
	r.Steps = append(r.Steps, approval.Step{ID: "d", Decision: "d", Approval: approval.Approval{ID: a.ID}}) // the decision itself
	delete(r.IDs, "d")
	s = mustOpen(t, data, r.options())
	r.refuses(t, "one use was spent twice", s, a.ID, q.Digest, "again")
}

// unlist takes the first approval from the list of what is open.
func unlist(t *testing.T, data string) {
	t.Helper()
	edit(t, data, func(tx *bbolt.Tx) error {
		values := tx.Bucket([]byte("values"))
		key, _ := values.Cursor().Seek([]byte("i/d/"))
		return values.Delete(key)
	})
}

// TestUnlistedIsNotDecided: what is taken from the list of what is open is not held
// against the log, and so nobody decides about it.
func TestUnlistedIsNotDecided(t *testing.T) {
	t.Parallel()
	r, data := newRecord(), quick(t)
	s := mustOpen(t, data, r.options())
	q := question("a")
	a := mustFile(t, s, q)
	pending := copyOf(t, data)
	mustDecide(t, s, a.ID, approval.Vote{Statement: approval.Statement{By: "ben"}, Kind: approval.Deny})
	must(t, s.Close())
	putBack(t, data, pending)
	unlist(t, data)
	s = mustOpen(t, data, r.options())
	if got, err := s.Decide(t.Context(), a.ID, 0, by("mia"), all, equal); err == nil {
		t.Errorf("what was denied is %s", got.Status)
	}
	if spent, _ := spend(t.Context(), s, a.ID, q.Digest, "d", r.decide("d")); spent {
		t.Error("what was denied is used")
	}
}

// TestRecordThatIsGoneDoesNotAllow: a record without content may have been a no.
func TestRecordThatIsGoneDoesNotAllow(t *testing.T) {
	t.Parallel()
	r, data := newRecord(), quick(t)
	s := mustOpen(t, data, r.options())
	q := question("a")
	a := mustFile(t, s, q)
	mustDecide(t, s, a.ID, by("mia"))
	must(t, s.Close())
	o := r.options()
	o.Steps = func(context.Context, uint64, map[string]bool) (map[string][]approval.Step, error) {
		return map[string][]approval.Step{a.ID: {{Name: approval.StepGone, Approval: approval.Approval{ID: a.ID, After: r.Size()}}}}, nil
	}
	s = mustOpen(t, data, o)
	r.refuses(t, "spent", s, a.ID, q.Digest, "d")
}

// TestShorterLogKeepsStoreClosed: what people say after it would stand where they said
// something else before, and a file of then would not know of it.
func TestShorterLogKeepsStoreClosed(t *testing.T) {
	t.Parallel()
	r, data := newRecord(), quick(t)
	s := mustOpen(t, data, r.options())
	mustFile(t, s, question("a"))
	older := r.copy()
	mustFile(t, s, question("b"))
	must(t, s.Close())
	if _, err := approval.Open(data, older.options()); !errors.Is(err, approval.ErrShort) {
		t.Errorf("it opens beside a shorter log: %v", err)
	}
	mustOpen(t, data, r.options())
}
