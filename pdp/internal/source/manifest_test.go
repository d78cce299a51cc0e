package source_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"policy-service/pdp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// listed is a directory with a MANIFEST, and the MANIFEST.
func listed(t *testing.T) (dir, manifest string) {
	dir = t.TempDir()
	tree{
		"a.cedar": smallest, "bundle.yaml": "known: [User]\n", "schema.cedarschema": "entity User; entity tool; action \"tool.invoke\" appliesTo { principal: User, resource: tool };\n", "entities/users.json": "[]\n", "access/desk.yaml": "mode: open\n", "tests/a.yaml": "[]\n",
		"tenants/acme/b.cedar": renamed(smallest, "b"), "tenants/acme/entities/all.json": "[]\n", "tenants/acme/tests/b.json": "[]\n", ".git/config": "ignored",
	}.Write(t, dir)
	must(t, pdp.Dir(dir).WriteManifest())
	data, err := os.ReadFile(filepath.Join(dir, "MANIFEST"))
	must(t, err)
	// As sha256sum over everything would have it: what is listed counts, loaded or not.
	manifest = strings.Replace(string(data), "# end\n", fmt.Sprintf("%x  tests/a.yaml\n%s", sha256.Sum256([]byte("[]\n")), "# end\n"), 1)
	tree{"MANIFEST": manifest}.Write(t, dir)
	return dir, manifest
}

func TestWriteManifest(t *testing.T) {
	t.Parallel()
	dir, manifest := listed(t)
	if files := pdp.Dir(dir).Read(); len(files.Problems) > 0 {
		t.Error(files.Problems)
	}
	var names []string
	for line := range strings.Lines(manifest) {
		if sum, name, ok := strings.Cut(strings.TrimSpace(line), "  "); ok && len(sum) == 64 {
			names = append(names, name)
		}
	}
	want := []string{
		"a.cedar", "access/desk.yaml", "bundle.yaml", "entities/users.json", "schema.cedarschema",
		"tenants/acme/b.cedar", "tenants/acme/entities/all.json", "tests/a.yaml",
	}
	if !slices.Equal(names, want) || !strings.HasSuffix(manifest, "\n# end\n") {
		t.Errorf("%s", manifest)
	}
	// It can be written again when it no longer fits, but not over a bundle that cannot be read.
	tree{"a.cedar": more}.Write(t, dir)
	must(t, pdp.Dir(dir).WriteManifest())
	if files := pdp.Dir(dir).Read(); len(files.Problems) > 0 {
		t.Error(files.Problems)
	}
	tree{"a.cedar": ""}.Write(t, dir)
	if err := pdp.Dir(dir).WriteManifest(); err == nil {
		t.Error("a MANIFEST was written of an empty file")
	}
	// Nor where it could not say what makes a difference: a tenant is one by its directory alone.
	must(t, os.Remove(filepath.Join(dir, "MANIFEST")))
	tree{"a.cedar": more, "tenants/ghost/": ""}.Write(t, dir)
	if err := pdp.Dir(dir).WriteManifest(); err == nil || !strings.Contains(err.Error(), "tenants/ghost: ") {
		t.Error("a MANIFEST was written beside an empty tenant:", err)
	}
	if _, problems := pdp.Load(pdp.Dir(dir)); problems.Refuse() || !slices.Contains(codes(problems), "tenants/ghost empty_tenant") {
		t.Error("without a MANIFEST:", problems)
	}
	if err := pdp.FS(fstest.MapFS{}).WriteManifest(); err == nil {
		t.Error("a MANIFEST was written into no directory")
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".MANIFEST*")); len(left) > 0 {
		t.Error("left behind:", left)
	}
}

// Cut anywhere, last newline included, nothing loads.
func TestManifestCutAtEveryByte(t *testing.T) {
	t.Parallel()
	dir, manifest := listed(t)
	files := fstest.MapFS{}
	for name, data := range pdp.Dir(dir).Read().Content {
		files[name] = &fstest.MapFile{Data: data}
	}
	for cut := range len(manifest) {
		files["MANIFEST"] = &fstest.MapFile{Data: []byte(manifest[:cut])}
		if _, problems := pdp.Load(pdp.FS(files)); !slices.Contains(codes(problems), "MANIFEST manifest_incomplete") {
			t.Fatalf("cut at byte %d: %v", cut, problems)
		}
	}
	tree{"MANIFEST": manifest}.Write(t, dir)
	if _, problems := pdp.Load(pdp.Dir(dir)); problems.Refuse() {
		t.Error(problems)
	}
}

// A file that the MANIFEST lists does not load cut anywhere either.
func TestManifestHoldsEveryByte(t *testing.T) {
	t.Parallel()
	dir, _ := listed(t)
	for cut := range len(smallest) {
		tree{"a.cedar": smallest[:cut]}.Write(t, dir)
		if _, problems := pdp.Load(pdp.Dir(dir)); !problems.Refuse() {
			t.Fatalf("cut at byte %d, it loads", cut)
		}
	}
}

func TestManifestRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, want string
		files      tree
		remove     string
	}{
		{"unlisted", "z.cedar manifest_unlisted", tree{"z.cedar": smallest}, ""},
		{"unlisted tenant", "tenants/other/z.cedar manifest_unlisted", tree{"tenants/other/z.cedar": smallest}, ""},
		{"unlisted declaration", "access/shed.yml manifest_unlisted", tree{"access/shed.yml": "mode: open\n"}, ""},
		{"unlisted declaration of a tenant", "tenants/acme/access/shed.yml manifest_unlisted", tree{"tenants/acme/access/shed.yml": "mode: open\n"}, ""},
		{"absent declaration", "access/desk.yaml manifest_absent", nil, "access/desk.yaml"},
		{"different declaration", "access/desk.yaml manifest_differs", tree{"access/desk.yaml": "mode: denylist\n"}, ""},
		{"absent", "tenants/acme/b.cedar manifest_absent", nil, "tenants/acme/b.cedar"},
		{"absent test", "tests/a.yaml manifest_absent", nil, "tests/a.yaml"},
		{"different", "a.cedar manifest_differs", tree{"a.cedar": smallest + "\n"}, ""},
		{"different test", "tests/a.yaml manifest_differs", tree{"tests/a.yaml": "[ ]\n"}, ""},
		{"empty tenant", "tenants/ghost empty_tenant", tree{"tenants/ghost/": ""}, ""},
		{"tenant of nothing that is loaded", "tenants/ghost empty_tenant", tree{"tenants/ghost/.gitkeep": "", "tenants/ghost/tests/a.yaml": "[]\n"}, ""},
		{"empty", "entities/users.json empty_file", tree{"entities/users.json": ""}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, _ := listed(t)
			c.files.Write(t, dir)
			if c.remove != "" {
				must(t, os.Remove(filepath.Join(dir, c.remove)))
			}
			files := pdp.Dir(dir).Read()
			if !slices.Contains(codes(files.Problems), c.want) || !files.Problems.Refuse() {
				t.Errorf("want %s, got %v", c.want, files.Problems)
			}
		})
	}
}

// A large file that is listed and not loaded takes no memory of its size.
func TestManifestListsALargeFile(t *testing.T) {
	const size = 64 << 20
	fsys := fstest.MapFS{"docs/large": {Data: make([]byte, size)}}
	fsys["MANIFEST"] = &fstest.MapFile{Data: fmt.Appendf(nil, "%x  docs/large\n# end\n", sha256.Sum256(fsys["docs/large"].Data))}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	files := pdp.FS(fsys).Read()
	runtime.ReadMemStats(&after)
	if got := codes(files.Problems); slices.Contains(got, "docs/large manifest_differs") || slices.Contains(got, "docs/large too_large") {
		t.Error(got)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > size/4 {
		t.Errorf("it took %d bytes", took)
	}
}

// What is listed and not loaded is read to be compared, whatever it is.
func TestManifestMayListOtherFiles(t *testing.T) {
	t.Parallel()
	const sum = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03" // of "hello\n"
	dir, manifest := listed(t)
	tree{"docs/README": "hello\n", "MANIFEST": sum + " *docs/README\n" + manifest}.Write(t, dir)
	if files := pdp.Dir(dir).Read(); files.Problems.Refuse() {
		t.Error(files.Problems)
	}
	tree{"docs/README": "hallo\n"}.Write(t, dir)
	if files := pdp.Dir(dir).Read(); !slices.Contains(codes(files.Problems), "docs/README manifest_differs") {
		t.Error(files.Problems)
	}
}
