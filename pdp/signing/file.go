package signing

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/rogpeppe/go-internal/lockedfile"

	"policy-service/pdp/plainfile"
)

// maxFile bounds what is read: two keys are 400 bytes.
const maxFile = 64 << 10

// readFile reads the file with the keys. It refuses a file that every user of the machine can read.
func readFile(name string) ([]byte, error) {
	f, err := plainfile.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	// The group may: a Kubernetes volume with an fsGroup gives every file to it.
	if info.Mode().Perm()&0o007 != 0 {
		return nil, fmt.Errorf("%s is open to every user of this machine: chmod 600 it, and rotate if anybody may have read it", name)
	}
	return plainfile.ReadAll(f, maxFile)
}

// createFirst writes a file with a new key, unless another process has written one meanwhile. So two servers that start
// together use one key.
func createFirst(name string) error {
	unlock, err := lock(name)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := os.Stat(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	set, err := generate(nil)
	if err != nil {
		return err
	}
	return plainfile.Replace(name, 0o600, set.encode())
}

// lock keeps two processes from writing at once, which would lose what one of them wrote.
func lock(name string) (unlock func(), err error) {
	unlock, err = lockedfile.MutexAt(name + ".lock").Lock()
	if err != nil {
		return nil, fmt.Errorf("cannot lock the signing keys: %w; see to the permissions of the directory", err)
	}
	return unlock, nil
}
