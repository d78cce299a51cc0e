package capability_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"policy-service/evaluation"
	token "policy-service/evaluation/capability"
	"policy-service/pdp/internal/capability"
	"policy-service/pdp/internal/ledger"
	"policy-service/pdp/internal/ledger/ledgertest"
	"policy-service/pdp/pdptest/etcdtest"
	"policy-service/pdp/pdptest/night"
)

// TestOneUseOnce has 64 callers want the one use of a capability at once.
func TestOneUseOnce(t *testing.T) {
	t.Parallel()
	r := newRecord()
	s := mustOpen(t, quick(t), r.options())
	for round := range night.Cases(20) {
		c := r.mustGrant(t, s, asked(s, r.Now, "a", uses(1)))
		var used atomic.Int32
		var all sync.WaitGroup
		for n := range 64 {
			all.Go(func() {
				err := r.use(t.Context(), s, c.ID, fmt.Sprint(c.ID, n))
				if err == nil {
					used.Add(1)
				} else if code(err) != token.UsedUp {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if got := r.mustGet(t, s, c.ID); used.Load() != 1 || got.Used != 1 || got.State != capability.UsedUp {
			t.Fatalf("round %d: it was used %d times, and is %+v", round, used.Load(), got)
		}
	}
}

// place is one process of several, with a log of its own.
type place struct {
	*record
	s     *capability.Store
	again func() ledger.Engine // of a process that starts then
}

// places are two processes on one state.
func places(t *testing.T, c *ledgertest.Cluster) []*place {
	t.Helper()
	c.Below, c.Lost = capability.Engine(quick(t)), capability.ErrUnavailable
	if os.Getenv(onEtcd) != "" {
		prefix := t.TempDir()
		c.Of = func() ledger.Engine { return etcdtest.Engine(t, prefix, capability.Known) }
	}
	all := []*place{{record: newRecord(), again: c.Process}, {record: newRecord(), again: c.Process}}
	var proofs ledgertest.Proofs[capability.Step]
	for n, one := range all {
		one.N = n * 1_000_000 // ids differ
		o := one.options()
		o.Engine, o.Origin = c.Process(), []string{"place", "place/1"}[n] // one begins as the other
		o.Prove, o.Verify = proofs.Prove(o.Origin, one.Attest), proofs.Verify
		one.s = mustOpen(t, "", o)
	}
	return all
}

// TestOneUseWhereverItIsAsked: of 16 decisions that want one use, half at each of two processes, one has it.
func TestOneUseWhereverItIsAsked(t *testing.T) {
	t.Parallel()
	for round := range uint64(night.Cases(10)) {
		both := places(t, &ledgertest.Cluster{Conflicts: 3, Late: time.Millisecond, Seed: round})
		c := both[0].mustGrant(t, both[0].s, asked(both[0].s, start, "a", uses(1)))
		var racing sync.WaitGroup
		for n := range 16 {
			racing.Go(func() { _ = both[n%2].use(t.Context(), both[n%2].s, c.ID, fmt.Sprint("d", n)) })
		}
		racing.Wait()
		onRecord := 0
		for _, p := range both {
			p.s.Work(t.Context())
			for n := range 16 {
				if is, _ := p.Has(fmt.Sprint("d", n)); is {
					onRecord++
				}
			}
		}
		if got := both[round%2].mustGet(t, both[round%2].s, c.ID); onRecord != 1 || got.Used != 1 || got.State != capability.UsedUp {
			t.Fatalf("round %d: on record are %d, and it is %+v", round, onRecord, got)
		}
	}
}

// TestElsewhere: what one process reserved is in doubt until that process says what became of it, and a revocation counts
// at once wherever it was.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	both := places(t, &ledgertest.Cluster{})
	here, there := both[0], both[1]
	c := here.mustGrant(t, here.s, asked(here.s, start, "a", uses(2)))
	use, err := there.s.Reserve(t.Context(), c.ID, "d")
	must(t, err)
	must(t, there.Decide("d"))
	use.InDoubt()
	here.s.Work(t.Context())
	must(t, here.use(t.Context(), here.s, c.ID, "e"))
	wantCode(t, "a use in doubt is used", here.use(t.Context(), here.s, c.ID, "f"), token.UsedUp)
	got, err := here.s.Revoke(t.Context(), c.ID, "mia", "")
	must(t, err)
	if len(got.Reserved) != 1 || got.Reserved[0] != (capability.Reserved{Decision: "d", Origin: "place/1", Since: start}) {
		t.Errorf("under way are %v", got.Reserved)
	}
	_, err = there.s.Usable(t.Context(), c.ID)
	wantCode(t, "one that was revoked elsewhere", err, token.Revoked)
	there.s.Work(t.Context())
	if got := here.mustGet(t, here.s, c.ID); got.Used != 2 || len(got.Reserved) > 0 || got.State != capability.Revoked {
		t.Errorf("it is %+v", got)
	}
}

// TestInDoubt: while nobody can say whether a decision is on record, what it was to have is neither there nor lost, and
// afterwards it is what the record says. That holds over a restart.
func TestInDoubt(t *testing.T) {
	t.Parallel()
	for _, half := range []bool{false, true} {
		r, data := newRecord(), quick(t)
		s := mustOpen(t, data, r.options())
		used, renewed := r.mustGrant(t, s, asked(s, r.Now, "used", uses(1))).ID, r.mustGrant(t, s, asked(s, r.Now, "renewed")).ID
		granted := asked(s, r.Now, "granted", approved("approval"))
		r.Set(true, half, true)
		if err := r.use(t.Context(), s, used, "d"); !errors.Is(err, errRecord) {
			t.Fatal(err)
		}
		grant, err := s.Grant(t.Context(), granted, "e")
		if must(t, err); r.Decide("e") == nil {
			t.Fatal("it is on record")
		}
		grant.InDoubt()
		longer := asked(s, r.Now, "renewed", func(n *capability.New) {
			n.Token.ID, n.Token.Expires = renewed, start.Add(3*time.Hour).Truncate(time.Second)
		})
		renew, err := s.Renew(t.Context(), renewed, longer, "f")
		if must(t, err); r.Decide("f") == nil {
			t.Fatal("it is on record")
		}
		renew.InDoubt()
		must(t, s.Close())
		s = mustOpen(t, data, r.options())
		s.Work(t.Context())
		wantCode(t, "a use in doubt", r.use(t.Context(), s, used, "g"), token.UsedUp)
		_, err = s.Usable(t.Context(), granted.Token.ID)
		wantCode(t, "a grant in doubt", err, token.BadSignature)
		if c, err := s.Usable(t.Context(), renewed); err != nil || !c.Expires.Equal(start.Add(time.Hour)) || len(r.Errors) == 0 {
			t.Errorf("while its renewal is in doubt it is %+v, %v", c, err)
		}
		r.Set(false, false, false)
		s.Work(t.Context())
		last := map[bool][]string{false: {"released"}, true: {"used", "used_up"}}[half]
		r.wantState(t, s, used, map[bool]capability.State{false: capability.Active, true: capability.UsedUp}[half], append([]string{"granted"}, last...)...)
		r.wantState(t, s, granted.Token.ID, map[bool]capability.State{false: capability.Released, true: capability.Active}[half], map[bool]string{false: "released", true: "granted"}[half])
		if _, found, _ := s.Granted(t.Context(), "acme", "approval", granted.Ask); found != half {
			t.Errorf("who asks again finds it: %v, and it was granted: %v", found, half)
		}
		c, err := s.Usable(t.Context(), renewed)
		if must(t, err); c.Expires.Equal(start.Add(3*time.Hour)) != half || c.Renewals != map[bool]int{true: 1}[half] {
			t.Errorf("renewed %v, and it is %+v", half, c)
		}
		if got := slices.ContainsFunc(s.Keys(), func(k string) bool { return strings.HasPrefix(k, "xr/") || strings.HasPrefix(k, "r/") }); got {
			t.Errorf("something is reserved: %q", s.Keys())
		}
	}
}

// TestRenew: eight times, with the same id, key and server, never with more uses, and with the uses that it had.
func TestRenew(t *testing.T) {
	t.Parallel()
	r := newRecord()
	s := mustOpen(t, quick(t), r.options())
	c := r.mustGrant(t, s, asked(s, r.Now, "a", uses(20), approved("first")))
	must(t, r.use(t.Context(), s, c.ID, "d"))
	renew := func(n int, change ...func(*capability.New)) error {
		next := asked(s, r.Time(), "a", append([]func(*capability.New){uses(20 - n), approved(fmt.Sprint("p", n)), func(a *capability.New) {
			a.Token.ID, a.Token.Expires = c.ID, r.Time().Add(time.Duration(n+1)*time.Hour)
		}}, change...)...)
		decision := fmt.Sprint("renewal ", n)
		use, err := s.Renew(t.Context(), c.ID, next, decision)
		if err != nil {
			return err
		}
		must(t, r.Decide(decision))
		return use.Spent(t.Context())
	}
	for name, change := range map[string]func(*capability.New){
		"a key":    func(n *capability.New) { n.Token.Key = holderKey("b") },
		"a holder": func(n *capability.New) { n.Token.Holder.ID = "b" },
		"a tenant": func(n *capability.New) { n.Tenant = "other" },
		"a server": func(n *capability.New) {
			n.Token.Audience, n.Token.Layers[0].Tools = "agent-c", []string{"agent-c:deploy"}
		},
		"an id":      func(n *capability.New) { n.Token.ID = s.NewID() },
		"more uses":  uses(21),
		"no count":   uses(0),
		"none left":  uses(1),
		"is over":    func(n *capability.New) { n.Token.Expires, n.Token.NotBefore = r.Time(), r.Time().Add(-time.Minute) },
		"no token":   func(n *capability.New) { n.Token = token.Token{} },
		"no JSON":    func(n *capability.New) { n.Grant = []byte("{") },
		"long grant": func(n *capability.New) { n.Grant = []byte(`"` + strings.Repeat("x", 64<<10) + `"`) },
	} {
		if err := renew(1, change); !errors.Is(err, capability.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for n := range capability.MostRenewals {
		must(t, renew(n))
	}
	got, _, err := s.Get(t.Context(), c.ID)
	if must(t, err); got.Used != 1 || got.MaxUses != 13 || got.Renewals != 8 || got.Decision != "renewal 7" || !got.Token.Expires.Equal(r.Now.Add(8*time.Hour).Truncate(time.Second)) {
		t.Errorf("it is %+v", got)
	}
	if asks := slices.DeleteFunc(s.Keys(), func(k string) bool { return !strings.HasPrefix(k, "xa/") }); len(asks) != 1 || mustLive(t, s) != 1 {
		t.Errorf("approvals find it by %q, and %d are live", asks, mustLive(t, s))
	}
	last := slices.IndexFunc(r.Steps, func(step capability.Step) bool { return step.ID == got.Granted })
	r.Steps[last].ID = "gone" // the log vouched for the first grant, and does not for the last renewal
	wantCode(t, "a renewal that is gone", r.use(t.Context(), s, c.ID, "f"), token.Revoked)
	r.Steps[last].ID = got.Granted
	if err := renew(capability.MostRenewals); !errors.Is(err, capability.ErrInvalid) {
		t.Error(err)
	}
}

// TestRenewedIsVouchedFor: the log is asked for a renewal, too, if it vouched for the grant.
func TestRenewedIsVouchedFor(t *testing.T) {
	t.Parallel()
	r := newRecord()
	s := mustOpen(t, quick(t), r.options())
	c := r.mustGrant(t, s, asked(s, r.Now, "a"))
	_, err := s.Usable(t.Context(), c.ID)
	must(t, err)
	renewal, err := s.Renew(t.Context(), c.ID, asked(s, r.Now, "a", func(n *capability.New) { n.Token.ID = c.ID }), "renewal")
	must(t, err)
	must(t, r.Decide("renewal"))
	must(t, renewal.Spent(t.Context()))
	r.Steps[len(r.Steps)-1].Seal = "forged"
	_, err = s.Usable(t.Context(), c.ID)
	wantCode(t, "a renewal without a good seal", err, token.Revoked)
}

// reservation is what a PDP wants of one.
type reservation interface {
	Again(ctx context.Context, decision string) (bool, error)
	Spent(ctx context.Context) error
	InDoubt()
}

var _ reservation = (*capability.Reservation)(nil)

// TestLimits: of a holder, of its tenant, and each only of its own; after a restart they are what they were.
func TestLimits(t *testing.T) {
	t.Parallel()
	r, data := newRecord(), quick(t)
	o := r.options()
	o.Limits = capability.Limits{MaxLivePerHolder: 2, MaxLivePerTenant: 3, NewPerMinutePerHolder: 10}
	s := mustOpen(t, data, o)
	grant := func(tenant, agent string) error {
		n := asked(s, r.Time(), agent, func(n *capability.New) { n.Tenant = tenant })
		if err := s.Admit(tenant, n.Token.Holder); err != nil {
			return err
		}
		g, err := s.Grant(t.Context(), n, n.Token.ID)
		if err == nil {
			must(t, r.Decide(n.Token.ID))
			must(t, g.Spent(t.Context()))
		}
		return err
	}
	limited := func(name string, err error, after time.Duration) {
		t.Helper()
		if limit := (*capability.LimitError)(nil); !errors.As(err, &limit) || limit.RetryAfter != after {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(t, grant("acme", "a"))
	must(t, grant("acme", "a"))
	limited("a third of a holder", grant("acme", "a"), time.Minute)
	must(t, grant("acme", "b"))
	limited("a fourth of a tenant", grant("acme", "c"), time.Minute)
	must(t, grant("other", "a"))
	must(t, s.Close())
	if live, err := capability.Look(data, key, r.Size); live != 4 || err != nil {
		t.Errorf("who looks sees %d, %v", live, err)
	}
	if _, err := s.Live(); !errors.Is(err, capability.ErrClosed) {
		t.Errorf("what is closed has none: %v", err)
	}
	s = mustOpen(t, data, o)
	limited("after a restart", grant("acme", "b"), time.Minute)
	r.Pass(time.Hour)
	s.Work(t.Context())
	if mustLive(t, s) != 0 {
		t.Errorf("%d are live", mustLive(t, s))
	}
	o.Limits.MaxLivePerHolder, o.Limits.MaxLivePerTenant = 100, 100
	must(t, s.Close())
	s = mustOpen(t, data, o)
	for range 10 {
		must(t, grant("acme", "a"))
	}
	limited("an eleventh in a minute", grant("acme", "a"), 6*time.Second)
	must(t, grant("acme", "b"))
	must(t, grant("other", "a"))
	r.Pass(6 * time.Second)
	must(t, grant("acme", "a"))
}

// TestGrantedBefore: one approval grants one capability for what was asked, until that has ended.
func TestGrantedBefore(t *testing.T) {
	t.Parallel()
	r := newRecord()
	s := mustOpen(t, quick(t), r.options())
	first := r.mustGrant(t, s, asked(s, r.Now, "a", approved("p")))
	if _, err := s.Grant(t.Context(), asked(s, r.Now, "a", approved("p")), "d"); !errors.Is(err, capability.ErrGranted) {
		t.Error(err)
	}
	other := r.mustGrant(t, s, asked(s, r.Now, "b", approved("p")))
	_, err := s.Return(t.Context(), first.ID, "a", "")
	must(t, err)
	second := r.mustGrant(t, s, asked(s, r.Now, "a", approved("p")))
	for ask, want := range map[string]string{"ask of a": second.ID, "ask of b": other.ID, "ask of c": ""} {
		if got, found, err := s.Granted(t.Context(), "acme", "p", ask); got.ID != want || found != (want != "") || err != nil {
			t.Errorf("%s: %s, %v", ask, got.ID, err)
		}
	}
	for name, n := range map[string]capability.New{
		"an id of others":    asked(s, r.Now, "a", func(n *capability.New) { n.Token.ID = "other" }),
		"an id with a slash": asked(s, r.Now, "a", func(n *capability.New) { n.Token.ID = "cap_a/b" }),
		"one that is over":   asked(s, r.Now.Add(-time.Hour), "a"),
	} {
		if _, err := s.Grant(t.Context(), n, "d"); !errors.Is(err, capability.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestList: each filter finds what it is to find, on pages of any size, and who revokes many revokes these.
func TestList(t *testing.T) {
	t.Parallel()
	r := newRecord()
	s := mustOpen(t, quick(t), r.options())
	all := map[string]capability.Capability{}
	for n := range 60 {
		c := r.mustGrant(t, s, asked(s, r.Now, fmt.Sprint("agent-", n%3), func(a *capability.New) {
			a.Tenant = []string{"acme", "acme", "acme/x"}[n/3%3]
			if n%2 == 0 {
				a.Token.Audience, a.Token.Layers[0].Tools = "agent-c", []string{"agent-c:deploy"}
			}
		}))
		if n%5 == 0 {
			c, _ = s.Suspend(t.Context(), c.ID, "h1:next")
		}
		all[c.ID] = c
	}
	list := func(f capability.Filter, limit int) (ids []string) {
		for after := ""; ; {
			page, next, err := s.List(t.Context(), f, after, limit)
			must(t, err)
			for _, c := range page {
				ids = append(ids, c.ID)
			}
			if after = next; next == "" {
				return ids
			}
		}
	}
	agent := evaluation.Ref{Type: "agent", ID: "agent-1"}
	jkt := holderKey("agent-2").Thumbprint()
	for name, f := range map[string]capability.Filter{
		"all": {}, "a tenant": {Tenant: "acme"}, "none": {Tenant: "acm"}, "a holder": {Tenant: "acme", Holder: agent}, "a key": {Tenant: "acme/x", JKT: jkt},
		"a key of any tenant": {JKT: jkt}, "a server": {Audience: "agent-c"}, "suspended": {Tenant: "acme", State: capability.Suspended}, "both": {Tenant: "acme", Holder: agent, JKT: jkt},
		"all of it": {Tenant: "acme/x", Holder: agent, Audience: "agent-b", State: capability.Active},
	} {
		var want []string
		for id, c := range all {
			if (f.Tenant == "" || f.Tenant == c.Tenant) && (f.Holder == evaluation.Ref{} || f.Holder == c.Holder) && (f.JKT == "" || f.JKT == c.JKT) &&
				(f.Audience == "" || f.Audience == c.Audience) && (f.State == "" || f.State == c.State) {
				want = append(want, id)
			}
		}
		slices.Sort(want)
		for _, limit := range []int{1, 7, 100} {
			if got := list(f, limit); !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v", name, got, want)
			}
		}
	}
	if _, _, err := s.List(t.Context(), capability.Filter{}, "", 0); !errors.Is(err, capability.ErrInvalid) {
		t.Error(err)
	}
	of := capability.Filter{Tenant: "acme", Holder: agent}
	want := len(list(of, 100))
	r.Set(true, false, false) // it stops at the first, and goes on later
	if n, err := s.RevokeMany(t.Context(), of, "mia", "stolen"); n != 0 || !errors.Is(err, capability.ErrUnrecorded) {
		t.Errorf("%d are revoked: %v", n, err)
	}
	r.Set(false, false, false)
	if n, err := s.RevokeMany(t.Context(), of, "mia", "stolen"); n != want-1 || err != nil { // the first was, but for the record
		t.Errorf("%d are revoked, want %d: %v", n, want-1, err)
	}
	of.State = capability.Revoked
	if got := list(of, 100); len(got) != want || mustLive(t, s) != len(all)-want {
		t.Errorf("revoked are %d of %d, and live %d", len(got), want, mustLive(t, s))
	}
}

// TestUnrecorded: what is not on record counts for nothing, and is put there later.
func TestUnrecorded(t *testing.T) {
	t.Parallel()
	r := newRecord()
	s := mustOpen(t, quick(t), r.options())
	c := r.mustGrant(t, s, asked(s, r.Now, "a", uses(2)))
	_, err := s.Suspend(t.Context(), c.ID, "h1:b")
	must(t, err)
	r.Set(true, false, false)
	if _, err := s.Resume(t.Context(), c.ID, "h1:c"); !errors.Is(err, capability.ErrUnrecorded) {
		t.Fatal(err)
	}
	if _, err := s.Usable(t.Context(), c.ID); !errors.Is(err, capability.ErrUnrecorded) {
		t.Error(err)
	}
	if err := r.use(t.Context(), s, c.ID, "d"); !errors.Is(err, capability.ErrUnrecorded) {
		t.Error(err)
	}
	if page, _, err := s.List(t.Context(), capability.Filter{}, "", 10); len(page) > 0 || err != nil {
		t.Errorf("it is told of: %v, %v", page, err)
	}
	r.Set(false, false, false)
	must(t, r.use(t.Context(), s, c.ID, "d"))
	r.wantState(t, s, c.ID, capability.Active, "granted", "suspended", "resumed", "used")
}

// TestVouched: a grant for whose record the log does not vouch counts no more, also of one whose uses are not counted after
// a restart.
func TestVouched(t *testing.T) {
	t.Parallel()
	r, data := newRecord(), quick(t)
	s := mustOpen(t, data, r.options())
	counted, free := r.mustGrant(t, s, asked(s, r.Now, "a", uses(2))), r.mustGrant(t, s, asked(s, r.Now, "b"))
	log := slices.Clone(r.Steps)
	for name, spoil := range map[string]func(*capability.Step){
		"gone":           func(s *capability.Step) { *s = capability.Step{} },
		"no seal":        func(s *capability.Step) { s.Seal = "" },
		"of another":     func(s *capability.Step) { s.Capability.ID = "cap_other" },
		"other step":     func(s *capability.Step) { s.Name = capability.StepUsed },
		"other decision": func(s *capability.Step) { s.Decision = "other" },
	} {
		r.Steps = slices.Clone(log)
		for n := range r.Steps {
			spoil(&r.Steps[n])
		}
		must(t, s.Close())
		s = mustOpen(t, data, r.options())
		wantCode(t, name, r.use(t.Context(), s, counted.ID, "d"), token.Revoked)
		_, err := s.Usable(t.Context(), free.ID)
		wantCode(t, name, err, token.Revoked)
	}
	r.Steps = log
	must(t, r.use(t.Context(), s, counted.ID, "d"))
	_, err := s.Usable(t.Context(), free.ID)
	must(t, err)
}

// TestOlderFile: a file that was copied back is held against the log. What was used stays used, and what was taken back
// stays so. The copy is made where an action has its first part done, and what it returns is still to be done.
func TestOlderFile(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	type action = func(r *record, s *capability.Store, id string) (rest func())
	reserve := func(decision string) action { // the copy has what is reserved
		return func(r *record, s *capability.Store, id string) func() {
			use, err := s.Reserve(ctx, id, decision)
			must(t, err)
			return func() { r.logs(decision, id, false); must(t, use.Spent(ctx)) }
		}
	}
	later := func(do ...func(r *record, s *capability.Store, id string)) action { // the copy has nothing of it
		return func(r *record, s *capability.Store, id string) func() {
			return func() {
				for _, one := range do {
					one(r, s, id)
				}
			}
		}
	}
	use := func(decision string) func(r *record, s *capability.Store, id string) {
		return func(r *record, s *capability.Store, id string) { reserve(decision)(r, s, id)() }
	}
	renewing := func(spent bool) action {
		return func(r *record, s *capability.Store, id string) func() {
			renew, err := s.Renew(ctx, id, asked(s, r.Now, "a", uses(4), func(n *capability.New) { n.Token.ID = id }), "renewal")
			must(t, err)
			return func() {
				if r.logs("renewal", id, true); spent {
					must(t, renew.Spent(ctx))
				} else {
					renew.InDoubt()
				}
			}
		}
	}
	renew := func(spent bool) func(r *record, s *capability.Store, id string) {
		return func(r *record, s *capability.Store, id string) { renewing(spent)(r, s, id)() }
	}
	inDoubt := func(r *record, s *capability.Store, id string) {
		use, err := s.Reserve(ctx, id, "doubt")
		must(t, err)
		r.logs("doubt", id, false)
		use.InDoubt()
	}
	revoke := func(_ *record, s *capability.Store, id string) { _, _ = s.Revoke(ctx, id, "", "") }
	returns := func(_ *record, s *capability.Store, id string) { _, _ = s.Return(ctx, id, "", "") }
	suspend := func(_ *record, s *capability.Store, id string) { _, _ = s.Suspend(ctx, id, "") }
	resume := func(_ *record, s *capability.Store, id string) { _, _ = s.Resume(ctx, id, "") }
	forge := func(r *record, _ *capability.Store, _ string) { r.Steps[len(r.Steps)-1].Seal = "forged" }
	goes := func(r *record, _ *capability.Store, id string) {
		r.Steps = append(r.Steps, capability.Step{Name: capability.StepGone, Capability: capability.Capability{ID: id, After: uint64(len(r.Steps))}})
	}
	for name, c := range map[string]struct {
		do         action
		want       capability.State
		used       int
		renewals   int
		stillKnown bool // the log has nothing that the copy does not know
	}{
		"used":               {do: later(use("d1"), use("d2")), want: capability.Active, used: 3},
		"used up":            {do: later(use("d1"), use("d2"), use("d3")), want: capability.UsedUp, used: 4},
		"used up, in doubt":  {do: later(use("d1"), use("d2"), inDoubt), want: capability.UsedUp, used: 4},
		"in doubt":           {do: later(inDoubt), want: capability.Active, used: 2},
		"reserved":           {do: reserve("d1"), want: capability.Active, used: 2},
		"revoked":            {do: later(revoke), want: capability.Revoked, used: 1},
		"used, revoked":      {do: later(use("d1"), revoke), want: capability.Revoked, used: 2},
		"returned":           {do: later(returns), want: capability.Returned, used: 1},
		"suspended":          {do: later(suspend), want: capability.Suspended, used: 1},
		"resumed":            {do: later(suspend, resume), want: capability.Active, used: 1},
		"resumed by nobody":  {do: later(suspend, resume, forge), want: capability.Suspended, used: 1},
		"renewed":            {do: later(renew(true)), want: capability.Renewed, used: 1},
		"a renewal in doubt": {do: later(renew(false)), want: capability.Renewed, used: 1},
		"renewing":           {do: renewing(true), want: capability.Active, used: 1, renewals: 1},
		"renewing, in doubt": {do: renewing(false), want: capability.Active, used: 1, renewals: 1, stillKnown: true},
		"gone":               {do: later(goes), want: capability.Expired, used: 1},
		"nothing":            {do: later(), want: capability.Active, used: 1, stillKnown: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, data := newRecord(), quick(t)
			s := mustOpen(t, data, r.options())
			id, free := r.mustGrant(t, s, asked(s, r.Now, "a", uses(4))).ID, r.mustGrant(t, s, asked(s, r.Now, "b")).ID
			use("d0")(r, s, id)
			rest := c.do(r, s, id)
			older, err := os.ReadFile(filepath.Join(data, capability.FileName))
			must(t, err)
			rest()
			r.logs("a use that is not counted", free, false)
			must(t, s.Close())
			must(t, os.WriteFile(filepath.Join(data, capability.FileName), older, 0o600))
			s = mustOpen(t, data, r.options())
			got := r.mustGet(t, s, id)
			if got.State != c.want || got.Used != c.used || len(got.Reserved) > 0 || got.Renewals != c.renewals {
				t.Errorf("it is %+v, want %s, used %d times", got, c.want, c.used)
			}
			if is := slices.Contains(r.names(id), capability.StepCaughtUp); is == c.stillKnown {
				t.Errorf("on record is %v", r.names(id))
			}
			if got := r.mustGet(t, s, free); got.Used != 0 || got.State != capability.Active {
				t.Errorf("what is not counted is %+v", got)
			}
			if got.State == capability.Active && got.Used < 4 { // and it is as new: its later steps count again after another copy
				use("later")(r, s, id)
				suspend(r, s, id)
				must(t, s.Close())
				must(t, os.WriteFile(filepath.Join(data, capability.FileName), older, 0o600))
				s = mustOpen(t, data, r.options())
				if got := r.mustGet(t, s, id); got.State != capability.Suspended && got.State != capability.UsedUp || got.Used != c.used+1 {
					t.Errorf("after another copy it is %+v", got)
				}
			}
			must(t, s.Close())
			r.Steps = nil
			if _, err := capability.Open(data, r.options()); !errors.Is(err, capability.ErrShort) {
				t.Errorf("a log that was cut: %v", err)
			}
		})
	}
}

// TestRestartElsewhere: a process that starts again holds against its log what others have written since, and counts
// nothing twice.
func TestRestartElsewhere(t *testing.T) {
	t.Parallel()
	both := places(t, &ledgertest.Cluster{})
	here, there := both[0], both[1]
	n := asked(here.s, start, "a", uses(100))
	granting, err := here.s.Grant(t.Context(), n, "grant")
	must(t, err)
	here.logs("grant", n.Token.ID, true)
	must(t, granting.Spent(t.Context()))
	for i := range 40 {
		p := both[i/35] // the last ones there
		use, err := p.s.Reserve(t.Context(), n.Token.ID, fmt.Sprint("d", i))
		must(t, err)
		p.logs(fmt.Sprint("d", i), n.Token.ID, false)
		must(t, use.Spent(t.Context()))
	}
	used := here.mustGrant(t, here.s, asked(here.s, start, "used", uses(5)))
	use, err := here.s.Reserve(t.Context(), used.ID, "late use")
	must(t, err)
	here.logs("late use", used.ID, false)
	late := asked(here.s, start, "late", uses(5))
	here.Set(true, false, false) // from here on steps wait to go on record
	must(t, use.Spent(t.Context()))
	granting, err = here.s.Grant(t.Context(), late, "late grant")
	must(t, err)
	here.logs("late grant", late.Token.ID, true)
	must(t, granting.Spent(t.Context()))
	for _, id := range []string{late.Token.ID, used.ID} { // so the other process wrote it last
		_, err = there.s.Suspend(t.Context(), id, "h1:next")
		must(t, err)
	}
	o := here.options()
	o.Engine, o.Origin, o.Attest = here.again(), "place", func(context.Context, string) (capability.Step, bool, error) {
		return capability.Step{}, false, errRecord
	}
	s := mustOpen(t, "", o)
	if got := here.mustGet(t, s, n.Token.ID); got.Used != 40 || got.State != capability.Active || slices.Contains(here.names(n.Token.ID), capability.StepCaughtUp) {
		t.Errorf("it is %+v", got)
	}
	if got, _, _ := s.Stored(late.Token.ID); got.State != capability.Suspended || got.Decision != "late grant" {
		t.Errorf("what waits is %+v", got)
	}
	if got, _, _ := s.Stored(used.ID); got.State != capability.Suspended || got.Used != 1 {
		t.Errorf("what waits is %+v", got)
	}
	here.Set(false, false, false)
	if err := here.use(t.Context(), s, n.Token.ID, "e"); !errors.Is(err, errRecord) {
		t.Errorf("while nobody can say whether the log vouches for it: %v", err)
	}
	if got := there.mustGet(t, there.s, n.Token.ID); len(got.Recent) != 32 || got.Recent[31] != "d39" {
		t.Errorf("the last decisions are %q", got.Recent)
	}
}

// TestDamage flips bits of the file, cuts and overwrites it. What comes is an error or the capabilities as they were.
func TestDamage(t *testing.T) {
	t.Parallel()
	r, data := newRecord(), quick(t)
	s := mustOpen(t, data, r.options())
	was := map[string]capability.Capability{}
	for n := range 20 {
		c := r.mustGrant(t, s, asked(s, r.Now, fmt.Sprint("agent-", n), uses(n%3)))
		if n%4 == 1 {
			c, _ = s.Revoke(t.Context(), c.ID, "", "")
		}
		was[c.ID] = c
	}
	must(t, s.Close())
	whole, err := os.ReadFile(filepath.Join(data, capability.FileName))
	must(t, err)
	refused, rounds := 0, night.Cases(200)
	for seed := range uint64(rounds) {
		random := rand.New(rand.NewPCG(seed, 0))
		b := slices.Clone(whole)
		switch at := random.IntN(len(b)); random.IntN(3) {
		case 0:
			b[at] ^= 1 << random.IntN(8)
		case 1:
			b = b[:at]
		case 2:
			clear(b[at:min(len(b), at+4096)])
		}
		dir := filepath.Join(data, fmt.Sprint(seed))
		must(t, os.Mkdir(dir, 0o700))
		must(t, os.WriteFile(filepath.Join(dir, capability.FileName), b, 0o600))
		r := r.copy() // or what one file made of it would be news to the next
		_, looked := capability.Look(dir, key, nil)
		s, err := capability.Open(dir, r.options())
		if (err == nil) != (looked == nil) {
			t.Errorf("%d: who looks is told %v, who opens it %v", seed, looked, err)
		}
		if err != nil {
			refused++
			continue
		}
		for id, c := range was {
			got, found, err := s.Get(t.Context(), id)
			if diff := cmp.Diff(c, got, placed); found && err == nil && diff != "" {
				t.Errorf("%d: %s", seed, diff)
			}
			if r.use(t.Context(), s, id, "d") == nil && c.State != capability.Active {
				t.Errorf("%d: %s was %s, and is used", seed, id, c.State)
			}
		}
		s.Work(t.Context())
		_ = s.Close()
		must(t, os.RemoveAll(dir))
	}
	if refused == 0 {
		t.Errorf("of %d damaged files none was refused: the damage does none", rounds)
	}
	flipped := strings.ReplaceAll(string(whole), `"max_uses":1`, `"max_uses":9`)
	must(t, os.WriteFile(filepath.Join(data, capability.FileName), []byte(flipped), 0o600))
	if _, err := capability.Open(data, r.options()); !errors.Is(err, capability.ErrDamaged) {
		t.Errorf("a file with an edited value opens: %v", err)
	}
	must(t, os.WriteFile(filepath.Join(data, capability.FileName), whole, 0o600))
	o := r.options()
	o.Key = []byte("another thirty-two bytes of key.")
	if _, err := capability.Open(data, o); !errors.Is(err, capability.ErrDamaged) {
		t.Errorf("a file of another key opens: %v", err)
	}
}

// TestLostAnswers: changes are made whose answers are lost, and changes come in between. In the end what is on record was
// used or granted, and nothing else.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	for seed := range uint64(night.Cases(40)) {
		r, data := newRecord(), quick(t)
		cluster := &ledgertest.Cluster{Below: capability.Engine(data), Lost: capability.ErrUnavailable, Conflicts: 4, Alone: true, Seed: seed}
		o := r.options()
		o.Engine = cluster.Process()
		s := mustOpen(t, data, o)
		random := rand.New(rand.NewPCG(seed, 1))
		cluster.Forgets = 4
		var ids []string
		for n := range 120 {
			r.Set(random.IntN(5) == 0, random.IntN(2) == 0, false)
			d := fmt.Sprint("d", n)
			switch n := random.IntN(10); {
			case n < 3 || len(ids) == 0:
				a := asked(s, r.Now, "a", uses(random.IntN(3)))
				ids = append(ids, a.Token.ID)
				if g, err := s.Grant(t.Context(), a, "grant of "+a.Token.ID); err == nil && r.Decide("grant of "+a.Token.ID) == nil {
					_ = g.Spent(t.Context())
				} else if err == nil {
					g.InDoubt()
				}
			case n < 9:
				_ = r.use(t.Context(), s, ids[random.IntN(len(ids))], d)
			default:
				s.Work(t.Context())
			}
		}
		cluster.Forgets = 0
		r.Set(false, false, false)
		s.Work(t.Context())
		active := 0
		for _, id := range ids {
			c, found, err := s.Get(t.Context(), id)
			granted, used := r.IDs["grant of "+id], 0
			for _, name := range r.names(id) {
				if name == capability.StepUsed {
					used++
				}
			}
			if err != nil || len(c.Reserved) > 0 || granted != (found && c.State != capability.Released) || c.Used != used || c.MaxUses > 0 && used > c.MaxUses {
				t.Errorf("seed %d: granted %v, used %d times, and it is %v, %+v, %v", seed, granted, used, found, c, err)
			}
			if c.State == capability.Active {
				active++
			}
			for _, d := range c.Recent {
				if !r.IDs[d] {
					t.Errorf("seed %d: %s is not on record", seed, d)
				}
			}
		}
		if counted := mustLive(t, s); counted != active {
			t.Errorf("seed %d: %d are live, and counted %d", seed, active, counted)
		}
	}
}

// TestRun: it expires and forgets by itself.
func TestRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRecord()
		o := r.options()
		o.Now, o.NewID, o.Retain = time.Now, nil, time.Minute
		s := mustOpen(t, quick(t), o)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.Run(ctx) })
		id := r.mustGrant(t, s, asked(s, time.Now(), "a", func(n *capability.New) { n.Token.Expires = n.Token.NotBefore.Add(10 * time.Minute) })).ID
		if !strings.HasPrefix(id, "cap_") || len(id) != 36 {
			t.Errorf("the id is %q", id)
		}
		time.Sleep(10*time.Minute + time.Second)
		synctest.Wait()
		r.wantState(t, s, id, capability.Expired, "granted", "expired")
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		wantForgotten(t, s)
		cancel()
		running.Wait()
	})
}

// TestOpenRefused: without a log or a key there is no store, and a file has one process.
func TestOpenRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // it waits for the other process
		r, data := newRecord(), quick(t)
		for _, spoil := range []func(*capability.Options){
			func(o *capability.Options) { o.Record = nil }, func(o *capability.Options) { o.Key = o.Key[:31] },
		} {
			o := r.options()
			if spoil(&o); o.Record == nil || len(o.Key) != 32 {
				if _, err := capability.Open(data, o); err == nil {
					t.Error("it opens")
				}
			}
		}
		s := mustOpen(t, data, r.options())
		if _, err := capability.Open(data, r.options()); !errors.Is(err, capability.ErrLocked) {
			t.Error(err)
		}
		must(t, s.Close())
		if _, err := s.Usable(t.Context(), "cap_a"); !errors.Is(err, capability.ErrClosed) {
			t.Error(err)
		}
		if info, err := os.Stat(filepath.Join(data, capability.FileName)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("others can read it: %v, %v", info.Mode(), err)
		}
	})
}

// TestAProofIsTakenOnceWhereverItIs: of 16 that bring one proof at once, half to each of two processes, one is the first, and no
// clock of theirs has it forgotten.
func TestAProofIsTakenOnceWhereverItIs(t *testing.T) {
	t.Parallel()
	c := &ledgertest.Cluster{Conflicts: 3, Late: time.Millisecond}
	both := places(t, c)
	take := func(use, id string) (firsts int32) {
		var racing sync.WaitGroup
		var all atomic.Int32
		for n := range 16 {
			racing.Go(func() {
				first, err := both[n%2].s.First(t.Context(), use, "key", id, time.Minute)
				if err != nil {
					t.Error(err)
				}
				if first {
					all.Add(1)
				}
			})
		}
		racing.Wait()
		return all.Load()
	}
	for name, want := range map[string]int32{"call a": 1, "call b": 1, "ask a": 1} {
		use, id, _ := strings.Cut(name, " ")
		if n := take(use, id); n != want {
			t.Errorf("%s: %d were the first", name, n)
		}
	}
	for _, p := range both {
		p.Pass(24 * time.Hour)
		p.s.Work(t.Context())
	}
	if n := take("call", "a"); n != 0 {
		t.Errorf("a clock that is ahead has a proof forgotten: %d", n)
	}
}

// TestSettleLost: what a process has left whose log is lost counts as used, but for a grant, which no log gives.
func TestSettleLost(t *testing.T) {
	t.Parallel()
	both := places(t, &ledgertest.Cluster{})
	here, there := both[0], both[1]
	c := here.mustGrant(t, here.s, asked(here.s, start, "a", uses(3)))
	use, err := there.s.Reserve(t.Context(), c.ID, "d")
	must(t, err)
	use.InDoubt()
	n := asked(there.s, start, "b")
	grant, err := there.s.Grant(t.Context(), n, "grant")
	must(t, err)
	grant.InDoubt()
	for range 2 {
		must(t, here.s.SettleLost(t.Context(), "place/1"))
		if got := here.mustGet(t, here.s, c.ID); got.Used != 1 || len(got.Reserved) > 0 || got.State != capability.Active {
			t.Errorf("what was used is %+v", got)
		}
		if got := here.mustGet(t, here.s, n.Token.ID); got.State != capability.Released || got.Granting != "" {
			t.Errorf("what was to be granted is %+v", got)
		}
	}
	if got := here.names(c.ID); got[len(got)-1] != capability.StepUsed {
		t.Errorf("on record are %q", got)
	}
	must(t, there.use(t.Context(), there.s, c.ID, "e"))
}

// TestRevokeManyBesideOthers: what waits for the log of another process keeps no other from being revoked. What that process has
// ended does not count as ended before that is on record.
func TestRevokeManyBesideOthers(t *testing.T) {
	t.Parallel()
	both := places(t, &ledgertest.Cluster{})
	here, there := both[0], both[1]
	var ids []string
	for range 3 {
		ids = append(ids, here.mustGrant(t, here.s, asked(here.s, start, "a")).ID)
	}
	there.Set(true, false, false)
	_, err := there.s.Revoke(t.Context(), ids[0], "mia", "")
	_, err2 := there.s.Suspend(t.Context(), ids[1], "h1:next")
	if !errors.Is(err, capability.ErrUnrecorded) || !errors.Is(err2, capability.ErrUnrecorded) {
		t.Fatal(err, err2)
	}
	if n, err := here.s.RevokeMany(t.Context(), capability.Filter{}, "mia", "stolen"); n != 1 || !errors.Is(err, capability.ErrUnrecorded) {
		t.Errorf("beside one that waits %d are revoked: %v", n, err)
	}
	here.wantState(t, here.s, ids[2], capability.Revoked)
	there.Set(false, false, false)
	_, _, err = there.s.Get(t.Context(), ids[1])
	must(t, err)
	if n, err := here.s.RevokeMany(t.Context(), capability.Filter{}, "mia", "stolen"); n != 1 || !errors.Is(err, ledger.ErrElsewhere) {
		t.Errorf("%d are revoked, and the first waits: %v", n, err)
	}
	there.s.Work(t.Context())
	if n, err := here.s.RevokeMany(t.Context(), capability.Filter{}, "mia", "stolen"); n != 0 || err != nil {
		t.Errorf("%d more are revoked: %v", n, err)
	}
	for _, id := range ids {
		here.wantState(t, here.s, id, capability.Revoked)
	}
}
