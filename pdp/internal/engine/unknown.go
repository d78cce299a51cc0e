package engine

import (
	"slices"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/evaluation"
	"policy-service/obligations"
	"policy-service/pdp/internal/bundle"
)

// unknowns are the places of a question whose values are not known: the caller does not know them yet, or a mask hides
// them in a record. A condition that reads none of them comes to the same with all values, so cedar-go evaluates it. For
// a condition that reads one, every outcome is possible.
type unknowns struct {
	q      *Question
	in     Inquiry // with the request that was settled
	places []place
	known  explainer // asks cedar-go about the known parts
	// rises is set for the variables of which not all ancestors are known.
	rises [bundle.Variables]bool
	// unusable are the members that may be unusable: a mask hides whether they are, or something in them.
	unusable Unusable
}

// place is one of these places: where the names lead from the variable, or all attributes if there are no names. The
// context is in the place of the action.
type place struct {
	of    bundle.Variable
	names []string
	// there is how many of the names lead to a present value. If the caller does not know the value, what is missing
	// above it may be there, too: a request with the value has both.
	there int
	part  bool // the place is in a value that Cedar takes as a whole: an array, or a reference to an entity
	gives bool // the value may give parents
	// hidden is the masked place, or nil if the caller does not know the value. A masked value was sent: so it is there.
	hidden  *evaluation.Hidden
	misfits bool // the masked value may not fit the schema, or be one that Cedar does not have
}

// find completes the places, once the question is made.
func (u *unknowns) find() {
	for n := range u.places {
		p := &u.places[n]
		in := u.q.Context
		if p.of != bundle.ActionVar {
			in = u.entity(p.of).Attributes
		}
		for ; p.there < len(p.names); p.there++ {
			value, ok := in.Get(types.String(p.names[p.there]))
			if !ok {
				break
			}
			in, _ = value.(types.Record)
		}
	}
	u.findParents()
	u.findUnusable()
}

// findUnusable finds the members that may be unusable. No schema types them: else the request itself may not fit.
func (u *unknowns) findUnusable() {
	u.unusable = Unusable{refers: u.q.Unusable.refers}
	for _, p := range u.places {
		for of := range bundle.Variable(bundle.Variables) {
			same := of == p.of || u.one() && of != bundle.ActionVar && p.of != bundle.ActionVar
			if p.misfits && len(p.names) > 0 && same {
				u.unusable.of[of] = u.unusable.of[of].add(p.names, true)
			}
		}
	}
}

// hiddenAt are the unknowns as if nothing was unknown but this masked place.
func (u *unknowns) hiddenAt(h *evaluation.Hidden) *unknowns {
	own := *u
	own.places = slices.DeleteFunc(slices.Clone(u.places), func(p place) bool { return p.hidden != h })
	if !slices.ContainsFunc(own.places, func(p place) bool { return p.gives }) {
		own.rises = [bundle.Variables]bool{}
	}
	own.findUnusable()
	return &own
}

// entity is the subject or the resource.
func (u *unknowns) entity(of bundle.Variable) *types.Entity {
	e, _ := u.q.Entities.of(of)
	return e
}

func (u *unknowns) origin(of bundle.Variable) *origin {
	_, o := u.q.Entities.of(of)
	return o
}

// one reports whether the subject is the resource.
func (u *unknowns) one() bool {
	return u.q.Uids[bundle.PrincipalVar] == u.q.Uids[bundle.ResourceVar]
}

// findParents takes from each entity the parents that an unknown value may give. So the question has the ancestors that
// it has with all values. The others are not known.
func (u *unknowns) findParents() {
	var own [bundle.Variables]bool
	for n := range u.places {
		p := &u.places[n]
		if p.of == bundle.ActionVar {
			continue
		}
		for _, rule := range u.in.Bundle.Config.Parents[u.q.Uids[p.of].Type] {
			if len(p.names) == 0 && u.origin(p.of).passesOver(rule.Attribute) || len(p.names) > 0 && p.names[0] != rule.Attribute {
				continue
			}
			own[p.of], p.gives = true, true
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
		unknown := slices.ContainsFunc(u.places, func(p place) bool {
			return (p.of == of || u.one() && p.of != bundle.ActionVar) && (len(p.names) == 0 || p.names[0] == rule.Attribute)
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

// opens reports whether a term reads what is unknown.
func (u *unknowns) opens(t *bundle.Term) bool {
	switch t.Op {
	case bundle.OpPath, bundle.OpHas:
		return u.reads(t.Path, t.Op == bundle.OpHas)
	case bundle.OpRead:
		if u.mayRead(t.Args[0], t.Path.Names) {
			return true
		}
	case bundle.OpIn, bundle.OpTest:
		if u.climbs(t) {
			return true
		}
	}
	return slices.ContainsFunc(t.Args, u.opens)
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

// mayRead reports whether an attribute may be unknown that is read from the result of a term, which is no path.
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
	return slices.ContainsFunc(u.places, func(p place) bool {
		return p.of != bundle.ActionVar && (len(p.names) == 0 || p.names[0] == names[0])
	})
}

// rise reports whether the ancestors of any variable are not all known.
func (u *unknowns) rise() bool { return u.rises != [bundle.Variables]bool{} }

// climbs reports whether an in, or a test like that of a scope, asks for ancestors that are not all known.
func (u *unknowns) climbs(t *bundle.Term) bool {
	return t.Op == bundle.OpIn && u.rise() || t.Op == bundle.OpTest && u.mayHold(&t.Test)
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
	if slices.ContainsFunc(u.places, func(p place) bool { return p.of == bundle.ActionVar && p.meetsContext(path.Names, has) }) {
		return true
	}
	uid, rest := follow(u.q.Context, path.Names)
	return u.readsEntity(uid, rest, has)
}

// readsEntity is reads for names that lead from an entity.
func (u *unknowns) readsEntity(uid types.EntityUID, names []string, has bool) bool {
	for len(names) > 0 {
		for n := range u.places {
			if p := &u.places[n]; p.of != bundle.ActionVar && u.q.Uids[p.of] == uid && u.meetsEntity(p, names, has) {
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
func (p *place) meetsContext(names []string, has bool) bool {
	if len(p.names) == 0 && len(names) > 0 {
		return names[0] != "pdp" && names[0] != "action"
	}
	return p.meets(names, has)
}

func (u *unknowns) meetsEntity(p *place, names []string, has bool) bool {
	if len(p.names) == 0 {
		return !u.origin(p.of).passesOver(names[0])
	}
	return p.meets(names, has)
}

func (p *place) meets(names []string, has bool) bool {
	common := 0
	for common < min(len(names), len(p.names)) && names[common] == p.names[common] {
		common++
	}
	switch {
	case common == len(p.names): // the value, or something in it; a masked value is there
		return !has || p.hidden == nil || len(names) > common
	case !has: // what has the value in it; what is beside it is there, or it is not, with all values
		return common == len(names)
	case common == len(names): // whether there is something above the value
		return len(names) > p.there
	}
	// Whether there is something beside the value: without what has both in it, that errs.
	return common > p.there && len(names) == common+1
}

// concerns reports whether a policy names anything that lies on the way to a place. If it does not, the policy reads
// nothing that is unknown.
func (u *unknowns) concerns(p *bundle.Policy) bool {
	return u.rise() || slices.ContainsFunc(u.places, func(at place) bool {
		if len(at.names) == 0 {
			return true
		}
		_, read := p.Facts.ReadNames[at.names[0]]
		_, tested := p.Facts.HasNames[at.names[0]]
		return read || tested || at.of == bundle.ActionVar && p.Facts.Whole
	})
}

// touches reports whether the verdict of a policy, or the kind of its error, may depend on what is unknown.
func (u *unknowns) touches(p *bundle.Policy) bool {
	if !u.concerns(p) {
		return false
	}
	considered := u.considered(p)
	return considered == maySatisfy || considered == satisfied && (u.mayCount(p) || slices.ContainsFunc(u.clauses(p), u.opensIn))
}

func (u *unknowns) opensIn(c *condition) bool { return c.reads(u.opens) }

// mayCount reports whether a policy reads a member that may be unusable, or would count as errored if it is.
func (u *unknowns) mayCount(p *bundle.Policy) bool {
	return CountsAsErrored(p, &u.unusable) || Reads(p, &u.unusable)
}

// fills reports whether an unknown value is filled into an obligation. What has one in it is no text.
func (u *unknowns) fills(d *obligations.Definition) bool {
	found := false
	_, _ = obligations.Fill(d.Properties, func(variable string) (string, bool) {
		found = found || u.fillsIn(variable)
		return "", true
	})
	return found
}

// fillsIn is the same for one variable of a template.
func (u *unknowns) fillsIn(variable string) bool {
	names, ok := obligations.Path(variable)
	return ok && slices.ContainsFunc(u.places, func(p place) bool {
		above := len(p.names) <= len(names) && slices.Equal(p.names, names[:len(p.names)])
		return p.of == bundle.ActionVar && above && !p.part && p.meetsContext(names, false)
	})
}
