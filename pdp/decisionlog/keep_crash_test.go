package decisionlog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
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

// A redaction that is on record when writing fails is finished by the next run of retention, also if that has no bounds.
func TestRetentionFinishesWhatWasCutShort(t *testing.T) {
	for steps := range 4 {
		t.Run(fmt.Sprint(steps), func(t *testing.T) {
			k := keepLog(t)
			k.append("a-1", "a-2")
			r, segment, sequence, err := k.log.redaction(t.Context(), "a-2", "on request")
			k.ok(err)
			for _, step := range r.steps([]Segment{segment}, without(sequence))[:steps] {
				k.ok(step(t.Context()))
			}
			done, err := k.log.Retain(t.Context(), Retention{}, time.Now())
			if k.ok(err); done.Segments != nil {
				t.Errorf("it dropped %+v", done)
			}
			if steps >= 2 {
				k.gone[int64(sequence)] = WhyRedacted
			}
			k.afterCrash("content-of-a-2", steps >= 2)
		})
	}
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

// Before Open, a copy of a segment from before a redaction lies under the name of a new file. Its digest is on record,
// but as that of the sealed segment: it must not take its place.
func TestAnOldFileIsNotTheNewOne(t *testing.T) {
	k := keepLog(t)
	k.append("a-1", "a-2")
	k.ok(k.log.Rotate(t.Context()))
	path := segmentPath(k.data, 1)
	old, err := os.ReadFile(path)
	k.ok(err)
	k.ok(k.log.Redact(t.Context(), "", "a-2", "on request"))
	k.gone[2] = WhyRedacted
	k.ok(os.WriteFile(path+".0"+nextSuffix, old, 0o400))
	k.reopen()
	if r, err := k.log.ByID("a-2"); !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrGone) {
		t.Errorf("the content is back: %s, %v", r.Line, err)
	}
	k.afterCrash("content-of-a-2", true)
}
