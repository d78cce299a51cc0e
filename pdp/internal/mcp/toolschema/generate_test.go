package toolschema_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
)

// kind is a form of argument: what the inputSchema says of it, how a value of it is made, and what a policy asks about it.
type kind struct {
	schema string
	// value is JSON as a client sends it, and as Cedar reads it with a schema. It is nil if the schema leaves the argument out:
	// then left are values as a client sends them.
	value func() (sent string, theirs any)
	// asks is a condition about what stands at a path, "" if policies cannot ask about it.
	asks func(at string) string
	left []string
}

// scalars are the forms without parts. In a condition @ is the place. A number is sent with one of the ends behind it.
var scalars = []struct {
	schemas []string
	values  []any // as Cedar reads them
	ends    []string
	asks    []string
}{
	{
		[]string{`{"type":"string"}`, `{"enum":["","a","ab","b*","é\n","\"q\"","\u202e"]}`, `{"type":"string","format":"uri"}`},
		[]any{"", "a", "ab", "b*", "é\n", `"q"`, "\u202e"}, nil,
		[]string{`@ == "a"`, `@ == "\u{e9}\u{a}"`, `@ like "a*"`, `@ like "\*"`, `["\u{202e}", "b*"].contains(@)`, `@ != @`},
	},
	{
		[]string{`{"type":"integer"}`, `{"type":["integer"],"minimum":-9007199254740991}`},
		[]any{0, 1, -1, 7, 42, 1 << 31, 1<<53 - 1, -(1<<53 - 1)}, []string{"", ".0", "e0", ".00"},
		[]string{"@ < 5", "@ >= 1", "@ + 1 == 8", "@ * 9007199254740991 > 0", "-@ == 1", "@ == 7"},
	},
	{
		[]string{`{"type":"number","multipleOf":0.01}`, `{"type":"number","multipleOf":0.5}`, `{"type":"number","multipleOf":1}`, `{"type":"number","multipleOf":0.0001}`},
		[]any{"-100.0", "-3.0", "-1.0", "0.0", "1.0", "8.0", "99.0"}, []string{"", ".0", ".000", "e0"},
		[]string{`@.lessThan(decimal("1.5"))`, `@.greaterThanOrEqual(decimal("-3.0"))`, `@ == decimal("8.0000")`},
	},
	{[]string{`{"type":"boolean"}`}, []any{true, false}, nil, []string{"@", "!@", "@ == true"}},
	{
		[]string{`{"type":"string","format":"date-time"}`},
		[]any{"2024-10-15T11:35:00Z", "2024-10-15T11:35:00.250Z", "1969-12-31T23:59:59Z", "2024-02-29T00:00:00+0230", "2999-01-01T00:00:00.000-0800"}, nil,
		[]string{
			`@ < datetime("2024-10-15T11:35:00.100Z")`, `@ == datetime("2024-10-15T11:35:00Z")`, `@.offset(duration("1h")) > context.pdp.now`,
			`@.durationSince(context.pdp.now) < duration("-1d")`, "@ >= context.pdp.now",
			`@.toTime() > duration("1h")`, `@.toDate() == datetime("1969-12-31")`,
		},
	},
	{[]string{`{"type":"string","format":"ipv4"}`}, []any{"10.1.2.3", "127.0.0.1", "255.255.255.255", "224.0.0.1"}, nil, askedOfAddresses},
	{[]string{`{"type":"string","format":"ipv6"}`}, []any{"::1", "fe80::1", "2001:db8::ff00:42:8329", "ff02::1"}, nil, askedOfAddresses},
}

var askedOfAddresses = []string{"@.isIpv4()", "@.isLoopback()", `@.isInRange(ip("10.0.0.0/8"))`, "@.isMulticast()", `@ == ip("::1")`}

// leftOut are forms that the schema cannot say.
var leftOut = []kind{
	{schema: `{}`, left: []string{`"a"`, "5"}},
	{schema: `{"type":"number"}`, left: []string{"1.5", "1e300", "0.1234567"}},
	{schema: `{"type":"object"}`, left: []string{"{}", `{"a":null,"b":[1.5]}`}},
	{schema: `{"type":["string","integer"]}`, left: []string{`"a"`, "5"}},
	{schema: `{"oneOf":[{"type":"string"},{"type":"integer"}]}`, left: []string{`"a"`, "5"}},
	{schema: `{"type":"array","items":{}}`, left: []string{"[]", `[null,1.5,"a"]`}},
}

// making makes arguments by chance.
type making struct{ *rand.Rand }

func (m making) pick(of ...string) string { return of[m.IntN(len(of))] }

func literal(text string) string {
	var b strings.Builder
	for _, r := range text {
		fmt.Fprintf(&b, `\u{%x}`, r)
	}
	return `"` + b.String() + `"`
}

func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func (m making) kind(depth int) kind {
	n := m.IntN(11)
	switch {
	case n == 0:
		k := leftOut[m.IntN(len(leftOut))]
		k.asks = func(string) string { return "" }
		return k
	case n > 8 && depth <= 2:
		return m.recordKind(depth)
	case n == 8 && depth <= 2:
		return m.setKind(depth)
	}
	of := scalars[m.IntN(len(scalars))]
	value := func() (string, any) {
		v := of.values[m.IntN(len(of.values))]
		if of.ends == nil {
			return encode(v), v
		}
		return strings.TrimSuffix(fmt.Sprint(v), ".0") + m.pick(of.ends...), v
	}
	return kind{m.pick(of.schemas...), value, func(at string) string { return strings.ReplaceAll(m.pick(of.asks...), "@", at) }, nil}
}

func (m making) setKind(depth int) kind {
	of := m.kind(depth + 1)
	schema := `{"type":"array","items":` + of.schema + `}`
	if of.value == nil {
		return kind{schema, nil, of.asks, []string{"[]"}}
	}
	sets := func() (string, any) {
		var sent []string
		theirs := []any{}
		for range m.IntN(4) {
			s, t := of.value()
			sent, theirs = append(sent, s), append(theirs, t)
		}
		return "[" + strings.Join(sent, ",") + "]", theirs
	}
	asks := func(at string) string {
		return m.pick(at+".isEmpty()", at+".containsAll("+at+")", at+" == "+at, at+".containsAny("+at+")")
	}
	return kind{schema, sets, asks, nil}
}

// property is a property of an object.
type property struct {
	name               string
	required, nullable bool
	kind
}

func (m making) properties(depth int) (all []property) {
	for n := range 1 + m.IntN(4) {
		p := property{name: m.pick("a", "in", "a b", "type", "é", "x") + fmt.Sprint(n), required: m.IntN(2) == 0, kind: m.kind(depth + 1)}
		if n == 0 && m.IntN(3) == 0 {
			p.name = m.pick("in", "has", "__cedar", "context", "Set")
		}
		if m.IntN(6) == 0 {
			p.nullable, p.schema = true, `{"anyOf":[`+p.schema+`,{"type":"null"}]}`
		}
		all = append(all, p)
	}
	return all
}

func schemaOf(all []property) string {
	var members, required []string
	for _, p := range all {
		members = append(members, encode(p.name)+":"+p.schema)
		if p.required {
			required = append(required, encode(p.name))
		}
	}
	return `{"type":"object","properties":{` + strings.Join(members, ",") + `},"required":[` + strings.Join(required, ",") + `]}`
}

func (m making) object(all []property) (string, map[string]any) {
	var sent []string
	theirs := map[string]any{}
	for _, p := range all {
		if !p.required && m.IntN(3) == 0 {
			continue
		}
		if p.nullable && m.IntN(3) == 0 {
			sent = append(sent, encode(p.name)+":null")
			continue
		}
		if p.value == nil {
			sent = append(sent, encode(p.name)+":"+m.pick(p.left...))
			continue
		}
		s, t := p.value()
		sent, theirs[p.name] = append(sent, encode(p.name)+":"+s), t
	}
	if m.IntN(4) == 0 {
		sent = append(sent, `"undeclared":[null,1.5]`)
	}
	return "{" + strings.Join(sent, ",") + "}", theirs
}

func (m making) recordKind(depth int) kind {
	all := m.properties(depth)
	return kind{schemaOf(all), func() (string, any) { s, t := m.object(all); return s, t }, func(at string) string { return m.asked(all, at, true) }, nil}
}

// asked is a condition about one of the properties. guarded asks with has before it reads what may be missing.
func (m making) asked(all []property, at string, guarded bool) string {
	p := all[m.IntN(len(all))]
	place := at + "[" + literal(p.name) + "]"
	condition := p.asks(place)
	switch {
	case condition == "":
		return ""
	case guarded && (!p.required || p.nullable):
		return "(" + at + " has " + literal(p.name) + " && " + condition + ")"
	}
	return condition
}
