package approval_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"policy-service/evaluation"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/ledger"
)

// A doctor that finds nothing wrong with a file that a server refuses would be no help.
func TestLookReadsTheOutbox(t *testing.T) {
	t.Parallel()
	r, data := newRecord(), quick(t)
	s := mustOpen(t, data, r.options())
	r.Set(true, false, false)
	_, _ = s.File(t.Context(), question("a")) // the log takes nothing
	must(t, s.Close())
	edit(t, data, func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte("values"))
		k, v := b.Cursor().Seek([]byte("o/"))
		v = bytes.Clone(v)
		v[48] ^= 1
		return b.Put(bytes.Clone(k), v)
	})
	_, looked := approval.Look(data, key, nil)
	_, opened := approval.Open(data, r.options())
	if (looked == nil) != (opened == nil) {
		t.Error("who looks is told another thing than who opens")
	}
}

// The clock may be set back between two readings.
func TestExpiredByOneReadingOfTheClock(t *testing.T) {
	t.Parallel()
	r, data := newRecord(), quick(t)
	o := r.options()
	var next []time.Time
	o.Now = func() time.Time {
		if len(next) > 0 {
			n := next[0]
			next = next[1:]
			return n
		}
		return r.Time()
	}
	s := mustOpen(t, data, o)
	a := mustFile(t, s, question("a"))
	next = []time.Time{start.Add(2 * time.Hour)} // one reading, then the clock is set back
	_, _ = s.File(t.Context(), question("a"))    // whatever comes of it
	got, _, _ := s.Get(t.Context(), a.ID)
	if got.Status == approval.Pending && strings.Contains(strings.Join(r.names(a.ID), " "), "expired") {
		t.Error("on record it is expired, and it is pending")
	}
}

// Handlers may go on while a server that had no more time closes its store.
func TestCloseKeepsWhatIsDecidedMeanwhile(t *testing.T) {
	t.Parallel()
	r, data := newRecord(), quick(t)
	o := r.options()
	var hook func()
	o.Size = func() uint64 {
		if h := hook; h != nil {
			hook = nil
			h()
		}
		return r.Size()
	}
	s := mustOpen(t, data, o)
	a := mustFile(t, s, question("a"))
	s.Work(t.Context())
	_ = s.Told(approval.Told{}) // any transaction strikes the outbox
	hook = func() {
		one, err := s.Decide(t.Context(), a.ID, 0, approval.Vote{Statement: approval.Statement{By: "mia"}, Kind: approval.Deny}, all, equal)
		if err != nil || one.Status != approval.Denied {
			t.Fatal(one.Status, err)
		}
	}
	must(t, s.Close())
	if hook != nil {
		t.Fatal("not called")
	}
	s = mustOpen(t, data, r.options())
	got, _, _ := s.Get(t.Context(), a.ID)
	if got.Status != approval.Denied {
		t.Errorf("it was denied, that is on record, and it is %s", got.Status)
	}
	if _, err := s.Decide(t.Context(), a.ID, 0, by("ben"), all, equal); err == nil {
		_, live, _ := s.Live(digest("a"), "")
		t.Errorf("and another approves it: live %v", live)
	}
}

// hooked is an engine whose reader is stopped at a key.
type hooked struct {
	ledger.Engine
	at func(key string)
}

type hookedState struct {
	ledger.State
	at func(key string)
}

func (e *hooked) View(read func(ledger.State) error) error {
	return e.Engine.View(func(s ledger.State) error { return read(hookedState{s, e.at}) })
}

func (s hookedState) Get(key string) ([]byte, ledger.Meta, error) {
	s.at(key)
	return s.State.Get(key)
}

// A reader may read an older state, in which a step that is on record stands in the outbox, when the outbox has it no more.
func TestALongReaderFindsWhatIsOnRecord(t *testing.T) {
	t.Parallel()
	o := newRecord().options()
	e := &hooked{Engine: approval.Engine(quick(t)), at: func(string) {}}
	o.Engine = e
	s := mustOpen(t, "", o)
	a := mustFile(t, s, question("a"))
	mustDecide(t, s, a.ID, by("mia"))
	e.at = func(key string) {
		if strings.HasPrefix(key, "d/") {
			e.at = func(string) {}
			changed := make(chan error)
			go func() { changed <- s.Told(approval.Told{Approval: a.ID, Event: approval.Filed}) }()
			must(t, <-changed)
		}
	}
	isLive(t, "while another change is made", s, a.Digest, "", true)
}

// Steps of an approval that are on record only after a start come before those that the start makes.
func TestStepsStayInOrderOverAStart(t *testing.T) {
	t.Parallel()
	r, data, gone := newRecord(), quick(t), false
	o := r.options()
	o.InForce = func(_, _, _ string) bool { return !gone }
	s := mustOpen(t, data, o)
	mustFile(t, s, question("one that was written before, so the log is read from there on"))
	a := mustFile(t, s, question("a", func(q *approval.ApprovalRequest) { q.Terms.Uses = 3 }))
	mustDecide(t, s, a.ID, by("mia"))
	use, err := s.Reserve(t.Context(), a.ID, a.Digest, "d1")
	must(t, err)
	must(t, r.decideBy("d1", a.ID, evaluation.Continuation{})(t.Context()))
	use.InDoubt()
	gone = true
	r.Set(true, false, false)
	if _, err := s.Reserve(t.Context(), a.ID, a.Digest, "d2"); !errors.Is(err, approval.ErrUnrecorded) {
		t.Fatal(err)
	}
	old := copyOf(t, data)
	must(t, s.Close())
	putBack(t, data, old)
	r.Set(false, false, false)
	mustOpen(t, data, o)
	if want := []string{"filed", "approve", "approved", "lapsed", "reopened", "used"}; !slices.Equal(r.names(a.ID), want) {
		t.Errorf("on record is %v, want %v", r.names(a.ID), want)
	}
}
