package bundle

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/evaluation"
)

// LeadsTo reports whether other is the same path or goes on from it.
func (p AttributePath) LeadsTo(other AttributePath) bool {
	return p.Root == other.Root && len(p.Names) <= len(other.Names) && slices.Equal(p.Names, other.Names[:len(p.Names)])
}

// Protocol reports whether the path begins at a member that no policy ever sees.
func (p AttributePath) Protocol() bool {
	return p.Root == "context" && len(p.Names) > 0 && evaluation.Protocol(p.Names[0])
}

// Shorter orders paths so that what a path goes on from comes before it.
func Shorter(a, b AttributePath) int {
	return cmp.Or(cmp.Compare(len(a.Names), len(b.Names)), cmp.Compare(a.String(), b.String()))
}

// Unsupplied reports whether the path is below context.pdp and not there.
func (p AttributePath) Unsupplied() bool {
	if p.Root != "context" || p.Names[0] != "pdp" || len(p.Names) == 1 {
		return false
	}
	_, ok := pdpMembers[types.String(p.Names[1])]
	return !ok
}

// Asked is the path's test for presence, in Cedar.
func (p AttributePath) Asked() string {
	last := len(p.Names) - 1
	name := p.Names[last]
	if !identifier.MatchString(name) {
		name = Quote(name)
	}
	return AttributePath{Root: p.Root, Names: p.Names[:last]}.String() + " has " + name
}

// Up is the path without its last name.
func (p AttributePath) Up() AttributePath {
	return AttributePath{Root: p.Root, Names: p.Names[:len(p.Names)-1]}
}

// Same reports whether two paths are one.
func (p AttributePath) Same(other AttributePath) bool {
	return p.Root == other.Root && slices.Equal(p.Names, other.Names)
}

// Tests are those that a policy makes of the three variables before anything else.
func (p *Policy) Tests() []ScopeTest { return slices.Concat(p.Facts.Scope, p.Facts.Leading) }

// Excludes reports whether no entity could pass both tests, whatever its parents
// are: they want different ids, different types, or an id of another type.
func (t ScopeTest) Excludes(other ScopeTest) bool {
	typ := func(t ScopeTest) types.EntityType {
		if t.Eq {
			return t.Uids[0].Type
		}
		return t.Is
	}
	switch a, b := typ(t), typ(other); {
	case t.Of != other.Of:
		return false
	case t.Eq && other.Eq:
		return t.Uids[0] != other.Uids[0]
	default:
		return a != "" && b != "" && a != b
	}
}

// Key is the same for tests that ask the same.
func (t ScopeTest) Key() string { return fmt.Sprint(t.Of, t.Is, t.Uids, t.Eq) }

// Follows reports whether a test holds for whatever passes the tests given.
func (t ScopeTest) Follows(tests []ScopeTest) bool {
	typed, placed := t.Is == "", t.Uids == nil
	for _, s := range tests {
		if s.Of != t.Of {
			continue
		}
		typed = typed || s.Is == t.Is || s.Eq && s.Uids[0].Type == t.Is
		placed = placed || s.within(t)
	}
	return typed && placed
}

// within reports whether the entities that one test names are among those of
// another, or are what stands in them.
func (t ScopeTest) within(other ScopeTest) bool {
	if t.Uids == nil || other.Eq && !t.Eq {
		return false
	}
	return !slices.ContainsFunc(t.Uids, func(uid types.EntityUID) bool { return !slices.Contains(other.Uids, uid) })
}
