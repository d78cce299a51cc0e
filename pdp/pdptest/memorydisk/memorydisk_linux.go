// Package memorydisk makes no promise: it is for the tests of this module alone. It mounts file systems of their own
// for tests: they are soon full, or made read-only, and nothing else is harmed.
package memorydisk

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// New is a directory with a file system of its own, in memory, until the test ends.
func New(t testing.TB, options string) string {
	t.Helper()
	dir := t.TempDir()
	Mount(t, dir, options, 0)
	return dir
}

// Mount makes a directory that. Where this needs more rights than there are, the test is skipped.
func Mount(t testing.TB, dir, options string, flags uintptr) {
	t.Helper()
	if err := unix.Mount("tmpfs", dir, "tmpfs", flags, options); err != nil {
		if os.Getenv("CI") != "" { // which is root, and must not pass by skipping
			t.Fatal(err)
		}
		t.Skipf("it mounts a file system: %v; run it as root", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}
