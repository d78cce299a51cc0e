package signing

import (
	"errors"
	"io/fs"
	"path/filepath"
)

// Check returns the error with which [Open] would refuse the keys of a data directory. It changes nothing. A directory
// without keys is no error, because Open makes the first key.
func Check(dir string) error {
	file := filepath.Join(dir, File)
	content, err := readFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return unusable(file, err)
	}
	if _, err := parse(content); err != nil {
		return unusable(file, err)
	}
	return nil
}
