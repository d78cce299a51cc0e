package mcptest

import (
	"testing"
	"time"
)

// untilAtMost is how long anything may take, so that a test fails and does not hang.
const untilAtMost = time.Minute

// Until waits until something holds of which there is no news. It looks again and again, and leaves the processor to others
// between: for longer, the longer it has waited.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	late := time.After(untilAtMost)
	for pause := time.Millisecond; !holds(); pause = min(pause*3/2, 20*time.Millisecond) {
		select {
		case <-time.After(pause):
		case <-late:
			t.Fatalf("in %v it is not so: %s", untilAtMost, what)
		}
	}
}
