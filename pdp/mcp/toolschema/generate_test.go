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
	// value is JSON as a client sends it, and as Cedar reads it with a schema; theirs is nil if the schema leaves it out.
	value func() (sent string, theirs any)
	// asks is a condition about what stands at a path, "" if policies cannot ask about it.
	asks func(at string) string
}

// making makes arguments by chance.
type making struct{ *rand.Rand }

func (m making) pick(of ...string) string { return of[m.IntN(len(of))] }

func (m making) text() string { return m.pick("", "a", "ab", "b*", "é\n", `"q"`, "\u202e") }

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
	if depth > 2 {
		n = m.IntN(7)
	}
	switch n {
	case 0, 1:
		return m.textKind()
	case 2:
		return m.wholeKind()
	case 3:
		return m.decimalKind()
	case 4:
		return kind{`{"type":"boolean"}`, func() (string, any) { v := m.IntN(2) == 0; return encode(v), v }, func(at string) string { return m.pick(at, "!"+at, at+" == true") }}
	case 5:
		return m.timeKind()
	case 6:
		return m.addressKind()
	case 7:
		return m.leftOut()
	case 8:
		return m.setKind(depth)
	}
	return m.recordKind(depth)
}

func (m making) textKind() kind {
	return kind{m.pick(`{"type":"string"}`, `{"enum":["","a","ab","b*","é\n","\"q\"","\u202e"]}`, `{"type":"string","format":"uri"}`),
		func() (string, any) { v := m.text(); return encode(v), v },
		func(at string) string {
			return m.pick(at+" == "+literal(m.text()), at+` like "a*"`, at+` like "\*"`, "["+literal(m.text())+", "+literal(m.text())+"].contains("+at+")", at+" != "+at)
		}}
}

func (m making) wholeKind() kind {
	return kind{m.pick(`{"type":"integer"}`, `{"type":["integer"],"minimum":-9007199254740991}`),
		func() (string, any) {
			v := []int64{0, 1, -1, 7, 1 << 31, 1<<53 - 1, -(1<<53 - 1), m.Int64N(100)}[m.IntN(8)]
			return fmt.Sprint(v) + m.pick("", ".0", "e0", ".00"), v
		},
		func(at string) string {
			return m.pick(at+" < 5", at+" >= 1", at+" + 1 == 8", at+" * 9007199254740991 > 0", "-"+at+" == 1", at+" == "+fmt.Sprint(m.IntN(9)))
		}}
}

func (m making) decimalKind() kind {
	return kind{`{"type":"number","multipleOf":` + m.pick("0.01", "0.5", "1", "0.0001") + `}`,
		func() (string, any) {
			n := m.IntN(200) - 100
			sign := ""
			if n < 0 {
				sign, n = "-", -n
			}
			return fmt.Sprintf("%s%d%s", sign, n, m.pick("", ".0", ".000", "e0")), fmt.Sprintf("%s%d.0", sign, n)
		},
		func(at string) string {
			return m.pick(at+`.lessThan(decimal("1.5"))`, at+`.greaterThanOrEqual(decimal("-3.0"))`, at+` == decimal("`+fmt.Sprint(m.IntN(9))+`.0000")`)
		}}
}

func (m making) timeKind() kind {
	return kind{`{"type":"string","format":"date-time"}`,
		func() (string, any) {
			v := m.pick("2024-10-15T11:35:00Z", "2024-10-15T11:35:00.250Z", "1969-12-31T23:59:59Z", "2024-02-29T00:00:00+0230", "2999-01-01T00:00:00.000-0800")
			return encode(v), v
		},
		func(at string) string {
			return m.pick(at+` < datetime("2024-10-15T11:35:00.100Z")`, at+` == datetime("2024-10-15T11:35:00Z")`, at+`.offset(duration("1h")) > context.pdp.now`, at+`.durationSince(context.pdp.now) < duration("-1d")`, at+" >= context.pdp.now")
		}}
}

func (m making) addressKind() kind {
	four := m.IntN(2) == 0
	return kind{`{"type":"string","format":"` + map[bool]string{true: "ipv4", false: "ipv6"}[four] + `"}`,
		func() (string, any) {
			v := m.pick("::1", "fe80::1", "2001:db8::ff00:42:8329", "ff02::1")
			if four {
				v = m.pick("10.1.2.3", "127.0.0.1", "255.255.255.255", "224.0.0.1")
			}
			return encode(v), v
		},
		func(at string) string {
			return m.pick(at+".isIpv4()", at+".isLoopback()", at+`.isInRange(ip("10.0.0.0/8"))`, at+".isMulticast()", at+` == ip("::1")`)
		}}
}

// leftOut has forms that the schema cannot say.
func (m making) leftOut() kind {
	return kind{m.pick(`{}`, `{"type":"number"}`, `{"type":"object"}`, `{"type":["string","integer"]}`, `{"oneOf":[{"type":"string"},{"type":"integer"}]}`, `{"type":"array","items":{}}`),
		nil, func(string) string { return "" }}
}

// anyOfLeftOut is a value of such a form.
func (m making) anyOfLeftOut(schema string) string {
	switch {
	case strings.Contains(schema, "number"):
		return m.pick("1.5", "1e300", "0.1234567")
	case strings.Contains(schema, "object"):
		return m.pick("{}", `{"a":null,"b":[1.5]}`)
	case strings.Contains(schema, "array"):
		return m.pick("[]", `[null,1.5,"a"]`)
	}
	return m.pick(`"a"`, "5")
}

func (m making) setKind(depth int) kind {
	of := m.kind(depth + 1)
	sets := func() (string, any) {
		var sent []string
		theirs := []any{}
		for range m.IntN(4) {
			s, t := m.valueOf(of)
			sent, theirs = append(sent, s), append(theirs, t)
		}
		if of.value == nil {
			return "[" + strings.Join(sent, ",") + "]", nil
		}
		return "[" + strings.Join(sent, ",") + "]", theirs
	}
	k := kind{`{"type":"array","items":` + of.schema + `}`, sets, func(at string) string {
		return m.pick(at+".isEmpty()", at+".containsAll("+at+")", at+" == "+at, at+".containsAny("+at+")")
	}}
	if of.value == nil || isLeftOutSet(of) {
		k.value, k.asks = nil, of.asks
	}
	return k
}

func isLeftOutSet(k kind) bool { return k.value == nil }

// valueOf is a value of a kind. Theirs is nil if it is left out.
func (m making) valueOf(k kind) (sent string, theirs any) {
	if k.value != nil {
		return k.value()
	}
	if inner, ok := strings.CutPrefix(k.schema, `{"type":"array","items":`); ok && inner != "{}}" {
		return "[]", nil
	}
	return m.anyOfLeftOut(k.schema), nil
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
		base := p.kind
		if p.nullable {
			base.schema = strings.TrimSuffix(strings.TrimPrefix(p.schema, `{"anyOf":[`), `,{"type":"null"}]}`)
		}
		s, t := m.valueOf(base)
		sent = append(sent, encode(p.name)+":"+s)
		if p.value != nil {
			theirs[p.name] = t
		}
	}
	if m.IntN(4) == 0 {
		sent = append(sent, `"undeclared":[null,1.5]`)
	}
	return "{" + strings.Join(sent, ",") + "}", theirs
}

func (m making) recordKind(depth int) kind {
	all := m.properties(depth)
	return kind{schemaOf(all), func() (string, any) { s, t := m.object(all); return s, t }, func(at string) string { return m.asked(all, at, true) }}
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
