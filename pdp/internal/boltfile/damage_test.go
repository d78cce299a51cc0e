package boltfile_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"policy-service/pdp/internal/boltfile"
	"policy-service/pdp/internal/boltfile/pages"
	"policy-service/pdp/pdptest/night"
)

var errDamaged = errors.New("damaged")

const pageSize = 1024 // small, so that trees are deep

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(path string, use boltfile.Use) (*bbolt.DB, error) {
	return boltfile.Open(path, errDamaged, use, bbolt.Options{Timeout: time.Second, PageSize: pageSize, NoSync: true})
}

// written is a file with trees three deep, a bucket that stands in a value, and pages that
// are free.
func written(t testing.TB) []byte {
	t.Helper()
	writtenOnce.Do(func() { writtenBytes = write(t) })
	return bytes.Clone(writtenBytes)
}

var (
	writtenOnce  sync.Once
	writtenBytes []byte
)

func write(t testing.TB) []byte {
	path := filepath.Join(t.TempDir(), "file.db")
	db, err := open(path, boltfile.ToWrite)
	must(t, err)
	for _, f := range []func(*bbolt.Bucket, []byte) error{
		func(b *bbolt.Bucket, key []byte) error { return b.Put(key, bytes.Repeat([]byte("v"), len(key)*20)) },
		func(b *bbolt.Bucket, key []byte) error {
			if key[len(key)-1] == '7' {
				return b.Delete(key)
			}
			return nil
		},
	} {
		must(t, db.Update(func(tx *bbolt.Tx) error {
			for _, name := range []string{"a", "b"} {
				b, err := tx.CreateBucketIfNotExists([]byte(name))
				must(t, err)
				for n := range 400 {
					must(t, f(b, fmt.Appendf(nil, "%030d", n)))
				}
			}
			b, err := tx.CreateBucketIfNotExists([]byte("small"))
			must(t, err)
			return b.Put([]byte("key"), []byte("value"))
		}))
	}
	must(t, db.Close())
	whole, err := os.ReadFile(path)
	must(t, err)
	return whole
}

// raw is a file to be damaged where it hurts, by the format in [pages].
type raw []byte

func (r raw) page(id uint64) raw { return r[id*pageSize:] }
func (r raw) flags() uint16      { return binary.LittleEndian.Uint16(r[8:]) }
func (r raw) count() uint16      { return binary.LittleEndian.Uint16(r[10:]) }
func (r raw) put64(at int, n uint64) {
	binary.LittleEndian.PutUint64(r[at:], n)
}
func (r raw) put32(at int, n uint32) { binary.LittleEndian.PutUint32(r[at:], n) }

// newest is the meta page that counts, whose checksum would see any change.
func (r raw) newest() raw {
	a, b := r[16:], r[pageSize+16:]
	if binary.LittleEndian.Uint64(a[48:]) > binary.LittleEndian.Uint64(b[48:]) {
		return a
	}
	return b
}

func (r raw) root() uint64     { return binary.LittleEndian.Uint64(r.newest()[16:]) }
func (r raw) freelist() uint64 { return binary.LittleEndian.Uint64(r.newest()[32:]) }

// bucket is where the value of a bucket begins: its root's page, or 0 and then a page.
func (r raw) bucket(t testing.TB, name string) raw {
	t.Helper()
	p := r.page(r.root())
	for i := range int(p.count()) {
		e := p[16+i*16:]
		key := e[binary.LittleEndian.Uint32(e[4:]):]
		if n := binary.LittleEndian.Uint32(e[8:]); string(key[:n]) == name {
			return key[n:]
		}
	}
	t.Fatalf("there is no bucket %s", name)
	return nil
}

func (r raw) top(t testing.TB, name string) (id uint64, branch raw) {
	t.Helper()
	id = binary.LittleEndian.Uint64(r.bucket(t, name))
	if branch = r.page(id); branch.flags() != 1 {
		t.Fatalf("the root of %s is no branch", name)
	}
	return id, branch
}

func (r raw) child(n int) uint64 { return binary.LittleEndian.Uint64(r[16+n*16+8:]) }

// lowest is the first branch whose children are leaves.
func (r raw) lowest(t testing.TB, name string) (branch raw) {
	t.Helper()
	for _, p := r.top(t, name); p.flags() == 1; p = r.page(p.child(0)) {
		branch = p
	}
	return branch
}

// leftmost is the first leaf of a tree.
func (r raw) leftmost(t testing.TB, name string) (id uint64, leaf raw) {
	t.Helper()
	for id, leaf = r.top(t, name); leaf.flags() == 1; leaf = r.page(id) {
		id = leaf.child(0)
	}
	return id, leaf
}

// TestWhatNoGuardCatches: bbolt would fill the memory or the stack, or never come to an
// end, and a process with a damaged file would fall again as often as it is started.
func TestWhatNoGuardCatches(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		damage func(raw)
		reads  bool // who only reads would fall, too
		want   string
	}{
		"a branch names itself":           {func(r raw) { id, p := r.top(t, "a"); p.put64(24, id) }, true, "twice"},
		"a branch names the one above it": {func(r raw) { id, p := r.top(t, "a"); r.page(p.child(1)).put64(24, id) }, true, "twice"},
		"two branches name one page":      {func(r raw) { _, p := r.top(t, "a"); _, q := r.top(t, "b"); p.put64(24, q.child(0)) }, true, "twice"},
		"a bucket is in the top's page":   {func(r raw) { r.bucket(t, "a").put64(0, r.root()) }, true, "twice"},
		"a bucket in a value is a branch": {func(r raw) { r.bucket(t, "small")[16+8] = 1 }, true, ""},
		"a page is four billion long":     {func(r raw) { _, p := r.leftmost(t, "a"); p.put32(12, 1<<32-1) }, true, "too long"},
		"a leaf further on is too":        {func(r raw) { _, p := r.top(t, "a"); r.page(r.page(p.child(0)).child(1)).put32(12, 1<<31) }, true, "too long"},
		"the last branch names itself":    {func(r raw) { id, p := r.top(t, "a"); p.put64(16+(int(p.count())-1)*16+8, id) }, true, "twice"},
		"a separator is off by a bit":     {func(r raw) { _, p := r.top(t, "a"); p[16+int(binary.LittleEndian.Uint32(p[16:]))+29]-- }, true, "keys of another"},
		"a separator of leaves is off":    {func(r raw) { p := r.lowest(t, "a"); p[32+int(binary.LittleEndian.Uint32(p[32:]))+29]-- }, false, "keys of another"},
		"a leaf is empty":                 {func(r raw) { p := r.page(r.lowest(t, "a").child(1)); p[10], p[11] = 0, 0 }, true, ""},
		"a leaf became a branch":          {func(r raw) { id := r.lowest(t, "a").child(1); p := r.page(id); p[8] = 1; p.put64(24, id) }, true, ""},
		"a page in a value has a place":   {func(r raw) { id, _ := r.leftmost(t, "a"); r.bucket(t, "small").put64(16, id) }, true, "elsewhere"},
		"a page in a value is long":       {func(r raw) { r.bucket(t, "small").put32(16+12, 1<<32-1) }, true, "elsewhere"},
		"what is free is endless":         {func(r raw) { p := r.page(r.freelist()); p[10], p[11] = 0xff, 0xff; p.put64(16, 1<<40) }, false, "free"},
		"what is in use is free":          {func(r raw) { id, _ := r.leftmost(t, "a"); r.page(r.freelist()).put64(16, id) }, false, "twice"},
		"a key stands in another's place": {func(r raw) { _, p := r.top(t, "a"); p[16+int(binary.LittleEndian.Uint32(p[16:]))] = '1' }, true, ""},
		"a leaf is where a branch was":    {func(r raw) { _, p := r.top(t, "a"); id, _ := r.leftmost(t, "a"); p.put64(16+16+8, id) }, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			whole := raw(written(t))
			c.damage(whole)
			path := filepath.Join(t.TempDir(), "file.db")
			must(t, os.WriteFile(path, whole, 0o600))
			for _, use := range []boltfile.Use{boltfile.ToWrite, boltfile.ToExamine, boltfile.ToRead} {
				if use == boltfile.ToRead && !c.reads {
					continue
				}
				db, err := open(path, use)
				if !errors.Is(err, errDamaged) || !strings.Contains(err.Error(), c.want) {
					t.Fatalf("opened for %d: %v, want %q", use, err, c.want)
				}
				if db != nil {
					t.Error("a file that is refused is open")
				}
			}
			must(t, os.WriteFile(path, written(t), 0o600)) // and nobody holds its lock
			db, err := open(path, boltfile.ToWrite)
			must(t, err)
			if err := boltfile.Look(path, errDamaged, 0, nil); !errors.Is(err, boltfile.ErrLocked) {
				t.Errorf("while it is written to: %v", err)
			}
			must(t, db.Close())
		})
	}
}

// TestWhole: whatever bbolt writes is opened, with a list of what is free and without one.
func TestWhole(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for _, none := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "file.db")
		for round := range night.Cases(150) {
			db, err := boltfile.Open(path, errDamaged, boltfile.ToWrite, bbolt.Options{Timeout: time.Second, PageSize: pageSize, NoSync: true, NoFreelistSync: none})
			must(t, err)
			must(t, db.Update(func(tx *bbolt.Tx) error { return change(tx, random, round) }))
			must(t, db.View(func(tx *bbolt.Tx) error {
				for err := range tx.Check() {
					t.Errorf("round %d: %v", round, err)
				}
				return nil
			}))
			must(t, db.Close())
			for _, use := range []boltfile.Use{boltfile.ToRead, boltfile.ToExamine} {
				db, err = open(path, use)
				must(t, err)
				must(t, db.Close())
			}
		}
	}
}

// change puts and deletes keys and buckets, also buckets in buckets, of all sizes.
func change(tx *bbolt.Tx, random *rand.Rand, round int) error {
	b, err := tx.CreateBucketIfNotExists(fmt.Append(nil, "bucket ", random.IntN(4)))
	if err != nil {
		return err
	}
	if round%3 == 1 {
		if b, err = b.CreateBucketIfNotExists([]byte("inside")); err != nil {
			return err
		}
	}
	for range random.IntN(300) {
		key := fmt.Appendf(nil, "key %d", random.IntN(1000))
		if random.IntN(3) == 0 {
			err = b.Delete(key)
		} else {
			err = b.Put(key, make([]byte, random.IntN(200)*random.IntN(20)))
		}
		if err != nil {
			return err
		}
	}
	if name := fmt.Append(nil, "bucket ", random.IntN(4)); round%10 == 9 && tx.Bucket(name) != nil {
		return tx.DeleteBucket(name)
	}
	return nil
}

// FuzzOpen: a file that is opened can be read and written to, as far as [boltfile.Guard]
// guards.
func FuzzOpen(f *testing.F) {
	whole := raw(written(f))
	top, _ := whole.top(f, "a")
	for _, at := range []int{int(top)*pageSize + 24, int(whole.freelist())*pageSize + 10, int(whole.root())*pageSize + 16} {
		f.Add(uint32(at), []byte{255})
		f.Add(uint32(at), []byte{0, 0, 0, 1})
	}
	f.Fuzz(func(t *testing.T, at uint32, with []byte) {
		bad := bytes.Clone(whole)
		copy(bad[int(at)%len(bad):], with)
		path := filepath.Join(t.TempDir(), "file.db")
		must(t, os.WriteFile(path, bad, 0o600))
		_ = boltfile.Look(path, errDamaged, 0, lookUp)
		for _, use := range []boltfile.Use{boltfile.ToRead, boltfile.ToWrite} {
			db, err := open(path, use)
			if err != nil {
				continue
			}
			_ = boltfile.Guard(errDamaged, func() error { return db.View(readAll) })
			if use == boltfile.ToWrite {
				_ = boltfile.Guard(errDamaged, func() error { return db.Update(rewriteAll) })
			}
			if err := boltfile.Close(db, errDamaged); err != nil {
				t.Error(err)
			}
		}
	})
}

func lookUp(f *pages.File) error {
	for _, name := range []string{"a", "b", "small"} {
		if b, found, err := f.Bucket(name); err == nil && found {
			_, _, _ = b.Cursor().Last()
			_, _, _ = b.Get([]byte("key"))
			c := b.Cursor()
			for _, more, err := c.Next(); more && err == nil; _, more, err = c.Next() {
				// A damaged file comes to an end, too.
			}
		}
	}
	return nil
}

func readAll(tx *bbolt.Tx) error {
	return tx.ForEach(func(_ []byte, b *bbolt.Bucket) error {
		b.Get([]byte("00000"))
		return b.ForEach(func(_, v []byte) error { _ = bytes.Clone(v); return nil })
	})
}

func rewriteAll(tx *bbolt.Tx) error {
	return tx.ForEach(func(_ []byte, b *bbolt.Bucket) error {
		for n := range 400 {
			key := fmt.Appendf(nil, "%030d", n)
			if n%2 == 0 {
				_ = b.Delete(key)
			} else {
				_ = b.Put(key, key)
			}
		}
		return nil
	})
}

// TestLook: what is looked up in a whole file is what bbolt says, and in one that was
// damaged it comes to an end.
func TestLook(t *testing.T) {
	t.Parallel()
	whole := raw(written(t))
	path := filepath.Join(t.TempDir(), "file.db")
	must(t, os.WriteFile(path, whole, 0o600))
	must(t, boltfile.Look(path, errDamaged, 0, func(f *pages.File) error {
		a, found, err := f.Bucket("a")
		if err != nil || !found {
			t.Fatal(found, err)
		}
		for n := range 402 {
			key := fmt.Sprintf("%030d", n-1)
			e, found, err := a.Get([]byte(key))
			if want := n > 0 && n < 401 && key[29] != '7'; err != nil || found != want || found && string(e.Key) != key {
				t.Errorf("%s: found %v as %s, %v", key, found, e.Key, err)
			}
		}
		if e, found, err := a.Cursor().Last(); err != nil || !found || string(e.Key) != fmt.Sprintf("%030d", 399) {
			t.Errorf("the last is %s, %v, %v", e.Key, found, err)
		}
		small, found, err := f.Bucket("small")
		if err != nil || !found {
			t.Fatal(found, err)
		}
		values, err := small.Values("key", "none")
		if err != nil || string(values["key"]) != "value" || values["none"] != nil {
			t.Error(values, err)
		}
		if _, found, err := f.Bucket("none"); found || err != nil {
			t.Error(found, err)
		}
		return nil
	}))
	id, top := whole.top(t, "a")
	top.put64(16+(int(top.count())-1)*16+8, id)
	must(t, os.WriteFile(path, whole, 0o600))
	err := boltfile.Look(path, errDamaged, 0, func(f *pages.File) error {
		a, _, err := f.Bucket("a")
		must(t, err)
		_, _, err = a.Cursor().Last()
		return err
	})
	if !errors.Is(err, errDamaged) {
		t.Error(err)
	}
}

// TestCursor: a cursor goes through all keys in order, from the first or from where a key is or would be; and through
// pages that name each other it does not go for ever.
func TestCursor(t *testing.T) {
	t.Parallel()
	whole := raw(written(t))
	path := filepath.Join(t.TempDir(), "file.db")
	must(t, os.WriteFile(path, whole, 0o600))
	var all []string
	for n := range 400 {
		if key := fmt.Sprintf("%030d", n); key[29] != '7' {
			all = append(all, key)
		}
	}
	rest := func(c *pages.Cursor) (keys []string) {
		for {
			e, found, err := c.Next()
			if must(t, err); !found {
				return keys
			}
			keys = append(keys, string(e.Key))
		}
	}
	must(t, boltfile.Look(path, errDamaged, 0, func(f *pages.File) error {
		a, _, err := f.Bucket("a")
		must(t, err)
		if got := rest(a.Cursor()); !slices.Equal(got, all) {
			t.Errorf("from the first: %d keys, want %d", len(got), len(all))
		}
		for n := range 402 {
			key := fmt.Sprintf("%030d", n-1)
			c := a.Cursor()
			_, found, err := c.Seek([]byte(key))
			must(t, err)
			at, is := slices.BinarySearch(all, key)
			if is {
				at++
			}
			if got := rest(c); found != is || !slices.Equal(got, all[at:]) {
				t.Errorf("after %s: found %v, then %d keys, want %v and %d", key, found, len(got), is, len(all)-at)
			}
		}
		c := a.Cursor()
		_, _, err = c.Last()
		must(t, err)
		if got := rest(c); len(got) != 0 {
			t.Errorf("after the last: %v", got)
		}
		if got := rest(pages.Bucket{}.Cursor()); len(got) != 0 {
			t.Errorf("in an empty bucket: %v", got)
		}
		return nil
	}))
	id, top := whole.top(t, "a")
	top.put64(16+8, id)
	must(t, os.WriteFile(path, whole, 0o600))
	err := boltfile.Look(path, errDamaged, 0, func(f *pages.File) error {
		a, _, err := f.Bucket("a")
		must(t, err)
		_, _, err = a.Cursor().Next()
		return err
	})
	if !errors.Is(err, errDamaged) {
		t.Error(err)
	}
}

// TestCloseComesBack: bbolt waits for ever for a transaction that a panic ended half.
func TestCloseComesBack(t *testing.T) {
	defer boltfile.CloseAtMost(time.Millisecond)()
	path := filepath.Join(t.TempDir(), "file.db")
	db, err := open(path, boltfile.ToWrite)
	must(t, err)
	tx, err := db.Begin(true)
	must(t, err)
	if err := boltfile.Close(db, errDamaged); !errors.Is(err, errDamaged) || !strings.Contains(err.Error(), "restart") {
		t.Error(err)
	}
	must(t, tx.Rollback())
}
