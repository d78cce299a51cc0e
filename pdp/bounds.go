package pdp

import (
	"fmt"
	"strings"

	"policy-service/evaluation"
)

// bounds are what one owner of files, the root of a bundle or one of its tenants, may bring.
// Whoever may write the files of one tenant decides how long every load takes, the one too
// that brings the root's emergency forbid: what is at all of a tenant's bounds at once
// loads within a second of CPU. The root's files are the operator's, whose
// bounds only keep a mistake from taking the machine.
type bounds struct {
	files int   // that are loaded
	names int   // that one directory may hold, loaded or not
	bytes int64 // of all of them together
	// looked are the names on the ways to them, links included, that one reading looks up:
	// for each file some times the depth it is at, and twice that in a mounted volume.
	looked int
	// followed are the names on the ways of links that one [lookout] goes, armed the
	// directories that it watches there: each takes one of the machine's watches.
	followed, armed int
	// entityFile and settings are the greatest entity file, and obligations.yaml.
	entityFile, settings int64
	// words are names, texts and signs in policies: what parsing and compiling them costs.
	words int
	// entities, and the values of their attributes and tags, sets and records included.
	entities, values int
	// parents are all references from an entity to one it is in. ancestors are how many
	// one entity may have, and walked how many are walked to find that out.
	parents, ancestors, walked int
	// person is how many names and entities one look at who somebody is may come by,
	// persons how many all of these looks together may when they are tried.
	person, persons int
	// checks are steps of holding policies against the schema: see [schemaOf.stepsOf].
	checks int
}

var (
	tenantBounds = &bounds{
		files: 500, names: 2_000, bytes: 4 << 20, looked: 100_000, followed: 10_000, armed: 200, entityFile: 4 << 20, settings: 128 << 10,
		words: 250_000, entities: 20_000, values: 100_000,
		parents: 40_000, ancestors: 4_096, walked: 1_000_000,
		person: 1_000, persons: 500_000,
		checks: 2_000_000,
	}
	rootBounds = &bounds{
		files: 10_000, names: 100_000, bytes: 512 << 20, looked: 10_000_000, followed: 1_000_000, armed: 10_000, entityFile: 256 << 20, settings: 1 << 20,
		words: 25_000_000, entities: 1_000_000, values: 20_000_000,
		parents: 4_000_000, ancestors: 4_096, walked: 100_000_000,
		person: 1_000, persons: 50_000_000,
		checks: 50_000_000,
	}
)

// storedLimits bounds one value of an entity, as a request's is: the same sets are compared.
var storedLimits = evaluation.DefaultLimits()

func boundsOf(tenant string) *bounds {
	if tenant == evaluation.DefaultTenant {
		return rootBounds
	}
	return tenantBounds
}

// ownerOfFile is the tenant whose file it is.
func ownerOfFile(file string) string {
	if rest, ok := strings.CutPrefix(file, "tenants/"); ok {
		tenant, _, _ := strings.Cut(rest, "/")
		return tenant
	}
	return evaluation.DefaultTenant
}

// usage is how much of the bounds of one owner is used up. What is over is told once,
// where it came to be, and nothing more of the owner's is read: it is what would take long.
type usage struct {
	*bounds
	owner string
	over  bool
	// what was counted so far
	fileCount, wordCount, entityCount, valueCount, parentCount, checkCount, errorCount int
	byteCount                                                                          int64
}

func usageOf(tenant string) *usage { return &usage{bounds: boundsOf(tenant), owner: tenant} }

func (u *usage) who() string {
	if u.owner == evaluation.DefaultTenant {
		return "the root of the bundle"
	}
	return "tenant " + quote(u.owner)
}

// exceeds notes that a bound is passed, and reports whether one is.
func (u *usage) exceeds(is bool, code, what string, bound int64, at entityPlace, try string, problems *Problems) bool {
	if is && !u.over {
		u.over = true
		problems.add(at.file, at.line, at.column, code, fmt.Sprintf("%s may have %d %s, and has more from here on", u.who(), bound, what), try)
	}
	return u.over
}

// tooManyErrors counts an error. That there are more is told where all are known: see
// [Problems.cut].
func (u *usage) tooManyErrors() bool {
	if u.errorCount++; u.errorCount > mostErrors {
		u.over = true
	}
	return u.over
}

const (
	tryLess   = "remove some, or make another tenant of a part"
	tryFlatly = "let fewer entities be in fewer others"
)

// tooMuchText counts a file that was read.
func (u *usage) tooMuchText(file string, size int, problems *Problems) bool {
	u.fileCount++
	u.byteCount += int64(size)
	at := entityPlace{file: file}
	return u.exceeds(u.fileCount > u.files, "many_files", "files", int64(u.files), at, tryLess, problems) ||
		u.exceeds(u.byteCount > u.bytes, "many_bytes", "bytes in all its files", u.bytes, at, tryLess, problems)
}

// tooManyEntities counts an entity that was read, its values having been counted on the way.
func (u *usage) tooManyEntities(at entityPlace, e *parsedEntity, problems *Problems) bool {
	u.entityCount++
	u.parentCount += e.Parents.Len()
	return u.exceeds(u.entityCount > u.entities, "many_entities", "entities", int64(u.entities), at, tryLess, problems) ||
		u.exceeds(u.valueCount > u.values, "many_values", "values of attributes and tags", int64(u.values), at, tryLess, problems) ||
		u.exceeds(u.parentCount > u.parents, "many_parents", "references from entities to their parents", int64(u.parents), at, tryFlatly, problems)
}

// kind is a kind of file within the bounds of its owner.
func (u *usage) kind(k *kind) *kind {
	switch k {
	case entityKind:
		return &kind{k.name, u.entityFile}
	case settingsKind:
		return &kind{k.name, u.settings}
	}
	return k
}
