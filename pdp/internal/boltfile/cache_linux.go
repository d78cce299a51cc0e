package boltfile

import (
	"golang.org/x/sys/unix"

	"policy-service/pdp/internal/plainfile"
)

// DropCache drops a file from the page cache, so that it is read from the disk again. After a failed sync, Linux calls
// pages clean that never reached the disk. Whatever is built on such pages, the next power cut damages.
func DropCache(path string) {
	f, err := plainfile.Open(path)
	if err != nil {
		return
	}
	_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	_ = f.Close()
}
