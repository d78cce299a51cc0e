package rpc

import (
	"bytes"
	"errors"
	"iter"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// Object is a JSON object in which each member has the bytes it came with, in the order it came in. The zero Object is
// empty.
//
// Looking a member up costs the same however many there are. A change costs a copy of the list of members, not of their
// values: to change as many members as a sender likes, use [Object.Map] or [Collect], which go through them once.
type Object struct {
	members []member
	places  map[string]int // nil for few members, which are found without
	text    jsontext.Value // as it came; nil if the object is changed
}

type member struct {
	quoted []byte // the name, as it was written
	name   string
	value  jsontext.Value
	// read reports that the value was read already, whole and strictly: it need not be read so again.
	read bool
}

// few is how many members are looked through one by one.
const few = 16

var (
	errNoObject = errors.New("not an object")
	errFollows  = errors.New("something follows the value")
)

// ParseObject reads the members of an object. It is an error if v is none, or has a member twice at any depth. The object
// has slices of v, which must not change from then on.
func ParseObject(v jsontext.Value) (Object, error) {
	if err := check(v, '{', errNoObject); err != nil {
		return Object{}, err
	}
	return split(v), nil
}

// check reads a text that is one value of a kind, whole and strictly. Other is the error for a value of another kind.
func check(text []byte, kind jsontext.Kind, other error) error {
	if v := jsontext.Value(text); v.IsValid() && v.Kind() == kind {
		return nil
	}
	in := jsontext.NewDecoder(bytes.NewBuffer(text)) // it is read again for the reason
	if in.PeekKind() != kind {
		return other
	}
	if _, err := in.ReadValue(); err != nil {
		return err
	}
	return errFollows
}

// unquoted is the text of a string in JSON that has been read.
func unquoted(v jsontext.Value) string {
	inner := v[1 : len(v)-1]
	if name, ok := usual[string(inner)]; ok {
		return name
	}
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner)
	}
	b, err := jsontext.AppendUnquote(nil, v)
	if err != nil { // the value was not read, but set
		return ""
	}
	return string(b)
}

func newObject(members []member) Object {
	o := Object{members: members}
	if len(members) <= few {
		return o
	}
	o.places = make(map[string]int, len(members))
	for i, m := range members {
		o.places[m.name] = i
	}
	return o
}

func (o Object) index(name string) int {
	if o.places != nil {
		if i, ok := o.places[name]; ok {
			return i
		}
		return -1
	}
	return slices.IndexFunc(o.members, func(m member) bool { return m.name == name })
}

// Get is the value of a member as it came, nil if there is none.
func (o Object) Get(name string) jsontext.Value {
	if i := o.index(name); i >= 0 {
		return o.members[i].value
	}
	return nil
}

// GetString is the text of a member that is a string, "" if it is none.
func (o Object) GetString(name string) string {
	if v := o.Get(name); v.Kind() == '"' {
		return unquoted(v)
	}
	return ""
}

// Object is a member that is an object. A member that was read with o is not read again.
func (o Object) Object(name string) (Object, error) {
	i := o.index(name)
	switch {
	case i < 0, o.members[i].value.Kind() != '{':
		return Object{}, errNoObject
	case o.members[i].read:
		return split(o.members[i].value), nil
	}
	return ParseObject(o.members[i].value)
}

// GetObject is a member that is an object, the empty one if it is none.
func (o Object) GetObject(name string) Object {
	inner, _ := o.Object(name)
	return inner
}

// Members are the names and values in their order.
func (o Object) Members(yield func(string, jsontext.Value) bool) {
	for _, m := range o.members {
		if !yield(m.name, m.value) {
			return
		}
	}
}

// Len is how many members there are.
func (o Object) Len() int { return len(o.members) }

// With is o with a member changed in its place, or added as the last. O stays as it is.
func (o Object) With(name string, v jsontext.Value) Object {
	if i := o.index(name); i >= 0 {
		if same(o.members[i].value, v) {
			return o
		}
		members := slices.Clone(o.members)
		members[i].value, members[i].read = v, false
		return Object{members: members, places: o.places} // the places are the same, and do not change
	}
	return newObject(append(slices.Clip(o.members), newMember(name, v)))
}

// WithText is [Object.With] of a string. Without a text o stays as it is.
func (o Object) WithText(name, text string) Object {
	if text == "" {
		return o
	}
	return o.With(name, String(text))
}

func newMember(name string, v jsontext.Value) member {
	quoted, _ := jsontext.AppendQuote(nil, name)
	return member{quoted: quoted, name: name, value: v}
}

// Without is o without the members whose name drop reports. O stays as it is.
func (o Object) Without(drop func(name string) bool) Object {
	if !slices.ContainsFunc(o.members, func(m member) bool { return drop(m.name) }) {
		return o
	}
	return newObject(slices.DeleteFunc(slices.Clone(o.members), func(m member) bool { return drop(m.name) }))
}

// And is o with the members of another behind its own. They have no name in common.
func (o Object) And(more Object) Object {
	return newObject(slices.Concat(o.members, more.members))
}

// Map is o with each value changed as f says. A member whose value becomes nil goes away. O stays as it is.
func (o Object) Map(f func(name string, v jsontext.Value) jsontext.Value) Object {
	members := slices.Clone(o.members)
	for i := range members {
		members[i].value, members[i].read = f(members[i].name, members[i].value), false
	}
	return newObject(slices.DeleteFunc(members, func(m member) bool { return m.value == nil }))
}

// Collect makes an object of members. Of members with one name the last counts.
func Collect(all iter.Seq2[string, jsontext.Value]) Object {
	var members []member
	places := map[string]int{}
	for name, v := range all {
		if i, ok := places[name]; ok {
			members[i].value = v
			continue
		}
		places[name] = len(members)
		members = append(members, newMember(name, v))
	}
	return newObject(members)
}

// same reports whether two values are the same bytes at the same place.
func same(v, w jsontext.Value) bool { return len(v) > 0 && len(v) == len(w) && &v[0] == &w[0] }

// Is reports whether an object is as it came, and came as that value.
func (o Object) Is(v jsontext.Value) bool { return same(o.text, v) }

// Text is the object as it came, or in JSON if it is changed.
func (o Object) Text() jsontext.Value {
	if o.text != nil {
		return o.text
	}
	return o.Value()
}

// Value is the object in JSON.
func (o Object) Value() jsontext.Value {
	size := 2
	for _, m := range o.members {
		size += len(m.quoted) + len(m.value) + 2
	}
	b := append(make([]byte, 0, size), '{')
	for i, m := range o.members {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, m.quoted...), ':'), m.value...)
	}
	return append(b, '}')
}

// Params is the object as the params of a message: nil without members.
func (o Object) Params() jsontext.Value {
	if o.Len() == 0 {
		return nil
	}
	return o.Value()
}

// String is a text in JSON.
func String(s string) jsontext.Value {
	b, _ := jsontext.AppendQuote(nil, s)
	return b
}

var errNoArray = errors.New("not an array")

// Elements are those of an array, as slices of v. It is an error if v is none, or if an object in it has a member twice.
func Elements(v jsontext.Value) (all []jsontext.Value, err error) {
	if err := check(v, '[', errNoArray); err != nil {
		return nil, err
	}
	for at := next(v, skipSpace(v, 0)+1); v[at] != ']'; {
		ends := skipValue(v, at)
		all = append(all, v[at:ends:ends])
		at = next(v, ends)
	}
	return all, nil
}

// Array is an array in JSON of values as they are.
func Array(values []jsontext.Value) jsontext.Value {
	size := 2
	for _, v := range values {
		size += len(v) + 1
	}
	b := append(make([]byte, 0, size), '[')
	for i, v := range values {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, v...)
	}
	return append(b, ']')
}

// Strings is an array of texts in JSON.
func Strings(all []string) jsontext.Value {
	values := make([]jsontext.Value, len(all))
	for n, s := range all {
		values[n] = String(s)
	}
	return Array(values)
}
