package capability_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	token "policy-service/evaluation/capability"
	"policy-service/pdp/internal/capability"
	"policy-service/pdp/internal/ledger/ledgertest"
	"policy-service/pdp/pdptest/etcdtest"
	"policy-service/pdp/pdptest/night"
)

// onEtcd is the name of a variable. Where it is set all stores are in etcd.
const onEtcd = "CAPABILITIES_ON_ETCD"

// TestOnEtcd runs the other tests in etcd, but those that do something to the file, run in a bubble of synctest, or make their own
// engine, and those of what is in memory alone.
func TestOnEtcd(t *testing.T) {
	t.Parallel()
	night.Other(t, "etcd")
	but := "-test.skip=^(TestOnEtcd|TestOlderValue|TestLimits|TestOlderFile|TestDamage|TestRun|TestOpenRefused|TestSeen.*|TestKept.*|TestNonces|TestLostAnswers|TestFirstValuePutBack|TestRestoredEtcd|TestRevokeManyWithoutIndexes|TestListOfACopy|TestPlacesAreNotTakenAway)$"
	again := exec.CommandContext(t.Context(), os.Args[0], "-test.short", "-test.timeout=30m", but)
	again.Env = append(os.Environ(), onEtcd+"=1")
	if said, err := again.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
}

// A capability that is used up is not granted once more when a program that can write to etcd deletes it, and puts all back
// that there was of it before it was granted.
func TestFirstValuePutBack(t *testing.T) {
	t.Parallel()
	r, prefix, ctx := newRecord(), t.TempDir(), t.Context()
	o := r.options()
	o.Engine, o.Origin = etcdtest.Engine(t, prefix, capability.Known), "here"
	s := mustOpen(t, "", o)
	client, err := etcdtest.Dial(etcdtest.One(t)...)
	must(t, err)
	t.Cleanup(func() { _ = client.Close() })
	n := asked(s, start, "a", uses(1))
	id := n.Token.ID
	granted, err := s.Grant(ctx, n, "grant")
	must(t, err)
	before, err := client.Get(ctx, prefix+"/v/", clientv3.WithPrefix())
	must(t, err)
	must(t, r.Decide("grant"))
	must(t, granted.Spent(ctx))
	must(t, r.use(ctx, s, id, "d"))
	if got := r.mustGet(t, s, id); got.State != capability.UsedUp {
		t.Fatalf("it is %s", got.State)
	}
	for _, kv := range before.Kvs {
		if !strings.HasPrefix(string(kv.Key), prefix+"/v/g") {
			for _, change := range []clientv3.Op{clientv3.OpDelete(string(kv.Key)), clientv3.OpPut(string(kv.Key), string(kv.Value))} {
				_, err := etcdtest.Change(ctx, client, prefix+"/", change)
				must(t, err)
			}
		}
	}
	etcdtest.Eventually(t, "it is refused", func() bool {
		s.Work(ctx)
		got, _, err := s.Stored(id)
		must(t, err)
		if got.State == capability.Active {
			t.Fatalf("it is %s again, and was used %d times", got.State, got.Used)
		}
		r.Mu.Lock()
		defer r.Mu.Unlock()
		return slices.ContainsFunc(r.Errors, func(err error) bool { return errors.Is(err, capability.ErrDamaged) })
	})
	if err := r.use(ctx, s, id, "e"); err == nil {
		t.Error("it was used once more")
	}
}

// Etcd is put back from a copy, and two processes open what it has, one after the other. Each takes from its log what it did after
// the copy, also what has a lower version than what the other one took before; but then nothing that gives. A process that starts
// once more counts nothing twice.
func TestRestoredEtcd(t *testing.T) {
	t.Parallel()
	type at struct {
		n  int // of the process
		do string
	}
	type restored struct {
		before, after []at // the copy
		want          capability.State
		used          int
	}
	members := etcdtest.Start(t, etcdtest.Options{Members: 1})
	var back []func()
	var after []func()
	for name, c := range map[string]restored{
		"used at both":             {nil, []at{{0, "use"}, {1, "use"}, {0, "use"}}, capability.Active, 3},
		"used before, and at both": {[]at{{0, "use"}, {1, "use"}}, []at{{1, "use"}, {0, "use"}}, capability.Active, 4},
		"used up":                  {nil, []at{{0, "use"}, {0, "use"}, {1, "use"}, {1, "use"}, {0, "use"}}, capability.UsedUp, 5},
		"revoked":                  {nil, []at{{0, "use"}, {0, "use"}, {1, "revoke"}}, capability.Revoked, 0},
		"suspended":                {nil, []at{{1, "suspend"}, {0, "resume"}, {0, "use"}}, capability.Suspended, 1},
		"suspended again":          {nil, []at{{0, "suspend"}, {1, "resume"}, {0, "suspend"}}, capability.Suspended, 0},
	} {
		for first := range 2 {
			var proofs ledgertest.Proofs[capability.Step]
			var stores [2]*capability.Store
			logs, prefix := [2]*record{newRecord(), newRecord()}, t.TempDir()
			logs[1].N = 1_000_000 // ids differ
			open := func(n int) {
				o := logs[n].options()
				o.Engine = members.Engine(prefix, capability.Known)
				o.Origin = []string{"place", "place/1"}[n]
				o.Prove, o.Verify = proofs.Prove(o.Origin, logs[n].Attest), proofs.Verify
				stores[n] = mustOpen(t, "", o)
			}
			id, uses := "", 0
			do := func(all []at) {
				var err error
				for _, a := range all {
					switch store := stores[a.n]; a.do {
					case "use":
						uses++
						d := fmt.Sprint("d", uses)
						use, failed := store.Reserve(t.Context(), id, d)
						must(t, failed)
						logs[a.n].logs(d, id, false)
						must(t, use.Spent(t.Context()))
					case "revoke":
						_, err = store.Revoke(t.Context(), id, "mia", "")
					case "suspend":
						_, err = store.Suspend(t.Context(), id, "h1:s")
					case "resume":
						_, err = store.Resume(t.Context(), id, "h1:s")
					}
					must(t, err)
				}
			}
			open(0)
			open(1)
			id = logs[0].mustGrant(t, stores[0], asked(stores[0], start, "a", func(n *capability.New) { n.Token.MaxUses = 5 })).ID
			do(c.before)
			after = append(after, func() {
				do(c.after)
				must(t, stores[0].Close())
				must(t, stores[1].Close())
			})
			back = append(back, func() {
				open(first)
				open(1 - first)
				for _, again := range []int{0, 1, first} {
					got := logs[0].mustGet(t, stores[again], id)
					if got.State != c.want || got.Used != c.used && !got.State.Final() {
						t.Errorf("%s, process %d first: it is %s, and was used %d times, want %s and %d", name, first, got.State, got.Used, c.want, c.used)
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

// A program that can write to etcd, and has no key, deletes the place of a token that was revoked. The list does not call it valid.
func TestPlacesAreNotTakenAway(t *testing.T) {
	t.Parallel()
	r, prefix := newRecord(), t.TempDir()
	o := r.options()
	o.Engine, o.Origin = etcdtest.Engine(t, prefix, capability.Known), "here"
	s := mustOpen(t, "", o)
	revoked := r.mustGrant(t, s, asked(s, start, "a", offline(t, s)))
	_, err := s.Revoke(t.Context(), revoked.ID, "mia", "")
	must(t, err)
	client, err := etcdtest.Dial(etcdtest.One(t)...)
	must(t, err)
	t.Cleanup(func() { _ = client.Close() })
	_, err = etcdtest.Change(t.Context(), client, prefix+"/", clientv3.OpDelete(prefix+"/v/xs/", clientv3.WithPrefix()))
	must(t, err)
	of := revoked.Token.Status
	list := token.NewStatusList(of.URI, start, time.Minute)
	if err := s.FillList(path.Base(of.URI), list); !errors.Is(err, capability.ErrDamaged) {
		t.Errorf("got %v, and the token is %v", err, list.State(of.Index, start))
	}
}

// A program that can write to etcd, and has no key, deletes what capabilities are found by. Those that are to be revoked are revoked
// all the same.
func TestRevokeManyWithoutIndexes(t *testing.T) {
	t.Parallel()
	r, prefix, ctx := newRecord(), t.TempDir(), t.Context()
	o := r.options()
	o.Engine, o.Origin = etcdtest.Engine(t, prefix, capability.Known), "here"
	s := mustOpen(t, "", o)
	parent := r.mustGrant(t, s, asked(s, start, "parent", deep(1)))
	other := r.mustGrant(t, s, asked(s, start, "other"))
	client, err := etcdtest.Dial(etcdtest.One(t)...)
	must(t, err)
	t.Cleanup(func() { _ = client.Close() })
	for name, find := range map[string]func(capability.Capability) capability.Filter{
		"by key": func(c capability.Capability) capability.Filter {
			return capability.Filter{Tenant: c.Tenant, JKT: c.JKT}
		},
		"by holder": func(c capability.Capability) capability.Filter {
			return capability.Filter{Tenant: c.Tenant, Holder: c.Holder}
		},
		"by ancestor": func(c capability.Capability) capability.Filter {
			return capability.Filter{Tenant: c.Tenant, Ancestor: parent.ID}
		},
	} {
		c := r.mustGrant(t, s, asked(s, start, name, handedOn(parent)))
		_, err := etcdtest.Change(ctx, client, prefix+"/", clientv3.OpDelete(prefix+"/v/xi/", clientv3.WithPrefix()))
		must(t, err)
		if page, _, err := s.List(ctx, find(c), "", 10); err != nil || len(page) != 0 {
			t.Fatalf("%s: what finds it is there: %v, %v", name, page, err)
		}
		if n, err := s.RevokeMany(ctx, find(c), "mia", ""); n != 1 || err != nil {
			t.Errorf("%s: %d are revoked: %v", name, n, err)
		}
		r.wantState(t, s, c.ID, capability.Revoked)
	}
	if n, err := s.RevokeMany(ctx, capability.Filter{Tenant: other.Tenant, Holder: other.Holder}, "mia", ""); n != 1 || err != nil {
		t.Errorf("by holder: %d are revoked: %v", n, err)
	}
	r.wantState(t, s, parent.ID, capability.Active)
	if n, err := s.RevokeMany(ctx, capability.Filter{Tenant: parent.Tenant}, "mia", ""); n != 1 || err != nil {
		t.Errorf("by tenant: %d are revoked: %v", n, err)
	}
}

// Etcd was put back from a copy, which does not know what was granted after it. What a gateway that verifies by itself has of that is
// not valid, as it may have been revoked; what the copy knows is what it was, and new places are in another list.
func TestListOfACopy(t *testing.T) {
	t.Parallel()
	r, prefix := newRecord(), t.TempDir()
	open := func(generation uint64) *capability.Store {
		o := r.options()
		o.Engine, o.Origin, o.Generation = etcdtest.Engine(t, prefix, capability.Known), "here", generation
		return mustOpen(t, "", o)
	}
	s := open(1)
	known := r.mustGrant(t, s, asked(s, start, "known", offline(t, s))).Token
	after := known // which the copy does not know
	after.Status.Index = (known.Status.Index + 1) % token.ListSize
	if state := listed(t, s, after, start); state != token.StateValid {
		t.Errorf("a place that is free is %v", state)
	}
	must(t, s.Close())
	s = open(2)
	if state := listed(t, s, known, start); state != token.StateValid {
		t.Errorf("what the copy knows is %v", state)
	}
	if state := listed(t, s, after, start); state != token.StateInvalid {
		t.Errorf("what may have been granted after it is %v", state)
	}
	for range 2 { // the second one is in the list of the first
		next := r.mustGrant(t, s, asked(s, start, "next", offline(t, s))).Token
		if next.Status.URI == known.Status.URI {
			t.Error("a new one may have the place of one that was revoked")
		}
		if state := listed(t, s, next, start); state != token.StateValid {
			t.Errorf("a new one is %v", state)
		}
		after.Status = next.Status
		after.Status.Index = (next.Status.Index + 1) % token.ListSize
		if state := listed(t, s, after, start); state != token.StateValid {
			t.Errorf("a place that is free in a new list is %v", state)
		}
	}
	_, err := s.Revoke(t.Context(), known.ID, "mia", "")
	must(t, err)
	if state := listed(t, s, known, start); state != token.StateInvalid {
		t.Errorf("what was revoked is %v", state)
	}
}
