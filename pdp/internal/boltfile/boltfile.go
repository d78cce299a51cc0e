// Package boltfile opens bbolt files that may be damaged, or whose disk failed. On a damaged file bbolt panics, or
// worse; after a failed disk it believes the page cache.
//
// [Open] checks a file and hands it to bbolt. [Guard] runs what touches an open file and turns a panic into an error.
// [Look] reads a file without bbolt. [Close] closes one, whatever state it is in. The package repairs nothing, and
// knows nothing of what a file holds.
//
// An open file is locked, alone or shared, except by those who only look: [Look], and an [Unlocked] Open. They ask whether
// another process writes to the file before they read and after, and hold no lock in between, so that no process waits
// for them. If the file changed meanwhile, what they read may be torn, and counts as nothing: see [Ask].
package boltfile

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"policy-service/pdp/internal/boltfile/pages"
	"policy-service/pdp/internal/plainfile"
)

// ErrLocked: another process has locked the file.
var ErrLocked = errors.New("the file is in use by another process")

// Guard runs a function that touches a bbolt file. If the file is damaged, bbolt panics; if it lost its end, the memory
// map faults. Both become an error that wraps damaged.
func Guard(damaged error, f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", damaged, p)
		}
	}()
	return f()
}

// Use is what a file is opened for. It decides how much of the file is checked first.
type Use int

// What a file is opened for.
const (
	ToWrite     Use = iota
	ToRead          // the content of leaves is not checked
	ToExamine       // to read it, and to learn if it can be written to
	ToReadAgain     // it was opened before, and has not changed since; nothing is checked

	// Unlocked is added to another use, but not to ToWrite: the lock is held only for the moment in which bbolt maps the
	// file. The caller must [Ask] before and after.
	Unlocked Use = 1 << 8
)

var checks = map[Use]func(*pages.File) error{
	ToWrite:     (*pages.File).Check,
	ToRead:      (*pages.File).CheckWays,
	ToExamine:   (*pages.File).Check,
	ToReadAgain: func(*pages.File) error { return nil },
}

// Open opens a bbolt file. A new file gets a mode that lets only its owner read it. If another process has the file,
// Open waits as long as options say. Before bbolt opens the file, Open looks for the damage that no [Guard] catches:
// pages that name each other, and pages that claim to be longer than the file. If options have an OpenFile, it takes
// the place of [plainfile.OpenFile].
func Open(path string, damaged error, use Use, options bbolt.Options) (db *bbolt.DB, err error) {
	options.ReadOnly = use != ToWrite
	var file *os.File
	openFile := options.OpenFile
	if openFile == nil {
		openFile = plainfile.OpenFile
	}
	options.OpenFile = func(name string, flag int, mode os.FileMode) (*os.File, error) {
		f, err := openFile(name, flag, mode)
		if err != nil {
			return nil, err
		}
		if err = Lock(f, !options.ReadOnly, options.Timeout); err == nil && use&Unlocked != 0 {
			err = release(f)
		}
		if err == nil {
			err = check(f, damaged, use&^Unlocked)
		}
		if err != nil {
			_ = Unlock(f)
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
		if file != nil { // a bbolt that panicked leaves the file open and locked
			_ = Unlock(file)
		}
		return nil, err
	}
	if use&Unlocked != 0 {
		_ = release(file)
	}
	return db, nil
}

// Ask returns the state of a file that no other process writes to, or [ErrLocked]. If it is [Unchanged] later, nobody
// wrote to the file in between.
func Ask(path string) (os.FileInfo, error) {
	f, err := plainfile.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := ask(f, 0)
	return info, errors.Join(err, f.Close())
}

func ask(f *os.File, wait time.Duration) (os.FileInfo, error) {
	if err := Lock(f, false, wait); err != nil {
		return nil, err
	}
	info, err := f.Stat()
	return info, errors.Join(err, release(f))
}

// Unchanged reports whether a and b describe the same file and it was not written to in between.
func Unchanged(a, b os.FileInfo) bool {
	return a != nil && b != nil && os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// Look reads a file without bbolt and without its lock. It opens the file at once, because it checks only the pages that
// read asks for. If another process writes to the file, before or meanwhile, the error is [ErrLocked].
func Look(path string, damaged error, wait time.Duration, read func(*pages.File) error) error {
	f, err := plainfile.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	before, err := ask(f, wait)
	if err != nil {
		return err
	}
	file, err := pages.Open(f, before.Size())
	if err == nil {
		err = read(file)
	}
	if now, _ := ask(f, 0); !Unchanged(before, now) {
		return ErrLocked
	}
	return asDamaged(err, damaged)
}

// asDamaged wraps damaged, which is the error of the room whose file it is, if pages found the file damaged.
func asDamaged(err, damaged error) error {
	if errors.Is(err, pages.ErrDamaged) {
		return fmt.Errorf("%w: %w", damaged, err)
	}
	return err
}

// closeAtMost is how long Close waits.
var closeAtMost = 10 * time.Second

// Close closes a file, whatever state it is in. If bbolt panicked in the middle of a write, closing may wait for ever.
// Then Close gives up, and the file stays open and locked until the process ends.
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
	if err != nil || info.Size() == 0 { // bbolt fills an empty file
		return err
	}
	file, err := pages.Open(f, info.Size())
	if err == nil {
		err = checks[use](file)
	}
	return asDamaged(err, damaged)
}
