package cedartext_test

import (
	"archive/tar"
	"compress/gzip"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// corpus are the policies of Cedar's own corpus, which stands inside the cedar-go module.
func corpus(t testing.TB) []string {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/cedar-policy/cedar-go")
	dir, err := list.Output()
	must(t, err)
	f, err := os.Open(filepath.Join(strings.TrimSpace(string(dir)), "corpus-tests.tar.gz"))
	must(t, err)
	defer f.Close()
	plain, err := gzip.NewReader(f)
	must(t, err)
	content := map[string]string{}
	for archive := tar.NewReader(plain); ; {
		h, err := archive.Next()
		if err == io.EOF {
			break
		}
		must(t, err)
		if strings.HasSuffix(h.Name, ".cedar") {
			text, err := io.ReadAll(archive)
			must(t, err)
			content[h.Name] = string(text)
		}
	}
	if len(content) != 7750 {
		t.Fatalf("the corpus has %d files, and not those of cedar-go v1.9.2", len(content))
	}
	all := slices.Collect(maps.Values(content))
	slices.Sort(all)
	if testing.Short() { // each tenth
		for n := range len(all) / 10 {
			all[n] = all[10*n]
		}
		all = all[:len(all)/10]
	}
	return all
}

// repository are the policy files of this repository: bundles that are shipped, and those of tests.
func repository(t testing.TB) (all []string) {
	t.Helper()
	must(t, fs.WalkDir(os.DirFS("../../.."), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case strings.HasSuffix(name, ".cedar") && !strings.HasPrefix(name, "pdp/internal/cedartext/"):
			text, err := os.ReadFile("../../../" + name)
			all = append(all, string(text))
			return err
		}
		return nil
	}))
	if len(all) < 30 {
		t.Fatalf("%d policy files are found", len(all))
	}
	return all
}

// generated are policies by chance, each as change makes it.
func generated(most int, change func(making, string) string) (all []string) {
	for seed := range most {
		m := seeded(seed)
		all = append(all, change(m, m.policies()))
	}
	return all
}

func plain(_ making, text string) string { return text }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
