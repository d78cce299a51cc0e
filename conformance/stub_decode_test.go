package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// How the stub reads a body.

// stubError is a refusal and where it is.
type stubError struct{ pointer, detail string }

func (e *stubError) Error() string { return e.pointer + ": " + e.detail }

func wrong(detail, pointer string) error { return &stubError{pointer, detail} }

// object is a parsed JSON object.
type object = map[string]any

// parse reads a body strictly, but for what a fault lets pass.
func (s *stub) parse(body []byte) (object, error) {
	if s.skipsBOM {
		body = bytes.TrimPrefix(body, []byte("\ufeff"))
	}
	valid := jsontext.Value(body).IsValid(jsontext.AllowDuplicateNames(s.takesDuplicates), jsontext.AllowInvalidUTF8(s.takesAnyBytes))
	if !valid && !s.takesTrailing {
		return nil, wrong("no JSON that everybody reads alike", "")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil {
		return nil, wrong("no JSON", "")
	}
	o, ok := value.(object)
	if !ok {
		return nil, wrong("not an object", "")
	}
	return o, s.bounded(o, 1, 0, "")
}

// bounded enforces the limits and the reserved names, for all but items of a
// batch: those have errors of their own.
func (s *stub) bounded(v any, depth, arrays int, pointer string) error {
	if depth > 16 {
		return wrong("too deep", pointer)
	}
	switch v := v.(type) {
	case object:
		for name, inner := range v {
			if err := s.bounded(inner, depth+1, arrays, pointer+"/"+name); err != nil {
				return err
			}
		}
	case []any:
		nested := slices.ContainsFunc(v, func(e any) bool { _, o := e.(object); _, a := e.([]any); return o || a })
		limit := 4096
		if nested {
			limit = 128
		}
		if pointer == "/evaluations" {
			arrays, limit = -1, 1000
		}
		if len(v) > limit || arrays >= 2 {
			return wrong("too many elements", pointer)
		}
		for n, inner := range v {
			if err := s.bounded(inner, depth+1, arrays+1, pointer+"/"+strconv.Itoa(n)); err != nil {
				return err
			}
		}
	}
	return nil
}

// reserved finds __entity and __extn.
func reserved(v any, pointer string) error {
	switch v := v.(type) {
	case object:
		for name, inner := range v {
			if name == "__entity" || name == "__extn" {
				return wrong("reserved", pointer+"/"+name)
			}
			if err := reserved(inner, pointer+"/"+name); err != nil {
				return err
			}
		}
	case []any:
		for n, inner := range v {
			if err := reserved(inner, pointer+"/"+strconv.Itoa(n)); err != nil {
				return err
			}
		}
	}
	return nil
}

// fields takes members out of objects and keeps the first thing that is wrong.
type fields struct {
	stub *stub
	err  error
}

func (f *fields) fail(detail, pointer string) {
	if f.err == nil {
		f.err = wrong(detail, pointer)
	}
}

// get is a member, absent where it is null.
func (f *fields) get(o object, name string) (any, bool) {
	v, ok := o[name]
	if v == nil && !f.stub.nullIsPresent {
		return nil, false
	}
	return v, ok
}

func (f *fields) object(o object, pointer, name string, required bool) object {
	v, ok := f.get(o, name)
	if !ok {
		if required {
			f.fail("missing", pointer+"/"+name)
		}
		return nil
	}
	inner, ok := v.(object)
	if !ok {
		f.fail("not an object", pointer+"/"+name)
	}
	return inner
}

func (f *fields) text(o object, pointer, name string) string {
	v, ok := f.get(o, name)
	if !ok {
		f.fail("missing", pointer+"/"+name)
		return ""
	}
	s, ok := v.(string)
	if !ok && f.stub.coerces {
		s, ok = fmt.Sprint(v), true
	}
	if !ok {
		f.fail("not a string", pointer+"/"+name)
	}
	return s
}

// entity reads a subject or a resource; one that is searched for needs a type only.
func (f *fields) entity(o object, name string, sought bool) stubEntity {
	inner := f.object(o, "", name, true)
	if inner == nil {
		return stubEntity{}
	}
	e := stubEntity{typ: f.text(inner, "/"+name, "type")}
	if sought {
		return e
	}
	e.id = f.text(inner, "/"+name, "id")
	e.sent = f.object(inner, "/"+name, "properties", false)
	if _, isName := e.sent["owner"].(string); e.typ == "record" && e.sent["owner"] != nil && !isName {
		f.fail("not a name", "/"+name+"/properties/owner")
	}
	return e
}

// stubQuestion is a request of any endpoint.
type stubQuestion struct {
	subject, resource stubEntity
	action            string
	properties        object
}

// question reads one. What is sought is "subject", "resource", "action" or nothing.
func (s *stub) question(o object, sought string) (stubQuestion, error) {
	f := &fields{stub: s}
	if err := reserved(o, ""); err != nil {
		return stubQuestion{}, err
	}
	q := stubQuestion{subject: f.entity(o, "subject", sought == "subject"), resource: f.entity(o, "resource", sought == "resource")}
	if sought != "action" {
		a := f.object(o, "", "action", true)
		if a != nil {
			q.action, q.properties = f.text(a, "/action", "name"), f.object(a, "/action", "properties", false)
		}
	}
	context := f.object(o, "", "context", false)
	for _, name := range []string{"action", "pdp"} {
		if _, ok := context[name]; ok && f.err == nil {
			f.fail("the PDP's", "/context/"+name)
		}
	}
	return q, f.err
}
