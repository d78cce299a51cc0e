package pdp

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/evaluation"
)

// leadsTo reports whether other is the same path or goes on from it.
func (p attributePath) leadsTo(other attributePath) bool {
	return p.root == other.root && len(p.names) <= len(other.names) && slices.Equal(p.names, other.names[:len(p.names)])
}

// protocol reports whether the path begins at a member that no policy ever sees.
func (p attributePath) protocol() bool {
	return p.root == "context" && len(p.names) > 0 && evaluation.Protocol(p.names[0])
}

// shorter orders paths so that what a path goes on from comes before it.
func shorter(a, b attributePath) int {
	return cmp.Or(cmp.Compare(len(a.names), len(b.names)), cmp.Compare(a.String(), b.String()))
}

// unsupplied reports whether the path is below context.pdp and not there.
func (p attributePath) unsupplied() bool {
	if p.root != "context" || p.names[0] != "pdp" || len(p.names) == 1 {
		return false
	}
	_, ok := pdpMembers[types.String(p.names[1])]
	return !ok
}

// asked is the path's test for presence, in Cedar.
func (p attributePath) asked() string {
	last := len(p.names) - 1
	name := p.names[last]
	if !identifier.MatchString(name) {
		name = quote(name)
	}
	return attributePath{root: p.root, names: p.names[:last]}.String() + " has " + name
}

func (p attributePath) up() attributePath {
	return attributePath{root: p.root, names: p.names[:len(p.names)-1]}
}

func (p attributePath) same(other attributePath) bool {
	return p.root == other.root && slices.Equal(p.names, other.names)
}

// tests are those that a policy makes of the three variables before anything else.
func (p *policy) tests() []scopeTest { return slices.Concat(p.facts.scope, p.facts.leading) }

// excludes reports whether no entity could pass both tests, whatever its parents
// are: they want different ids, different types, or an id of another type.
func (t scopeTest) excludes(other scopeTest) bool {
	typ := func(t scopeTest) types.EntityType {
		if t.eq {
			return t.uids[0].Type
		}
		return t.is
	}
	switch a, b := typ(t), typ(other); {
	case t.of != other.of:
		return false
	case t.eq && other.eq:
		return t.uids[0] != other.uids[0]
	default:
		return a != "" && b != "" && a != b
	}
}

func (t scopeTest) key() string { return fmt.Sprint(t.of, t.is, t.uids, t.eq) }

// follows reports whether a test holds for whatever passes the tests given.
func (t scopeTest) follows(tests []scopeTest) bool {
	typed, placed := t.is == "", t.uids == nil
	for _, s := range tests {
		if s.of != t.of {
			continue
		}
		typed = typed || s.is == t.is || s.eq && s.uids[0].Type == t.is
		placed = placed || s.within(t)
	}
	return typed && placed
}

// within reports whether the entities that one test names are among those of
// another, or are what stands in them.
func (t scopeTest) within(other scopeTest) bool {
	if t.uids == nil || other.eq && !t.eq {
		return false
	}
	return !slices.ContainsFunc(t.uids, func(uid types.EntityUID) bool { return !slices.Contains(other.uids, uid) })
}
