package bundle

import (
	"fmt"
	"strings"

	"policy-service/evaluation"
)

// Bounds are what one owner of files, the root of a bundle or one of its tenants, may bring.
// Whoever may write the files of one tenant decides how long every load takes, the one too
// that brings the root's emergency forbid: what is at all of a tenant's bounds at once
// loads within a second of CPU. The root's files are the operator's, whose
// bounds only keep a mistake from taking the machine.
type Bounds struct {
	Files int   // that are loaded
	Names int   // that one directory may hold, loaded or not
	Bytes int64 // of all of them together
	// Looked are the names on the ways to them, links included, that one reading looks up:
	// for each file some times the depth it is at, and twice that in a mounted volume.
	Looked int
	// Followed are the names on the ways of links that one [lookout] goes, armed the
	// directories that it watches there: each takes one of the machine's watches.
	Followed, Armed int
	// EntityFile and settings are the greatest entity file, and obligations.yaml.
	EntityFile, Settings int64
	// Words are names, texts and signs in policies: what parsing and compiling them costs.
	Words int
	// Entities, and the values of their attributes and tags, sets and records included.
	Entities, Values int
	// Parents are all references from an entity to one it is in. ancestors are how many
	// one entity may have, and walked how many are walked to find that out.
	Parents, Ancestors, Walked int
	// Person is how many names and entities one look at who somebody is may come by,
	// persons how many all of these looks together may when they are tried.
	Person, Persons int
	// Checks are steps of holding policies against the schema: see [Schema.StepsOf].
	Checks int
}

var (
	TenantBounds = &Bounds{
		Files: 500, Names: 2_000, Bytes: 4 << 20, Looked: 100_000, Followed: 10_000, Armed: 200, EntityFile: 4 << 20, Settings: 128 << 10,
		Words: 250_000, Entities: 20_000, Values: 100_000,
		Parents: 40_000, Ancestors: 4_096, Walked: 1_000_000,
		Person: 1_000, Persons: 500_000,
		Checks: 2_000_000,
	}
	RootBounds = &Bounds{
		Files: 10_000, Names: 100_000, Bytes: 512 << 20, Looked: 10_000_000, Followed: 1_000_000, Armed: 10_000, EntityFile: 256 << 20, Settings: 1 << 20,
		Words: 25_000_000, Entities: 1_000_000, Values: 20_000_000,
		Parents: 4_000_000, Ancestors: 4_096, Walked: 100_000_000,
		Person: 1_000, Persons: 50_000_000,
		Checks: 50_000_000,
	}
)

// StoredLimits bounds one value of an entity, as a request's is: the same sets are compared.
var StoredLimits = evaluation.DefaultLimits()

func boundsOf(tenant string) *Bounds {
	if tenant == evaluation.DefaultTenant {
		return RootBounds
	}
	return TenantBounds
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
	*Bounds
	owner string
	over  bool
	// what was counted so far
	fileCount, wordCount, EntityCount, valueCount, parentCount, checkCount, errorCount int
	byteCount                                                                          int64
}

// UsageOf counts what one tenant's files come to.
func UsageOf(tenant string) *usage { return &usage{Bounds: boundsOf(tenant), owner: tenant} }

func (u *usage) who() string {
	if u.owner == evaluation.DefaultTenant {
		return "the root of the bundle"
	}
	return "tenant " + Quote(u.owner)
}

// exceeds notes that a bound is passed, and reports whether one is.
func (u *usage) exceeds(is bool, code, what string, bound int64, at entityPlace, try string, problems *Problems) bool {
	if is && !u.over {
		u.over = true
		problems.Add(at.file, at.line, at.column, code, fmt.Sprintf("%s may have %d %s, and has more from here on", u.who(), bound, what), try)
	}
	return u.over
}

// tooManyErrors counts an error. That there are more is told where all are known: see
// [Problems.cut].
func (u *usage) tooManyErrors() bool {
	if u.errorCount++; u.errorCount > MostErrors {
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
	return u.exceeds(u.fileCount > u.Files, "many_files", "files", int64(u.Files), at, tryLess, problems) ||
		u.exceeds(u.byteCount > u.Bytes, "many_bytes", "bytes in all its files", u.Bytes, at, tryLess, problems)
}

// tooManyEntities counts an entity that was read, its values having been counted on the way.
func (u *usage) tooManyEntities(at entityPlace, e *parsedEntity, problems *Problems) bool {
	u.EntityCount++
	u.parentCount += e.Parents.Len()
	return u.exceeds(u.EntityCount > u.Entities, "many_entities", "entities", int64(u.Entities), at, tryLess, problems) ||
		u.exceeds(u.valueCount > u.Values, "many_values", "values of attributes and tags", int64(u.Values), at, tryLess, problems) ||
		u.exceeds(u.parentCount > u.Parents, "many_parents", "references from entities to their parents", int64(u.Parents), at, tryFlatly, problems)
}

// kind is a kind of file within the bounds of its owner.
func (u *usage) kind(k *kind) *kind {
	switch k {
	case entityKind:
		return &kind{k.name, u.EntityFile}
	case SettingsKind:
		return &kind{k.name, u.Settings}
	}
	return k
}
