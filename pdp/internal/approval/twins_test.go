package approval_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/ledger"
	"policy-service/pdp/internal/ledger/ledgertest"
	"policy-service/pdp/pdptest/etcdtest"
	"policy-service/pdp/pdptest/night"
)

// twins are two processes that work on one state under one name, each with its own copy of one data directory. Each gives back
// what the other has reserved, because its own log does not have the decision.
type twins struct {
	*scene
	reopening sync.Mutex
	between   atomic.Int64 // how often the other one went on

	mu        sync.Mutex          // guards what follows
	yes       map[string][]string // answered decisions, by approval
	withdrawn int                 // answers that were refused because the use had gone
	killed    int
	cut       int
}

// newTwins approves some approval requests, and then copies the directory.
func newTwins(t *testing.T, approvals, uses int) (w *twins, all []approval.Approval) {
	t.Helper()
	c := etcdtest.Start(t, etcdtest.Options{Members: 1})
	w = &twins{yes: map[string][]string{}, scene: &scene{
		t: t, cluster: c, prefix: "/" + t.Name() + "/", most: patience, began: time.Now(), answered: map[string]func(approval.Approval) string{},
	}}
	dir := quick(t)
	for n := range 2 {
		r := &replica{scene: w.scene, n: n, data: filepath.Join(dir, fmt.Sprint(n)), way: c.Client()}
		w.replicas = append(w.replicas, r)
		t.Cleanup(func() {
			r.way.Heal()
			r.end()
		})
	}
	first := w.replicas[0]
	first.ended = true
	w.replicas[1].ended = true
	first.open()
	var filing sync.WaitGroup
	all = make([]approval.Approval, approvals)
	for worker := range 8 {
		filing.Go(func() {
			for n := worker; n < approvals; n += 8 {
				all[n] = mustFile(t, first.store, w.question(fmt.Sprint(n), uses, 1))
				mustDecide(t, first.store, all[n].ID, by("mia"))
			}
		})
	}
	filing.Wait()
	first.end()
	if said, err := exec.CommandContext(t.Context(), "cp", "-a", first.data, w.replicas[1].data).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	for _, r := range w.replicas {
		r.open()
	}
	return w, all
}

// reopen starts a twin that was killed. Its log gets as long as that of the other one: else it is refused, as one that was cut.
func (w *twins) reopen(r *replica) {
	w.reopening.Lock()
	defer w.reopening.Unlock()
	if !r.isEnded() {
		return
	}
	other := w.replicas[1-r.n].its().Size()
	l, err := decisionlog.Open(r.data, decisionlog.Options{Kinds: []string{kind}})
	must(w.t, err)
	var more []record.Entry
	for n := l.Size(); n < other+1000; n++ {
		more = append(more, record.Entry{ID: fmt.Sprint("more ", r.n, " ", n), Kind: kind, Tenant: "acme", Event: "more"})
	}
	for some := range slices.Chunk(more, 500) {
		must(w.t, l.Append(context.Background(), some))
	}
	must(w.t, l.Close())
	r.open()
}

// use has a decision want a use of an approval at a twin, as the PDP does. Meanwhile is called twice: while the use is reserved,
// and when the decision is on record.
func (w *twins) use(r *replica, a approval.Approval, decision string, meanwhile func()) {
	r.mu.RLock()
	store, log := r.store, r.log
	r.mu.RUnlock()
	ctx := context.Background()
	reserved, err := store.Reserve(ctx, a.ID, a.Digest, decision)
	if reserved == nil || err != nil {
		return
	}
	meanwhile()
	if err := allow(log, decision, a.ID)(ctx); err != nil {
		reserved.InDoubt()
		return
	}
	meanwhile()
	err = reserved.Spent(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil:
		w.yes[a.ID] = append(w.yes[a.ID], decision)
	case errors.Is(err, approval.ErrWithdrawn):
		w.withdrawn++
	}
}

// contend has both twins want uses of an approval, where each goes on while the other one stands still, is killed or is cut off.
func (w *twins) contend(random *rand.Rand, a approval.Approval, decisions int) {
	for n := 0; n < decisions; n += 2 {
		r := w.replicas[random.IntN(2)]
		other := w.replicas[1-r.n]
		for _, one := range w.replicas {
			w.reopen(one)
		}
		between := sync.OnceFunc(func() { // the other one gives back what is reserved, and uses it
			other.mu.RLock()
			store := other.store
			other.mu.RUnlock()
			store.Work(w.t.Context())
			w.use(other, a, fmt.Sprint(a.ID, " ", n+1), func() {})
		})
		late := random.IntN(2) == 0
		w.use(r, a, fmt.Sprint(a.ID, " ", n), func() {
			if late {
				late = false
				return
			}
			between()
			switch w.between.Add(1) % 20 { // by count, so that few cases have some of each
			case 0:
				w.mu.Lock()
				w.killed++
				w.mu.Unlock()
				r.end()
			case 1:
				w.mu.Lock()
				w.cut++
				w.mu.Unlock()
				r.way.Cut()
				w.t.Cleanup(r.way.Heal)
				time.AfterFunc(50*time.Millisecond, r.way.Heal)
			}
		})
		between()
	}
}

// TestTwins: two processes with copies of one data directory never answer more uses than there are. Each allow that was not
// answered because the other one had the use is named by its log as withdrawn.
func TestTwins(t *testing.T) {
	t.Parallel()
	const each, uses = 10, 3
	seed, wanted := rand.Uint64(), night.Cases(2000)
	t.Logf("seed %d", seed)
	w, all := newTwins(t, wanted/each, uses)
	var contending sync.WaitGroup
	for worker := range 4 {
		random := rand.New(rand.NewPCG(seed, uint64(worker)))
		contending.Go(func() {
			for n := worker; n < len(all); n += 4 {
				w.contend(random, all[n], each)
			}
		})
	}
	contending.Wait()
	for _, r := range w.replicas {
		r.way.Heal()
		w.reopen(r)
	}
	answered := map[string]bool{}
	for _, a := range all {
		var got approval.Approval
		etcdtest.Succeeds(t, "the approval is read", func() (err error) {
			got, _, err = w.replicas[0].store.Stored(a.ID)
			return err
		})
		yes := w.yes[a.ID]
		if len(yes) > uses {
			t.Errorf("%s has %d uses, and answered were %q", a.ID, uses, yes)
		}
		for _, decision := range yes {
			if answered[decision] = true; !slices.Contains(got.Used, decision) {
				t.Errorf("%q was answered, and %s was used by %q", decision, a.ID, got.Used)
			}
		}
	}
	etcdtest.Eventually(t, "what was withdrawn is on record", func() bool {
		for _, r := range w.replicas {
			r.store.Work(t.Context())
		}
		return true
	})
	withdrawn := map[string]bool{}
	for _, r := range w.replicas {
		r.end()
		report := verify.Directory(r.data, verify.Options{Record: func(_ int64, line []byte) {
			var record struct {
				Event   string           `json:"event"`
				Details record.Withdrawn `json:"details"`
			}
			if must(t, json.Unmarshal(line, &record)); record.Event != format.EventWithdrawn {
				return
			}
			d := record.Details.Decision
			if answered[d] || withdrawn[d] || record.Details.Approval == "" {
				t.Errorf("%+v is withdrawn, answered %v, before %v", record.Details, answered[d], withdrawn[d])
			}
			withdrawn[d] = true
		}})
		if report.Code != verify.Verified {
			t.Errorf("the log of twin %d does not verify: %+v", r.n, report.Problem)
		}
	}
	t.Logf("%d answered, %d withdrawn, %d on record as such, %d killed, %d cut off", len(answered), w.withdrawn, len(withdrawn), w.killed, w.cut)
	if len(answered) < wanted/each || w.withdrawn == 0 || len(withdrawn) < w.withdrawn || w.killed == 0 || w.cut == 0 {
		t.Errorf("it tries too little, or a withdrawal is on no record")
	}
}

// twin opens another process on the state of a place, under the same name and with a copy of its log.
func (p *place) twin(t *testing.T, c *ledgertest.Cluster, proofs *ledgertest.Proofs[approval.Step]) *place {
	t.Helper()
	other := &place{stepLog: p.copy()}
	other.N += 1_000_000 // ids differ
	o := other.options()
	o.Engine, o.Origin = c.Process(), "place"
	o.Prove, o.Verify = proofs.Prove(o.Origin, other.attest), proofs.Verify
	var err error
	other.s, err = approval.Open("", o)
	must(t, err)
	t.Cleanup(func() { _ = other.s.Close() })
	return other
}

// TestWithdrawn: what another process with the same name has given back is not answered, and the log says so once: a use, a round
// of a use, the uses of a batch, a use that was in doubt, and one of an approval that is forgotten by then.
func TestWithdrawn(t *testing.T) {
	t.Parallel()
	none, first := evaluation.Continuation{}, evaluation.Continuation{Decision: "used", Round: 1}
	for name, test := range map[string]struct {
		decisions []string
		round     evaluation.Continuation
		doubt     bool // about the record
		forgotten bool
		away      bool // the log takes no withdrawal at first
	}{
		"a use":           {decisions: []string{"d"}},
		"a round":         {decisions: []string{"d"}, round: first},
		"a batch":         {decisions: []string{"d.0", "d.1"}},
		"in doubt":        {decisions: []string{"d"}, doubt: true},
		"a log away":      {decisions: []string{"d"}, away: true},
		"forgotten since": {decisions: []string{"d"}, forgotten: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &ledgertest.Cluster{Below: approval.Engine(quick(t)), Lost: approval.ErrUnavailable}
			var proofs ledgertest.Proofs[approval.Step]
			here := (&place{stepLog: newRecord()}).twin(t, c, &proofs)
			a := mustFile(t, here.s, question("a", func(q *approval.ApprovalRequest) { q.Terms.Uses = 4 }))
			mustDecide(t, here.s, a.ID, by("mia"))
			if spent, err := here.uses(t.Context(), a, "used"); !spent || err != nil {
				t.Fatal(spent, err)
			}
			there := here.twin(t, c, &proofs)
			var r *approval.Reservation
			var err error
			if test.round != none {
				r, err = here.s.Continue(t.Context(), a.ID, a.Digest, test.round, "d")
			} else {
				r, err = here.s.Reserve(t.Context(), a.ID, a.Digest, test.decisions[0])
			}
			must(t, err)
			for _, more := range test.decisions[1:] {
				if got, err := here.s.ReserveAgain(r, more); !got || err != nil {
					t.Fatal(got, err)
				}
			}
			there.s.Work(t.Context()) // its log has none of the decisions
			if test.forgotten {
				_, err := there.s.Revoke(t.Context(), a.ID, 0, by("mia"))
				must(t, err)
				there.Pass(40 * 24 * time.Hour)
				there.s.Work(t.Context())
			}
			for _, d := range test.decisions {
				must(t, here.vouchFor(d, a.ID, test.round)(t.Context()))
			}
			if test.doubt {
				r.InDoubt()
			} else {
				here.Set(test.away, false, false)
				if err := r.Spent(t.Context()); !errors.Is(err, approval.ErrWithdrawn) {
					t.Errorf("it is answered: %v", err)
				}
				here.Set(false, false, false)
			}
			for range 2 {
				here.s.Work(t.Context())
			}
			var withdrawn []string
			for _, w := range here.Withdrawn {
				if withdrawn = append(withdrawn, w.Decision); w.Item != a.ID || w.Tenant != a.Tenant || w.Caller != a.Caller {
					t.Errorf("it is %+v", w)
				}
			}
			if slices.Sort(withdrawn); !slices.Equal(withdrawn, test.decisions) || len(there.Withdrawn) > 0 {
				t.Errorf("on record as withdrawn are %q here, and %v there", withdrawn, there.Withdrawn)
			}
			if test.forgotten {
				return
			}
			if test.round != none {
				is, err := goOn(t.Context(), there.s, a.ID, a.Digest, first, "other", there.vouchFor("other", a.ID, first))
				if !is || err != nil {
					t.Errorf("the round is not there for others: %v, %v", is, err)
				}
			} else if spent, err := there.uses(t.Context(), a, "other"); !spent || err != nil {
				t.Errorf("the use is not there for others: %v, %v", spent, err)
			}
			got, _, err := here.s.Get(t.Context(), a.ID)
			if want := []string{"used", "other"}; err != nil || len(got.Reserved) > 0 || test.round == none && !slices.Equal(got.Used, want) {
				t.Errorf("it is %+v, %v", got, err)
			}
		})
	}
}

// TestSettledBehindARevocation: a use is settled and answered though another process revokes the approval meanwhile. It waits until
// that is on record.
func TestSettledBehindARevocation(t *testing.T) {
	t.Parallel()
	both, engine, revoking, goOn := revokingElsewhere(t)
	here, there := both[0], both[1]
	a := mustFile(t, here.s, question("a", func(q *approval.ApprovalRequest) { q.Terms.Uses = 2 }))
	mustDecide(t, here.s, a.ID, by("mia"))
	revoked := make(chan error, 1)
	spent, err := spend(t.Context(), here.s, a.ID, a.Digest, "d", func(ctx context.Context) error {
		go func() {
			_, err := there.s.Revoke(ctx, a.ID, 0, by("mia"))
			revoked <- err
		}()
		<-revoking
		engine.do = func() { // once the process here has found what is not on record
			goOn()
			must(t, <-revoked)
		}
		engine.views.Store(3)
		return here.vouchFor("d", a.ID, evaluation.Continuation{})(ctx)
	})
	if !spent || err != nil {
		t.Fatalf("it is answered %v: %v", spent, err)
	}
	if got, _, err := there.s.Get(t.Context(), a.ID); err != nil || got.Status != approval.Revoked || !slices.Equal(got.Used, []string{"d"}) {
		t.Errorf("it is %+v, %v", got, err)
	}
}

// TestSettledByALostAnswer: a use whose settling was made, and whose answer was lost, is answered. One whose settling was not
// made stays in doubt, and is settled later.
func TestSettledByALostAnswer(t *testing.T) {
	t.Parallel()
	for _, made := range []bool{true, false} {
		r := newRecord()
		engine := &failing{Engine: approval.Engine(quick(t)), made: made}
		o := r.options()
		o.Engine = engine
		s := mustOpen(t, "", o)
		a := mustFile(t, s, question("a"))
		mustDecide(t, s, a.ID, by("mia"))
		spent, err := spend(t.Context(), s, a.ID, a.Digest, "d", func(ctx context.Context) error {
			engine.fails.Store(true)
			return r.decide("d")(ctx)
		})
		engine.fails.Store(false)
		if spent != made || made != (err == nil) || err != nil && !errors.Is(err, approval.ErrUnavailable) {
			t.Errorf("made %v: answered %v, %v", made, spent, err)
		}
		s.Work(t.Context())
		if got, _, err := s.Get(t.Context(), a.ID); err != nil || !slices.Equal(got.Used, []string{"d"}) || len(r.Withdrawn) > 0 {
			t.Errorf("made %v: it is %+v, withdrawn %v, %v", made, got, r.Withdrawn, err)
		}
	}
}

// failing is an engine whose transactions have no answer, whether they are made or not.
type failing struct {
	ledger.Engine
	made  bool
	fails atomic.Bool
}

// Write implements [ledger.Engine].
func (f *failing) Write(t ledger.Transaction) (revision uint64, err error) {
	if fails := f.fails.Load(); !fails || f.made {
		revision, err = f.Engine.Write(t)
		if !fails {
			return revision, err
		}
	}
	return 0, approval.ErrUnavailable
}
