package page

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/visible"
)

// Table is the members of an object that came with a question.
type Table struct {
	Caption Label
	Rows    []Row
	// Scrolls is set if the table is long, so that it has a box of its own.
	Scrolls bool
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
	// Was is the value of the last time, if it was another one.
	Was Value
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

// Members is a table of the members of an object, in their order. If there was a last time, each is compared; members
// that are gone come last. No object has no members.
func Members(caption Label, now jsontext.Value, last *jsontext.Value) Table {
	t := Table{Caption: caption}
	before := map[string]jsontext.Value{}
	var names []string
	if last != nil {
		for _, m := range members(*last) {
			before[m.name], names = m.value, append(names, m.name)
		}
	}
	for _, m := range members(now) {
		row := Row{Name: m.shown(), Value: JSON(m.value)}
		was, there := before[m.name]
		delete(before, m.name)
		switch {
		case last == nil:
		case !there:
			row.Change = New
		case equal(m.value, was):
			row.Change = Same
		default:
			row.Change, row.Was = Differs, JSON(was)
		}
		t.Rows = append(t.Rows, row)
	}
	for _, name := range names {
		if was, left := before[name]; left {
			t.Rows = append(t.Rows, Row{Name: member{name: name}.shown(), Change: Gone, Was: JSON(was)})
		}
	}
	t.Scrolls = len(t.Rows) > longTable
	return t
}

type member struct {
	name  string
	value jsontext.Value
	whole bool // it is not one of several, and has no name
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
	one, other = one.Clone(), other.Clone()
	form := []jsontext.Options{
		jsontext.ReorderRawObjects(true), jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false),
	}
	return one.Format(form...) == nil && other.Format(form...) == nil && bytes.Equal(one, other)
}
