package approval_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"policy-service/pdp/internal/approval"
	"policy-service/pdp/pdptest/night"
)

// TestDamage cuts, overwrites and flips bits of the file. What comes is an error or the
// approvals as they were: never a panic, and never one that was not there.
func TestDamage(t *testing.T) {
	t.Parallel()
	r, data := newRecord(), quick(t)
	s := mustOpen(t, data, r.options())
	was := map[string]approval.Approval{}
	for n := range 40 {
		q := question(fmt.Sprint(n))
		a := mustFile(t, s, q)
		switch n % 4 {
		case 1:
			a = mustDecide(t, s, a.ID, by("mia"))
		case 2:
			a = mustDecide(t, s, a.ID, approval.Vote{Statement: approval.Statement{By: "mia"}, Kind: approval.Deny})
		case 3:
			mustDecide(t, s, a.ID, by("mia"))
			if spent, err := spend(t.Context(), s, a.ID, q.Digest, a.ID, r.decide(a.ID)); !spent {
				t.Fatal(err)
			}
			a, _, _ = s.Get(t.Context(), a.ID)
		}
		was[a.ID] = a
	}
	must(t, s.Close())
	whole, err := os.ReadFile(filepath.Join(data, approval.FileName))
	must(t, err)
	refused := 0
	rounds := night.Cases(200)
	for seed := range uint64(rounds) {
		dir := filepath.Join(data, fmt.Sprint(seed))
		must(t, os.Mkdir(dir, 0o700))
		must(t, os.WriteFile(filepath.Join(dir, approval.FileName), damaged(whole, rand.New(rand.NewPCG(seed, 0))), 0o600))
		r := r.copy() // or what one file made of it would be news to the next
		waiting, looked := approval.Look(dir, key, nil)
		s, err := approval.Open(dir, r.options())
		if (err == nil) != (looked == nil) || err == nil && s.Pending() != waiting {
			t.Errorf("%d: who looks is told %d and %v, who opens it %v", seed, waiting, looked, err)
		}
		if err != nil {
			refused++
			continue
		}
		for n := range 40 {
			q := question(fmt.Sprint(n))
			if a, live, _ := s.Live(q.Digest, ""); live && cmp.Diff(was[a.ID], a, placed) != "" {
				t.Errorf("%d: live is %s", seed, cmp.Diff(was[a.ID], a, placed))
			}
		}
		for id, a := range was {
			if got, found, _ := s.Get(t.Context(), id); found && cmp.Diff(a, got, placed) != "" {
				t.Errorf("%d: %s", seed, cmp.Diff(a, got, placed))
			}
			if _, err := s.Decide(t.Context(), id, 0, by("ben"), all, equal); err == nil && a.Status != approval.Pending {
				t.Errorf("%d: %s was %s, and is decided about", seed, id, a.Status)
			}
			d := fmt.Sprint(seed, id)
			if spent, _ := spend(t.Context(), s, id, a.Digest, d, r.decide(d)); spent && a.Status != approval.Approved && a.Status != approval.Pending {
				t.Errorf("%d: %s was %s, and is spent", seed, id, a.Status)
			}
		}
		_, _, _ = s.List(t.Context(), approval.Filter{}, "", 100)
		_, _ = s.File(t.Context(), question("new"))
		s.Work(t.Context())
		_ = s.Close()
		must(t, os.RemoveAll(dir))
	}
	if refused == 0 {
		t.Errorf("of %d damaged files none was refused: the damage does none", rounds)
	}
	t.Logf("of %d damaged files %d were refused", rounds, refused)
}

// TestDamageOutOfSight: who opens a file does not read what is over, nor tasks. Who asks for it later is told.
func TestDamageOutOfSight(t *testing.T) {
	t.Parallel()
	r, data := newRecord(), quick(t)
	s := mustOpen(t, data, r.options())
	over, whole := mustFile(t, s, question("over")), mustFile(t, s, question("whole"))
	mustDecide(t, s, over.ID, approval.Vote{Statement: approval.Statement{By: "mia"}, Kind: approval.Deny})
	task, err := s.Begin(approval.Task{ID: "task", Tenant: "acme", Caller: "key:gateway", Items: []string{whole.ID}})
	must(t, err)
	must(t, s.Close())
	edit(t, data, func(tx *bbolt.Tx) error {
		var errs []error
		values := tx.Bucket([]byte("values"))
		for _, key := range []string{"a/" + over.ID, "t/" + task.ID} {
			value := slices.Clone(values.Get([]byte(key)))
			value[len(value)-2] ^= 1
			errs = append(errs, values.Put([]byte(key), value))
		}
		return errors.Join(errs...)
	})
	s = mustOpen(t, data, r.options())
	if got, found, err := s.Get(t.Context(), over.ID); found || !errors.Is(err, approval.ErrDamaged) {
		t.Errorf("a damaged approval: %+v, %v, %v", got, found, err)
	}
	if got, found, err := s.Task(task.ID); found || !errors.Is(err, approval.ErrDamaged) {
		t.Errorf("a damaged task: %+v, %v, %v", got, found, err)
	}
	if got, found, err := s.Get(t.Context(), whole.ID); !found || err != nil || cmp.Diff(whole, got, placed) != "" {
		t.Errorf("what is not damaged: %+v, %v, %v", got, found, err)
	}
}

func damaged(whole []byte, random *rand.Rand) []byte {
	b := append([]byte(nil), whole...)
	at := random.IntN(len(b))
	switch random.IntN(4) {
	case 0:
		b[at] ^= 1 << random.IntN(8)
	case 1:
		return b[:at]
	case 2:
		clear(b[at : at+min(4096, len(b)-at)])
	case 3:
		for i := at; i < min(len(b), at+64); i++ {
			b[i] = byte(random.Uint32())
		}
	}
	return b
}

// TestFlippedValue: bbolt does not see one bit, and one bit makes another approval.
func TestFlippedValue(t *testing.T) {
	t.Parallel()
	r, data := newRecord(), quick(t)
	s := mustOpen(t, data, r.options())
	q := question("a")
	a := mustFile(t, s, q)
	mustDecide(t, s, a.ID, by("mia"))
	must(t, s.Close())
	path := filepath.Join(data, approval.FileName)
	whole, err := os.ReadFile(path)
	must(t, err)
	changed := strings.ReplaceAll(string(whole), `"uses":1`, `"uses":3`)
	must(t, os.WriteFile(path, []byte(changed), 0o600))
	if _, err := approval.Open(data, r.options()); !errors.Is(err, approval.ErrDamaged) || !strings.Contains(err.Error(), a.ID) {
		t.Errorf("a file with an edited value opens: %v", err)
	}
	if _, err := approval.Look(data, key, nil); !errors.Is(err, approval.ErrDamaged) {
		t.Errorf("who looks sees no damage: %v", err)
	}
}

// edit changes a file without the store.
func edit(t *testing.T, data string, f func(*bbolt.Tx) error) {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(data, approval.FileName), 0o600, nil)
	must(t, err)
	must(t, db.Update(f))
	must(t, db.Close())
}

func TestFormatRefused(t *testing.T) {
	t.Parallel()
	r, data := newRecord(), quick(t)
	s := mustOpen(t, data, r.options())
	mustFile(t, s, question("a"))
	must(t, s.Close())
	info, err := os.Stat(filepath.Join(data, approval.FileName))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others can read it: %v, %v", info.Mode(), err)
	}
	edit(t, data, func(tx *bbolt.Tx) error { return approval.PutFormat(tx, key, approval.FormatVersion+1) })
	if _, err := approval.Open(data, r.options()); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("its format is %d", approval.FormatVersion+1)) {
		t.Errorf("a format that it does not know: %v", err)
	}
	edit(t, data, func(tx *bbolt.Tx) error { return tx.Bucket([]byte("values")).Delete([]byte("g")) })
	if _, err := approval.Open(data, r.options()); !errors.Is(err, approval.ErrDamaged) {
		t.Errorf("a file without a format: %v", err)
	}
	edit(t, data, func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte("meta")) })
	if _, err := approval.Open(data, r.options()); !errors.Is(err, approval.ErrDamaged) {
		t.Errorf("a file without a format: %v", err)
	}
}

// TestLeftNew: a crash may leave a file that nothing is in yet. It is no damage.
func TestLeftNew(t *testing.T) {
	t.Parallel()
	data := quick(t)
	db, err := bbolt.Open(filepath.Join(data, approval.FileName), 0o600, nil)
	must(t, err)
	must(t, db.Close())
	if pending, err := approval.Look(data, key, nil); pending != 0 || err != nil {
		t.Error(pending, err)
	}
	mustOpen(t, data, newRecord().options())
}

func TestLocked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // it waits for the other process
		r, data := newRecord(), quick(t)
		s := mustOpen(t, data, r.options())
		if _, err := approval.Open(data, r.options()); !errors.Is(err, approval.ErrLocked) {
			t.Error(err)
		}
		if _, err := approval.Look(data, key, nil); !errors.Is(err, approval.ErrLocked) {
			t.Error(err)
		}
		must(t, s.Close())
		if _, err := s.File(t.Context(), question("a")); !errors.Is(err, approval.ErrClosed) {
			t.Error(err)
		}
		isLive(t, "a closed store has an approval", s, digest("a"), "", false)
		mustOpen(t, data, r.options())
	})
}
