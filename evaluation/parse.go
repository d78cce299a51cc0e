package evaluation

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// parse reads a body strictly: one JSON object and nothing after it, no
// duplicate member, no invalid UTF-8, no lone surrogate, no reserved name, and
// nothing over the limits.
func parse(body []byte, limits Limits) (Object, error) {
	o, _, err := parseBody(body, limits, "", inBody)
	return o, err
}

// parseBody is the only reader of JSON from outside. In the body of a batch, the
// member that batch names has the items. They are bounded by their own limit and not
// by those of an array of objects; and a reserved name is reported rather than
// refused, since it is the error of the items that have it.
func parseBody(body []byte, limits Limits, batch string, at place) (o Object, reserved bool, err error) {
	if len(body) > limits.Body {
		return Object{}, false, &Error{TooLarge: true, Detail: fmt.Sprintf("the body has more than %d bytes", limits.Body), Try: "send less"}
	}
	if o, ok := scan(body, limits, batch, at); ok {
		return o, false, nil
	}
	return parseStrictly(body, limits, batch, at)
}

// parseStrictly reads every body that [scan] leaves to it, and alone says what is wrong with one.
func parseStrictly(body []byte, limits Limits, batch string, at place) (o Object, reserved bool, err error) {
	p := parsers.Get().(*parser)
	defer p.release()
	p.in = *bytes.NewBuffer(body) // which is read where it stands, without a copy
	p.dec.Reset(&p.in)
	p.limits, p.batch, p.values, p.reserved = limits, batch, 0, false

	if p.dec.PeekKind() != '{' {
		if _, err := p.dec.ReadToken(); err != nil && len(bytes.TrimSpace(body)) > 0 {
			return Object{}, false, p.syntax(err)
		}
		return Object{}, false, newError("", "the body is not a JSON object", "send {…} with the members of a request")
	}
	v, err := p.value(0, at)
	if err != nil {
		return Object{}, false, err
	}
	if _, err := p.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return Object{}, false, newError("", "something follows the JSON object", "send one object and nothing after it")
	}
	return Object{v.elems}, p.reserved, nil
}

type parser struct {
	in       bytes.Buffer
	dec      jsontext.Decoder
	limits   Limits
	batch    string // the member with the items, "" if the body is no batch
	values   int
	reserved bool     // a reserved name occurs
	stack    []Member // members of the containers being read; each takes its own copy when it ends
}

var parsers = sync.Pool{New: func() any { return new(parser) }}

func (p *parser) release() {
	p.in = bytes.Buffer{}
	p.dec.Reset(&p.in)
	clear(p.stack[:cap(p.stack)])
	if p.stack = p.stack[:0]; cap(p.stack) <= 4096 { // do not keep the room of one large body
		parsers.Put(p)
	}
}

// place says what a value is part of, as far as that decides whether null members stay.
type place uint8

const (
	elsewhere   place = iota
	inBody            // the whole body, which may be a context alone
	inContext         // or in the content of an approver's answer, which has the arguments too
	inArguments       // null members stay, at any depth
)

// member is the place of a member of an object at a place.
func (at place) member(name string) place {
	switch {
	case at == inArguments, (at == inContext || at == inBody) && name == "arguments":
		return inArguments
	case at == inBody && (name == "context" || name == "content"):
		return inContext
	}
	return elsewhere
}

// element is the place of an element of an array at a place.
func (at place) element() place {
	if at == inArguments {
		return at
	}
	return elsewhere
}

func (p *parser) value(depth int, at place) (Value, error) {
	if p.dec.PeekKind() == '"' {
		text, err := p.text()
		if err == nil {
			err = p.count()
		}
		return Value{kind: String, text: text}, err
	}
	tok, err := p.dec.ReadToken()
	if err != nil {
		return Value{}, p.syntax(err)
	}
	if err := p.count(); err != nil {
		return Value{}, err
	}
	switch tok.Kind() {
	case 'n':
		return Value{}, nil
	case 't', 'f':
		return Value{kind: Bool, text: tok.String()}, nil
	case '0':
		return Value{kind: Number, text: tok.String()}, nil
	}
	if depth++; depth > p.limits.Depth {
		return Value{}, p.limit("objects and arrays nest more than %d deep", p.limits.Depth)
	}
	if tok.Kind() == '[' {
		return p.array(depth, at.element())
	}
	return p.object(depth, at)
}

// count counts a value that was read.
func (p *parser) count() error {
	if p.values++; p.values > p.limits.Values {
		return p.limit("the body holds more than %d values", p.limits.Values)
	}
	return nil
}

// text reads a string, or the name of a member. To ask a token for it would read it twice.
func (p *parser) text() (string, error) {
	quoted, err := p.dec.ReadValue()
	if err != nil {
		return "", p.syntax(err)
	}
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1]), nil
	}
	text, err := jsontext.AppendUnquote(nil, quoted)
	return string(text), err
}

func (p *parser) array(depth int, at place) (Value, error) {
	base := len(p.stack)
	for p.dec.PeekKind() != ']' {
		v, err := p.value(depth, at)
		if err != nil {
			return Value{}, err
		}
		p.stack = append(p.stack, Member{Value: v})
	}
	return p.end(Array, base)
}

func (p *parser) object(depth int, at place) (Value, error) {
	base, sorted := len(p.stack), true
	for p.dec.PeekKind() != '}' {
		if p.dec.PeekKind() != '"' {
			_, err := p.dec.ReadToken() // there is nothing but a name that could stand here
			return Value{}, p.syntax(err)
		}
		name, err := p.text()
		if err != nil {
			return Value{}, err
		}
		if isReserved(name) {
			if p.reserved = true; p.batch == "" {
				return Value{}, reservedError(string(p.dec.StackPointer()), name)
			}
		}
		var v Value
		if p.batch != "" && depth == 1 && name == p.batch && p.dec.PeekKind() == '[' {
			v, err = p.items(depth)
		} else {
			v, err = p.value(depth, at.member(name))
		}
		if err != nil {
			return Value{}, err
		}
		if v.kind == Null && at != inArguments {
			continue
		}
		if n := len(p.stack); n > base && p.stack[n-1].Name > name {
			sorted = false
		}
		p.stack = append(p.stack, Member{name, v})
	}
	if !sorted {
		sortMembers(p.stack[base:])
	}
	return p.end(Map, base)
}

// items reads the items of a batch, an array like no other.
func (p *parser) items(depth int) (Value, error) {
	p.values++
	if _, err := p.dec.ReadToken(); err != nil {
		return Value{}, p.syntax(err)
	}
	base := len(p.stack)
	for p.dec.PeekKind() != ']' {
		v, err := p.value(depth+1, inBody)
		if err != nil {
			return Value{}, err
		}
		if p.stack = append(p.stack, Member{Value: v}); len(p.stack)-base > p.limits.Batch {
			return Value{}, beyond(pointerTo(p.batch), fmt.Sprintf("the batch has more than %d items", p.limits.Batch), "send several batches")
		}
	}
	return p.end(Array, base)
}

func isReserved(name string) bool { return name == "__entity" || name == "__extn" }

func reservedError(pointer, name string) *Error {
	return newError(pointer, "a member may not have this name", "rename it: "+name+" is how stored entities refer to each other, and a request must not")
}

func (p *parser) end(kind Kind, base int) (Value, error) {
	if _, err := p.dec.ReadToken(); err != nil {
		return Value{}, p.syntax(err)
	}
	v := Value{kind: kind}
	if base < len(p.stack) {
		v.elems = append(v.elems, p.stack[base:]...)
		p.stack = p.stack[:base]
	}
	return v, nil
}

func (p *parser) limit(format string, bound int) error {
	return beyond(string(p.dec.StackPointer()), fmt.Sprintf(format, bound), "send less")
}

func (p *parser) syntax(err error) error {
	pointer, offset := string(p.dec.StackPointer()), p.dec.InputOffset()
	var syn *jsontext.SyntacticError
	if errors.As(err, &syn) {
		pointer, offset = string(syn.JSONPointer), syn.ByteOffset
	}
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		return newError(pointer, "the member occurs twice", "send each member once: two readers of one body must not see two requests")
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return newError(pointer, "the JSON ends too early", "send the whole object")
	}
	return newError(pointer, fmt.Sprintf("not valid JSON at byte %d", offset), "check the syntax there: valid UTF-8, no lone surrogates, no comments, no trailing commas")
}
