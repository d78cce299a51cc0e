package pdp

import (
	"slices"

	"github.com/cedar-policy/cedar-go/types"
)

// Check is [Load], and says besides what is legal and yet probably not meant:
// problems of severity warning, each at the policy it is about. It loads what
// Load loads. Warnings wait until the bundle loads, because what a policy means
// depends on schema and bundle.yaml.
func Check(source Source) (*Bundle, Problems) {
	files := source.Read()
	b, problems := build(files)
	if b == nil {
		return nil, problems
	}
	l := linter{b: b, problems: &problems, listed: b.config.listedTypes(), stores: map[*view]*storeFacts{}}
	l.configTypes(files.content[configFile])
	l.approvalConfig(files.content[configFile])
	for _, v := range b.views {
		for _, p := range v.policies {
			if p.tenant == v.tenant { // the root's policies stand in every view
				l.lint(p)
			}
		}
	}
	l.obligations()
	l.approvals()
	return b, problems.sorted()
}

// linter looks at one bundle. It follows attributes by their paths. What a policy
// compares as a whole, as in `context == {…}`, it does not take apart: no member
// is named there that could be left out.
type linter struct {
	b        *Bundle
	problems *Problems
	listed   []types.EntityType // that bundle.yaml tells apart
	stores   map[*view]*storeFacts
}

func (l *linter) lint(p *policy) {
	l.names(p)
	if tooLong(p) {
		l.warn(p, "too_long_to_check", "reads so many attributes that what it misses or lets escape is not looked for", "split it into several policies")
		return
	}
	terms := p.terms()
	if p.forbids() {
		l.escapes(p, terms)
	} else {
		l.missing(p, terms)
	}
}

// longest is how many names of attributes a policy may read, or ask for, to be
// looked at closely: the work grows with the cube of it.
const longest = 300

func tooLong(p *policy) bool {
	names := 0
	for _, path := range p.facts.reads {
		names += len(path.names)
	}
	return names > longest
}

func (l *linter) warn(p *policy, code, message, try string) {
	l.problems.warn(p.file, p.line, p.column, code, "policy "+quote(p.id)+" "+message, try)
}

// paths are warnings of one code about one policy, an attribute each.
type paths []attributePath

// add keeps the shortest: `has a.b` is two tests, and one thing to correct.
func (ps *paths) add(path attributePath) {
	if ps.covers(path) {
		return
	}
	*ps = slices.DeleteFunc(*ps, func(other attributePath) bool { return path.leadsTo(other) })
	*ps = append(*ps, path)
}

func (ps paths) covers(path attributePath) bool {
	return slices.ContainsFunc(ps, func(p attributePath) bool { return p.leadsTo(path) })
}
