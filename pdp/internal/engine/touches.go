package engine

import (
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/evaluation"
	"policy-service/pdp/internal/bundle"
)

// touch says how a use of a policy depends on the value of a place.
type touch uint8

const (
	untouched touch = iota
	compares        // it compares the value, and asks nothing else of it
	opens           // nobody can know what it comes to
)

// touches says how a use depends on the value of a place.
func (h *hiding) touches(p *place, u use) touch {
	if p.unseen {
		return untouched
	}
	names, root := u.path.Names, u.path.Root
	if h.one && root == "resource" {
		root = "principal"
	}
	how := untouched
	if root == p.path.Root {
		how = h.touchesPath(p, u)
	}
	if how == untouched && p.path.Root != "context" && h.refers(p, root, names) {
		how = opens
	}
	if how == compares && p.hard {
		how = opens
	}
	return how
}

// refers reports whether a path may go to the place through a reference to its entity.
func (h *hiding) refers(p *place, root string, names []string) bool {
	switch {
	case root == "context" && h.in.Bundle.Schema == nil: // it holds no references
		return false
	case root != "":
		names = names[min(1, len(names)):]
	}
	return len(names) > 0 && (len(p.path.Names) == 0 || slices.Contains(names, p.path.Names[0]))
}

// touchesPath is for a path that begins where the place's path does.
func (h *hiding) touchesPath(p *place, u use) touch {
	at, to := p.path.Names, u.path.Names
	common := min(len(at), len(to))
	if !slices.Equal(at[:common], to[:common]) {
		return untouched
	}
	// What errs for every record and every set:
	errs := u.how == asTruth || u.how == ordered || u.how == alike || u.how == reckoned
	switch {
	case len(to) < len(at): // the value is somewhere in what is used
		switch {
		case errs || u.how == tested || u.how == contained || u.how == equals && plainValues(u.with):
			return untouched
		case u.how == equals && p.isSimple() && !p.element: // it is compared with what is at the same place there
			return h.compared(p, u)
		}
		return opens
	case len(to) > len(at): // something in the value is used
		return p.touchesInside(h, to[len(at)])
	case u.how == tested:
		return untouched
	case u.how == asValue && !(p.kind() == boolKind && !p.element):
		return opens
	case p.element:
		return h.touchesElement(p, u, errs)
	}
	switch p.kind() {
	case boolKind:
		return compares
	case textKind:
		if u.how == equals || u.how == alike {
			return h.compared(p, u)
		}
		return untouched
	case longKind:
		switch u.how {
		case equals, ordered:
			return h.compared(p, u)
		case reckoned:
			if _, ok := h.breaks(p, u.with[0]); !ok {
				return opens
			}
			return compares
		}
		return untouched
	case setKind:
		if u.how == contained || u.how == equals {
			if p.shape == nil && h.nests(u) {
				return opens
			}
			return h.compared(p, u)
		}
		return untouched
	case recordKind:
		if u.how == equals && !plainValues(u.with) {
			return opens
		}
		return untouched
	}
	if u.how == asTruth || u.how == reckoned {
		return untouched
	}
	return opens
}

// nests reports whether a set or a record may be sought in the value.
func (h *hiding) nests(u use) bool {
	builds := 0
	if u.how == contained {
		builds = 1 // contains is not told from containsAll
	}
	return slices.ContainsFunc(u.with, func(t *bundle.Term) bool {
		switch t.Op {
		case bundle.OpBuild:
			builds++
		case bundle.OpPath:
			v, _ := h.q.valueAt(t.Path)
			switch v := v.(type) {
			case types.Record:
				return true
			case types.Set:
				for e := range v.All() {
					switch e.(type) {
					case types.Set, types.Record:
						return true
					}
				}
				return u.how == contained // contains is not told from containsAll
			}
		}
		return builds > 1
	})
}

// touchesInside is for a path that goes on below the place, with this name.
func (p *place) touchesInside(h *hiding, name string) touch {
	switch {
	case p.element:
		return untouched // a set has no attributes
	case p.Part && p.Type == "object":
		if _, ok := p.shown.Object().Get(name); ok && !strings.Contains(name, evaluation.MaskPrefix) {
			return untouched
		}
		return opens
	case p.kind() == recordKind, p.kind() == otherKind:
		return opens
	}
	return untouched
}

// touchesElement is for a use of the array that the place is in.
func (h *hiding) touchesElement(p *place, u use, errs bool) touch {
	switch {
	case errs || u.how == contained && len(u.with) == 0:
		return untouched
	case p.reference:
		return opens
	case p.deep || p.kind() == recordKind || p.kind() == setKind:
		if u.how == contained && plainValues(u.with) {
			return untouched
		}
		return opens
	case p.kind() == otherKind:
		return opens
	}
	return h.compared(p, u)
}

// plainValues reports whether all operands are values that are neither records nor sets.
func plainValues(operands []*bundle.Term) bool {
	return !slices.ContainsFunc(operands, func(t *bundle.Term) bool {
		return t.Op == bundle.OpPath || t.Op == bundle.OpBuild
	})
}

// compared is for a use that compares the value. If it is compared with what is hidden itself,
// that must be a value of the same simple kind.
func (h *hiding) compared(p *place, u use) touch {
	for _, t := range u.with {
		if t.Op != bundle.OpPath {
			continue
		}
		for _, other := range h.places {
			if other != p && !other.unseen && h.reaches(other, t.Path) && !crosses(p, other, t.Path) {
				return opens
			}
		}
	}
	return compares
}

// reaches reports whether a path has to do with a place.
func (h *hiding) reaches(p *place, path bundle.AttributePath) bool {
	root := path.Root
	if h.one && root == "resource" {
		root = "principal"
	}
	n := min(len(path.Names), len(p.path.Names))
	return root == p.path.Root && slices.Equal(path.Names[:n], p.path.Names[:n]) ||
		p.path.Root != "context" && h.refers(p, root, path.Names)
}

// crosses reports whether the path is that of another place whose value can be compared.
func crosses(p, other *place, path bundle.AttributePath) bool {
	return slices.Equal(path.Names, other.path.Names) && p.isSimple() && other.isSimple() && other.parent == "" && p.parent == ""
}

// isSimple reports whether the value can be told from others by what it is compared with.
func (p *place) isSimple() bool {
	return !p.deep && (p.kind() == textKind || p.kind() == longKind || p.kind() == boolKind)
}

// collect takes in what a use compares the value with.
func (h *hiding) collect(p *place, u use) {
	p.compared = true
	if u.how == reckoned {
		longs, _ := h.breaks(p, u.with[0])
		p.longs = append(p.longs, longs...)
		return
	}
	for _, t := range u.with {
		switch t.Op {
		case bundle.OpLike:
			pattern, ok := patternOf(t.Pattern)
			p.patterns, p.hard = append(p.patterns, pattern), p.hard || !ok
		case bundle.OpValue:
			p.collectValue(t.Value)
		case bundle.OpTrue, bundle.OpFalse:
			p.collectValue(types.Boolean(t.Op == bundle.OpTrue))
		case bundle.OpPath:
			h.collectPath(p, t.Path)
		}
	}
	if p.element && u.how == equals { // it may be the same as another element
		h.collectPath(p, p.path)
	}
}

func (h *hiding) collectPath(p *place, path bundle.AttributePath) {
	for _, other := range h.places {
		if other != p && h.reaches(other, path) {
			h.cross(p, other)
		}
	}
	if path.Root == "context" && len(path.Names) > 0 && path.Names[0] == "pdp" { // approved differs between the two questions
		p.collectValue(types.True)
		p.collectValue(types.False)
	}
	if v, ok := h.q.valueAt(path); ok {
		p.collectValue(v)
	}
}

// cross has two places compared with each other.
func (h *hiding) cross(p, other *place) {
	p.compared, other.compared = true, true
	if slices.Contains(p.crossed, other) {
		return
	}
	if len(p.crossed) >= mostCrossed || len(other.crossed) >= mostCrossed {
		p.hard, other.hard = true, true
		return
	}
	p.crossed, other.crossed = append(p.crossed, other), append(other.crossed, p)
}

// group are the places that the place is compared with, directly or through others, and itself.
func (p *place) group() []*place {
	all := []*place{p}
	for n := 0; n < len(all); n++ {
		for _, other := range all[n].crossed {
			if !slices.Contains(all, other) {
				all = append(all, other)
			}
		}
	}
	return all
}

func (p *place) collectValue(v types.Value) {
	switch v := v.(type) {
	case types.String:
		p.patterns = append(p.patterns, literal(string(v)))
	case types.Long:
		p.longs = append(p.longs, v)
	case types.Set:
		for e := range v.All() {
			p.collectValue(e)
		}
		return
	case types.Record:
		for _, member := range v.All() {
			p.collectValue(member)
		}
		return
	case types.Boolean:
	default: // neither text nor number nor boolean is this
		return
	}
	if !slices.ContainsFunc(p.elements, v.Equal) {
		p.elements = append(p.elements, v)
	}
}

// valueAt returns the value at a path in the question.
func (q *Question) valueAt(path bundle.AttributePath) (types.Value, bool) {
	in, o := q.Context, q.Entities
	switch path.Root {
	case "principal":
		in = o.Principal.Attributes
	case "resource":
		in = o.Resource.Attributes
	case "action":
		action, _ := o.Get(q.Uids[bundle.ActionVar])
		in = action.Attributes
	}
	if len(path.Names) == 0 {
		return nil, false
	}
	return valueIn(path.Names, in, o)
}
