package engine

import (
	"slices"

	"policy-service/pdp/internal/bundle"
)

// gaps are the members that Cedar cannot hold of the attributes of an entity or of the context, as a tree of their names.
// Each is left out of its record, because no stand-in would be safe; nil is for none.
type gaps struct {
	here  bool // the value at this place is left out
	maybe bool // a mask hides whether it is, or something below it
	below map[string]*gaps
}

// add adds the member that names lead to, and returns the tree. Nothing is below a member that is left out.
func (g *gaps) add(names []string, maybe bool) *gaps {
	if g == nil {
		g = new(gaps)
	}
	at := g
	for _, name := range names {
		next := at.below[name]
		if next == nil {
			if next = new(gaps); at.below == nil {
				at.below = map[string]*gaps{}
			}
			at.below[name] = next
		}
		at = next
	}
	at.here, at.maybe = true, maybe
	return g
}

// meets reports what a policy that follows names has to do with the gaps. reads: it reads one, something in one, or a
// record around one as a value. counts: it errs in no way that Cedar knows of, although the value that is left out could
// make a difference, since it uses such a record or tests with has.
func (g *gaps) meets(names []string, has bool) (reads, counts bool) {
	if g == nil {
		return false, false
	}
	for n, name := range names {
		if g = g.below[name]; g == nil {
			return false, false
		}
		if g.here {
			return true, has && (g.maybe || n == len(names)-1)
		}
	}
	return !has, !has // a record around a gap is there, whatever the value in it is
}

// Unusable are the gaps of a question: those of the subject, the context, which is in the place of the action, and the
// resource.
type Unusable struct {
	of [bundle.Variables]*gaps
	// refers is set if members of the context can refer to entities: a schema alone makes references of what is sent.
	refers bool
}

// Meets reports what a path of a policy has to do with the gaps; see [gaps.meets]. Where the path may lead through a
// reference to the subject or the resource, it is taken to do so: an error too many denies, and one too few may allow.
func (u *Unusable) Meets(path bundle.AttributePath) (reads, counts bool) {
	meet := func(g *gaps, names []string) {
		r, c := g.meets(names, path.Has)
		reads, counts = reads || r, counts || c
	}
	from := 1 // what the first name leads to may be a reference
	switch of := slices.Index(bundle.VariableNames[:], path.Root); {
	case path.Root == "":
		from = 0
	case path.Root == "context":
		if meet(u.of[bundle.ActionVar], path.Names); !u.refers {
			return reads, counts
		}
	case bundle.Variable(of) != bundle.ActionVar:
		meet(u.of[of], path.Names)
	}
	for n := from; n < len(path.Names); n++ {
		meet(u.of[bundle.PrincipalVar], path.Names[n:])
		meet(u.of[bundle.ResourceVar], path.Names[n:])
	}
	return reads, counts
}

// any reports whether there are any.
func (u *Unusable) any() bool { return u.of != [bundle.Variables]*gaps{} }

// CountsAsErrored reports whether a policy looks at an unusable member in a way that does not err in Cedar: with has, or
// at a record around it as a value, such as the whole context.
func CountsAsErrored(p *bundle.Policy, u *Unusable) bool {
	counts := func(path bundle.AttributePath) bool { _, counts := u.Meets(path); return counts }
	return u.any() && (p.Facts.Whole && u.of[bundle.ActionVar] != nil ||
		slices.ContainsFunc(p.Facts.Reads, counts) || slices.ContainsFunc(p.Facts.Unrooted, counts))
}

// Reads reports whether a policy accesses a member that is unusable.
func Reads(p *bundle.Policy, u *Unusable) bool {
	reads := func(path bundle.AttributePath) bool { reads, _ := u.Meets(path); return reads }
	return u.any() && (slices.ContainsFunc(p.Facts.Reads, reads) || slices.ContainsFunc(p.Facts.Unrooted, reads))
}
