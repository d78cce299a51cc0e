//go:build unix

package listener

import (
	"math"
	"syscall"
)

// descriptors is how many files and connections the process may have open; 0 is unknown.
func descriptors() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return int(min(uint64(limit.Cur), math.MaxInt32))
}
