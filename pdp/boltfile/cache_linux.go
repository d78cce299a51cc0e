package boltfile

import (
	"golang.org/x/sys/unix"

	"policy-service/pdp/plainfile"
)

// DropCache forgets what the page cache holds of a file, so that it is read from the
// disk again. After a failed sync Linux calls pages clean that never got there, and
// what went on from them would be damaged by the next power cut.
func DropCache(path string) {
	f, err := plainfile.Open(path)
	if err != nil {
		return
	}
	_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	_ = f.Close()
}
