// Package boltfile opens bbolt files that may be damaged, and those whose disk failed:
// bbolt panics on the one, or worse, and believes the page cache of the other.
package boltfile

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"policy-service/pdp/boltfile/pages"
	"policy-service/pdp/plainfile"
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

// Use is what a file is opened for. It says how much of it is looked at before.
type Use int

// What a file is opened for.
const (
	ToWrite     Use = iota
	ToRead          // what is in a leaf may still be anything
	ToExamine       // to read it, and know whether it can be written to
	ToReadAgain     // it was opened before, and has not changed since
)

var checks = map[Use]func(*pages.File) error{
	ToWrite: (*pages.File).Check, ToRead: (*pages.File).CheckWays, ToExamine: (*pages.File).Check,
	ToReadAgain: func(*pages.File) error { return nil },
}

// Open opens a bbolt file that only its owner can read, and waits for who has it no
// longer than options say. What no [Guard] catches is looked for before: pages that name
// each other, or are said to be longer than the file.
func Open(path string, damaged error, use Use, options bbolt.Options) (db *bbolt.DB, err error) {
	options.ReadOnly = use != ToWrite
	var file *os.File
	options.OpenFile = func(name string, flag int, mode os.FileMode) (*os.File, error) {
		f, err := plainfile.OpenFile(name, flag, mode)
		if err != nil {
			return nil, err
		}
		if err = Lock(f, !options.ReadOnly, options.Timeout); err == nil {
			err = check(f, damaged, use)
		}
		if err != nil {
			_ = f.Close()
			return nil, err
		}
		file = f
		return f, nil
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
		if file != nil { // where bbolt panics it leaves the file open and locked
			unlock(file) // the memory map that bbolt leaves behind would keep it
			_ = file.Close()
		}
		return nil, err
	}
	return db, nil
}

// Look reads in a file without bbolt, which takes no time to open it and none to trust it.
func Look(path string, damaged error, wait time.Duration, read func(*pages.File) error) error {
	f, err := plainfile.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := Lock(f, false, wait); err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	file, err := pages.Open(f, info.Size())
	if err == nil {
		err = read(file)
	}
	return told(err, damaged)
}

// told says what a file is by the error of whose file it is.
func told(err, damaged error) error {
	if errors.Is(err, pages.ErrDamaged) {
		return fmt.Errorf("%w: %w", damaged, err)
	}
	return err
}

// closeAtMost is how long Close waits.
var closeAtMost = 10 * time.Second

// Close closes a file, whatever state it is in. Where bbolt panicked in the middle of
// writing it may wait for itself for ever; then the file stays open, and locked, until the
// process ends.
func Close(db *bbolt.DB, damaged error) error {
	closed := make(chan error, 1)
	go func() { closed <- Guard(damaged, db.Close) }()
	late := time.NewTimer(closeAtMost)
	defer late.Stop()
	select {
	case err := <-closed:
		return err
	case <-late.C:
		return fmt.Errorf("%w: it cannot be closed after what failed before: restart the process", damaged)
	}
}

func check(f *os.File, damaged error, use Use) error {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 { // bbolt makes it
		return err
	}
	file, err := pages.Open(f, info.Size())
	if err == nil {
		err = checks[use](file)
	}
	return told(err, damaged)
}
