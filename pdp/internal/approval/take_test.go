package approval_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"policy-service/evaluation"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/ledger"
	"policy-service/pdp/pdptest/etcdtest"
)

// taking is a directory with an approval of three uses, of which one was made, and a place in etcd.
type taking struct {
	*stepLog
	t            *testing.T
	data, prefix string
	a            approval.Approval
}

func openTaking(t *testing.T) *taking {
	t.Helper()
	d := &taking{stepLog: newRecord(), t: t, data: quick(t), prefix: t.TempDir()}
	s := mustOpen(t, d.data, d.options())
	for n := range 20 { // more than one transaction
		mustFile(t, s, question(fmt.Sprint("more ", n)))
	}
	d.a = mustFile(t, s, question("a", func(q *approval.ApprovalRequest) { q.Terms.Uses = 3 }))
	mustDecide(t, s, d.a.ID, by("mia"))
	if used, err := d.use(s, "d1"); !used || err != nil {
		t.Fatal(used, err)
	}
	must(t, s.Close())
	return d
}

func (d *taking) use(s *approval.Store, decision string) (bool, error) {
	return spend(d.t.Context(), s, d.a.ID, d.a.Digest, decision, d.vouchFor(decision, d.a.ID, evaluation.Continuation{}))
}

func (d *taking) engine() ledger.Engine { return etcdtest.Engine(d.t, d.prefix, approval.Known) }

func (d *taking) take(to ledger.Engine) error {
	return approval.Take(d.data, key, to, "here", d.Size())
}

func (d *taking) open() (*approval.Store, error) {
	o := d.options()
	o.Engine, o.Origin = d.engine(), "here"
	o.Prove = func(context.Context, string) (p approval.Proof, found bool, err error) { return p, true, nil }
	s, err := approval.Open("", o)
	if err == nil {
		d.t.Cleanup(func() { _ = s.Close() })
	}
	return s, err
}

// uses has the approval used as often as it can be.
func (d *taking) uses(s *approval.Store) (n int) {
	d.t.Helper()
	for try := range 4 {
		used, err := d.use(s, fmt.Sprintf("%d uses, try %d", d.Size(), try))
		must(d.t, err)
		if used {
			n++
		}
	}
	return n
}

var errCut = errors.New("the network was cut")

// cutting is an engine that does something at its nth write.
type cutting struct {
	ledger.Engine
	n  int
	at func(write func() (uint64, error)) (uint64, error)
}

func (c *cutting) Write(t ledger.Transaction) (uint64, error) {
	if c.n--; c.n == 0 {
		return c.at(func() (uint64, error) { return c.Engine.Write(t) })
	}
	return c.Engine.Write(t)
}

// A Take that is cut at any of its writes, be it made or not, can be done again. Until it has ended no store opens there, and
// one that has ended is not done again.
func TestTakeCut(t *testing.T) {
	t.Parallel()
	d := openTaking(t)
	cuts := 0
	var s *approval.Store
	for n := 1; s == nil; n++ {
		cut := false
		err := d.take(&cutting{d.engine(), n, func(write func() (uint64, error)) (uint64, error) {
			if cut = true; n%2 == 0 {
				_, _ = write()
			}
			return 0, errCut
		}})
		if want := map[bool]error{true: errCut}[cut]; !errors.Is(err, want) {
			t.Fatalf("cut at %d: got %v", n, err)
		}
		if n == 1 {
			continue // nothing was written: a store would begin anew
		}
		cuts++
		if s, err = d.open(); err == nil { // it ended, and its last answer may be lost
			must(t, d.take(&cutting{d.engine(), 1, func(func() (uint64, error)) (uint64, error) { return 0, errCut }}))
		}
	}
	if cuts < 8 {
		t.Errorf("it was cut %d times", cuts)
	}
	if got, _, err := s.Get(t.Context(), d.a.ID); err != nil || !slices.Equal(got.Used, []string{"d1"}) || s.Pending() != 20 {
		t.Errorf("it is %+v, %v, and %d wait", got, err, s.Pending())
	}
	if n := d.uses(s); n != 2 {
		t.Errorf("of 3 uses, of which one was made before, %d were made", n)
	}
	must(t, d.take(d.engine()))
	if n := d.uses(s); n != 0 {
		t.Errorf("once more %d were made", n)
	}
	if err := approval.Take(d.data, key, d.engine(), "elsewhere", d.Size()); !errors.Is(err, approval.ErrInvalid) {
		t.Errorf("of another origin: got %v", err)
	}
}

// Of two that take at once, whichever writes last goes on, and the other one writes nothing more.
func TestTakeTwice(t *testing.T) {
	t.Parallel()
	d := openTaking(t)
	for n := 2; ; n++ {
		d.prefix = t.TempDir()
		cut := func(func() (uint64, error)) (uint64, error) { return 0, errCut }
		if err := d.take(&cutting{d.engine(), 6, cut}); !errors.Is(err, errCut) { // there is something to be cleared
			t.Fatal(err)
		}
		other := false
		err := d.take(&cutting{d.engine(), n, func(write func() (uint64, error)) (uint64, error) {
			other = true
			must(t, d.take(d.engine()))
			return write()
		}})
		s, opened := d.open()
		must(t, opened)
		if !other {
			must(t, err)
			break
		}
		if err == nil {
			t.Errorf("both went on, from write %d on", n)
		}
		if got, _, err := s.Get(t.Context(), d.a.ID); err != nil || len(got.Used) != 1 || s.Pending() != 20 {
			t.Errorf("it is %+v, %v, and %d wait", got, err, s.Pending())
		}
	}
}

// What may be on record or not is not taken.
func TestTakeInDoubt(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*taking, *approval.Store){
		"a use": func(d *taking, s *approval.Store) {
			r, err := s.Reserve(t.Context(), d.a.ID, d.a.Digest, "doubt")
			must(t, err)
			r.InDoubt()
		},
		"a step": func(d *taking, s *approval.Store) {
			d.Set(true, false, false)
			_, _ = s.File(t.Context(), question("b"))
		},
	} {
		d := openTaking(t)
		s := mustOpen(t, d.data, d.options())
		leave(d, s)
		must(t, s.Close())
		if err := d.take(d.engine()); !errors.Is(err, approval.ErrUnavailable) {
			t.Errorf("%s: got %v", name, err)
		}
		if _, err := d.open(); err == nil {
			t.Errorf("%s: a store opens there", name)
		}
	}
}

// A program that can write to etcd deletes an approval that is used up, and puts back any value that there was of it.
func TestTakenIsPutBack(t *testing.T) {
	t.Parallel()
	d := openTaking(t)
	must(t, d.take(d.engine()))
	s, err := d.open()
	must(t, err)
	if n := d.uses(s); n != 2 {
		t.Fatalf("%d uses were made", n)
	}
	client, err := etcdtest.Dial(etcdtest.One(t)...)
	must(t, err)
	defer func() { _ = client.Close() }()
	item := d.prefix + "/v/a/" + d.a.ID
	var values []string
	for before := []clientv3.OpOption(nil); ; {
		got, err := client.Get(t.Context(), item, before...)
		must(t, err)
		if len(got.Kvs) == 0 {
			break
		}
		values = append(values, string(got.Kvs[0].Value))
		before = []clientv3.OpOption{clientv3.WithRev(got.Kvs[0].ModRevision - 1)}
	}
	slices.Reverse(values) // the first one first
	if len(values) < 3 {
		t.Fatalf("there were %d", len(values))
	}
	for n, value := range values {
		_, err := client.Delete(t.Context(), item)
		must(t, err)
		for range n + 1 { // the very version that it was
			_, err = client.Put(t.Context(), item, value)
			must(t, err)
		}
		etcdtest.Eventually(t, "it is damaged", func() bool {
			if used, _ := d.use(s, fmt.Sprint(d.Size(), " again ", n)); used {
				t.Fatalf("value %d of %d was used once more", n+1, len(values))
			}
			_, _, err := s.Get(t.Context(), d.a.ID)
			return errors.Is(err, approval.ErrDamaged)
		})
	}
}
