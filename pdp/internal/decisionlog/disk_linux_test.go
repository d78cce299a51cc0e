package decisionlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"policy-service/pdp/internal/decisionlog/journal"
	"policy-service/pdp/pdptest/memorydisk"
)

// disk is a log on a disk that fails, and what was acknowledged.
type disk struct {
	l     *Log
	dir   string
	ids   []string
	state chan error
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
		if err := d.l.Append(t.Context(), []Entry{entry(id)}); err == nil {
			d.ids = append(d.ids, id)
		} else if errors.Is(err, ErrUnavailable) {
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
		err := d.l.Append(t.Context(), []Entry{{Kind: KindAdmin, Event: "again"}}) // which waits in best effort, too
		if err == nil {
			return
		}
		if !errors.Is(err, ErrUnavailable) {
			t.Fatal(err)
		}
	}
}

// whole closes the log and looks for all that was acknowledged.
func (d *disk) whole(t *testing.T, class string) {
	t.Helper()
	mustAppend(t, d.l, entry("after"))
	if err := d.l.Close(); err != nil {
		t.Fatal(err)
	}
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
	if !bytes.Contains(all, []byte(EventResumed)) || !bytes.Contains(all, []byte(`"error":"`+class+`"`)) {
		t.Errorf("it is not on record that writing failed (%s): %s", class, d.l.Status().Err)
	}
}

func TestDiskFull(t *testing.T) {
	t.Parallel()
	for _, segment := range []int64{64 << 20, 500_000} { // full within a segment, and between two
		d := onDisk(t, memorydisk.New(t, "size=3m"), Options{SegmentBytes: segment, Journal: journal.Options{Size: journal.MinSize}})
		ballast := filepath.Join(d.dir, "ballast")
		if err := os.WriteFile(ballast, make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		d.untilFails(t)
		if _, err := d.l.Get(0); err != nil && !errors.Is(err, ErrUnavailable) {
			t.Error(err)
		}
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		d.resumes(t)
		d.whole(t, "disk_full")
	}
}

func TestReadOnlyRemount(t *testing.T) {
	dir := memorydisk.New(t, "size=16m")
	d := onDisk(t, dir, Options{})
	for i := range 20 {
		d.ids = append(d.ids, fmt.Sprint("id", i))
		mustAppend(t, d.l, entry(d.ids[i]))
	}
	// A file system with a file open for writing refuses to be remounted, so the
	// log is made to let go of its own; the writer stands still meanwhile.
	err := d.l.writer.order(t.Context(), func() error {
		d.l.writer.fail(syscall.EIO)
		return unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, "")
	})
	if err != nil {
		t.Fatal(err)
	}
	d.untilFails(t)
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
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT, ""); err != nil {
		t.Fatal(err)
	}
	d.resumes(t)
	d.whole(t, "read_only")
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
	d := onDisk(t, memory(t), Options{})
	limit := func(n uint64) {
		t.Helper()
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: n, Max: unix.RLIM_INFINITY}); err != nil {
			t.Fatal(err)
		}
	}
	limit(5 << 20)
	d.untilFails(t)
	limit(unix.RLIM_INFINITY)
	d.resumes(t)
	d.whole(t, "disk_full")
}

// TestBestEffort: what is dropped while the disk is full is counted, dated and recorded.
func TestBestEffort(t *testing.T) {
	t.Parallel()
	d := onDisk(t, memorydisk.New(t, "size=3m"), Options{Mode: BestEffort, Journal: journal.Options{Size: journal.MinSize}})
	ballast := filepath.Join(d.dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	sent := 0
	for ; d.l.Status().Dropped == 0; sent++ {
		if err := d.l.Append(t.Context(), []Entry{entry(fmt.Sprint(sent))}); err != nil {
			t.Fatal(err)
		}
		if sent%50 == 0 { // so that it is the disk that is full, and not the queue
			if err := d.l.Flush(t.Context()); err != nil && !errors.Is(err, ErrUnavailable) {
				t.Fatal(err)
			}
		}
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	d.resumes(t) // and all that was sent before is written or dropped
	dropped := d.l.Status().Dropped
	if err := d.l.Close(); err != nil {
		t.Fatal(err)
	}
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
