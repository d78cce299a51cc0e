package cli

import (
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// StepAside lets all other programs of the machine go first, such as a server that answers on the data directory that this command
// reads: it takes half of the processors, and these only while no other program wants them. Threads that begin later do as those that
// begin them.
func StepAside() {
	runtime.GOMAXPROCS(max(1, runtime.GOMAXPROCS(0)/2))
	aside := map[int]bool{}
	for again := true; again; { // another thread may have begun meanwhile
		again = false
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return
		}
		for _, one := range threads {
			id, err := strconv.Atoi(one.Name())
			if err != nil || aside[id] {
				continue
			}
			aside[id], again = true, true
			_ = unix.SchedSetAttr(id, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0) // or it goes on as it is
		}
	}
}
