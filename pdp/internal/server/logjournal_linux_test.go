package server_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/journal"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/memorydisk"
)

// fullFile is a file of the journal on a disk that is full for the file of one name.
type fullFile struct {
	*os.File
	full *atomic.Pointer[string]
}

func (f fullFile) WriteAt(b []byte, at int64) (int, error) {
	if filepath.Base(f.Name()) == *f.full.Load() {
		return 0, &fs.PathError{Op: "write", Path: f.Name(), Err: syscall.ENOSPC}
	}
	return f.File.WriteAt(b, at)
}

// TestFullDiskAtEachFile: whichever file has no room, nothing is answered that has no record. When there is room again,
// it goes on, and each answer is on record once.
func TestFullDiskAtEachFile(t *testing.T) {
	t.Parallel()
	data := memorydisk.New(t, "size=24m")
	var full atomic.Pointer[string]
	is := func(name string) { full.Store(&name) }
	is("")
	s := pdptest.Start(t, telling(), withData(data), func(c *server.Config) {
		server.TuneLog(c, func(o *decisionlog.Options, _ *decisionlog.Retention) {
			o.SegmentBytes, o.RetryEvery = 2<<20, time.Millisecond
			o.Journal = journal.Options{Size: journal.MinSize, OpenFile: func(name string, flag int, mode fs.FileMode) (journal.File, error) {
				f, err := os.OpenFile(name, flag, mode)
				return fullFile{f, &full}, err
			}}
		})
	})
	answered := 0
	ask := func() int {
		got := s.Post(evaluationPath, one(24<<10))
		switch {
		case got.Status == 200:
			answered++
		case got.Status != 503 || strings.Contains(got.Body, `"decision"`):
			t.Fatalf("got %d %s", got.Status, got.Body)
		}
		return got.Status
	}
	refuses := func(where string) {
		t.Helper()
		for n := 0; ask() == 200; n++ {
			if n > 10_000 {
				t.Fatalf("%s is full, and it answers", where)
			}
		}
	}
	resumes := func(where string) {
		t.Helper()
		eventually(t, "there is room for "+where, func() bool { return ask() == 200 })
	}
	for _, path := range journal.Paths("") {
		is(path)
		refuses(path)
		for range 3 {
			if ask() == 200 { // it would need a new file of that name
				t.Errorf("%s is full, and it answers", path)
			}
		}
		is("")
		resumes(path)
	}
	room := filled(t, data)
	refuses("the segment") // a little may fit still, now and then
	room()
	resumes("the segment")

	// Without the next segment the one before goes on.
	segments := s.Log().Segments()
	next := filepath.Join(data, format.LogDir, fmt.Sprintf(".prepared-%08d", segments[len(segments)-1].Number+1))
	must(t, os.MkdirAll(filepath.Join(next, "full"), 0o700))
	for range 4 << 20 / (24 << 10) { // twice what is a segment
		if ask() != 200 {
			t.Fatal("it does not go on in the segment before")
		}
	}
	if now := len(s.Log().Segments()); now != len(segments) {
		t.Fatalf("%d segments became %d", len(segments), now)
	}
	must(t, os.RemoveAll(next))
	eventually(t, "the next segment", func() bool { ask(); return len(s.Log().Segments()) > len(segments) })

	stopAndWait(t, s)
	records := 0
	for _, l := range lines(t, data) { // verified
		if l.Kind == format.KindDecision {
			records++
		}
	}
	if records != answered {
		t.Errorf("%d answers, and %d records", answered, records)
	}
}
