package engine

import (
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/evaluation"
	"policy-service/pdp/internal/bundle"
)

// The most that is tried at one place.
const (
	mostElements = 6 // that a set is asked for: all sets of them are tried
	mostTexts    = 64
	mostCrossed  = 8 // that one is compared with
)

// findValues finds the values that stand for all that the place can have had.
func (p *place) findValues(h *hiding) {
	if p.unseen || p.unknowable || p.hard {
		p.unknowable = p.unknowable || p.hard && (p.parent != "" || p.filled)
		return
	}
	if p.parent != "" {
		for _, id := range h.idsOf(p.parent) {
			p.collectValue(types.String(id))
		}
	}
	// Places that are compared with each other can have the same values, and as many as they are.
	var patterns []textPattern
	var longs []types.Long
	group := p.group()
	for _, other := range group {
		patterns, longs = append(patterns, other.patterns...), append(longs, other.longs...)
	}
	if len(group) > 1 {
		longs = append(longs, 0)
	}
	switch kind := p.kind(); {
	case kind == boolKind:
		p.values = []evaluation.Value{valueOf(true), valueOf(false)}
	case kind == textKind && (len(patterns) > 0 || len(group) > 1):
		texts, ok := textsFor(patterns, len(group))
		if p.hard = !ok || len(texts) > mostTexts; !p.hard {
			p.values = nil
			for _, text := range texts {
				p.values = append(p.values, valueOf(text))
			}
		}
	case kind == longKind && len(longs) > 0:
		p.values = valuesNear(longs, len(group))
	case kind == setKind && (p.compared || p.parent != ""):
		if p.hard = len(p.elements) > mostElements; !p.hard {
			p.values = p.sets()
		}
	}
	p.unknowable = p.hard && (p.parent != "" || p.filled) || p.parent != "" && p.kind() == otherKind
}

// idsOf are ids that stand for all others if an entity of a type is somebody's parent: one for each
// combination of entities that policies ask for, and that are then above.
func (h *hiding) idsOf(typ types.EntityType) (ids []string) {
	asked := map[types.EntityUID]bool{h.q.Uids[bundle.PrincipalVar]: true, h.q.Uids[bundle.ResourceVar]: true}
	var all []string
	for _, uid := range h.q.Uids {
		if uid.Type == typ {
			all = append(all, string(uid.ID))
		}
	}
	for s := h.v.Store; s != nil; s = s.Root {
		all = append(all, s.Ids[typ]...)
	}
	for _, p := range h.v.Policies {
		for _, uid := range p.Facts.Uids {
			if asked[uid] = true; uid.Type == typ {
				all = append(all, string(uid.ID))
			}
		}
	}
	slices.Sort(all)
	known := map[string]bool{"": true}
	for _, id := range slices.Compact(all) {
		l := bundle.LineageOf(types.EntityUID{Type: typ, ID: types.String(id)}, h.q.Entities)
		var above []string
		for _, uid := range append(slices.Clone(l.Up), l.Uid) {
			if asked[uid] {
				above = append(above, uid.String())
			}
		}
		slices.Sort(above)
		if k := strings.Join(above, " "); !known[k] {
			known[k] = true
			ids = append(ids, id)
		}
	}
	return ids
}

// valuesNear are numbers beside and between others: so many that as many hidden numbers can be
// smaller and greater than each other in every way.
func valuesNear(longs []types.Long, spread int) (values []evaluation.Value) {
	var near []int64
	for _, n := range longs {
		for d := -int64(spread); d <= int64(spread); d++ {
			if sum := int64(n) + d; (sum > int64(n)) == (d > 0) {
				near = append(near, sum)
			}
		}
	}
	slices.Sort(near)
	for _, n := range slices.Compact(near) {
		values = append(values, valueOf(n))
	}
	return values
}

// sets are all sets of the elements that the set is asked for, with and without one more.
func (p *place) sets() (values []evaluation.Value) {
	var elements []any
	for _, e := range p.elements {
		switch e := e.(type) {
		case types.String:
			elements = append(elements, string(e))
		case types.Long:
			elements = append(elements, int64(e))
		case types.Boolean:
			elements = append(elements, bool(e))
		}
	}
	if p.shape != nil {
		want := map[kind]string{textKind: "string", longKind: "number", boolKind: "bool"}[kindOf(p.shape.Element)]
		elements = slices.DeleteFunc(elements, func(e any) bool { return valueOf(e).Kind().TypeName() != want })
	}
	switch {
	case p.shape == nil || kindOf(p.shape.Element) == textKind:
		other := "x"
		for slices.Contains(elements, any(other)) {
			other += "x"
		}
		elements = append(elements, other)
	case kindOf(p.shape.Element) == longKind:
		other := int64(0)
		for slices.Contains(elements, any(other)) {
			other++
		}
		elements = append(elements, other)
	case kindOf(p.shape.Element) == boolKind:
		elements = []any{true, false}
	}
	for chosen := range 1 << len(elements) {
		some := []any{}
		for n, e := range elements {
			if chosen>>n&1 == 1 {
				some = append(some, e)
			}
		}
		values = append(values, valueOf(some))
	}
	return values
}

// complete adds what makes no difference to what the policies compare: values that they cannot be
// asked with, and obligations that the PEP may have declared.
func (p *place) complete(h *hiding) {
	if p.declares() {
		switch p.Type {
		case "string":
			for _, typ := range h.declarable(p) {
				p.values = append(p.values, valueOf(typ))
			}
		case "array":
			p.values = []evaluation.Value{valueOf([]any{}), valueOf(h.owed)}
		}
	}
	if p.path.Root == "context" && len(p.path.Names) == 0 && !p.Part { // it hides what the PEP declared, too
		with := p.values[0].Object().With("supported_obligations", valueOf(h.owed))
		p.values = append(p.values, with.Value())
	}
	if p.Fit != evaluation.FitUnknown || p.unseen || p.shape == nil && !p.filled && !h.named(p) {
		return
	}
	// What does not fit makes the same difference wherever it stands: without a schema in one member,
	// and with a schema in the request. So it is tried in one place alone.
	member := ""
	if p.shape == nil {
		member = bundle.AttributePath{Root: p.path.Root, Names: p.path.Names[:min(1, len(p.path.Names))]}.String()
	}
	if misfit, ok := h.misfit(p); ok && !slices.Contains(h.misfits, member) {
		p.values, h.misfits = append(p.values, misfit), append(h.misfits, member)
	}
}

// named reports whether a policy names the member in which the place is. Without a schema, a value that
// the policies cannot be asked with makes a difference to no other policy.
func (h *hiding) named(p *place) bool {
	if len(p.path.Names) == 0 {
		return true
	}
	name := p.path.Names[0]
	return slices.ContainsFunc(h.candidates(), func(policy *bundle.Policy) bool {
		_, read := policy.Facts.ReadNames[name]
		_, tested := policy.Facts.HasNames[name]
		return read || tested || policy.Facts.Whole
	})
}

// declares reports whether the place is where the PEP declares types of obligations.
func (p *place) declares() bool {
	tokens := evaluation.Tokens(p.At)
	return len(tokens) > 1 && tokens[0] == "context" && tokens[1] == "supported_obligations"
}

// declarable are the types that the PEP may have declared at the place. It makes no difference where
// it declares a type. So if there are as many places as types, each has a type of its own to try.
func (h *hiding) declarable(p *place) []string {
	var all []*place
	for _, other := range h.places {
		if other.declares() && other.Type == "string" {
			all = append(all, other)
		}
	}
	n := slices.Index(all, p)
	switch {
	case len(all) < len(h.owed):
		return h.owed
	case n < len(h.owed):
		return h.owed[n : n+1]
	}
	return nil
}

// misfit finds a value of the place's type that the policies cannot be asked with.
func (h *hiding) misfit(p *place) (evaluation.Value, bool) {
	null := []any{nil}
	tries := map[string][]any{
		"string": {"", "x"},
		"number": {0.5, 1e300, 0},
		"bool":   {true},
		"array":  {null, []any{"x"}, []any{0}, []any{}},
		"object": {map[string]any{"x": null}, map[string]any{}, map[string]any{"x": 0.5}},
	}
	values := []evaluation.Value{}
	for _, try := range tries[p.Type] {
		values = append(values, valueOf(try))
	}
	if p.Type == "object" {
		var all evaluation.Object
		if p.Part { // what is known stays
			all = p.shown.Object().Without(func(name string) bool { return strings.Contains(name, evaluation.MaskPrefix) })
			values = []evaluation.Value{all.With("x", valueOf(null)).Value()}
		}
		if p.shape != nil && p.shape.Form == bundle.ShapeRecord {
			for name := range p.shape.Members {
				if _, known := all.Get(name); !known {
					all = all.With(name, valueOf(null))
				}
			}
			values = []evaluation.Value{all.Value()}
		}
	}
	for _, v := range values {
		fits := false
		if p.shape != nil {
			_, fits = (&Converter{Config: &h.in.Bundle.Config}).Convert(v, p.shape)
		} else {
			_, fits = Untyped(v)
		}
		if !fits {
			return v, true
		}
	}
	return evaluation.Value{}, false
}
