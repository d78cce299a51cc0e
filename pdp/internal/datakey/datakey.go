// Package datakey keeps a secret key in a file of its own below the data directory, such as the key of masked values.
//
// A [Key] names the file. [Key.Open] makes the key if there is none, and it is on disk before it is used. A key is
// never replaced: the package refuses a file that holds anything else, and its error has the way out.
package datakey

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rogpeppe/go-internal/lockedfile"

	"policy-service/pdp/internal/plainfile"
)

// Key is a key of 32 bytes below the data directory.
type Key struct {
	// File is the name of the file, and Of the use of the key.
	File, Of string
	// Moved is the effect of moving the file away.
	Moved string
}

// Open reads the key, and makes it if there is none.
func (k Key) Open(data string) (key []byte, err error) {
	name := filepath.Join(data, k.File)
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
	return key, k.refused(errors.Join(err, f.Sync(), plainfile.SyncDir(data)))
}

// There reports whether there is a key, or something in its place.
func (k Key) There(data string) bool {
	info, err := os.Stat(filepath.Join(data, k.File))
	return err == nil && info.Size() > 0 || err != nil && !errors.Is(err, fs.ErrNotExist)
}

// Read returns the key, or nil if there is none yet: no file, or an empty one, which a crash may leave while the key is
// made. It never makes one. If it fails, [Key.Open] would fail too.
func (k Key) Read(data string) ([]byte, error) {
	name := filepath.Join(data, k.File)
	key, err := plainfile.Read(name, 1<<10)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(key) == 0 {
		return nil, nil
	}
	if err == nil {
		err = usable(name, key)
	}
	return key, k.refused(err)
}

// usable refuses bytes that are no key: another length, or only zeros, which a crash may leave of a file.
func usable(name string, key []byte) error {
	if len(key) != 32 || bytes.Equal(key, make([]byte, 32)) {
		return fmt.Errorf("%s does not hold the 32 bytes of a key", name)
	}
	return nil
}

// refused adds to an error whose key it is about, and what to do.
func (k Key) refused(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the key of %s cannot be used: %w; put the file back from a backup, or move it away %s",
		k.Of, err, k.Moved)
}
