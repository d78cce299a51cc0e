//go:build unix

package decisionlog

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// lockFile takes the lock of a log's directory, waiting no longer than told. It
// ends with the file, or the process. bbolt's own lock is on the active segment
// and would let a second writer in while the first one rotates.
func lockFile(name string, wait time.Duration) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDONLY, 0o600) // one open for writing keeps a file system from being remounted
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(wait); ; time.Sleep(20 * time.Millisecond) {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) || time.Now().After(deadline) {
			_ = f.Close()
			return nil, errors.Join(ErrLocked, err)
		}
	}
}
