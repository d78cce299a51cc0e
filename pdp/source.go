package pdp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/dirhash"
)

// Source is where a bundle comes from: a directory, or any file system.
type Source struct {
	dir  string // the directory to watch; "" where there is none
	fsys fs.FS  // nil: each reading opens the directory
}

// Files is one reading of a bundle's files.
type Files struct {
	content  map[string][]byte // every file that is loaded, by slash path
	tenants  []string          // every legally named directory in tenants/, sorted, empty ones too
	problems Problems
	// manifest is set where a MANIFEST says what the files are to be.
	manifest bool
}

// Dir is the bundle in a directory. Symbolic links in it are followed where they
// stay with their owner: a tenant's in that tenant's directory, others in the
// bundle's and out of every tenant's. Kubernetes lays out a mounted volume so.
func Dir(path string) Source { return Source{dir: path} }

// FS is the bundle at the root of a file system.
func FS(fsys fs.FS) Source { return Source{fsys: fsys} }

// Read reads the bundle's files once. It always returns: what cannot be read is
// a problem of the reading.
func (s Source) Read() *Files {
	files, _ := s.read(context.Background())
	return files
}

// read is Read. Where ctx ends first there are no files: a part of them is none.
func (s Source) read(ctx context.Context) (*Files, error) {
	r := s.reader()
	r.ctx = ctx
	defer func() { r.close() }()
	if r.root() {
		r.bundle()
		r.checkManifest()
	}
	return r.done(), ctx.Err()
}

// readRoot reads what is no tenant's, and which tenants there are. What is wrong with
// either is not looked for.
func (s Source) readRoot(ctx context.Context) (*Files, error) {
	r := s.reader()
	r.ctx = ctx
	defer func() { r.close() }()
	if r.root() {
		r.part(".")
		r.findTenants()
	}
	return r.done(), ctx.Err()
}

// ReadTests reads the files in the tests directories of the root and of each
// tenant. What is wrong elsewhere is [Source.Read]'s to say.
func (s Source) ReadTests() *Files {
	r := s.reader()
	defer func() { r.close() }()
	if r.root() {
		r.findTenants()
		r.files.problems = nil
		r.tests("tests")
		for _, name := range r.files.tenants {
			r.tests("tenants/" + name + "/tests")
		}
	}
	return r.done()
}

// Digest is dirhash.Hash1 over path and bytes of every loaded file: the same on
// any machine. MANIFEST, tests and directories without a file are not in it.
func (f *Files) Digest() string { return f.digestOf(slices.Collect(maps.Keys(f.content))) }

func (f *Files) digestOf(names []string) string {
	open := func(name string) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(f.content[name])), nil
	}
	digest, err := dirhash.Hash1(names, open)
	if err != nil {
		return "" // a name with a newline, which no reading holds
	}
	return digest
}

// owner is the tenant whose file it is, "" where it is that of all.
func (f *Files) owner(file string) string {
	if rest, below := strings.CutPrefix(file, "tenants/"); below {
		tenant, _, _ := strings.Cut(rest, "/")
		if _, there := slices.BinarySearch(f.tenants, tenant); there {
			return tenant
		}
	}
	return ""
}

// holding returns the files with some tenants' as they are in another reading, all of
// them: names, contents and problems. A tenant that is not there is left out.
func (f *Files) holding(tenants []string, before *Files) *Files {
	if len(tenants) == 0 {
		return f
	}
	held := &Files{content: map[string][]byte{}, manifest: f.manifest}
	isHeld := map[string]bool{}
	for _, tenant := range tenants {
		isHeld[tenant] = true
	}
	for _, of := range []struct {
		*Files
		theirs bool
	}{{f, false}, {before, true}} {
		for name, text := range of.content {
			if isHeld[of.owner(name)] == of.theirs {
				held.content[name] = text
			}
		}
		for _, p := range of.problems {
			if isHeld[of.owner(p.File)] == of.theirs {
				held.problems = append(held.problems, p)
			}
		}
	}
	held.problems = held.problems.sorted()
	for _, name := range f.tenants {
		if !isHeld[name] || slices.Contains(before.tenants, name) {
			held.tenants = append(held.tenants, name)
		}
	}
	return held
}

// reading is what is kept of [Files] once they are loaded: enough to tell whose part
// of a later reading says anything new.
type reading struct {
	root    part
	tenants map[string]part
}

// part is what one owner's files are, and what is wrong with them.
type part struct {
	digest   string
	problems Problems
}

func (p part) equal(q part) bool {
	return p.digest == q.digest && slices.Equal(p.problems, q.problems)
}

func (f *Files) reading() reading {
	names, problems := map[string][]string{}, map[string]Problems{}
	for name := range f.content {
		names[f.owner(name)] = append(names[f.owner(name)], name)
	}
	for _, p := range f.problems {
		problems[f.owner(p.File)] = append(problems[f.owner(p.File)], p)
	}
	of := func(owner string) part { return part{f.digestOf(names[owner]), problems[owner]} }
	r := reading{root: of(""), tenants: map[string]part{}}
	for _, tenant := range f.tenants {
		r.tenants[tenant] = of(tenant)
	}
	return r
}

func (r reading) equal(s reading) bool { return r.sameRoot(s) && len(r.others(s)) == 0 }

// sameRoot reports whether two readings saw the same besides the tenants' own files.
// Which tenants there are is the root's to say.
func (r reading) sameRoot(s reading) bool {
	return r.root.equal(s.root) && r.sameTenants(s)
}

// sameRootFiles is sameRoot but for what is wrong with the files.
func (r reading) sameRootFiles(s reading) bool {
	return r.root.digest == s.root.digest && r.sameTenants(s)
}

func (r reading) sameTenants(s reading) bool {
	return maps.EqualFunc(r.tenants, s.tenants, func(part, part) bool { return true })
}

// others are the tenants whose files are not those of another reading, sorted; one that
// is not there has none.
func (r reading) others(s reading) (tenants []string) {
	for name, p := range r.tenants {
		if q, there := s.tenants[name]; !there || !p.equal(q) {
			tenants = append(tenants, name)
		}
	}
	slices.Sort(tenants)
	return tenants
}

// reader is one reading in progress.
type reader struct {
	ctx   context.Context
	fsys  fs.FS
	dir   string
	files *Files
	close func()
	// schema is the first schema file found, manifest whether the bundle has, or is
	// to have, a MANIFEST.
	schema   string
	manifest bool
	uses     map[string]*usage // by the tenant whose files they are
}

func (s Source) reader() *reader {
	return &reader{ctx: context.Background(), fsys: s.fsys, dir: s.dir, files: &Files{content: map[string][]byte{}}, close: func() {}, uses: map[string]*usage{}}
}

// isNothing reports that there is nowhere to read from.
func (s Source) isNothing() bool { return s.dir == "" && s.fsys == nil }

func (r *reader) done() *Files {
	r.files.problems = r.files.problems.sorted()
	r.files.manifest = r.manifest
	return r.files
}

// usage is what was read so far of the files beside this one.
func (r *reader) usage(file string) *usage {
	owner := ownerOfFile(file)
	if r.uses[owner] == nil {
		r.uses[owner] = usageOf(owner)
	}
	return r.uses[owner]
}

func (r *reader) problem(file, code, message, try string) {
	r.files.problems.add(file, 0, 0, code, message, try)
}

// root reports whether there is a directory to read at all.
func (r *reader) root() bool {
	if r.dir == "" && r.fsys == nil {
		r.problem("", "no_source", "there is nowhere to read it from", "name its directory")
		return false
	}
	info, err := r.enter()
	if errors.Is(err, fs.ErrNotExist) {
		r.problem("", "no_directory", "there is no directory "+r.place(), "create it, or name another one")
		return false
	}
	if err != nil {
		r.unreadable(".", err)
		return false
	}
	if !info.IsDir() {
		r.problem("", "not_a_directory", r.place()+" is no directory", "name the directory that holds bundle.yaml or the *.cedar files")
		return false
	}
	return true
}

// enter opens the directory, where the bundle is in one, and looks at the root.
func (r *reader) enter() (fs.FileInfo, error) {
	if r.fsys == nil {
		c, err := confine(r.dir)
		if err != nil {
			return nil, err
		}
		r.fsys, r.close = c, c.close
	}
	return fs.Stat(r.fsys, ".")
}
