package verify_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"policy-service/pdp/decisionlog"
	"policy-service/pdp/decisionlog/verify"
)

// bothForms is a log that has digests as the first release wrote them, and then each in a
// record of its own.
func bothForms(t testing.TB, data string) *writer {
	w := newWriter(t, data)
	w.records(5)
	w.checkpoint()
	w.seal()
	w.records(5)
	w.checkpoint()
	second := w.sealAlone()
	w.records(3)
	second()
	w.records(3)
	w.checkpoint()
	third := w.sealAlone()
	third()
	third() // an equal one does no harm
	w.records(2)
	w.remove(3, 12, 20, []int{14}, decisionlog.WhyRedacted)
	w.close()
	return w
}

// TestBothForms: a log verifies that goes from one form of digests to the other.
func TestBothForms(t *testing.T) {
	t.Parallel()
	w := bothForms(t, t.TempDir())
	r, got := read(t, directory(w.data), verify.Options{Key: w.keys[0], Checkpoint: string(w.signed)})
	w.want(r, got)
	if r.Files.Digested != 3 || r.Files.Undigested != nil || len(r.NotExcluded) != 0 {
		t.Errorf("%+v", r)
	}
	r, got = read(t, exportOf(w.export(nil, false)), verify.Options{})
	w.want(r, got)
}

// TestUndigested: sealed files are named whose digest no signed record has, and that is
// no failure. What their hashes cover is verified all the same.
func TestUndigested(t *testing.T) {
	t.Parallel()
	w := newWriter(t, t.TempDir())
	w.records(5)
	w.checkpoint()
	w.sealAlone()
	w.records(5)
	w.checkpoint()
	second := w.sealAlone()
	w.records(5)
	w.checkpoint()
	second() // which no checkpoint covers
	r, got := read(t, directory(w.data), verify.Options{})
	said := strings.Join(r.NotExcluded, "\n")
	if !r.Verified() || len(got) != 18 || r.Files.Digested != 0 || !slices.Equal(r.Files.Undigested, []string{"00000001.db", "00000002.db"}) ||
		!strings.Contains(said, "changes to 00000001.db, 00000002.db that touch no record") {
		t.Errorf("%v: %+v", r.Problem, r)
	}
	w.close()
	r, got = read(t, directory(w.data), verify.Options{})
	w.want(r, got)
	if r.Files.Digested != 1 || !slices.Equal(r.Files.Undigested, []string{"00000001.db"}) {
		t.Errorf("%v: %+v", r.Problem, r)
	}
	name := w.path(1)
	w.must(os.Chmod(name, 0o600))
	db := w.bolt(name)
	put(w, db, decisionlog.BucketIDs, "0190-1", number(2))
	w.must(db.Close())
	if r = verify.Directory(w.data, verify.Options{}); !r.Verified() || len(r.Files.Undigested) != 1 {
		t.Errorf("what no hash covers was changed: %v: %+v", r.Problem, r)
	}
	db = w.bolt(name)
	put(w, db, decisionlog.BucketRecords, number(2), w.lines[3])
	w.must(db.Close())
	if r = verify.Directory(w.data, verify.Options{}); r.Code != verify.Altered || r.Problem.File != name {
		t.Errorf("a record was changed: %v: %v", r.Code, r.Problem)
	}
}

// TestRetiredIsNotUndigested: of a retired segment nobody asks for the digest once the
// record that had it was retired too.
func TestRetiredIsNotUndigested(t *testing.T) {
	t.Parallel()
	w := newWriter(t, t.TempDir())
	w.records(3)
	w.checkpoint()
	w.sealAlone()()
	end1 := 4
	w.remove(1, 0, end1, []int{0, 1, 2, 3}, decisionlog.WhyRetired)
	w.checkpoint()
	w.sealAlone()()
	w.remove(2, end1, end1+3, []int{4, 5, 6}, decisionlog.WhyRetired)
	w.close()
	r, got := read(t, directory(w.data), verify.Options{})
	w.want(r, got)
	if r.Retired != 7 || r.Files.Digested != 1 || r.Files.Undigested != nil {
		t.Errorf("%+v", r)
	}
}

// TestOtherDigest: a second digest of a segment must be equal to one that is on record, or
// it would cover up what was altered since.
func TestOtherDigest(t *testing.T) {
	t.Parallel()
	for _, seal := range []func(*writer){(*writer).seal, func(w *writer) { w.sealAlone()() }} {
		w := newWriter(t, t.TempDir())
		w.records(3)
		w.checkpoint()
		seal(w)
		w.records(2)
		name := w.path(1)
		w.must(os.Chmod(name, 0o600))
		db := w.bolt(name)
		put(w, db, decisionlog.BucketIDs, "0190-1", number(2))
		w.must(db.Close())
		w.admin(decisionlog.EventSealed, map[string]any{"segment": 1, "digest": w.file(1, 0, 3).Digest})
		at := int64(len(w.lines) - 1)
		w.close()
		r := verify.Directory(w.data, verify.Options{})
		if r.Code != verify.Altered || r.Problem.Sequence != at || !strings.Contains(r.Problem.What, "another digest") {
			t.Errorf("%v: %v", r.Code, r.Problem)
		}
		r = verify.Export(strings.NewReader(string(w.export(nil, false))), verify.Options{})
		if r.Code != verify.Altered || r.Problem.Sequence != at {
			t.Errorf("the export: %v: %v", r.Code, r.Problem)
		}
	}
}
