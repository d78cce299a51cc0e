// Package boltfile opens bbolt files that may be damaged, and those whose disk failed:
// bbolt panics on the one, and believes the page cache of the other.
package boltfile

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// ErrLocked: another process has the file.
var ErrLocked = errors.New("the file is in use by another process")

// Guard runs what touches a bbolt file. On a damaged one bbolt panics, and on one that
// lost its end the memory map faults: both become an error that is damaged.
func Guard(damaged error, f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", damaged, p)
		}
	}()
	return f()
}

// Open opens a bbolt file that only its owner can read. Where bbolt panics it leaves the
// file open and locked, so that it could not be opened again: both are undone.
func Open(path string, damaged error, options bbolt.Options) (db *bbolt.DB, err error) {
	var file *os.File
	options.OpenFile = func(name string, flag int, mode os.FileMode) (f *os.File, err error) {
		file, err = os.OpenFile(name, flag, mode)
		return file, err
	}
	options.FreelistType = bbolt.FreelistMapType
	err = Guard(damaged, func() (err error) {
		db, err = bbolt.Open(path, 0o600, &options)
		return err
	})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, ErrLocked
	}
	if err != nil {
		if file != nil {
			unlock(file) // the memory map that bbolt leaves behind would keep it
			_ = file.Close()
		}
		return nil, err
	}
	return db, nil
}
