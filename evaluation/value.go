package evaluation

import (
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Kind says which of JSON's forms a [Value] has.
type Kind uint8

// The kinds of a [Value]. The zero Value is Null.
const (
	Null Kind = iota
	Bool
	Number
	String
	Array
	Map
)

// Value is one JSON value, immutable. Numbers keep the text they were sent as,
// because 1, 1.0 and 1e0 are one number to JSON and must be one to a policy,
// and because 0.1 and 2^64 must not pass through a float on the way.
type Value struct {
	kind  Kind
	text  string   // Bool: "true" or "false"; Number: the literal; String: the decoded text
	elems []Member // Array: elements, without names; Map: members, sorted by name
}

// Member is one named value of an [Object].
type Member struct {
	Name  string
	Value Value
}

// Object is a JSON object that no reader can misread: names are unique, valid
// UTF-8, not reserved, and sorted; members that were null are gone, because to
// AuthZEN absent and null are the same. The zero Object is empty.
//
// Below the arguments of a call null members stay, because a tool may tell null from
// absent, and people approve the very call. Policies do not see them: Get, Members and Len
// pass them over. All, Equal and the writers of an object have them.
//
// Objects come from [Decode] and its siblings or from [NewObject]; there is no
// other way to make one, so that no reader has to check one.
type Object struct{ members []Member }

// Kind returns the form of v.
func (v Value) Kind() Kind { return v.kind }

// Text returns the decoded text of a String, the literal of a Number, and
// "true" or "false" for a Bool. It is empty for the other kinds.
func (v Value) Text() string { return v.text }

// True reports whether v is the Bool true.
func (v Value) True() bool { return v.kind == Bool && v.text == "true" }

// Object returns the members of a Map, and an empty Object for other kinds.
func (v Value) Object() Object {
	if v.kind != Map {
		return Object{}
	}
	return Object{v.elems}
}

// Elements yields the elements of an Array in order.
func (v Value) Elements(yield func(int, Value) bool) {
	if v.kind != Array {
		return
	}
	for i, e := range v.elems {
		if !yield(i, e.Value) {
			return
		}
	}
}

// Len is the number of elements of an Array or members of a Map.
func (v Value) Len() int {
	n := len(v.elems)
	if v.kind == Map {
		for _, m := range v.elems {
			if m.Value.kind == Null {
				n--
			}
		}
	}
	return n
}

// Equal reports whether two values are the same JSON, number literals compared
// as text.
func (v Value) Equal(w Value) bool {
	return v.kind == w.kind && v.text == w.text && slices.EqualFunc(v.elems, w.elems, func(a, b Member) bool {
		return a.Name == b.Name && a.Value.Equal(b.Value)
	})
}

// Contains reports whether a string in v, at any depth, or the name of a member contains a text.
func (v Value) Contains(text string) bool {
	if v.kind == String {
		return strings.Contains(v.text, text)
	}
	return slices.ContainsFunc(v.elems, func(m Member) bool {
		return strings.Contains(m.Name, text) || m.Value.Contains(text)
	})
}

// Text makes a String of s. It fails where s is not valid UTF-8.
func Text(s string) (Value, error) {
	if !utf8.ValidString(s) {
		return Value{}, &Error{Detail: "a string is not valid UTF-8"}
	}
	return Value{kind: String, text: s}, nil
}

// Texts makes an Array of Strings. It fails where one is not valid UTF-8.
func Texts(all []string) (Value, error) {
	list := make([]Value, len(all))
	for n, s := range all {
		var err error
		if list[n], err = Text(s); err != nil {
			return Value{}, err
		}
	}
	return List(list...), nil
}

// List makes an Array of values.
func List(all ...Value) Value {
	v := Value{kind: Array, elems: make([]Member, len(all))}
	for n, e := range all {
		v.elems[n].Value = e
	}
	return v
}

// Len is the number of members.
func (o Object) Len() int { return o.Value().Len() }

// Members yields the members sorted by name.
func (o Object) Members(yield func(string, Value) bool) {
	for n := range o.members {
		if m := &o.members[n]; m.Value.kind != Null && !yield(m.Name, m.Value) {
			return
		}
	}
}

// All yields the members sorted by name, those that are null among them: for who records a
// request, or shows it to people.
func (o Object) All(yield func(string, Value) bool) {
	for n := range o.members {
		if m := &o.members[n]; !yield(m.Name, m.Value) {
			return
		}
	}
}

// Get returns the member of that name.
func (o Object) Get(name string) (Value, bool) {
	i, ok := o.find(name)
	if !ok || o.members[i].Value.kind == Null {
		return Value{}, false
	}
	return o.members[i].Value, true
}

// Lookup is [Object.Get], and finds a member that is null too.
func (o Object) Lookup(name string) (Value, bool) {
	i, ok := o.find(name)
	if !ok {
		return Value{}, false
	}
	return o.members[i].Value, true
}

// find is where the member of a name is or would be, be it null or not.
func (o Object) find(name string) (int, bool) {
	from, to := 0, len(o.members)
	for from < to {
		switch n := int(uint(from+to) >> 1); strings.Compare(o.members[n].Name, name) {
		case 0:
			return n, true
		case 1:
			to = n
		default:
			from = n + 1
		}
	}
	return from, false
}

// Value returns o as a [Value] of kind Map.
func (o Object) Value() Value { return Value{kind: Map, elems: o.members} }

// With returns o with one more member, replacing one of the same name.
func (o Object) With(name string, v Value) Object {
	n, replaced := o.find(name)
	members := append(make([]Member, 0, len(o.members)+1), o.members[:n]...)
	if v.kind != Null {
		members = append(members, Member{name, v})
	}
	if replaced {
		n++
	}
	return Object{append(members, o.members[n:]...)}
}

// only returns o with no other member than that of a name.
func (o Object) only(name string) Object {
	n, ok := o.find(name)
	if !ok {
		return Object{}
	}
	return Object{o.members[n : n+1 : n+1]}
}

// Size is the length of o as text.
func (o Object) Size() int {
	text, _ := o.MarshalJSON() // which cannot fail
	return len(text)
}

// room is about the length of v as text: the same, if nothing in it has to be escaped.
func (v Value) room() int {
	n := len(v.text) + len(`"",`)
	for _, m := range v.elems {
		n += len(m.Name) + len(`"":`) + m.Value.room()
	}
	return n
}

// MapStrings returns o with every string in it, at any depth, replaced by what f
// makes of it. It fails where f does, or makes what is not valid UTF-8.
func (o Object) MapStrings(f func(string) (string, bool)) (Object, bool) {
	v, ok := o.Value().mapStrings(f)
	return v.Object(), ok
}

func (v Value) mapStrings(f func(string) (string, bool)) (Value, bool) {
	if v.kind == String {
		text, ok := f(v.text)
		return Value{kind: String, text: text}, ok && utf8.ValidString(text)
	}
	if len(v.elems) == 0 {
		return v, true
	}
	elems := slices.Clone(v.elems)
	for n, e := range elems {
		value, ok := e.Value.mapStrings(f)
		if !ok {
			return Value{}, false
		}
		elems[n].Value = value
	}
	return Value{kind: v.kind, elems: elems}, true
}

// ParseObject reads a JSON object by the rules of a request's body. It is read as such a body,
// and as a context alone: below arguments in either, null members stay.
func ParseObject(text []byte, limits Limits) (Object, error) { return parse(text, limits) }

// ParseWithNulls is [ParseObject] for what is no request yet, such as the parameters of a message: members that are
// null stay, wherever they stand. [Object.Lookup] and [Object.All] have them.
func ParseWithNulls(text []byte, limits Limits) (Object, error) {
	o, _, err := parseBody(text, limits, "", inArguments)
	return o, err
}

// Same reports whether o and p are one object, not only equal ones: the items
// of a batch share what they inherit.
func (o Object) Same(p Object) bool {
	return len(o.members) == len(p.members) && (len(o.members) == 0 || &o.members[0] == &p.members[0])
}

// Beside returns the members of o, and those of more that o has no member for.
func (o Object) Beside(more Object) Object {
	if more.Len() == 0 {
		return o
	}
	members := slices.Clone(o.members)
	for _, m := range more.members {
		if _, ok := o.find(m.Name); !ok {
			members = append(members, m)
		}
	}
	sortMembers(members)
	return Object{members}
}

// Without returns the members of o whose name drop does not report.
func (o Object) Without(drop func(name string) bool) Object {
	dropped := func(m Member) bool { return drop(m.Name) }
	rest := o.members
	for len(rest) > 0 && dropped(rest[0]) {
		rest = rest[1:]
	}
	if !slices.ContainsFunc(rest, dropped) {
		return Object{rest}
	}
	return Object{slices.DeleteFunc(slices.Clone(rest), dropped)}
}

// NewObject makes an Object of Go values, for callers that build a [Request]
// themselves: nil, bool, string, integers, float64, []any, []string,
// map[string]any, Value and Object. It holds them to the same rules as a body. Make a context
// whole: what was made without its arguments around it has lost its null members.
func NewObject(members map[string]any) (Object, error) {
	b, err := json.Marshal(members)
	if err != nil || !taken(members) { // the text of err may quote a value
		return Object{}, &Error{
			Detail: "a value has no JSON form here, or a string is not valid UTF-8",
			Try:    "use nil, bool, string, integers, float64 (no NaN and no infinity), []any, []string, map[string]any, Value or Object",
		}
	}
	return parse(b, DefaultLimits())
}

// taken reports whether NewObject takes a Go value. Of other types JSON would make something else: text of a
// json.Number, Base64 of a []byte.
func taken(v any) bool {
	other := func(v any) bool { return !taken(v) }
	switch v := v.(type) {
	case []any:
		return !slices.ContainsFunc(v, other)
	case map[string]any:
		return !slices.ContainsFunc(slices.Collect(maps.Values(v)), other)
	case nil, bool, string, float64, []string, Value, Object,
		int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64:
		return true
	}
	return false
}

// MarshalJSON writes v with members in order of their names.
func (v Value) MarshalJSON() ([]byte, error) { return v.append(make([]byte, 0, v.room())), nil }

// MarshalJSON writes o with members in order of their names.
func (o Object) MarshalJSON() ([]byte, error) { return o.Value().MarshalJSON() }

// AppendJSON appends the JSON of MarshalJSON.
func (o Object) AppendJSON(b []byte) []byte { return o.Value().append(b) }

func (v Value) append(b []byte) []byte { return new(valueWriter).append(b, v) }

// valueWriter writes values as they are, or in their canonical form; see [Value.AppendCanonical].
type valueWriter struct {
	canonical bool
	failed    bool // a number has no canonical form
}

func (w *valueWriter) append(b []byte, v Value) []byte {
	switch v.kind {
	case Null:
		return append(b, "null"...)
	case String:
		return appendString(b, v.text)
	case Array:
		b = appendList(append(b, '['), v.elems, func(b []byte, e Member) []byte { return w.append(b, e.Value) })
		return append(b, ']')
	case Map:
		members := v.elems
		if w.canonical {
			members = inUTF16(members)
		}
		b = appendList(append(b, '{'), members, func(b []byte, m Member) []byte {
			return w.append(append(appendString(b, m.Name), ':'), m.Value)
		})
		return append(b, '}')
	}
	if v.kind == Bool || !w.canonical {
		return append(b, v.text...)
	}
	b, ok := appendNumber(b, v.text)
	w.failed = w.failed || !ok
	return b
}

// appendString quotes s. Text from elsewhere than a body (a policy's
// annotation, say) may hold invalid UTF-8, which becomes U+FFFD.
func appendString(b []byte, s string) []byte {
	if !utf8.ValidString(s) { // which is far cheaper to ask than to mend
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	b, _ = jsontext.AppendQuote(b, s)
	return b
}

func sortMembers(members []Member) { slices.SortFunc(members, byName) }

func byName(a, b Member) int { return strings.Compare(a.Name, b.Name) }
