package approval_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/ledger/ledgertest"
	"policy-service/pdp/pdptest/etcdtest"
)

// In etcd it takes two commits to file, to vote, and to use an approval: one to reserve the use, and one to settle it. The answer
// waits for no other.
func TestCommits(t *testing.T) {
	t.Parallel()
	r, prefix := newRecord(), t.TempDir()
	o := r.options()
	engine := etcdtest.Engine(t, prefix, approval.Known)
	o.Engine, o.Origin = engine, "here"
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

// Two processes open what a copy of etcd has at the same time, and one finds an item that the other one is catching up with. Each
// takes from its log what it did after the copy.
func TestReplicasOpenACopyAtOnce(t *testing.T) {
	t.Parallel()
	members := etcdtest.Start(t, etcdtest.Options{Members: 1})
	var proofs ledgertest.Proofs[approval.Step]
	logs, prefix := [2]*stepLog{newRecord(), newRecord()}, t.TempDir()
	logs[1].N = 1_000_000 // ids differ
	options := func(n int) approval.Options {
		o := logs[n].options()
		o.Engine = members.Engine(prefix, approval.Known)
		o.Origin = []string{"place", "place/1"}[n]
		o.Prove, o.Verify = proofs.Prove(o.Origin, logs[n].attest), proofs.Verify
		return o
	}
	stores := [2]*approval.Store{mustOpen(t, "", options(0)), mustOpen(t, "", options(1))}
	a := mustFile(t, stores[0], question("a", func(q *approval.ApprovalRequest) { q.Terms.Uses = 3 }))
	mustDecide(t, stores[0], a.ID, by("mia"))
	copied := members.CopyOf()
	for n, store := range stores {
		d := fmt.Sprint("d", n)
		_, err := spend(t.Context(), store, a.ID, a.Digest, d, logs[n].decideBy(d, a.ID, evaluation.Continuation{}))
		must(t, err)
	}
	for _, store := range stores {
		must(t, store.Close())
	}
	members.PutBack(copied)

	late, looks, goOn := options(1), make(chan struct{}), make(chan struct{})
	steps := late.Steps
	late.Steps = func(ctx context.Context, from uint64, ids map[string]bool) (map[string][]approval.Step, error) {
		close(looks)
		<-goOn
		return steps(ctx, from, ids)
	}
	early := options(0)
	writes, goesOnRecord := holds(&early, approval.StepCaughtUp)
	opened := make(chan *approval.Store, 2)
	open := func(o approval.Options) {
		s, err := approval.Open("", o)
		if err != nil {
			t.Error(err)
		}
		opened <- s
	}
	go open(late)
	<-looks
	go open(early)
	<-writes
	close(goOn)
	second := <-opened
	goesOnRecord()
	for _, store := range []*approval.Store{second, <-opened} {
		t.Cleanup(func() { _ = store.Close() })
		etcdtest.Eventually(t, "both uses count", func() bool {
			got, _, err := store.Get(t.Context(), a.ID)
			return err == nil && len(got.Used) == 2
		})
	}
}

// Etcd is put back from a copy, and two processes open what it has, one after the other. Each takes from its log what it did after
// the copy, also what has a lower version than what the other one took before; but then no vote, nor what votes brought about.
func TestReplicasOpenACopy(t *testing.T) {
	t.Parallel()
	type at struct {
		n  int // of the process
		do string
	}
	members := etcdtest.Start(t, etcdtest.Options{Members: 1})
	var after, back []func()
	for name, c := range map[string]struct {
		before, after []at // the copy
		want          []approval.Status
	}{
		"revoked":        {[]at{{0, "mia"}, {1, "ben"}}, []at{{0, "use"}, {0, "use"}, {1, "revoke"}}, []approval.Status{approval.Revoked}},
		"denied":         {nil, []at{{0, "mia"}, {1, "deny"}}, []approval.Status{approval.Denied}},
		"cancelled":      {nil, []at{{0, "mia"}, {1, "cancel"}}, []approval.Status{approval.Cancelled}},
		"used at both":   {[]at{{0, "mia"}, {1, "ben"}}, []at{{0, "use"}, {1, "use"}, {0, "use"}}, []approval.Status{approval.UsedUp}},
		"asked again":    {nil, []at{{0, "mia"}, {1, "ben"}, {0, "lapse"}}, []approval.Status{approval.Pending}},
		"voted at both":  {nil, []at{{0, "mia"}, {1, "ben"}}, []approval.Status{approval.Approved, approval.Pending}},
		"nothing at all": {[]at{{0, "mia"}, {1, "ben"}}, nil, []approval.Status{approval.Approved}},
	} {
		for first := range 2 {
			var proofs ledgertest.Proofs[approval.Step]
			var stores [2]*approval.Store
			logs, prefix, ended := [2]*stepLog{newRecord(), newRecord()}, t.TempDir(), ""
			logs[1].N = 1_000_000 // ids differ
			open := func(n int) {
				o := logs[n].options()
				o.Engine = members.Engine(prefix, approval.Known)
				o.Origin = []string{"place", "place/1"}[n]
				o.InForce = func(_, caller, _ string) bool { return caller != ended }
				o.Prove, o.Verify = proofs.Prove(o.Origin, logs[n].attest), proofs.Verify
				stores[n] = mustOpen(t, "", o)
			}
			open(0)
			open(1)
			a := mustFile(t, stores[0], question("a", func(q *approval.ApprovalRequest) { q.Terms.Quorum, q.Terms.Uses = 2, 3 }))
			uses := 0
			do := func(all []at) {
				var err error
				for _, at := range all {
					switch store, no := stores[at.n], by("zoe"); at.do {
					case "use":
						uses++
						d := fmt.Sprint("d", uses)
						_, err = spend(t.Context(), store, a.ID, a.Digest, d, logs[at.n].decideBy(d, a.ID, evaluation.Continuation{}))
					case "revoke":
						_, err = store.Revoke(t.Context(), a.ID, 0, no)
					case "cancel":
						_, err = store.Cancel(t.Context(), a.ID, 0, "zoe", a.Caller, "")
					case "lapse":
						ended = "key:mia"
						if r, failed := store.Reserve(t.Context(), a.ID, a.Digest, "no use"); r != nil || failed != nil {
							t.Fatalf("%s: a use of what one person approves: %v, %v", name, r, failed)
						}
						ended = ""
					case "deny":
						no.Kind = approval.Deny
						mustDecide(t, store, a.ID, no)
					default:
						mustDecide(t, store, a.ID, by(at.do))
					}
					must(t, err)
				}
			}
			do(c.before)
			after = append(after, func() {
				do(c.after)
				must(t, stores[0].Close())
				must(t, stores[1].Close())
			})
			back = append(back, func() {
				open(first)
				open(1 - first)
				for _, again := range []int{0, 1, first} { // and nothing counts twice
					got, _, err := stores[again].Get(t.Context(), a.ID)
					if must(t, err); !slices.Contains(c.want, got.Status) || !got.Status.Final() && len(got.Used) != uses {
						t.Errorf("%s, process %d first: it is %s, and was used by %q, want %s", name, first, got.Status, got.Used, c.want)
					}
					must(t, stores[again].Close())
					open(again)
				}
			})
		}
	}
	copied := members.CopyOf()
	for _, do := range after {
		do()
	}
	members.PutBack(copied)
	for _, do := range back {
		do()
	}
}
