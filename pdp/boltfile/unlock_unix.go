//go:build unix

package boltfile

import (
	"os"
	"syscall"
)

// unlock takes back the lock of bbolt.
func unlock(f *os.File) { _ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }
