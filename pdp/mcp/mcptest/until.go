package mcptest

import (
	"testing"
	"time"
)

// untilAtMost is how long anything may take, so that a test fails and does not hang.
const untilAtMost = 30 * time.Second

// Until waits until something holds that nobody tells of. It looks again and again, and leaves the processor to others between.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for late := time.After(untilAtMost); !holds(); {
		select {
		case <-again.C:
		case <-late:
			t.Fatalf("in %v it is not so: %s", untilAtMost, what)
		}
	}
}
