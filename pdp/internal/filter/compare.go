package filter

import (
	"fmt"
	"slices"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/pdp/internal/bundle"
)

// equal translates the equality of two operands that are there. Values of different types are different.
func (t *translator) equal(of *bundle.Term, left, right operand) truth {
	if right.kind < left.kind && right.kind != unasked {
		left, right = right, left
	}
	switch {
	case left.kind == unasked || right.kind == unasked:
		return doubtful
	case left.kind == value && right.kind == value:
		return constant(left.known.Equal(right.known))
	case left.kind == value && right.kind == itself:
		return t.isKnown(t.itself(), left.known)
	case left.kind == value && right.kind == ofColumn:
		return t.isKnown(right, left.known)
	case left.kind == value && right.kind == ofSet:
		known, isSet := left.known.(types.Set)
		if !isSet {
			return constant(false)
		}
		texts, all := right.set.texts(known)
		if !all {
			return constant(false)
		}
		return right.set.hasAll(texts).and(right.set.isWithin(texts)).sure()
	case left.kind == itself && right.kind == itself:
		return constant(true)
	case left.kind == itself && right.kind == ofColumn:
		return t.sameColumn(of, t.itself(), right)
	case left.kind == ofColumn && right.kind == ofColumn:
		return t.sameColumn(of, left, right)
	}
	if left.compound() && right.compound() {
		return refusing(t.refuse(of, "it compares whole sets or records, of which one is the row's", "compare their members by themselves"))
	}
	return constant(false)
}

// compound reports whether the operand is a set or a record.
func (o operand) compound() bool {
	_, isSet := o.known.(types.Set)
	_, isRecord := o.known.(types.Record)
	return isSet || isRecord || o.kind >= ofSet
}

// itself returns the resource as the value of its id's column.
func (t *translator) itself() operand {
	return operand{kind: ofColumn, column: t.id, shape: &bundle.Shape{Form: bundle.ShapeEntity, Entity: t.mapping.Type}}
}

// isKnown translates that a column has a known value.
func (t *translator) isKnown(o operand, v types.Value) truth {
	switch v := v.(type) {
	case types.Boolean:
		if o.shape.Form != bundle.ShapeBool {
			return constant(false)
		}
		if v {
			return o.column.isTrue().sure()
		}
		return o.column.isTrue().opposite().sure()
	case types.Datetime:
		if !o.isTime() {
			return constant(false)
		}
		return o.column.isTime(v.Milliseconds()).sure()
	}
	text, ok := text(v, o.shape)
	if !ok {
		return constant(false)
	}
	return o.column.is(text).sure()
}

// sameColumn translates that two columns have the same value.
func (t *translator) sameColumn(of *bundle.Term, left, right operand) truth {
	switch cannot := t.differ(of, left, right); {
	case left.shape.Form != right.shape.Form || left.shape.Entity != right.shape.Entity:
		return constant(false)
	case cannot != nil:
		return refusing(cannot)
	}
	return left.column.equals(right.column).sure()
}

// differ refuses two columns that keep datetimes in different ways. It returns nil of any others.
func (t *translator) differ(of *bundle.Term, left, right operand) *condition {
	if !left.isTime() || !right.isTime() || left.column.typ == right.column.typ {
		return nil
	}
	return t.refuse(of, "its columns have datetimes of different types", "map both as timestamptz, or both as millis")
}

func (o operand) isTime() bool { return o.shape.Form == bundle.ShapeDatetime }

// number returns a known number, or the milliseconds of a datetime or duration, with its type.
func number(v types.Value) (n int64, typ string) {
	switch v := v.(type) {
	case types.Long:
		n = int64(v)
	case types.Datetime:
		n = v.Milliseconds()
	case types.Duration:
		n = v.ToMilliseconds()
	default:
		return 0, ""
	}
	return n, bundle.TypeOf(v)
}

var mirrored = map[string]string{"<": ">", "<=": ">=", ">": "<", ">=": "<="}

// order translates a comparison by a sign.
func (t *translator) order(of *bundle.Term, left, right operand) truth {
	sign := of.Name
	if left.kind == value && right.kind == ofColumn {
		left, right, sign = right, left, mirrored[sign]
	}
	n, typ := number(right.known)
	switch {
	case left.kind == unasked || right.kind == unasked:
		return doubtful
	case left.kind == value && right.kind == value:
		m, other := number(left.known)
		if typ == "" || typ != other {
			return erring
		}
		return constant(map[string]bool{"<": m < n, "<=": m <= n, ">": m > n, ">=": m >= n}[sign])
	case left.kind != ofColumn || left.shape.Form != bundle.ShapeLong && !left.isTime():
		return erring
	case right.kind == value && typ == left.shape.String():
		return left.column.order(sign, n).sure()
	case right.kind == ofColumn && right.shape.Form == left.shape.Form:
		if cannot := t.differ(of, left, right); cannot != nil {
			return refusing(cannot)
		}
		return left.column.compare(sign, right.column).sure()
	}
	return erring
}

// texts returns the elements of a known set as texts of the set's own elements. It reports false if an element has another type.
func (s *set) texts(known types.Set) (texts []string, all bool) {
	all = true
	for v := range known.All() {
		if one, ok := text(v, s.of.Shape.Element); ok {
			texts = append(texts, one)
		} else {
			all = false
		}
	}
	return texts, all
}

// contains translates the methods of sets.
func (t *translator) contains(of *bundle.Term, left, right operand) truth {
	known, isSet := left.known.(types.Set)
	switch {
	case left.kind == unasked:
		return doubtful
	case left.kind != ofSet && left.kind != list && !isSet:
		return erring
	case of.Name == "contains":
		return t.containsOne(of, left, right)
	}
	other, otherSet := right.known.(types.Set)
	every := of.Name == "containsAll"
	switch {
	case right.kind == unasked:
		return doubtful
	case right.kind != ofSet && right.kind != list && !otherSet:
		return erring
	case isSet && otherSet && every:
		return constant(!slices.ContainsFunc(other.Slice(), func(v types.Value) bool { return !known.Contains(v) }))
	case isSet && otherSet:
		return constant(slices.ContainsFunc(other.Slice(), known.Contains))
	case left.kind == ofSet && otherSet:
		texts, all := left.set.texts(other)
		switch {
		case every && !all:
			return constant(false)
		case every:
			return left.set.hasAll(texts).sure()
		}
		return left.set.hasAny(texts).sure()
	case isSet && right.kind == ofSet:
		texts, _ := right.set.texts(known)
		if every {
			return right.set.isWithin(texts).sure()
		}
		return right.set.hasAny(texts).sure()
	case left.kind == ofSet && right.kind == ofSet, every && right.kind == ofSet:
		return refusing(t.refuse(of, "it compares two sets of the row", "compare each with what the request has"))
	}
	elements := right.elements
	for _, v := range other.Slice() {
		elements = append(elements, operand{known: v})
	}
	container := left
	if right.kind == ofSet { // containsAny is the same from either side
		container, elements = right, left.elements
	}
	made := constant(every)
	for _, element := range elements {
		if one := t.containsOne(of, container, element); every {
			made = made.and(one)
		} else {
			made = made.or(one)
		}
	}
	return made
}

// containsOne translates that a set has an element.
func (t *translator) containsOne(of *bundle.Term, set, element operand) truth {
	if element.kind == itself {
		element = t.itself()
	}
	known, isSet := set.known.(types.Set)
	switch {
	case element.kind == unasked:
		return doubtful
	case set.kind == list:
		made := constant(false)
		for _, one := range set.elements {
			made = made.or(t.equal(of, one, element))
		}
		return made
	case isSet && element.kind == value:
		return constant(known.Contains(element.known))
	case isSet && element.kind == ofColumn:
		return t.isOneOf(element, known)
	case isSet:
		made := constant(false)
		for _, one := range known.Slice() {
			made = made.or(t.equal(of, operand{known: one}, element))
		}
		return made
	case element.kind == value:
		if text, ok := text(element.known, set.shape.Element); ok {
			return set.set.hasAny([]string{text}).sure()
		}
	case element.kind == ofColumn && element.shape.Form == set.shape.Element.Form && element.shape.Entity == set.shape.Element.Entity:
		return set.set.hasColumn(element.column).sure()
	}
	return constant(false)
}

// isOneOf translates that a known set has the value of a column.
func (t *translator) isOneOf(o operand, known types.Set) truth {
	made := constant(false)
	var texts []string
	for v := range known.All() {
		if one, ok := text(v, o.shape); ok {
			texts = append(texts, one)
		} else {
			made = made.or(t.isKnown(o, v))
		}
	}
	if len(texts) == 0 {
		return made
	}
	return o.column.among(texts).sure().or(made)
}

// entityType returns the type of an operand that is an entity.
func (t *translator) entityType(o operand) (types.EntityType, bool) {
	known, isEntity := o.known.(types.EntityUID)
	switch {
	case isEntity:
		return known.Type, true
	case o.kind == itself:
		return t.mapping.Type, true
	case o.kind == ofColumn && o.shape.Form == bundle.ShapeEntity:
		return o.shape.Entity, true
	}
	return "", false
}

// in translates in, and is with in.
func (t *translator) in(of *bundle.Term) truth {
	return t.each(of, t.operands(of.Args[0]), func(l operand) truth {
		typ, isEntity := t.entityType(l)
		switch {
		case l.kind == unasked && of.Test.Is == "", isEntity && (of.Test.Is == "" || of.Test.Is == typ):
		case l.kind == unasked:
			return doubtful.or(t.inAny(of, l))
		case isEntity:
			return constant(false)
		default:
			return erring
		}
		return t.inAny(of, l)
	})
}

// inAny translates that an entity is one of those on the right, or below one of them.
func (t *translator) inAny(of *bundle.Term, l operand) truth {
	return t.each(of, t.operands(of.Args[1]), func(r operand) truth {
		var uids []types.EntityUID
		var others []operand
		elements := []operand{r}
		if known, ok := r.known.(types.Set); ok {
			elements = nil
			for _, v := range known.Slice() {
				elements = append(elements, operand{known: v})
			}
		} else if r.kind == list {
			elements = r.elements
		}
		for _, one := range elements {
			uid, known := one.known.(types.EntityUID)
			_, isEntity := t.entityType(one)
			switch {
			case known:
				uids = append(uids, uid)
			case isEntity, one.kind == unasked, r.kind == ofSet && r.shape.Element.Form == bundle.ShapeEntity:
				others = append(others, one)
			case r.kind == ofSet: // of what are no entities, the empty set alone is none that errs
				return truth{is: no, not: r.set.isEmpty().is}
			default:
				return erring
			}
		}
		made := constant(false)
		if len(uids) > 0 {
			made = t.inKnown(of, l, uids)
		}
		for _, one := range others {
			made = made.or(t.inRow(of, l, one))
		}
		return made
	})
}

// inKnown translates that an entity is one of some known ones, or below one.
func (t *translator) inKnown(of *bundle.Term, l operand, uids []types.EntityUID) truth {
	known, isKnown := l.known.(types.EntityUID)
	switch {
	case l.kind == unasked:
		return doubtful
	case l.kind == itself:
		return t.rowIn(of, uids)
	case isKnown:
		up := bundle.LineageOf(known, t.open.Entities)
		if known.Type == t.mapping.Type || t.known.reaches(up) {
			return refusing(t.readsRow(of))
		}
		return constant(slices.ContainsFunc(uids, up.In))
	case l.shape.Entity == t.mapping.Type:
		return refusing(t.readsRow(of))
	case t.unasked:
		return doubtful
	}
	ids, cannot := t.below(of, uids, l.shape.Entity, true)
	if cannot != nil {
		return refusing(cannot)
	}
	return l.column.among(ids).sure()
}

// below returns the ids of the entities of a type that are some known ones, or below one. alone says that no row may be between.
func (t *translator) below(of *bundle.Term, uids []types.EntityUID, typ types.EntityType, alone bool) (ids []string, cannot *condition) {
	if alone && t.known.climbs {
		return nil, t.readsRow(of)
	}
	key := fmt.Sprintf("%s %q", typ, uids)
	if ids, known := t.members[key]; known {
		return ids, nil
	}
	lineages, ok := t.open.Below(uids, typ, mostStored)
	if !ok {
		return nil, t.tooManyStored(of, typ)
	}
	if t.terms += len(lineages); t.terms > maxTerms {
		return nil, tooManyTerms
	}
	for _, l := range lineages {
		ids = append(ids, string(l.Uid.ID))
	}
	slices.Sort(ids)
	t.members[key] = ids
	return ids, nil
}

// inRow translates that an entity is one that only the row names, or below it.
func (t *translator) inRow(of *bundle.Term, l, other operand) truth {
	known, isKnown := l.known.(types.EntityUID)
	switch {
	case l.kind == itself && other.kind == itself:
		return constant(true)
	case other.kind == unasked && l.kind == ofColumn && l.shape.Entity == t.mapping.Type:
		return refusing(t.readsRow(of))
	case other.kind == unasked:
		return doubtful
	case l.kind == itself || !isKnown && l.kind != unasked:
		return refusing(t.refuse(of, "it asks whether one entity of the row is below another", "compare them by ==, or name one that the request has"))
	case l.kind == unasked:
		return doubtful
	}
	up := bundle.LineageOf(known, t.open.Entities)
	if known.Type == t.mapping.Type || t.known.reaches(up) {
		return refusing(t.readsRow(of))
	}
	typ, _ := t.entityType(other)
	if other.kind == ofSet {
		typ = other.shape.Element.Entity
	}
	var ids []string
	for _, uid := range append([]types.EntityUID{known}, up.Up...) {
		if uid.Type == typ {
			ids = append(ids, string(uid.ID))
		}
	}
	switch other.kind {
	case ofSet:
		return other.set.hasAny(ids).sure()
	case ofColumn:
		return other.column.among(ids).sure()
	}
	return constant(false)
}

// rowIn translates that the resource is one of some known entities, or below one by the parents that bundle.yaml finds in its
// attributes. A row has no other parents.
func (t *translator) rowIn(of *bundle.Term, uids []types.EntityUID) truth {
	var own []string
	for _, uid := range uids {
		if uid.Type == t.mapping.Type {
			own = append(own, string(uid.ID))
		}
	}
	made := constant(false)
	if len(own) > 0 {
		made = t.id.among(own).sure()
	}
	for _, rule := range t.bundle.Config.Parents[t.mapping.Type] {
		if t.unasked {
			return doubtful
		}
		ids, cannot := t.below(of, uids, rule.Parent, false)
		if cannot != nil {
			return refusing(cannot)
		}
		m := t.mapping.Attributes[rule.Attribute]
		gives := constant(false)
		switch {
		case len(ids) == 0:
		case m.Shape.Form == bundle.ShapeSet:
			gives = t.setOf(m).hasAny(ids)
		default:
			gives = t.column(m.Column).among(ids)
		}
		present := t.present(m, t.requires(rule.Attribute, m))
		made = made.or(truth{all(present.is, gives.is), some(present.not, all(present.is, gives.not)), true})
	}
	return made
}
