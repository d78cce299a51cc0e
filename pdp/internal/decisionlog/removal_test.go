package decisionlog

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/internal/boltfile"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
)

// sealedThrice is a data directory with three sealed segments of three records, and a closed log.
func sealedThrice(t *testing.T) (data string) {
	t.Helper()
	data = memory(t)
	l := mustOpen(t, data, Options{})
	for range 3 {
		mustAppend(t, l, entryOf("", true), entryOf("", false))
		must(t, l.Rotate(t.Context()))
	}
	must(t, l.Close())
	return data
}

// Nothing is removed from a segment that was altered: a new file would hide that. What is before it can go. Once the file
// is what it was, its content can be removed.
func TestNothingIsRemovedFromAnAlteredSegment(t *testing.T) {
	t.Parallel()
	type change func(t *testing.T, tx *bbolt.Tx)
	put := func(bucket string, key []byte, value func([]byte) []byte) change {
		return func(t *testing.T, tx *bbolt.Tx) {
			b := tx.Bucket([]byte(bucket))
			v := value(bytes.Clone(b.Get(key)))
			if err := b.Put(key, v); err != nil {
				t.Error(err)
			}
		}
	}
	flip := func(at int) func([]byte) []byte {
		return func(v []byte) []byte { v[at] ^= 1; return v }
	}
	last := func(v []byte) []byte { v[len(v)-1] ^= 1; return v }
	tests := map[string]change{
		"a line": put(format.BucketRecords, segment.EncodeNumber(5), func(v []byte) []byte { return bytes.Replace(v, []byte("subject-of"), []byte("subject-oF"), 1) }),
		"a line and its hash": func(t *testing.T, tx *bbolt.Tx) {
			put(format.BucketRecords, segment.EncodeNumber(5), func(v []byte) []byte { return bytes.Replace(v, []byte("subject-of"), []byte("subject-oF"), 1) })(t, tx)
			e, err := segment.ReadEdgeBefore(tx, 3)
			if err != nil {
				t.Error(err)
			}
			for e.Size < 6 { // and all that follows from it in this segment
				line := tx.Bucket([]byte(format.BucketRecords)).Get(segment.EncodeNumber(e.Size))
				stored := e.AddLeaf(nil, tlog.RecordHash(line))
				if err := tx.Bucket([]byte(format.BucketHashes)).Put(segment.EncodeNumber(e.Size-1), stored); err != nil {
					t.Error(err)
				}
			}
		},
		"a leaf's hash":    put(format.BucketHashes, segment.EncodeNumber(4), flip(3)),
		"a subtree's hash": put(format.BucketHashes, segment.EncodeNumber(5), last),
		"the edge":         put(format.BucketMeta, []byte(format.MetaEdge), flip(0)),
		"a longer edge":    put(format.BucketMeta, []byte(format.MetaEdge), func(v []byte) []byte { return append(v, v...) }),
		"a line is gone": func(t *testing.T, tx *bbolt.Tx) {
			if err := tx.Bucket([]byte(format.BucketRecords)).Delete(segment.EncodeNumber(4)); err != nil {
				t.Error(err)
			}
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			data := sealedThrice(t)
			path := segment.FilePath(data, 2)
			good, err := os.ReadFile(path)
			must(t, err)
			alter(t, path, change)
			l := mustOpen(t, data, Options{})
			id := idIn(t, l, 4)
			if err := l.Redact(t.Context(), "", id, "on request"); id != "" && !errors.Is(err, record.ErrDamaged) {
				t.Errorf("its record is redacted: %v", err)
			}
			later := time.Now().Add(2 * time.Hour)
			if done, err := l.Retain(t.Context(), Retention{Age: time.Hour}, later); err != nil || len(done.Segments) != 1 {
				t.Errorf("the one before it is not retired alone: %+v, %v", done, err)
			}
			if _, err := l.Retain(t.Context(), Retention{Age: time.Hour}, later); !errors.Is(err, record.ErrDamaged) {
				t.Errorf("it is retired: %v", err)
			}
			must(t, l.Close())
			if err := JudgeDirectory(data); err == nil {
				t.Error("the log verifies")
			}
			must(t, os.WriteFile(path, good, 0o400))
			l = mustOpen(t, data, Options{})
			if done, err := l.Retain(t.Context(), Retention{Age: time.Hour}, later); err != nil || len(done.Segments) < 2 {
				t.Errorf("it is not retired: %+v, %v", done, err)
			}
			must(t, l.Close())
			if err := JudgeDirectory(data); err != nil {
				t.Error(err)
			}
		})
	}
}

// A segment from which content was redacted can be redacted again, and retired. One whose line somebody took away since
// cannot.
func TestMissingLinesHaveTheirRecords(t *testing.T) {
	t.Parallel()
	data := sealedThrice(t)
	l := mustOpen(t, data, Options{})
	for _, sequence := range []uint64{4, 5} {
		must(t, l.Redact(t.Context(), "", idIn(t, l, sequence), "on request"))
	}
	later := time.Now().Add(2 * time.Hour)
	must(t, l.Close())
	alter(t, segment.FilePath(data, 3), func(t *testing.T, tx *bbolt.Tx) {
		if err := tx.Bucket([]byte(format.BucketRecords)).Delete(segment.EncodeNumber(7)); err != nil {
			t.Error(err)
		}
	})
	l = mustOpen(t, data, Options{})
	if done, err := l.Retain(t.Context(), Retention{Age: time.Hour}, later); err != nil || len(done.Segments) != 2 {
		t.Errorf("the segments before it are not retired: %+v, %v", done, err)
	}
	if _, err := l.Retain(t.Context(), Retention{Age: time.Hour}, later); !errors.Is(err, record.ErrDamaged) {
		t.Errorf("a segment without a line is retired: %v", err)
	}
}

// The file that is checked is the one that has the name, also if this process still has an older one open.
func TestTheFileThatIsReplacedIsChecked(t *testing.T) {
	t.Parallel()
	data := sealedThrice(t)
	l := mustOpen(t, data, Options{})
	mustGet(t, l.Reader, 1) // opens it
	replaceBy(t, segment.FilePath(data, 1), func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(format.BucketRecords)).Put(segment.EncodeNumber(2), []byte(`{"sequence":2}`))
	})
	if err := l.Redact(t.Context(), "", idIn(t, l, 1), "on request"); !errors.Is(err, record.ErrDamaged) {
		t.Errorf("got %v", err)
	}
}

// In silence no segment is sealed for its age.
func TestSilenceNeedsNoSegments(t *testing.T) {
	t.Parallel()
	rotated, commits := make(chan struct{}, 100), make(chan struct{})
	l := mustOpen(t, memory(t), Options{
		SegmentAge:  time.Millisecond,
		Checkpoints: Checkpoints{Every: time.Millisecond, Idle: time.Millisecond},
		RetryEvery:  time.Millisecond,
		On: Hooks{
			Rotate: func() { rotated <- struct{}{} },
			Commit: func(Commit) {
				select {
				case commits <- struct{}{}:
				default:
				}
			},
		},
	})
	mustAppend(t, l, entryOf("", true))
	<-rotated
	for range 20 { // checkpoints
		<-commits
	}
	if n, size := len(l.Segments()), l.Size(); n != 2 || size != 3 {
		t.Errorf("%d segments with %d records, want 2 with 3", n, size)
	}
}

// alter changes a sealed file.
func alter(t *testing.T, path string, change func(*testing.T, *bbolt.Tx)) {
	t.Helper()
	must(t, os.Chmod(path, 0o600))
	db, err := segment.OpenFile(path, boltfile.ToWrite, bbolt.Options{Timeout: time.Second})
	must(t, err)
	err = db.Update(func(tx *bbolt.Tx) error { change(t, tx); return nil })
	must(t, errors.Join(err, db.Close()))
}

// idIn is the id of a record, "" where it has no content.
func idIn(t *testing.T, l *Log, sequence uint64) string {
	t.Helper()
	rec, err := l.Get(sequence)
	if errors.Is(err, segment.ErrGone) {
		return ""
	}
	s, parsing := record.Parse(rec.Line)
	must(t, errors.Join(err, parsing))
	return s.ID
}

// replaceBy puts a copy of a segment with a change in the place of its file.
func replaceBy(t *testing.T, path string, change func(*bbolt.Tx) error) {
	t.Helper()
	content, err := os.ReadFile(path)
	must(t, err)
	next := path + ".changed"
	must(t, os.WriteFile(next, content, 0o600))
	db, err := bbolt.Open(next, 0o600, nil)
	must(t, err)
	must(t, errors.Join(db.Update(change), db.Close(), os.Rename(next, path)))
}

// TestNoRemovalOutlivesItsLog: a removal that is late does not touch a segment once another process may have the log, and
// the next start finishes it. One that was given up ends before the next segment.
func TestNoRemovalOutlivesItsLog(t *testing.T) {
	t.Parallel()
	k := keepLog(t)
	k.append("a-1", "a-2", "a-3")
	r := k.redaction("a-2")
	steps := r.steps()
	for _, step := range steps[:3] {
		k.ok(step(t.Context()))
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := steps[3](ended); !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	k.ok(k.log.Close())
	if err := steps[3](t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("after the end of the log: %v", err)
	}
	for of, want := range map[string]string{r.segments[0].Path: r.files[0].Replaces, r.next[0]: r.files[0].Digest} {
		if got, _, err := digestOf(of); err != nil || got != want {
			t.Errorf("%s: %s, want %s: %v", of, got, want, err)
		}
	}
	k.open()
	k.gone = k.going
	k.check()
}

// Records that are redacted together go in one new file of their segment, each with a record of its own. What is gone
// already is passed over, and a redaction that is refused takes nothing.
func TestRedactionOfSeveralRecords(t *testing.T) {
	t.Parallel()
	k := keepLog(t)
	k.append("a-1", "a-2", "a-3")
	k.ok(k.log.Rotate(t.Context()))
	k.append("b-1", "b-2")
	k.ok(k.log.Redact(t.Context(), "", "a-1", "on request"))
	before := len(k.log.Segments())
	done, err := k.log.RedactAll(t.Context(), "key:operator", "on request", "a-1", "a-2", "a-3", "b-2")
	if k.ok(err); done != 3 {
		t.Errorf("%d records", done)
	}
	k.look()
	redacted := map[string]int{} // the digests of new files, and how many records name them
	for n, line := range k.lines {
		for _, id := range []string{"a-1", "a-2", "a-3", "b-2"} {
			if strings.Contains(string(line), `"id":"`+id+`","time"`) {
				k.gone[int64(n)] = format.WhyRedacted
			}
		}
		if strings.Contains(string(line), `"caller":"key:operator"`) {
			redacted[newFiles(line)[0].Digest]++
		}
	}
	if len(redacted) != 2 || len(k.log.Segments()) > before+2 {
		t.Errorf("the new files are %v, and there are %d segments after %d", redacted, len(k.log.Segments()), before)
	}
	k.contents(k.data, k.answered, "a-1", "a-2", "a-3", "b-2")
	k.check()
	if done, err := k.log.RedactAll(t.Context(), "", "on request", "b-1", "nosuch"); !errors.Is(err, segment.ErrNotFound) || done != 0 {
		t.Errorf("%d, %v", done, err)
	}
	k.contents(k.data, k.answered, "a-1", "a-2", "a-3", "b-2")
	k.reopen()
	k.check()
}

// A file whose name only looks like that of a new one is nobody's to finish or to remove.
func TestOtherFilesStay(t *testing.T) {
	t.Parallel()
	k := keepLog(t)
	for _, name := range []string{"notes.next", "00000001.db.next", "00000001.db.07.next", "1.db.7.next", "00000001.db.7.next.next"} {
		k.ok(os.WriteFile(filepath.Join(k.data, format.LogDir, name), nil, 0o600))
	}
	k.reopen()
	if left := k.left(); len(left) != 5 {
		t.Errorf("%v are left", left)
	}
}
