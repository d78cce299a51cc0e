package bundle

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/evaluation"
	"policy-service/obligations"
)

// LeadsTo reports if other is the same path or continues this path.
func (p AttributePath) LeadsTo(other AttributePath) bool {
	return p.Root == other.Root && len(p.Names) <= len(other.Names) && slices.Equal(p.Names, other.Names[:len(p.Names)])
}

// Protocol reports if the path begins at a member that no policy ever sees.
func (p AttributePath) Protocol() bool {
	return p.Root == "context" && len(p.Names) > 0 && evaluation.Protocol(p.Names[0])
}

// Shorter orders paths, so that a path comes before the paths that continue it.
func Shorter(a, b AttributePath) int {
	return cmp.Or(cmp.Compare(len(a.Names), len(b.Names)), cmp.Compare(a.String(), b.String()))
}

// Unsupplied reports if the path is below context.pdp and the PDP does not supply it.
func (p AttributePath) Unsupplied() bool {
	return p.ofPDP() && !supplies(pdpMembers, p.Names[1:])
}

// ofPDP reports if the path is context.pdp, or begins with it.
func (p AttributePath) ofPDP() bool {
	return p.Root == "context" && len(p.Names) > 0 && p.Names[0] == "pdp"
}

// sees reports if a policy can see any of these members of context.pdp.
func (f *Facts) sees(members ...string) bool {
	return f.Whole || slices.ContainsFunc(f.Reads, func(p AttributePath) bool {
		return p.ofPDP() && (len(p.Names) == 1 || slices.Contains(members, p.Names[1]))
	})
}

// SeesNow reports whether the policy can see the time.
func (f *Facts) SeesNow() bool { return f.sees("now") }

// Sight is what the policies of a view can see of a question. Nil is for everything.
//
// A policy sees an attribute of an entity only by its name, whatever expression the entity comes from. It sees a member
// of the context or of context.pdp by its name too, or if it uses the record as a value. Obligations are filled in with
// members of the context.
type Sight struct {
	root  *Sight // what the root's policies see, which count for every tenant
	names map[string]struct{}
	// context and pdp are set if a policy uses that record as a value.
	context, pdp bool
}

// Sees reports if a policy can see an attribute of the subject or the resource, or a member of the context, which is in
// the place of the action.
func (s *Sight) Sees(of Variable, name string) bool {
	return s.any(name, func(s *Sight) bool { return s.context && of == ActionVar })
}

// SeesPDP reports if a policy can see a member of context.pdp.
func (s *Sight) SeesPDP(name string) bool {
	return s.any(name, func(s *Sight) bool { return s.context || s.pdp })
}

func (s *Sight) any(name string, all func(*Sight) bool) bool {
	for at := s; at != nil; at = at.root {
		if _, named := at.names[name]; named || all(at) {
			return true
		}
	}
	return s == nil
}

// add adds what one policy can see.
func (s *Sight) add(p *Policy) {
	f := &p.Facts
	maps.Copy(s.names, f.ReadNames)
	maps.Copy(s.names, f.HasNames)
	s.context = s.context || f.Whole
	s.pdp = s.pdp || slices.ContainsFunc(f.Reads, func(p AttributePath) bool { return p.ofPDP() && len(p.Names) == 1 })
	for _, o := range p.Obliges {
		_, filled := obligations.Fill(o.Properties, func(variable string) (string, bool) {
			if path, ok := obligations.Path(variable); ok {
				s.names[path[0]] = struct{}{}
			}
			return "", true
		})
		s.context = s.context || !filled
	}
}

// findSeen finds out what the policies of the view can see. root is nil for the root itself.
func (v *View) findSeen(root *View) {
	v.Seen = &Sight{names: map[string]struct{}{}}
	if root != nil {
		v.Seen.root, v.SeesWho, v.SeesAllPDP = root.Seen, root.SeesWho, root.SeesAllPDP
		v.SeesCapability = root.SeesCapability
	}
	for _, p := range v.Policies {
		if root != nil && !p.OfTenant() {
			continue
		}
		v.Seen.add(p)
		v.SeesWho = v.SeesWho || p.Facts.sees(subjectMember, resourceMember)
		v.SeesCapability = v.SeesCapability || p.Facts.sees(capabilityMember)
		v.SeesAllPDP = v.SeesAllPDP || p.Facts.sees(subjectMember, resourceMember, capabilityMember)
	}
}

// Draft returns the draft of obligations, July's or October's, by which the bundle has requests of AuthZEN read.
func (b *Bundle) Draft() evaluation.Draft {
	if b.Config.October {
		return evaluation.October
	}
	return evaluation.July
}

// SeesCapability reports whether a policy of any tenant can see context.pdp.capability.
func (b *Bundle) SeesCapability() bool {
	for _, v := range b.Views {
		if v.SeesCapability {
			return true
		}
	}
	return false
}

// Asked is the test for the presence of the path, in Cedar.
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

// Same reports if two paths are equal.
func (p AttributePath) Same(other AttributePath) bool {
	return p.Root == other.Root && slices.Equal(p.Names, other.Names)
}

// Tests are the tests of the three variables that the policy makes before anything else.
func (p *Policy) Tests() []ScopeTest { return slices.Concat(p.Facts.Scope, p.Facts.Leading) }

// Excludes reports if no entity can pass both tests, whatever its parents are. The tests then
// want different ids, different types, or an id of another type, or ids that begin otherwise.
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
	case t.Prefix != "" && other.Prefix != "":
		return !strings.HasPrefix(t.Prefix, other.Prefix) && !strings.HasPrefix(other.Prefix, t.Prefix)
	case t.Prefix != "" && other.Eq:
		return !other.begins(t.Prefix)
	case t.Eq && other.Prefix != "":
		return !t.begins(other.Prefix)
	default:
		return a != "" && b != "" && a != b
	}
}

// begins reports if the test wants an id that begins like that, and no other.
func (t ScopeTest) begins(prefix string) bool {
	return t.Eq && strings.HasPrefix(string(t.Uids[0].ID), prefix) || t.Prefix != "" && strings.HasPrefix(t.Prefix, prefix)
}

// Key is equal for equal tests.
func (t ScopeTest) Key() string { return fmt.Sprint(t.Of, t.Is, t.Uids, t.Eq) + t.Prefix }

// Follows reports if the test holds for every entity that passes the given tests.
func (t ScopeTest) Follows(tests []ScopeTest) bool {
	typed, placed := t.Is == "", t.Uids == nil && t.Prefix == ""
	for _, s := range tests {
		if s.Of != t.Of {
			continue
		}
		typed = typed || s.Is == t.Is || s.Eq && s.Uids[0].Type == t.Is
		placed = placed || s.within(t)
	}
	return typed && placed
}

// within reports if every entity that passes the test by its place also passes the other test:
// each entity that the test names is among those that the other test names, and the other test
// does not ask for equality if this one does not. If the other asks how the id begins, this one must say so.
func (t ScopeTest) within(other ScopeTest) bool {
	if other.Prefix != "" {
		return t.begins(other.Prefix)
	}
	if t.Uids == nil || other.Eq && !t.Eq {
		return false
	}
	return !slices.ContainsFunc(t.Uids, func(uid types.EntityUID) bool { return !slices.Contains(other.Uids, uid) })
}

// Contents are what a policy names and reads, for who holds policies against what there is to decide about.
type Contents struct {
	PolicyInfo
	File         string
	Line, Column int
	// Names are the entities that the policy names, by the types of requests. Tested are those of which a request must have
	// one: otherwise the policy is false, whatever else stands in it.
	Names  []evaluation.Ref
	Tested []Tested
	// Reads are the attributes that the policy reads, or asks for. Spares are those of them that it asks for to make an
	// exception, by unless or !, and has nowhere else.
	Reads       []AttributePath
	Spares      []AttributePath
	Obligations []*obligations.Definition
}

// Tested is a test that a policy makes before anything else: that the principal, action or resource is one of these, or,
// unless Only is set, below one of them.
type Tested struct {
	Of   string // principal, action or resource
	Any  []evaluation.Ref
	Only bool // the entity itself
}

// Contents lists what every policy of the bundle names and reads, by tenant and id.
func (b *Bundle) Contents() (all []Contents) {
	for _, tenant := range slices.Sorted(maps.Keys(b.Views)) {
		for _, p := range b.Views[tenant].Policies {
			if p.Tenant == tenant {
				all = append(all, b.contents(p))
			}
		}
	}
	return all
}

// Demand is an approval that policies name, with the place where it is defined.
type Demand struct {
	Name         string
	File         string // "" if it is nowhere in the bundle
	Line, Column int
	// Others reports that it takes other people than those who take part in the request: allow_self_approval does not list
	// the template, or one person is not enough.
	Others bool
}

// Approvals lists the approvals that policies name and that people can give, by tenant and name.
func (b *Bundle) Approvals() (all []Demand) {
	for _, tenant := range slices.Sorted(maps.Keys(b.Views)) {
		named := map[string]Demand{}
		for _, p := range b.Views[tenant].Policies {
			for _, o := range p.Obliges {
				if t, ok := obligations.TermsOf(evaluation.Obligation{Type: o.Type.Name, Properties: o.Properties}); ok && p.Tenant == tenant {
					d := b.Views[tenant].Obligations[o.Name]
					named[o.Name] = Demand{o.Name, d.File, d.Line, d.Column, t.Quorum > 1 || !slices.Contains(b.Config.AllowSelfApproval, t.Template)}
				}
			}
		}
		for _, name := range slices.Sorted(maps.Keys(named)) {
			all = append(all, named[name])
		}
	}
	return all
}

// PolicyType is what policies call a type of requests. It fails for what no request may name.
func (b *Bundle) PolicyType(wire string) (string, bool) {
	typ, ok := b.Config.EntityType(wire)
	return string(typ), ok
}

// IDs are those of the actions and entities that a tenant's view knows: those that it has, and those that its policies
// name. An id may be there more than once.
func (b *Bundle) IDs(tenant string) (ids []string) {
	v := b.Views[tenant]
	if v == nil {
		return nil
	}
	ids = slices.Clone(v.Actions)
	for s := v.Store; s != nil; s = s.Root {
		for _, of := range s.Ids {
			ids = append(ids, of...)
		}
	}
	for _, p := range v.Policies {
		for _, uid := range p.Facts.Uids {
			ids = append(ids, string(uid.ID))
		}
	}
	return ids
}

// PolicyPosition is where a policy of a tenant or of the root stands, as file:line:column; "" if there is none of this id.
func (b *Bundle) PolicyPosition(tenant, id string) string {
	if v := b.Views[tenant]; v != nil && v.ByID[id] != nil {
		return v.ByID[id].Position
	}
	return ""
}

// ObligationPosition is where an obligation that a tenant's policies can name is defined, as file:line:column; "" if it
// is nowhere in the bundle.
func (b *Bundle) ObligationPosition(tenant, name string) string {
	v := b.Views[tenant]
	if v == nil {
		return ""
	}
	if d := v.Obligations[name]; d.File != "" {
		return fmt.Sprintf("%s:%d:%d", d.File, d.Line, d.Column)
	}
	return ""
}

func (b *Bundle) contents(p *Policy) Contents {
	c := Contents{
		PolicyInfo: p.Info(), File: p.File, Line: p.Line, Column: p.Column, Names: b.refs(p.Facts.Uids),
		Reads: slices.Clone(p.Facts.Reads), Obligations: slices.Clone(p.Obliges),
	}
	c.Spares = p.spares()
	for _, t := range p.Tests() {
		if t.Uids != nil {
			c.Tested = append(c.Tested, Tested{Of: VariableNames[t.Of], Any: b.refs(t.Uids), Only: t.Eq})
		}
	}
	return c
}

// refs are entities as requests name them. Actions, and what no request can name, have the types that Cedar has for them.
func (b *Bundle) refs(uids []types.EntityUID) []evaluation.Ref {
	all := make([]evaluation.Ref, len(uids))
	for n, uid := range uids {
		wire, ok := b.Config.WireType(uid.Type)
		switch {
		case uid.Type == b.Config.ActionType:
			wire = "Action"
		case !ok:
			wire = string(uid.Type)
		}
		all[n] = evaluation.Ref{Type: wire, ID: string(uid.ID)}
	}
	return all
}

// SeesNow reports whether a policy of a tenant can see the time.
func (b *Bundle) SeesNow(tenant string) bool {
	v := b.Views[tenant]
	return v != nil && v.Seen.SeesPDP("now")
}

// Until is when the first of some policies expires, as access rules do; zero if none of them does.
func (b *Bundle) Until(tenant string, policies []string) (until time.Time) {
	for _, id := range policies {
		if p := b.Views[tenant].ByID[id]; !p.Until.IsZero() && (until.IsZero() || p.Until.Before(until)) {
			until = p.Until
		}
	}
	return until
}

// MayPermit reports whether a permit of a tenant, or of the root, may hold for an action on resources of a type, by the tests
// that a policy makes before anything else.
func (b *Bundle) MayPermit(tenant, action, resource string) bool {
	v, uid := b.Views[tenant], types.NewEntityUID(b.Config.ActionType, types.String(action))
	typ, ok := b.Config.EntityType(resource)
	if v == nil || !ok || b.Schema != nil && b.Schema.Actions[uid] == nil { // such a request is refused
		return false
	}
	up := LineageOf(uid, v.Store)
	return slices.ContainsFunc(v.Policies, func(p *Policy) bool {
		return !p.Forbids() && !slices.ContainsFunc(p.Tests(), func(t ScopeTest) bool {
			switch {
			case t.Of == ActionVar && t.Uids != nil:
				return !slices.ContainsFunc(t.Uids, func(u types.EntityUID) bool { return u == uid || !t.Eq && up.In(u) })
			case t.Of == ResourceVar && t.Is != "":
				return t.Is != typ
			case t.Of == ResourceVar && t.Eq:
				return !slices.ContainsFunc(t.Uids, func(u types.EntityUID) bool { return u.Type == typ })
			}
			return false
		})
	})
}

// Escapes reports whether a request may name an action, and policies of a tenant about a group of actions are not about it,
// because neither schema nor entities say that it is in the group.
func (b *Bundle) Escapes(tenant, action, group string) bool {
	uid, of := types.NewEntityUID(b.Config.ActionType, types.String(action)), types.NewEntityUID(b.Config.ActionType, types.String(group))
	if b.Schema != nil && b.Schema.Actions[uid] == nil { // such a request is refused
		return false
	}
	up := LineageOf(uid, b.Views[tenant].Store)
	return !up.In(of)
}
