package toolschema

import (
	"slices"
	"strings"

	"policy-service/evaluation"
	"policy-service/pdp/visible"
)

// typesOf are the types that a schema says, without null, and if null is one of them. They are not known if it says none.
func typesOf(o evaluation.Object) (types []string, nullable, known bool) {
	if marked, _ := o.Get("nullable"); marked.True() {
		nullable = true
	}
	t, known := o.Get("type")
	switch {
	case !known:
		return typesOfValues(o, nullable)
	case t.Kind() == evaluation.String:
		types = []string{t.Text()}
	case t.Kind() == evaluation.Array:
		for _, e := range t.Elements {
			types = append(types, e.Text())
		}
	}
	slices.Sort(types)
	types = slices.Compact(types)
	if n := slices.Index(types, "null"); n >= 0 {
		types, nullable = slices.Delete(types, n, n+1), true
	}
	if slices.Contains(types, "number") { // each integer is a number
		types = slices.DeleteFunc(types, func(t string) bool { return t == "integer" })
	}
	return types, nullable, true
}

// typesOfValues are the types of the values that a schema lists.
func typesOfValues(o evaluation.Object, nullable bool) (types []string, null, known bool) {
	values, known := valuesOf(o)
	for _, v := range values {
		of := "constant"
		switch v.Kind() {
		case evaluation.Null:
			nullable = true
			continue
		case evaluation.String:
			of = "string"
		case evaluation.Bool:
			of = "boolean"
		case evaluation.Number:
			of = "number"
			if _, whole := v.Scaled(0); whole {
				of = "integer"
			}
		}
		types = append(types, of)
	}
	slices.Sort(types)
	return slices.Compact(types), nullable, known
}

// valuesOf are the values that a schema lists.
func valuesOf(o evaluation.Object) (values []evaluation.Value, known bool) {
	if v, ok := o.Lookup("const"); ok {
		return []evaluation.Value{v}, true
	}
	list, ok := o.Get("enum")
	if !ok || list.Kind() != evaluation.Array {
		return nil, false
	}
	for _, v := range list.Elements {
		values = append(values, v)
	}
	return values, true
}

// scalar is a type without parts.
func (r *reader) scalar(of string, o evaluation.Object, at string) *shape {
	format, _ := o.Get("format")
	switch {
	case of == "string" && format.Text() == "date-time":
		n := r.noteAt(at, "a date-time that Cedar cannot read, such as one with +02:00, is refused; Z and +0200 are read")
		n.Narrow = true
		r.note(n)
		return &shape{name: "datetime"}
	case of == "string" && (format.Text() == "ipv4" || format.Text() == "ipv6"):
		if format.Text() == "ipv6" {
			n := r.noteAt(at, "an address with an IPv4 address in it, such as ::ffff:192.0.2.1, is refused")
			n.Narrow = true
			r.note(n)
		}
		return &shape{name: "ipaddr"}
	case of == "string":
		return &shape{name: "String"}
	case of == "integer":
		return &shape{name: "Long"}
	case of == "boolean":
		return &shape{name: "Bool"}
	case of == "number":
		step, _ := o.Get("multipleOf")
		if n, exact := step.Scaled(4); step.Kind() == evaluation.Number && exact && n > 0 {
			return &shape{name: "decimal"}
		}
		r.leave(at, "a number that may have more than four digits behind the point; multipleOf would say that it has not")
		return nil
	}
	r.leave(at, "a value of no type that JSON Schema has")
	return nil
}

// plain is text of others for a comment: on one line, and what it looks like.
func plain(text string) string { return visible.Quoted(strings.ToValidUTF8(text, "\uFFFD")) }
