package journal

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"policy-service/pdp/pdptest/memorydisk"
)

// TestFullDisk: to create a journal on a disk without room for it fails, and leaves nothing.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := memorydisk.New(t, "size=6m")
	if j, err := Create(dir, Options{}); j != nil || !errors.Is(err, syscall.ENOSPC) {
		t.Error(err)
	}
	for _, path := range Paths(dir) {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s is left", path)
		}
	}
}
