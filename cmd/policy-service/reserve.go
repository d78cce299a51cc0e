package main

import (
	"math"
	"os"
	"runtime/debug"
)

// reserveBytes is heap that is taken and never touched. The collector runs when the heap
// has doubled, and with a small bundle that is a few megabytes, a hundred requests: a
// fifth of all that a decision costs. What is never touched takes no memory, but counts.
const reserveBytes = 64 << 20

// reserve holds the reserve while serving, unless GOGC says how often to collect, or
// GOMEMLIMIT leaves too little for it.
func reserve() []byte {
	if os.Getenv("GOGC") != "" || debug.SetMemoryLimit(-1) < math.MaxInt64 && debug.SetMemoryLimit(-1) < 8*reserveBytes {
		return nil
	}
	return make([]byte, reserveBytes)
}
