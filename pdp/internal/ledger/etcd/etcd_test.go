package etcd_test

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"policy-service/pdp/internal/ledger"
	"policy-service/pdp/internal/ledger/etcd"
	"policy-service/pdp/pdptest/etcdtest"
)

var known = ledger.Errors{
	Unavailable: errors.New("unavailable"), Closed: errors.New("closed"), Locked: errors.New("locked"),
	Damaged: errors.New("damaged"), NotFound: errors.New("not found"),
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func dial(t testing.TB) *clientv3.Client {
	t.Helper()
	client, err := etcdtest.Dial(etcdtest.One(t)...)
	must(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// open opens engines of several processes on one prefix.
func open(t testing.TB, n int) (all []*etcd.Engine, client *clientv3.Client, prefix string) {
	t.Helper()
	prefix = "/" + rand.Text() + "/"
	for range n {
		client = dial(t)
		e := etcd.New(etcd.Options{Client: client, Prefix: prefix, Errors: known, Timeout: etcdtest.Patience})
		must(t, e.Open())
		t.Cleanup(func() { _ = e.Close() })
		all = append(all, e)
	}
	return all, client, prefix
}

func number(b []byte) (n uint64) {
	if len(b) == 8 {
		n = binary.BigEndian.Uint64(b)
	}
	return n
}

// Three processes count one number, by their caches. Each count that was answered is there, in the order
// of the revisions; a reader never finds less than what was answered to any process before it began.
func TestCountedTogether(t *testing.T) {
	t.Parallel()
	all, _, _ := open(t, 3)
	const each = 60
	var mu sync.Mutex
	least, conflicts := uint64(0), 0
	var wait sync.WaitGroup
	for _, e := range all {
		for worker := range 2 {
			wait.Go(func() {
				for done := 0; done < each; {
					mu.Lock()
					before := least
					mu.Unlock()
					made, revision := uint64(0), uint64(0)
					err := e.View(func(s ledger.State) error {
						value, is, err := s.Get("shared")
						made, revision = number(value)+1, is.Revision
						return err
					})
					if err != nil || made <= before {
						t.Errorf("worker %d: %v; it read %d, and %d was answered before", worker, err, made-1, before)
						return
					}
					_, err = e.Write(ledger.Transaction{
						If:   map[string]uint64{"shared": revision},
						Puts: map[string][]byte{"shared": binary.BigEndian.AppendUint64(nil, made)},
					})
					mu.Lock()
					switch {
					case errors.Is(err, ledger.ErrConflict):
						conflicts++
					case err != nil:
						t.Error(err)
					default:
						done++
						least = max(least, made)
					}
					mu.Unlock()
				}
			})
		}
	}
	wait.Wait()
	if least != 6*each || conflicts == 0 {
		t.Errorf("counted to %d, with %d conflicts", least, conflicts)
	}
}

// A state stays as it is, whatever is written meanwhile; and it reads all that was written before.
func TestStateStays(t *testing.T) {
	t.Parallel()
	both, _, _ := open(t, 2)
	put := func(e *etcd.Engine, key, value string) uint64 {
		revision, err := e.Write(ledger.Transaction{Puts: map[string][]byte{key: []byte(value)}})
		must(t, err)
		return revision
	}
	get := func(s ledger.State, key string) string {
		value, _, err := s.Get(key)
		must(t, err)
		return string(value)
	}
	list := func(s ledger.State, backward bool) (all string) {
		must(t, s.Range("a/", "a0", backward, func(key string, value []byte, _ ledger.Meta) bool {
			all += key + "=" + string(value) + " "
			return true
		}))
		return all
	}
	since := func(s ledger.State, revision uint64) (all string) {
		must(t, s.Since("c/one/", revision, func(key string, _ uint64) bool { all += key + " "; return true }))
		return all
	}
	for n := range 230 { // more than a page
		put(both[0], fmt.Sprintf("a/%03d", n), "1")
	}
	put(both[0], "c/one/z", "1")
	at := put(both[0], "c/one/y", "1")
	put(both[0], "c/one/x", "1")
	put(both[0], "c/onemore/x", "1")
	check := func(s ledger.State) {
		if x, y := get(s, "a/007"), get(s, "b"); x != "1" || y != "" {
			t.Errorf("read %q and %q", x, y)
		}
		ahead, back := strings.Fields(list(s, false)), strings.Fields(list(s, true))
		if slices.Reverse(back); len(ahead) != 230 || ahead[0] != "a/000=1" || !slices.Equal(ahead, back) {
			t.Errorf("%d keys ahead from %s, %d back", len(ahead), ahead[0], len(back))
		}
		if x, y, z := since(s, 0), since(s, at), since(s, at-1); x != "c/one/z c/one/y c/one/x " || y != "c/one/x " || z != "c/one/y c/one/x " {
			t.Errorf("%q, %q, %q", x, y, z)
		}
	}
	must(t, both[1].View(func(s ledger.State) error {
		check(s)
		put(both[0], "a/007", "2")
		put(both[0], "b", "2")
		put(both[1], "a/500", "2")
		put(both[0], "c/one/y", "2")
		must(t, both[1].View(func(later ledger.State) error {
			if x, y := get(later, "a/007"), get(later, "b"); x != "2" || y != "2" || later.Revision() <= s.Revision() {
				t.Errorf("later it reads %q and %q", x, y)
			}
			return nil
		}))
		check(s)
		return nil
	}))
}

// The readers of one process learn of the transactions of another one, and not of its own.
func TestWatch(t *testing.T) {
	t.Parallel()
	both, _, _ := open(t, 2)
	heard := make(chan []string, 10)
	defer both[0].Watch(func(keys []string) { heard <- keys })()
	for n, e := range []*etcd.Engine{both[0], both[1]} {
		_, err := e.Write(ledger.Transaction{Puts: map[string][]byte{fmt.Sprint("key", n): []byte("1")}})
		must(t, err)
	}
	if keys := <-heard; !slices.Equal(keys, []string{"key1"}) {
		t.Errorf("heard of %q", keys)
	}
	if len(heard) > 0 {
		t.Errorf("heard of %q", <-heard)
	}
}

// Changes come each once, in their order, also those of a transaction that a page ends in.
func TestManyChanges(t *testing.T) {
	t.Parallel()
	all, _, _ := open(t, 1)
	const made, of = 40, 60
	for n := range made {
		puts := map[string][]byte{}
		for m := range of {
			puts[fmt.Sprintf("c/%02d/%02d", m, n)] = []byte("1")
		}
		_, err := all[0].Write(ledger.Transaction{Puts: puts})
		must(t, err)
	}
	reads, _ := all[0].Calls()
	seen, before := map[string]bool{}, uint64(0)
	must(t, all[0].View(func(s ledger.State) error {
		return s.Since("c/", 0, func(key string, revision uint64) bool {
			if seen[key] || revision < before {
				t.Errorf("%s comes again, or too late", key)
			}
			seen[key], before = true, revision
			return true
		})
	}))
	if after, _ := all[0].Calls(); len(seen) != made*of || after-reads < 4 {
		t.Errorf("%d changes came by %d calls", len(seen), after-reads)
	}
}

// Etcd that was put back is refused, by all engines that share the history.
func TestRestored(t *testing.T) {
	t.Parallel()
	both, client, prefix := open(t, 2)
	_, err := both[0].Write(ledger.Transaction{Puts: map[string][]byte{"key": []byte("1")}})
	must(t, err)
	cluster, revision := both[0].History.Known()
	later := etcd.New(etcd.Options{Client: client, Prefix: prefix, Errors: known, Timeout: etcdtest.Patience, History: etcd.NewHistory(cluster, revision+1_000_000_000)})
	other := etcd.New(etcd.Options{Client: client, Prefix: prefix, Errors: known, Timeout: etcdtest.Patience, History: etcd.NewHistory(cluster+1, 1)})
	for _, e := range []*etcd.Engine{later, other} {
		for range 2 {
			if err := e.Open(); !errors.Is(err, known.Unavailable) || !errors.Is(err, etcd.ErrRestored) || !e.History.Restored() {
				t.Errorf("the error is %v", err)
			}
		}
		if _, err := e.Write(ledger.Transaction{Puts: map[string][]byte{"key": []byte("2")}}); !errors.Is(err, etcd.ErrRestored) {
			t.Errorf("the error of a transaction is %v", err)
		}
	}
}

// A copy may begin with a revision that is higher than any before. It has fewer transactions: an engine finds out when it looks, and
// writes nothing without that.
func TestRestoredAhead(t *testing.T) {
	t.Parallel()
	members := etcdtest.Start(t, etcdtest.Options{Members: 1})
	engine := func(prefix string) *etcd.Engine {
		client, err := etcdtest.Dial(members.Client().Endpoints()...)
		must(t, err)
		t.Cleanup(func() { _ = client.Close() })
		e := etcd.New(etcd.Options{Client: client, Prefix: prefix, Errors: known, Timeout: etcdtest.Patience})
		must(t, e.Open())
		t.Cleanup(func() { _ = e.Close() })
		return e
	}
	write := func(e *etcd.Engine) error {
		_, err := e.Write(ledger.Transaction{Puts: map[string][]byte{"key": []byte("1")}})
		return err
	}
	look := func(e *etcd.Engine) error { return e.View(func(ledger.State) error { return nil }) }
	looks, writes, hears, unchanged := engine("/looks/"), engine("/writes/"), engine("/hears/"), engine("/unchanged/")
	changed := []*etcd.Engine{looks, writes, hears}
	for _, e := range append(changed, unchanged) {
		must(t, write(e))
		must(t, look(e))
	}
	snapshot := members.Snapshot(0)
	for _, e := range changed[:2] {
		must(t, write(e))
		must(t, look(e))
	}
	must(t, write(engine("/hears/")))
	etcdtest.Eventually(t, "it hears of what another one wrote", func() bool { return hears.History.Last()["/hears/rev"].Number == 2 })
	members.Restore(snapshot, "--bump-revision=1000000000", "--mark-compacted")
	if err := write(writes); !refused(err) {
		t.Errorf("a transaction: %v", err)
	}
	for _, e := range changed {
		if err := look(e); !errors.Is(err, etcd.ErrRestored) {
			t.Errorf("a look: %v", err)
		}
		if err := write(e); !errors.Is(err, etcd.ErrRestored) {
			t.Errorf("a transaction after a look: %v", err)
		}
	}
	must(t, look(unchanged)) // it has lost nothing
	must(t, write(unchanged))
}

// refused reports whether a transaction was not made because etcd was restored: by its compares, unless the watch has found out before.
func refused(err error) bool {
	return errors.Is(err, ledger.ErrConflict) || errors.Is(err, etcd.ErrRestored)
}

// After a copy was put back, another one that knows nothing of that writes more than what is gone. Whoever wrote some of it finds out
// by the next call, and whoever knew of it by comparing.
func TestRestoredAndWrittenOn(t *testing.T) {
	t.Parallel()
	members := etcdtest.Start(t, etcdtest.Options{Members: 1})
	of := map[string]*etcdtest.Net{"a": members.Client(), "b": members.Client(), "c": members.Client()}
	engine := func(prefix, writer string) *etcd.Engine {
		client, err := etcdtest.Dial(of[writer].Endpoints()...)
		must(t, err)
		t.Cleanup(func() { _ = client.Close() })
		e := etcd.New(etcd.Options{Client: client, Prefix: prefix, Errors: known, Timeout: etcdtest.Patience})
		e.History.Write(writer)
		must(t, e.Open())
		t.Cleanup(func() { _ = e.Close() })
		return e
	}
	write := func(e *etcd.Engine) error {
		_, err := e.Write(ledger.Transaction{Puts: map[string][]byte{"key": []byte("1")}})
		return err
	}
	look := func(e *etcd.Engine) error { return e.View(func(ledger.State) error { return nil }) }
	lost := map[string]string{
		"/looks/": "/looks/rev/a has 1 transactions, and had 2", "/writes/": "/writes/rev/a has 21 transactions, and had 22",
		"/begins/": "/begins/rev/a has 0 transactions, and had 1", "/hears/": "/hears/rev/c has 1 transactions, and had 2", "/unchanged/": "",
	}
	all, others := map[string]*etcd.Engine{}, map[string]*etcd.Engine{}
	for prefix := range lost {
		all[prefix], others[prefix] = engine(prefix, "a"), engine(prefix, "c")
		if prefix != "/begins/" {
			must(t, write(all[prefix]))
		}
		must(t, write(others[prefix]))
		must(t, look(all[prefix]))
	}
	for n := range 20 {
		must(t, write(all["/writes/"]))
		if got := all["/writes/"].History.Last()["/writes/rev/a"].Number; got != int64(n)+2 {
			t.Errorf("it knows of %d transactions of its own, and made %d", got, n+2)
		}
	}
	snapshot := members.Snapshot(0)
	client, err := etcdtest.Dial(of["b"].Endpoints()...)
	must(t, err)
	t.Cleanup(func() { _ = client.Close() })
	for range 50 { // what others write first is below the revisions that a knows, so that its watch says nothing of it
		_, err := client.Put(t.Context(), "/none", "")
		must(t, err)
	}
	for _, prefix := range []string{"/looks/", "/writes/", "/begins/"} {
		must(t, write(all[prefix]))
	}
	must(t, write(others["/hears/"]))
	etcdtest.Eventually(t, "it hears of what another one wrote", func() bool { return all["/hears/"].History.Last()["/hears/rev/c"].Number == 2 })
	knew := map[string]map[string]etcd.Transaction{}
	for prefix := range lost {
		knew[prefix] = all[prefix].History.Last()
	}
	of["a"].Cut()
	of["c"].Cut()
	members.Restore(snapshot)
	written := map[string]*etcd.Engine{}
	for prefix := range lost {
		written[prefix] = engine(prefix, "b")
	}
	for range 30 {
		for prefix := range lost {
			must(t, write(written[prefix]))
		}
	}
	for prefix, want := range lost {
		if lacks, err := written[prefix].Lacks(knew[prefix]); err != nil || lacks != want {
			t.Errorf("%s lacks %q, %v", prefix, lacks, err)
		}
	}
	of["a"].Heal()
	_, err = all["/writes/"].Write(ledger.Transaction{Puts: map[string][]byte{"made": []byte("1")}})
	if made, failed := client.Get(t.Context(), "/writes/v/made"); failed != nil || made.Count > 0 || !refused(err) {
		t.Errorf("a transaction: %v, %v, %v", err, made, failed)
	}
	for _, prefix := range []string{"/looks/", "/writes/", "/begins/"} {
		if err := look(all[prefix]); !errors.Is(err, etcd.ErrRestored) {
			t.Errorf("%s: a look: %v", prefix, err)
		}
	}
	must(t, look(all["/unchanged/"]))
}

// A program that can write to etcd, and has no key, puts back no value but the first.
func TestNoOlderValueIsPutBack(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	both, client, prefix := open(t, 2)
	form := ledger.Form{Items: "facts", Kind: "f", Key: make([]byte, 32), Version: 1, Errors: known}
	v := ledger.NewValues(both[0], form)
	must(t, v.Open(ctx))
	add := func(key string) {
		must(t, v.Update(ctx, func(c *ledger.ValuesChange) {
			n := 0
			c.Get(key, &n)
			c.Put(key, n+1)
		}))
	}
	reads := func(key string) (n int, err error) {
		reader := etcd.New(both[1].Options) // it has read nothing before
		err = ledger.NewValues(reader, form).View(func(tx *ledger.Tx) { tx.Get(key, &n) })
		return n, err
	}
	at := prefix + "v/"
	var states []string // of the key, after each of its values
	for range 3 {
		add("f/a")
		got, err := client.Get(ctx, at+"f/a")
		must(t, err)
		states = append(states, string(got.Kvs[0].Value))
	}
	if n, err := reads("f/a"); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	put := func(key, value string) { _, err := client.Put(ctx, at+key, value); must(t, err) }
	refused := func(what string) {
		t.Helper()
		if n, err := reads("f/a"); !errors.Is(err, known.Damaged) {
			t.Errorf("%s: read %d, %v", what, n, err)
		}
	}
	put("f/a", states[1])
	refused("an older value")
	_, err := client.Delete(ctx, at+"f/a")
	must(t, err)
	for n, state := range states {
		put("f/a", state)
		if n > 0 { // else it is a first value, which grants nothing
			refused(fmt.Sprintf("value %d, after the key was deleted", n+1))
		}
	}
	add("f/b")
	got, err := client.Get(ctx, at+"f/b")
	must(t, err)
	put("f/c", string(got.Kvs[0].Value))
	if _, err := reads("f/c"); !errors.Is(err, known.Damaged) {
		t.Errorf("a value of another key: %v", err)
	}
}

// TestMinorityComparesNothing: a member that is cut off from the others neither reads nor compares, though it has values.
func TestMinorityComparesNothing(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.Options{})
	leader, _ := c.Leader()
	client, err := etcdtest.Dial(c.Client().Endpoints()[leader])
	must(t, err)
	t.Cleanup(func() { _ = client.Close() })
	options := etcd.Options{Client: client, Prefix: "/cut/", Errors: known, Timeout: etcdtest.Patience}
	revision, err := etcd.New(options).Write(ledger.Transaction{Puts: map[string][]byte{"a": {1}}})
	must(t, err)
	c.Isolate(leader)
	options.Timeout = time.Second
	e := etcd.New(options)
	for name, one := range map[string]ledger.Transaction{
		"only compares": {If: map[string]uint64{"a": revision}},
		"writes":        {If: map[string]uint64{"a": revision}, Puts: map[string][]byte{"b": {1}}},
	} {
		if _, err := e.Write(one); !errors.Is(err, known.Unavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := e.View(func(ledger.State) error { return nil }); !errors.Is(err, known.Unavailable) {
		t.Error(err)
	}
}

// A member that is cut off from the others, and that clients reach, fails no call: it refuses, and another member is asked. The
// others may lose each other, too, where the machine is busy: a call that one of them failed says nothing here.
func TestMemberWithoutALeader(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.Options{})
	endpoints := c.Client().Endpoints()
	leader, term := c.Leader()
	cutOff := strings.TrimPrefix(endpoints[leader], "http://")
	var refusals, failures atomic.Int64 // of the one that is cut off, and of the others
	client, err := etcdtest.DialHearing(func(member string, err error) {
		switch {
		case member == cutOff && errors.Is(err, rpctypes.ErrNoLeader):
			refusals.Add(1)
		case member == cutOff:
			t.Errorf("the member that is cut off answers: %v", err)
		case err != nil:
			failures.Add(1)
		}
	}, endpoints...)
	must(t, err)
	t.Cleanup(func() { _ = client.Close() })
	alone, err := etcdtest.Dial(endpoints[leader])
	must(t, err)
	t.Cleanup(func() { _ = alone.Close() })
	c.Isolate(leader)
	etcdtest.Eventually(t, "the others have a leader", func() bool { // until then votes under way could make it the leader again
		_, now := c.Leader()
		return now > term
	})
	etcdtest.Eventually(t, "it knows no leader", func() bool {
		ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(t.Context()), time.Second)
		defer cancel()
		_, err := alone.Put(ctx, "/none", "")
		return errors.Is(err, rpctypes.ErrNoLeader)
	})
	e := etcd.New(etcd.Options{Client: client, Prefix: "/" + t.Name() + "/", Errors: known, Timeout: etcdtest.Patience})
	must(t, e.Open())
	t.Cleanup(func() { _ = e.Close() })
	for n := range 12 { // the members take turns
		for part := range 3 {
			before := failures.Load()
			var err error
			if part == 2 {
				err = e.View(func(ledger.State) error { return nil })
			} else {
				_, err = e.Write(ledger.Transaction{Puts: map[string][]byte{fmt.Sprint("k", n, part): []byte("v")}})
			}
			if err != nil && failures.Load() == before {
				t.Fatalf("call %d.%d, which each member but that one took: %v", n, part, err)
			}
		}
	}
	if refusals.Load() == 0 {
		t.Error("the member that is cut off was not asked")
	}
}
