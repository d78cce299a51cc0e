package wire

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/internal/rpc"
)

// Object is a JSON object in which each member has the bytes it came with, in the order it came in.
type Object = rpc.Object

// object is an object of a message. Its methods read members, strictly. The first mistake in a message is kept in err, with
// its place; the reader of the message gives nothing of it then.
type object struct {
	rpc.Object
	at  []string
	err *error
}

// readObject reads a message, or an object at a place in one. It is a mistake if v is no object, or has a member twice at any
// depth. The object has slices of v, which must not change from then on.
func readObject(v jsontext.Value, err *error, at ...string) object {
	read, wrong := rpc.ParseObject(v)
	o, syntax := object{read, at, err}, &jsontext.SyntacticError{}
	switch {
	case wrong == nil:
	case !errors.As(wrong, &syntax):
		o.wrong(wrong.Error())
	case errors.Is(wrong, jsontext.ErrDuplicateName):
		o.wrong("the member stands twice in one object", slices.Collect(syntax.JSONPointer.Tokens())...)
	default:
		o.wrong("no JSON in UTF-8", slices.Collect(syntax.JSONPointer.Tokens())...)
	}
	return o
}

// whole is what was read of a message, or nothing of it if there is a mistake.
func whole[T any](read T, err error) (T, error) {
	if err != nil {
		read = *new(T)
	}
	return read, err
}

// wrong notes a mistake below the object.
func (o object) wrong(what string, below ...string) {
	if *o.err == nil {
		*o.err = evaluation.Malformed(what, "", slices.Concat(o.at, below)...)
	}
}

// object is a member that must be an object.
func (o object) object(name string) object {
	inner, err := o.Object.Object(name)
	if err != nil {
		o.wrong(err.Error(), name)
	}
	return object{inner, append(slices.Clip(o.at), name), o.err}
}

// text is a member that is a string and not empty. It is "" if there is none.
func (o object) text(name string) string { return o.textOf(o.Get(name), name) }

// textOf is a value that is a string and not empty. It is "" if there is no value.
func (o object) textOf(v jsontext.Value, below ...string) string {
	if v == nil {
		return ""
	}
	if b, err := jsontext.AppendUnquote(nil, v); err == nil && v.Kind() == '"' && len(b) > 0 {
		return string(b)
	}
	o.wrong("no string, or an empty one", below...)
	return ""
}

// wanted is a member that is a string and not empty, and that must be there.
func (o object) wanted(name string) string {
	s := o.text(name)
	if s == "" {
		o.wrong("missing; it must be a string", name)
	}
	return s
}

// texts are the elements of a member that is an array of strings, of which one at least must be there.
func (o object) texts(name, want, none string) (all []string) {
	for n, v := range o.elements(name, want) {
		all = append(all, o.textOf(v, name, strconv.Itoa(n)))
	}
	if len(all) == 0 {
		o.wrong(none, name)
	}
	return all
}

// truth is a member that is true or false. It is false if there is none.
func (o object) truth(name string) bool {
	v := o.Get(name)
	if v != nil && v.Kind() != 't' && v.Kind() != 'f' {
		o.wrong("neither true nor false", name)
	}
	return v.Kind() == 't'
}

// elements are those of a member that is an array. There are none if there is no member.
func (o object) elements(name, want string) []jsontext.Value {
	v := o.Get(name)
	if v == nil {
		return nil
	}
	all, err := rpc.Elements(v)
	if err != nil {
		o.wrong(want, name)
	}
	return all
}

// misspelt notes a member whose name differs from one of some in case alone: some readers take the two for one.
func (o object) misspelt(names ...string) {
	for member := range o.Members {
		for _, name := range names {
			if member != name && strings.EqualFold(member, name) {
				o.wrong("the name is written "+name, member)
			}
		}
	}
}

// only notes a member that has none of some names.
func (o object) only(names ...string) {
	for member := range o.Members {
		if !slices.Contains(names, member) {
			o.wrong("unknown; leave it out; what can stand here is "+strings.Join(names, ", "), member)
		}
	}
}

// withMeta is o with more members in its _meta. A _meta that is no object gives way.
func withMeta(o, more rpc.Object) rpc.Object {
	if more.Len() == 0 {
		return o
	}
	meta := o.GetObject("_meta")
	for name, v := range more.Members {
		meta = meta.With(name, v)
	}
	return o.With("_meta", meta.Value())
}
