// Package npm installs programs of others for tests: what a package-lock.json pins, byte for byte, and nothing else.
//
// Begin with [Install]. No script of a package runs.
package npm

import (
	"io/fs"
	"os"
	"os/exec"
	"testing"
)

// Install writes files into a directory of the test's own, and installs there what their package-lock.json pins. [Without]
// says what becomes of a test where that cannot be done.
func Install(t testing.TB, what string, files fs.FS) (dir string) {
	t.Helper()
	if _, err := exec.LookPath("npm"); err != nil {
		Without(t, what, err.Error())
	}
	dir = t.TempDir()
	if err := os.CopyFS(dir, files); err != nil {
		t.Fatal(err)
	}
	install := exec.CommandContext(t.Context(), "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", "--loglevel=error")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		Without(t, what, "npm ci: "+err.Error()+"\n"+string(out))
	}
	return dir
}

// Without ends a test that lacks what it compares with. It fails the test if CI is set, and skips it elsewhere.
func Without(t testing.TB, what, why string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf("no %s: %s", what, why)
	}
	t.Skipf("no %s: %s; try to install nodejs and npm", what, why)
}
