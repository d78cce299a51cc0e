package approval_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"policy-service/evaluation"
	"policy-service/pdp/internal/approval"
)

// madeCall has a call approved and made, with the decision "use".
func madeCall(t *testing.T, s *approval.Store, r *stepLog, name string, change ...func(*approval.ApprovalRequest)) approval.Approval {
	t.Helper()
	q := question(name, change...)
	a := mustFile(t, s, q)
	mustDecide(t, s, a.ID, by("mia"))
	if spent, err := spend(t.Context(), s, a.ID, q.Digest, "use of "+name, r.decideBy("use of "+name, a.ID, evaluation.Continuation{})); !spent {
		t.Fatal(err)
	}
	return a
}

// asksRound asks for a round of the use of a call, with a decision of that name.
func asksRound(t *testing.T, s *approval.Store, r *stepLog, a approval.Approval, use string, round int, decision string) bool {
	t.Helper()
	c := evaluation.Continuation{Decision: use, Round: round}
	answered, err := goOn(t.Context(), s, a.ID, a.Digest, c, decision, r.decideBy(decision, a.ID, c))
	must(t, err)
	return answered
}

// TestRoundInDoubt: while nobody can say whether the decision of a round is on record, that round cannot be had, nor the
// next. Afterwards it is what the record says. All that holds after the time to go on, too.
func TestRoundInDoubt(t *testing.T) {
	t.Parallel()
	for _, half := range []bool{false, true} {
		for _, late := range []bool{false, true} {
			r, data := newRecord(), quick(t)
			s := mustOpen(t, data, r.options())
			a := madeCall(t, s, r, "a")
			first := evaluation.Continuation{Decision: "use of a", Round: 1}
			r.Set(true, half, true)
			if answered, err := goOn(t.Context(), s, a.ID, a.Digest, first, "d", r.decide("d")); answered || err == nil {
				t.Fatal(answered, err)
			}
			must(t, s.Close())
			s = mustOpen(t, data, r.options())
			s.Work(t.Context())
			if got, _, _ := s.Get(t.Context(), a.ID); !got.InDoubt("use of a") || got.InDoubt("another") {
				t.Errorf("in doubt it is %+v", got)
			}
			for round := 1; round <= 2; round++ {
				if asksRound(t, s, r, a, "use of a", round, fmt.Sprint("e", round)) {
					t.Errorf("round %d is answered while the first is in doubt", round)
				}
			}
			if late {
				r.Pass(time.Hour)
				s.Work(t.Context())
			}
			r.Set(false, false, false)
			s.Work(t.Context())
			last := map[bool]string{false: approval.StepReleased, true: approval.StepContinued}[half]
			if names := r.names(a.ID); names[len(names)-1] != last {
				t.Errorf("the steps are %v, and the last is not %s", names, last)
			}
			if got := asksRound(t, s, r, a, "use of a", 1, "f"); got != (!half && !late) {
				t.Errorf("on record %v, too late %v: the round is there again: %v", half, late, got)
			}
			if got := asksRound(t, s, r, a, "use of a", 2, "g"); got == late {
				t.Errorf("on record %v, too late %v: the next round is there: %v", half, late, got)
			}
		}
	}
}

// TestRevokeAllEndsRounds: what was used up is open as long as something may go on from its use.
func TestRevokeAllEndsRounds(t *testing.T) {
	t.Parallel()
	r := newRecord()
	s := mustOpen(t, quick(t), r.options())
	a := madeCall(t, s, r, "a")
	must(t, s.RevokeAll(t.Context(), "policy-service", "a log is lost"))
	if asksRound(t, s, r, a, "use of a", 1, "d") {
		t.Error("something goes on")
	}
}

// TestReservedRoundIsNotGivenBack is [TestReservedUseIsNotGivenBack] of a round: of a copy that was made while it was in
// doubt, where who put it back also took the decision's id from the log's index.
func TestReservedRoundIsNotGivenBack(t *testing.T) {
	t.Parallel()
	r, data := newRecord(), quick(t)
	s := mustOpen(t, data, r.options())
	a := madeCall(t, s, r, "a")
	c := evaluation.Continuation{Decision: "use of a", Round: 1}
	var reserved []byte
	if answered, err := goOn(t.Context(), s, a.ID, a.Digest, c, "d", func(ctx context.Context) error {
		reserved = copyOf(t, data)
		return r.decideBy("d", a.ID, c)(ctx)
	}); !answered {
		t.Fatal(err)
	}
	must(t, s.Close())
	putBack(t, data, reserved)
	r.Steps = slices.DeleteFunc(r.Steps, func(s approval.Step) bool { return s.Name == approval.StepContinued })
	delete(r.IDs, "d")
	s = mustOpen(t, data, r.options())
	if asksRound(t, s, r, a, "use of a", 1, "again") {
		t.Error("one round is answered twice")
	}
}

// TestCopyOfAReservationCountsOnce: what the log settled since a copy was made with a reservation is counted once, a use
// as well as a round.
func TestCopyOfAReservationCountsOnce(t *testing.T) {
	t.Parallel()
	r, data := newRecord(), quick(t)
	s := mustOpen(t, data, r.options())
	two := func(q *approval.ApprovalRequest) { q.Terms.Uses = 3 }
	a := madeCall(t, s, r, "a", two)
	for name, do := range map[string]func(record func(context.Context) error) (bool, error){
		"use": func(record func(context.Context) error) (bool, error) {
			return spend(t.Context(), s, a.ID, a.Digest, "use", record)
		},
		"round": func(record func(context.Context) error) (bool, error) {
			return goOn(t.Context(), s, a.ID, a.Digest, evaluation.Continuation{Decision: "use of a", Round: 1}, "round", record)
		},
	} {
		var reserved []byte
		round := evaluation.Continuation{Decision: "use of a", Round: map[string]int{"round": 1}[name]}
		if round.Round == 0 {
			round = evaluation.Continuation{}
		}
		done, err := do(func(ctx context.Context) error {
			reserved = copyOf(t, data)
			return r.decideBy(name, a.ID, round)(ctx)
		})
		if !done {
			t.Fatal(name, err)
		}
		want, _, _ := s.Get(t.Context(), a.ID)
		must(t, s.Close())
		putBack(t, data, reserved)
		s = mustOpen(t, data, r.options())
		got, _, _ := s.Get(t.Context(), a.ID)
		if !slices.Equal(got.Used, want.Used) || len(got.Reserved) > 0 || got.Continued != want.Continued || got.InDoubt("use of a") {
			t.Errorf("%s: used %v, reserved %v, continued %d; want %v, none, %d", name, got.Used, got.Reserved, got.Continued, want.Used, want.Continued)
		}
	}
}

// TestRoundsBeforeAKnownOneAreTaken: if the log has a round and nothing of those before it, an older copy answers none of
// them again.
func TestRoundsBeforeAKnownOneAreTaken(t *testing.T) {
	t.Parallel()
	r, data := newRecord(), quick(t)
	s := mustOpen(t, data, r.options())
	a := madeCall(t, s, r, "a")
	older := copyOf(t, data)
	for round := 1; round <= 2; round++ {
		if !asksRound(t, s, r, a, "use of a", round, fmt.Sprint("d", round)) {
			t.Fatalf("round %d is not answered", round)
		}
	}
	must(t, s.Close())
	putBack(t, data, older)
	r.Steps = slices.DeleteFunc(r.Steps, func(s approval.Step) bool { return s.Decision == "d1" })
	s = mustOpen(t, data, r.options())
	for round := 1; round <= 3; round++ {
		if got := asksRound(t, s, r, a, "use of a", round, fmt.Sprint("e", round)); got != (round == 3) {
			t.Errorf("round %d is answered: %v", round, got)
		}
	}
}

// TestNothingGoesOnFromWhatIsAskedAgain: votes lapse, people approve again, and what was used before is over.
func TestNothingGoesOnFromWhatIsAskedAgain(t *testing.T) {
	t.Parallel()
	r, data := newRecord(), quick(t)
	revoked := map[string]bool{}
	o := r.options()
	o.InForce = func(_, caller, _ string) bool { return !revoked[caller] }
	s := mustOpen(t, data, o)
	a := madeCall(t, s, r, "a", func(q *approval.ApprovalRequest) { q.Terms.Uses = 3 })
	older := copyOf(t, data)
	revoked["key:mia"] = true
	if asksRound(t, s, r, a, "use of a", 1, "d") {
		t.Error("it goes on from what a revoked key approved")
	}
	hasStatus(t, "it is", s, a.ID, approval.Pending)
	again := func() {
		t.Helper()
		mustDecide(t, s, a.ID, approval.Vote{Statement: approval.Statement{By: "ben"}, Caller: "key:ben", Kind: approval.Approve})
		if asksRound(t, s, r, a, "use of a", 1, "e") {
			t.Error("it goes on from a use of before people were asked again")
		}
		if spent, err := spend(t.Context(), s, a.ID, a.Digest, "f", r.decideBy("f", a.ID, evaluation.Continuation{})); !spent || !asksRound(t, s, r, a, "f", 1, "g") {
			t.Errorf("it does not go on from a use of after that: %v", err)
		}
	}
	must(t, s.Close())
	record := r.copy()
	s = mustOpen(t, data, o)
	again()
	must(t, s.Close())
	putBack(t, data, older) // the step that says that people are asked again is in the log alone
	r.IDs, r.steps, r.Steps = record.IDs, record.steps, record.Steps
	s = mustOpen(t, data, o)
	again()
}

// TestRecordThatIsGoneEndsRounds: a record without content may have been that of a round.
func TestRecordThatIsGoneEndsRounds(t *testing.T) {
	t.Parallel()
	r, data := newRecord(), quick(t)
	s := mustOpen(t, data, r.options())
	a := madeCall(t, s, r, "a")
	must(t, s.Close())
	o := r.options()
	o.Steps = func(context.Context, uint64, map[string]bool) (map[string][]approval.Step, error) {
		return map[string][]approval.Step{a.ID: {{Name: approval.StepGone, Approval: approval.Approval{ID: a.ID, After: r.Size()}}}}, nil
	}
	s = mustOpen(t, data, o)
	if asksRound(t, s, r, a, "use of a", 1, "d") {
		t.Error("a round is answered that may have been answered before")
	}
	hasStatus(t, "it is", s, a.ID, approval.UsedUp)
}

// TestUnlistedIsNotContinued: what can be continued and is taken from the list of what is held against the log is not
// continued.
func TestUnlistedIsNotContinued(t *testing.T) {
	t.Parallel()
	r, data := newRecord(), quick(t)
	s := mustOpen(t, data, r.options())
	a := madeCall(t, s, r, "a")
	must(t, s.Close())
	unlist(t, data)
	s = mustOpen(t, data, r.options())
	c := evaluation.Continuation{Decision: "use of a", Round: 1}
	if answered, err := goOn(t.Context(), s, a.ID, a.Digest, c, "d", r.decide("d")); answered || err == nil {
		t.Errorf("what is not held against the log is continued: %v", err)
	}
	if _, can, _ := s.Continuable(a.ID, a.Digest, c); can {
		t.Error("it is said that it can be")
	}
}

// TestUseThatTheLogLacksIsNotContinued: somebody has a use in doubt settled, by an index that knows of its decision. That
// takes a use, and gives no round.
func TestUseThatTheLogLacksIsNotContinued(t *testing.T) {
	t.Parallel()
	for name, vouched := range map[string]approval.Step{
		"nothing":          {},
		"another approval": {ID: "d", Decision: "d", Approval: approval.Approval{ID: "another"}},
		"a round":          {ID: "d", Decision: "d", Continues: evaluation.Continuation{Decision: "c", Round: 1}},
		"another decision": {ID: "e", Decision: "e"},
		"a step":           {ID: "d", Name: approval.StepUsed, Decision: "d"},
		"the use":          {ID: "d", Decision: "d"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRecord()
			s := mustOpen(t, quick(t), r.options())
			q := question("a")
			a := mustFile(t, s, q)
			mustDecide(t, s, a.ID, by("mia"))
			r.Set(true, false, true)
			if spent, err := spend(t.Context(), s, a.ID, q.Digest, "d", r.decide("d")); spent || err == nil {
				t.Fatal(spent, err)
			}
			r.Set(false, false, false)
			r.IDs["d"] = true // of the index
			if vouched.ID != "" {
				if vouched.Approval.ID == "" {
					vouched.Approval.ID = a.ID
				}
				r.decisions["d"] = vouched
			}
			s.Work(t.Context())
			if got, _, _ := s.Get(t.Context(), a.ID); got.Status != approval.UsedUp {
				t.Fatalf("it is %+v", got)
			}
			if got := asksRound(t, s, r, a, "d", 1, "f"); got != (name == "the use") {
				t.Errorf("it is continued: %v", got)
			}
		})
	}
}

// TestNoRoundWithoutRounds: an approval that is stored without rounds has none, also if a use of it is still open.
func TestNoRoundWithoutRounds(t *testing.T) {
	t.Parallel()
	r, data := newRecord(), quick(t)
	s := mustOpen(t, data, r.options())
	a := madeCall(t, s, r, "a")
	must(t, s.Close())
	edit(t, data, func(tx *bbolt.Tx) error {
		return approval.EditApproval(tx, key, a.ID, func(text string) string {
			left := strings.Replace(text, `"rounds":10,`, "", 1)
			if left == text || !strings.Contains(left, `"spendings":[{`) {
				t.Errorf("it is stored as %s", text)
			}
			return left
		})
	})
	s = mustOpen(t, data, r.options())
	if asksRound(t, s, r, a, "use of a", 1, "d") {
		t.Error("a round is answered that no approver was shown")
	}
}
