package verify_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/decisionlog/c2sp"
	"policy-service/pdp/internal/decisionlog/export"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/pdptest/clock"
)

// FuzzExport: no export verifies, under the log's key, with other records than the log's,
// in another order or number; one that leaves records out says so.
func FuzzExport(f *testing.F) {
	w := small(f)
	whole := map[int64]string{}
	for n, line := range w.lines {
		whole[int64(n)] = string(line)
	}
	for _, content := range [][]byte{w.export(nil, false), w.export(nil, true), w.export(func(n int) bool { return n%3 == 0 }, true), w.prove(4)} {
		f.Add(content)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		content = join(mend(split(content))) // the fuzzer would spend its days on guessing a digest
		last, n, wrong := int64(-1), int64(0), false
		r := verify.Export(bytes.NewReader(content), verify.Options{Key: w.keys[0], Record: func(sequence int64, line []byte) {
			wrong = wrong || sequence <= last || whole[sequence] != string(line)
			last, n = sequence, n+1
		}})
		if r.Verified() && (n != r.Records || wrong) {
			t.Errorf("it verifies with records that are not the log's: %d, and %d were returned", r.Records, n)
		}
		alone := bytes.Contains(content, []byte(`"form":"proof"`))
		if r.Verified() && r.Skipped == 0 && !alone && n+r.Redacted+r.Retired != r.Size {
			t.Errorf("it verifies as whole with %d of %d records", n, r.Size)
		}
	})
}

// FuzzMerge: no merge verifies, under the keys of its logs, with other records than theirs; and a reader goes through
// each that does.
func FuzzMerge(f *testing.F) {
	m := &mergedLogs{dirs: []string{f.TempDir(), f.TempDir()}, Clock: clock.At(time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC))}
	var exports [][]byte
	whole, keys := map[string]bool{}, ""
	for n, dir := range m.dirs {
		l := m.open(f, n)
		m.write(f, l, 3)
		check(f, l.Close())
		exports = append(exports, exportReal(f, dir, export.Options{}))
		keys += keysOf(f, dir)[0] + "\n"
		verify.Export(bytes.NewReader(exports[n]), verify.Options{Record: func(_ int64, line []byte) { whole[string(line)] = true }})
	}
	f.Add(mustMerge(f, exports...))
	f.Add(mustMerge(f, exports[1]))
	f.Fuzz(func(t *testing.T, content []byte) {
		content = resealed(content)
		wrong, n := false, int64(0)
		r := verify.Export(bytes.NewReader(content), verify.Options{Key: keys, Record: func(_ int64, line []byte) { wrong, n = wrong || !whole[string(line)], n+1 }})
		if r.Verified() && (wrong || n != r.Records) {
			t.Errorf("it verifies with records that are not the logs': %q", content)
		}
		x, err := export.NewReader(bytes.NewReader(content))
		for err == nil && n >= 0 {
			n = -1
			for _, failed := range x.Leaves() {
				err = failed
			}
		}
		if r.Verified() && len(r.Parts) > 0 && err != nil {
			t.Errorf("it verifies, and cannot be read: %v", err)
		}
	})
}

// small is a log that a fuzzer gets through often enough.
func small(f *testing.F) *writer {
	w := newWriter(f, f.TempDir())
	w.records(2)
	w.seal()
	w.remove(1, 0, 3, []int{1}, format.WhyRedacted)
	w.records(2)
	w.close()
	return w
}

// FuzzCheckpoint: what is no checkpoint is a usage error, and no text panics.
func FuzzCheckpoint(f *testing.F) {
	w := small(f)
	f.Add(string(w.signed))
	f.Add("a\n1\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n\n— a AAAAAAAA\n")
	content := w.export(nil, false)
	f.Fuzz(func(t *testing.T, text string) {
		r := verify.Export(bytes.NewReader(content), verify.Options{Key: w.keys[0], Checkpoint: text})
		if !r.Verified() || text == "" {
			return
		}
		// The key signed it, whatever else may stand below as further signatures.
		key, _ := note.NewVerifier(w.keys[0])
		if _, err := note.Open([]byte(text), note.VerifierList(key)); err != nil {
			t.Errorf("%q is accepted: %v", text, err)
		}
	})
}

// FuzzProof: no proof, in the form that others read, is of a line that is not the log's.
func FuzzProof(f *testing.F) {
	w := small(f)
	for n := range w.lines {
		path, err := tlog.ProveRecord(int64(len(w.lines)), int64(n), w)
		w.must(err)
		f.Add(c2sp.Proof{Extra: []byte("an id"), Index: int64(n), Hashes: path, Checkpoint: w.signed}.Text(), w.lines[n])
	}
	f.Fuzz(func(t *testing.T, proof, line []byte) {
		r := verify.Proof(line, proof, verify.Options{Key: w.keys[0]})
		if r.Verified() && !slices.ContainsFunc(w.lines, func(one []byte) bool { return bytes.Equal(one, line) }) {
			t.Errorf("%q is proved by %q", line, proof)
		}
	})
}

// FuzzSegment: no segment file makes verify panic, hang or grow, or return a record that
// is not the log's. The fuzzer changes a place, because a whole file is too large for it.
func FuzzSegment(f *testing.F) {
	data := f.TempDir()
	w := newWriter(f, data)
	w.records(30)
	w.checkpoint()
	w.records(40)
	w.close()
	whole, err := os.ReadFile(w.path(1))
	w.must(err)
	f.Add(uint32(4096), []byte{1, 2, 3}, uint32(len(whole)))
	f.Add(uint32(16), []byte{0xed}, uint32(8192))
	f.Fuzz(func(t *testing.T, at uint32, change []byte, size uint32) {
		changed := bytes.Clone(whole)
		copy(changed[int(at)%len(changed):], change)
		dir := t.TempDir()
		if err := errors.Join(
			os.MkdirAll(filepath.Join(dir, format.LogDir), 0o700),
			os.WriteFile(filepath.Join(dir, format.PublicKeyFile), []byte(w.keys[0]+"\n"), 0o600),
			os.WriteFile(filepath.Join(dir, format.LogDir, "00000001.db"), changed[:min(int(size), len(changed))], 0o600),
		); err != nil {
			t.Fatal(err)
		}
		r, got := quiet(t, "fuzzed", directory(dir), verify.Options{})
		if r.Code.String() == "" || r.Verified() != (r.Problem == nil) {
			t.Errorf("%+v", r)
		}
		for n, line := range got {
			if r.Verified() && line != string(w.lines[n]) {
				t.Errorf("it verifies with a record %d that the log has not", n)
			}
		}
	})
}
