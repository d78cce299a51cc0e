package decisionlog

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/decisionlog/journal"
)

// TestAFullFileIsFilled: when a file of the journal is full, the segment is filled at once, so that the file can be used
// again before the other one is full, too.
func TestAFullFileIsFilled(t *testing.T) {
	t.Parallel()
	l := mustOpen(t, memory(t), Options{
		Journal:     journal.Options{Size: journal.MinSize},
		Checkpoints: Checkpoints{Every: time.Hour, Idle: time.Hour},
	})
	large := entry("")
	large.Request.Context = jsontext.Value(`"` + strings.Repeat("x", 20<<10) + `"`)
	had := l.Size()
	for n := range journal.MinSize / (20 << 10) {
		large.ID = fmt.Sprint("id", n)
		if err := l.Append(t.Context(), []Entry{large}); err != nil {
			t.Fatal(err)
		}
		f := l.writer.frames
		f.mu.Lock()
		f.backlog.due.Stop() // so that nothing is filled because it is time
		f.mu.Unlock()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := l.Beyond(ctx, had); err != nil {
		t.Error("nothing was filled: ", err)
	}
}

// TestNoRoomForAJournal: while there is room in the segment and none for a journal, nothing is answered, and nothing
// is put on record again and again.
func TestNoRoomForAJournal(t *testing.T) {
	t.Parallel()
	var full atomic.Bool
	d := onDisk(t, memory(t), Options{Journal: journal.Options{OpenFile: func(name string, flag int, mode fs.FileMode) (journal.File, error) {
		if full.Load() {
			return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.ENOSPC}
		}
		return os.OpenFile(name, flag, mode)
	}}})
	mustAppend(t, d.l, entry("before"))
	d.ids = append(d.ids, "before")
	full.Store(true)
	w := d.l.writer
	if err := w.order(t.Context(), func() error { return w.fail(syscall.ENOSPC) }); err == nil {
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
	d.untilFails(t)
	full.Store(false)
	d.resumes(t)
	d.whole(t, "disk_full")
	if all := bytes.Join(verify(t, d.dir), nil); bytes.Count(all, []byte(EventResumed)) != 1 {
		t.Errorf("it resumed once: %s", all)
	}
}
