package capability_test

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"policy-service/pdp/capability"
	"policy-service/pdp/pdptest/etcdtest"
)

// onEtcd is the name of a variable. Where it is set all stores are in etcd.
const onEtcd = "CAPABILITIES_ON_ETCD"

// TestOnEtcd runs the other tests in etcd, but those that do something to the file, run in a bubble of synctest, or make their own
// engine, and those of what is in memory alone.
func TestOnEtcd(t *testing.T) {
	t.Parallel()
	but := "-test.skip=^(TestOnEtcd|TestOlderValue|TestLimits|TestOlderFile|TestDamage|TestRun|TestOpenRefused|TestSeen.*|TestKept.*|TestNonces|TestLostAnswers|TestFirstValuePutBack)$"
	again := exec.CommandContext(t.Context(), os.Args[0], "-test.short", "-test.timeout=5m", but)
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
	granted.Spent(ctx)
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
