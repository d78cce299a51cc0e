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

	"policy-service/pdp/decisionlog"
	"policy-service/pdp/decisionlog/journal"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/memorydisk"
	"policy-service/pdp/server"
	"policy-service/pdp/server/config"
)

// journalSizes are the sizes of the files of a server's journal.
func journalSizes(t *testing.T, data string) (sizes [2]int64) {
	t.Helper()
	for i, path := range journal.Paths(filepath.Join(data, decisionlog.LogDir)) {
		info, err := os.Stat(path)
		must(t, err)
		sizes[i] = info.Size()
	}
	return sizes
}

// TestJournalSize: the files of the journal grow to decision_log.journal_size, and to a sixteenth of what is free.
func TestJournalSize(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		disk, given string
		least, most int64
	}{
		{"size=100m", "256KiB", 256 << 10, 256 << 10},
		{"size=100m", "1536KiB", 1536 << 10, 1536 << 10},
		{"size=40m", "", 1<<20 + 1, 40 << 20 / 16},
	} {
		data := memorydisk.New(t, test.disk)
		s := pdptest.Start(t, telling(), func(c *server.Config) {
			if test.given != "" {
				_, err := server.ConfigForm.Read(config.Given{Flags: []config.Flag{{Key: "decision_log.journal_size", Name: "--x", Value: test.given}}}, c)
				must(t, err)
			}
			c.Data = data
		})
		large := strings.Repeat("x", 24<<10)
		rounds := func() { // of both files
			for written := int64(0); written < 2*test.most; written += int64(len(large)) {
				note(t, s, large)
			}
		}
		eventually(t, "they grow", func() bool {
			rounds()
			sizes := journalSizes(t, data)
			return min(sizes[0], sizes[1]) >= test.least
		})
		rounds()
		if sizes := journalSizes(t, data); min(sizes[0], sizes[1]) < test.least || max(sizes[0], sizes[1]) > test.most {
			t.Errorf("%+v: the files have %v bytes", test, sizes)
		}
		stopAndWait(t, s)
	}
}

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
	next := filepath.Join(data, decisionlog.LogDir, fmt.Sprintf(".prepared-%08d", segments[len(segments)-1].Number+1))
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
		if l.Kind == decisionlog.KindDecision {
			records++
		}
	}
	if records != answered {
		t.Errorf("%d answers, and %d records", answered, records)
	}
}

// TestADiskOfThreeMebibytes is enough to begin with.
func TestADiskOfThreeMebibytes(t *testing.T) {
	t.Parallel()
	data := memorydisk.New(t, "size=3m")
	s := pdptest.Start(t, telling(), withData(data))
	const asked = 200
	for range asked {
		if got := s.Post(evaluationPath, readQuestion); got.Status != 200 {
			t.Fatalf("got %d %s", got.Status, got.Body)
		}
	}
	if sizes := journalSizes(t, data); sizes != [2]int64{journal.MinSize, journal.MinSize} {
		t.Errorf("the journal takes %v", sizes)
	}
	stopAndWait(t, s)
	records := 0
	for _, l := range lines(t, data) {
		if l.Kind == decisionlog.KindDecision {
			records++
		}
	}
	if records != asked {
		t.Errorf("%d records", records)
	}
}
