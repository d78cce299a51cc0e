package page

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/visible"
)

// Table is the members of an object that came with a question.
type Table struct {
	Caption Label
	Rows    []Row
	// Scrolls is set if the table is long, so that it has a box of its own.
	Scrolls bool
	// Compared is set if there was a last time.
	Compared bool
	// Agreed is set if people agreed the last time, and Then is what became of it: what is the same as something that
	// was not agreed to is no less to read.
	Agreed bool
	Then   Status
}

// Row is a member of an object, and how it differs from the last time.
type Row struct {
	Name   Text
	Value  Value
	Change Change
	// Was is the value of the last time, if it was another one and has no Steps.
	Was Value
	// Steps are the differences of long values, and Others how many members of the value are the same. More counts the
	// steps that are left out.
	Steps        []Step
	Others, More int
	// Wide is set if the value is too long to stand beside that of the last time.
	Wide bool
}

// Change is how a value differs from that of the last request like it.
type Change string

// The changes there are. Uncompared says that there was no last time.
const (
	Uncompared Change = ""
	Same       Change = "same"
	Differs    Change = "differs"
	New        Change = "new"
	Gone       Change = "gone"
)

// Single is the value of the table, if that is one text of the given name and has nothing to be compared with.
func (t Table) Single(name string) *Value {
	if len(t.Rows) != 1 || t.Rows[0].Change != Uncompared || !t.Rows[0].Value.Quoted || !t.Rows[0].Name.is(name) {
		return nil
	}
	return &t.Rows[0].Value
}

// longTable is how many rows a table may have without a box of its own.
const longTable = 8

// Members is a table of the members of an object, in their order. If there was a last time, each is compared, and those
// that differ come first: short ones, long ones, and then those that are gone. No object has no members.
func Members(caption Label, now jsontext.Value, last *jsontext.Value) Table {
	t := Table{Caption: caption, Compared: last != nil}
	before := map[string]jsontext.Value{}
	var names []string
	if last != nil {
		for _, m := range members(*last) {
			before[m.name], names = m.value, append(names, m.name)
		}
	}
	for _, m := range members(now) {
		row := Row{Name: m.shown()}
		was, there := before[m.name]
		delete(before, m.name)
		switch same := there && equal(m.value, was); {
		case there && !same:
			row.compare(m.path(), m.value, was)
		case there:
			row.Change = Same
		case last != nil:
			row.Change = New
		}
		if row.Change != Differs {
			row.Value = JSON(m.value)
		}
		t.Rows = append(t.Rows, row)
	}
	for _, name := range names {
		if was, left := before[name]; left {
			t.Rows = append(t.Rows, Row{Name: member{name: name}.shown(), Change: Gone, Was: JSON(was)})
		}
	}
	for n := range t.Rows {
		row := &t.Rows[n]
		row.Wide = t.Compared && (len(row.Steps) > 0 || !row.Value.flat() || !row.Was.flat())
		switch {
		case len(row.Steps) > 0:
			row.Was = Value{} // its differences are there
		case row.Change == New && !row.Wide:
			row.Value.Change = New
		case row.Change == Gone && !row.Wide:
			row.Was.Change = Gone
		}
	}
	slices.SortStableFunc(t.Rows, func(a, b Row) int { return cmp.Compare(a.rank(), b.rank()) })
	t.Scrolls = len(t.Rows) > longTable
	return t
}

// rank is where a row stands among others.
func (r *Row) rank() int {
	switch {
	case r.Change == Same:
		return 3
	case r.Change == Gone: // nothing of the last time pushes the question of now out of sight
		return 2
	case r.Wide:
		return 1
	}
	return 0
}

// Fold leaves out steps where there are many, and returns how many rows lack some.
func (t *Table) Fold() (rows int) {
	for n := range t.Rows {
		if row := &t.Rows[n]; len(row.Steps) > mostSteps {
			row.Steps, row.More = row.Steps[:mostSteps], len(row.Steps)-mostSteps
			rows++
		}
	}
	return rows
}

// Each puts another text in place of each one but paths. It says if all of the text stands in the table elsewhere, too.
func (t *Table) Each(other func(text Text, again bool) Text) {
	value := func(v *Value, again bool) {
		v.Text = other(v.Text, again)
		for n := range v.Parts {
			v.Parts[n].Text = other(v.Parts[n].Text, true)
		}
	}
	for n := range t.Rows {
		row := &t.Rows[n]
		row.Name = other(row.Name, false)
		value(&row.Value, false)
		value(&row.Was, false)
		for n := range row.Steps {
			value(&row.Steps[n].Now, true)
			value(&row.Steps[n].Was, false)
		}
	}
}

type member struct {
	name  string
	value jsontext.Value
	whole bool // it is not one of several, and has no name
}

// path is the place of the member.
func (m member) path() Text {
	if m.whole {
		return Text{}
	}
	return pathTo(Text{}, m.name)
}

// shown is the name of the member. An empty one is drawn, so that its row is none of the member above.
func (m member) shown() Text {
	if m.name != "" || m.whole {
		return Line(m.name)
	}
	return Text{visible.Shown{Lines: [][]visible.Piece{{{Text: `""`, Kind: visible.Spaces, Note: "the empty name"}}}}}
}

// members are those of an object. A value that is no object, or that has a mistake, is one member without a name.
func members(v jsontext.Value) (all []member) {
	if len(v) == 0 || string(v) == "null" {
		return nil
	}
	in := jsontext.NewDecoder(bytes.NewReader(v))
	if in.PeekKind() != '{' {
		return []member{{value: v, whole: true}}
	}
	_, err := in.ReadToken()
	for err == nil && in.PeekKind() != '}' {
		var name jsontext.Token
		var value jsontext.Value
		if name, err = in.ReadToken(); err != nil {
			break
		}
		text := name.String()
		if value, err = in.ReadValue(); err == nil {
			all = append(all, member{name: text, value: value.Clone()})
		}
	}
	if err != nil {
		all = append(all, member{value: v, whole: true})
	}
	return all
}

// equal reports if two values are the same. Numbers are compared as they are written: 2⁵³ and 2⁵³+1 are one number to
// most readers.
func equal(one, other jsontext.Value) bool {
	return sorted(&one) && sorted(&other) && bytes.Equal(one, other)
}
