package verify_test

import (
	"bytes"
	"flag"
	"maps"
	"math/rand/v2"
	"os"
	"testing"

	"policy-service/pdp/decisionlog/verify"
)

var rounds = flag.Int("tamper", 400, "how many changes the tamper tests make to each file")

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
	w := sample(t, t.TempDir())
	r := rand.New(rand.NewPCG(1, 2))
	third := func(n int) bool { return n%3 == 0 }
	for _, content := range [][]byte{w.export(nil, false), w.export(third, false), w.export(nil, true), w.prove(50)} {
		_, want := read(t, export(content), verify.Options{})
		codes := map[verify.Code]int{}
		for range *rounds {
			change := changes[r.IntN(len(changes))]
			changed := change.make(r, bytes.Clone(content))
			report, got := quiet(export(changed))
			codes[report.Code]++
			holds(t, change.name, report, got, want)
			if r.IntN(2) == 0 { // on purpose
				report, got = quiet(export(join(mend(split(changed)))))
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

// quiet is read without a test to fail: a changed log may return records in any order,
// which count only once the report says so.
func quiet(do func(verify.Options) verify.Report) (verify.Report, map[int64]string) {
	got := map[int64]string{}
	r := do(verify.Options{Record: func(n int64, line []byte) { got[n] = string(line) }})
	maps.DeleteFunc(got, func(n int64, _ string) bool { return n >= r.Size })
	return r, got
}

// TestChangedSegment: the same of each segment file of a log.
func TestChangedSegment(t *testing.T) {
	tamper(t, sample(t, t.TempDir()), *rounds)
}

func tamper(t *testing.T, w *writer, rounds int) {
	_, want := read(t, directory(w.data), verify.Options{})
	r := rand.New(rand.NewPCG(3, 4))
	for segment := 1; segment <= w.segment; segment++ {
		whole, err := os.ReadFile(w.path(segment))
		w.must(err)
		w.must(os.Chmod(w.path(segment), 0o600))
		codes := map[verify.Code]int{}
		for range rounds {
			change := changes[r.IntN(len(changes))]
			changed := change.make(r, bytes.Clone(whole))
			w.must(os.WriteFile(w.path(segment), changed, 0o600))
			report, got := quiet(directory(w.data))
			if same := bytes.Equal(changed, whole); same || segment < w.segment && report.Verified() {
				if !same {
					t.Errorf("%s: a sealed file verifies that is not the one that was sealed", change.name)
				}
				continue
			}
			codes[report.Code]++
			if segment < w.segment {
				holds(t, change.name, report, got, want)
			} else {
				tail(t, change.name, report, got, want)
			}
		}
		t.Log(segment, codes)
		w.must(os.WriteFile(w.path(segment), whole, 0o600))
	}
}

// tail is holds for the last segment, which may verify as an older state of itself: its
// end cut off, which needs a checkpoint from outside and which the report does not exclude.
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
