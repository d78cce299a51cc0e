package decisionlog

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"policy-service/pdp/internal/decisionlog/journal"
)

// faults are those of a disk that has the journal: some of what is asked of it fails.
type faults struct {
	mu    sync.Mutex
	asked int // how often something was asked: a file, a write, a sync
	from  int // the first that fails
	until int // the first that does not
	had   int // how many failed
	state chan error
}

func newFaults(from, many int) *faults {
	return &faults{from: from, until: from + many, state: make(chan error, 10_000)}
}

// options are those of a log on the disk.
func (f *faults) options(o Options) Options {
	o.Journal = journal.Options{Size: journal.MinSize, OpenFile: f.open}
	o.RetryEvery = time.Millisecond
	o.On.State = func(err error) { f.state <- err }
	return o
}

// fails reports whether what is asked now fails.
func (f *faults) fails() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	if f.asked <= f.from || f.asked > f.until {
		return false
	}
	f.had++
	return true
}

// next has what is asked next fail, so many times.
func (f *faults) next(many int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.from, f.until = f.asked, f.asked+many
}

// happened reports whether anything failed.
func (f *faults) happened() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.had > 0
}

// resumes waits until the log can be written again.
func (f *faults) resumes() {
	for err := range f.state {
		if err == nil {
			return
		}
	}
}

func (f *faults) open(name string, flag int, mode fs.FileMode) (journal.File, error) {
	if f.fails() {
		return nil, syscall.EMFILE
	}
	file, err := os.OpenFile(name, flag, mode)
	if err != nil {
		return nil, err
	}
	return &faulty{file, f}, nil
}

// faulty is a file on the disk.
type faulty struct {
	*os.File
	faults *faults
}

// WriteAt fails after half of what it should write. Sometimes it does not say so.
func (f *faulty) WriteAt(b []byte, at int64) (int, error) {
	if !f.faults.fails() {
		return f.File.WriteAt(b, at)
	}
	n, err := f.File.WriteAt(b[:len(b)/2], at)
	if err == nil && len(b)%(2<<12) == 0 {
		err = syscall.ENOSPC
	}
	return n, err
}

// Sync fails after all was written, so that a frame nobody was answered for is whole.
func (f *faulty) Sync() error {
	if f.faults.fails() {
		return syscall.EIO
	}
	return nil
}

// TestEachFaultOfTheJournal: whatever the journal asks of the disk first fails, from the moment the log is opened until it
// is closed. Who is refused is told so, the log goes on after that, and on record is what was answered, once, and nothing
// that was refused. If the process ends while writing fails, the next one finds what was answered.
func TestEachFaultOfTheJournal(t *testing.T) {
	t.Parallel()
	kinds := map[string]int{}
	for _, c := range []struct {
		many, step int
		killed     bool
	}{{1, 1, false}, {9, 4, false}, {1, 2, true}} {
		step := c.step
		if testing.Short() {
			step += 3
		}
		for from := 0; ; from += step {
			f := newFaults(from, c.many)
			kinds[fault(t, f, c.killed)]++
			if !f.happened() {
				break
			}
			if t.Failed() {
				t.Fatalf("that was %+v from %d", c, from)
			}
		}
	}
	t.Log(kinds)
	for _, kind := range []string{"open", "append", "close", "none"} {
		if kinds[kind] == 0 {
			t.Errorf("nothing failed at: %s", kind)
		}
	}
}

// fault has one log on a disk with faults. It returns where the log first told somebody of one.
func fault(t *testing.T, f *faults, killed bool) (first string) {
	t.Helper()
	data := memory(t)
	defer func() { _ = os.RemoveAll(data) }()
	told := func(where string) { first = cmp.Or(first, where) }
	var l *Log
	for l == nil {
		var err error
		if l, err = Open(data, f.options(Options{SegmentBytes: 150_000})); err != nil {
			if told("open"); !f.happened() {
				t.Fatal(err)
			}
		}
	}
	answered, refused := map[string]bool{}, map[string]bool{}
	for i := range 26 {
		e := entry(fmt.Sprint(i))
		e.Request.Context = []byte(`"` + strings.Repeat("x", 1+i%4*9_000) + `"`)
		if i == 13 { // which is not for the journal
			e = Entry{ID: e.ID, Kind: KindAdmin, Event: "data_read"}
		}
		err := l.Append(t.Context(), []Entry{e})
		if i == 16 && err == nil {
			if err := l.writer.order(t.Context(), l.writer.eraseJournal); err != nil {
				told("erase")
				f.resumes()
			}
		}
		if err == nil {
			answered[e.ID] = true
			continue
		}
		refused[e.ID] = true
		if told("append"); !errors.Is(err, ErrUnavailable) {
			t.Fatal(err)
		}
		if killed {
			break
		}
		f.resumes()
	}
	if killed {
		crash(l)
	} else if err := l.Close(); err != nil {
		told("close")
	}
	for range 2 { // what could not be erased is judged when the log is opened again
		l := mustOpen(t, data, Options{})
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := JudgeDirectory(data); err != nil {
		t.Error(err)
	}
	there := recordsOf(t, data)
	for id := range answered {
		if there[id] != 1 {
			t.Errorf("%s was answered, and is there %d times", id, there[id])
		}
	}
	for id := range refused {
		if there[id] > 1 || there[id] == 1 && !killed {
			t.Errorf("%s was refused, and is there %d times", id, there[id])
		}
	}
	return cmp.Or(first, "none")
}

// recordsOf is how often a closed log has each id.
func recordsOf(t *testing.T, data string) map[string]int {
	t.Helper()
	there := map[string]int{}
	for _, line := range verify(t, data) {
		there[idOf(line)]++
	}
	return there
}
