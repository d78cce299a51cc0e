package filter

import (
	"maps"
	"slices"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/pdp/internal/bundle"
)

// operand is what an expression comes to that is no truth value.
type operand struct {
	kind     operandKind
	known    types.Value // of value
	column   column      // of ofColumn
	shape    *bundle.Shape
	set      *set           // of ofSet
	record   *bundle.Mapped // of ofRecord
	elements []operand      // of list
}

type operandKind uint8

const (
	value    operandKind = iota
	itself               // the resource
	ofColumn             // the value of a column
	ofSet
	ofRecord
	list    // a set that a policy writes out, with something of the resource in it
	unasked // anything: see [translator.unasked]
)

// alternative is an operand that an expression comes to where a condition holds. The conditions of an expression's alternatives
// exclude each other, and where none holds the expression errs.
type alternative struct {
	when *condition
	operand
	sure bool // there is an alternative for each row that fits
}

func only(o operand) []alternative { return []alternative{{when: yes, operand: o}} }

func refusal(c *condition) []alternative { return []alternative{{when: c}} }

// operands translates an expression.
func (t *translator) operands(of *bundle.Term) []alternative {
	if !of.OfResource {
		return t.evaluate(of)
	}
	switch of.Op {
	case bundle.OpPath:
		return t.path(of, of.Path.Names)
	case bundle.OpRead:
		if !of.Path.Has {
			return t.access(of, t.operands(of.Args[0]), of.Path.Names[0])
		}
	case bundle.OpIf:
		return t.branches(of)
	case bundle.OpBuild:
		if of.Keys == nil {
			return t.elements(of)
		}
		return refusal(t.refuse(of, "a record is made of what only the row has", "compare its members by themselves"))
	case bundle.OpAdd, bundle.OpSubtract, bundle.OpMultiply, bundle.OpNegate:
		return refusal(t.refuse(of, "it calculates with what only the row has", "compare the attribute by itself, and calculate with what the request has"))
	case bundle.OpCall:
		return refusal(t.refuse(of, "it calls "+of.Name+" with what only the row has", "compare the attribute by itself, and call "+of.Name+" with what the request has"))
	case bundle.OpNot, bundle.OpAnd, bundle.OpOr, bundle.OpTest, bundle.OpHas, bundle.OpEqual, bundle.OpOrder, bundle.OpIn, bundle.OpIs,
		bundle.OpContains, bundle.OpIsEmpty, bundle.OpLike:
	default:
		return refusal(t.refuse(of, "filters have no such operator", "write the condition without it"))
	}
	return t.booleans(of)
}

// booleans translates a truth value as an operand.
func (t *translator) booleans(of *bundle.Term) []alternative {
	is := t.truth(of)
	return []alternative{
		{is.is, operand{known: types.True}, is.total},
		{is.not, operand{known: types.False}, is.total},
	}
}

var principal = bundle.VariableNames[bundle.PrincipalVar]

// evaluate evaluates a known expression, as a decision does.
func (t *translator) evaluate(of *bundle.Term) []alternative {
	switch {
	case t.unasked:
		return only(operand{kind: unasked})
	case of.Op == bundle.OpTest, of.Op == bundle.OpNot: // no policy need have written them out
		return t.booleans(of)
	case of.Op == bundle.OpValue:
		return only(operand{known: of.Value})
	case of.Op == bundle.OpPath && of.Path.Root == principal && len(of.Path.Names) == 0:
		return only(operand{known: t.open.Request.Principal})
	}
	t.known.met = false
	v, err := of.Eval(t.open.Request, &t.known)
	switch {
	case t.known.met:
		return refusal(t.readsRow(of))
	case err != nil:
		return nil
	}
	return only(operand{known: v})
}

// readsRow refuses a term that looks into another row.
func (t *translator) readsRow(of *bundle.Term) *condition {
	return t.refuse(of, "it reads an entity of type "+t.mapping.Wire+" that is not the resource, and nothing but the application's table has it",
		"read attributes of the resource, the principal or stored entities")
}

// path translates attributes that are read from the resource, one from the other. Of the context, only the id of the resource differs
// among rows.
func (t *translator) path(of *bundle.Term, names []string) []alternative {
	if of.Path.Root == "context" {
		if len(of.Path.Names) < 3 {
			return refusal(t.refuse(of, "it uses the id of the resource as a part of the context", "use context.pdp.resource.id, or the other members, by themselves"))
		}
		return only(operand{kind: ofColumn, column: t.id, shape: &bundle.Shape{Form: bundle.ShapeString}})
	}
	made := only(operand{kind: itself})
	for _, name := range names {
		made = t.access(of, made, name)
	}
	return made
}

// access reads an attribute of what an expression comes to.
func (t *translator) access(of *bundle.Term, from []alternative, name string) (read []alternative) {
	sure := total(from)
	for _, a := range from {
		switch {
		case a.when.kind == refused, a.kind == unasked:
			read = append(read, a)
			continue
		case a.kind == itself, a.kind == ofRecord:
			if m, required := t.member(a.operand, name); m != nil {
				present := t.present(m, required)
				read = append(read, alternative{when: all(a.when, present.is), operand: t.operandOf(m)})
				if present.is.kind == always {
					continue
				}
			}
		case a.kind == ofColumn && a.shape.Form == bundle.ShapeEntity:
			found, cannot := t.attributes(of, a, name)
			if cannot != nil {
				return refusal(cannot)
			}
			read = append(read, found...)
		case a.kind == value:
			v, cannot := t.attributeOf(of, a.known, name)
			if cannot != nil {
				return refusal(cannot)
			}
			if v != nil {
				read = append(read, alternative{when: a.when, operand: operand{known: v}})
				continue
			}
		}
		sure = false // there may be no such attribute, which errs
	}
	for n := range read {
		read[n].sure = sure
	}
	return read
}

// member returns what is mapped of an attribute of the resource or of a record, or nil, and whether it is there in each row that fits.
func (t *translator) member(of operand, name string) (m *bundle.Mapped, required bool) {
	if of.kind == ofRecord {
		m = of.record.Members[name]
		return m, m != nil && !m.Optional
	}
	m = t.mapping.Attributes[name]
	return m, m != nil && t.requires(name, m)
}

func (t *translator) operandOf(m *bundle.Mapped) operand {
	switch {
	case m.Members != nil:
		return operand{kind: ofRecord, record: m}
	case m.Shape.Form == bundle.ShapeSet:
		return operand{kind: ofSet, set: t.setOf(m), shape: m.Shape}
	}
	return operand{kind: ofColumn, column: t.column(m.Column), shape: m.Shape}
}

// attributeOf reads an attribute of a known value. It returns nil if that errs.
func (t *translator) attributeOf(of *bundle.Term, v types.Value, name string) (types.Value, *condition) {
	var in types.Record
	switch v := v.(type) {
	case types.Record:
		in = v
	case types.EntityUID:
		if t.known.met = false; v.Type == t.mapping.Type {
			return nil, t.readsRow(of)
		}
		e, _ := t.known.entities.Get(v)
		in = e.Attributes
	}
	read, _ := in.Get(types.String(name))
	return read, nil
}

// mostStored bounds the stored entities that a condition may list.
const mostStored = 10_000

// attributes reads an attribute of the stored entity that a column names: from the store of the bundle alone, as a decision does.
func (t *translator) attributes(of *bundle.Term, a alternative, name string) (read []alternative, cannot *condition) {
	values, cannot := t.valuesOf(of, a.shape.Entity, name)
	if cannot != nil || values == nil {
		return []alternative{{when: a.when, operand: operand{kind: unasked}}}, cannot
	}
	for _, v := range values {
		read = append(read, alternative{when: all(a.when, a.column.isAmong(v.ids)), operand: operand{known: v.value}})
	}
	return read, nil
}

// storedValue is a value of an attribute, with the ids of the entities that have it.
type storedValue struct {
	value types.Value
	ids   []string
}

// valuesOf returns the values that an attribute has among the stored entities of a type, with the principal. It returns nil if there
// is no question.
func (t *translator) valuesOf(of *bundle.Term, typ types.EntityType, name string) (values []storedValue, cannot *condition) {
	key := types.NewEntityUID(typ, types.String(name))
	if values, known := t.values[key]; known {
		return values, nil
	}
	entities, cannot := t.named(of, typ)
	if cannot != nil || entities == nil {
		return nil, cannot
	}
	by := map[string]storedValue{}
	for _, uid := range entities {
		e, _ := t.known.entities.Get(uid)
		if v, ok := e.Attributes.Get(types.String(name)); ok {
			text := string(v.MarshalCedar())
			by[text] = storedValue{v, append(by[text].ids, string(uid.ID))}
		}
	}
	values = []storedValue{}
	for _, text := range slices.Sorted(maps.Keys(by)) {
		values = append(values, by[text])
	}
	t.values[key] = values
	return values, nil
}

// named returns the stored entities of a type, with the principal. It returns nil if there is no question.
func (t *translator) named(of *bundle.Term, typ types.EntityType) ([]types.EntityUID, *condition) {
	switch {
	case typ == t.mapping.Type:
		return nil, t.readsRow(of)
	case t.unasked:
		return nil, nil
	}
	uids := []types.EntityUID{}
	if principal := t.open.Request.Principal; principal.Type == typ {
		uids = append(uids, principal)
	}
	for s := t.open.View.Store; s != nil; s = s.Root {
		for _, id := range s.Ids[typ] {
			if uid := types.NewEntityUID(typ, types.String(id)); uid != t.open.Request.Principal {
				uids = append(uids, uid)
			}
		}
	}
	if len(uids) > mostStored {
		return nil, t.tooManyStored(of, typ)
	}
	if t.terms += len(uids); t.terms > maxTerms {
		return nil, tooManyTerms
	}
	return uids, nil
}

func (t *translator) tooManyStored(of *bundle.Term, typ types.EntityType) *condition {
	c := t.refuse(of, "the condition would list more than 10,000 stored entities of type "+string(typ), "have the application's table say it, in a column")
	c.refused.Reason = TooLarge
	return c
}

// has translates the test whether an attribute is there.
func (t *translator) has(of *bundle.Term, from []alternative, name string) truth {
	return t.each(of, from, func(o operand) truth {
		switch {
		case o.kind == itself, o.kind == ofRecord:
			m, required := t.member(o, name)
			if m == nil {
				return constant(false)
			}
			return t.present(m, required)
		case o.kind == ofColumn && o.shape.Form == bundle.ShapeEntity:
			values, cannot := t.valuesOf(of, o.shape.Entity, name)
			switch {
			case cannot != nil:
				return refusing(cannot)
			case values == nil:
				return doubtful
			}
			var ids []string
			for _, v := range values {
				ids = append(ids, v.ids...)
			}
			return o.column.among(ids).sure()
		case o.kind != value:
			return ifUnasked(o, erring)
		}
		switch o.known.(type) {
		case types.Record, types.EntityUID:
			v, cannot := t.attributeOf(of, o.known, name)
			if cannot != nil {
				return refusing(cannot)
			}
			return constant(v != nil)
		}
		return erring
	})
}

// branches translates an if by what its branches come to.
func (t *translator) branches(of *bundle.Term) (made []alternative) {
	test := t.truth(of.Args[0])
	sure := test.total
	for n, taken := range []*condition{test.is, test.not} {
		if taken.kind == never {
			continue
		}
		branch := t.operands(of.Args[n+1])
		sure = sure && total(branch)
		for _, a := range branch {
			made = append(made, alternative{when: all(taken, a.when), operand: a.operand})
		}
	}
	for n := range made {
		made[n].sure = sure
	}
	return made
}

// elements translates a set that a policy writes out.
func (t *translator) elements(of *bundle.Term) []alternative {
	made := []alternative{{when: yes, operand: operand{kind: list}, sure: true}}
	for _, arg := range of.Args {
		element := t.operands(arg)
		sure := total(element)
		var next []alternative
		if len(made)*len(element) > maxNodes {
			return refusal(tooManyNodes)
		}
		for _, before := range made {
			for _, a := range element {
				next = append(next, alternative{
					all(before.when, a.when),
					operand{kind: list, elements: append(slices.Clone(before.elements), a.operand)},
					before.sure && sure,
				})
			}
		}
		made = next
	}
	return made
}
