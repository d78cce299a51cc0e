//go:build !unix

package boltfile

import "os"

// unlock has nothing to do: closing the file is enough.
func unlock(*os.File) {}
