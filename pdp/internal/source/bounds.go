package source

import (
	"cmp"
	"fmt"
	"strconv"

	"policy-service/evaluation"
	"policy-service/pdp/internal/document"
)

// Bounds limit the files of one owner. An owner is the root of a bundle, or one of its tenants.
//
// The author of one tenant's files decides how long every load takes, and a load can be the one
// that brings an emergency forbid of the root. The root's files are the operator's. Their bounds
// only keep a mistake from taking the whole machine.
type Bounds struct {
	Files int   // files that are loaded
	Names int   // names in one directory, loaded or not
	Bytes int64 // of all files together
	// Looked is how many names one reading looks up on the ways to the files, links included.
	// Each file takes a few times its depth, and twice that in a mounted volume.
	Looked int
	// Followed are the names on the ways of links that a lookout of package pdp follows, and Armed
	// the directories that it watches there: each takes one of the machine's watches.
	Followed, Armed int
	EntityFile      int64 // bytes of the greatest entity file
	// Obligations are the bytes of obligations.yaml, and Access those of all access declarations
	// together. A byte of YAML takes ten times as long as one of a policy.
	Obligations, Access int64
}

// The bounds of the two kinds of owner.
var (
	TenantBounds = &Bounds{
		Files:       500,
		Names:       2_000,
		Bytes:       4 << 20,
		Looked:      100_000,
		Followed:    10_000,
		Armed:       200,
		EntityFile:  4 << 20,
		Obligations: 128 << 10,
		Access:      512 << 10,
	}
	RootBounds = &Bounds{
		Files:       10_000,
		Names:       100_000,
		Bytes:       512 << 20,
		Looked:      10_000_000,
		Followed:    1_000_000,
		Armed:       10_000,
		EntityFile:  256 << 20,
		Obligations: 1 << 20,
		Access:      64 << 20,
	}
)

// boundsOf chooses the bounds of an owner.
func boundsOf(owner string) *Bounds {
	if owner == evaluation.DefaultTenant {
		return RootBounds
	}
	return TenantBounds
}

// OwnerOf is the tenant that a file belongs to. A file of the root belongs to the default tenant.
func OwnerOf(file string) string { return cmp.Or(TenantOf(file), evaluation.DefaultTenant) }

// OwnerName names an owner in messages.
func OwnerName(owner string) string {
	if owner == evaluation.DefaultTenant {
		return "the root of the bundle"
	}
	return "tenant " + strconv.Quote(owner)
}

// Account is that of one owner with its bounds. The first bound that is exceeded becomes one
// problem, at the place where it happened. Nothing more of that owner is read then, because
// reading on is what would take long.
type Account struct {
	Owner    string
	Exceeded bool
}

// Exceeds notes that a bound is exceeded, and reports if one was exceeded now or before. The place of the problem is at.
func (a *Account) Exceeds(is bool, what string, bound int64, at document.Problem, problems *document.Problems) bool {
	if is && !a.Exceeded {
		a.Exceeded = true
		message := fmt.Sprintf("%s may have %d %s, and has more from here on", OwnerName(a.Owner), bound, what)
		problems.Add(at.File, at.Line, at.Column, at.Code, message, at.Try)
	}
	return a.Exceeded
}

// TryLess is what to try if an owner has too much of something.
const TryLess = "remove some, or make another tenant of a part"

// usage counts the files of one owner.
type usage struct {
	Account
	bounds        *Bounds
	files         int
	bytes, access int64
}

// add counts a file that was read. It reports if there is too much.
func (u *usage) add(file string, k *kind, size int, problems *document.Problems) bool {
	u.files++
	u.bytes += int64(size)
	if k == accessKind {
		u.access += int64(size)
	}
	exceeds := func(is bool, code, what string, bound int64) bool {
		return u.Exceeds(is, what, bound, document.Problem{File: file, Code: code, Try: TryLess}, problems)
	}
	b := u.bounds
	return exceeds(u.files > b.Files, "many_files", "files", int64(b.Files)) ||
		exceeds(u.bytes > b.Bytes, "many_bytes", "bytes in all its files", b.Bytes) ||
		exceeds(u.access > b.Access, "many_declarations", "bytes in all its access declarations", b.Access)
}

// within is a kind of file with the size that the bounds of the owner allow.
func (u *usage) within(k *kind) *kind {
	switch k {
	case entityKind:
		return &kind{k.name, u.bounds.EntityFile}
	case settingsKind:
		return &kind{k.name, u.bounds.Obligations}
	}
	return k
}
