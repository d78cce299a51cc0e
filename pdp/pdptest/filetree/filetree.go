// Package filetree makes no promise: it is for the tests of this module alone. It writes the files that tests of
// directories need, and knows those of the checkout.
package filetree

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Tree is a directory's files by path; a value "-> x" is a symbolic link to x,
// and a path that ends in a slash is an empty directory.
type Tree map[string]string

// Write makes them in a directory.
func (files Tree) Write(t testing.TB, dir string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		file := filepath.Join(dir, name)
		must(os.MkdirAll(filepath.Dir(file), 0o755))
		target, link := strings.CutPrefix(files[name], "-> ")
		switch {
		case strings.HasSuffix(name, "/"):
			must(os.MkdirAll(file, 0o755))
		case link:
			must(os.Symlink(target, file))
		default:
			must(os.WriteFile(file, []byte(files[name]), 0o644))
		}
	}
}

// Rooms are the directories of the checkout that git keeps.
var Rooms = []string{".ci", "cmd", "conformance", "evaluation", "obligations", "pdp", "policies", "schemas"}

// Checkout lists the whole checkout once, so that the go command runs the tests of this package again after any change of
// it. Of files that another program reads, the go command hears nothing: a test that starts such a program calls Checkout.
func Checkout(t testing.TB) {
	t.Helper()
	listed.Do(func() { // the first time: later a test may be in another directory
		root, err := Top()
		if err != nil {
			t.Error(err)
			return
		}
		for _, name := range append([]string{"go.mod", "Makefile", "README.md"}, Rooms...) {
			// The go command keeps the size and the time of each file in a directory that was listed.
			err := fs.WalkDir(os.DirFS(root), name, func(_ string, _ fs.DirEntry, err error) error { return err })
			if err != nil {
				t.Error(err)
			}
		}
	})
}

var listed sync.Once

// Top returns the directory of the checkout: a test is in a directory below.
func Top() (dir string, err error) {
	dir, err = os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.sum")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("there is no go.sum above this directory; run the test in a checkout")
		}
	}
	return "", err
}

// Smallest is a bundle that loads, and More is one with a forbid.
const (
	Smallest = "@id(\"p\")\npermit (principal is User, action, resource);\n"
	More     = Smallest + "@id(\"f\")\nforbid (principal is User, action, resource);\n"
)

// Renamed is a policy file with another id for the policy p.
func Renamed(policy, id string) string {
	return strings.ReplaceAll(policy, `@id("p")`, `@id("`+id+`")`)
}
