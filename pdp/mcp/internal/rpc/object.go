package rpc

import (
	"bytes"
	"errors"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// Object is a JSON object in which each member has the bytes it came with, in the order it came in. The zero Object is
// empty.
type Object struct{ members []member }

type member struct {
	quoted []byte // the name, as it was written
	name   string
	value  jsontext.Value
}

var errNoObject = errors.New("not an object")

// ParseObject reads the members of an object. It is an error if v is none, or if it has a member twice.
func ParseObject(v jsontext.Value) (o Object, err error) {
	d := jsontext.NewDecoder(bytes.NewReader(v))
	if d.PeekKind() != '{' {
		return o, errNoObject
	}
	if _, err := d.ReadToken(); err != nil {
		return o, err
	}
	for d.PeekKind() == '"' {
		quoted, err := d.ReadValue()
		if err != nil {
			return Object{}, err
		}
		m := member{quoted: bytes.Clone(quoted)}
		name, err := jsontext.AppendUnquote(nil, m.quoted)
		if err != nil {
			return Object{}, err
		}
		m.name = string(name)
		value, err := d.ReadValue()
		if err != nil {
			return Object{}, err
		}
		m.value = bytes.Clone(value)
		o.members = append(o.members, m)
	}
	if _, err := d.ReadToken(); err != nil {
		return Object{}, err
	}
	return o, nil
}

func (o Object) index(name string) int {
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
	v := o.Get(name)
	if v.Kind() != '"' {
		return ""
	}
	s, err := jsontext.AppendUnquote(nil, v)
	if err != nil {
		return ""
	}
	return string(s)
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
	members := slices.Clone(o.members)
	if i := o.index(name); i >= 0 {
		members[i].value = v
		return Object{members}
	}
	quoted, _ := jsontext.AppendQuote(nil, name)
	return Object{append(members, member{quoted, name, v})}
}

// Without is o without the members whose name drop reports. O stays as it is.
func (o Object) Without(drop func(name string) bool) Object {
	return Object{slices.DeleteFunc(slices.Clone(o.members), func(m member) bool { return drop(m.name) })}
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

// String is a text in JSON.
func String(s string) jsontext.Value {
	b, _ := jsontext.AppendQuote(nil, s)
	return b
}
