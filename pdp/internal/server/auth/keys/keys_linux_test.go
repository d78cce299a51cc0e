package keys

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"policy-service/pdp/pdptest/clock"
)

// A disk that has no room for the note loses no key that was made, and lets no server start.
func TestNoteThatFails(t *testing.T) {
	t.Parallel()
	dir, c := t.TempDir(), clock.New()
	must(t, os.Symlink("/dev/full", filepath.Join(dir, LockFile)))
	k := open(t, dir, c)
	if _, found := find(k, add(t, k, "pep")); !found {
		t.Error("the key that was printed is not good")
	}
	if err := k.Keep(); err == nil || !strings.Contains(err.Error(), "; try ") {
		t.Errorf("got %v, want an error that says what to try", err)
	}
}
