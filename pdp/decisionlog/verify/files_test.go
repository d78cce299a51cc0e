package verify_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/decisionlog/format"
)

// redactedTwice is a log with two sealed segments. Two redactions, one after the other, have written the first of them.
func redactedTwice(t testing.TB, data string) *writer {
	w := newWriter(t, data)
	w.records(5) // 1..5
	w.checkpoint()
	w.seal()
	w.records(5)
	w.remove(1, 0, 6, []int{3}, format.WhyRedacted)
	w.checkpoint()
	w.seal()
	w.records(2)
	w.remove(1, 0, 6, []int{4}, format.WhyRedacted)
	w.close()
	return w
}

// alter changes a sealed segment.
func (w *writer) alter(segment int, change func(*bbolt.Tx) error) {
	w.must(os.Chmod(w.path(segment), 0o600))
	db := w.bolt(w.path(segment))
	w.must(db.Update(change))
	w.must(db.Close())
}

// otherID changes what no hash covers.
func otherID(tx *bbolt.Tx) error {
	b, err := tx.CreateBucketIfNotExists([]byte(format.BucketIDs))
	if err != nil {
		return err
	}
	return b.Put([]byte("0190-1"), number(2))
}

// TestFilesOfRemovals: a file that a removal has written is the one that a signed record names. Of any other sealed file
// only records, hashes and checkpoints are covered.
func TestFilesOfRemovals(t *testing.T) {
	t.Parallel()
	w := redactedTwice(t, t.TempDir())
	r, got := read(t, directory(w.data), verify.Options{Key: w.keys[0], Checkpoint: string(w.signed)})
	w.want(r, got)
	if r.Digested != 1 || r.Unknown != nil || len(r.NotExcluded) != 0 {
		t.Errorf("%+v", r)
	}
	r, got = read(t, exportOf(w.export(nil, false)), verify.Options{})
	w.want(r, got)
	w.alter(2, otherID)
	r, got = read(t, directory(w.data), verify.Options{})
	w.want(r, got)
	w.alter(1, otherID)
	if r = verify.Directory(w.data, verify.Options{}); r.Code != verify.Altered || r.Problem.File != w.path(1) {
		t.Errorf("what a removal has written was changed: %v: %v", r.Code, r.Problem)
	}
	w = redactedTwice(t, t.TempDir())
	w.alter(2, func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(format.BucketRecords)).Put(number(8), w.lines[9])
	})
	if r = verify.Directory(w.data, verify.Options{}); r.Code != verify.Altered || r.Problem.File != w.path(2) || r.Problem.Sequence != 8 {
		t.Errorf("a record was changed: %v: %v", r.Code, r.Problem)
	}
}

// TestOldFileIsThere: a crash before the new file has the segment's name leaves the old one, and that is no alteration.
func TestOldFileIsThere(t *testing.T) {
	t.Parallel()
	w := newWriter(t, t.TempDir())
	w.records(5)
	w.checkpoint()
	w.seal()
	old, err := os.ReadFile(w.path(1))
	w.must(err)
	w.remove(1, 0, 6, []int{3}, format.WhyRedacted)
	w.close()
	w.must(os.Chmod(w.path(1), 0o600))
	w.must(os.WriteFile(w.path(1), old, 0o400))
	r := verify.Directory(w.data, verify.Options{})
	if !r.Verified() || !strings.Contains(strings.Join(r.NotExcluded, "\n"), "recorded as redacted or retired is still there") {
		t.Errorf("%v: %+v", r.Problem, r)
	}
}

// TestAnotherFileIsReplaced: a removal must replace a file that a record names, or it would cover up what was altered since.
func TestAnotherFileIsReplaced(t *testing.T) {
	t.Parallel()
	w := newWriter(t, t.TempDir())
	w.records(3)
	w.checkpoint()
	w.seal()
	w.records(2)
	w.remove(1, 0, 4, []int{1}, format.WhyRedacted)
	w.alter(1, otherID)
	w.remove(1, 0, 4, []int{2}, format.WhyRedacted)
	at := int64(len(w.lines) - 1)
	w.close()
	r := verify.Directory(w.data, verify.Options{})
	if r.Code != verify.Altered || r.Problem.Sequence != at || !strings.Contains(r.Problem.What, "another file") {
		t.Errorf("%v: %v", r.Code, r.Problem)
	}
	r = verify.Export(strings.NewReader(string(w.export(nil, false))), verify.Options{})
	if r.Code != verify.Altered || r.Problem.Sequence != at {
		t.Errorf("the export: %v: %v", r.Code, r.Problem)
	}
}

// TestUnknownNames: buckets and meta keys that no log has are named, and a hostile file names only so many.
func TestUnknownNames(t *testing.T) {
	t.Parallel()
	w := newWriter(t, t.TempDir())
	w.records(5)
	w.checkpoint()
	w.seal()
	w.records(2)
	w.close()
	w.alter(1, func(tx *bbolt.Tx) error {
		if _, err := tx.CreateBucket([]byte("a b\n")); err != nil {
			return err
		}
		return tx.Bucket([]byte(format.BucketMeta)).Put([]byte("note"), []byte("x"))
	})
	r, got := read(t, directory(w.data), verify.Options{})
	w.want(r, got)
	want := []string{`00000001.db: bucket "a b\n"`, `00000001.db: meta key "note"`}
	if said := strings.Join(r.NotExcluded, "\n"); !slices.Equal(r.Unknown, want) || !strings.Contains(said, strings.Join(want, ", ")) {
		t.Errorf("%q: %s", r.Unknown, said)
	}
	w.alter(2, func(tx *bbolt.Tx) error {
		for n := range 1000 {
			if err := tx.Bucket([]byte(format.BucketMeta)).Put(number(n), nil); err != nil {
				return err
			}
		}
		return nil
	})
	r, got = read(t, directory(w.data), verify.Options{})
	if w.want(r, got); len(r.Unknown) != 20 {
		t.Errorf("%d are named", len(r.Unknown))
	}
}
