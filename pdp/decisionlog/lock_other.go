//go:build !unix

package decisionlog

import (
	"os"
	"time"
)

// lockFile relies on the lock that bbolt takes on the active segment.
func lockFile(name string, _ time.Duration) (*os.File, error) {
	return os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
}
