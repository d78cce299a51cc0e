// Package lint says what in a bundle is legal and probably not meant. [Check] loads a bundle
// and returns its problems with these warnings.
//
// Each kind of warning has a file: approvals.go, escape.go, missing.go, names.go,
// obligations.go and overlap.go. They go by what can be sent (sent.go), what is stored
// (stored.go), and what a clause can come to (outcome.go). No warning keeps a bundle from
// loading, and nothing that decides depends on one.
package lint

import (
	"slices"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/pdp/internal/bundle"
)

// Check is [Load], and says besides what is legal and yet probably not meant:
// problems of severity warning, each at the policy it is about. It loads what
// Load loads. Warnings wait until the bundle loads, because what a policy means
// depends on schema and bundle.yaml.
func Check(source bundle.Source) (*bundle.Bundle, bundle.Problems) {
	files := source.Read()
	b, problems := bundle.Build(files)
	if b == nil {
		return nil, problems
	}
	l := linter{b: b, problems: &problems, listed: b.Config.ListedTypes(), stores: map[*bundle.View]*storeFacts{}}
	l.configTypes(files.Content[bundle.ConfigFile])
	l.approvalConfig(files.Content[bundle.ConfigFile])
	for _, v := range b.Views {
		for _, p := range v.Policies {
			if p.Tenant == v.Tenant { // the root's policies stand in every view
				l.lint(p)
			}
		}
	}
	l.obligations()
	l.approvals()
	return b, problems.Sorted()
}

// linter looks at one bundle. It follows attributes by their paths. What a policy
// compares as a whole, as in `context == {…}`, it does not take apart: no member
// is named there that could be left out.
type linter struct {
	b        *bundle.Bundle
	problems *bundle.Problems
	listed   []types.EntityType // that bundle.yaml tells apart
	stores   map[*bundle.View]*storeFacts
}

func (l *linter) lint(p *bundle.Policy) {
	l.names(p)
	if tooLong(p) {
		l.warn(p, "too_long_to_check", "reads so many attributes that what it misses or lets escape is not looked for", "split it into several policies")
		return
	}
	terms := p.Terms()
	if p.Forbids() {
		l.escapes(p, terms)
	} else {
		l.missing(p, terms)
	}
}

// longest is how many names of attributes a policy may read, or ask for, to be
// looked at closely: the work grows with the cube of it.
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

// paths are warnings of one code about one policy, an attribute each.
type paths []bundle.AttributePath

// add keeps the shortest: `has a.b` is two tests, and one thing to correct.
func (ps *paths) add(path bundle.AttributePath) {
	if ps.covers(path) {
		return
	}
	*ps = slices.DeleteFunc(*ps, func(other bundle.AttributePath) bool { return path.LeadsTo(other) })
	*ps = append(*ps, path)
}

func (ps paths) covers(path bundle.AttributePath) bool {
	return slices.ContainsFunc(ps, func(p bundle.AttributePath) bool { return p.LeadsTo(path) })
}
