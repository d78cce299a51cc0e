//go:build !linux

package journal

import "os"

func datasync(f *os.File) error { return f.Sync() }

func freeSpace(string) (free int64, known bool) { return 0, false }
