//go:build !unix

package boltfile

import (
	"os"
	"time"
)

// Lock does nothing: bbolt locks the file.
func Lock(*os.File, bool, time.Duration) error { return nil }

// unlock has nothing to do: closing the file is enough.
func unlock(*os.File) {}
