//go:build !unix

package boltfile

import (
	"os"
	"time"
)

// Lock does nothing: bbolt locks the file.
func Lock(*os.File, bool, time.Duration) error { return nil }

// release does nothing: bbolt unlocks the file when it closes it.
func release(*os.File) error { return nil }

// Unlock closes the file.
func Unlock(f *os.File) error { return f.Close() }
