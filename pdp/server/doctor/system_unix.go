//go:build unix

package doctor

import (
	"io/fs"
	"math"
	"syscall"

	"golang.org/x/sys/unix"
)

// ownerOf is the user a file belongs to.
func ownerOf(info fs.FileInfo) (uid int, known bool) {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(s.Uid), true
}

// writable says why nothing can be made in a directory.
func writable(dir string) error { return unix.Access(dir, unix.W_OK|unix.X_OK) }

// unlimited is a limit that is none.
const unlimited = math.MaxInt64

// limitsOf are how many files this process may open, and how large one may become.
// Of the first the hard limit counts: Go raises the soft one to it when it starts.
func limitsOf() (open, fileSize int64) {
	open, fileSize = unlimited, unlimited
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err == nil && uint64(l.Max) < unlimited {
		open = int64(l.Max)
	}
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &l); err == nil && uint64(l.Cur) < unlimited {
		fileSize = int64(l.Cur)
	}
	return open, fileSize
}
