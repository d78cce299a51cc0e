package decisionlog_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"go.etcd.io/bbolt"

	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/journal"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/pdptest/crashedlog"
)

// must ends a test with an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// events returns the sequence of the ids and events of a log, and the details of the event asked for.
func events(t *testing.T, data, event string) (all []string, details []byte) {
	t.Helper()
	err := segment.Read(data, func(s *segment.Snapshot) error {
		for r, err := range s.Records(t.Context(), 0, uint64(s.Head.Size)) {
			if err != nil {
				return err
			}
			if r.Line == nil {
				all = append(all, r.Gone)
				continue
			}
			line, err := record.Parse(r.Line)
			if err != nil {
				return err
			}
			if line.Event == event {
				details = bytes.Clone(line.Details)
			}
			if line.Event != "" {
				line.ID = line.Event
			}
			all = append(all, line.ID)
		}
		return nil
	})
	must(t, err)
	if r := verify.Directory(data, verify.Options{}); !r.Verified() || r.Unsigned != 0 {
		t.Errorf("%+v", r)
	}
	return all, details
}

func files(t *testing.T, data string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(data, format.LogDir))
	must(t, err)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "journal") {
			names = append(names, e.Name())
		}
	}
	return names
}

// prepareAhead leaves an empty second segment, as a crash does when the first one is full.
func prepareAhead(t *testing.T, data string) {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(data, format.LogDir, "00000002.db"), 0o600, nil)
	must(t, err)
	err = db.Update(func(tx *bbolt.Tx) error {
		for _, name := range []string{format.BucketMeta, format.BucketRecords, format.BucketHashes, format.BucketIDs, format.BucketCheckpoints} {
			if _, err := tx.CreateBucket([]byte(name)); err != nil {
				return err
			}
		}
		return nil
	})
	must(t, errors.Join(err, db.Close()))
}

// holds names the files of a directory that hold a text.
func holds(t *testing.T, data, text string) (names []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(data), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(data, path))
		if bytes.Contains(content, []byte(text)) {
			names = append(names, path)
		}
		return err
	})
	must(t, err)
	return names
}

// loss is a journal that has lost something, and what becomes of the log.
type loss struct {
	records int // that the journal had
	// damage takes something away, and says where.
	damage func(t *testing.T, data string) (at int64)
	says   []string // parts of the error of a start, besides where
	want   decisionlog.Loss
	kept   []int // records that the log has then
}

// in returns the name of a file of the journal.
func in(data string, n int) string {
	return journal.Paths(filepath.Join(data, format.LogDir))[n]
}

// TestRecover: a journal that has lost something keeps the log from being opened, until the loss is accepted. What can be
// read is kept, the loss is on record, and the files are there under other names, until a redaction.
func TestRecover(t *testing.T) {
	t.Parallel()
	one := int64(1)
	for name, c := range map[string]loss{
		"a frame is altered": {
			4, func(t *testing.T, data string) int64 { return crashedlog.Damage(t, data, 2) },
			[]string{"frames 2 to 2", "1 records are lost"},
			decisionlog.Loss{File: "journal.0", Frames: [][2]uint64{{2, 2}}, Lost: &one, Kept: 3, Files: make([]string, 2)}, []int{1, 3, 4},
		},
		// The log says that a journal counts: that its files are not there is damage, and not an empty journal.
		"both files are missing": {3, func(t *testing.T, data string) int64 {
			must(t, errors.Join(os.Remove(in(data, 0)), os.Remove(in(data, 1))))
			return -1
		}, []string{"missing", "the number of lost records is unknown"}, decisionlog.Loss{File: "journal.1"}, nil},
		"one file is missing": {3, func(t *testing.T, data string) int64 { must(t, os.Remove(in(data, 1))); return -1 },
			[]string{"missing"}, decisionlog.Loss{File: "journal.1", Kept: 3, Files: make([]string, 1)}, []int{1, 2, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.isAccepted(t)
		})
	}
}

func (c loss) isAccepted(t *testing.T) {
	data := crashedlog.Make(t, c.records)
	at := c.damage(t, data)
	if at >= 0 {
		c.says = append(c.says, fmt.Sprintf("%s at byte %d", c.want.File, at))
	}
	for range 2 { // the first try changes nothing
		l, err := decisionlog.Open(data, decisionlog.Options{})
		if !errors.Is(err, decisionlog.ErrLost) || !errors.Is(err, record.ErrDamaged) {
			t.Fatalf("%v, %v", l, err)
		}
		for _, part := range c.says {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("the error does not say %q: %v", part, err)
			}
		}
	}
	r, err := segment.OpenReader(data)
	must(t, err)
	if u := r.Unfilled(); u == nil || u.Damage == "" || c.kept == nil && (u.Records != 0 || !strings.Contains(u.Damage, "missing")) {
		t.Errorf("%+v", u)
	}
	accepted, err := decisionlog.Recover(data, decisionlog.Options{})
	must(t, err)
	all, details := events(t, data, format.EventLoss)
	want := []string{format.EventCreated, "held"}
	for _, n := range c.kept {
		want = append(want, crashedlog.ID(n))
	}
	if want = append(want, format.EventLoss, format.EventCrash); !slices.Equal(all, want) {
		t.Errorf("on record are %q, and should be %q", all, want)
	}
	var recorded decisionlog.Loss
	must(t, json.Unmarshal(details, &recorded))
	for _, l := range []decisionlog.Loss{accepted, recorded} {
		names, files := []string(nil), files(t, data)
		for n, aside := range l.Files {
			names = append(names, fmt.Sprintf("journal.%d", n), aside)
		}
		if at >= 0 && !slices.Equal(files, names) || len(l.Files) != len(c.want.Files) {
			t.Errorf("%q, and %q are named", files, l.Files)
		}
		if w := c.want; l.File != w.File || at >= 0 && l.Offset != at || l.Reason == "" || l.Kept != w.Kept ||
			!slices.Equal(l.Frames, w.Frames) || (l.Lost == nil) != (w.Lost == nil) || w.Lost != nil && *l.Lost != *w.Lost {
			t.Errorf("%s: %+v, want %+v", details, l, w)
		}
	}
	if c.want.Lost == nil && strings.Contains(string(details), `"lost":`) {
		t.Errorf("it says how much was lost: %s", details)
	}
	if _, err := decisionlog.Recover(data, decisionlog.Options{}); !errors.Is(err, decisionlog.ErrNoLoss) {
		t.Errorf("twice: %v", err)
	}
	if !slices.Contains(c.kept, 3) {
		return
	}
	if names := holds(t, data, crashedlog.Secret(3)); len(names) != 2 {
		t.Errorf("the content is in %q", names)
	}
	must(t, decisionlog.Redact(t.Context(), data, crashedlog.ID(3), "on request", decisionlog.Options{}))
	if names := holds(t, data, crashedlog.Secret(3)); names != nil {
		t.Errorf("what was redacted is in %q", names)
	}
	if names := files(t, data); len(names) != 2 {
		t.Errorf("%q", names)
	}
	events(t, data, "")
}

// Retention ends with no file that holds what it drops, either.
func TestRetentionOfMovedAside(t *testing.T) {
	t.Parallel()
	data := crashedlog.Make(t, 3)
	crashedlog.Damage(t, data, 2)
	if _, err := decisionlog.Recover(data, decisionlog.Options{}); err != nil {
		t.Fatal(err)
	}
	l, err := decisionlog.Open(data, decisionlog.Options{})
	must(t, err)
	must(t, l.Rotate(t.Context()))
	later := time.Now().Add(2 * time.Hour)
	if _, err := l.Retain(t.Context(), decisionlog.Retention{Age: 24 * time.Hour}, later); err != nil {
		t.Fatal(err)
	}
	if names := files(t, data); len(names) != 4 { // nothing is old enough to be dropped
		t.Errorf("%q", names)
	}
	if _, err := l.Retain(t.Context(), decisionlog.Retention{Age: time.Hour}, later); err != nil {
		t.Fatal(err)
	}
	must(t, l.Close())
	if names := holds(t, data, crashedlog.Secret(1)); names != nil || len(files(t, data)) != 2 {
		t.Errorf("%q of %q", names, files(t, data))
	}
}

// Without damage there is no loss to accept, and nothing is changed: the next start fills what the journal has.
func TestRecoverNothing(t *testing.T) {
	t.Parallel()
	data := crashedlog.Make(t, 2)
	prepareAhead(t, data)
	if _, err := decisionlog.Recover(data, decisionlog.Options{}); !errors.Is(err, decisionlog.ErrNoLoss) {
		t.Fatal(err)
	}
	if r, err := segment.OpenReader(data); err != nil || r.Unfilled() == nil || *r.Unfilled() != (segment.Unfilled{Records: 2}) {
		t.Fatalf("%+v, %v", r.Unfilled(), err)
	}
	l, err := decisionlog.Open(data, decisionlog.Options{})
	must(t, err)
	must(t, l.Close())
	all, _ := events(t, data, "")
	if want := []string{format.EventCreated, "held", crashedlog.ID(1), crashedlog.ID(2), format.EventCrash}; !slices.Equal(all, want) {
		t.Errorf("%q", all)
	}
	if r, err := segment.OpenReader(data); err != nil || r.Unfilled() != nil {
		t.Errorf("%+v, %v", r.Unfilled(), err)
	}
}

// If a recovery ends between its transaction and the other names of the files, the next start gives them these names.
func TestRecoverCutShort(t *testing.T) {
	t.Parallel()
	data := crashedlog.Make(t, 4)
	crashedlog.Damage(t, data, 2)
	dir := filepath.Join(data, format.LogDir)
	at := time.Date(2026, 11, 23, 21, 0, 0, 7, time.UTC)
	in := journal.Aside(dir, at)[1]
	if err := os.Mkdir(in, 0o700); err != nil { // so that the second file cannot be moved
		t.Fatal(err)
	}
	options := decisionlog.Options{Now: func() time.Time { return at }}
	if _, err := decisionlog.Recover(data, options); err == nil {
		t.Fatal("it went well")
	}
	if names := files(t, data); !slices.Equal(names, []string{filepath.Base(journal.Aside(dir, at)[0]), "journal.1", filepath.Base(in)}) {
		t.Fatalf("%q", names)
	}
	if r, err := segment.OpenReader(data); err != nil || r.Unfilled() != nil {
		t.Errorf("%+v, %v", r.Unfilled(), err)
	}
	if _, err := decisionlog.Open(data, decisionlog.Options{}); err == nil {
		t.Fatal("it was opened, and the file is not aside")
	}
	must(t, os.Remove(in))
	if _, err := decisionlog.Recover(data, decisionlog.Options{}); !errors.Is(err, decisionlog.ErrNoLoss) {
		t.Errorf("a second time: %v", err)
	}
	l, err := decisionlog.Open(data, decisionlog.Options{})
	must(t, err)
	must(t, l.Close())
	aside := journal.Aside(dir, at)
	if names := files(t, data); !slices.Equal(names, []string{"journal.0", filepath.Base(aside[0]), "journal.1", filepath.Base(aside[1])}) {
		t.Errorf("%q", names)
	}
	all, _ := events(t, data, "")
	if want := []string{format.EventCreated, "held", crashedlog.ID(1), crashedlog.ID(3), crashedlog.ID(4), format.EventLoss, format.EventCrash}; !slices.Equal(all, want) {
		t.Errorf("%q", all)
	}
}
