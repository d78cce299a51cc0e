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

// keptKey is a key of 32 bytes below the data directory that is made once: unlike that of
// page tokens it is never replaced, and it is on disk before it is used.
type keptKey struct{ file, of, moved string }

var (
	// Who has the key of masked values can try some against the log, who loses it cannot
	// join what comes with what went before.
	maskKey = keptKey{"mask.key", "masked values", "to begin with a new key"}
	// Without that of approvals a stranger with their file could try values against it.
	approvalKey = keptKey{"approvals.key", "approvals", "and nothing counts that was approved before"}
)

// open reads the key, and makes it where there is none.
func (k keptKey) open(data string) (key []byte, err error) {
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
func (k keptKey) there(data string) bool {
	info, err := os.Stat(filepath.Join(data, k.file))
	return err == nil && info.Size() > 0 || err != nil && !errors.Is(err, fs.ErrNotExist)
}

// check says why open would fail, and touches nothing.
func (k keptKey) check(data string) error {
	_, err := k.read(data)
	return err
}

// read is the key, nil where there is none yet.
func (k keptKey) read(data string) ([]byte, error) {
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

func (k keptKey) refused(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the key of %s cannot be used: %w; put the file back from a backup, or move it away %s", k.of, err, k.moved)
}
