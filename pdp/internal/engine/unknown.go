package engine

import (
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/obligations"
	"policy-service/pdp/internal/bundle"
)

// unknowns are the places of a question whose values are not known, as policies see them. A term that reads none
// of them comes to the same with all values, so cedar-go evaluates it. Of one that does, everything is possible.
type unknowns struct {
	q     *Question
	in    Inquiry // with the request that was settled
	spots []spot
	known explainer // which asks cedar-go about what is known
	// rises is set for the variables of which not all ancestors are known.
	rises [bundle.Variables]bool
}

// spot is one of these places: where the names lead from the variable, or all attributes if there are no names. The
// context is in the place of the action.
type spot struct {
	of    bundle.Variable
	names []string
	// there is how many of the names lead to a value that is there. What is missing above the place may be there,
	// too: nobody could send the value without it.
	there int
	// part is set if the place is in a value that Cedar takes as a whole: an array, or a reference to an entity.
	part bool
	// mask is set if the value was sent, and a mask hides it: its place in the request.
	mask string
}

// find completes the places, once the question is made.
func (u *unknowns) find() {
	for n := range u.spots {
		s := &u.spots[n]
		in := u.q.Context
		if s.of != bundle.ActionVar {
			in = u.entity(s.of).Attributes
		}
		for ; s.there < len(s.names); s.there++ {
			value, ok := in.Get(types.String(s.names[s.there]))
			if !ok {
				break
			}
			in, _ = value.(types.Record)
		}
	}
	u.findParents()
}

// entity is the subject or the resource.
func (u *unknowns) entity(of bundle.Variable) *types.Entity {
	if of == bundle.PrincipalVar {
		return &u.q.Entities.Principal
	}
	return &u.q.Entities.Resource
}

func (u *unknowns) origin(of bundle.Variable) *origin {
	if of == bundle.PrincipalVar {
		return &u.q.Entities.Origin[0]
	}
	return &u.q.Entities.Origin[1]
}

// one reports whether the subject is the resource.
func (u *unknowns) one() bool {
	return u.q.Uids[bundle.PrincipalVar] == u.q.Uids[bundle.ResourceVar]
}

// findParents takes from each entity the parents that an unknown value may give. So the question has the ancestors that
// it has with all values. The others are not known.
func (u *unknowns) findParents() {
	var own [bundle.Variables]bool
	for _, s := range u.spots {
		if s.of == bundle.ActionVar {
			continue
		}
		for _, rule := range u.in.Bundle.Config.Parents[u.q.Uids[s.of].Type] {
			if len(s.names) == 0 && u.origin(s.of).passesOver(rule.Attribute) || len(s.names) > 0 && s.names[0] != rule.Attribute {
				continue
			}
			own[s.of] = true
		}
	}
	if own == [bundle.Variables]bool{} {
		return
	}
	if own[bundle.PrincipalVar] && u.one() {
		own[bundle.ResourceVar] = true
	}
	for of, open := range own {
		if open {
			u.entity(bundle.Variable(of)).Parents = u.leastParents(bundle.Variable(of))
		}
	}
	for n, uid := range u.q.Uids {
		u.q.Up[n] = bundle.LineageOf(uid, u.q.Entities)
		for of, open := range own {
			u.rises[n] = u.rises[n] || open && u.q.Up[n].In(u.q.Uids[of])
		}
	}
}

// leastParents are the parents that an entity has whatever the unknown values are.
func (u *unknowns) leastParents(of bundle.Variable) types.EntityUIDSet {
	o := u.origin(of)
	uids := o.storedParents(u.q.Entities.Store.WrittenParents(o.Stored).All())
	for _, rule := range u.in.Bundle.Config.Parents[u.q.Uids[of].Type] {
		unknown := slices.ContainsFunc(u.spots, func(s spot) bool {
			return (s.of == of || u.one() && s.of != bundle.ActionVar) && (len(s.names) == 0 || s.names[0] == rule.Attribute)
		})
		value, sent := o.sent.Get(rule.Attribute)
		stored, has := o.Stored.Attributes.Get(types.String(rule.Attribute))
		switch {
		case sent && !unknown && !o.passesOver(rule.Attribute):
			more, _ := sentParents(value, rule.Parent)
			uids = append(uids, more...)
		case has && (!unknown || o.passesOver(rule.Attribute)):
			more, _ := bundle.StoredParents(stored, rule.Parent)
			uids = append(uids, o.storedParents(slices.Values(more))...)
		}
	}
	return types.NewEntityUIDSet(uids...)
}

// opens reports whether a condition reads what is unknown.
func (u *unknowns) opens(c *condition) bool {
	if len(c.parts) > 0 {
		return slices.ContainsFunc(c.parts, u.opens)
	}
	uses := func(one use) bool { return one.path.Root != "" && u.reads(one.path, one.how == tested) }
	return slices.ContainsFunc(c.uses, uses) || u.strays(c.term) || u.rise() && u.climbs(c.term)
}

// clauses are those of a policy. A call takes each policy apart once.
func (u *unknowns) clauses(p *bundle.Policy) []*condition {
	all, ok := u.in.keeps.clauses[p]
	if !ok {
		all = conditionsOf(p)
		u.in.keeps.clauses[p] = all
	}
	return all
}

// strays reports whether a term reads an attribute that may be unknown from something that is no path.
func (u *unknowns) strays(t *bundle.Term) bool {
	return t.Op == bundle.OpRead && u.mayRead(t.Args[0], t.Path.Names) || slices.ContainsFunc(t.Args, u.strays)
}

// mayRead is the same for a read from whatever a term comes to.
func (u *unknowns) mayRead(from *bundle.Term, names []string) bool {
	switch from.Op {
	case bundle.OpBuild: // what it is made of is read by itself
		return false
	case bundle.OpIf:
		return u.mayRead(from.Args[1], names) || u.mayRead(from.Args[2], names)
	case bundle.OpPath:
		return u.reads(bundle.AttributePath{Root: from.Path.Root, Names: slices.Concat(from.Path.Names, names)}, false)
	case bundle.OpValue:
		uid, _ := from.Value.(types.EntityUID)
		return u.readsEntity(uid, names, false)
	}
	return slices.ContainsFunc(u.spots, func(s spot) bool {
		return s.of != bundle.ActionVar && (len(s.names) == 0 || s.names[0] == names[0])
	})
}

// rise reports whether the ancestors of any variable are not all known.
func (u *unknowns) rise() bool { return u.rises != [bundle.Variables]bool{} }

// climbs reports whether a term asks for ancestors that are not all known.
func (u *unknowns) climbs(t *bundle.Term) bool {
	return t.Op == bundle.OpIn || t.Op == bundle.OpTest && u.mayHold(&t.Test) || slices.ContainsFunc(t.Args, u.climbs)
}

// mayHold reports whether a test holds with some values only. Ancestors that are known are ancestors with all of them.
func (u *unknowns) mayHold(t *bundle.ScopeTest) bool {
	up := &u.q.Up[t.Of]
	return u.rises[t.Of] && t.Uids != nil && !t.Eq && (t.Is == "" || t.Is == up.Uid.Type) && !up.Holds(t)
}

// considered is whether the scope and the leading tests of a policy hold: what all of them can come to.
func (u *unknowns) considered(p *bundle.Policy) verdicts {
	all := satisfied
	for _, tests := range [][]bundle.ScopeTest{p.Facts.Scope, p.Facts.Leading} {
		for n := range tests {
			switch t := &tests[n]; {
			case u.mayHold(t):
				all = maySatisfy
			case !u.q.Up[t.Of].Holds(t):
				return notSatisfied
			}
		}
	}
	return all
}

// reads reports whether an unknown value makes a difference to what a policy reads at a path, or to whether it is
// there (has). The path may go on through references to entities.
func (u *unknowns) reads(path bundle.AttributePath, has bool) bool {
	if of := slices.Index(bundle.VariableNames[:], path.Root); of >= 0 {
		return u.readsEntity(u.q.Uids[of], path.Names, has)
	}
	if slices.ContainsFunc(u.spots, func(s spot) bool { return s.of == bundle.ActionVar && s.meetsContext(path.Names, has) }) {
		return true
	}
	uid, rest := follow(u.q.Context, path.Names)
	return u.readsEntity(uid, rest, has)
}

// readsEntity is reads for names that lead from an entity.
func (u *unknowns) readsEntity(uid types.EntityUID, names []string, has bool) bool {
	for len(names) > 0 {
		for n := range u.spots {
			if s := &u.spots[n]; s.of != bundle.ActionVar && u.q.Uids[s.of] == uid && u.meetsEntity(s, names, has) {
				return true
			}
		}
		e, _ := u.q.Entities.Get(uid)
		uid, names = follow(e.Attributes, names)
	}
	return false
}

// follow goes where names lead from a record, up to the first reference that they lead through: to which entity that
// is, and by which names they go on. There are no names if they lead through none.
func follow(in types.Record, names []string) (to types.EntityUID, rest []string) {
	for n, name := range names {
		value, _ := in.Get(types.String(name))
		switch v := value.(type) {
		case types.Record:
			in = v
		case types.EntityUID:
			return v, names[n+1:]
		default:
			return to, nil
		}
	}
	return to, nil
}

// meetsContext reports whether a place in the context has to do with a path in it. The PDP sets two members itself.
func (s *spot) meetsContext(names []string, has bool) bool {
	if len(s.names) == 0 && len(names) > 0 {
		return names[0] != "pdp" && names[0] != "action"
	}
	return s.meets(names, has)
}

func (u *unknowns) meetsEntity(s *spot, names []string, has bool) bool {
	if len(s.names) == 0 {
		return !u.origin(s.of).passesOver(names[0])
	}
	return s.meets(names, has)
}

func (s *spot) meets(names []string, has bool) bool {
	common := 0
	for common < min(len(names), len(s.names)) && names[common] == s.names[common] {
		common++
	}
	switch {
	case common == len(s.names): // the value, or something in it
		return true
	case !has: // what has the value in it; what is beside it is there, or it is not, with all values
		return common == len(names)
	case common == len(names): // whether there is something above the value
		return len(names) > s.there
	}
	// Whether there is something beside the value: without what has both in it, that errs.
	return common > s.there && len(names) == common+1
}

// concerns reports whether a policy names anything that lies on the way to a place. If it does not, the policy reads
// nothing that is unknown.
func (u *unknowns) concerns(p *bundle.Policy) bool {
	return u.rise() || slices.ContainsFunc(u.spots, func(s spot) bool {
		if len(s.names) == 0 {
			return true
		}
		_, read := p.Facts.ReadNames[s.names[0]]
		_, tested := p.Facts.HasNames[s.names[0]]
		return read || tested || s.of == bundle.ActionVar && p.Facts.Whole
	})
}

// touches reports whether a policy reads what is unknown.
func (u *unknowns) touches(p *bundle.Policy) bool {
	if !u.concerns(p) {
		return false
	}
	considered := u.considered(p)
	return considered == maySatisfy || considered == satisfied && slices.ContainsFunc(u.clauses(p), u.opens)
}

// fills reports whether an unknown value is filled into an obligation. What has one in it is no text.
func (u *unknowns) fills(d *obligations.Definition) bool {
	return slices.ContainsFunc(textsIn(d.Properties), func(text string) bool {
		names, _ := obligations.Variables(text)
		return slices.ContainsFunc(names, u.fillsIn)
	})
}

// fillsIn is the same for one variable of a template.
func (u *unknowns) fillsIn(variable string) bool {
	path, ok := strings.CutPrefix(variable, "context.")
	names := strings.Split(path, ".")
	return ok && slices.ContainsFunc(u.spots, func(s spot) bool {
		above := len(s.names) <= len(names) && slices.Equal(s.names, names[:len(s.names)])
		return s.of == bundle.ActionVar && above && !s.part && s.meetsContext(names, false)
	})
}
