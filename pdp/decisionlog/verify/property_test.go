package verify_test

import (
	"bytes"
	"flag"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"

	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/pdptest/night"
)

var rounds = flag.Int("tamper", 400, "how many changes the tamper tests make to each file")

func tries() int { return night.Cases(*rounds) }

// changes are what may happen to bytes: at a random place, of a random length.
var changes = []struct {
	name string
	make func(r *rand.Rand, b []byte) []byte
}{
	{"flip", func(r *rand.Rand, b []byte) []byte { b[r.IntN(len(b))] ^= 1 << r.IntN(8); return b }},
	{"cut", func(r *rand.Rand, b []byte) []byte { return b[:r.IntN(len(b))] }},
	{"insert", func(r *rand.Rand, b []byte) []byte {
		at := r.IntN(len(b))
		return append(append(bytes.Clone(b[:at]), piece(r, b)...), b[at:]...)
	}},
	{"remove", func(r *rand.Rand, b []byte) []byte {
		at := r.IntN(len(b))
		return append(bytes.Clone(b[:at]), b[min(len(b), at+length(r)):]...)
	}},
	{"overwrite", func(r *rand.Rand, b []byte) []byte { copy(b[r.IntN(len(b)):], piece(r, b)); return b }},
	{"zero", func(r *rand.Rand, b []byte) []byte {
		at := r.IntN(len(b))
		clear(b[at:min(len(b), at+length(r))])
		return b
	}},
	{"swap pages", func(r *rand.Rand, b []byte) []byte {
		if pages := len(b) / 4096; pages > 1 {
			one, other := r.IntN(pages)*4096, r.IntN(pages)*4096
			kept := bytes.Clone(b[one : one+4096])
			copy(b[one:], b[other:other+4096])
			copy(b[other:], kept)
		}
		return b
	}},
	{"line removed", func(r *rand.Rand, b []byte) []byte {
		l := split(b)
		i := r.IntN(len(l))
		return join(append(l[:i], l[i+1:]...))
	}},
	{"lines swapped", func(r *rand.Rand, b []byte) []byte {
		l := split(b)
		i, j := r.IntN(len(l)), r.IntN(len(l))
		l[i], l[j] = l[j], l[i]
		return join(l)
	}},
	{"line duplicated", func(r *rand.Rand, b []byte) []byte {
		l := split(b)
		i := r.IntN(len(l))
		l[i] = append(bytes.Clone(l[i]), l[r.IntN(len(l))]...)
		return join(l)
	}},
}

func length(r *rand.Rand) int {
	return 1 + r.IntN([]int{1, 8, 64, 700, 5000}[r.IntN(5)])
}

func piece(r *rand.Rand, b []byte) []byte {
	at := r.IntN(len(b))
	return bytes.Clone(b[at:min(len(b), at+length(r))])
}

func split(b []byte) [][]byte { return bytes.SplitAfter(b, []byte("\n")) }
func join(l [][]byte) []byte  { return bytes.Join(l, nil) }

// holds fails where a changed log verifies with other records than it had. With less
// signed than before, only what is signed counts, and the records behind are open.
func holds(t *testing.T, what string, r verify.Report, got, want map[int64]string) {
	t.Helper()
	switch {
	case r.Verified() && !maps.Equal(got, want):
		t.Errorf("%s: it verifies with %d records, and there were %d", what, len(got), len(want))
	case !r.Verified() && (r.Code.String() == "" || r.Problem == nil || len(r.Proved) > 0):
		t.Errorf("%s: %+v", what, r)
	}
}

// TestChangedExport: no export with a random change verifies with other records.
func TestChangedExport(t *testing.T) {
	t.Parallel()
	w := sample(t, t.TempDir())
	r := rand.New(rand.NewPCG(1, 2))
	third := func(n int) bool { return n%3 == 0 }
	for _, content := range [][]byte{w.export(nil, false), w.export(third, false), w.export(nil, true), w.prove(50)} {
		_, want := read(t, exportOf(content), verify.Options{})
		codes := map[verify.Code]int{}
		for range tries() {
			change := changes[r.IntN(len(changes))]
			changed := change.make(r, bytes.Clone(content))
			report, got := quiet(t, change.name, exportOf(changed), verify.Options{})
			codes[report.Code]++
			holds(t, change.name, report, got, want)
			if r.IntN(2) == 0 { // on purpose
				report, got = quiet(t, change.name, exportOf(join(mend(split(changed)))), verify.Options{})
				codes[report.Code]++
				within(t, change.name, report, got, want)
			}
		}
		t.Log(codes)
	}
}

// within fails where a log verifies with a record it did not have: who changes an export
// on purpose can make of it a filtered one, which says so, but no other records.
func within(t *testing.T, what string, r verify.Report, got, want map[int64]string) {
	t.Helper()
	for n, line := range got {
		if r.Verified() && want[n] != line {
			t.Errorf("%s: it verifies with a record %d that the log has not: %q", what, n, line)
		}
	}
	if r.Verified() && r.Skipped == 0 && !maps.Equal(got, want) {
		t.Errorf("%s: it verifies as whole, with %d of %d records", what, len(got), len(want))
	}
}

// quiet is read of a changed log, which may return records in any order: they, and their
// order, count only once the report says so.
func quiet(t *testing.T, what string, do func(verify.Options) verify.Report, o verify.Options) (verify.Report, map[int64]string) {
	t.Helper()
	got, last, ordered := map[int64]string{}, int64(-1), true
	o.Record = func(n int64, line []byte) {
		got[n] = string(line)
		ordered, last = ordered && n > last, n
	}
	r := do(o)
	if r.Verified() && !ordered {
		t.Errorf("%s: it verifies with its records in another order", what)
	}
	maps.DeleteFunc(got, func(n int64, _ string) bool { return n >= r.Size })
	return r, got
}

// TestChangedSegment: the same of each segment file of a log, and of one with a checkpoint
// before its end, behind which it can be cut.
func TestChangedSegment(t *testing.T) {
	t.Parallel()
	tamper(t, sample(t, t.TempDir()), tries())
	tamper(t, redactedTwice(t, t.TempDir()), tries())
	w := newWriter(t, t.TempDir())
	w.records(20)
	w.checkpoint()
	w.records(10)
	w.close()
	if tamper(t, w, tries()) == 0 {
		t.Error("nothing verified with fewer records: this test cannot fail")
	}
}

// tamper changes each segment, the last one also after its end was cut off. It returns how
// often that verified with fewer records: never, where the newest checkpoint was kept.
func tamper(t *testing.T, w *writer, rounds int) (fewer int) {
	untouched, want := read(t, directory(w.data), verify.Options{})
	newest := verify.Options{Checkpoint: untouched.Checkpoint}
	if r, got := read(t, directory(w.data), newest); !r.Verified() || !maps.Equal(got, want) || len(want) == 0 {
		t.Fatalf("untouched: %+v", r)
	}
	r := rand.New(rand.NewPCG(3, 4))
	for segment := 1; segment <= w.segment; segment++ {
		whole, err := os.ReadFile(w.path(segment))
		w.must(err)
		w.must(os.Chmod(w.path(segment), 0o600))
		states := [][]byte{whole}
		if segment == w.segment {
			states = append(states, w.older(whole)...)
		}
		codes, kept := map[verify.Code]int{}, map[verify.Code]int{} // kept: with the newest checkpoint
		for i := range len(states) - 1 + rounds {
			change := changes[r.IntN(len(changes))]
			var changed []byte
			if i+1 < len(states) { // each as it is, first
				change.name, changed = "older", states[i+1]
			} else {
				changed = change.make(r, bytes.Clone(states[r.IntN(2)*r.IntN(len(states))]))
			}
			w.must(os.WriteFile(w.path(segment), changed, 0o600))
			report, got := quiet(t, change.name, directory(w.data), verify.Options{})
			if bytes.Equal(changed, whole) {
				continue
			}
			codes[report.Code]++
			if segment < w.segment {
				holds(t, change.name, report, got, want)
			} else {
				tail(t, change.name, report, got, want)
				if report.Verified() && len(got) < len(want) {
					fewer++
				}
				report, got = quiet(t, change.name, directory(w.data), newest)
				kept[report.Code]++
				holds(t, change.name+", with the newest checkpoint kept", report, got, want)
			}
		}
		t.Log(segment, codes, kept)
		w.must(os.WriteFile(w.path(segment), whole, 0o600))
	}
	return fewer
}

// older is a segment with more and more cut off its end: records, their hashes, and the
// checkpoints that cover them.
func (w *writer) older(whole []byte) (all [][]byte) {
	name := filepath.Join(w.t.TempDir(), "older.db")
	w.must(os.WriteFile(name, whole, 0o600))
	for more := true; more; {
		db := w.bolt(name)
		w.must(db.Update(func(tx *bbolt.Tx) error {
			hashes, records := tx.Bucket([]byte(format.BucketHashes)), tx.Bucket([]byte(format.BucketRecords))
			last, _ := hashes.Cursor().Last()
			if more = last != nil; !more {
				return nil
			}
			last = bytes.Clone(last)
			if b := tx.Bucket([]byte(format.BucketCheckpoints)); b != nil {
				for k, _ := b.Cursor().Last(); k != nil && bytes.Compare(k[:8], last) > 0; k, _ = b.Cursor().Last() {
					w.must(b.Delete(bytes.Clone(k)))
				}
			}
			w.must(records.Delete(last))
			return hashes.Delete(last)
		}))
		w.must(db.Close())
		if more {
			content, err := os.ReadFile(name)
			w.must(err)
			all = append(all, content)
		}
	}
	return all
}

// tail is holds for the last segment, which may verify as an older state of itself: its
// end cut off, which the report does not exclude. With a checkpoint from outside it holds.
func tail(t *testing.T, what string, r verify.Report, got, want map[int64]string) {
	t.Helper()
	for n, line := range got {
		if r.Verified() && want[n] != line {
			t.Errorf("%s: it verifies with another record %d", what, n)
		}
	}
	for n := range want {
		if _, there := got[n]; r.Verified() && !there && n < r.Size {
			t.Errorf("%s: it verifies without record %d of %d", what, n, r.Size)
		}
	}
}
