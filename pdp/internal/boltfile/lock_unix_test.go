//go:build unix

package boltfile_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"policy-service/pdp/internal/boltfile"
)

// TestUnlock: a lock ends with Unlock, although a child process still has the file. So it is for a moment whenever one is started.
func TestUnlock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	locked := func() *os.File {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		must(t, err)
		must(t, boltfile.Lock(f, true, 0))
		return f
	}
	f := locked()
	child := exec.CommandContext(t.Context(), "cat")
	child.ExtraFiles = []*os.File{f}
	stdin, err := child.StdinPipe()
	must(t, err)
	must(t, child.Start())
	must(t, boltfile.Unlock(f))
	must(t, boltfile.Unlock(locked()))
	must(t, stdin.Close())
	must(t, child.Wait())
}
