package approval_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/ledger"
	"policy-service/pdp/internal/ledger/ledgertest"
	"policy-service/pdp/pdptest/etcdtest"
	"policy-service/pdp/pdptest/night"
)

// place is one process of several, with a log of its own.
type place struct {
	*stepLog
	s     *approval.Store
	ended map[string]bool // credentials that are not in force
}

// between is an engine that has something done before the last of so many views.
type between struct {
	ledger.Engine
	views atomic.Int32
	do    func()
}

// View implements [ledger.Engine].
func (b *between) View(read func(ledger.State) error) error {
	if b.views.Add(-1) == 0 {
		b.do()
	}
	return b.Engine.View(read)
}

// holds has the first record of a step wait: reached is closed then, and the record goes on once goOn is called.
func holds(o *approval.Options, step string) (reached <-chan struct{}, goOn func()) {
	at, on, first, put := make(chan struct{}), make(chan struct{}), new(sync.Once), o.Record
	o.Record = func(ctx context.Context, s approval.Step) error {
		if s.Name == step {
			first.Do(func() {
				close(at)
				<-on
			})
		}
		return put(ctx, s)
	}
	return at, func() { close(on) }
}

// places are two processes on one state.
func places(t *testing.T, c *ledgertest.Cluster, with ...func(*approval.Options)) []*place {
	t.Helper()
	c.Below, c.Lost = approval.Engine(quick(t)), approval.ErrUnavailable
	if os.Getenv(onEtcd) != "" {
		prefix := t.TempDir()
		c.Of = func() ledger.Engine { return etcdtest.Engine(t, prefix, approval.Known) }
	}
	all := []*place{{stepLog: newRecord(), ended: map[string]bool{}}, {stepLog: newRecord(), ended: map[string]bool{}}}
	var proofs ledgertest.Proofs[approval.Step]
	for n, one := range all {
		one.N = n * 1_000_000 // ids differ
		o := one.options()
		o.Engine, o.Origin = c.Process(), []string{"place", "place/1"}[n] // one begins as the other
		o.InForce = func(_, caller, _ string) bool { return !one.ended[caller] }
		o.Prove, o.Verify = proofs.Prove(o.Origin, one.attest), proofs.Verify
		for _, set := range with {
			set(&o)
		}
		s, err := approval.Open("", o)
		must(t, err)
		t.Cleanup(func() { _ = s.Close() })
		one.s = s
	}
	return all
}

// uses has a decision use an approval, and says whether it is on record.
func (p *place) uses(ctx context.Context, a approval.Approval, decision string) (bool, error) {
	return spend(ctx, p.s, a.ID, a.Digest, decision, p.vouchFor(decision, a.ID, evaluation.Continuation{}))
}

// used are the decisions on record that used an approval.
func used(all []*place, id string) (decisions []string) {
	for _, p := range all {
		p.Mu.Lock()
		for d, step := range p.decisions {
			if step.Approval.ID == id {
				decisions = append(decisions, d)
			}
		}
		p.Mu.Unlock()
	}
	slices.Sort(decisions)
	return decisions
}

// TestOneUseWhereverItIsAsked: of 16 decisions that want one use, half at each of two processes, one has it.
func TestOneUseWhereverItIsAsked(t *testing.T) {
	t.Parallel()
	for round := range uint64(night.Cases(10)) {
		both := places(t, &ledgertest.Cluster{Conflicts: 3, Late: time.Millisecond, Seed: round})
		a := mustFile(t, both[0].s, question("a"))
		mustDecide(t, both[1].s, a.ID, by("mia"))
		var racing sync.WaitGroup
		for n := range 16 {
			racing.Go(func() { _, _ = both[n%2].uses(t.Context(), a, fmt.Sprint("d", n)) })
		}
		racing.Wait()
		for _, p := range both {
			p.s.Work(t.Context())
		}
		got, _, err := both[round%2].s.Get(t.Context(), a.ID)
		if d := used(both, a.ID); len(d) != 1 || !slices.Equal(got.Used, d) || got.Status != approval.UsedUp || err != nil {
			t.Fatalf("round %d: on record are %v, and it is %+v, %v", round, d, got, err)
		}
	}
}

// TestReservedElsewhereIsLeftAlone: what one process reserved is in doubt until that process says what became of it,
// whatever the log of another says.
func TestReservedElsewhereIsLeftAlone(t *testing.T) {
	t.Parallel()
	both := places(t, &ledgertest.Cluster{})
	here, there := both[0], both[1]
	a := mustFile(t, here.s, question("a"))
	mustDecide(t, here.s, a.ID, by("mia"))
	r, err := there.s.Reserve(t.Context(), a.ID, a.Digest, "d")
	must(t, err)
	must(t, there.vouchFor("d", a.ID, evaluation.Continuation{})(t.Context()))
	r.InDoubt()
	for range 3 {
		here.s.Work(t.Context())
	}
	if got, _, err := here.s.Get(t.Context(), a.ID); len(got.Reserved) != 1 || got.Origins["d"] != "place/1" || err != nil {
		t.Fatalf("it is %+v, %v", got, err)
	}
	if spent, err := here.uses(t.Context(), a, "other"); spent || err != nil {
		t.Fatalf("a use that is in doubt is used: %v, %v", spent, err)
	}
	there.s.Work(t.Context())
	if got, _, err := here.s.Get(t.Context(), a.ID); !slices.Equal(got.Used, []string{"d"}) || len(got.Reserved) > 0 || err != nil {
		t.Errorf("the log says that it was used, and it is %+v, %v", got, err)
	}
}

// TestUnrecordedElsewhereDoesNotCount: a vote that the log of another process does not have yet is none.
func TestUnrecordedElsewhereDoesNotCount(t *testing.T) {
	t.Parallel()
	both := places(t, &ledgertest.Cluster{})
	here, there := both[0], both[1]
	a := mustFile(t, here.s, question("a"))
	there.Set(true, false, false)
	if _, err := there.s.Decide(t.Context(), a.ID, 0, by("mia"), all, equal); !errors.Is(err, approval.ErrUnrecorded) {
		t.Fatal(err)
	}
	isLive(t, "while the vote is not on record", here.s, a.Digest, "", false)
	if spent, err := here.uses(t.Context(), a, "d"); spent || !errors.Is(err, approval.ErrUnrecorded) {
		t.Errorf("it is used: %v, %v", spent, err)
	}
	here.s.Work(t.Context())
	if got := here.names(a.ID); !slices.Equal(got, []string{"filed"}) {
		t.Errorf("the vote of another is on record here: %v", got)
	}
	there.Set(false, false, false)
	there.s.Work(t.Context())
	isLive(t, "once it is on record", here.s, a.Digest, "", true)
	if spent, err := here.uses(t.Context(), a, "e"); !spent || err != nil {
		t.Errorf("it is not used: %v, %v", spent, err)
	}
}

// TestOneDoesItForAll: one process delivers the events of all, and another one half a minute after it has ended.
func TestOneDoesItForAll(t *testing.T) {
	t.Parallel()
	both := places(t, &ledgertest.Cluster{})
	here, there := both[0], both[1]
	mustFile(t, there.s, question("a"))
	if got := here.s.Untold(10, 10); len(got) != 1 {
		t.Fatalf("what is due is %v", got)
	}
	there.Pass(29 * time.Second)
	if got := there.s.Untold(10, 10); len(got) != 0 {
		t.Errorf("another delivers it, too: %v", got)
	}
	must(t, here.s.Close())
	there.Pass(time.Second)
	if got := there.s.Untold(10, 10); len(got) != 1 {
		t.Errorf("half a minute later nobody delivers it: %v", got)
	}
}

// TestNewsOfAnother: who waits for a change hears of one that another process makes, once it counts.
func TestNewsOfAnother(t *testing.T) {
	t.Parallel()
	both := places(t, &ledgertest.Cluster{})
	here, there := both[0], both[1]
	a := mustFile(t, here.s, question("a"))
	news := here.s.News(func(n approval.Notice) bool { return n.ID == a.ID && n.Tenant == "acme" && n.Caller == "key:gateway" })
	defer news.Close()
	there.Set(true, false, false)
	_, _ = there.s.Decide(t.Context(), a.ID, 0, by("mia"), all, equal)
	select {
	case <-news.C:
		t.Error("it is news before it counts")
	default:
	}
	there.Set(false, false, false)
	there.s.Work(t.Context())
	<-news.C // it counts
	_, err := there.s.Begin(approval.Task{ID: "task", Tenant: a.Tenant, Caller: a.Caller, Items: []string{a.ID}})
	must(t, err)
	<-news.C
}

// TestAForgottenTaskTakesNothingOfItsSuccessor: two processes forget a task late, and the program has asked again between.
func TestAForgottenTaskTakesNothingOfItsSuccessor(t *testing.T) {
	t.Parallel()
	both := places(t, &ledgertest.Cluster{})
	here, there := both[0], both[1]
	a := mustFile(t, here.s, question("a"))
	first, err := here.s.Begin(approval.Task{ID: "first", Tenant: a.Tenant, Caller: a.Caller, Items: []string{a.ID}, Key: [32]byte{1}})
	must(t, err)
	must(t, there.s.ForgetTask(t.Context(), first))
	_, err = there.s.Begin(approval.Task{ID: "second", Tenant: a.Tenant, Caller: a.Caller, Items: []string{a.ID}, Key: [32]byte{1}})
	must(t, err)
	must(t, here.s.ForgetTask(t.Context(), first))
	if got, found, err := there.s.Known([32]byte{1}, [32]byte{}); got.ID != "second" || !found || err != nil {
		t.Errorf("it is %q, %v, %v", got.ID, found, err)
	}
}

// TestALogThatWasCut is refused by its own place, whatever another one wrote since.
func TestALogThatWasCut(t *testing.T) {
	t.Parallel()
	c := &ledgertest.Cluster{}
	here := places(t, c)[0]
	a := mustFile(t, here.s, question("a"))
	mustDecide(t, here.s, a.ID, by("mia"))
	o := newRecord().options()
	o.Engine, o.Origin = c.Process(), "place"
	if _, err := approval.Open("", o); !errors.Is(err, approval.ErrShort) || !strings.Contains(err.Error(), a.ID) {
		t.Error(err)
	}
}

// TestOneMoreUseNeedsVotesThatCountHere: between two uses of a batch another process asked again, and other people said yes
// whose credentials are not in force here.
func TestOneMoreUseNeedsVotesThatCountHere(t *testing.T) {
	t.Parallel()
	both := places(t, &ledgertest.Cluster{})
	here, there := both[0], both[1]
	a := mustFile(t, here.s, question("a", func(q *approval.ApprovalRequest) { q.Terms.Uses = 5 }))
	mustDecide(t, here.s, a.ID, by("mia"))
	use, err := here.s.Reserve(t.Context(), a.ID, a.Digest, "d0")
	must(t, err)
	defer use.InDoubt()
	here.ended["key:mia"], there.ended["key:mia"] = true, true
	if r, err := there.s.Reserve(t.Context(), a.ID, a.Digest, "e0"); r != nil || err != nil {
		t.Fatal(r, err)
	}
	mustDecide(t, there.s, a.ID, by("ben"))
	here.ended["key:ben"] = true
	if more, err := here.s.ReserveAgain(use, "d1"); more || err != nil {
		t.Errorf("it takes one more: %v, %v", more, err)
	}
}

// TestEachChangeOnceOrRefused: two processes do random things at once, where changes come in between, answers are late and
// some are lost. Each change was made once or not at all: in the end the state is what both logs say together.
func TestEachChangeOnceOrRefused(t *testing.T) {
	t.Parallel()
	for round := range uint64(night.Cases(8)) {
		c := &ledgertest.Cluster{Conflicts: 3, Late: 200 * time.Microsecond, Seed: round}
		both := places(t, c)
		c.Forgets = 6
		var doing sync.WaitGroup
		for n := range 8 {
			random := rand.New(rand.NewPCG(round, uint64(n)))
			p := both[n%2]
			doing.Go(func() {
				for step := range 60 {
					name := fmt.Sprint("q", random.IntN(4))
					a, err := p.s.File(t.Context(), question(name, func(q *approval.ApprovalRequest) { q.Terms.Uses, q.Terms.Quorum = 3, 2 }))
					if err != nil {
						continue
					}
					switch random.IntN(8) {
					case 0:
						_, _ = p.s.Cancel(t.Context(), a.ID, 0, "alice", "key:gateway", "")
					case 1:
						_, _ = p.s.Revoke(t.Context(), a.ID, 0, by("mia"))
					case 2, 3:
						_, _ = p.s.Decide(t.Context(), a.ID, 0, by(fmt.Sprint("p", random.IntN(3))), all, equal)
					case 4:
						p.s.Work(t.Context())
					default:
						_, _ = p.uses(t.Context(), a, fmt.Sprintf("d%d-%d", n, step))
					}
				}
			})
		}
		doing.Wait()
		c.Conflicts, c.Forgets = 0, 0
		for range 2 {
			for _, p := range both {
				p.s.Work(t.Context())
			}
		}
		pending, spent, open := 0, 0, map[[32]byte]string{}
		approvals, next, err := both[round%2].s.List(t.Context(), approval.Filter{}, "", 1000)
		if err != nil || next != "" {
			t.Fatal(next, err)
		}
		for _, a := range approvals {
			if len(a.Reserved) > 0 {
				t.Errorf("round %d: in doubt is %+v", round, a)
			}
			d := used(both, a.ID)
			slices.Sort(a.Used)
			if !slices.Equal(a.Used, d) || len(d) > a.Terms.Uses {
				t.Errorf("round %d: %s was used by %v, and on record are %v", round, a.ID, a.Used, d)
			}
			once := map[string]int{}
			for _, p := range both {
				for _, name := range p.names(a.ID) {
					once[name]++
				}
			}
			votes := 0
			for n, v := range a.Votes {
				votes++
				if slices.ContainsFunc(a.Votes[:n], func(other approval.Vote) bool { return other.By == v.By }) {
					t.Errorf("round %d: %s has two votes of %s", round, a.ID, v.By)
				}
			}
			if once["filed"] != 1 || once["approve"] != votes || once["used"] != len(d) || once["approved"] > 1 {
				t.Errorf("round %d: of %s on record are %v, and it is %+v", round, a.ID, once, a)
			}
			spent += len(d)
			if a.Status == approval.Pending {
				pending++
			}
			if !a.Status.Final() {
				if other := open[a.Digest]; other != "" {
					t.Errorf("round %d: %s and %s are open for the same", round, a.ID, other)
				}
				open[a.Digest] = a.ID
			}
		}
		if pending != both[0].s.Pending() || spent == 0 {
			t.Errorf("round %d: %d are pending, and counted are %d; %d uses", round, pending, both[0].s.Pending(), spent)
		}
	}
}

// TestALongRecordCountsAtItsOriginAlone: its proof would not fit in a transaction.
func TestALongRecordCountsAtItsOriginAlone(t *testing.T) {
	t.Parallel()
	both := places(t, &ledgertest.Cluster{}, func(o *approval.Options) {
		o.Prove = func(context.Context, string) (approval.Proof, bool, error) {
			return approval.Proof{Line: make([]byte, 256<<10+1)}, true, nil
		}
	})
	here, there := both[0], both[1]
	a := mustFile(t, here.s, question("a"))
	mustDecide(t, here.s, a.ID, by("mia"))
	if r, err := there.s.Reserve(t.Context(), a.ID, a.Digest, "d"); r != nil || !errors.Is(err, approval.ErrUnavailable) {
		t.Errorf("elsewhere: %v, %v", r != nil, err)
	}
	if got, _, err := there.s.Get(t.Context(), a.ID); got.Status != approval.Approved || err != nil {
		t.Errorf("it is %+v, %v", got, err)
	}
	if spent, err := here.uses(t.Context(), a, "e"); !spent || err != nil {
		t.Errorf("at its origin: %v, %v", spent, err)
	}
}

// revokingElsewhere opens two processes. The engine of the first lets a test do something between two transactions. The second says
// when it has a revocation to record, and records it once goOn is called.
func revokingElsewhere(t *testing.T) (both []*place, engine *between, revoked <-chan struct{}, goOn func()) {
	t.Helper()
	engine = &between{}
	both = places(t, &ledgertest.Cluster{}, func(o *approval.Options) {
		if o.Origin == "place" {
			engine.Engine, o.Engine = o.Engine, engine
			return
		}
		revoked, goOn = holds(o, approval.StepRevoked)
	})
	return both, engine, revoked, goOn
}

// TestTwoRevokeAll: two processes revoke all that is open at once. What one of them has revoked, and not recorded yet, the other one
// passes over.
func TestTwoRevokeAll(t *testing.T) {
	t.Parallel()
	both, engine, revoked, goOn := revokingElsewhere(t)
	here, there := both[0], both[1]
	all := []approval.Approval{mustFile(t, here.s, question("a")), mustFile(t, here.s, question("b")), mustFile(t, here.s, question("c"))}
	mustDecide(t, here.s, all[1].ID, by("mia"))
	mustDecide(t, here.s, all[2].ID, by("mia"))
	if spent, err := here.uses(t.Context(), all[2], "d"); !spent || err != nil { // and a round may follow
		t.Fatal(spent, err)
	}
	done := make(chan error, 1)
	engine.do = func() { // once the process here has a list
		go func() { done <- there.s.RevokeAll(t.Context(), "policy-service", "a log is lost") }()
		<-revoked
	}
	engine.views.Store(2)
	err := here.s.RevokeAll(t.Context(), "policy-service", "a log is lost")
	goOn()
	must(t, errors.Join(err, <-done))
	for _, a := range all {
		got, _, err := there.s.Get(t.Context(), a.ID)
		steps := 0
		for _, name := range append(here.names(a.ID), there.names(a.ID)...) {
			if name == approval.StepRevoked {
				steps++
			}
		}
		if got.Status != approval.Revoked || steps != 1 || err != nil {
			t.Errorf("it is %s, and was revoked by %d steps: %v", got.Status, steps, err)
		}
	}
}

// TestRevokeAllOfWhatMoves: what another process asks people about again, while all is revoked, is revoked, too.
func TestRevokeAllOfWhatMoves(t *testing.T) {
	t.Parallel()
	meanwhile := func() {}
	both := places(t, &ledgertest.Cluster{}, func(o *approval.Options) {
		if o.Origin != "place" {
			return
		}
		put := o.Record
		o.Record = func(ctx context.Context, step approval.Step) error {
			if do := meanwhile; step.Name == approval.StepRevoked {
				meanwhile = func() {}
				do()
			}
			return put(ctx, step)
		}
	})
	here, there := both[0], both[1]
	a, b := mustFile(t, here.s, question("a")), mustFile(t, here.s, question("b"))
	mustDecide(t, here.s, a.ID, by("mia"))
	mustDecide(t, here.s, b.ID, by("mia"))
	there.ended["key:mia"] = true
	meanwhile = func() {
		if r, err := there.s.Reserve(t.Context(), b.ID, b.Digest, "d"); r != nil || err != nil {
			t.Errorf("what nobody approves any more is used: %v, %v", r != nil, err)
		}
	}
	must(t, here.s.RevokeAll(t.Context(), "policy-service", "a log is lost"))
	if got, _, err := here.s.Get(t.Context(), b.ID); got.Status != approval.Revoked || err != nil {
		t.Errorf("it is %s, %v", got.Status, err)
	}
}
