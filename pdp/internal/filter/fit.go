package filter

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/pdp/internal/bundle"
)

// isBad returns the condition that the column has a value that no request can have, or NULL where that is possible.
func (c column) isBad(nullable bool) *condition {
	bad := no
	if nullable {
		bad = c.isAbsent()
	}
	if c.dialect != SQLite {
		return bad
	}
	if !c.strict {
		bad = when("typeof(" + c.name + ") <> " + c.storage())
	}
	if c.sqlType() == "TEXT" { // SQLite's operators end at U+0000
		return some(bad, when("instr("+c.name+", char(0)) > 0"))
	}
	return bad
}

// fits returns the condition that the value of the column, if it has one, is one that a decision takes.
func (c column) fits(present bool) *condition {
	var good []string
	if c.dialect == SQLite {
		if !c.strict {
			good = append(good, "typeof("+c.name+") = "+c.storage())
		}
		switch {
		case c.typ == bundle.BooleanColumn:
			good = append(good, c.name+" IN (0, 1)")
		case c.sqlType() == "TEXT":
			good = append(good, "instr("+c.name+", char(0)) = 0")
		}
	}
	switch c.typ {
	case bundle.TimestamptzColumn:
		good = append(good, c.name+" >= '0001-01-01 00:00:00+00'::timestamptz", c.name+" < '10000-01-01 00:00:00+00'::timestamptz")
	case bundle.MillisColumn:
		good = append(good, fmt.Sprintf("%s BETWEEN %d AND %d", c.name, firstMilli, lastMilli))
	}
	switch text := strings.Join(good, " AND "); {
	case text == "":
		return yes
	case present:
		return when(text).defining(c.name)
	default:
		return when("(" + c.name + " IS NULL OR " + text + ")")
	}
}

// fit returns the condition that a decision about the row does not refuse it for its form, whatever policies read.
func (t *translator) fit() *condition {
	ids, enumerated := t.enumerated(t.mapping.Type)
	parts := []*condition{t.id.fits(true)}
	if !t.mapping.Strict {
		parts = append(parts, t.id.isPresent())
	}
	if enumerated {
		parts = append(parts, t.id.isAmong(ids))
	}
	for name, m := range bundle.ByName(t.mapping.Attributes) {
		parts = append(parts, t.fitOf(m, t.requires(name, m)))
		for _, rule := range t.bundle.Config.Parents[t.mapping.Type] {
			if rule.Attribute == name {
				parts = append(parts, t.fitParents(m, rule.Parent))
			}
		}
	}
	return all(parts...)
}

// requires reports whether each row that fits has an attribute: a decision requires it of an entity that is in no store, or it is a
// record, which a row without any member has empty.
func (t *translator) requires(name string, m *bundle.Mapped) bool {
	c := &t.bundle.Config
	return !m.Optional && (m.Members != nil || !c.EvaluateUnknown || c.ParentsFrom(t.mapping.Type, name))
}

// fitOf returns the condition that an attribute, or a member of a record, fits its declared type.
func (t *translator) fitOf(m *bundle.Mapped, required bool) *condition {
	if m.Members != nil {
		fits := yes
		for _, member := range bundle.ByName(m.Members) {
			fits = all(fits, t.fitOf(member, false)) // complete requires what is required of a record that is there
		}
		if m.Optional {
			return all(some(t.complete(m), t.hasValue(m).not), fits)
		}
		if required {
			fits = all(t.complete(m), fits)
		}
		return fits
	}
	present := m.Rows != nil || m.Column.NotNull || required
	fits := yes
	if required && m.Rows == nil && !m.Column.NotNull {
		fits = t.column(m.Column).isPresent()
	}
	if m.Shape.Form == bundle.ShapeSet {
		s := t.setOf(m)
		ids, enumerated := t.enumerated(m.Shape.Element.Entity)
		of := s.fits(ids, enumerated && m.Shape.Element.Form == bundle.ShapeEntity)
		if !present {
			of = some(s.array.isAbsent(), of)
		}
		return all(fits, of)
	}
	c := t.column(m.Column)
	fits = all(fits, c.fits(present))
	if ids, enumerated := t.enumerated(m.Shape.Entity); enumerated && m.Shape.Form == bundle.ShapeEntity {
		of := c.isAmong(ids)
		if !present {
			of = some(c.isAbsent(), of)
		}
		fits = all(fits, of)
	}
	return fits
}

// complete returns the condition that a record has the members that its type requires.
func (t *translator) complete(record *bundle.Mapped) *condition {
	complete := yes
	for _, member := range bundle.ByName(record.Members) {
		switch {
		case member.Optional:
		case member.Members != nil:
			complete = all(complete, t.complete(member))
		default:
			complete = all(complete, t.hasValue(member).is)
		}
	}
	return complete
}

// hasValue returns the conditions that there is a value in a column or other table of an attribute, and that there is none, of any
// row.
func (t *translator) hasValue(m *bundle.Mapped) truth {
	switch {
	case m.Rows != nil, m.Members == nil && m.Column.NotNull:
		return truth{is: yes, not: no, total: true}
	case m.Members == nil:
		c := t.column(m.Column)
		return truth{is: c.isPresent(), not: c.isAbsent(), total: true}
	}
	has := truth{is: no, not: yes, total: true}
	for _, member := range bundle.ByName(m.Members) {
		has = has.or(t.hasValue(member))
	}
	return has
}

// present returns the conditions that an attribute is there, and that it is not, of a row that fits. What is around it is there.
func (t *translator) present(m *bundle.Mapped, required bool) truth {
	switch {
	case required:
		return truth{is: yes, not: no, total: true}
	case m.Members != nil: // such a record has all that its type requires
		for _, member := range bundle.ByName(m.Members) {
			if !member.Optional && member.Members == nil {
				return t.hasValue(member)
			}
		}
	}
	return t.hasValue(m)
}

// enumerated returns the ids of an enumerated type.
func (t *translator) enumerated(typ types.EntityType) (ids []string, ok bool) {
	if t.bundle.Schema.AllowsAny(typ) {
		return nil, false
	}
	ids = slices.Collect(t.bundle.Schema.IDs(typ))
	slices.Sort(ids)
	return ids, true
}

// fitParents returns the condition that an attribute gives no parents that an enumerated type does not have.
func (t *translator) fitParents(m *bundle.Mapped, parent types.EntityType) *condition {
	ids, enumerated := t.enumerated(parent)
	switch {
	case !enumerated:
		return yes
	case m.Shape.Form == bundle.ShapeSet:
		return some(t.hasValue(m).not, t.setOf(m).isWithin(ids).is)
	}
	return some(t.hasValue(m).not, t.column(m.Column).isAmong(ids))
}
