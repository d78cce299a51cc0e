package decisionlog

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"policy-service/pdp/boltfile"
)

func guard(f func() error) error { return boltfile.Guard(ErrDamaged, f) }

// writeFile writes a file that only its owner can read, whole or not at all.
func writeFile(name, content string) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".log-*") // with mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // gone already where all went well
	_, err = f.WriteString(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return rename(f.Name(), name)
}

// rename moves a file so that it has moved also after a crash.
func rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return syncDir(filepath.Dir(to))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// classify names an error without its text, which holds file names.
func classify(err error) string {
	if err == nil {
		return "other"
	}
	for _, full := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG} {
		if strings.Contains(err.Error(), full.Error()) { // bbolt keeps the text only
			return "disk_full"
		}
	}
	var errno syscall.Errno
	switch {
	case errors.Is(err, syscall.EROFS), errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return "read_only"
	case errors.As(err, &errno):
		return "io"
	}
	return "other"
}
