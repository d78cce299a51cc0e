package cluster_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"policy-service/pdp/internal/cluster"
	"policy-service/pdp/internal/ledger"
	"policy-service/pdp/internal/ledger/etcd"
	"policy-service/pdp/pdptest/clock"
	"policy-service/pdp/pdptest/etcdtest"
)

// replica is a process of a cluster whose ledgers are not looked at.
type replica struct {
	*cluster.Cluster
	clock   *clock.Clock
	t       testing.TB
	config  cluster.Config
	options cluster.Options
	joining cluster.Joining
	keys    []string
	size    uint64
	stop    func()
	revoked []string // for the logs of these, which are lost, all was revoked
}

// prefixOf is the prefix of a test in the member that all share: with -count and -cpu a test runs more than once.
func prefixOf(t testing.TB) string { return t.Name() + rand.Text() }

func newReplica(t testing.TB, origin, prefix string, endpoints ...string) *replica {
	r := &replica{t: t, clock: clock.At(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)), keys: []string{origin + "+1+key"}, size: 3}
	r.config.Etcd.Prefix, r.config.Etcd.Timeout = "/"+prefix+"/", etcdtest.Patience
	for _, one := range endpoints {
		r.config.Etcd.Endpoints = append(r.config.Etcd.Endpoints, "http://"+one)
	}
	r.options = cluster.Options{Key: []byte("the key"), Data: t.TempDir(), Now: r.clock.Now, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	r.joining = cluster.Joining{
		Origin:  origin,
		LogKeys: func() ([]string, error) { return r.keys, nil },
		Size:    func() uint64 { return r.size },
		Secrets: map[string][]byte{"page.key": []byte("secret")},
		Signing: func() []string { return []string{"one"} },
		Address: func() string { return "http://" + origin },
		Bundle:  func() string { return "h1:x" },
		Version: "test",
	}
	t.Cleanup(func() { r.close() })
	return r
}

func (r *replica) join() error {
	r.t.Helper()
	c, err := cluster.Open(r.t.Context(), r.config, r.options)
	if err != nil {
		return err
	}
	r.Cluster = c
	if err := c.Join(r.t.Context(), r.joining); err != nil {
		c.Close()
		r.Cluster = nil
		return err
	}
	return c.Opened(r.t.Context(), func(_ context.Context, lost []string) error {
		r.revoked = append(r.revoked, lost...)
		return nil
	})
}

func (r *replica) run() {
	r.t.Helper()
	must(r.t, r.join())
	r.stop = cluster.Background(r.Run)
}

func (r *replica) close() {
	if r.stop != nil {
		r.stop()
	}
	if r.Cluster != nil {
		r.Close()
	}
	r.stop, r.Cluster = nil, nil
}

// A replica that was cut off while it was settled as lost uses no state when it is back.
func TestLostAndBack(t *testing.T) {
	t.Parallel()
	prefix := prefixOf(t)
	a, b := newReplica(t, "a", prefix, etcdtest.One(t)...), newReplica(t, "b", prefix, etcdtest.One(t)...)
	a.run()
	b.run()
	must(t, b.Usable())
	b.stop() // as if it were cut off: it is no member any more
	must(t, a.SettleLost(t.Context(), "b", "it is cut off", true))
	b.stop = cluster.Background(b.Run)
	etcdtest.Eventually(t, "it is refused", func() bool { return errors.Is(b.Usable(), cluster.ErrRefused) })
	must(t, a.Usable())
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func refuses(t *testing.T, name string, err error, want ...string) {
	t.Helper()
	for _, one := range want {
		if err == nil || !strings.Contains(err.Error(), one) {
			t.Errorf("%s: got %v, want %s", name, err, one)
		}
	}
}

func TestMembers(t *testing.T) {
	t.Parallel()
	prefix := prefixOf(t)
	a, b := newReplica(t, "a", prefix, etcdtest.One(t)...), newReplica(t, "b/b", prefix, etcdtest.One(t)...)
	b.clock.Advance(5 * time.Second)
	a.run()
	b.run()
	for _, r := range []*replica{a, b} {
		etcdtest.Eventually(t, "the clocks differ", func() bool { return r.Skew() == 5*time.Second })
	}
	if a.Behind() != 5*time.Second || b.Behind() != 0 {
		t.Errorf("behind: got %v, %v", a.Behind(), b.Behind())
	}
	all, err := a.Members(t.Context())
	must(t, err)
	if len(all) != 2 || all[0].Origin != "a" || all[1].Origin != "b/b" || all[1].Address != "http://b/b" || all[1].Bundle != "h1:x" {
		t.Errorf("got %+v", all)
	}
	keys, err := a.LogKeys("b/b")
	must(t, err)
	if !slices.Equal(keys, b.keys) {
		t.Errorf("got %v", keys)
	}
	refuses(t, "one that is there", a.SettleLost(t.Context(), "b/b", "gone", true), "has a member that runs")
	b.close()
	etcdtest.Eventually(t, "it is gone", func() bool { return len(a.There()) == 0 && a.Skew() == 0 })
	refuses(t, "one that ended a moment ago", a.SettleLost(t.Context(), "b/b", "gone", false), "wait, or add --now")
	refuses(t, "without a reason", a.SettleLost(t.Context(), "b/b", " ", true), "needs a reason")
	refuses(t, "one that never was", a.SettleLost(t.Context(), "c", "gone", true), "no replica ever had")
	a.clock.Advance(12 * time.Minute)
	must(t, a.SettleLost(t.Context(), "b/b", "its disk burnt", false))
	refuses(t, "one that is lost", b.join(), "settled as lost", "its disk burnt", "take another origin")
}

func TestOriginIsBoundToItsLog(t *testing.T) {
	t.Parallel()
	a := newReplica(t, "a", prefixOf(t), etcdtest.One(t)...)
	must(t, a.join())
	a.close()
	a.keys = append(a.keys, "another")
	must(t, a.join())
	a.close()
	a.keys = a.keys[1:]
	refuses(t, "without its first key", a.join(), "is the name of another log", "a+1+key")
	a.keys, a.size = []string{"a+1+key", "another"}, 2
	refuses(t, "a shorter log", a.join(), "had 3 records at least, and has 2")
	a.size, a.config.Origin = 3, "b"
	refuses(t, "another name", a.join(), `cluster.origin is "b"`)
	a.config.Origin, a.joining.Secrets = "", map[string][]byte{"page.key": []byte("another")}
	refuses(t, "another secret", a.join(), "page.key here is not that of the other replicas")
	a.joining.Secrets = nil
	a.options.Key = []byte("another key")
	refuses(t, "another key", a.join(), "another approvals.key")
}

// The keys that sign may be replaced as often as one likes: a start needs one of those that the last rotation left.
func TestSigningKeysAreReplaced(t *testing.T) {
	t.Parallel()
	a := newReplica(t, "a", prefixOf(t), etcdtest.One(t)...)
	signs := func(ids ...string) { a.joining.Signing = func() []string { return ids } }
	rotated := func(ids ...string) {
		t.Helper()
		command, err := cluster.Open(t.Context(), a.config, a.options)
		must(t, err)
		defer command.Close()
		must(t, command.RotateSigning(t.Context(), func() ([]string, error) { return ids, nil }))
	}
	rotated("zero") // before there is a replica
	must(t, a.join())
	a.close()
	signs("two", "one")
	must(t, a.join())
	a.close()
	signs("four", "three")
	refuses(t, "keys that none has", a.join(), "the signing keys here are not those of the other replicas; copy signing.jwks of one of them over it")
	rotated("four", "three")
	must(t, a.join())
	a.close()
	signs("two", "one")
	refuses(t, "the keys of before", a.join(), "signing.jwks")
}

// A copy of a replica's directory of before it joined knows nothing of the cluster, and has a shorter log. It is refused, and changes
// nothing for those that run.
func TestOlderCopyOfAReplica(t *testing.T) {
	t.Parallel()
	to, prefix := etcdtest.One(t), prefixOf(t)
	a, b := newReplica(t, "a", prefix, to...), newReplica(t, "b", prefix, to...)
	a.run()
	b.run()
	older := newReplica(t, "a", prefix, to...)
	older.size = 2
	refuses(t, "the copy", older.join(), "had 3 records at least, and has 2")
	generation := a.Generation()
	for _, one := range []*replica{a, b} {
		one.close()
		must(t, one.join())
		must(t, one.Usable())
		if one.Generation() != generation {
			t.Errorf("the generation is %d, and was %d", one.Generation(), generation)
		}
	}
}

// Etcd that was put back is found by those that run, and by one that starts.
func TestRestored(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, etcdtest.Options{Members: 1})
	a, b := newReplica(t, "a", t.Name(), etcd.Client().Endpoints()...), newReplica(t, "b", t.Name(), etcd.Client().Endpoints()...)
	a.run()
	lost := newReplica(t, "lost", t.Name(), etcd.Client().Endpoints()...)
	lost.run()
	lost.close()
	must(t, a.SettleLost(t.Context(), "lost", "its disk burnt", true))
	dir := etcd.CopyOf()
	b.run() // which the copy does not know
	etcdtest.Eventually(t, "they know each other", func() bool {
		text, err := os.ReadFile(filepath.Join(a.options.Data, cluster.MarkFile))
		return err == nil && strings.Contains(string(text), `"b":`)
	})
	etcd.PutBack(dir)
	for _, r := range []*replica{a, b} {
		etcdtest.Eventually(t, "it stands still", func() bool { return errors.Is(r.Usable(), cluster.ErrRestored) })
	}
	a.close()
	must(t, a.join())
	etcdtest.Eventually(t, "it waits", func() bool { return errors.Is(a.Usable(), cluster.ErrRestored) })
	refuses(t, "b has not compared", a.Usable(), "have not compared their logs yet: b")
	b.close()
	must(t, b.join())
	must(t, b.Usable())
	a.close()
	must(t, a.join())
	must(t, a.Usable())
	if len(a.revoked)+len(b.revoked) > 0 {
		t.Errorf("all is revoked, and what was lost before the copy has its uses in it: %v, %v", a.revoked, b.revoked)
	}
}

// What one wrote that does not run any more is missed by whoever knew of it, however much is written after the copy was put back.
func TestRestoredAndWrittenOn(t *testing.T) {
	t.Parallel()
	members := etcdtest.Start(t, etcdtest.Options{Members: 1})
	all, engines, nets := map[string]*replica{}, map[string]*etcd.Engine{}, map[string]*etcdtest.Net{}
	for _, name := range []string{"a", "b", "c"} {
		nets[name] = members.Client()
		r := newReplica(t, name, t.Name(), nets[name].Endpoints()...)
		r.config.Etcd.Timeout = time.Minute // a machine may be busy
		r.run()
		all[name], engines[name] = r, r.Engine(cluster.Approvals, ledger.Errors{Unavailable: cluster.ErrAway})
		must(t, engines[name].Open())
		t.Cleanup(func() { _ = engines[name].Close() })
	}
	write := func(name string) { // a member that was killed may just be missed
		t.Helper()
		etcdtest.Succeeds(t, name+" writes", func() error {
			_, err := engines[name].Write(ledger.Transaction{Puts: map[string][]byte{"key": []byte("1")}})
			return err
		})
	}
	knows := func(what string) {
		etcdtest.Eventually(t, "a knows "+what, func() bool {
			text, err := os.ReadFile(filepath.Join(all["a"].options.Data, cluster.MarkFile))
			return err == nil && strings.Contains(string(text), what)
		})
	}
	write("c")
	knows(`approvals/rev/c":{"number":1,`)
	nets["b"].Cut()
	dir := members.CopyOf()
	write("c")
	knows(`approvals/rev/c":{"number":2,`)
	nets["c"].Cut()
	nets["a"].Cut()
	members.PutBack(dir)
	nets["b"].Heal()
	etcdtest.Eventually(t, "b goes on", func() bool { return all["b"].Usable() == nil && engines["b"].Open() == nil })
	for range 20 {
		write("b")
	}
	nets["a"].Heal()
	etcdtest.Eventually(t, "a misses it", func() bool { return errors.Is(all["a"].Usable(), cluster.ErrRestored) })
	nets["c"].Heal() // or it ends once its calls have waited for a minute
}

// A program that can write to etcd, and has no key, ends no standstill: what it takes away or puts back is missed by the replicas
// that knew more, those that run and those that start.
func TestStandstillIsNotEnded(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, etcdtest.Options{Members: 1})
	client, err := etcdtest.Dial(etcd.Client().Endpoints()...)
	must(t, err)
	t.Cleanup(func() { _ = client.Close() })
	for n, one := range []struct {
		name string
		do   func(key func(string) string, first map[string]string)
	}{
		{"the facts are deleted", func(key func(string) string, _ map[string]string) {
			_, err := client.Delete(t.Context(), key("facts"))
			must(t, err)
		}},
		{"the first facts are put back", func(key func(string) string, first map[string]string) {
			_, err := client.Delete(t.Context(), key("facts"))
			must(t, err)
			_, err = client.Put(t.Context(), key("facts"), first["facts"])
			must(t, err)
		}},
		{"the origin that is waited for is deleted", func(key func(string) string, _ map[string]string) {
			_, err := client.Delete(t.Context(), key("l/b"))
			must(t, err)
		}},
		{"its first value is put back", func(key func(string) string, first map[string]string) {
			_, err := client.Delete(t.Context(), key("l/b"))
			must(t, err)
			_, err = client.Put(t.Context(), key("l/b"), first["l/b"])
			must(t, err)
		}},
		{"all is deleted", func(key func(string) string, _ map[string]string) {
			_, err := client.Delete(t.Context(), key(""), clientv3.WithPrefix())
			must(t, err)
		}},
	} {
		t.Run(one.name, func(t *testing.T) {
			t.Parallel()
			prefix := fmt.Sprint("standstill", n)
			a, b := newReplica(t, "a", prefix, etcd.Client().Endpoints()...), newReplica(t, "b", prefix, etcd.Client().Endpoints()...)
			key := func(k string) string { return "/" + prefix + "/cluster/v/" + k }
			first := map[string]string{}
			keep := func(k string) {
				got, err := client.Get(t.Context(), key(k))
				must(t, err)
				first[k] = string(got.Kvs[0].Value)
			}
			a.run()
			keep("facts")
			b.run()
			keep("l/b")
			b.close()
			b.size = 5
			b.run()
			waitFor := func() {
				etcdtest.Eventually(t, "a knows b", func() bool {
					text, err := os.ReadFile(filepath.Join(a.options.Data, cluster.MarkFile))
					return err == nil && strings.Contains(string(text), `"b":`)
				})
			}
			waitFor()
			b.close()
			a.close()
			must(t, os.Remove(filepath.Join(a.options.Data, cluster.MarkFile))) // as good as a copy of etcd: a cannot say
			a.run()
			refuses(t, "b has not compared", a.Usable(), "have not compared their logs yet: b")
			waitFor()
			one.do(key, first)
			etcdtest.Eventually(t, "it is missed", func() bool {
				err := a.Usable()
				return errors.Is(err, cluster.ErrRestored) && strings.Contains(err.Error(), "restart this replica")
			})
			a.close()
			one.do(key, first)
			a.run()
			refuses(t, "b has not compared", a.Usable(), "have not compared their logs yet: b")
			must(t, b.join())
			must(t, b.Usable())
			etcdtest.Eventually(t, "a need not wait", func() bool { return a.Usable() == nil })
			if len(a.revoked)+len(b.revoked) > 0 {
				t.Errorf("revoked for %v, %v", a.revoked, b.revoked)
			}
		})
	}
}

func TestNewEnough(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{"3.6.0": true, "3.7.3": true, "4.0.0": true, "3.5.21": false, "2.9": false, "": false, "x": false} {
		if got := cluster.NewEnough(version); got != want {
			t.Errorf("%s: got %t", version, got)
		}
	}
}

// twinOf is a process with a copy of the data directory of another.
func twinOf(r *replica) *replica {
	twin := newReplica(r.t, r.joining.Origin, "")
	twin.config, twin.keys, twin.size = r.config, r.keys, r.size
	must(r.t, os.CopyFS(twin.options.Data, os.DirFS(r.options.Data)))
	return twin
}

// joins tries until this process is a member, as a server does.
func (r *replica) joins() {
	r.t.Helper()
	etcdtest.Succeeds(r.t, "it joins", func() error {
		err := r.join()
		if err != nil && !errors.Is(err, cluster.ErrWaiting) && !errors.Is(err, cluster.ErrAway) {
			r.t.Fatal(err)
		}
		return err
	})
}

// tryTwice starts as a server does, and returns the first error, and the first one by which the server would end.
func (r *replica) tryTwice() (first, second error) {
	c, err := cluster.Open(r.t.Context(), r.config, r.options)
	must(r.t, err)
	defer c.Close()
	first = c.Join(r.t.Context(), r.joining)
	etcdtest.Eventually(r.t, "it finds out", func() bool {
		second = c.Join(r.t.Context(), r.joining)
		return !errors.Is(second, cluster.ErrWaiting)
	})
	return first, second
}

// A copy of the data directory of a member that lives waits for the end of its lease, is refused once the member has written its
// entry again, and changes nothing: nor is the member gone once the copy has ended.
func TestTwinOfAMember(t *testing.T) {
	t.Parallel()
	prefix := prefixOf(t)
	a, b := newReplica(t, "a", prefix, etcdtest.One(t)...), newReplica(t, "b", prefix, etcdtest.One(t)...)
	a.run()
	b.run()
	first, second := twinOf(a).tryTwice()
	if !errors.Is(first, cluster.ErrWaiting) || !errors.Is(second, cluster.ErrRefused) {
		t.Errorf("a copy that starts: got %v, then %v", first, second)
	}
	refuses(t, "it is refused", second, "another process runs under the name a", "an empty one that has the shared keys alone")
	b.clock.Advance(time.Hour) // a clock that is ahead takes no member for gone
	refuses(t, "a lives", b.SettleLost(t.Context(), "a", "gone", true), "has a member that runs")
	for _, r := range []*replica{a, b} {
		must(t, r.Usable())
	}
}

// A member that was cut off for longer than its lease uses no state, and none once it is back, if a copy of its data directory has
// the name then or had it meanwhile. A member whose name nobody took goes on.
func TestTwinOfAMemberThatWasCutOff(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, etcdtest.Options{Members: 1})
	for _, one := range []struct {
		name        string
		twin, there bool
	}{{name: "nobody took its name"}, {name: "the copy has its name", twin: true, there: true}, {name: "the copy had its name", twin: true}} {
		t.Run(one.name, func(t *testing.T) {
			t.Parallel()
			net := etcd.Client()
			a := newReplica(t, "a", prefixOf(t), net.Endpoints()...)
			a.config.Etcd.Timeout = time.Second
			a.run()
			twin := twinOf(a)
			twin.config.Etcd.Endpoints = []string{"http://" + etcd.Client().Endpoints()[0]}
			twin.config.Etcd.Timeout = etcdtest.Patience
			net.Cut()
			switch {
			case one.twin:
				twin.joins()
				twin.stop = cluster.Background(twin.Run)
				if err := a.Usable(); err == nil {
					t.Error("both use state")
				}
				if !one.there {
					twin.close()
				}
			default:
				client, err := etcdtest.Dial(etcd.Client().Endpoints()...)
				must(t, err)
				defer func() { _ = client.Close() }()
				etcdtest.Eventually(t, "its lease ends", func() bool {
					got, err := client.Get(t.Context(), a.config.Etcd.Prefix+"members/", clientv3.WithPrefix())
					return err == nil && len(got.Kvs) == 0
				})
			}
			net.Heal()
			if !one.twin {
				etcdtest.Eventually(t, "it goes on", func() bool { return a.Usable() == nil })
				return
			}
			etcdtest.Eventually(t, "it is no member", func() bool { return errors.Is(a.Usable(), cluster.ErrRefused) })
			refuses(t, "it says why", a.Usable(), "another process took the name a")
			if one.there {
				must(t, twin.Usable())
				twin.close()
			}
			for range 2 { // beats
				a.stop()
				a.stop = cluster.Background(a.Run)
			}
			refuses(t, "for ever", a.Usable(), "another process took the name a")
			a.close()
			must(t, a.join()) // a start compares its log
			must(t, a.Usable())
		})
	}
}

// vouchedFor joins a new replica beside others.
func vouchedFor(t *testing.T, prefix, origin string, endpoints ...string) *replica {
	t.Helper()
	r := newReplica(t, origin, prefix, endpoints...)
	r.joins()
	r.stop = cluster.Background(r.Run)
	return r
}

// A new replica joins beside one that runs, as that knows what etcd had. Where none runs it is refused, however often it tries, and
// whatever others that are new try beside it, until one of those that etcd knows is back or somebody gives their word.
func TestNewReplicaFirst(t *testing.T) {
	t.Parallel()
	prefix, to := prefixOf(t), etcdtest.One(t)
	a := newReplica(t, "a", prefix, to...)
	a.run() // the first of all
	b := vouchedFor(t, prefix, "b", to...)
	lost := vouchedFor(t, prefix, "lost", to...)
	lost.close()
	must(t, a.SettleLost(t.Context(), "lost", "its disk burnt", true))
	a.close()
	b.close()

	c, d := newReplica(t, "c", prefix, to...), newReplica(t, "d", prefix, to...)
	open, err := cluster.Open(t.Context(), c.config, c.options)
	must(t, err)
	defer open.Close()
	for range 2 { // it is there meanwhile, and asks
		err := open.Join(t.Context(), c.joining)
		refuses(t, "c", err, "a (last seen 2026-01-02T03:04:05Z), b (last seen 2026-01-02T03:04:05Z); start one of them first", "cluster join --etcd-is-current")
		if strings.Contains(err.Error(), "lost (") {
			t.Errorf("one that is lost is missed: %v", err)
		}
		refuses(t, "d beside c", d.join(), "no replica is there to say")
		must(t, d.checkNew(t, "a"))
		refuses(t, "what doctor says", d.checkNew(t, "d"), "no replica is there to say")
	}
	if _, err := os.Stat(filepath.Join(c.options.Data, cluster.MarkFile)); err == nil {
		t.Error("a start that is refused leaves a mark")
	}
	open.Close()

	a.run()
	must(t, d.checkNew(t, "d"))
	c.joins()
	c.close()
	a.close()
	d.joining.EtcdIsCurrent = true
	must(t, d.join())
	d.close()
	d.joining.EtcdIsCurrent = false
	d.run() // which was a member before
	e := vouchedFor(t, prefix, "e", to...)
	for _, r := range []*replica{d, e} {
		must(t, r.Usable())
		if r.Generation() != 1 || len(r.revoked) > 0 {
			t.Errorf("generation %d, and revoked for %v", r.Generation(), r.revoked)
		}
	}
	for _, r := range []*replica{a, b, c} {
		must(t, r.join())
		must(t, r.Usable())
	}
}

// checkNew is what doctor asks for the directory of a replica.
func (r *replica) checkNew(t *testing.T, origin string) error {
	t.Helper()
	c, err := cluster.Open(t.Context(), r.config, r.options)
	must(t, err)
	defer c.Close()
	return c.CheckNew(t.Context(), origin)
}

// A copy of etcd has the entries of members, and their leases begin anew with it. None of this vouches for it. A member that lives
// and finds out vouches for nothing, too.
func TestNewReplicaAfterARestore(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, etcdtest.Options{Members: 1})
	net, nets := etcd.Client(), etcd.Client()
	a := newReplica(t, "a", t.Name(), net.Endpoints()...)
	a.run()
	b := vouchedFor(t, t.Name(), "b", nets.Endpoints()...)
	dir := etcd.CopyOf()
	b.size++
	b.close()
	b.run() // and etcd has more than the copy
	net.Cut()
	etcd.PutBack(dir)
	c := newReplica(t, "c", t.Name(), etcd.Client().Endpoints()...)
	first, second := c.tryTwice()
	if !errors.Is(first, cluster.ErrWaiting) && !errors.Is(first, cluster.ErrRefused) {
		t.Errorf("c at first: got %v", first)
	}
	refuses(t, "c", second, "no replica is there to say", "a (last seen", "b (last seen")
	etcdtest.Eventually(t, "b, which knows more, stands still", func() bool { return errors.Is(b.Usable(), cluster.ErrRestored) })
	net.Heal()
	for _, r := range []*replica{b, a} {
		r.close()
		r.joins()
		r.stop = cluster.Background(r.Run)
	}
	etcdtest.Eventually(t, "state goes on", func() bool { return a.Usable() == nil && b.Usable() == nil })
	c.joins()
	must(t, c.Usable())
	if a.Generation() != 2 || c.Generation() != 2 {
		t.Errorf("generations %d, %d", a.Generation(), c.Generation())
	}
}

// Etcd's own id is a second sign that it was restored. It finds what a mark cannot show: that of a replica which missed a restore
// before, and that of a new replica after all others are lost.
func TestAnotherClusterID(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, etcdtest.Options{Members: 1})
	to := etcd.Client().Endpoints()
	restore := func(token string) {
		t.Helper()
		etcd.Restore(etcd.Snapshot(0), "--initial-cluster-token="+token)
	}
	a := newReplica(t, "a", t.Name(), to...)
	a.run()
	b := vouchedFor(t, t.Name(), "b", to...)
	a.close()
	b.close()

	restore("second")
	must(t, b.join())
	refuses(t, "a has not compared", b.Usable(), "have not compared their logs yet: a")
	b.close()
	must(t, b.join())
	if b.Generation() != 2 {
		t.Errorf("a restart begins generation %d", b.Generation())
	}
	b.close()
	restore("third") // a knows of neither
	must(t, a.join())
	if a.Generation() != 3 {
		t.Errorf("generation %d", a.Generation())
	}
	refuses(t, "b has not compared", a.Usable(), "have not compared their logs yet: b")
	must(t, b.join())
	must(t, b.Usable())
	etcdtest.Eventually(t, "both have", func() bool { a.close(); must(t, a.join()); return a.Usable() == nil })
	a.close()
	b.close()

	restore("fourth") // and no word counts against the id
	c := newReplica(t, "c", t.Name(), to...)
	c.joining.EtcdIsCurrent = true
	must(t, c.join())
	refuses(t, "c", c.Usable(), "have not compared their logs yet: a, b")
	c.close()
	for _, name := range []string{"a", "b", "c"} {
		must(t, c.settles(name))
	}
	d := newReplica(t, "d", t.Name(), to...)
	must(t, d.join())
	must(t, d.Usable())
	if !slices.Equal(d.revoked, []string{"a", "b"}) { // of c nothing is open
		t.Errorf("revoked for %v", d.revoked)
	}
	d.close()
	must(t, d.settles("d"))
	restore("fifth")
	e := newReplica(t, "e", t.Name(), to...)
	must(t, e.join())
	if len(e.revoked) != 4 {
		t.Errorf("etcd was restored, and all are lost: revoked for %v", e.revoked)
	}
	e.close()
	must(t, e.settles("e"))
	f := newReplica(t, "f", t.Name(), to...)
	must(t, f.join())
	if len(f.revoked) > 0 || f.Generation() != 5 {
		t.Errorf("etcd was not restored: generation %d, revoked for %v", f.Generation(), f.revoked)
	}
}

// settles settles an origin as lost, as a command does.
func (r *replica) settles(origin string) error {
	c, err := cluster.Open(r.t.Context(), r.config, r.options)
	must(r.t, err)
	defer c.Close()
	return c.SettleLost(r.t.Context(), origin, "its disk burnt", true)
}
