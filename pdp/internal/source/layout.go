package source

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"policy-service/evaluation"
	"policy-service/pdp/internal/spelling"
)

// kind is a kind of file in a bundle, named with its article, and how large such a file may be.
// Every file is measured before it is read.
type kind struct {
	name string
	max  int64
}

// MaxPolicyFile bounds a policy file before it is read. So it bounds what cedar-go's parser
// ever gets.
const MaxPolicyFile = 256 << 10

// The kinds of files.
var (
	policyKind   = &kind{"a policy file", MaxPolicyFile}
	settingsKind = &kind{"a YAML file", 1 << 20}
	schemaKind   = &kind{"a schema", 1 << 20}
	entityKind   = &kind{"an entity file", RootBounds.EntityFile}
	accessKind   = &kind{"an access declaration", 256 << 10}
	testKind     = &kind{"a test file", 1 << 20}
	manifestKind = &kind{"a MANIFEST", 16 << 20}
)

// Names of files and directories in the root of a bundle. Tenants have the last two as well.
const (
	ConfigFile      = "bundle.yaml"  // the settings of a bundle
	FiltersFile     = "filters.yaml" // in which tables an application keeps entities
	ObligationsFile = "obligations.yaml"
	AccessDirectory = "access/" // tool access declarations
)

const layout = "bundle.yaml, *.cedar, *.cedarschema, entities/*.json, obligations.yaml, filters.yaml, access/*.yaml, tests/*.yaml, tenants/<tenant>/, MANIFEST"

// kindOf finds the kind of a file by its place and name. It returns nil if no rule of the
// layout names the file.
func kindOf(file string) *kind {
	home := DirOf(file)
	dir, name := path.Split(strings.TrimPrefix(file, home))
	switch ext := path.Ext(name); {
	case dir == "entities/" && ext == ".json":
		return entityKind
	case dir == AccessDirectory && (ext == ".yaml" || ext == ".yml"):
		return accessKind
	case dir == "tests/" && slices.Contains([]string{".yaml", ".yml", ".json"}, ext):
		return testKind
	case dir != "":
		return nil
	case ext == ".cedar":
		return policyKind
	case name == ObligationsFile, (name == ConfigFile || name == FiltersFile) && home == "":
		return settingsKind
	case (ext == ".cedarschema" || strings.HasSuffix(name, ".cedarschema.json")) && home == "":
		return schemaKind
	}
	return nil
}

// bundle reads everything that is loaded. It names each directory by its fixed place, so a
// link that leads back up cannot make the reading go in circles.
func (r *reader) bundle() {
	r.part(".")
	r.findTenants()
	for _, name := range r.files.Tenants {
		before := len(r.files.Content)
		r.part("tenants/" + name)
		if len(r.files.Content) == before && !r.drafts.of(name) {
			r.emptyTenant("tenants/" + name)
		}
	}
}

// emptyTenant notes a tenant that exists only because its directory does. A MANIFEST cannot
// list a directory. If there is a MANIFEST, only files that it lists may make a difference, so
// such a tenant is an error.
func (r *reader) emptyTenant(dir string) {
	const message = "nothing in this tenant's directory is loaded, so the policies of every tenant alone decide for it and the digest does not name it"
	if r.manifest {
		r.problem(dir, "empty_tenant", message+", nor can the MANIFEST",
			"remove the directory, or put a .cedar file there, a comment is enough, and write the MANIFEST again with policy-service check --write-manifest")
		return
	}
	r.files.Problems.Warn(dir, 0, 0, "empty_tenant", message,
		"put a .cedar file there, a comment is enough, or remove the directory")
}

// part reads the files directly in the root or in a tenant's directory, and the entities and
// access declarations beside them.
func (r *reader) part(dir string) {
	for _, e := range r.entries(dir) {
		file := path.Join(dir, e.Name())
		switch {
		case e.Name() == "entities", e.Name() == path.Clean(AccessDirectory) && !e.Type().IsRegular():
			// A file of the name access was none of a bundle's before there were declarations, and is none now.
			r.loadAll(file)
		case e.Name() == "tests" && !e.Type().IsRegular():
			// Read by ReadTests: not loaded, and not in the digest.
		case file == "README.md" && e.Type().IsRegular():
			// For people: not loaded, and not in the digest.
		case file == "tenants":
			// Read by findTenants.
		case file == "MANIFEST":
			r.manifest = true
		default:
			r.load(file, e)
		}
	}
}

// loadAll reads the files in a directory of entities, access declarations or tests.
func (r *reader) loadAll(dir string) {
	if !r.isDirectory(dir) {
		return
	}
	for _, e := range r.entries(dir) {
		r.load(path.Join(dir, e.Name()), e)
	}
}

// has reports if a name exists. A link to nothing exists, too.
func (r *reader) has(name string) bool {
	_, err := fs.Lstat(r.fsys, name)
	return !errors.Is(err, fs.ErrNotExist)
}

// findTenants lists the tenants by their directories.
func (r *reader) findTenants() {
	if !r.has("tenants") || !r.isDirectory("tenants") {
		return
	}
	for _, e := range r.entries("tenants") {
		name := e.Name()
		dir := "tenants/" + name
		info, err := fs.Stat(r.fsys, dir)
		switch {
		case err != nil:
			r.unreadable(dir, err)
			if name != evaluation.DefaultTenant && evaluation.IsTenantName(name) {
				r.files.Tenants = append(r.files.Tenants, name) // whose error it is
			}
		case !info.IsDir():
			r.files.Problems.Warn(dir, 0, 0, "unknown_file",
				"only tenants' directories belong here; this is not loaded", "move it out")
		case name == evaluation.DefaultTenant:
			r.problem(dir, "tenant_name", "the tenant default is the root of the bundle and has no directory",
				"move its files to the root, or rename the directory")
		case !evaluation.IsTenantName(name):
			r.problem(dir, "tenant_name", "this is no legal tenant name",
				"rename the directory: a letter or digit, then at most 62 letters, digits, dots, underscores and hyphens")
		default:
			r.files.Tenants = append(r.files.Tenants, name)
		}
	}
}

// load reads one file into the bundle, or notes that the file does not belong there.
func (r *reader) load(file string, e fs.DirEntry) {
	if r.ctx.Err() != nil {
		return // the result of this reading is not wanted any more
	}
	if tenant := TenantOf(file); tenant != "" && file == DirOf(file)+FiltersFile {
		r.problem(file, "filters_of_tenant", "tables are the operator's, so the root of the bundle alone says what is in them",
			"move it to the root, or remove it")
		return
	}
	if _, drafted := r.drafts[file]; drafted {
		return // it is not read as it is
	}
	k := kindOf(file)
	if k == nil {
		what := "file"
		if e.IsDir() {
			what = "directory"
		}
		try := "rename or remove it: a bundle is made of " + layout
		if strings.HasPrefix(path.Base(file), "schema.") && path.Ext(file) == ".json" {
			try = "a schema in JSON is called " + strings.TrimSuffix(file, ".json") + ".cedarschema.json; " + try
		}
		if meant, ok := meantDirectory(file); ok && e.IsDir() {
			r.problem(file, "unknown_directory", "there is no directory of this name in a bundle, so nothing of it would be loaded; did you mean "+meant+"?",
				"rename it to "+meant+", or give it a name that is not like it")
			return
		}
		r.files.Problems.Warn(file, 0, 0, "unknown_"+what,
			"no rule of the layout names this "+what+", so nothing of it is loaded", try)
		return
	}
	use := r.usage(file)
	if use.Exceeded {
		return
	}
	if data, ok := r.read(file, use.within(k)); ok {
		r.take(file, k, data)
	}
}

// meantDirectory is the directory of a bundle, or of a tenant, that a misspelt name there may stand for: its files,
// which would not be loaded, may be forbids.
func meantDirectory(file string) (meant string, ok bool) {
	home := DirOf(file)
	name := strings.TrimPrefix(file, home)
	known := []string{"entities", path.Clean(AccessDirectory), "tests"}
	if home == "" {
		known = append(known, "tenants")
	}
	if strings.Contains(name, "/") || slices.Contains(known, name) {
		return "", false
	}
	if strings.EqualFold(name, "entity") {
		return "entities", true
	}
	return spelling.Nearest(name, known)
}

// loadDrafts loads the drafts of some kinds in place of their files.
func (r *reader) loadDrafts(of func(*kind) bool) {
	for _, file := range slices.Sorted(maps.Keys(r.drafts)) {
		content, k := r.drafts[file], kindOf(file)
		if k == nil || !of(k) {
			continue // nothing of it would be loaded here
		}
		switch use := r.usage(file); {
		case use.Exceeded:
		case int64(len(content)) > use.within(k).max:
			r.tooLarge(file, use.within(k))
		default:
			r.take(file, k, content)
		}
	}
}

// take takes the content of a file into the bundle, or notes why it does not belong there.
func (r *reader) take(file string, k *kind, data []byte) {
	switch {
	case r.usage(file).add(file, k, len(data), &r.files.Problems):
	case len(bytes.TrimSpace(data)) == 0:
		r.problem(file, "empty_file", "this file is empty, perhaps half-written",
			"write its content, or remove it")
	default:
		r.files.Content[file] = data
	}
}

// entries lists a directory. It leaves out names that begin with a dot, and names that a
// digest, a MANIFEST or a log line could not contain.
func (r *reader) entries(dir string) []fs.DirEntry {
	most := boundsOf(OwnerOf(dir)).Names
	all, err := fs.ReadDir(r.fsys, dir)
	if err != nil {
		r.unreadable(dir, err)
		return nil // a part of a directory is as bad as a part of a file
	}
	if len(all) > most {
		r.problem(dir, "many_names",
			fmt.Sprintf("this directory may hold %d files and directories, and holds more", most), "remove some")
		return nil
	}
	legal := all[:0:0]
	for _, e := range all {
		switch name := e.Name(); {
		case strings.HasPrefix(name, "."):
		case !legalName(name):
			r.problem(path.Join(dir, strconv.Quote(name)), "file_name",
				"a name must be UTF-8 without control characters and backslashes", "rename it")
		default:
			legal = append(legal, e)
		}
	}
	return legal
}

func legalName(name string) bool {
	return utf8.ValidString(name) && !strings.ContainsRune(name, '\\') && !strings.ContainsFunc(name, unicode.IsControl)
}

// DirOf is the directory of the owner of a file: a tenant's directory, with a slash at the
// end, or "" for the root.
func DirOf(file string) string {
	if tenant := TenantOf(file); tenant != "" {
		return "tenants/" + tenant + "/"
	}
	return ""
}

// IsAccess reports if a file is a tool access declaration, by its name and place.
func IsAccess(file string) bool { return kindOf(file) == accessKind }

// IsSchema reports if a file is one of a schema, by its name and place.
func IsSchema(file string) bool { return kindOf(file) == schemaKind }
