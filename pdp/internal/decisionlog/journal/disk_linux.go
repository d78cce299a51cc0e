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
