package decisionlog

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"go.etcd.io/bbolt"
	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/boltfile"
	"policy-service/pdp/pdptest/night"
)

// sealOnly opens a log, seals some segments, and ends as a crash does that comes before
// their digests are on record.
func sealOnly(t *testing.T, data string, segments int) {
	t.Helper()
	l := mustOpen(t, data, Options{})
	l.writer.digests.stop()
	for range segments {
		mustAppend(t, l, entryOf("", true), entryOf("", false))
		if err := l.writer.order(t.Context(), l.writer.rotate); err != nil {
			t.Fatal(err)
		}
	}
	crash(l)
}

// digested are the segments whose digest is on record, in order of the records.
func digested(t testing.TB, lines [][]byte) (segments []uint64) {
	t.Helper()
	for _, line := range lines {
		if !bytes.Contains(line, []byte(EventSealed)) {
			continue
		}
		var r struct {
			Event   string
			Details struct{ Segment uint64 }
		}
		if err := json.Unmarshal(line, &r, json.MatchCaseInsensitiveNames(true)); err != nil {
			t.Fatal(err)
		}
		if r.Event == EventSealed {
			segments = append(segments, r.Details.Segment)
		}
	}
	return segments
}

// upTo are the numbers from 1.
func upTo(n int) (all []uint64) {
	for i := range n {
		all = append(all, uint64(i+1))
	}
	return all
}

// Whenever a crash comes between sealing a segment and recording its digest, the digest
// is recorded once.
func TestDigestsAreRecordedOnceAcrossCrashes(t *testing.T) {
	t.Parallel()
	data := memory(t)
	for _, segments := range []int{1, 3, 0, 2} {
		sealOnly(t, data, segments)
	}
	crash(mustOpen(t, data, Options{})) // it may have recorded some of them
	sealOnly(t, data, 1)
	l := mustOpen(t, data, Options{})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	got := digested(t, verify(t, data))
	if slices.Sort(got); !slices.Equal(got, upTo(7)) {
		t.Errorf("digests of the segments %d are on record, want %d", got, upTo(7))
	}
	if err := JudgeDirectory(data); err != nil {
		t.Error(err)
	}
}

// The same of a process that is killed, again and again: before any digest is on record,
// or at any moment.
func TestKilledBetweenSealingAndDigest(t *testing.T) {
	if data := os.Getenv("DECISIONLOG_SEALED"); data != "" {
		sealForEver(data, os.Getenv("DECISIONLOG_NO_DIGEST") != "")
	}
	data := memory(t)
	for round := range 2 * night.Cases(15) {
		killedSealing(t, data, round%2 == 0)
		if err := JudgeDirectory(data); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
	l := mustOpen(t, data, Options{})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	got := digested(t, verify(t, data))
	if slices.Sort(got); !slices.Equal(got, upTo(len(l.Segments())-1)) {
		t.Errorf("digests of the segments %d are on record, of %d segments", got, len(l.Segments()))
	}
}

// sealForEver is the process that is killed.
func sealForEver(data string, noDigest bool) {
	l, err := Open(data, Options{Checkpoints: Checkpoints{Records: 5}})
	if err == nil && noDigest {
		l.writer.digests.stop()
	}
	for n := 0; err == nil; n++ {
		err = l.Append(context.Background(), []Entry{entryOf("", true), entryOf("", true)})
		if err == nil {
			err = l.writer.order(context.Background(), l.writer.rotate)
		}
		fmt.Println("sealed")
		if noDigest && n == 2 {
			select {}
		}
	}
	fmt.Println("ERROR", err)
	os.Exit(1)
}

func killedSealing(t *testing.T, data string, noDigest bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledBetweenSealingAndDigest$")
	cmd.Env = append(os.Environ(), "DECISIONLOG_SEALED="+data)
	after := 1 + rand.IntN(20)
	if noDigest {
		cmd.Env, after = append(cmd.Env, "DECISIONLOG_NO_DIGEST=1"), 3
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for n := 1; lines.Scan(); n++ {
		if lines.Text() != "sealed" {
			t.Error(lines.Text())
		}
		if n == after {
			_ = cmd.Process.Kill()
		}
	}
	_ = cmd.Wait()
}

// Where a segment was altered between a crash and the next start, its digest is not
// recorded, and that is told; the digests of others are. Nothing is removed from it. Once
// the file is what it was, the digest is recorded.
func TestAlteredBeforeItsDigest(t *testing.T) {
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
		"a line": put(BucketRecords, number(5), func(v []byte) []byte { return bytes.Replace(v, []byte("subject-of"), []byte("subject-oF"), 1) }),
		"a line and its hash": func(t *testing.T, tx *bbolt.Tx) {
			put(BucketRecords, number(5), func(v []byte) []byte { return bytes.Replace(v, []byte("subject-of"), []byte("subject-oF"), 1) })(t, tx)
			e, err := edgeBefore(tx, 3)
			if err != nil {
				t.Error(err)
			}
			for e.size < 6 { // and all that follows from it in this segment
				line := tx.Bucket([]byte(BucketRecords)).Get(number(e.size))
				stored := e.add(nil, tlog.RecordHash(line))
				if err := tx.Bucket([]byte(BucketHashes)).Put(number(e.size-1), stored); err != nil {
					t.Error(err)
				}
			}
		},
		"a leaf's hash":    put(BucketHashes, number(4), flip(3)),
		"a subtree's hash": put(BucketHashes, number(5), last),
		"the edge":         put(BucketMeta, []byte(MetaEdge), flip(0)),
		"a longer edge":    put(BucketMeta, []byte(MetaEdge), func(v []byte) []byte { return append(v, v...) }),
		"a line is gone": func(t *testing.T, tx *bbolt.Tx) {
			if err := tx.Bucket([]byte(BucketRecords)).Delete(number(4)); err != nil {
				t.Error(err)
			}
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			data := memory(t)
			sealOnly(t, data, 3)
			path := segmentPath(data, 2)
			good, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			alter(t, path, change)
			told := make(chan error, 10)
			l := mustOpen(t, data, Options{On: Hooks{Failure: func(err error) { told <- err }}})
			if err := <-told; !errors.Is(err, ErrUndigested) || !strings.Contains(err.Error(), "segment 2: ") {
				t.Error(err)
			}
			if n := l.Status().Altered; n != 1 {
				t.Errorf("%d segments are altered", n)
			}
			id := idIn(t, l, 4)
			if err := l.Redact(t.Context(), "", id, "on request"); id != "" && !errors.Is(err, ErrDamaged) {
				t.Errorf("its record is redacted: %v", err)
			}
			later := time.Now().Add(2 * time.Hour)
			if done, err := l.Retain(t.Context(), Retention{Age: time.Hour}, later); err != nil || len(done.Segments) != 1 {
				t.Errorf("the one before it is not retired alone: %+v, %v", done, err)
			}
			if _, err := l.Retain(t.Context(), Retention{Age: time.Hour}, later); !errors.Is(err, ErrDamaged) {
				t.Errorf("it is retired: %v", err)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if got := linesOf(t, data); slices.Contains(digested(t, got), 2) || !slices.Contains(digested(t, got), 3) {
				t.Errorf("digests of the segments %d are on record", digested(t, got))
			}
			if err := JudgeDirectory(data); err == nil {
				t.Error("the log verifies")
			}
			if err := os.WriteFile(path, good, 0o400); err != nil {
				t.Fatal(err)
			}
			l = mustOpen(t, data, Options{})
			if err := l.Close(); err != nil || l.Status().Altered != 0 {
				t.Fatal(err)
			}
			if got := digested(t, linesOf(t, data)); !slices.Contains(got, 2) {
				t.Errorf("digests of the segments %d are on record", got)
			}
			if err := JudgeDirectory(data); err != nil {
				t.Error(err)
			}
		})
	}
}

// A digest that is on record is not recorded again of an altered file because its record was
// taken away for a while, not even in a later segment.
func TestNoSecondDigest(t *testing.T) {
	t.Parallel()
	const opened, sealed = 3, 4 // after the first record and two entries
	lines := func(tx *bbolt.Tx) *bbolt.Bucket { return tx.Bucket([]byte(BucketRecords)) }
	tests := map[string]func(tx *bbolt.Tx) error{
		"missing":       func(tx *bbolt.Tx) error { return lines(tx).Delete(number(sealed)) },
		"first missing": func(tx *bbolt.Tx) error { return lines(tx).Delete(number(opened)) },
		"altered": func(tx *bbolt.Tx) error {
			line := bytes.Clone(lines(tx).Get(number(sealed)))
			return lines(tx).Put(number(sealed), bytes.Replace(line, []byte(`"segment":1`), []byte(`"segment":7`), 1))
		},
		"altered with its hash": func(tx *bbolt.Tx) error {
			line := bytes.Replace(bytes.Clone(lines(tx).Get(number(sealed))), []byte(`"segment":1`), []byte(`"segment":7`), 1)
			stored := bytes.Clone(tx.Bucket([]byte(BucketHashes)).Get(number(sealed)))
			leaf := tlog.RecordHash(line)
			copy(stored, leaf[:])
			return errors.Join(lines(tx).Put(number(sealed), line), tx.Bucket([]byte(BucketHashes)).Put(number(sealed), stored))
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			data := memory(t)
			l := mustOpen(t, data, Options{})
			mustAppend(t, l, entryOf("", true), entryOf("", false))
			if err := l.Rotate(t.Context()); err != nil {
				t.Fatal(err)
			}
			mustAppend(t, l, entryOf("", true), entryOf("", false))
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			alter(t, segmentPath(data, 1), func(t *testing.T, tx *bbolt.Tx) {
				k, _ := tx.Bucket([]byte(BucketIDs)).Cursor().Last()
				if err := tx.Bucket([]byte(BucketIDs)).Delete(bytes.Clone(k)); err != nil {
					t.Error(err)
				}
			})
			was := map[uint64][2][]byte{}
			alter(t, segmentPath(data, 2), func(t *testing.T, tx *bbolt.Tx) {
				for _, n := range []uint64{opened, sealed} {
					was[n] = [2][]byte{bytes.Clone(lines(tx).Get(number(n))), bytes.Clone(tx.Bucket([]byte(BucketHashes)).Get(number(n)))}
				}
				if err := change(tx); err != nil {
					t.Error(err)
				}
			})
			var told error
			l = mustOpen(t, data, Options{On: Hooks{Failure: func(err error) { told = cmp.Or(told, err) }}})
			if err := told; !errors.Is(err, ErrUndigested) || l.Status().Altered != 1 {
				t.Errorf("%d segments are altered: %v", l.Status().Altered, err)
			}
			if _, err := l.Retain(t.Context(), Retention{Age: time.Hour}, time.Now().Add(2*time.Hour)); err == nil {
				t.Error("it is retired")
			}
			if err := errors.Join(l.Rotate(t.Context()), l.Close(), mustOpen(t, data, Options{}).Close()); err != nil {
				t.Fatal(err)
			}
			alter(t, segmentPath(data, 2), func(t *testing.T, tx *bbolt.Tx) {
				for n, v := range was {
					if err := errors.Join(lines(tx).Put(number(n), v[0]), tx.Bucket([]byte(BucketHashes)).Put(number(n), v[1])); err != nil {
						t.Error(err)
					}
				}
			})
			if err := mustOpen(t, data, Options{}).Close(); err != nil {
				t.Fatal(err)
			}
			if got := digested(t, linesOf(t, data)); !slices.Equal(got, upTo(2)) {
				t.Errorf("digests of the segments %d are on record", got)
			}
			if err := JudgeDirectory(data); err == nil {
				t.Error("it verifies with another file than the digest is of")
			}
		})
	}
}

// Segments that were moved to an archive are not needed for the digests of later ones.
func TestDigestsWithoutArchivedSegments(t *testing.T) {
	t.Parallel()
	data := memory(t)
	l := mustOpen(t, data, Options{})
	for range 7 {
		mustAppend(t, l, entryOf("", true), entryOf("", false))
		if err := l.Rotate(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for n := range uint64(6) {
		if err := os.Rename(segmentPath(data, n+1), segmentPath(data, n+1)+".away"); err != nil {
			t.Fatal(err)
		}
	}
	var told []error
	l = mustOpen(t, data, Options{On: Hooks{Failure: func(err error) { told = append(told, err) }}})
	for range 3 {
		mustAppend(t, l, entryOf("", true), entryOf("", false))
		if err := l.Rotate(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := l.Status().Altered; n != 0 {
		t.Errorf("%d segments count as altered", n)
	}
	if err := l.Close(); err != nil || told != nil {
		t.Error(err, told)
	}
}

// What no hash covers cannot be told apart from what was written, before the digest is on
// record: the format says so. From then on it can.
func TestWhatNoHashCovers(t *testing.T) {
	t.Parallel()
	data := memory(t)
	sealOnly(t, data, 1)
	ids := func(t *testing.T, tx *bbolt.Tx) {
		c := tx.Bucket([]byte(BucketIDs)).Cursor()
		k, _ := c.Last()
		if err := tx.Bucket([]byte(BucketIDs)).Delete(bytes.Clone(k)); err != nil {
			t.Error(err)
		}
	}
	alter(t, segmentPath(data, 1), ids)
	if err := mustOpen(t, data, Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	if err := JudgeDirectory(data); err != nil {
		t.Error(err)
	}
	alter(t, segmentPath(data, 1), ids)
	if err := JudgeDirectory(data); err == nil {
		t.Error("it verifies with another digest than the one on record")
	}
}

// alter changes a sealed file.
func alter(t *testing.T, path string, change func(*testing.T, *bbolt.Tx)) {
	t.Helper()
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := openFile(path, boltfile.ToWrite, bbolt.Options{Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error { change(t, tx); return nil })
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

// idIn is the id of a record, "" where it has no content.
func idIn(t *testing.T, l *Log, sequence uint64) string {
	t.Helper()
	record, err := l.Get(sequence)
	if errors.Is(err, ErrGone) {
		return ""
	}
	s, unread := Parse(record.Line)
	if err := errors.Join(err, unread); err != nil {
		t.Fatal(err)
	}
	return s.ID
}

// linesOf are the records that have content.
func linesOf(t *testing.T, data string) (lines [][]byte) {
	t.Helper()
	r, err := OpenReader(data)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	for record, err := range r.Records(t.Context(), 0, r.Size()) {
		if err != nil {
			t.Fatal(err)
		}
		if record.Line != nil {
			lines = append(lines, record.Line)
		}
	}
	return lines
}

// A digest that takes long keeps nobody from writing, and no segment from being sealed.
func TestNobodyWaitsForADigest(t *testing.T) {
	t.Parallel()
	data := memory(t)
	l := mustOpen(t, data, Options{})
	mustAppend(t, l, entryOf("", true))
	first := l.all()[0]
	first.mu.Lock() // so that it cannot be read
	for range 3 {
		if err := l.Append(t.Context(), []Entry{entryOf("", true)}); err != nil {
			t.Fatal(err)
		}
		if err := l.writer.order(t.Context(), l.writer.rotate); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Append(t.Context(), []Entry{entryOf("", true)}); err != nil {
		t.Fatal(err)
	}
	if all, open := l.writer.digests.list(); !slices.Equal(all, upTo(3)) || !slices.Equal(open, upTo(3)) {
		t.Errorf("the digests of %d are not on record, and those of %d are to be", all, open)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.writer.digests.wait(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("a wait for the digest: %v", err)
	}
	first.mu.Unlock()
	if err := l.writer.digests.wait(t.Context(), 3); err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if got := digested(t, verify(t, data)); !slices.Equal(got, upTo(3)) {
		t.Errorf("digests of the segments %d are on record", got)
	}
}

// Closing a log waits for the digests of what was sealed up to its end.
func TestCloseWaitsForDigests(t *testing.T) {
	t.Parallel()
	data := memory(t)
	l := mustOpen(t, data, Options{})
	for range 3 {
		mustAppend(t, l, thousand()...)
		if err := l.writer.order(t.Context(), l.writer.rotate); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if got := digested(t, verify(t, data)); !slices.Equal(got, upTo(3)) {
		t.Errorf("digests of the segments %d are on record", got)
	}
}

// In silence no segment is sealed for its age, not even for the record of a digest.
func TestDigestsNeedNoSegments(t *testing.T) {
	t.Parallel()
	rotated, commits := make(chan struct{}, 100), make(chan struct{})
	l := mustOpen(t, memory(t), Options{
		SegmentAge:  time.Millisecond,
		Checkpoints: Checkpoints{Every: time.Millisecond, Idle: time.Millisecond},
		RetryEvery:  time.Millisecond,
		On: Hooks{
			Rotate: func(uint64, time.Duration) { rotated <- struct{}{} },
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
	if err := l.writer.digests.wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	for range 20 { // checkpoints
		<-commits
	}
	if n, size := len(l.Segments()), l.Size(); n != 2 || size != 4 {
		t.Errorf("%d segments with %d records, want 2 with 4", n, size)
	}
}

// A segment that cannot be read for a while is not altered: its digest is recorded when it
// can be read again, without a restart.
func TestDigestAfterAFileWasAway(t *testing.T) {
	t.Parallel()
	data := memory(t)
	told := make(chan error, 100)
	l := mustOpen(t, data, Options{
		RetryEvery: 5 * time.Millisecond,
		On: Hooks{
			Failure: func(err error) {
				select {
				case told <- err:
				default:
				}
			},
		},
	})
	mustAppend(t, l, entry("a"), entry("b"))
	path := segmentPath(data, 1)
	away := path + ".away"
	if err := os.Rename(path, away); err != nil {
		t.Fatal(err)
	}
	if err := l.Rotate(t.Context()); err != nil {
		t.Fatal(err) // the records go on, whatever becomes of the digest
	}
	if err := <-told; !errors.Is(err, ErrUndigested) || errors.Is(err, ErrDamaged) {
		t.Errorf("told %v", err)
	}
	if err := os.Rename(away, path); err != nil {
		t.Fatal(err)
	}
	for {
		l.writer.digests.mu.Lock()
		left, changed := slices.Contains(l.writer.digests.segments, 1), l.writer.digests.changed
		l.writer.digests.mu.Unlock()
		if !left {
			break
		}
		select {
		case <-changed:
		case <-time.After(time.Minute):
			t.Fatal("no digest was recorded")
		}
	}
	if n := l.Status().Altered; n != 0 {
		t.Errorf("%d segments count as altered", n)
	}
}

// While the log cannot be written no digest gets on record, so a call that waits for one ends.
func TestAWaitForADigestEndsIfTheLogFails(t *testing.T) {
	t.Parallel()
	l := mustOpen(t, memory(t), Options{RetryEvery: 5 * time.Millisecond})
	mustAppend(t, l, entryOf("", true))
	if err := l.writer.order(t.Context(), func() error {
		l.writer.digests.set([]uint64{1})
		_ = l.writer.fail(ErrDamaged) // it is not tried again for a minute
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := l.writer.digests.wait(ctx, 1); !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrDamaged) {
		t.Errorf("got %v", err)
	}
}

// replaceBy puts a copy of a segment with a change in the place of its file.
func replaceBy(t *testing.T, path string, change func(*bbolt.Tx) error) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	next := path + ".changed"
	if err := os.WriteFile(next, content, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(next, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Update(change), db.Close(), os.Rename(next, path)); err != nil {
		t.Fatal(err)
	}
}

// The file whose digest is recorded is the file that was checked, also if this process still has an older one open.
func TestADigestIsThatOfTheFileThatWasChecked(t *testing.T) {
	t.Parallel()
	data := memory(t)
	sealOnly(t, data, 2)
	l := mustOpen(t, data, Options{})
	l.writer.digests.stop()
	tree := l.writer.tail.edge.clone()
	mustGet(t, l.Reader, 1) // opens it
	replaceBy(t, segmentPath(data, 1), func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(BucketRecords)).Put(number(1), []byte(`{"sequence":1}`))
	})
	if file, err := l.writer.digests.of(t.Context(), 1, tree); !errors.Is(err, ErrDamaged) {
		t.Errorf("got %+v, %v", file, err)
	}
}

// A file that has the name of a segment only while it is hashed does not get its digest on record.
func TestNoDigestOfAFileThatWasThereForAMoment(t *testing.T) {
	t.Parallel()
	data := memory(t)
	sealOnly(t, data, 2)
	l := mustOpen(t, data, Options{})
	l.writer.digests.stop()
	tree := l.writer.tail.edge.clone()
	path := segmentPath(data, 1)
	if err := os.Link(path, path+".good"); err != nil {
		t.Fatal(err)
	}
	replaceBy(t, path, func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(BucketRecords)).Put(number(1), []byte(`{"sequence":1}`))
	})
	sealed := l.Segments()[0]
	_, hashed, err := fileOf(sealed, path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".good", path); err != nil {
		t.Fatal(err)
	}
	if err := l.writer.digests.check(t.Context(), sealed, hashed, tree); err == nil {
		t.Error("the digest of the altered file passes the check of the good one")
	}
	file, err := l.writer.digests.of(t.Context(), 1, tree)
	if good, _, _ := fileOf(sealed, path); err != nil || file != good {
		t.Errorf("the digest of the good one: %+v, %v", file, err)
	}
}
