package boltfile

import "time"

// CloseAtMost has Close wait no longer, until the test ends.
func CloseAtMost(d time.Duration) (restore func()) {
	before := closeAtMost
	closeAtMost = d
	return func() { closeAtMost = before }
}
