package coaz_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"unicode"

	"policy-service/evaluation"
	"policy-service/evaluation/coaz"
)

// TestAnyValueIsALiteral writes generated JSON as literals: what comes out is equal to it, its numbers as they were
// written and its null members among them. In the arguments the request has them too.
func TestAnyValueIsALiteral(t *testing.T) {
	t.Parallel()
	b := newBinding(t, coaz.Options{})
	op := operationOf(t, `{"method": "tools/call", "token": {"sub": "alice"}}`)
	for seed := range uint64(2000) {
		g := generator{rand.New(rand.NewPCG(seed, 1))}
		text := g.json(4, false)
		want := value(t, []byte(text))
		q, err := declare(t, b, `{"evaluation": {"resource": {"type": "r", "id": "1"}, "action": {"name": "a"},
			"context": {"x": `+asLiteral(t, want)+`, "arguments": {"x": `+asLiteral(t, want)+`}}}}`).Questions(op)
		if err != nil {
			t.Fatalf("seed %d: %v in %s", seed, err, text)
		}
		body, _ := object(t, string(q.Envelopes[0].Body)).Get("context")
		sent, _ := body.Object().Lookup("x")
		arguments, _ := q.Requests[0].Context.Get("arguments")
		asked, _ := arguments.Object().Lookup("x")
		if !sent.Equal(want) || !asked.Equal(want) {
			t.Fatalf("seed %d: %s and %s came out of %s", seed, jsonOf(t, sent), jsonOf(t, asked), text)
		}
	}
}

// asLiteral writes a value so that a mapping takes it as it is.
func asLiteral(t testing.TB, v evaluation.Value) string {
	t.Helper()
	switch v.Kind() {
	case evaluation.String:
		if strings.HasPrefix(v.Text(), "$") {
			return string(jsonOf(t, "$"+v.Text()))
		}
	case evaluation.Array:
		var all []string
		for _, e := range v.Elements {
			all = append(all, asLiteral(t, e))
		}
		return "[" + strings.Join(all, ",") + "]"
	case evaluation.Map:
		var all []string
		for name, m := range v.Object().All {
			all = append(all, string(jsonOf(t, name))+":"+asLiteral(t, m))
		}
		return "{" + strings.Join(all, ",") + "}"
	}
	return string(jsonOf(t, v))
}

// generator makes JSON at random, and expressions in CEL.
type generator struct{ *rand.Rand }

func (g generator) of(options ...string) string { return options[g.IntN(len(options))] }

// json makes a value that a request may hold: arrays are at most two deep, and hold no null if none says so.
func (g generator) json(depth int, inArray bool) string {
	switch n := g.IntN(10); {
	case depth > 0 && n < 2:
		var members []string
		for i := range g.IntN(4) {
			members = append(members, fmt.Sprintf("%q:%s", g.of("a", "$", "$$b", "", "x y", "ä", "~/")+fmt.Sprint(i), g.json(depth-1, inArray)))
		}
		return "{" + strings.Join(members, ",") + "}"
	case depth > 0 && n < 4 && !inArray:
		var elements []string
		for range g.IntN(4) {
			elements = append(elements, g.json(depth-1, true))
		}
		return "[" + strings.Join(elements, ",") + "]"
	case n < 6:
		return g.of("0", "1", "-1", "1.0", "1e3", "-0", "0.10", "9007199254740993", "18446744073709551616", "1e400", "3.141592653589793238462643383", "-2.5E-7")
	case n < 7:
		return g.of("true", "false", "null")
	}
	return g.of(`""`, `"$"`, `"$$"`, `"$token.sub"`, `"$$token.sub"`, `"text"`, `"$.token.sub"`, `"\u0000\n\"\\"`, `"🙂$"`, `"$$$"`, `"a$b"`, `" $x"`)
}

// TestErrorsQuoteNoValue lets mappings fail in every way on arguments and claims that hold a marker: no error has it.
func TestErrorsQuoteNoValue(t *testing.T) {
	t.Parallel()
	const marker = "s3cr3tZq"
	op := operationOf(t, `{"method": "tools/call", "params": {"name": "`+marker+`", "arguments": {"s": "`+marker+`", "n": 123456789987654321, "d": 1234567.8987654, "huge": 98765432109876543210987,
		"l": ["`+marker+`", "$`+marker+`"], "m": {"k": "`+marker+`"}, "t": "2026-01-01T00:00:00`+marker+`"}}, "token": {"sub": "`+marker+`", "aud": ["`+marker+`", "x"], "exp": 123456789987654321}}`)
	secrets := []string{marker, "123456789987654321", "1234567.8987654", "98765432109876543210987"}
	failures := 0
	check := func(what string, err error) {
		if err == nil {
			return
		}
		failures++
		for _, secret := range secrets {
			if text := fmt.Sprintf("%v %+v %#v", err, err, err); strings.Contains(text, secret) {
				t.Errorf("%s: the error has %s: %s", what, secret, text)
			}
		}
	}
	leaves := []string{
		"$params.arguments.no", "$params.arguments[params.arguments.s]", "$params[params.name]", "$int(params.arguments.s)", "$double(params.arguments.s)", "$uint(params.arguments.s)",
		"$timestamp(params.arguments.t) == timestamp(params.arguments.s)", "$duration(params.arguments.s) == duration('1s')", "$bool(params.arguments.s)", "$params.arguments.l[params.arguments.n]",
		"$params.arguments.l[params.arguments.s]", "$params.arguments.s + params.arguments.n", "$params.arguments.n * params.arguments.n", "$params.arguments.huge + 1", "$params.arguments.huge == 1",
		"$params.arguments.s / 0", "$params.arguments.n / 0", "$params.arguments.s.k", "$params.arguments.s.?k", "$[?dyn(optional.of(params.arguments.s))]", "$[params.?name]", "$params.arguments.m[1]", "$bytes(params.arguments.s)",
		"$params.arguments.s.matches(params.arguments.s)", "$[params.arguments.s].all(x, x)", "$dyn(params.arguments.s) < 5", "$uint(-params.arguments.n)", "$int(params.arguments.d * 1e300)", "$-params.arguments.s",
		"$params.arguments.s ? 1 : 2", "$params.arguments.s && true", "$size(params.arguments.n)", "$params.arguments.s in params.arguments.s", "$string(bytes(params.arguments.s) + b'\\xff')",
		"$timestamp(params.arguments.n) > timestamp(params.arguments.n * 1000)", "$params.arguments.l.map(x, int(x))", "${'a': params.arguments.l.map(x, type(x))}",
	}
	for _, o := range []coaz.Options{{}, {Override: coaz.WarnOverride}, {Resource: "https://mcp.example.com"}} {
		b := newBinding(t, o)
		for _, leaf := range leaves {
			for _, mapping := range []string{
				contextOf(t, leaf), single(map[string]string{"resource": `{"type": "t", "id": ` + string(jsonOf(t, leaf)) + `}`}), single(map[string]string{"context": string(jsonOf(t, leaf))}),
				single(map[string]string{"subject": `{"id": ` + string(jsonOf(t, leaf)) + `}`}), single(map[string]string{"resource": string(jsonOf(t, leaf))}),
			} {
				m, err := b.Parse(tool(t, mapping))
				if err == nil {
					_, err = m.Questions(op)
				}
				check(leaf, err)
			}
		}
		for method := range defaultTexts(t) {
			m, _ := b.Default(method)
			op.Method = method
			_, err := m.Questions(op)
			check(method, err)
		}
		op.Method = "tools/call"
	}
	if failures < 300 {
		t.Errorf("only %d mappings failed", failures)
	}
}

// TestErrorsAreOneLine: neither who wrote a mapping nor who calls writes lines into a log, or long ones.
func TestErrorsAreOneLine(t *testing.T) {
	t.Parallel()
	const name = "x\n2026-11-22 permitted \x1b[2K\u202e\u0000"
	long := strings.Repeat("n", 100_000)
	b := newBinding(t, coaz.Options{})
	op := operationOf(t, `{"method": "tools/call", "token": {"sub": "alice"}, "params": {"arguments": {"odd": {`+string(jsonOf(t, name))+`: 1}, "long": {"type": "t", "id": "i", "`+long+`": 1}, "entity": {"`+long+`": 1}}}}`)
	for _, mapping := range []string{
		contextWith(`{` + string(jsonOf(t, name)) + `: "$params.no"}`),
		single(map[string]string{"resource": `{"type": "t", "id": "i", ` + string(jsonOf(t, name)) + `: 1}`}),
		single(map[string]string{"resource": `"$params.arguments.odd"`}), single(map[string]string{"resource": `"$params.arguments.long"`}),
		single(map[string]string{"subject": `"$params.arguments.entity"`}), contextOf(t, "$1 + \n\x1b[2K\u202e"), contextOf(t, "$x.\u2028"),
		`{` + string(jsonOf(t, name)) + `: {}}`,
	} {
		m, err := b.Parse(tool(t, mapping))
		if err == nil {
			_, err = m.Questions(op)
		}
		text := mappingError(t, err).Error()
		if len(text) > 2000 || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%d bytes: %.2000q", len(text), text)
		}
	}
}

// TestQuestionsAreDeterministic asks many times, and from many goroutines: the answers are the same bytes.
func TestQuestionsAreDeterministic(t *testing.T) {
	t.Parallel()
	b := newBinding(t, coaz.Options{})
	m := declare(t, b, contextWith(`{"map": "${'z': 1, 'y': {'x': 2, 'w': 3}, 'v': 4, 'u': 5, 't': 6}", "keys": "${'z': 1, 'y': 2, 'x': 3, 'w': 4, 'v': 5, 'u': 6}.map(k, k)",
		"mixed": "${1: 'a', 'b': 2, true: 3, 4u: 5}.map(k, string(k))", "params": "$params.arguments.map(k, k)", "all": "$params.arguments", "pattern": "$params.arguments.id.matches('^i-[0-9]+$')", "has": "$params.?name.hasValue('t')", "eq": "${'a': 1, 'b': 2} == {'b': 2, 'a': 1}"}`))
	op := operationOf(t, asked)
	first, err := m.Questions(op)
	if err != nil {
		t.Fatal(err)
	}
	if want := `"keys":["u","v","w","x","y","z"]`; !strings.Contains(string(first.Envelopes[0].Body), want) {
		t.Errorf("%s", first.Envelopes[0].Body)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				q, err := m.Questions(op)
				if err != nil || string(q.Envelopes[0].Body) != string(first.Envelopes[0].Body) {
					t.Errorf("%v %s", err, q.Envelopes[0].Body)
					return
				}
			}
		})
	}
	all.Wait()
}
