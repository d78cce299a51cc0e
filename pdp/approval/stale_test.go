package approval_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"policy-service/pdp/approval"
)

// A doctor that finds nothing wrong with a file that a server refuses would be no help.
func TestLookReadsTheOutbox(t *testing.T) {
	t.Parallel()
	r, data := newRecord(), quick(t)
	s := mustOpen(t, data, r.options())
	r.set(true, false, false)
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
		return r.time()
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
		return r.size()
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
		_, live := s.Live(digest("a"), "")
		t.Errorf("and another approves it: live %v", live)
	}
}
