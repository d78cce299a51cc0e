package signing

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/rogpeppe/go-internal/lockedfile"

	"policy-service/pdp/internal/plainfile"
)

// maxFile bounds what is read: two keys are 400 bytes.
const maxFile = 64 << 10

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
	return plainfile.Replace(name, set.encode())
}

// lock keeps two processes from writing at once, which would lose what one of them wrote.
func lock(name string) (unlock func(), err error) {
	held, err := lockedfile.OpenFile(name+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot lock the signing keys: %w; see to the permissions of the directory", err)
	}
	return func() { _ = held.Close() }, nil
}
