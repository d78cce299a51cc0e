package toolschema

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
)

// The limits of the types of one inputSchema.
const (
	maxDepth    = 12 // a request nests at most 16 deep
	maxOfTool   = 2_000
	maxFollowed = 4_000 // references and choices that are looked through
)

// cedarType is a type as it is written.
type cedarType struct {
	text string
	// record is whether it is a record, and needed whether no record can lack all of its members.
	record, needed bool
}

var empty = &cedarType{text: "{}", record: true}

// reader reads the inputSchema of one tool.
type reader struct {
	tool  *Tool
	root  evaluation.Object // the inputSchema
	notes []Note
	noted map[Note]bool
	types int
	// steps counts the schemas that were looked at. following are the references that are being followed. moved says that a
	// part of the document has an address of its own, by which references are read.
	steps     int
	following []string
	moved     bool
}

func (r *reader) noteAt(pointer, why string) Note {
	return Note{Server: r.tool.Server, Tool: r.tool.Name, Pointer: pointer, Why: why}
}

// leave notes that a value is left out.
func (r *reader) leave(at, why string) *cedarType {
	r.note(r.noteAt(at, why))
	return nil
}

func (r *reader) note(n Note) {
	if !r.noted[n] {
		r.noted[n] = true
		r.notes = append(r.notes, n)
	}
}

// arguments is the type of context.arguments. It is a record without members if nothing can be said.
func (r *reader) arguments() *cedarType {
	const at = "/inputSchema"
	input, given := r.tool.Definition.Get("inputSchema")
	if !given {
		r.leave(at, "the tool has none")
		return empty
	}
	r.root = input.Object()
	r.moved = moved(input, true)
	s, _ := r.read(input, at, 0)
	switch {
	case s == nil:
		return empty
	case !s.record:
		r.leave(at, "it is no schema of an object")
		return empty
	}
	return s
}

// moved reports if a schema inside has an address of its own.
func moved(v evaluation.Value, top bool) bool {
	if id, _ := v.Object().Get("$id"); !top && id.Kind() == evaluation.String {
		return true
	}
	for _, e := range v.Elements {
		if moved(e, false) {
			return true
		}
	}
	for _, e := range v.Object().Members {
		if moved(e, false) {
			return true
		}
	}
	return false
}

// read is the type of the values that a schema takes. It is nil if it is left out. nullable says that null is taken, too,
// which policies see as a member that is not there.
func (r *reader) read(v evaluation.Value, at string, depth int) (s *cedarType, nullable bool) {
	if r.steps++; r.steps > maxFollowed || r.types >= maxOfTool {
		return r.leave("/inputSchema", fmt.Sprintf("it comes to more than %d types; what is behind them is left out", maxOfTool)), false
	}
	switch {
	case depth > maxDepth:
		return r.leave(at, fmt.Sprintf("it is more than %d objects and arrays deep", maxDepth)), false
	case v.Kind() == evaluation.Bool && v.True():
		return r.leave(at, "any value"), false
	case v.Kind() == evaluation.Bool:
		return r.leave(at, "no value"), false
	case v.Kind() != evaluation.Map:
		return r.leave(at, "no schema"), false
	}
	o := v.Object()
	if ref, ok := o.Get("$ref"); ok {
		marked, _ := o.Get("nullable")
		r.leaveBeside(o, at, "properties", "allOf", "anyOf", "oneOf")
		s, null := r.follow(ref, at, depth)
		return s, null || marked.True()
	}
	types, nullable, known := typesOf(o)
	if !known {
		s, null := r.choice(o, at, depth)
		return s, null || nullable
	}
	r.leaveBeside(o, at, "allOf", "anyOf", "oneOf")
	if len(types) != 1 {
		why := "values of several types"
		if len(types) == 0 {
			why = "null alone"
		}
		return r.leave(at, why), nullable
	}
	r.types++
	switch types[0] {
	case "array":
		s = r.array(o, at, depth)
	case "object":
		s = r.record(o, at, depth)
	default:
		s = r.scalar(types[0], o, at)
	}
	return s, nullable
}

// leaveBeside notes keywords whose members the type does not declare: those of names, and those that depend on a value.
func (r *reader) leaveBeside(o evaluation.Object, at string, names ...string) {
	for _, name := range append(names, "then", "else", "dependentSchemas") {
		if _, ok := o.Get(name); ok {
			r.leave(at+"/"+name, "what stands beside it is said, and not what it adds")
		}
	}
}

// choice is the type of a schema that says no type itself. A choice of one, and of one or null, is that one.
func (r *reader) choice(o evaluation.Object, at string, depth int) (*cedarType, bool) {
	var of string
	for _, name := range []string{"allOf", "anyOf", "oneOf"} {
		if _, ok := o.Get(name); ok && of != "" {
			return r.leave(at, "several choices"), false
		} else if ok {
			of = name
		}
	}
	if of == "" {
		return r.leave(at, "a value of any type"), false
	}
	branches, _ := o.Get(of)
	found, n, nullable := evaluation.Value{}, -1, false
	for i, b := range branches.Elements {
		if of != "allOf" && isNull(b) {
			nullable = true
			continue
		}
		if n >= 0 {
			return r.leave(at+"/"+of, "a choice of several schemas"), false
		}
		found, n = b, i
	}
	if n < 0 {
		return r.leave(at+"/"+of, "no value, or null alone"), false
	}
	s, null := r.read(found, fmt.Sprintf("%s/%s/%d", at, of, n), depth)
	return s, nullable || null
}

// isNull reports if a schema takes null and nothing else.
func isNull(v evaluation.Value) bool {
	types, nullable, known := typesOf(v.Object())
	return known && nullable && len(types) == 0
}

// array is a set, if all elements are of one type.
func (r *reader) array(o evaluation.Object, at string, depth int) *cedarType {
	items, given := o.Get("items")
	if _, tuple := o.Get("prefixItems"); tuple || items.Kind() == evaluation.Array {
		return r.leave(at, "an array whose elements have types by their places")
	}
	if !given {
		return r.leave(at, "an array of any elements")
	}
	element, nullable := r.read(items, at+"/items", depth+1)
	switch {
	case nullable:
		return r.leave(at, "an array with null among its elements")
	case element == nil:
		return r.leave(at, "an array of what is left out")
	}
	return &cedarType{text: "Set<" + element.text + ">"}
}

// record is a record of the properties that can be said.
func (r *reader) record(o evaluation.Object, at string, depth int) *cedarType {
	properties, _ := o.Get("properties")
	more, given := o.Get("additionalProperties")
	open := given && (more.Kind() == evaluation.Map || more.True())
	patterns, _ := o.Get("patternProperties")
	if properties.Len() == 0 && depth > 0 && (!given || open) || properties.Len() == 0 && patterns.Len() > 0 {
		r.leave(at, "an object of any members")
		if depth > 0 {
			return nil
		}
		return empty
	}
	if open {
		r.leave(at+"/additionalProperties", "members of any name")
	}
	if patterns.Len() > 0 {
		r.leave(at+"/patternProperties", "members of any name")
	}
	required := map[string]bool{}
	list, _ := o.Get("required")
	for _, name := range list.Elements {
		required[name.Text()] = name.Kind() == evaluation.String
	}
	s := &cedarType{record: true}
	var members strings.Builder
	for name, p := range properties.Object().Members {
		place := string(jsontext.Pointer(at + "/properties").AppendToken(name))
		if name == "" || len(name) > maxName {
			r.leave(at+"/properties", fmt.Sprintf("a property whose name is empty, or has more than %d bytes", maxName))
			continue
		}
		if of, nullable := r.read(p, place, depth+1); of != nil {
			optional := nullable || !required[name]
			s.needed = s.needed || !optional
			members.WriteString("  " + bare(name) + mark(optional) + ": " + strings.ReplaceAll(of.text, "\n", "\n  ") + ",\n")
		}
	}
	if s.text = empty.text; members.Len() > 0 {
		s.text = "{\n" + members.String() + "}"
	}
	return s
}

// follow reads the target of a reference. It must be in the same document. Other readers ignore what stands beside it, or
// take it as well: either way the value is one that the target takes.
func (r *reader) follow(ref evaluation.Value, at string, depth int) (*cedarType, bool) {
	fragment, inside := strings.CutPrefix(ref.Text(), "#")
	pointer, err := url.PathUnescape(fragment)
	switch {
	case ref.Kind() != evaluation.String || !inside || err != nil || pointer != "" && pointer[0] != '/':
		return r.leave(at, "a reference that leads out of the definition, or by a name"), false
	case r.moved:
		return r.leave(at, "a reference in a schema of which a part has an address of its own ($id)"), false
	case slices.Contains(r.following, pointer):
		return r.leave(at, "a schema within itself"), false
	}
	target, found := r.root.Value(), true
	for _, token := range evaluation.Tokens(pointer) {
		if target, found = below(target, token); !found {
			return r.leave(at, "a reference to what is not there"), false
		}
	}
	r.following = append(r.following, pointer)
	defer func() { r.following = r.following[:len(r.following)-1] }()
	return r.read(target, "/inputSchema"+pointer, depth)
}

// below is the value at one step of a JSON Pointer.
func below(v evaluation.Value, token string) (evaluation.Value, bool) {
	if v.Kind() == evaluation.Map {
		return v.Object().Get(token)
	}
	at, err := strconv.Atoi(token)
	for n, e := range v.Elements {
		if n == at && err == nil {
			return e, true
		}
	}
	return evaluation.Value{}, false
}

// typesOf are the types that a schema says, without null, and if null is one of them. They are not known if it says none.
func typesOf(o evaluation.Object) (types []string, nullable, known bool) {
	marked, _ := o.Get("nullable")
	nullable = marked.True()
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
	values, _ := o.Get("enum")
	if v, ok := o.Lookup("const"); ok {
		values = evaluation.List(v)
	}
	for _, v := range values.Elements {
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
	return slices.Compact(types), nullable, values.Kind() == evaluation.Array
}

func (r *reader) scalar(of string, o evaluation.Object, at string) *cedarType {
	format, _ := o.Get("format")
	switch {
	case of == "string" && format.Text() == "date-time":
		n := r.noteAt(at, "a date-time that Cedar cannot read, such as one with +02:00, is refused; Z and +0200 are read")
		n.Narrow = true
		r.note(n)
		return &cedarType{text: "datetime"}
	case of == "string" && (format.Text() == "ipv4" || format.Text() == "ipv6"):
		if format.Text() == "ipv6" {
			n := r.noteAt(at, "an address with an IPv4 address in it, such as ::ffff:192.0.2.1, is refused")
			n.Narrow = true
			r.note(n)
		}
		return &cedarType{text: "ipaddr"}
	case of == "string":
		return &cedarType{text: "String"}
	case of == "integer":
		return &cedarType{text: "Long"}
	case of == "boolean":
		return &cedarType{text: "Bool"}
	case of == "number":
		step, _ := o.Get("multipleOf")
		if n, exact := step.Scaled(4); step.Kind() == evaluation.Number && exact && n > 0 {
			return &cedarType{text: "decimal"}
		}
		return r.leave(at, "a number that may have more than four digits behind the point; multipleOf would say that it has not")
	}
	return r.leave(at, "a value of no type that JSON Schema has")
}
