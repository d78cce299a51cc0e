//go:build unix

package boltfile_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"policy-service/pdp/internal/boltfile"
	"policy-service/pdp/internal/boltfile/pages"
)

// TestUnlocked: who only looks is in nobody's way, and learns that somebody wrote meanwhile, whatever was read. Who reads with
// the lock keeps writers away.
func TestUnlocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file.db")
	var writer *os.File
	write := func() error {
		db, err := boltfile.Open(path, errDamaged, boltfile.ToWrite, bbolt.Options{Timeout: time.Millisecond, NoSync: true})
		if err != nil {
			return err
		}
		return errors.Join(db.Update(rewriteAll), db.Close())
	}
	for use, want := range map[boltfile.Use]error{
		boltfile.ToRead: boltfile.ErrLocked, boltfile.ToExamine: boltfile.ErrLocked,
		boltfile.ToRead | boltfile.Unlocked: nil, boltfile.ToExamine | boltfile.Unlocked: nil, boltfile.ToReadAgain | boltfile.Unlocked: nil,
	} {
		fresh(t, path)
		before, err := boltfile.Ask(path)
		must(t, err)
		db, err := open(path, use)
		must(t, err)
		must(t, db.View(readAll))
		if now, err := boltfile.Ask(path); err != nil || !boltfile.Unchanged(before, now) {
			t.Errorf("%d: reading changes it: %v", use, err)
		}
		if err := write(); !errors.Is(err, want) {
			t.Errorf("%d: who writes gets %v, want %v", use, err, want)
		}
		if now, err := boltfile.Ask(path); err != nil || boltfile.Unchanged(before, now) != (want != nil) {
			t.Errorf("%d: whether it was written to is not seen: %v", use, err)
		}
		must(t, db.Close())
	}
	torn := errors.New("torn")
	for name, c := range map[string]struct {
		meanwhile func() error
		want      error
	}{
		"nothing happens":          {func() error { return nil }, torn},
		"it is written to":         {write, boltfile.ErrLocked},
		"it is cut":                {func() error { return os.Truncate(path, 1) }, boltfile.ErrLocked},
		"another gets its name":    {func() error { return os.Rename(path+".next", path) }, torn}, // what was opened is as it was
		"it is opened for writing": {func() error { return boltfile.Lock(writer, true, 0) }, boltfile.ErrLocked},
	} {
		fresh(t, path)
		fresh(t, path+".next")
		var err error
		writer, err = os.Open(path)
		must(t, err)
		err = boltfile.Look(path, errDamaged, 0, func(*pages.File) error {
			must(t, c.meanwhile())
			return torn
		})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
		must(t, boltfile.Unlock(writer))
	}
}

// fresh writes a file as if that was a while ago: the times of files are coarse.
func fresh(t *testing.T, path string) {
	t.Helper()
	must(t, os.WriteFile(path, written(t), 0o600))
	must(t, os.Chtimes(path, time.Time{}, time.Now().Add(-time.Hour)))
}

// TestUnlock: a lock ends with Unlock, although a child process still has the file. So it is for a moment whenever one is started.
func TestUnlock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	locked := func() *os.File {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		must(t, err)
		must(t, boltfile.Lock(f, true, 0))
		return f
	}
	f := locked()
	child := exec.CommandContext(t.Context(), "cat")
	child.ExtraFiles = []*os.File{f}
	stdin, err := child.StdinPipe()
	must(t, err)
	must(t, child.Start())
	must(t, boltfile.Unlock(f))
	must(t, boltfile.Unlock(locked()))
	must(t, stdin.Close())
	must(t, child.Wait())
}
