// Package filetree makes no promise: it is for the tests of this module alone. It writes the files that tests of
// directories need.
package filetree

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// Smallest is a bundle that loads, and More is one with a forbid.
const (
	Smallest = "@id(\"p\")\npermit (principal is User, action, resource);\n"
	More     = Smallest + "@id(\"f\")\nforbid (principal is User, action, resource);\n"
)

// Renamed is a policy file with another id for the policy p.
func Renamed(policy, id string) string {
	return strings.ReplaceAll(policy, `@id("p")`, `@id("`+id+`")`)
}
