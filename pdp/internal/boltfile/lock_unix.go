//go:build unix

package boltfile

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// Lock takes the lock of a file as bbolt does: shared, or alone. It waits at most so long. The lock ends with Unlock
// or with the process. bbolt can lock a file that is locked here, because it is the same file handle.
func Lock(f *os.File, alone bool, wait time.Duration) error {
	how := syscall.LOCK_SH | syscall.LOCK_NB
	if alone {
		how = syscall.LOCK_EX | syscall.LOCK_NB
	}
	for deadline := time.Now().Add(wait); ; time.Sleep(20 * time.Millisecond) {
		switch err := syscall.Flock(int(f.Fd()), how); {
		case err == nil:
			return nil
		case !errors.Is(err, syscall.EWOULDBLOCK):
			return fmt.Errorf("locking %s: %w", f.Name(), err)
		case time.Now().After(deadline):
			return ErrLocked
		}
	}
}

// release ends the lock of a file that stays open.
func release(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }

// Unlock closes a file that was locked. The lock ends at once, also where a child process that is just being started has the
// file, or a memory map that bbolt left behind.
func Unlock(f *os.File) error {
	return errors.Join(release(f), f.Close())
}
