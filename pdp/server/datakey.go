package server

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rogpeppe/go-internal/lockedfile"

	"policy-service/pdp/plainfile"
)

// dataKey is a key of 32 bytes below the data directory. It is made once and is on disk before it is used, and unlike
// the key of page tokens it is never replaced.
type dataKey struct{ file, of, moved string }

var (
	// With the key of masked values a person could try values against the log; without it new records cannot be joined
	// with earlier ones.
	maskKey = dataKey{"mask.key", "masked values", "to begin with a new key"}
	// The key of approvals keeps a person who has their file from trying values against it.
	approvalKey = dataKey{"approvals.key", "approvals", "and nothing counts that was approved before"}
)

// open reads the key, and makes it if there is none.
func (k dataKey) open(data string) (key []byte, err error) {
	name := filepath.Join(data, k.file)
	f, err := plainfile.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, k.refused(err)
	}
	defer func() { _ = f.Close() }()
	err = lockedfile.Transform(name, func(there []byte) ([]byte, error) {
		if key = there; len(key) == 0 {
			key = make([]byte, 32)
			_, _ = rand.Read(key) // never fails: it ends the program instead
		}
		return key, usable(name, key)
	})
	return key, k.refused(errors.Join(err, f.Sync()))
}

// there reports whether there is a key, or something in its place.
func (k dataKey) there(data string) bool {
	info, err := os.Stat(filepath.Join(data, k.file))
	return err == nil && info.Size() > 0 || err != nil && !errors.Is(err, fs.ErrNotExist)
}

// check says why open would fail, and touches nothing.
func (k dataKey) check(data string) error {
	_, err := k.read(data)
	return err
}

// read is the key, nil where there is none yet.
func (k dataKey) read(data string) ([]byte, error) {
	name := filepath.Join(data, k.file)
	key, err := plainfile.Read(name, 1<<10)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(key) == 0 {
		return nil, nil
	}
	if err == nil {
		err = usable(name, key)
	}
	return key, k.refused(err)
}

func usable(name string, key []byte) error {
	if len(key) != 32 || bytes.Equal(key, make([]byte, 32)) {
		return fmt.Errorf("%s does not hold the 32 bytes of a key", name)
	}
	return nil
}

func (k dataKey) refused(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the key of %s cannot be used: %w; put the file back from a backup, or move it away %s", k.of, err, k.moved)
}
