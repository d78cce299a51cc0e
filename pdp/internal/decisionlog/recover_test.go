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
	"policy-service/pdp/internal/decisionlog/journal"
	"policy-service/pdp/pdptest/crashedlog"
)

// events returns the sequence of the ids and events of a log, and the details of the event asked for.
func events(t *testing.T, data, event string) (all []string, details []byte) {
	t.Helper()
	err := decisionlog.Read(data, func(s *decisionlog.Snapshot) error {
		for r, err := range s.Records(t.Context(), 0, uint64(s.Head.Size)) {
			if err != nil {
				return err
			}
			if r.Line == nil {
				all = append(all, r.Gone)
				continue
			}
			line, err := decisionlog.Parse(r.Line)
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
	if err != nil {
		t.Fatal(err)
	}
	if r := verify.Directory(data, verify.Options{}); !r.Verified() || r.Unsigned != 0 {
		t.Errorf("%+v", r)
	}
	return all, details
}

func files(t *testing.T, data string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(data, decisionlog.LogDir))
	if err != nil {
		t.Fatal(err)
	}
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
	db, err := bbolt.Open(filepath.Join(data, decisionlog.LogDir, "00000002.db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		for _, name := range []string{decisionlog.BucketMeta, decisionlog.BucketRecords, decisionlog.BucketHashes, decisionlog.BucketIDs, decisionlog.BucketCheckpoints} {
			if _, err := tx.CreateBucket([]byte(name)); err != nil {
				return err
			}
		}
		return nil
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// A journal that has lost a frame keeps the log from being opened, until the loss is accepted. What can be read is kept,
// the loss is on record, and the files are there under other names, until a redaction.
func TestRecover(t *testing.T) {
	t.Parallel()
	data := crashedlog.Make(t, 4)
	at := crashedlog.Damage(t, data, 2)
	for range 2 { // the first try changes nothing
		l, err := decisionlog.Open(data, decisionlog.Options{})
		if !errors.Is(err, decisionlog.ErrLost) || !errors.Is(err, decisionlog.ErrDamaged) {
			t.Fatalf("%v, %v", l, err)
		}
		for _, part := range []string{fmt.Sprintf("journal.0 at byte %d", at), "frames 2 to 2", "1 records are lost"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("the error does not say %q: %v", part, err)
			}
		}
	}
	loss, err := decisionlog.Recover(data, decisionlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	all, details := events(t, data, decisionlog.EventLoss)
	if want := []string{decisionlog.EventCreated, "held", crashedlog.ID(1), crashedlog.ID(3), crashedlog.ID(4), decisionlog.EventLoss, decisionlog.EventCrash}; !slices.Equal(all, want) {
		t.Errorf("on record are %q, and should be %q", all, want)
	}
	var recorded decisionlog.Loss
	if err := json.Unmarshal(details, &recorded); err != nil {
		t.Fatal(err)
	}
	for _, l := range []decisionlog.Loss{loss, recorded} {
		if l.File != "journal.0" || l.Offset != at || len(l.Frames) != 1 || l.Frames[0] != [2]uint64{2, 2} || l.Lost == nil || *l.Lost != 1 || l.Kept != 3 || l.Reason == "" {
			t.Errorf("%s: %+v", details, l)
		}
		if names := files(t, data); len(l.Files) != 2 || !slices.Equal(names, []string{"journal.0", l.Files[0], "journal.1", l.Files[1]}) {
			t.Errorf("%q, and %q are named", names, l.Files)
		}
	}
	if _, err := decisionlog.Recover(data, decisionlog.Options{}); !errors.Is(err, decisionlog.ErrNoLoss) {
		t.Errorf("twice: %v", err)
	}
	if names := holds(t, data, crashedlog.Secret(3)); len(names) != 2 {
		t.Errorf("the content is in %q", names)
	}
	if err := decisionlog.Redact(t.Context(), data, crashedlog.ID(3), "on request", decisionlog.Options{}); err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
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
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
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
	if r, err := decisionlog.OpenReader(data); err != nil || r.Unfilled() == nil || *r.Unfilled() != (decisionlog.Unfilled{Records: 2}) {
		t.Fatalf("%+v, %v", r.Unfilled(), err)
	}
	l, err := decisionlog.Open(data, decisionlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	all, _ := events(t, data, "")
	if want := []string{decisionlog.EventCreated, "held", crashedlog.ID(1), crashedlog.ID(2), decisionlog.EventCrash}; !slices.Equal(all, want) {
		t.Errorf("%q", all)
	}
	if r, err := decisionlog.OpenReader(data); err != nil || r.Unfilled() != nil {
		t.Errorf("%+v, %v", r.Unfilled(), err)
	}
}

// If the log says that a journal counts, and its files are not there, that is damage, and not an empty journal.
func TestRecoverWithoutJournal(t *testing.T) {
	t.Parallel()
	data := crashedlog.Make(t, 3)
	for _, path := range journal.Paths(filepath.Join(data, decisionlog.LogDir)) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := decisionlog.Open(data, decisionlog.Options{}); !errors.Is(err, decisionlog.ErrLost) || !strings.Contains(err.Error(), "missing") || !strings.Contains(err.Error(), "the number of lost records is unknown") {
		t.Fatal(err)
	}
	if r, err := decisionlog.OpenReader(data); err != nil || r.Unfilled() == nil || r.Unfilled().Records != 0 || !strings.Contains(r.Unfilled().Damage, "missing") {
		t.Fatalf("%+v, %v", r.Unfilled(), err)
	}
	loss, err := decisionlog.Recover(data, decisionlog.Options{})
	if err != nil || loss.Lost != nil || loss.Kept != 0 || len(loss.Files) != 0 {
		t.Fatalf("%+v, %v", loss, err)
	}
	all, details := events(t, data, decisionlog.EventLoss)
	if want := []string{decisionlog.EventCreated, "held", decisionlog.EventLoss, decisionlog.EventCrash}; !slices.Equal(all, want) || strings.Contains(string(details), "lost") {
		t.Errorf("%q, %s", all, details)
	}
}

// If one of the two files is missing, the frames of the other are kept, and nobody knows what else there was.
func TestRecoverOneFile(t *testing.T) {
	t.Parallel()
	data := crashedlog.Make(t, 3)
	if err := os.Remove(journal.Paths(filepath.Join(data, decisionlog.LogDir))[1]); err != nil {
		t.Fatal(err)
	}
	loss, err := decisionlog.Recover(data, decisionlog.Options{})
	if err != nil || loss.File != "journal.1" || loss.Lost != nil || loss.Kept != 3 || len(loss.Files) != 1 {
		t.Fatalf("%+v, %v", loss, err)
	}
	all, _ := events(t, data, "")
	if want := []string{decisionlog.EventCreated, "held", crashedlog.ID(1), crashedlog.ID(2), crashedlog.ID(3), decisionlog.EventLoss, decisionlog.EventCrash}; !slices.Equal(all, want) {
		t.Errorf("%q", all)
	}
}

// If a recovery ends between its transaction and the other names of the files, the next start gives them these names.
func TestRecoverCutShort(t *testing.T) {
	t.Parallel()
	data := crashedlog.Make(t, 4)
	crashedlog.Damage(t, data, 2)
	dir := filepath.Join(data, decisionlog.LogDir)
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
	if r, err := decisionlog.OpenReader(data); err != nil || r.Unfilled() != nil {
		t.Errorf("%+v, %v", r.Unfilled(), err)
	}
	if _, err := decisionlog.Open(data, decisionlog.Options{}); err == nil {
		t.Fatal("it was opened, and the file is not aside")
	}
	if err := os.Remove(in); err != nil {
		t.Fatal(err)
	}
	if _, err := decisionlog.Recover(data, decisionlog.Options{}); !errors.Is(err, decisionlog.ErrNoLoss) {
		t.Errorf("a second time: %v", err)
	}
	l, err := decisionlog.Open(data, decisionlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	aside := journal.Aside(dir, at)
	if names := files(t, data); !slices.Equal(names, []string{"journal.0", filepath.Base(aside[0]), "journal.1", filepath.Base(aside[1])}) {
		t.Errorf("%q", names)
	}
	all, _ := events(t, data, "")
	if want := []string{decisionlog.EventCreated, "held", crashedlog.ID(1), crashedlog.ID(3), crashedlog.ID(4), decisionlog.EventLoss, decisionlog.EventCrash}; !slices.Equal(all, want) {
		t.Errorf("%q", all)
	}
}
