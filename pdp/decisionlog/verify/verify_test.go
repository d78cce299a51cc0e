package verify_test

import (
	"bytes"
	"strings"
	"testing"

	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/decisionlog/format"
)

// sample is a log of three segments, two keys, a redaction and a retirement, all there is.
func sample(t testing.TB, data string) *writer {
	w := newWriter(t, data)
	w.records(20)
	w.checkpoint()
	w.records(10)
	w.seal() // 0..30
	second := w.first
	w.records(33)
	w.checkpoint()
	w.rotateKey()
	w.records(5)
	end := len(w.lines)
	w.checkpoint()
	w.seal()
	w.remove(2, second, end, []int{40}, format.WhyRedacted)
	all := make([]int, second)
	for n := range all {
		all[n] = n
	}
	w.remove(1, 0, second, all, format.WhyRetired)
	w.records(7)
	w.batch(9)
	w.batch(4)
	w.close()
	return w
}

// read collects what verify returns.
func read(t testing.TB, do func(verify.Options) verify.Report, o verify.Options) (verify.Report, map[int64]string) {
	t.Helper()
	got := map[int64]string{}
	last := int64(-1)
	o.Record = func(sequence int64, line []byte) {
		if sequence <= last {
			t.Errorf("record %d was returned behind %d", sequence, last)
		}
		last = sequence
		got[sequence] = string(line)
	}
	r := do(o)
	for n := range got {
		if n >= r.Size {
			delete(got, n)
		}
	}
	return r, got
}

func directory(data string) func(verify.Options) verify.Report {
	return func(o verify.Options) verify.Report { return verify.Directory(data, o) }
}

func exportOf(content []byte) func(verify.Options) verify.Report {
	return func(o verify.Options) verify.Report { return verify.Export(bytes.NewReader(content), o) }
}

func (w *writer) want(r verify.Report, got map[int64]string) {
	w.t.Helper()
	if !r.Verified() || r.Size != int64(len(w.lines)) {
		w.t.Fatalf("%v, %d of %d records: %v", r.Code, r.Size, len(w.lines), r.Problem)
	}
	if len(got) != len(w.lines)-len(w.gone) {
		w.t.Errorf("%d records were returned, and %d are in the log", len(got), len(w.lines)-len(w.gone))
	}
	for n, line := range w.lines {
		if w.gone[n] == "" && got[int64(n)] != string(line) {
			w.t.Errorf("record %d was returned as %q", n, got[int64(n)])
		}
	}
}

func TestWhole(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	w := sample(t, data)
	for _, o := range []verify.Options{{}, {Key: w.keys[0]}, {Key: w.keys[1]}, {Checkpoint: string(w.signed)},
		{Key: w.keys[0], Checkpoint: string(w.signed)}} {
		r, got := read(t, directory(data), o)
		w.want(r, got)
		if r.Redacted != 1 || r.Retired != 31 || r.Read != 3 || r.Digested != 2 || r.Unsigned != 0 {
			t.Errorf("%+v", r)
		}
		if o.Key == w.keys[0] && o.Checkpoint == "" {
			continue // an export has no checkpoint that signs the second key in
		}
		if o.Key == w.keys[0] {
			continue
		}
		for _, proofs := range []bool{false, true} {
			r, got = read(t, exportOf(w.export(nil, proofs)), o)
			w.want(r, got)
		}
	}
	r, _ := read(t, directory(data), verify.Options{Key: w.keys[1], Checkpoint: string(w.signed)})
	if len(r.NotExcluded) != 0 || len(r.Proved) == 0 {
		t.Errorf("with key and checkpoint nothing is left open: %q", r.NotExcluded)
	}
	r, _ = read(t, directory(data), verify.Options{})
	if !strings.Contains(strings.Join(r.NotExcluded, "\n"), "older copy") {
		t.Errorf("without a checkpoint: %q", r.NotExcluded)
	}
}

func TestFilteredAndProof(t *testing.T) {
	t.Parallel()
	w := sample(t, t.TempDir())
	for _, proofs := range []bool{false, true} {
		r, got := read(t, exportOf(w.export(func(n int) bool { return n%3 == 0 }, proofs)), verify.Options{Key: w.keys[1]})
		if !r.Verified() || r.Skipped == 0 || r.Records != int64(len(got)) || len(got) == 0 {
			t.Fatalf("%+v: %v", r, r.Problem)
		}
	}
	r, got := read(t, exportOf(w.prove(50)), verify.Options{Key: w.keys[1]})
	if !r.Verified() || len(got) != 1 || got[50] != string(w.lines[50]) {
		t.Fatalf("%+v: %v", r, r.Problem)
	}
}
