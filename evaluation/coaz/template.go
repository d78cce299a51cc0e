package coaz

import (
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
)

// node is a part of a template. It appends its value as JSON, or reports that it has none: then the member that it is
// the value of is left out.
type node interface {
	append(b []byte, r *resolution) (after []byte, present bool, err *Error)
}

// literal is JSON that is always the same.
type literal []byte

func (l literal) append(b []byte, _ *resolution) ([]byte, bool, *Error) {
	return append(b, l...), true, nil
}

// object is a map some of whose members are expressions, somewhere.
type object []member

type member struct {
	name string
	node node
}

func (o object) append(b []byte, r *resolution) ([]byte, bool, *Error) {
	b = append(b, '{')
	var err *Error
	for _, m := range o {
		if b, err = appendMember(b, m.name, m.node, r); err != nil {
			return nil, false, err
		}
	}
	return append(b, '}'), true, nil
}

func appendMember(b []byte, name string, n node, r *resolution) ([]byte, *Error) {
	before := len(b)
	if b[before-1] != '{' {
		b = append(b, ',')
	}
	after, present, err := n.append(append(appendQuoted(b, name), ':'), r)
	switch {
	case err != nil:
		return nil, err
	case !present:
		return b[:before], nil
	}
	return after, nil
}

// array is a list some of whose elements are expressions, somewhere. An element without a value is left out, as CEL
// does it in a list of its own.
type array []node

func (a array) append(b []byte, r *resolution) ([]byte, bool, *Error) {
	b = append(b, '[')
	for _, n := range a {
		before := len(b)
		if b[before-1] != '[' {
			b = append(b, ',')
		}
		after, present, err := n.append(b, r)
		switch {
		case err != nil:
			return nil, false, err
		case !present:
			b = b[:before]
		default:
			b = after
		}
	}
	return append(b, ']'), true, nil
}

// needed is an expression that yields a type, an id or a name. Where an entry of evaluations has none, the default
// beside the entries takes its place: a caller who leaves out an argument must not have another question asked so.
type needed struct {
	at   string
	node node
}

func (n needed) append(b []byte, r *resolution) ([]byte, bool, *Error) {
	before := len(b)
	b, present, err := n.node.append(b, r)
	if err == nil && (!present || string(b[before:]) == "null") {
		return nil, false, r.fail(n.at, noName)
	}
	return b, present, err
}

const noName = "missing; it must be a string"

// whole is a subject, action or resource that an expression yields as a whole.
type whole struct {
	at       string
	names    []string
	node     node
	supplied object // the members that a subject gets if it lacks them
}

func (w whole) append(b []byte, r *resolution) ([]byte, bool, *Error) {
	before := len(b)
	b, present, err := w.node.append(b, r)
	if err != nil {
		return nil, false, err
	}
	if !present || b[before] != '{' {
		return nil, false, r.fail(w.at, notAnObject)
	}
	o, failure := evaluation.ParseObject(b[before:], r.mapping.binding.limits.Request)
	if failure != nil {
		return nil, false, r.envelope.refusedAt(r, w.at, failure)
	}
	b = append(b[:before], '{')
	for name, v := range o.Members {
		if !known(name, w.names) {
			return nil, false, r.envelope.refusedAt(r, w.at, evaluation.Malformed(besideProperties, "", name)) // it may be long
		}
		if b, err = appendMember(b, name, literalOf(v), r); err != nil {
			return nil, false, err
		}
	}
	for _, name := range w.names {
		if _, has := o.Get(name); has {
			continue
		}
		n := slices.IndexFunc(w.supplied, func(m member) bool { return m.name == name })
		if n < 0 {
			return nil, false, r.fail(w.at+escaped(name), noName)
		}
		if b, err = appendMember(b, name, w.supplied[n].node, r); err != nil {
			return nil, false, err
		}
	}
	return append(b, '}'), true, nil
}

func (e *envelope) refusedAt(r *resolution, at string, err error) *Error {
	wrong := e.refused(r, err)
	wrong.Pointer = at + wrong.Pointer[len(e.at):]
	return wrong
}

const notAnObject = "not an object"

const besideProperties = "it has no such member: what is the deployment's own stands below properties"

func known(name string, names []string) bool {
	if name == "properties" {
		return true
	}
	for _, n := range names {
		if n == name {
			return true
		}
	}
	return false
}

type part struct {
	name string
	node node
}

func (t *template) parts() [4]part {
	return [4]part{{"subject", t.subject}, {"action", t.action}, {"resource", t.resource}, {"context", t.context}}
}

// append writes the members of a request, the parts in the order in which people write them.
func (t *template) append(b []byte, r *resolution) ([]byte, *Error) {
	var err *Error
	for _, p := range t.parts() {
		if p.node == nil {
			continue
		}
		if b, err = appendMember(b, p.name, p.node, r); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func literalOf(v evaluation.Value) literal {
	text, _ := v.MarshalJSON() // it never fails
	return text
}

// appendQuoted quotes a string that came from JSON, and so is valid UTF-8.
func appendQuoted(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s)
	return b
}
