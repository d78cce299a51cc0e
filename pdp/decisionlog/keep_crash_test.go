package decisionlog

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

// A removal that stops after any of its steps leaves a log that is whole, and is
// finished or undone by the next start.
func TestRedactionIsCutShort(t *testing.T) {
	for steps := range 5 {
		t.Run(fmt.Sprint(steps), func(t *testing.T) {
			k := keepLog(t)
			k.append("a-1", "a-2", "a-3")
			r, segment, sequence, err := k.log.redaction(t.Context(), "a-2", "on request")
			k.ok(err)
			for _, step := range r.steps([]Segment{segment}, without(sequence))[:steps] {
				k.ok(step(t.Context()))
			}
			if steps == 4 {
				k.gone[int64(sequence)] = WhyRedacted
			}
			k.check()
			k.reopen()
			if steps >= 2 { // it is on record, so it is done
				k.gone[int64(sequence)] = WhyRedacted
			}
			k.afterCrash("content-of-a-2", steps >= 2)
		})
	}
}

// Half of a new file is what a crash leaves that comes before its end.
func TestHalfANewFileIsRemoved(t *testing.T) {
	k := keepLog(t)
	k.append("a-1", "a-2")
	r, segment, sequence, err := k.log.redaction(t.Context(), "a-2", "on request")
	k.ok(err)
	k.ok(r.steps([]Segment{segment}, without(sequence))[0](t.Context()))
	k.ok(os.Chmod(r.next[0], 0o600))
	k.ok(os.Truncate(r.next[0], 5000))
	k.reopen()
	k.afterCrash("content-of-a-2", false)
}

func TestRetentionIsCutShort(t *testing.T) {
	for steps := range 5 {
		t.Run(fmt.Sprint(steps), func(t *testing.T) {
			k := keepLog(t)
			for i := range 3 {
				k.append(fmt.Sprintf("a-%d", i), fmt.Sprintf("b-%d", i))
				k.ok(k.log.Rotate(t.Context()))
			}
			segments, reason, err := k.log.removals.expired(Retention{Age: time.Hour}, time.Now().Add(2*time.Hour))
			k.ok(err)
			if len(segments) != 3 || reason != "age" {
				t.Fatalf("%d segments, %q", len(segments), reason)
			}
			r := k.log.retirement(segments, reason)
			for _, step := range r.steps(segments, hashesOnly)[:steps] {
				k.ok(step(t.Context()))
			}
			k.reopen()
			if steps >= 2 {
				last := segments[2]
				for i := range last.First + last.Records {
					k.gone[int64(i)] = WhyRetired
				}
			}
			k.afterCrash("content-of-a-1", steps >= 2)
		})
	}
}

// A second removal must not bring back what a first one, cut short, had on record
// as gone.
func TestRedactionAfterOneCutShort(t *testing.T) {
	k := keepLog(t)
	k.append("a-1", "a-2", "a-3")
	r, segment, sequence, err := k.log.redaction(t.Context(), "a-2", "on request")
	k.ok(err)
	for _, step := range r.steps([]Segment{segment}, without(sequence))[:2] {
		k.ok(step(t.Context()))
	}
	k.ok(k.log.Redact(t.Context(), "", "a-3", "on request"))
	k.gone[int64(sequence)], k.gone[int64(sequence)+1] = WhyRedacted, WhyRedacted
	k.afterCrash("content-of-a-2", true)
	k.afterCrash("content-of-a-3", true)
	k.reopen()
	k.check()
}

func (k *kept) afterCrash(secret string, gone bool) {
	k.Helper()
	if files := k.holds(secret); (files == nil) != gone {
		k.Errorf("%q is in %v", secret, files)
	}
	if left := k.left(); left != nil {
		k.Errorf("left behind: %v", left)
	}
	k.check()
}

// left are files of removals that nobody finished.
func (k *kept) left() []string {
	left, err := filepath.Glob(filepath.Join(k.data, LogDir, "*"+nextSuffix))
	k.ok(err)
	return left
}

// What was done to a sealed file after its digest was recorded must not be hidden by a new file.
func TestNoRemovalFromAFileThatIsNotTheRecordedOne(t *testing.T) {
	remove := map[string]func(*kept) error{
		"redaction": func(k *kept) error { return k.log.Redact(t.Context(), "", "a-2", "on request") },
		"retention": func(k *kept) error {
			_, err := k.log.Retain(t.Context(), Retention{Bytes: 1}, time.Now())
			return err
		},
	}
	for name, do := range remove {
		t.Run(name, func(t *testing.T) {
			k := keepLog(t)
			k.append("a-1", "a-2")
			k.ok(k.log.Rotate(t.Context()))
			path := segmentPath(k.data, 1)
			good, err := os.ReadFile(path)
			k.ok(err)
			replaceBy(t, path, func(tx *bbolt.Tx) error {
				return tx.Bucket([]byte(BucketIDs)).Put([]byte("nobody"), number(1)) // no hash covers it
			})
			if err := do(k); !errors.Is(err, ErrDamaged) {
				t.Errorf("got %v", err)
			}
			k.look()
			if slices.ContainsFunc(k.lines, func(line []byte) bool {
				return line == nil || bytes.Contains(line, []byte(EventRedacted)) || bytes.Contains(line, []byte(EventRetired))
			}) {
				t.Error("content was removed, or is recorded as removed")
			}
			k.ok(os.WriteFile(path+".good", good, 0o400))
			k.ok(os.Rename(path+".good", path))
			k.ok(do(k)) // the file is what it was
		})
	}
}

// Retention drops the segments before one whose file is not the recorded one.
func TestRetentionEndsBeforeAFileThatIsNotTheRecordedOne(t *testing.T) {
	k := keepLog(t)
	for range 3 {
		k.append("a-1")
		k.ok(k.log.Rotate(t.Context()))
	}
	replaceBy(t, segmentPath(k.data, 2), func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(BucketIDs)).Put([]byte("nobody"), number(1))
	})
	done, err := k.log.Retain(t.Context(), Retention{Bytes: 1}, time.Now())
	if err != nil || len(done.Segments) != 1 || done.Segments[0].Segment != 1 {
		t.Errorf("got %+v, %v", done, err)
	}
	if _, err := k.log.Retain(t.Context(), Retention{Bytes: 1}, time.Now()); !errors.Is(err, ErrDamaged) {
		t.Errorf("the next run: %v", err)
	}
}
