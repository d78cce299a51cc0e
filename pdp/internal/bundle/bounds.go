package bundle

import (
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/internal/source"
)

// Bounds limit what is in the files of one owner, beside [source.Bounds].
//
// The author of one tenant's files decides how long every load takes. A load can be the one
// that brings an emergency forbid of the root. So a tenant that is at all of its bounds at
// once loads within a second of CPU. The root's files are the operator's. Their bounds only
// keep a mistake from taking the whole machine.
type Bounds struct {
	// Words are names, texts and signs in policies. They decide what parsing and compiling cost.
	Words int
	// Values are those of the attributes and tags of all Entities, sets and records included.
	Entities, Values int
	// Parents are all references from an entity to a parent. Ancestors is how many ancestors
	// one entity may have, and Walked how many steps it may take to count those of all.
	Parents, Ancestors, Walked int
	// Checks are steps of checking policies against the schema: see [Schema.StepsOf].
	Checks int
}

// The bounds of the two kinds of owner.
var (
	TenantBounds = &Bounds{
		Words:     250_000,
		Entities:  20_000,
		Values:    100_000,
		Parents:   40_000,
		Ancestors: 4_096,
		Walked:    1_000_000,
		Checks:    2_000_000,
	}
	RootBounds = &Bounds{
		Words:     25_000_000,
		Entities:  1_000_000,
		Values:    20_000_000,
		Parents:   4_000_000,
		Ancestors: 4_096,
		Walked:    100_000_000,
		Checks:    50_000_000,
	}
)

// storedDepth is how deep one value of an entity nests at the most. The depth of a request has the same bound, because
// policies compare the two.
var storedDepth = evaluation.DefaultLimits().Depth

// The bounds of an array that Cedar can hold as a set: to compare two costs up to the square of their elements. An array
// of an entity that is beyond them is a load error, and one of a request is unusable.
const (
	MostElements = 4096 // if all are plain values
	MostNested   = 128  // if one is an array or an object: equality of nested values costs their product
	MostArrays   = 2    // within each other, counted through objects
)

// Usage counts how much one owner has used of its bounds.
type Usage struct {
	source.Account
	bounds *Bounds
	// The counts so far.
	EntityCount                                                int
	wordCount, valueCount, parentCount, checkCount, errorCount int
	decoder                                                    jsontext.Decoder // of one record after the other
}

// UsageOf begins to count what one tenant's files use.
func UsageOf(tenant string) *Usage {
	u := &Usage{Account: source.Account{Owner: tenant}, bounds: TenantBounds}
	if tenant == evaluation.DefaultTenant {
		u.bounds = RootBounds
	}
	return u
}

// exceeds notes that a bound is exceeded, and reports if one was exceeded now or before.
func (u *Usage) exceeds(is bool, code, what string, bound int, at entityPlace, try string, problems *Problems) bool {
	problem := Problem{File: at.file, Line: at.line, Column: at.column, Code: code, Try: try}
	return u.Exceeds(is, what, int64(bound), problem, problems)
}

// tooManyErrors counts an error. [cut] adds the message that there are more, once all errors
// are known.
func (u *Usage) tooManyErrors() bool {
	if u.errorCount++; u.errorCount > MostErrors {
		u.Exceeded = true
	}
	return u.Exceeded
}

const tryFlatly = "let fewer entities be in fewer others"

// tooManyEntities counts an entity that was read. Its values were counted while they were
// read.
func (u *Usage) tooManyEntities(at entityPlace, e *ParsedEntity, problems *Problems) bool {
	u.EntityCount++
	u.parentCount += e.Parents.Len()
	b := u.bounds
	return u.exceeds(u.EntityCount > b.Entities, "many_entities",
		"entities", b.Entities, at, source.TryLess, problems) ||
		u.exceeds(u.valueCount > b.Values, "many_values",
			"values of attributes and tags", b.Values, at, source.TryLess, problems) ||
		u.exceeds(u.parentCount > b.Parents, "many_parents",
			"references from entities to their parents", b.Parents, at, tryFlatly, problems)
}
