package source_test

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"policy-service/pdp"
	"policy-service/pdp/internal/source"
)

// whole is a directory with a file of every kind, to be read, not to be loaded.
var whole = tree{
	"a.cedar":                        smallest,
	"bundle.yaml":                    "known: [User]\n",
	"schema.cedarschema":             "entity User;\n",
	"obligations.yaml":               "{}\n",
	"entities/users.json":            "[]\n",
	"tests/a.yaml":                   "[]\n",
	"tenants/acme/b.cedar":           smallest,
	"tenants/acme/entities/all.json": "[]\n",
	"tenants/acme/obligations.yaml":  "{}\n",
	"tenants/acme/tests/b.json":      "[]\n",
	"tenants/entities/e.cedar":       smallest, // a tenant may be called that
	".git/config":                    "ignored",
	".a.cedar.swp":                   "ignored",
}

func loadedNames(files *pdp.Files) []string { return slices.Sorted(maps.Keys(files.Content)) }

func TestReadTakesWhatTheLayoutNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	whole.Write(t, dir)
	files := pdp.Dir(dir).Read()
	want := []string{
		"a.cedar", "bundle.yaml", "entities/users.json", "obligations.yaml", "schema.cedarschema",
		"tenants/acme/b.cedar", "tenants/acme/entities/all.json", "tenants/acme/obligations.yaml", "tenants/entities/e.cedar",
	}
	if diff := cmp.Diff(want, loadedNames(files)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"acme", "entities"}, files.Tenants); diff != "" {
		t.Error(diff)
	}
	if len(files.Problems) > 0 {
		t.Error(files.Problems)
	}
	if got := loadedNames(pdp.Dir(dir).ReadTests()); !slices.Equal(got, []string{"tenants/acme/tests/b.json", "tests/a.yaml"}) {
		t.Error("tests:", got)
	}
}

// The value was made with other tools, from the directory that this test writes:
//
//	sha256sum a.cedar entities/users.json tenants/acme/b.cedar | sha256sum | xxd -r -p | base64
func TestDigestIsTheSameOnAnyMachine(t *testing.T) {
	t.Parallel()
	const want = "h1:m2EHZkox/+mHYYdm+n+xYRzDD2CayV1cxLKcRBETAGk="
	files := tree{"tenants/acme/b.cedar": smallest, "a.cedar": smallest, "entities/users.json": "[]\n"}
	dir, mapped := t.TempDir(), fstest.MapFS{}
	files.Write(t, dir)
	for name, data := range files {
		mapped[name] = &fstest.MapFile{Data: []byte(data)}
	}
	for _, source := range []pdp.Source{pdp.Dir(dir), pdp.FS(mapped)} {
		if got := source.Read().Digest(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	tree{"tests/a.yaml": "[]\n", "README": "hello\n"}.Write(t, dir)
	must(t, pdp.Dir(dir).WriteManifest())
	if got := pdp.Dir(dir).Read().Digest(); got != want {
		t.Errorf("with tests, README and MANIFEST: %s, want %s", got, want)
	}
}

func TestReadingsAreEqual(t *testing.T) {
	t.Parallel()
	read := func(files tree) *pdp.Files {
		dir := t.TempDir()
		files.Write(t, dir)
		return pdp.Dir(dir).Read()
	}
	base := tree{"a.cedar": smallest, "tenants/acme/b.cedar": smallest}
	with := func(name, data string) tree {
		other := maps.Clone(base)
		other[name] = data
		return other
	}
	if !read(base).Reading().Equal(read(base).Reading()) {
		t.Error("a reading differs from another of the same files")
	}
	for what, other := range map[string]tree{
		"content": with("a.cedar", smallest+"\n"),
		"names":   with("b.cedar", smallest),
		"tenants": with("tenants/other/", ""),
		"warning": with("README", "hello"),
		"error":   with("c.cedar", ""),
	} {
		if read(base).Reading().Equal(read(other).Reading()) {
			t.Errorf("%s: a reading equals another", what)
		}
	}
}

// With drafts, a source is what it is once they are written, also its tests, which are read by themselves. A later draft of
// a file takes the place of an earlier one.
func TestWithIsWhatWouldBeRead(t *testing.T) {
	t.Parallel()
	base := tree{
		"a.cedar": smallest, "x.yaml": "unknown", "access/o.yaml": "mode: open\n", "tests/a.yaml": "[]\n",
		"tenants/acme/b.cedar": smallest, "tenants/empty/": "",
	}
	const declaration = "mode: denylist\n"
	for _, drafts := range []tree{
		{"access/o.yaml": declaration}, // in place of a file
		{"access/p.yml": declaration},
		{"tenants/acme/access/o.yaml": declaration},
		{"tenants/empty/access/o.yaml": declaration}, // which makes it a tenant with a file
		{"a.cedar": ""},
		{"access/q.yaml": declaration + strings.Repeat("#", 256<<10)},
		{"access/r.yaml": strings.Repeat("#", 4<<20)},
		{"bundle.yaml": "types: {}\n"},
		{"a.cedar": smallest + "// more\n", "c.cedar": smallest, "tests/a.yaml": "- {}\n", "tenants/acme/tests/new.yaml": "- 1\n"},
	} {
		dir, other := t.TempDir(), t.TempDir()
		base.Write(t, dir)
		base.Write(t, other)
		drafts.Write(t, other)
		before := pdp.Dir(dir).Read()
		source := pdp.Dir(dir)
		for file, text := range drafts {
			source = source.With(file, []byte("broken")).With(file, []byte(text))
		}
		with, written := source.Read(), pdp.Dir(other).Read()
		if !with.Reading().Equal(written.Reading()) || with.Digest() != written.Digest() {
			t.Errorf("%v: %v %v, and written it is %v %v", drafts, loadedNames(with), with.Problems, loadedNames(written), written.Problems)
		}
		if diff := cmp.Diff(pdp.Dir(other).ReadTests().Content, source.ReadTests().Content); diff != "" {
			t.Error(diff)
		}
		if _, tests := pdp.Examples(source); len(tests) == 0 && drafts["tests/a.yaml"] != "" {
			t.Error("the drafts of tests were not read")
		}
		if !pdp.Dir(dir).Read().Reading().Equal(before.Reading()) {
			t.Errorf("%v was written", drafts)
		}
	}
}

// A MANIFEST is held against all files but the draft, because it will be written again.
func TestWithAndAManifest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tree{"a.cedar": smallest, "access/o.yaml": "mode: open\n", "tenants/acme/b.cedar": smallest}.Write(t, dir)
	must(t, pdp.Dir(dir).WriteManifest())
	tree{"tenants/empty/": ""}.Write(t, dir)
	for file, want := range map[string][]string{
		"access/o.yaml":               {"tenants/empty empty_tenant"},
		"access/p.yaml":               {"tenants/empty empty_tenant"},
		"tenants/empty/access/o.yaml": nil,
	} {
		if diff := cmp.Diff(want, codes(pdp.Dir(dir).With(file, []byte("mode: denylist\n")).Read().Problems)); diff != "" {
			t.Errorf("%s: %s", file, diff)
		}
	}
	tree{"a.cedar": smallest + "\n", "c.cedar": smallest}.Write(t, dir)
	want := []string{"a.cedar manifest_differs", "c.cedar manifest_unlisted"}
	if diff := cmp.Diff(want, codes(pdp.Dir(dir).With("tenants/empty/access/o.yaml", []byte("mode: open\n")).Read().Problems)); diff != "" {
		t.Error(diff)
	}
}

func TestReadWarns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tree{
		"a.cedar": smallest, "README.md": "", "tenants/acme/README.md": "", "a.cedar~": "", "old/deep/b.cedar": smallest, "entities/notes.txt": "x",
		"tenants/README": "x", "tenants/acme/bundle.yaml": "x", "tenants/acme/b.cedar": smallest, "tenants/empty/": "", "other.cedarschema.yaml": "x", "tenants/acme/own.cedarschema": "x",
		"tests/README": "x",
	}.Write(t, dir)
	files := pdp.Dir(dir).Read()
	want := []string{
		"a.cedar~ unknown_file", "entities/notes.txt unknown_file", "old unknown_directory", "other.cedarschema.yaml unknown_file",
		"tenants/README unknown_file", "tenants/acme/README.md unknown_file", "tenants/acme/bundle.yaml unknown_file", "tenants/acme/own.cedarschema unknown_file", "tenants/empty empty_tenant",
	}
	if diff := cmp.Diff(want, codes(files.Problems)); diff != "" {
		t.Error(diff)
	}
	if files.Problems.Refuse() {
		t.Error(files.Problems)
	}
	if got := loadedNames(files); !slices.Equal(got, []string{"a.cedar", "tenants/acme/b.cedar"}) {
		t.Error("loaded", got)
	}
	if diff := cmp.Diff([]string{"tests/README unknown_file"}, codes(pdp.Dir(dir).ReadTests().Problems)); diff != "" {
		t.Error(diff)
	}
}

// TestNoDirectoryIsPassedOverForItsName: what stands in a directory of a name that is nearly right may be the forbids of somebody.
func TestNoDirectoryIsPassedOverForItsName(t *testing.T) {
	t.Parallel()
	for name, meant := range map[string]string{
		"tenant/acme/b.cedar": "tenants", "Tenants/acme/b.cedar": "tenants", "entity/e.json": "entities", "entites/e.json": "entities", "test/a.yaml": "tests",
		"acess/o.yaml": "access", "tenants/acme/entity/e.json": "entities", "tenants/acme/tests.d/a.yaml": "tests", "tenants/acme/tenant/b.cedar": "",
		"old/b.cedar": "", "docs/a.md": "", "entities/tenant/b.json": "",
	} {
		dir := t.TempDir()
		tree{"a.cedar": smallest, "tenants/acme/a.cedar": smallest, name: "x"}.Write(t, dir)
		problems := pdp.Dir(dir).Read().Problems
		if problems.Refuse() != (meant != "") || meant != "" && !strings.Contains(problems.Error(), "did you mean "+meant+"?") {
			t.Errorf("%s: %v", name, problems)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	t.Parallel()
	sparse := func(name string, size int64) func(testing.TB, string) {
		return func(t testing.TB, dir string) {
			tree{name: ""}.Write(t, dir)
			must(t, os.Truncate(filepath.Join(dir, name), size))
		}
	}
	fifo := func(t testing.TB, dir string) { must(t, syscall.Mkfifo(filepath.Join(dir, "x.cedar"), 0o644)) }
	for _, c := range []struct {
		name, want string
		files      tree
		also       func(testing.TB, string)
	}{
		{"0 bytes", "x.cedar empty_file", tree{"x.cedar": ""}, nil},
		{"white space", "bundle.yaml empty_file", tree{"bundle.yaml": " \r\n\t\n"}, nil},
		{"empty entities", "entities/x.json empty_file", tree{"entities/x.json": ""}, nil},
		{"FIFO", "x.cedar not_a_file", nil, fifo},
		{"link to a FIFO", "y.cedar not_a_file", tree{"y.cedar": "-> .x"}, func(t testing.TB, dir string) { must(t, syscall.Mkfifo(filepath.Join(dir, ".x"), 0o644)) }},
		{"device", "x.cedar link_astray", tree{"x.cedar": "-> /dev/zero"}, nil},
		{"link to nothing", "x.cedar unreadable", tree{"x.cedar": "-> gone"}, nil},
		{"link to itself", "x.cedar symlink_loop", tree{"x.cedar": "-> x.cedar"}, nil},
		{"links in a circle", "entities symlink_loop", tree{"entities": "-> b", ".b": "", "b": "-> entities"}, nil},
		{"directory for a file", "x.cedar not_a_file", tree{"x.cedar/": ""}, nil},
		{"file for a directory", "entities not_a_directory", tree{"entities": "x"}, nil},
		{"link to nothing for declarations", "access unreadable", tree{"access": "-> gone"}, nil},
		{"file for tenants", "tenants not_a_directory", tree{"tenants": "x"}, nil},
		{"tenants linked to nothing", "tenants unreadable", tree{"tenants": "-> gone"}, nil},
		{"tenant linked to nothing", "tenants/acme unreadable", tree{"tenants/acme": "-> gone"}, nil},
		{"tenant linked to itself", "tenants/acme symlink_loop", tree{"tenants/acme": "-> acme"}, nil},
		{"newline", `"x\n.cedar" file_name`, tree{"x\n.cedar": smallest}, nil},
		{"bad UTF-8", `"x\xff.cedar" file_name`, tree{"x\xff.cedar": smallest}, nil},
		{"backslash", `entities/"x\\y.json" file_name`, tree{`entities/x\y.json`: "[]"}, nil},
		{"illegal tenant", "tenants/a b tenant_name", tree{"tenants/a b/x.cedar": smallest}, nil},
		{"tenant default", "tenants/default tenant_name", tree{"tenants/default/": ""}, nil},
		{"large policy", "x.cedar too_large", nil, sparse("x.cedar", 256<<10+1)},
		{"large settings", "obligations.yaml too_large", nil, sparse("obligations.yaml", 1<<20+1)},
		{"large schema", "schema.cedarschema too_large", nil, sparse("schema.cedarschema", 4<<20+1)},
		{"large entities", "entities/x.json too_large", nil, sparse("entities/x.json", 1<<40)},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			tree{"a.cedar": smallest}.Write(t, dir)
			c.files.Write(t, dir)
			if c.also != nil {
				c.also(t, dir)
			}
			files := pdp.Dir(dir).Read()
			i := slices.Index(codes(files.Problems), c.want)
			if i < 0 {
				t.Fatalf("want %s, got %v", c.want, files.Problems)
			}
			p := files.Problems[i]
			if p.Severity != pdp.SeverityError || p.Try == "" || strings.Contains(p.Message, dir) {
				t.Errorf("%+v", p)
			}
			if _, is := files.Content[p.File]; is {
				t.Error("it is loaded all the same")
			}
			if _, problems := pdp.Load(pdp.Dir(dir)); !problems.Refuse() {
				t.Error("a bundle loads from it")
			}
		})
	}
}

func TestReadTakesFilesAtTheirLimit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tree{"a.cedar": "//" + strings.Repeat("x", source.MaxPolicyFile-2)}.Write(t, dir)
	if files := pdp.Dir(dir).Read(); len(files.Problems) > 0 || len(files.Content["a.cedar"]) != source.MaxPolicyFile {
		t.Error(files.Problems)
	}
}

func TestReadRefusesARootThatIsNone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tree{"file": "x", "loop": "-> loop"}.Write(t, dir)
	must(t, syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o644))
	for name, want := range map[string]string{
		"gone": " no_directory", "file": " unreadable", "fifo": " unreadable", "loop": " symlink_loop",
	} {
		files := pdp.Dir(filepath.Join(dir, name)).Read()
		if got := codes(files.Problems); !slices.Equal(got, []string{want}) || !files.Problems.Refuse() {
			t.Errorf("%s: %v", name, files.Problems)
		}
		if !strings.Contains(files.Problems.Error(), name) {
			t.Errorf("it does not say which: %v", files.Problems)
		}
		if tests := pdp.Dir(filepath.Join(dir, name)).ReadTests(); !tests.Problems.Refuse() {
			t.Errorf("%s: its tests can be read", name)
		}
	}
	for _, source := range []pdp.Source{{}, pdp.Dir("")} {
		if files := source.Read(); !files.Problems.Refuse() {
			t.Error("a source of nothing can be read")
		}
	}
}

// denied is a file system in which one name may not be opened or listed: the
// tests may run as root, whom no mode keeps out.
type denied struct {
	fs.FS
	name string
}

func (d denied) Open(name string) (fs.File, error) {
	if name == d.name {
		return nil, &fs.PathError{Op: "open", Path: "/secret/" + name, Err: fs.ErrPermission}
	}
	return d.FS.Open(name)
}

func TestReadRefusesWhatItMayNotRead(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a.cedar", "entities", "entities/users.json", "tenants", "tenants/acme", "tenants/acme/b.cedar", "."} {
		dir := t.TempDir()
		whole.Write(t, dir)
		files := pdp.FS(denied{os.DirFS(dir), name}).Read()
		if !files.Problems.Refuse() || !strings.Contains(files.Problems.Error(), "permission") || strings.Contains(files.Problems.Error(), "secret") {
			t.Errorf("%s: %v", name, files.Problems)
		}
	}
}

// In a file system that is given, links are its own business. Root gets the read error, too.
func TestReadRefusesWhatIsNoFileInAFileSystem(t *testing.T) {
	t.Parallel()
	for target, want := range map[string]string{"/dev/zero": "x.cedar not_a_file", "/proc/self/mem": "x.cedar unreadable"} {
		dir := t.TempDir()
		tree{"x.cedar": "-> " + target}.Write(t, dir)
		if files := pdp.FS(os.DirFS(dir)).Read(); !slices.Equal(codes(files.Problems), []string{want}) {
			t.Errorf("%s: %v", target, files.Problems)
		}
	}
}

// growing is a file system whose files have grown when they are opened.
type growing struct{ small, large fs.FS }

func (g growing) Open(name string) (fs.File, error)     { return g.large.Open(name) }
func (g growing) Stat(name string) (fs.FileInfo, error) { return fs.Stat(g.small, name) }

func TestReadIsBoundedHoweverAFileGrows(t *testing.T) {
	t.Parallel()
	small := fstest.MapFS{"a.cedar": {Data: []byte(smallest)}}
	large := fstest.MapFS{"a.cedar": {Data: make([]byte, 2*source.MaxPolicyFile)}}
	files := pdp.FS(growing{small, large}).Read()
	if got := codes(files.Problems); !slices.Equal(got, []string{"a.cedar too_large"}) {
		t.Error(files.Problems)
	}
}

var errAny = errors.New("any")

type faulty struct{ fs.FS }

func (f faulty) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, _ := fs.ReadDir(f.FS, name)
	return entries[:1], errAny
}

// Half a listing must not pass for the whole: the other half may hold the forbids.
func TestReadRefusesHalfAListing(t *testing.T) {
	t.Parallel()
	files := pdp.FS(faulty{fstest.MapFS{"a.cedar": {Data: []byte(smallest)}, "b.cedar": {Data: []byte(smallest)}}}).Read()
	if len(files.Content) > 0 || !files.Problems.Refuse() {
		t.Error(loadedNames(files), files.Problems)
	}
}
