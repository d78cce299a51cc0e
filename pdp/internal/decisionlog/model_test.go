package decisionlog

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
	"strings"
	"testing"
	"time"
)

// TestModel does random things to a log and to a slice of ids, and compares. In some of them the disk that has the journal
// fails again and again.
func TestModel(t *testing.T) {
	t.Parallel()
	seeds, steps := uint64(6), 250
	if testing.Short() {
		seeds, steps = 4, 60
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			model(t, rand.New(rand.NewPCG(seed, 0)), steps, seed%2 == 1)
		})
	}
}

func model(t *testing.T, random *rand.Rand, steps int, failing bool) {
	data, disk := memory(t), newFaults()
	options := disk.options(Options{SegmentBytes: int64(random.IntN(400_000) + 60_000), Checkpoints: Checkpoints{Records: random.IntN(40) + 1, Idle: time.Millisecond}})
	ids, late := map[uint64]string{}, []string(nil)
	l := mustOpen(t, data, options)
	// works reports whether something was done. If it was not, the log can be written to again.
	works := func(err error) bool {
		if err != nil && (!failing || !errors.Is(err, segment.ErrUnavailable)) {
			t.Fatal(err)
		}
		if err != nil {
			disk.resumes()
		}
		return err == nil
	}
	// look finds out where the records stand that nobody has looked for yet.
	look := func() {
		disk.next(0, 0)
		for !works(l.Flush(t.Context())) { // what failed behind the last one
		}
		for _, id := range late {
			ids[sequenceOf(t, l, id)] = id
		}
		late = nil
	}
	for step := range steps {
		if failing && random.IntN(12) == 0 {
			disk.next(1+random.IntN(4), 0)
		}
		switch random.IntN(20) {
		case 0:
			disk.next(0, 0) // what fails then is for another test
			if err := l.Close(); err != nil && !failing {
				t.Fatal(err)
			}
			l = mustOpen(t, data, options)
		case 1:
			works(l.Rotate(t.Context()))
		case 2:
			if c, err := l.Checkpoint(t.Context()); works(err) && len(c) == 0 {
				t.Fatal("it has no text")
			}
		case 3:
			_, err := l.RotateKey(t.Context(), "")
			works(err)
		case 4:
			crash(l)
			disk.next(0, 0)
			l = mustOpen(t, data, options)
		default:
			var entries []record.Entry
			if random.IntN(3) == 0 {
				entries, _ = aBatch(fmt.Sprintf("b%d", step), "default", random.IntN(30), random.IntN)
			}
			for i := range random.IntN(30) + 1 - len(entries) {
				e := entry(fmt.Sprintf("%d.%d", step, i))
				e.Request.Context = []byte(`"` + strings.Repeat("x", random.IntN(3000)) + `"`)
				entries = append(entries, e)
			}
			if works(l.Append(t.Context(), entries)) {
				for _, e := range entries {
					late = append(late, e.ID)
				}
			}
		}
		if step%10 == 0 {
			look()
			compare(t, l.Reader, ids, random)
		}
	}
	look()
	if failing != disk.happened() {
		t.Errorf("the disk failed: %v", !failing)
	}
	disk.next(0, 0)
	must(t, l.Close())
	others := 0
	for n, line := range verify(t, data) {
		if id, ok := ids[uint64(n)]; ok {
			if !bytes.Contains(line, []byte(`"id":"`+id+`"`)) {
				t.Fatalf("record %d is not %s: %s", n, id, line)
			}
			delete(ids, uint64(n))
		} else if others++; !bytes.Contains(line, []byte(`"kind":"admin"`)) {
			t.Fatalf("nobody wrote %s", line)
		}
	}
	if len(ids) > 0 {
		t.Fatalf("%d records are missing", len(ids))
	}
}

func compare(t *testing.T, r *segment.Reader, ids map[uint64]string, random *rand.Rand) {
	t.Helper()
	for n, id := range ids { // any three
		if record, err := r.ByID(id); err != nil || record.Sequence != n {
			t.Fatalf("%s is record %d, not %d: %v", id, record.Sequence, n, err)
		}
		if i, err := r.Recorded(mustGet(t, r, n)); err != nil || len(i.Inherits) > 0 && (i.Gone != nil || i.Batch.Line == nil) {
			t.Fatalf("record %d: %+v, %v", n, i, err)
		}
		if record, err := r.Get(n); err != nil || !bytes.Contains(record.Line, []byte(`"id":"`+id+`"`)) {
			t.Fatalf("record %d: %s, %v", n, record.Line, err)
		}
		if random.IntN(3) == 0 {
			break
		}
	}
}

func mustGet(t *testing.T, r *segment.Reader, n uint64) []byte {
	t.Helper()
	record, err := r.Get(n)
	must(t, err)
	return record.Line
}

// crash leaves a log as a process does that ends at once.
func crash(l *Log) {
	l.writer.queue.ending.Lock()
	l.writer.queue.closed = true
	l.writer.queue.ending.Unlock()
	close(l.writer.life.stop)
	<-l.writer.life.done
	l.abandon()
}

// TestDamage cuts, overwrites and flips bits of a segment: what comes is an
// error or the log as it was, never a panic.
func TestDamage(t *testing.T) {
	data := memory(t)
	l := mustOpen(t, data, Options{Checkpoints: Checkpoints{Records: 10}})
	for i := range 50 {
		mustAppend(t, l, entry(fmt.Sprint(i)))
	}
	var size int64
	if err := errors.Join(l.writer.runHeld(t.Context(), func() error { size = l.writer.active.Size; return nil }), l.Close()); err != nil {
		t.Fatal(err)
	}
	name := segment.FilePath(data, 1)
	good, err := os.ReadFile(name)
	must(t, err)
	good = good[:size] // what comes after it is empty
	random := rand.New(rand.NewPCG(1, 2))
	failed := 0
	for round := range 120 {
		bad := bytes.Clone(good)
		at := random.IntN(len(bad) / 4096 * 4096)
		switch round % 4 {
		case 0:
			bad = bad[:at]
		case 1:
			bad[at] ^= 1 << random.IntN(8)
		case 2:
			for i := range 4096 {
				bad[at/4096*4096+i] = byte(random.Uint32())
			}
		case 3:
			copy(bad[at/4096*4096:], make([]byte, 4096))
		}
		if err := damaged(t, name, bad); errors.Is(err, segment.ErrLocked) {
			t.Fatalf("round %d: a lock was left behind: %v", round, err)
		} else if err != nil {
			failed++
		}
	}
	t.Logf("%d of 120 were noticed at once", failed)
	if failed < 40 {
		t.Errorf("of 30 cut files and 60 poisoned pages only %d were noticed", failed)
	}
}

func damaged(t *testing.T, name string, bad []byte) error {
	t.Helper()
	must(t, os.WriteFile(name, bad, 0o600))
	data := filepath.Dir(filepath.Dir(name))
	r, err := segment.OpenReader(data)
	if err == nil {
		for _, e := range r.Records(t.Context(), 0, r.Size()) {
			err = errors.Join(err, e)
		}
		_, e := r.ByID("7")
		err = errors.Join(err, e, r.Close())
	}
	l, e := Open(data, Options{LockTimeout: time.Millisecond})
	if e == nil {
		e = l.Append(t.Context(), []record.Entry{entry("more")})
		_ = l.Close()
	}
	return errors.Join(err, e)
}
