package pdp

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"maps"
	"slices"

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
	r := s.reader()
	defer func() { r.close() }()
	if r.root() {
		r.bundle()
		r.checkManifest()
	}
	return r.done()
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
func (f *Files) Digest() string {
	open := func(name string) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(f.content[name])), nil
	}
	digest, err := dirhash.Hash1(slices.Collect(maps.Keys(f.content)), open)
	if err != nil {
		return "" // a name with a newline, which no reading holds
	}
	return digest
}

// equal reports whether two readings saw the same names, contents and problems.
func (f *Files) equal(g *Files) bool {
	return maps.EqualFunc(f.content, g.content, bytes.Equal) &&
		slices.Equal(f.tenants, g.tenants) && slices.Equal(f.problems, g.problems)
}

// reading is what is kept of [Files] once they are loaded: enough to tell
// whether a later reading says anything new.
type reading struct {
	digest   string
	tenants  []string
	problems Problems
}

func (f *Files) reading() reading { return reading{f.Digest(), f.tenants, f.problems} }

func (r reading) equal(s reading) bool {
	return r.digest == s.digest && slices.Equal(r.tenants, s.tenants) && slices.Equal(r.problems, s.problems)
}

// reader is one reading in progress.
type reader struct {
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
	return &reader{fsys: s.fsys, dir: s.dir, files: &Files{content: map[string][]byte{}}, close: func() {}, uses: map[string]*usage{}}
}

// isNothing reports that there is nowhere to read from.
func (s Source) isNothing() bool { return s.dir == "" && s.fsys == nil }

func (r *reader) done() *Files {
	r.files.problems = r.files.problems.sorted()
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
