package decisionlog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// A removal that stops after any of its steps leaves a log that is whole, and is
// finished or undone by the next start.
func TestRedactionIsCutShort(t *testing.T) {
	t.Parallel()
	for steps := range 5 {
		t.Run(fmt.Sprint(steps), func(t *testing.T) {
			k := keepLog(t)
			k.append("a-1", "a-2", "a-3")
			r, sequence := k.redaction("a-2")
			for _, step := range r.steps()[:steps] {
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
	t.Parallel()
	k := keepLog(t)
	k.append("a-1", "a-2")
	r, _ := k.redaction("a-2")
	k.ok(r.steps()[0](t.Context()))
	k.ok(os.Chmod(r.next[0], 0o600))
	k.ok(os.Truncate(r.next[0], 5000))
	k.reopen()
	k.afterCrash("content-of-a-2", false)
}

func TestRetentionIsCutShort(t *testing.T) {
	t.Parallel()
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
			for _, step := range k.log.retirement(segments, reason).steps()[:steps] {
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
	t.Parallel()
	k := keepLog(t)
	k.append("a-1", "a-2", "a-3")
	r, sequence := k.redaction("a-2")
	for _, step := range r.steps()[:2] {
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
	t.Parallel()
	for steps := range 4 {
		t.Run(fmt.Sprint(steps), func(t *testing.T) {
			k := keepLog(t)
			k.append("a-1", "a-2")
			r, sequence := k.redaction("a-2")
			for _, step := range r.steps()[:steps] {
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

// What is to be redacted, or dropped, stands in the journal when that is called, and so does what comes between the
// steps. In the end no file has a byte of it, also if the process ends after any of the steps, with more in the journal.
func TestRemovalsBesideTheJournal(t *testing.T) {
	t.Parallel()
	for steps := range 5 {
		for _, what := range []string{EventRedacted, EventRetired} {
			t.Run(fmt.Sprint(what, steps), func(t *testing.T) {
				k := keepLog(t)
				k.pend("a-1", "a-2", "a-3")
				k.ok(k.log.barrier(t.Context()))
				k.pend("b-1", "b-2", "b-3")
				for _, id := range []string{"a-2", "b-2"} {
					inJournal := func(path string) bool { return strings.Contains(path, "journal.") }
					if files := k.holds("content-of-" + id); !slices.ContainsFunc(files, inJournal) {
						t.Fatalf("what was answered is not in the journal, but in %v", files)
					}
				}
				var r *removal
				if what == EventRedacted {
					r, _ = k.redaction("b-2")
				} else {
					k.ok(k.log.Rotate(t.Context()))
					segments, reason, err := k.log.removals.expired(Retention{Age: time.Hour}, time.Now().Add(2*time.Hour))
					k.ok(err)
					r = k.log.retirement(segments, reason)
				}
				all := r.steps()
				for _, step := range all[:steps] {
					k.pend(k.next())
					k.ok(step(t.Context()))
				}
				if files := k.holds("content-of-b-2"); (files == nil) != (steps == len(all)) {
					t.Errorf("after %d steps it is in %v", steps, files)
				}
				last := k.next()
				k.pend(last)
				if steps < len(all) {
					crash(k.log)
					k.ok(JudgeDirectory(k.data))
					k.open()
				}
				gone := steps >= 2
				if files := k.holds("content-of-b-2"); (files == nil) != gone {
					t.Errorf("it is in %v", files)
				}
				if files := k.holds("content-of-a-2"); (files == nil) != (gone && what == EventRetired) {
					t.Errorf("another one is in %v", files)
				}
				if _, err := k.log.ByID(last); err != nil {
					t.Errorf("what came after it: %v", err)
				}
				k.ok(k.log.Close())
				k.ok(JudgeDirectory(k.data))
				content := func(id string) string { return "content-of-" + id + `"` }
				var contents []string
				for id := range k.pended {
					contents = append(contents, content(id))
				}
				files := k.holding(contents...)
				for id := range k.pended {
					removed := gone && (id == "b-2" || what == EventRetired && id[1] == '-')
					if files := files[content(id)]; (files == nil) != removed {
						t.Errorf("%s, in the end: %v", id, files)
					}
				}
				k.open() // for the clean-up to close
			})
		}
	}
}

// TestNoRemovalOutlivesItsLog: a removal that is late does not touch a segment once another process may have the log, and
// the next start finishes it. One that was given up ends before the next segment.
func TestNoRemovalOutlivesItsLog(t *testing.T) {
	t.Parallel()
	k := keepLog(t)
	k.append("a-1", "a-2", "a-3")
	r, sequence := k.redaction("a-2")
	steps := r.steps()
	for _, step := range steps[:3] {
		k.ok(step(t.Context()))
	}
	k.look()
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
	k.gone[int64(sequence)] = WhyRedacted
	k.check()
}

// redaction is that of a record, which stands at the sequence.
func (k *kept) redaction(id string) (r *removal, sequence uint64) {
	k.Helper()
	one, err := k.log.redactable(k.Context(), id)
	k.ok(err)
	return k.log.redaction("", "on request", []redacted{one}), one.sequence
}

// pend has decisions on record, and does not look for them: at first only the journal has them.
func (k *kept) pend(ids ...string) {
	k.Helper()
	for _, id := range ids {
		k.ok(k.log.Append(k.Context(), []Entry{entryOf(id, true)}))
		k.pended[id] = true
	}
}

func (k *kept) next() string { return fmt.Sprintf("c%d", len(k.pended)) }

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
	t.Parallel()
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
				k.gone[int64(n)] = WhyRedacted
			}
		}
		if strings.Contains(string(line), `"caller":"key:operator"`) {
			redacted[newFiles(line)[0].Digest]++
		}
	}
	if len(redacted) != 2 || len(k.log.Segments()) > before+2 {
		t.Errorf("the new files are %v, and there are %d segments after %d", redacted, len(k.log.Segments()), before)
	}
	for id, gone := range map[string]bool{"a-1": true, "a-2": true, "a-3": true, "b-1": false, "b-2": true} {
		k.afterCrash("content-of-"+id, gone)
	}
	if done, err := k.log.RedactAll(t.Context(), "", "on request", "b-1", "nosuch"); !errors.Is(err, ErrNotFound) || done != 0 {
		t.Errorf("%d, %v", done, err)
	}
	k.afterCrash("content-of-b-1", false)
	k.reopen()
	k.check()
}
