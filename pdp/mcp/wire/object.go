package wire

import (
	"errors"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/mcp/internal/rpc"
)

// object is an object that was read. Its methods read single members, and their errors say where a member stands.
type object struct{ rpc.Object }

// readObject reads the members of the object at a place. It fails if v is no object, or has a member twice at any depth.
// The object has slices of v, which must not change from then on.
func readObject(v jsontext.Value, at ...string) (object, error) {
	o, err := rpc.ParseObject(v)
	syntax := &jsontext.SyntacticError{}
	switch {
	case err == nil:
		return object{o}, nil
	case !errors.As(err, &syntax):
		return object{}, evaluation.Malformed(err.Error(), "", at...)
	}
	at = slices.AppendSeq(slices.Clone(at), syntax.JSONPointer.Tokens())
	if errors.Is(err, jsontext.ErrDuplicateName) {
		return object{}, evaluation.Malformed("the member stands twice in one object", "", at...)
	}
	return object{}, evaluation.Malformed("no JSON in UTF-8", "", at...)
}

// text is a member that is a string and not empty. It is "" if there is none.
func (o object) text(name string, at ...string) (string, error) {
	return textOf(o.Get(name), append(at, name)...)
}

// textOf is a value that is a string and not empty. It is "" if there is no value.
func textOf(v jsontext.Value, at ...string) (string, error) {
	if v == nil {
		return "", nil
	}
	if b, err := jsontext.AppendUnquote(nil, v); err == nil && v.Kind() == '"' && len(b) > 0 {
		return string(b), nil
	}
	return "", evaluation.Malformed("no string, or an empty one", "", at...)
}

// wanted is a member that is a string and not empty, and that must be there.
func (o object) wanted(name string, at ...string) (string, error) {
	s, err := o.text(name, at...)
	if err == nil && s == "" {
		err = evaluation.Malformed("missing; it must be a string", "", append(at, name)...)
	}
	return s, err
}

// truth is a member that is true or false. It is false if there is none.
func (o object) truth(name string, at []string) (bool, error) {
	v := o.Get(name)
	if v != nil && v.Kind() != 't' && v.Kind() != 'f' {
		return false, evaluation.Malformed("neither true nor false", "", append(at, name)...)
	}
	return v.Kind() == 't', nil
}

// elements are those of a member that is an array. There are none if there is no member.
func (o object) elements(name, want string, at ...string) (all []jsontext.Value, err error) {
	if v := o.Get(name); v != nil {
		if all, err = rpc.Elements(v); err != nil {
			return nil, evaluation.Malformed(want, "", append(at, name)...)
		}
	}
	return all, nil
}

// misspelt is an error if a name differs from one of some in case alone: some readers take the two for one.
func (o object) misspelt(names ...string) error {
	for member := range o.Members {
		for _, name := range names {
			if member != name && strings.EqualFold(member, name) {
				return evaluation.Malformed("the name is written "+name, "", member)
			}
		}
	}
	return nil
}

// only is an error if there is a member that has none of some names.
func (o object) only(at []string, names ...string) error {
	for member := range o.Members {
		if !slices.Contains(names, member) {
			return evaluation.Malformed("unknown", "leave it out; what can stand here is "+strings.Join(names, ", "), append(slices.Clone(at), member)...)
		}
	}
	return nil
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
