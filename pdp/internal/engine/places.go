package engine

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/evaluation"
	"policy-service/obligations"
	"policy-service/pdp/internal/bundle"
)

// place is a hidden place as the policies see it.
type place struct {
	evaluation.Hidden
	path      bundle.AttributePath // where policies read the value, or the array that it is an element of
	element   bool                 // it is an element of the array at path
	deep      bool                 // it lies deeper in that element
	reference bool                 // it is a part of a reference to an entity, which is at path
	shape     *bundle.Shape        // what the schema declares; nil without a schema
	unseen    bool                 // no policy sees the value
	parent    types.EntityType     // the value gives parents of this type

	filled   bool             // an obligation may say it
	shown    evaluation.Value // what the record has there
	compared bool             // the value is compared with these, by kinds
	patterns []textPattern
	longs    []types.Long
	elements []types.Value
	crossed  []*place // those that it is compared with
	hard     bool     // values for it would take too long to find

	values     []evaluation.Value // those that stand for all others
	readers    map[string]bool    // the policies that use it
	openIn     map[string]bool    // the policies whose verdict it leaves open
	unknowable bool
}

// kind says what values can be in a place, as the policies see them.
type kind uint8

const (
	otherKind kind = iota // an entity, or a value of an extension type
	textKind
	longKind
	boolKind
	setKind
	recordKind
)

var kindsOfTypes = map[string]kind{
	"string": textKind, "number": longKind, "bool": boolKind, "array": setKind, "object": recordKind,
}

func (p *place) kind() kind {
	if p.shape == nil {
		return kindsOfTypes[p.Type]
	}
	return kindOf(p.shape)
}

func kindOf(s *bundle.Shape) kind {
	switch {
	case s.Form == bundle.ShapeBool:
		return boolKind
	case s.Form == bundle.ShapeLong:
		return longKind
	case s.Form == bundle.ShapeString:
		return textKind
	case s.Form == bundle.ShapeRecord:
		return recordKind
	case s.Form == bundle.ShapeSet && kindOf(s.Element) != otherKind && kindOf(s.Element) != setKind && kindOf(s.Element) != recordKind:
		return setKind
	}
	return otherKind
}

// findPlaces makes the places, and puts some value that fits at each.
func (h *hiding) findPlaces(hidden []evaluation.Hidden) {
	uids, _ := h.in.uids()
	if h.one = uids[bundle.PrincipalVar] == uids[bundle.ResourceVar]; h.one {
		hidden = h.sendOnce(hidden)
	}
	for _, one := range hidden {
		p := &place{Hidden: one, readers: map[string]bool{}, openIn: map[string]bool{}}
		tokens := evaluation.Tokens(one.At)
		var names []string
		switch {
		case len(tokens) >= 2 && tokens[0] == "subject":
			p.path.Root, names = "principal", tokens[2:]
		case len(tokens) >= 2 && tokens[0] == "resource":
			p.path.Root, names = "resource", tokens[2:]
		case len(tokens) >= 2 && tokens[0] == "action":
			p.path.Root, names = "context", append([]string{"action"}, tokens[2:]...)
		case len(tokens) >= 1 && tokens[0] == "context":
			p.path.Root, names = "context", tokens[1:]
		default: // nobody knows what it hides
			p.unknowable = true
			h.places = append(h.places, p)
			continue
		}
		p.shown, _ = h.in.Request.At(p.At)
		h.locate(p, names, uids)
		h.settle(p)
		h.places = append(h.places, p)
	}
}

// sendOnce is for one entity that is both subject and resource. What both send is the same value,
// or the request was malformed. So it is sent with the subject alone, and is hidden only if
// it is in both.
func (h *hiding) sendOnce(hidden []evaluation.Hidden) []evaluation.Hidden {
	subject, resource := &h.in.Request.Subject.Properties, &h.in.Request.Resource.Properties
	topOf := func(one evaluation.Hidden, of string) string {
		if t := evaluation.Tokens(one.At); len(t) > 2 && t[0] == of {
			return t[2]
		}
		return ""
	}
	isHidden := func(name, of string) bool {
		return slices.ContainsFunc(hidden, func(one evaluation.Hidden) bool { return topOf(one, of) == name })
	}
	var known, sent []string
	for name, value := range resource.Members {
		if _, both := subject.Get(name); !both {
			continue
		}
		sent = append(sent, name)
		if !isHidden(name, "resource") {
			known, *subject = append(known, name), subject.With(name, value)
		}
	}
	*resource = resource.Without(func(name string) bool { return slices.Contains(sent, name) })
	return slices.DeleteFunc(slices.Clone(hidden), func(one evaluation.Hidden) bool {
		return slices.Contains(sent, topOf(one, "resource")) || slices.Contains(known, topOf(one, "subject"))
	})
}

// locate finds where policies see the value.
func (h *hiding) locate(p *place, names []string, uids [bundle.Variables]types.EntityUID) {
	b := h.in.Bundle
	var declared map[string]bundle.AttributeShape
	var all evaluation.Value
	switch p.path.Root {
	case "principal", "resource":
		of, sent := bundle.PrincipalVar, h.in.Request.Subject.Properties
		if p.path.Root == "resource" {
			of, sent = bundle.ResourceVar, h.in.Request.Resource.Properties
		}
		declared, all = b.AttributesOf(uids[of].Type), sent.Value()
		if len(names) > 0 {
			o := originOf(b, h.v, uids[of], sent)
			p.unseen = o.passesOver(names[0])
			p.unseen = p.unseen || h.one && of == bundle.ResourceVar // sent with the resource alone, it does not count
			for _, rule := range b.Config.Parents[uids[of].Type] {
				if rule.Attribute == names[0] && !p.unseen {
					p.parent = rule.Parent
					p.unknowable = len(names) > 2 || len(names) == 2 && p.Type != "string" || !h.in.Bundle.Schema.AllowsAny(rule.Parent)
				}
			}
		} else if len(b.Config.Parents[uids[of].Type]) > 0 {
			p.unknowable = true // what gives parents is hidden, too
		} else if h.one {
			p.unknowable = true // and whether both send a member
		}
	case "context":
		declared, all = b.Schema.ContextOf(uids[bundle.ActionVar]), h.in.Request.Context.Value()
		if len(names) > 0 {
			p.unseen = evaluation.Protocol(names[0])
			if names[0] == "action" {
				all = evaluation.Object{}.With("action", h.in.Request.Action.Properties.Value()).Value()
			}
		}
	}
	if b.Schema != nil {
		if p.path.Root == "context" && len(names) == 0 { // the PDP sets these
			declared = maps.Clone(declared)
			delete(declared, "pdp")
			delete(declared, "action")
		}
		p.shape = &bundle.Shape{Form: bundle.ShapeRecord, Members: declared}
	} else if len(names) == 0 && p.Fit != evaluation.Fits {
		p.unknowable = true // each member that misfits is one whose name counts
	}
	for n, name := range names {
		if all.Kind() == evaluation.Array {
			p.element, p.deep = true, n < len(names)-1
			h.descend(p, names[n:])
			break
		}
		if p.shape != nil && p.shape.Form == bundle.ShapeEntity { // it is a part of a reference
			p.reference = true
			p.unknowable = name != "id" || p.Type != "string" || p.shape.Enum != nil || p.Fit != evaluation.Fits
			break
		}
		p.path.Names = append(p.path.Names, name)
		all, _ = all.Object().Get(name)
		if p.shape == nil {
			continue
		}
		a, ok := p.shape.Members[name]
		p.unseen = p.unseen || !ok // the schema drops it, or the value around it does not fit
		p.shape = a.Shape
		if !ok {
			break
		}
	}
}

// descend finds the shape of what lies in an element.
func (h *hiding) descend(p *place, names []string) {
	for _, name := range names {
		switch {
		case p.shape == nil:
			return
		case p.shape.Form == bundle.ShapeSet:
			p.shape = p.shape.Element
		case p.shape.Form == bundle.ShapeEntity:
			p.reference = true
			p.unknowable = p.unknowable || name != "id" || p.Type != "string" || p.shape.Enum != nil || p.Fit != evaluation.Fits
			return
		default:
			a, ok := p.shape.Members[name]
			p.unseen = p.unseen || !ok
			if p.shape = a.Shape; !ok {
				return
			}
		}
	}
}

// settle puts a value at the place that the schema takes, unless the one there already does.
func (h *hiding) settle(p *place) {
	now, has := h.in.Request.At(p.At)
	if !has || !p.Part && p.Type != typeNames[now.Kind()] {
		now = someOf[p.Type]
	}
	if p.shape != nil && !p.unseen && !p.reference {
		if _, fits := (&Converter{Config: &h.in.Bundle.Config}).Convert(now, p.shape); !fits {
			if fitting, ok := h.sampleOf(p, now); ok {
				now = fitting
			} else if p.Fit == evaluation.Fits {
				p.unknowable = true
			}
		}
	}
	if p.Fit == evaluation.Misfits && !p.unseen {
		if misfit, ok := h.misfit(p); ok {
			now, p.unseen = misfit, true // the policies see that there is something, whatever it is
		} else {
			p.unknowable = true
		}
	}
	h.in.Request = h.in.Request.Put(p.At, now)
	p.values = []evaluation.Value{now}
}

var typeNames = map[evaluation.Kind]string{
	evaluation.String: "string", evaluation.Number: "number", evaluation.Bool: "bool",
	evaluation.Array: "array", evaluation.Map: "object",
}

var someOf = map[string]evaluation.Value{
	"string": valueOf(""), "number": valueOf(0), "bool": valueOf(true), "array": valueOf([]any{}), "object": valueOf(map[string]any{}),
}

// valueOf makes a value that is known to be one.
func valueOf(v any) evaluation.Value {
	o, err := evaluation.NewObject(map[string]any{"v": v})
	if err != nil {
		return evaluation.Value{}
	}
	made, _ := o.Get("v")
	return made
}

// sampleOf makes a value of the declared type that can have stood in the place.
func (h *hiding) sampleOf(p *place, now evaluation.Value) (evaluation.Value, bool) {
	c := Converter{Config: &h.in.Bundle.Config}
	tries := []evaluation.Value{}
	if s := p.shape; s.Form == bundle.ShapeEntity && p.Type == "object" {
		if wire, ok := c.Config.WireType(s.Entity); ok {
			ids := []string{"x"}
			for uid := range s.Enum {
				ids = append(ids, string(uid.ID))
			}
			slices.Sort(ids)
			for _, id := range ids {
				tries = append(tries, valueOf(map[string]any{"type": wire, "id": id}))
			}
		}
	}
	if p.Type == "string" {
		for _, v := range []any{"x", "0", "0s", "0.0", "127.0.0.1", "2024-01-01"} {
			tries = append(tries, valueOf(v))
		}
	}
	if fitting, ok := h.sample(p.shape, 0); ok && typeNames[fitting.Kind()] == p.Type {
		if p.Part && p.Type == "object" { // what is known stays
			for name, v := range p.shown.Object().Members {
				fitting = fitting.Object().With(name, v).Value()
			}
		}
		tries = append(tries, fitting)
	}
	for _, v := range tries {
		if _, fits := c.Convert(v, p.shape); fits {
			return v, true
		}
	}
	return now, false
}

// sample makes a value of a declared type. Types can contain themselves only through entities.
func (h *hiding) sample(s *bundle.Shape, depth int) (evaluation.Value, bool) {
	if depth > 32 {
		return evaluation.Value{}, false
	}
	c := Converter{Config: &h.in.Bundle.Config}
	for _, v := range []any{
		true, 0, "x", "0", "0s", "0.0", "127.0.0.1", "2024-01-01", []any{},
		map[string]any{"type": h.in.Request.Subject.Type, "id": "x"}, map[string]any{"type": h.in.Request.Resource.Type, "id": "x"},
	} {
		if _, fits := c.Convert(valueOf(v), s); fits {
			return valueOf(v), true
		}
	}
	if len(s.Enum) > 0 {
		var ids []string
		for uid := range s.Enum {
			ids = append(ids, string(uid.ID))
		}
		return valueOf(slices.Min(ids)), true
	}
	if s.Form != bundle.ShapeRecord {
		return evaluation.Value{}, false
	}
	var o evaluation.Object
	for name, a := range bundle.ByName(s.Members) {
		if a.Optional || depth == 0 && (name == "pdp" || name == "action") {
			continue
		}
		member, ok := h.sample(a.Shape, depth+1)
		if !ok {
			return evaluation.Value{}, false
		}
		o = o.With(name, member)
	}
	return o.Value(), true
}

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
		if _, ok := p.shown.Object().Get(name); ok && !strings.Contains(name, maskedName) {
			return untouched
		}
		return opens
	case p.kind() == recordKind, p.kind() == otherKind:
		return opens
	}
	return untouched
}

// maskedName is what a name holds that was masked.
const maskedName = "masked:"

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
		elements = slices.DeleteFunc(elements, func(e any) bool { return typeNames[valueOf(e).Kind()] != want })
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
			all = p.shown.Object().Without(func(name string) bool { return strings.Contains(name, maskedName) })
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

// readTemplates finds the obligations into which hidden values are filled.
func (h *hiding) readTemplates(policies bundle.PolicyList, w *Worlds) {
	var all []*obligations.Definition
	of := map[*obligations.Definition][]string{}
	for _, p := range policies {
		for _, d := range p.Obliges {
			if of[d] = append(of[d], p.Id); !slices.Contains(all, d) {
				all = append(all, d)
			}
		}
	}
	for _, d := range all {
		if !slices.Contains(h.owed, d.Type.Name) && h.undeclared(d.Type.Name) {
			h.owed = append(h.owed, d.Type.Name)
		}
		for _, text := range textsIn(d.Properties) {
			names, _ := obligations.Variables(text)
			for _, name := range names {
				for _, p := range h.filledFrom(name) {
					w.Filled[d.Name] = d.Properties
					for _, id := range of[d] {
						p.readers[id] = true
					}
					h.fill(w, p, text, d, all)
				}
			}
		}
	}
}

// undeclared reports whether the PEP declares a type only if it does so in a hidden place.
func (h *hiding) undeclared(typ string) bool {
	registered := !h.in.Asker.Registered || slices.Contains(h.in.Asker.Obligations, typ)
	return registered && !h.in.declared()(typ) && !h.in.Bundle.Config.AllowUndeclared
}

// textsIn are all strings in an object.
func textsIn(o evaluation.Object) (all []string) {
	_, _ = o.MapStrings(func(text string) (string, bool) {
		all = append(all, text)
		return text, true
	})
	return all
}

// filledFrom are the places whose value a variable of a template may have.
func (h *hiding) filledFrom(variable string) (all []*place) {
	name, ok := strings.CutPrefix(variable, "context.")
	if !ok {
		return nil
	}
	for _, p := range h.places {
		if p.path.Root != "context" || p.unseen || p.element || len(p.path.Names) == 1 && !p.isSimple() {
			continue // nothing is filled in, whatever the value
		}
		switch {
		case len(p.path.Names) == 1 && p.path.Names[0] == name:
			all = append(all, p)
		case len(p.path.Names) == 0 && (!p.Part || p.touchesInside(h, name) == opens):
			all = append(all, p)
		}
	}
	return all
}

// fill takes in what a template can make of the value at a place. What the obligation says then is
// not compared. But an obligation that needs a value cannot be filled with none, and one that
// says the same as another is owed once.
func (h *hiding) fill(w *Worlds, p *place, text string, d *obligations.Definition, all []*obligations.Definition) {
	if len(p.path.Names) == 0 {
		p.unknowable = true
		return
	}
	p.collectValue(types.String(""))
	p.filled = true
	for _, other := range all {
		if other == d || other.Type.Name != d.Type.Name {
			continue
		}
		for _, against := range textsIn(other.Properties) {
			if against != text && !h.equate(p, against) {
				w.alike = append(w.alike, alikeObligations{p, d.Name, other.Name})
			}
		}
	}
}

// mostEquated is the length of a text in which every part is tried.
const mostEquated = 16

// equate takes in what makes a template the same as another text: a value in a template can only
// become a part of it. It reports false if there is too much that could.
func (h *hiding) equate(p *place, against string) bool {
	names, _ := obligations.Variables(against)
	hidden := slices.ContainsFunc(names, func(name string) bool { return len(h.filledFrom(name)) > 0 })
	filled, ok := obligations.Fill(evaluation.Object{}.With("v", valueOf(against)), h.q.variable)
	made, _ := filled.Get("v")
	text := made.Text()
	if hidden || ok && len(text) > mostEquated {
		return false
	}
	for from := range text {
		for to := from + 1; to <= len(text); to++ {
			if part := text[from:to]; utf8.ValidString(part) {
				p.patterns = append(p.patterns, literal(part))
				if n, err := strconv.ParseInt(part, 10, 64); err == nil {
					p.longs = append(p.longs, types.Long(n))
				}
			}
		}
	}
	return true
}
