//go:build unix

package boltfile

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// Lock takes the lock of a file, as bbolt does, for reading or for oneself, and waits no
// longer than told. It ends with the file, or the process. What is locked here bbolt
// locks again at once.
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

func unlock(f *os.File) { _ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }
