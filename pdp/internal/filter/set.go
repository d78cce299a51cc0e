package filter

import (
	"slices"
	"strconv"
	"strings"

	"policy-service/pdp/internal/bundle"
)

// set is a set of a row: an array, or rows of another table.
type set struct {
	of      *bundle.Mapped
	element column // what an element is, and in rows also where
	array   column // without a name in rows
	from    string // the other table, with the condition that its rows belong to the row
}

// inner is the name of the other table in a condition.
const inner = `"_pf1"`

// setOf returns the set of a mapped attribute.
func (t *translator) setOf(m *bundle.Mapped) *set {
	s := &set{of: m}
	if m.Rows == nil {
		s.array = t.column(m.Column)
		s.element = column{typ: bundle.ColumnType(strings.TrimSuffix(string(m.Column.Type), "[]")), dialect: t.dialect, strict: t.mapping.Strict}
		return s
	}
	key := column{inner + "." + quote(m.Rows.Key), t.id.typ, t.dialect, t.mapping.Strict}
	s.element = column{inner + "." + quote(m.Rows.Value.Name), m.Rows.Value.Type, t.dialect, t.mapping.Strict}
	s.from = table(m.Rows.Table) + " " + inner + " WHERE " + key.compared() + " = " + t.id.compared()
	if t.dialect == Postgres && key.typ == bundle.TextColumn { // as that of the key's index, whatever that of the id is
		s.from += ` COLLATE "default"`
	}
	switch {
	case key.doubted():
		s.from += " AND " + likely(key.exact()+" = "+t.id.exact())
	case t.dialect == SQLite && !t.mapping.Strict:
		s.from += " AND typeof(" + key.name + ") = " + key.storage()
	}
	return s
}

// exists returns the conditions that an element in a row of the other table is so, and that none is.
func (s *set) exists(element *condition) truth {
	switch element.kind {
	case never:
		return truth{is: no, not: yes}
	case refused:
		return truth{is: element, not: element}
	}
	text := "EXISTS (SELECT 1 FROM " + s.from
	if element.kind != always {
		text += " AND " + element.sql(and)
	}
	text += ")"
	parameters := element.all(nil)
	return truth{is: when(text, parameters...), not: when("NOT "+text, parameters...)}
}

// isEmpty returns the conditions that the set has no element, and that it has one.
func (s *set) isEmpty() truth {
	if s.array.name == "" {
		return s.exists(yes).opposite()
	}
	return truth{
		is:  when("cardinality(" + s.array.name + ") = 0").defining(s.array.name),
		not: when("cardinality(" + s.array.name + ") > 0").defining(s.array.name),
	}
}

// compared returns the conditions that the array and another compare so, by an operator that an index serves, and that they do not.
// The collation of an array is that of its elements.
func (s *set) compared(array, with string, parameters ...*parameter) truth {
	is, exact := array+with, array+with
	if s.element.doubted() {
		exact = array + ` COLLATE "C"` + with
		is += " AND " + likely(exact)
		parameters = append(parameters, parameters...)
	}
	return truth{
		is:  when(is, parameters...).defining(s.array.name),
		not: when("NOT ("+exact+")", parameters[:strings.Count(exact, "?")]...).defining(s.array.name),
	}
}

// held returns those of some texts that an element can have, sorted and each once.
func (s *set) held(texts []string) []string {
	texts = slices.DeleteFunc(slices.Clone(texts), func(text string) bool { return !s.element.holds(text) })
	slices.Sort(texts)
	return slices.Compact(texts)
}

// hasAny returns the conditions that the set has one of some elements, and that it has none of them.
func (s *set) hasAny(texts []string) truth {
	switch held := s.held(texts); {
	case len(held) == 0:
		return truth{is: no, not: yes}
	case s.array.name == "":
		return s.exists(s.element.isAmong(held))
	case len(held) == 1:
		return s.compared(s.array.name, " @> ARRAY[?]", s.element.parameter(held[0]))
	default:
		return s.compared(s.array.name, " && ?", s.element.list(held))
	}
}

// hasAll returns the conditions that the set has each of some elements, and that it lacks one.
func (s *set) hasAll(texts []string) truth {
	held := s.held(texts)
	slices.Sort(texts)
	switch {
	case len(held) < len(slices.Compact(slices.Clone(texts))):
		return truth{is: no, not: yes}
	case len(held) == 0:
		return truth{is: yes, not: no}
	case len(held) == 1:
		return s.hasAny(held)
	case s.array.name == "":
		is, not := make([]*condition, len(held)), make([]*condition, len(held))
		for n, one := range held {
			has := s.hasAny([]string{one})
			is[n], not[n] = has.is, has.not
		}
		return truth{is: all(is...), not: some(not...)}
	}
	return s.compared(s.array.name, " @> ?", s.element.list(held))
}

// isWithin returns the conditions that each element of the set is one of some, and that another is in it.
func (s *set) isWithin(texts []string) truth {
	held := s.held(texts)
	switch {
	case len(held) == 0:
		return s.isEmpty()
	case s.array.name == "":
		return s.exists(s.element.among(held).not).opposite()
	}
	return s.compared(s.array.name, " <@ ?", s.element.list(held))
}

// hasColumn returns the conditions that the set has the value of a column of the row, and that it does not.
func (s *set) hasColumn(c column) truth {
	if s.array.name == "" {
		return s.exists(s.element.equals(c).is)
	}
	has := s.array.name + " @> ARRAY[" + c.name + "]"
	if c.typ != bundle.UUIDColumn || s.element.typ != bundle.UUIDColumn { // a text may be that of no uuid, and a char(8) has blanks
		has = s.array.name + `::text::text[] COLLATE "C" @> ARRAY[concat(` + c.name + ")]"
	}
	return truth{
		is:  when(has+" AND "+c.name+" IS NOT NULL").defining(s.array.name, c.name),
		not: when("NOT ("+has+") AND "+c.name+" IS NOT NULL").defining(s.array.name, c.name),
	}
}

// fits returns the condition that the elements are such as a decision takes.
func (s *set) fits(ids []string, enumerated bool) *condition {
	within := yes
	if enumerated {
		within = s.isWithin(ids).is
	}
	if s.array.name != "" && s.element.strict && s.of.NoNullElement {
		return within
	}
	if s.array.name != "" {
		// An array is one if it has one dimension: of others array_position raises an error.
		array := s.array.name
		bad := "cardinality(" + array + ") > " + mostElements + " OR coalesce(array_ndims(" + array + "), 1) <> 1 THEN 1"
		if !s.of.NoNullElement {
			bad += " WHEN array_position(" + array + ", NULL) IS NOT NULL THEN 1"
		}
		return all(when("CASE WHEN "+bad+" ELSE 0 END <> 1"), within)
	}
	fits := all(s.exists(s.element.isBad(!s.of.NoNullElement)).not, within)
	if !s.element.strict { // it costs each row a look into the other table
		fits = all(fits, when("NOT EXISTS (SELECT 1 FROM "+s.from+" LIMIT 1 OFFSET "+mostElements+")"))
	}
	return fits
}

var mostElements = strconv.Itoa(bundle.MostElements)
