package bundle

import (
	"cmp"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
)

// Bounds limit what one owner of files may bring. An owner is the root of a bundle, or one of
// its tenants.
//
// The author of one tenant's files decides how long every load takes. A load can be the one
// that brings an emergency forbid of the root. So a tenant that is at all of its bounds at
// once loads within a second of CPU. The root's files are the operator's. Their bounds only
// keep a mistake from taking the whole machine.
type Bounds struct {
	Files int   // files that are loaded
	Names int   // names in one directory, loaded or not
	Bytes int64 // of all files together
	// Looked is how many names one reading looks up on the ways to the files, links included.
	// Each file takes a few times its depth, and twice that in a mounted volume.
	Looked     int
	Watch      WatchBounds
	EntityFile int64 // bytes of the greatest entity file
	YAML       YAMLBounds
	// Words are names, texts and signs in policies. They decide what parsing and compiling cost.
	Words int
	// Values are those of the attributes and tags of all Entities, sets and records included.
	Entities, Values int
	// Parents are all references from an entity to a parent. Ancestors is how many ancestors
	// one entity may have, and Walked how many steps it may take to count those of all.
	Parents, Ancestors, Walked int
	People                     PeopleBounds
	// Checks are steps of checking policies against the schema: see [Schema.StepsOf].
	Checks int
}

// WatchBounds limit what a lookout of package pdp follows for one owner.
type WatchBounds struct {
	Followed int // names on the ways of links
	Armed    int // directories that are watched there: each takes one of the machine's watches
}

// PeopleBounds limit the search for all names of a person, in names and entities that the
// search comes by.
type PeopleBounds struct {
	One int // for one person
	All int // for all people together, when the searches are tried
}

// YAMLBounds limit documents in bytes. A byte of them takes ten times as long as one of a policy.
type YAMLBounds struct {
	Obligations int64 // of obligations.yaml
	Access      int64 // of all access declarations together
}

// The bounds of the two kinds of owner.
var (
	TenantBounds = &Bounds{
		Files:      500,
		Names:      2_000,
		Bytes:      4 << 20,
		Looked:     100_000,
		Watch:      WatchBounds{Followed: 10_000, Armed: 200},
		EntityFile: 4 << 20,
		YAML:       YAMLBounds{Obligations: 128 << 10, Access: 512 << 10},
		Words:      250_000,
		Entities:   20_000,
		Values:     100_000,
		Parents:    40_000,
		Ancestors:  4_096,
		Walked:     1_000_000,
		People:     PeopleBounds{One: 1_000, All: 500_000},
		Checks:     2_000_000,
	}
	RootBounds = &Bounds{
		Files:      10_000,
		Names:      100_000,
		Bytes:      512 << 20,
		Looked:     10_000_000,
		Watch:      WatchBounds{Followed: 1_000_000, Armed: 10_000},
		EntityFile: 256 << 20,
		YAML:       YAMLBounds{Obligations: 1 << 20, Access: 64 << 20},
		Words:      25_000_000,
		Entities:   1_000_000,
		Values:     20_000_000,
		Parents:    4_000_000,
		Ancestors:  4_096,
		Walked:     100_000_000,
		People:     PeopleBounds{One: 1_000, All: 50_000_000},
		Checks:     50_000_000,
	}
)

// storedLimits bound one value of an entity by the limits for a value of a request, because
// policies compare the two.
var storedLimits = evaluation.DefaultLimits()

// boundsOf chooses the bounds of an owner.
func boundsOf(tenant string) *Bounds {
	if tenant == evaluation.DefaultTenant {
		return RootBounds
	}
	return TenantBounds
}

// ownerOfFile is the tenant that a file belongs to. A file of the root belongs to the default
// tenant.
func ownerOfFile(file string) string { return cmp.Or(TenantOf(file), evaluation.DefaultTenant) }

// Usage counts how much one owner has used of its bounds. The first bound that is exceeded
// becomes one problem, at the place where it happened. Nothing more of that owner is read
// then, because reading on is what would take long.
type Usage struct {
	bounds   *Bounds
	owner    string
	exceeded bool
	// The counts so far.
	EntityCount                                                           int
	fileCount, wordCount, valueCount, parentCount, checkCount, errorCount int
	byteCount, accessCount                                                int64
	decoder                                                               jsontext.Decoder // of one record after the other
}

// UsageOf begins to count what one tenant's files use.
func UsageOf(tenant string) *Usage { return &Usage{bounds: boundsOf(tenant), owner: tenant} }

// ownerName names the owner in messages.
func (u *Usage) ownerName() string {
	if u.owner == evaluation.DefaultTenant {
		return "the root of the bundle"
	}
	return "tenant " + Quote(u.owner)
}

// exceeds notes that a bound is exceeded, and reports if one was exceeded now or before.
func (u *Usage) exceeds(is bool, code, what string, bound int64, at entityPlace, try string, problems *Problems) bool {
	if is && !u.exceeded {
		u.exceeded = true
		problems.Add(at.file, at.line, at.column, code,
			fmt.Sprintf("%s may have %d %s, and has more from here on", u.ownerName(), bound, what), try)
	}
	return u.exceeded
}

// tooManyErrors counts an error. [Problems.cut] adds the message that there are more, once all
// errors are known.
func (u *Usage) tooManyErrors() bool {
	if u.errorCount++; u.errorCount > MostErrors {
		u.exceeded = true
	}
	return u.exceeded
}

const (
	tryLess   = "remove some, or make another tenant of a part"
	tryFlatly = "let fewer entities be in fewer others"
)

// tooMuchText counts a file that was read.
func (u *Usage) tooMuchText(file string, size int, problems *Problems) bool {
	u.fileCount++
	u.byteCount += int64(size)
	if kindOf(file) == accessKind {
		u.accessCount += int64(size)
	}
	at := entityPlace{file: file}
	b := u.bounds
	return u.exceeds(u.fileCount > b.Files, "many_files", "files", int64(b.Files), at, tryLess, problems) ||
		u.exceeds(u.byteCount > b.Bytes, "many_bytes", "bytes in all its files", b.Bytes, at, tryLess, problems) ||
		u.exceeds(u.accessCount > b.YAML.Access, "many_declarations", "bytes in all its access declarations", b.YAML.Access, at, tryLess, problems)
}

// tooManyEntities counts an entity that was read. Its values were counted while they were
// read.
func (u *Usage) tooManyEntities(at entityPlace, e *ParsedEntity, problems *Problems) bool {
	u.EntityCount++
	u.parentCount += e.Parents.Len()
	b := u.bounds
	return u.exceeds(u.EntityCount > b.Entities, "many_entities",
		"entities", int64(b.Entities), at, tryLess, problems) ||
		u.exceeds(u.valueCount > b.Values, "many_values",
			"values of attributes and tags", int64(b.Values), at, tryLess, problems) ||
		u.exceeds(u.parentCount > b.Parents, "many_parents",
			"references from entities to their parents", int64(b.Parents), at, tryFlatly, problems)
}

// kind is a kind of file with the size that the bounds of the owner allow.
func (u *Usage) kind(k *kind) *kind {
	switch k {
	case entityKind:
		return &kind{k.name, u.bounds.EntityFile}
	case settingsKind:
		return &kind{k.name, u.bounds.YAML.Obligations}
	}
	return k
}
