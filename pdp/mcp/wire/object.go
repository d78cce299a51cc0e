package wire

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
)

// object is a JSON object in which each member has the bytes it came with, in the order it came in.
type object []member

type member struct {
	quoted []byte // the name, as it is written
	name   string
	value  jsontext.Value
}

// readObject reads the members of an object that stands at a place. It is an error if v is none, or has a member twice at any
// depth. The object has slices of v, which nobody may change from then on.
func readObject(v jsontext.Value, at ...string) (o object, err error) {
	in := jsontext.NewDecoder(bytes.NewBuffer(v))
	if in.PeekKind() != '{' {
		return nil, evaluation.Malformed("no object", "", at...)
	}
	if _, err := in.ReadToken(); err != nil {
		return nil, broken(err, at)
	}
	next := func() jsontext.Value {
		read, failed := in.ReadValue()
		if failed != nil {
			err = broken(failed, at)
			return nil
		}
		ends := in.InputOffset()
		return v[ends-int64(len(read)) : ends : ends]
	}
	for in.PeekKind() == '"' {
		quoted := next()
		value := next()
		if err != nil {
			return nil, err
		}
		name, _ := jsontext.AppendUnquote(nil, quoted) // it was read
		o = append(o, member{quoted, string(name), value})
	}
	if _, err := in.ReadToken(); err != nil {
		return nil, broken(err, at)
	}
	if _, err := in.ReadToken(); err != io.EOF {
		return nil, evaluation.Malformed("something follows the object", "", at...)
	}
	return o, nil
}

// broken is an error of a text that is no JSON, or JSON that two readers would read differently.
func broken(err error, at []string) error {
	syntax := &jsontext.SyntacticError{}
	if errors.As(err, &syntax) {
		at = slices.AppendSeq(slices.Clone(at), syntax.JSONPointer.Tokens())
	}
	if errors.Is(err, jsontext.ErrDuplicateName) {
		return evaluation.Malformed("the member stands twice in one object", "", at...)
	}
	return evaluation.Malformed("no JSON in UTF-8", "", at...)
}

// get is the value of a member as it came, nil if there is none.
func (o object) get(name string) jsontext.Value {
	for _, m := range o {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

// text is a member that is a string and not empty. It is "" if there is none.
func (o object) text(name string, at ...string) (string, error) {
	return textOf(o.get(name), append(at, name)...)
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

// misspelt is an error if a name differs from one of some in case alone: not every reader tells the two apart.
func (o object) misspelt(names ...string) error {
	for _, m := range o {
		for _, name := range names {
			if m.name != name && strings.EqualFold(m.name, name) {
				return evaluation.Malformed("the name is written "+name, "", m.name)
			}
		}
	}
	return nil
}

// with is o with a member changed in its place, or added as the last. O stays as it is.
func (o object) with(name string, v jsontext.Value) object {
	changed := append(make(object, 0, len(o)+1), o...)
	for i := range changed {
		if changed[i].name == name {
			changed[i].value = v
			return changed
		}
	}
	return append(changed, member{quoted(name), name, v})
}

// withText is o with a member that is a string, or as it is if the text is empty.
func (o object) withText(name, text string) object {
	if text == "" {
		return o
	}
	return o.with(name, quoted(text))
}

// withMeta is o with more members in its _meta. A _meta that is no object gives way.
func (o object) withMeta(more object) object {
	meta, _ := readObject(o.get("_meta"))
	for _, m := range more {
		meta = meta.with(m.name, m.value)
	}
	if len(more) == 0 {
		return o
	}
	return o.with("_meta", meta.json())
}

// without is o without a member.
func (o object) without(name string) object {
	rest := make(object, 0, len(o))
	for _, m := range o {
		if m.name != name {
			rest = append(rest, m)
		}
	}
	return rest
}

// json is the object in JSON.
func (o object) json() jsontext.Value {
	b := []byte{'{'}
	for i, m := range o {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, m.quoted...), ':'), m.value...)
	}
	return append(b, '}')
}
