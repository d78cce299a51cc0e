// Package lint warns of what is legal in a bundle and probably not meant. [Check] loads a
// bundle and returns its problems together with these warnings.
//
// Each kind of warning has a file: access.go, approvals.go, escape.go, filters.go, literals.go, missing.go,
// names.go, obligations.go, overlap.go, trivial.go and uris.go. They use what a request can send (sent.go),
// what the entity store holds (stored.go), the outcomes that a clause can have (outcome.go), what a
// clause comes to in every request (fold.go), which numbers it wants (compare.go), and where in its
// file an expression stands (place.go).
//
// The package refuses nothing and decides nothing: no warning keeps a bundle from loading, and
// no decision depends on one.
package lint

import (
	"slices"
	"time"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/pdp/internal/bundle"
	"policy-service/pdp/internal/places"
	"policy-service/pdp/internal/source"
)

// Check loads a bundle as [bundle.Load] does, and adds warnings about what is legal and
// probably not meant. Most warnings stand at the policy that they are about. There are
// warnings only if the bundle loads, because the meaning of a policy depends on the schema and
// on bundle.yaml. The time is the one at which it is judged what is over.
func Check(from source.Source, now time.Time) (*bundle.Bundle, bundle.Problems) {
	files := from.Read()
	b, problems := bundle.Build(files)
	if b == nil {
		return nil, problems
	}
	l := linter{
		b:        b,
		files:    files,
		problems: &problems,
		listed:   b.Config.ListedTypes(),
		stores:   map[*bundle.View]*storeFacts{},
	}
	l.configTypes(files.Content[source.ConfigFile])
	l.approvalConfig(files.Content[source.ConfigFile])
	for _, v := range b.Views {
		for _, p := range v.Policies {
			if p.Tenant == v.Tenant { // the root's policies stand in every view
				l.lint(p)
			}
		}
		l.trivial(v)
		l.useless(v)
		l.uris(v)
	}
	l.literals()
	l.obligations()
	l.approvals()
	l.access(now)
	l.filters()
	return b, problems.Sorted()
}

// linter checks one bundle. It follows attributes by their paths. It does not take apart what
// a policy compares as a whole, as in `context == {…}`, because such a comparison names no
// member that a caller could leave out.
type linter struct {
	b        *bundle.Bundle
	problems *bundle.Problems
	listed   []types.EntityType // the types that bundle.yaml tells apart
	stores   map[*bundle.View]*storeFacts
	files    *source.Files
	compared int            // ids, with misspelt ones
	placed   *bundle.Policy // the policy of which written has the places
	written  *places.Policy
}

func (l *linter) lint(p *bundle.Policy) {
	l.names(p)
	if tooLong(p) {
		l.warn(p, "too_long_to_check",
			"reads so many attributes that what it misses or lets escape is not looked for",
			"split it into several policies",
		)
		return
	}
	terms := p.Terms()
	if p.Forbids() {
		l.escapes(p, terms)
	} else {
		l.missing(p, terms)
	}
}

// longest is the greatest number of attribute names that a policy may read, or test with has,
// and still be checked closely. The work grows with the cube of this number.
const longest = 300

func tooLong(p *bundle.Policy) bool {
	names := 0
	for _, path := range p.Facts.Reads {
		names += len(path.Names)
	}
	return names > longest
}

func (l *linter) warn(p *bundle.Policy, code, message, try string) {
	l.problems.Warn(p.File, p.Line, p.Column, code, "policy "+bundle.Quote(p.Id)+" "+message, try)
}

// paths are attributes of one policy, such as those that one kind of warning is about.
type paths []bundle.AttributePath

// add adds a path, and keeps only the shortest of those that contain each other: `has a.b` is
// two tests, and one thing to correct.
func (ps *paths) add(path bundle.AttributePath) {
	if slices.ContainsFunc(*ps, func(p bundle.AttributePath) bool { return p.LeadsTo(path) }) {
		return
	}
	*ps = append(slices.DeleteFunc(*ps, path.LeadsTo), path)
}
