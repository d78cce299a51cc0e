package source_test

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	"policy-service/pdp"
)

// No mode keeps root from reading, so root gives up the right to, which Linux
// keeps for each thread.
func TestReadRefusesWhatItsModeForbids(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	whole.Write(t, dir)
	must(t, os.Chmod(filepath.Join(dir, "a.cedar"), 0))
	runtime.LockOSThread() // and never unlocked: the thread ends with the test
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var rights [2]unix.CapUserData
	must(t, unix.Capget(&header, &rights[0]))
	rights[0].Effective &^= 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH
	must(t, unix.Capset(&header, &rights[0]))
	if files := pdp.Dir(dir).Read(); !slices.Contains(codes(files.Problems), "a.cedar unreadable") {
		t.Error(files.Problems)
	}
}
