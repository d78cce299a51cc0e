package bolt_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"policy-service/pdp/internal/ledger"
	"policy-service/pdp/internal/ledger/bolt"
)

// TestLook: who only looks keeps no writer away, and hears that there was one, whatever was read. Examine keeps them away.
func TestLook(t *testing.T) {
	t.Parallel()
	file := bolt.Options{Path: filepath.Join(t.TempDir(), "a.db"), Errors: known}
	if err := bolt.Look(file, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
	write := func(erase bool) error {
		e := bolt.New(file)
		if err := e.Open(); err != nil {
			return err
		}
		_, err := e.Write(ledger.Transaction{Puts: map[string][]byte{"a": []byte("b")}, Erase: erase})
		return errors.Join(err, e.Close())
	}
	if err := write(false); err != nil {
		t.Fatal(err)
	}
	torn := errors.New("torn")
	for name, c := range map[string]struct {
		examine         func(bolt.Options, func(ledger.State) error) error
		meanwhile       func() error
		want, meantTime error
	}{
		"nothing happens":           {bolt.Look, func() error { return nil }, torn, nil},
		"it is written to":          {bolt.Look, func() error { return write(false) }, known.Locked, nil},
		"it is written anew":        {bolt.Look, func() error { return write(true) }, known.Locked, nil},
		"it is gone":                {bolt.Look, func() error { return os.Remove(file.Path) }, known.Locked, nil},
		"who examines has the lock": {bolt.Examine, func() error { return write(false) }, torn, known.Locked},
	} {
		if err := write(false); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file.Path, time.Time{}, time.Now().Add(-time.Hour)); err != nil { // the times of files are coarse
			t.Fatal(err)
		}
		err := c.examine(file, func(ledger.State) error {
			if err := c.meanwhile(); !errors.Is(err, c.meantTime) {
				t.Errorf("%s: meanwhile %v, want %v", name, err, c.meantTime)
			}
			return torn
		})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
}
