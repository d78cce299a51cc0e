// Package source reads the files of a bundle. [Source.Read] is one reading: every file that the
// layout names, with the problems of the reading itself.
//
// layout.go knows which files a bundle has, and bounds.go how much an owner may bring. confined.go
// follows links no further than their owner's files. manifest.go compares the files with a MANIFEST.
//
// The package looks at names, sizes and bytes, and into no file but the MANIFEST.
package source

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

	"policy-service/pdp/internal/document"
)

// Source is where a bundle comes from: a directory, or any file system.
type Source struct {
	Dir  string // the directory to watch, or ""
	Fsys fs.FS  // nil: each reading opens the directory

	drafts drafts // what some files would hold; every other file is read as it is
}

// drafts are what files would hold, by slash path.
type drafts map[string][]byte

// of reports whether one of the drafts is of a file that has this owner.
func (d drafts) of(owner string) bool {
	for file := range d {
		if TenantOf(file) == owner {
			return true
		}
	}
	return false
}

// Files is one reading of a bundle's files.
type Files struct {
	Content map[string][]byte // every file that is loaded, by slash path
	Tenants []string          // every legally named directory in tenants/, even an empty one, sorted
	// Unavailable are the tenants whose files were left out because they do not load, sorted.
	Unavailable []string
	Problems    document.Problems
	// Manifest is set if a MANIFEST says what the files must be.
	Manifest bool
}

// Dir is the bundle in a directory. A reading follows a symbolic link only if it stays with
// its owner. A tenant's link must stay in that tenant's directory. Any other link must stay in
// the bundle's directory, and out of every tenant's. A volume that Kubernetes mounts has such
// links.
func Dir(path string) Source { return Source{Dir: path} }

// FS is the bundle at the root of a file system.
func FS(fsys fs.FS) Source { return Source{Fsys: fsys} }

// With returns the source as it would be with this content in a file, which need not be there
// yet. Several files can have such drafts. [Source.Read] and [Source.ReadTests], and what builds
// on them, see it so. A MANIFEST is held against all other files: it would be written again.
// Nothing is written.
func (s Source) With(file string, content []byte) Source {
	s.drafts = maps.Clone(s.drafts)
	if s.drafts == nil {
		s.drafts = drafts{}
	}
	s.drafts[file] = content
	return s
}

// Read reads the bundle's files once. It always returns. If something cannot be read, that is
// a problem in the result.
func (s Source) Read() *Files {
	files, _ := s.ReadWithin(context.Background())
	return files
}

// ReadWithin is Read with a context. If ctx ends first, the error says so and the files, which
// may be only a part, are no bundle.
func (s Source) ReadWithin(ctx context.Context) (*Files, error) {
	return s.read(ctx, func(r *reader) {
		r.drafts = s.drafts
		r.bundle()
		r.loadDrafts(func(k *kind) bool { return k != testKind })
		r.checkManifest()
	})
}

// read reads a part of the source, if there is a directory to read.
func (s Source) read(ctx context.Context, part func(*reader)) (*Files, error) {
	r := &reader{ctx: ctx, fsys: s.Fsys, dir: s.Dir, files: &Files{Content: map[string][]byte{}}, uses: map[string]*usage{}}
	defer r.close()
	if r.root() {
		part(r)
	}
	r.files.Problems = r.files.Problems.Sorted()
	r.files.Manifest = r.manifest
	return r.files, ctx.Err()
}

// ReadRoot reads the files that belong to no tenant, and lists the tenants. It does not look
// for what is wrong with the root or the tenants.
func (s Source) ReadRoot(ctx context.Context) (*Files, error) {
	return s.read(ctx, func(r *reader) {
		r.part(".")
		r.findTenants()
	})
}

// ReadTests reads the files in the tests directories of the root and of each tenant. It
// reports no problems elsewhere, because [Source.Read] does.
func (s Source) ReadTests() *Files {
	files, _ := s.read(context.Background(), func(r *reader) {
		r.drafts = s.drafts
		r.findTenants()
		r.files.Problems = nil
		homes := []string{""}
		for _, name := range r.files.Tenants {
			homes = append(homes, "tenants/"+name+"/")
		}
		for _, home := range homes {
			if dir := home + "tests"; r.has(dir) {
				r.loadAll(dir)
			}
		}
		r.loadDrafts(func(k *kind) bool { return k == testKind })
	})
	return files
}

// Names are the loaded files in order of their paths.
func (f *Files) Names() []string { return slices.Sorted(maps.Keys(f.Content)) }

// Digest is dirhash.Hash1 over path and bytes of every loaded file. It is the same on any
// machine. It does not cover MANIFEST, tests and directories without a file.
func (f *Files) Digest() string { return f.digestOf(slices.Collect(maps.Keys(f.Content))) }

func (f *Files) digestOf(names []string) string {
	open := func(name string) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(f.Content[name])), nil
	}
	digest, err := dirhash.Hash1(names, open)
	if err != nil {
		return "" // a name has a newline: no reading has such a name
	}
	return digest
}

// Owner is the tenant that a file belongs to, or "" if the file belongs to all tenants.
func (f *Files) Owner(file string) string {
	tenant := TenantOf(file)
	if _, there := slices.BinarySearch(f.Tenants, tenant); there {
		return tenant
	}
	return ""
}

// TenantOf is the tenant in whose directory a file is, or "" for a file of the root.
func TenantOf(file string) string {
	if rest, below := strings.CutPrefix(file, "tenants/"); below {
		tenant, _, _ := strings.Cut(rest, "/")
		return tenant
	}
	return ""
}

// Holding returns the files with those of some tenants as another reading saw them: all their
// names, contents and problems. If the other reading did not have such a tenant, the result
// does not have it either.
func (f *Files) Holding(tenants []string, before *Files) *Files {
	if len(tenants) == 0 {
		return f
	}
	held := &Files{Content: map[string][]byte{}, Manifest: f.Manifest}
	isHeld := map[string]bool{}
	for _, tenant := range tenants {
		isHeld[tenant] = true
	}
	for _, of := range []struct {
		*Files
		theirs bool
	}{{f, false}, {before, true}} {
		for name, text := range of.Content {
			if isHeld[of.Owner(name)] == of.theirs {
				held.Content[name] = text
			}
		}
		for _, name := range of.Unavailable {
			if isHeld[name] == of.theirs {
				held.Unavailable = append(held.Unavailable, name)
			}
		}
		for _, p := range of.Problems {
			if isHeld[of.Owner(p.File)] == of.theirs {
				held.Problems = append(held.Problems, p)
			}
		}
	}
	slices.Sort(held.Unavailable)
	held.Problems = held.Problems.Sorted()
	for _, name := range f.Tenants {
		if !isHeld[name] || slices.Contains(before.Tenants, name) {
			held.Tenants = append(held.Tenants, name)
		}
	}
	return held
}

// Without returns the files without those of some tenants, which are unavailable then.
func (f *Files) Without(tenants []string) *Files {
	return f.Holding(tenants, &Files{Unavailable: tenants})
}

// Reading is the part of [Files] that is kept after a load. It is enough to tell which owner's
// files are new in a later reading.
type Reading struct {
	root    Part
	Tenants map[string]Part
}

// Part identifies one owner's files, with the problems in them.
type Part struct {
	digest   string
	problems document.Problems
}

// Equal reports if two parts have the same content.
func (p Part) Equal(q Part) bool {
	return p.digest == q.digest && slices.Equal(p.problems, q.problems)
}

// Reading is the value to compare the files by.
func (f *Files) Reading() Reading {
	names, problems := map[string][]string{}, map[string]document.Problems{}
	for name := range f.Content {
		names[f.Owner(name)] = append(names[f.Owner(name)], name)
	}
	for _, p := range f.Problems {
		problems[f.Owner(p.File)] = append(problems[f.Owner(p.File)], p)
	}
	of := func(owner string) Part { return Part{f.digestOf(names[owner]), problems[owner]} }
	r := Reading{root: of(""), Tenants: map[string]Part{}}
	for _, tenant := range f.Tenants {
		r.Tenants[tenant] = of(tenant)
	}
	for _, tenant := range f.Unavailable {
		r.Tenants[tenant] = Part{digest: "unavailable"} // which is the digest of no files
	}
	return r
}

// Equal reports if two readings have the same content.
func (r Reading) Equal(s Reading) bool { return r.SameRoot(s) && len(r.Others(s)) == 0 }

// SameRoot reports if two readings are equal apart from the tenants' own files. The list of
// tenants belongs to the root.
func (r Reading) SameRoot(s Reading) bool {
	return r.root.Equal(s.root) && r.sameTenants(s)
}

// SameRootFiles is SameRoot without the comparison of problems.
func (r Reading) SameRootFiles(s Reading) bool {
	return r.root.digest == s.root.digest && r.sameTenants(s)
}

func (r Reading) sameTenants(s Reading) bool {
	return maps.EqualFunc(r.Tenants, s.Tenants, func(Part, Part) bool { return true })
}

// Others are the tenants whose files differ from those in another reading, sorted. A tenant
// that the other reading does not have differs.
func (r Reading) Others(s Reading) (tenants []string) {
	for name, p := range r.Tenants {
		if q, there := s.Tenants[name]; !there || !p.Equal(q) {
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
	// manifest is set if the bundle has a MANIFEST or will get one.
	manifest bool
	uses     map[string]*usage // by owner
	drafts   drafts
}

// close closes the directory of the bundle, if the reading has opened one.
func (r *reader) close() {
	if c, ok := r.fsys.(*confined); ok {
		c.close()
	}
}

// IsNothing reports if the source names neither a directory nor a file system.
func (s Source) IsNothing() bool { return s.Dir == "" && s.Fsys == nil }

// usage is how much the owner of a file has used of its bounds so far.
func (r *reader) usage(file string) *usage {
	owner := OwnerOf(file)
	if r.uses[owner] == nil {
		r.uses[owner] = &usage{Account: Account{Owner: owner}, bounds: boundsOf(owner)}
	}
	return r.uses[owner]
}

func (r *reader) problem(file, code, message, try string) {
	r.files.Problems.Add(file, 0, 0, code, message, try)
}

// root opens the root of the bundle. It reports if there is a directory to read.
func (r *reader) root() bool {
	if r.dir == "" && r.fsys == nil {
		r.problem("", "no_source", "there is nowhere to read it from", "name its directory")
		return false
	}
	info, err := r.enter()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.problem("", "no_directory", "there is no directory "+r.place(), "create it, or name another one")
	case err != nil:
		r.unreadable(".", err)
	case !info.IsDir():
		r.problem("", "not_a_directory", r.place()+" is no directory",
			"name the directory that holds bundle.yaml or the *.cedar files")
	default:
		return true
	}
	return false
}

// enter opens the directory, if the bundle is in one, and looks at the root.
func (r *reader) enter() (fs.FileInfo, error) {
	if r.fsys == nil {
		c, err := confine(r.dir)
		if err != nil {
			return nil, err
		}
		r.fsys = c
	}
	return fs.Stat(r.fsys, ".")
}
