package journal

import (
	"os"

	"golang.org/x/sys/unix"
)

// datasync makes the data of a file durable, and its size, but not its times.
func datasync(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); err != unix.EINTR {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}

// freeSpace is how many bytes the disk of a directory has for us.
func freeSpace(dir string) (free int64, known bool) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, false
	}
	return int64(min(s.Bavail, 1<<40)) * int64(s.Bsize), true
}
