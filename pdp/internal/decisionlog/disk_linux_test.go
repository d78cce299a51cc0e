package decisionlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/journal"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/pdptest/memorydisk"
)

// disk is a log on a disk that fails, and what was acknowledged.
type disk struct {
	l     *Log
	dir   string
	ids   []string
	state chan error
	once  bool // it is on record once that it resumed
}

func onDisk(t *testing.T, dir string, o Options) *disk {
	t.Helper()
	d := &disk{dir: dir, state: make(chan error, 1000)}
	o.RetryEvery = 5 * time.Millisecond
	o.On.State = func(err error) { d.state <- err }
	d.l = mustOpen(t, dir, o)
	return d
}

// untilFails appends until that fails.
func (d *disk) untilFails(t *testing.T) {
	t.Helper()
	for range 100_000 {
		id := fmt.Sprint("id", len(d.ids))
		if err := d.l.Append(t.Context(), []record.Entry{entry(id)}); err == nil {
			d.ids = append(d.ids, id)
		} else if errors.Is(err, segment.ErrUnavailable) {
			if told := <-d.state; told == nil { // before who waits
				t.Errorf("it says that it can be written: %v", err)
			}
			// A little may fit on the disk still: then it has resumed by now.
			if s := d.l.Status(); s.OK != (s.Err == nil) || s.Refused == 0 {
				t.Errorf("after %v the status is %+v", err, s)
			}
			return
		} else {
			t.Fatal(err)
		}
	}
	t.Fatal("the disk never failed")
}

// resumes waits until the log can be written again, and says so. It may have said so
// before, and failed again, while there was next to no space.
func (d *disk) resumes(t *testing.T) {
	t.Helper()
	deadline, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		select {
		case err := <-d.state:
			if err != nil {
				continue
			}
		case <-deadline.Done():
			t.Fatalf("it does not resume: %+v", d.l.Status())
		}
		err := d.l.Append(t.Context(), []record.Entry{{Kind: format.KindAdmin, Event: "again"}}) // which waits in best effort, too
		if err == nil {
			return
		}
		if !errors.Is(err, segment.ErrUnavailable) {
			t.Fatal(err)
		}
	}
}

// whole closes the log and looks for all that was acknowledged.
func (d *disk) whole(t *testing.T, class string) {
	t.Helper()
	mustAppend(t, d.l, entry("after"))
	must(t, d.l.Close())
	lines, there := verify(t, d.dir), map[string]bool{}
	for _, line := range lines {
		there[idOf(line)] = true
	}
	for _, id := range append(d.ids, "after") {
		if !there[id] {
			t.Errorf("%s is missing", id)
		}
	}
	all := bytes.Join(lines, []byte("\n"))
	if !bytes.Contains(all, []byte(format.EventResumed)) || !bytes.Contains(all, []byte(`"error":"`+class+`"`)) {
		t.Errorf("it is not on record that writing failed (%s): %s", class, d.l.Status().Err)
	}
	if n := bytes.Count(all, []byte(format.EventResumed)); d.once && n != 1 {
		t.Errorf("it resumed once, and it is on record %d times", n)
	}
}

// broken is a disk that cannot be written to for a while.
type broken struct {
	size  string // of the disk, "" is that of the memory
	class string // what goes on record
	o     Options
	// breaks returns what makes it whole again, before which it may assert more.
	breaks func(t *testing.T, d *disk) (mend func())
}

// meets has a log on the disk. Who is refused is told so, and afterwards all that was answered is on record.
func (b broken) meets(t *testing.T) {
	dir := memory(t)
	if b.size != "" {
		dir = memorydisk.New(t, b.size)
	}
	d := onDisk(t, dir, b.o)
	for range 20 {
		d.ids = append(d.ids, fmt.Sprint("id", len(d.ids)))
		mustAppend(t, d.l, entry(d.ids[len(d.ids)-1]))
	}
	mend := b.breaks(t, d)
	d.untilFails(t)
	mend()
	d.resumes(t)
	d.whole(t, b.class)
}

func TestDisks(t *testing.T) {
	t.Parallel()
	full := func(t *testing.T, d *disk) func() {
		mend := ballast(t, d.dir)
		return func() {
			if _, err := d.l.Get(0); err != nil && !errors.Is(err, segment.ErrUnavailable) {
				t.Error(err)
			}
			mend()
		}
	}
	var noRoom atomic.Bool
	openFile := func(name string, flag int, mode fs.FileMode) (journal.File, error) {
		if noRoom.Load() {
			return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.ENOSPC}
		}
		return os.OpenFile(name, flag, mode)
	}
	for name, b := range map[string]broken{
		"full within a segment": {"size=3m", "disk_full", Options{Journal: journal.Options{Size: journal.MinSize}}, full},
		"full between two": {
			"size=3m", "disk_full", Options{SegmentBytes: 500_000, Journal: journal.Options{Size: journal.MinSize}}, full,
		},
		"no room for a journal": {
			"", "disk_full", Options{Journal: journal.Options{OpenFile: openFile}},
			func(t *testing.T, d *disk) func() { return withoutJournal(t, d, &noRoom) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b.meets(t)
		})
	}
}

// ballast takes a megabyte of a disk, until it is removed.
func ballast(t *testing.T, dir string) (remove func()) {
	t.Helper()
	name := filepath.Join(dir, "ballast")
	must(t, os.WriteFile(name, make([]byte, 1<<20), 0o600))
	return func() { must(t, os.Remove(name)) }
}

// withoutJournal takes the room for a journal, while there is some in the segment. The log puts nothing on record again and
// again.
func withoutJournal(t *testing.T, d *disk, noRoom *atomic.Bool) (mend func()) {
	noRoom.Store(true)
	w := d.l.writer
	if err := w.runHeld(t.Context(), func() error { return w.fail(syscall.ENOSPC) }); err == nil {
		t.Error("it has not failed")
	}
	had := d.l.Size()
	for range 5 { // it tries again
		if err := <-d.state; err == nil {
			t.Error("it resumes without a journal")
		}
	}
	if now := d.l.Size(); now != had {
		t.Errorf("%d records became %d", had, now)
	}
	d.once = true
	return func() { noRoom.Store(false) }
}

// readOnly mounts the disk again. A file system with a file open for writing refuses that, so the log is made to let go of
// its own; the writer stands still meanwhile.
func readOnly(t *testing.T, d *disk) (mend func()) {
	must(t, d.l.writer.runHeld(t.Context(), func() error {
		d.l.writer.fail(syscall.EIO)
		return unix.Mount("", d.dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, "")
	}))
	return func() {
		if s := d.l.Status(); s.OK || s.Err == nil {
			t.Errorf("the status is %+v", s)
		}
		for err := range d.state {
			if err == nil {
				t.Fatal("it writes to what cannot be written")
			}
			if errors.Is(err, syscall.EROFS) { // the error that was made above came first
				break
			}
		}
		must(t, unix.Mount("", d.dir, "", unix.MS_REMOUNT, ""))
	}
}

// TestReadOnlyRemount runs beside no other test: a process that is started then has the files of the disk open for a moment.
func TestReadOnlyRemount(t *testing.T) {
	broken{size: "size=16m", class: "read_only", breaks: readOnly}.meets(t)
}

// TestFileSizeLimit runs in a process of its own, which the limit is for.
func TestFileSizeLimit(t *testing.T) {
	if os.Getenv("DECISIONLOG_LIMITED") == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFileSizeLimit$", "-test.v")
		cmd.Env = append(os.Environ(), "DECISIONLOG_LIMITED=1")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	limit := func(t *testing.T, n uint64) {
		t.Helper()
		must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: n, Max: unix.RLIM_INFINITY}))
	}
	broken{class: "disk_full", breaks: func(t *testing.T, _ *disk) func() {
		limit(t, 5<<20)
		return func() { limit(t, unix.RLIM_INFINITY) }
	}}.meets(t)
}

// TestBestEffort: what is dropped while the disk is full is counted, dated and recorded.
func TestBestEffort(t *testing.T) {
	t.Parallel()
	d := onDisk(t, memorydisk.New(t, "size=3m"), Options{Mode: BestEffort, Journal: journal.Options{Size: journal.MinSize}})
	remove, sent := ballast(t, d.dir), 0
	for ; d.l.Status().Dropped == 0; sent++ {
		must(t, d.l.Append(t.Context(), []record.Entry{entry(fmt.Sprint(sent))}))
		if sent%50 == 0 { // so that it is the disk that is full, and not the queue
			if err := d.l.Flush(t.Context()); err != nil && !errors.Is(err, segment.ErrUnavailable) {
				t.Fatal(err)
			}
		}
	}
	remove()
	d.resumes(t) // and all that was sent before is written or dropped
	dropped := d.l.Status().Dropped
	must(t, d.l.Close())
	recorded, said := 0, uint64(0)
	for _, line := range verify(t, d.dir) {
		if bytes.Contains(line, []byte(`"kind":"decision"`)) {
			recorded++
		}
		if _, n, ok := bytes.Cut(line, []byte(`"dropped":`)); ok {
			var one uint64
			if _, err := fmt.Sscanf(string(n), "%d", &one); err != nil || !bytes.Contains(line, []byte(`"dropped_first":"20`)) {
				t.Errorf("%s: %v", line, err)
			}
			said += one
		}
	}
	if uint64(sent) != uint64(recorded)+dropped || said != dropped || dropped == 0 {
		t.Errorf("%d sent, %d recorded, %d dropped, %d of them on record", sent, recorded, dropped, said)
	}
}
