package verify_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/decisionlog/format"
)

// edit changes a segment through bbolt, as who has the disk and the source can.
func (w *writer) edit(segment int, change func(tx *bbolt.Tx)) {
	w.must(os.Chmod(w.path(segment), 0o600))
	db := w.bolt(w.path(segment))
	w.must(db.Update(func(tx *bbolt.Tx) error { change(tx); return nil }))
	w.must(db.Close())
}

// values reads and writes the lines and hashes of one segment.
type values struct {
	w               *writer
	records, hashes *bbolt.Bucket
}

func (w *writer) values(segment int, change func(v values)) {
	w.edit(segment, func(tx *bbolt.Tx) {
		change(values{w: w, records: tx.Bucket([]byte(format.BucketRecords)), hashes: tx.Bucket([]byte(format.BucketHashes))})
	})
}

// set replaces a record, with its leaf's hash.
func (v values) set(n int, line []byte) {
	v.w.must(v.records.Put(number(n), line))
	leaf := sha256.Sum256(append([]byte{0}, line...))
	v.w.must(v.hashes.Put(number(n), append(leaf[:], bytes.Clone(v.hashes.Get(number(n)))[32:]...)))
}

// TestTamperedDirectory is the table of what is done to the log of a directory, and how
// each is found. The log is of one segment of 31 records, closed in order.
func TestTamperedDirectory(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		change   func(w *writer)
		want     verify.Code
		sequence int64
	}{
		{"a line", func(w *writer) {
			w.values(1, func(v values) { w.must(v.records.Put(number(7), w.lines[8])) })
		}, verify.Altered, 7},
		{"a line and its hash", func(w *writer) {
			w.values(1, func(v values) { v.set(8, bytes.Replace(w.lines[8], []byte("alice"), []byte("mallo"), 1)) })
		}, verify.Altered, -1},
		{"swapped", func(w *writer) {
			w.values(1, func(v values) { v.set(8, w.lines[9]); v.set(9, w.lines[8]) })
		}, verify.Altered, 8},
		{"duplicated", func(w *writer) {
			w.values(1, func(v values) { v.set(9, w.lines[8]) })
		}, verify.Altered, 9},
		{"content removed", func(w *writer) {
			w.values(1, func(v values) { w.must(v.records.Delete(number(7))) })
		}, verify.Missing, 7},
		{"removed", func(w *writer) {
			w.values(1, func(v values) { w.must(v.records.Delete(number(7))); w.must(v.hashes.Delete(number(7))) })
		}, verify.Missing, 7},
		{"hash removed", func(w *writer) {
			w.values(1, func(v values) { w.must(v.hashes.Delete(number(7))) })
		}, verify.Missing, 7},
		{"inserted, unsigned", func(w *writer) {
			w.values(1, func(v values) { w.must(v.records.Put(append(number(7), 0), w.lines[8])) })
		}, verify.Altered, 8},
		{"tail cut, its checkpoint left", func(w *writer) {
			w.values(1, func(v values) {
				for n := 25; n < 31; n++ {
					w.must(v.records.Delete(number(n)))
					w.must(v.hashes.Delete(number(n)))
				}
			})
		}, verify.Truncated, 25},
		{"a hash inside the tree", func(w *writer) {
			w.values(1, func(v values) {
				stored := bytes.Clone(v.hashes.Get(number(7)))
				stored[40] ^= 1
				w.must(v.hashes.Put(number(7), stored))
			})
		}, verify.Altered, 7},
		{"checkpoints removed", func(w *writer) {
			w.edit(1, func(tx *bbolt.Tx) { w.must(tx.DeleteBucket([]byte(format.BucketCheckpoints))) })
		}, verify.Missing, -1},
		{"a redaction that nothing signed", func(w *writer) {
			w.db = w.bolt(w.path(1))
			w.admin(format.EventRedacted, map[string]any{"sequence": 7})
			w.must(w.db.Close())
			w.values(1, func(v values) { w.must(v.records.Delete(number(7))) })
		}, verify.Missing, 7},
		{"another key's list", func(w *writer) { w.seed, w.keys = "another", nil; w.key() }, verify.OtherKey, -1},
		{"no segment", func(w *writer) { w.must(os.Remove(w.path(1))) }, verify.Missing, -1},
		{"file cut", func(w *writer) { w.must(os.Truncate(w.path(1), 9000)) }, verify.Unreadable, -1},
		{"file empty", func(w *writer) { w.must(os.Truncate(w.path(1), 0)) }, verify.Unreadable, -1},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWriter(t, t.TempDir())
			w.records(20)
			w.checkpoint()
			w.records(10)
			w.close()
			if r := verify.Directory(w.data, verify.Options{}); !r.Verified() {
				t.Fatal(r.Problem)
			}
			test.change(w)
			r := verify.Directory(w.data, verify.Options{})
			if r.Code != test.want || test.sequence >= 0 && r.Problem.Sequence != test.sequence {
				t.Errorf("%v, want %v of record %d: %v", r.Code, test.want, test.sequence, r.Problem)
			}
			if len(r.Proved) > 0 {
				t.Errorf("it claims: %q", r.Proved)
			}
		})
	}
}

// TestOutside is what only a key or a checkpoint kept elsewhere can find.
func TestOutside(t *testing.T) {
	t.Parallel()
	w := newWriter(t, t.TempDir())
	w.records(20)
	old := string(w.checkpoint())
	w.must(w.db.Close())
	older := t.TempDir()
	w.must(os.CopyFS(older, os.DirFS(w.data)))
	w.db = w.bolt(w.path(1))
	w.records(10)
	w.close()
	kept := string(w.signed)

	forged := newSeeded(t, t.TempDir(), "forged")
	forged.records(40)
	forged.close()

	fork := &writer{t: t, data: older, origin: w.origin, signer: w.signer, keys: w.keys, lines: w.lines[:21:21], stored: w.stored[:0:0],
		gone: map[int]string{}, segment: 1, clock: w.clock.Add(time.Hour)}
	for _, test := range []struct {
		name, data string
		o          verify.Options
		want       verify.Code
	}{
		{"the log", w.data, verify.Options{Checkpoint: kept}, verify.Verified},
		{"grown since", w.data, verify.Options{Checkpoint: old}, verify.Verified},
		{"older copy, nothing known", older, verify.Options{}, verify.Verified},
		{"older copy", older, verify.Options{Checkpoint: kept}, verify.Truncated},
		{"older copy and key", older, verify.Options{Checkpoint: kept, Key: w.keys[0]}, verify.Truncated},
		{"signed anew, nothing known", forged.data, verify.Options{}, verify.Verified},
		{"signed anew", forged.data, verify.Options{Key: w.keys[0]}, verify.OtherKey},
		{"signed anew, checkpoint", forged.data, verify.Options{Checkpoint: kept}, verify.OtherKey},
		{"no key", w.data, verify.Options{Key: "what"}, verify.Usage},
		{"no checkpoint", w.data, verify.Options{Checkpoint: "what"}, verify.Usage},
		{"no directory", filepath.Join(w.data, "none"), verify.Options{}, verify.Usage},
	} {
		if r := verify.Directory(test.data, test.o); r.Code != test.want {
			t.Errorf("%s: %v, want %v: %v", test.name, r.Code, test.want, r.Problem)
		}
	}
	fork.fork(w)
	for _, o := range []verify.Options{{Checkpoint: kept}, {Checkpoint: kept, Key: w.keys[0]}} {
		if r := verify.Directory(older, o); r.Code != verify.Forked {
			t.Errorf("a fork by who holds the key: %v: %v", r.Code, r.Problem)
		}
		if r, _ := read(t, exportOf(fork.export(nil, false)), o); r.Code != verify.Forked {
			t.Errorf("its export: %v: %v", r.Code, r.Problem)
		}
	}
	if r := verify.Directory(older, verify.Options{Checkpoint: old}); r.Code != verify.Verified {
		t.Errorf("a fork behind the checkpoint: %v: %v", r.Code, r.Problem)
	}
}

// fork continues an older copy of a log in another way.
func (w *writer) fork(of *writer) {
	w.lines = nil
	for _, line := range of.lines[:21] {
		w.keep(line)
	}
	w.db = w.bolt(w.path(1))
	w.records(10)
	w.close()
}

// TestTime: a signed log whose clock went back is what was signed, and says so.
func TestTime(t *testing.T) {
	t.Parallel()
	w := newWriter(t, t.TempDir())
	w.records(5)
	w.clock = w.clock.Add(-time.Hour)
	w.records(5)
	w.clock = w.clock.Add(2 * time.Hour)
	w.close()
	for _, r := range []verify.Report{verify.Directory(w.data, verify.Options{}), verify.Export(bytes.NewReader(w.export(nil, false)), verify.Options{})} {
		if r.Code != verify.TimeReversed || r.Problem.Sequence != 6 {
			t.Errorf("%v: %v", r.Code, r.Problem)
		}
	}
}

// TestTamperedExport is the same of an exported file: first as it is, then with its
// digest made right again, as who does it on purpose would.
func TestTamperedExport(t *testing.T) {
	t.Parallel()
	w := newWriter(t, t.TempDir())
	w.records(30)
	w.close()
	lines := func() [][]byte { return bytes.SplitAfter(w.export(nil, false), []byte("\n")) }
	for _, test := range []struct {
		name   string
		change func(l [][]byte) [][]byte
		want   verify.Code
	}{
		{"altered", func(l [][]byte) [][]byte { l[9] = bytes.Replace(l[9], []byte("alice"), []byte("mallo"), 1); return l }, verify.Altered},
		{"removed", func(l [][]byte) [][]byte { return append(l[:9], l[10:]...) }, verify.Missing},
		{"swapped", func(l [][]byte) [][]byte { l[9], l[10] = l[10], l[9]; return l }, verify.Altered},
		{"swapped far", func(l [][]byte) [][]byte { l[9], l[20] = l[20], l[9]; return l }, verify.Altered},
		{"duplicated", func(l [][]byte) [][]byte { l[10] = append(bytes.Clone(l[9]), l[10]...); return l }, verify.Altered},
		{"inserted", func(l [][]byte) [][]byte {
			l[9] = append(bytes.Replace(l[9], []byte("alice"), []byte("mallo"), 1), l[9]...)
			return l
		}, verify.Altered},
		{"tail cut", func(l [][]byte) [][]byte { return l[:20] }, verify.Truncated},
		{"cut in a line", func(l [][]byte) [][]byte { l[20] = l[20][:30]; return l[:21] }, verify.Truncated},
		{"last record", func(l [][]byte) [][]byte { return append(l[:31], l[32:]...) }, verify.Truncated},
		{"more behind", func(l [][]byte) [][]byte { return append(l, l[5]) }, verify.Altered},
		{"first line", func(l [][]byte) [][]byte { return l[1:] }, verify.Unreadable},
		{"nothing", func(l [][]byte) [][]byte { return nil }, verify.Unreadable},
		{"left out", func(l [][]byte) [][]byte { l[9] = w.without(8, "filtered"); return l }, verify.Missing},
		{"left out as redacted", func(l [][]byte) [][]byte { l[9] = w.without(8, "redacted"); return l }, verify.Missing},
	} {
		for _, right := range []bool{false, true} {
			l := test.change(lines())
			if right {
				l = mend(l)
			}
			r := verify.Export(bytes.NewReader(bytes.Join(l, nil)), verify.Options{})
			if !right && r.Verified() || right && r.Code != test.want && len(l) > 0 {
				t.Errorf("%s: %v, want %v: %v", test.name, r.Code, test.want, r.Problem)
			}
		}
	}
}

func (w *writer) without(n int, why string) []byte {
	var out bytes.Buffer
	leaf := sha256.Sum256(append([]byte{0}, w.lines[n]...))
	w.envelope(&out, map[string]any{"export": "leaves", "first": n, "why": why, "hashes": [][]byte{leaf[:]}})
	return out.Bytes()
}

// mend makes the digest of the last line right, and the number of records.
func mend(l [][]byte) [][]byte {
	records, sum := 0, sha256.New()
	for i, line := range l {
		if bytes.HasPrefix(line, []byte(`{"export":"end"`)) {
			_, rest, _ := bytes.Cut(line, []byte(`"size":`))
			size := string(rest[:max(0, bytes.IndexAny(rest, ",}"))])
			l[i] = []byte(`{"export":"end","records":` + strconv.Itoa(records) + `,"size":` + size + `,"digest":"` + hex.EncodeToString(sum.Sum(nil)) + "\"}\n")
		}
		if bytes.HasPrefix(line, []byte(`{"sequence"`)) {
			records += bytes.Count(line, []byte("\n"))
		}
		_, _ = sum.Write(line)
	}
	return l
}
