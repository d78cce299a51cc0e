//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package verify

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// lockShared says whether no server holds the log, and keeps one from starting until
// unlock. A copy of a log has no lock file, and nobody holds it.
func lockShared(name string) (unlock func(), free bool, err error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return func() {}, true, nil
	}
	if err != nil {
		return nil, false, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if err == nil {
		return func() { // a child process that is just being started has the file, too: to close it is not enough
			_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
			_ = f.Close()
		}, true, nil
	}
	_ = f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, false, nil
	}
	return nil, false, err
}
