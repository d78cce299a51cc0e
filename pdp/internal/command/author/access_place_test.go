package author

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What cannot be written leaves nothing behind, and what is written is one file that everybody can read.
func TestShelfWrites(t *testing.T) {
	dir := t.TempDir()
	s := shelf{bundle: dir, dir: "access"}
	var there *held
	for _, text := range []string{"mode: open\n", "mode: denylist\n"} {
		if err := s.write("a.yaml", []byte(text), there); err != nil {
			t.Fatal(err)
		}
		// What was looked at before somebody else wrote is not replaced.
		if err := s.write("a.yaml", []byte("mode: hybrid\n"), there); !errors.Is(err, errMeanwhile) {
			t.Error(err)
		}
		there = &held{text: []byte(text)}
		got, err := os.ReadFile(filepath.Join(dir, "access", "a.yaml"))
		if err != nil || string(got) != text {
			t.Errorf("%q, %v", got, err)
		}
	}
	for name, mode := range map[string]os.FileMode{"access": os.ModeDir | 0o755, "access/a.yaml": 0o644} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "access", "b.yaml"), 0o700); err != nil {
		t.Fatal(err)
	}
	for what, bad := range map[string]struct {
		shelf
		name string
	}{
		"a directory in place of the file":    {s, "b.yaml"},
		"a file in place of the directory":    {shelf{bundle: dir, dir: "access/a.yaml"}, "a.yaml"},
		"no directory around the directory":   {shelf{bundle: dir, dir: "tenants/t/access"}, "a.yaml"},
		"a name that no file system can have": {s, string(make([]byte, 300))},
	} {
		if err := bad.write(bad.name, []byte("mode: open\n"), nil); err == nil {
			t.Errorf("%s: it is written", what)
		}
	}
	var left []string
	entries, err := os.ReadDir(filepath.Join(dir, "access"))
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if err != nil || !slices.Equal(left, []string{"a.yaml", "b.yaml"}) {
		t.Errorf("left are %q, %v", left, err)
	}
}

// A bundle can have a file of the name of the directory: it is none of the bundle's.
func TestAFileInPlaceOfTheShelf(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "access"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openShelf(dir, ""); err == nil || !strings.HasSuffix(err.Error(), "access is no directory; rename it") {
		t.Error(err)
	}
}
