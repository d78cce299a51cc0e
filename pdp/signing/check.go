package signing

import (
	"errors"
	"io/fs"
	"path/filepath"
)

// Check says why [Open] would refuse the keys of a data directory, and touches
// nothing. That there are none yet is no reason: Open makes the first.
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
