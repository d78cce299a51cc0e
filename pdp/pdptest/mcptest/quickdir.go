package mcptest

import (
	"os"
	"testing"
)

// QuickDir is a directory until the test ends: in memory, if there is such a place, since a PDP waits for the disk at each step.
func QuickDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "mcp-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
