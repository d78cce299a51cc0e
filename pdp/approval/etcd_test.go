package approval_test

import (
	"context"
	"testing"

	"policy-service/pdp/approval"
	"policy-service/pdp/pdptest/etcdtest"
)

// In etcd it takes two commits to file, and to vote, and one to take a use. The answer waits for no other.
func TestCommits(t *testing.T) {
	t.Parallel()
	r, prefix := newRecord(), t.TempDir()
	o := r.options()
	engine := etcdtest.Engine(t, prefix, approval.Known)
	o.Engine, o.Origin, o.AnswerFirst = engine, "here", true
	proofs := 0
	o.Prove = func(context.Context, string) (approval.Proof, bool, error) {
		proofs++
		return approval.Proof{}, true, nil
	}
	s := mustOpen(t, "", o)
	commits := func() (n uint64) { _, n = engine.Calls(); return n }
	takes := func(what string, most uint64, do func()) {
		t.Helper()
		before := commits()
		if do(); commits()-before != most {
			t.Errorf("%s takes %d commits, want %d", what, commits()-before, most)
		}
	}
	q := question("a", func(q *approval.ApprovalRequest) { q.Terms.Uses = 2 })
	var a approval.Approval
	takes("to file", 2, func() { a = mustFile(t, s, q) })
	takes("a vote", 2, func() { mustDecide(t, s, a.ID, by("mia")) })
	if proofs != 2 {
		t.Errorf("there are %d proofs, of the vote and of what it brought about", proofs)
	}
	var use *approval.Reservation
	takes("a use", 1, func() {
		var err error
		use, err = s.Reserve(t.Context(), a.ID, a.Digest, "d1")
		must(t, err)
		must(t, r.decide("d1")(t.Context()))
	})
	use.Spent(t.Context())
	must(t, s.Close()) // which waits for what is being settled
	o.Engine = etcdtest.Engine(t, prefix, approval.Known)
	s = mustOpen(t, "", o)
	if got, _, _ := s.Get(t.Context(), a.ID); len(got.Used) != 1 || len(got.Reserved) != 0 {
		t.Errorf("it is %+v", got)
	}
}
