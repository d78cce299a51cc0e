package coaz_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/evaluation/coaz"
	"policy-service/pdp/pdptest/night"
)

// bombs are mappings that a server could declare to make its PEP work, or to have its callers make it. Each is an error,
// or comes to an end within the bounds of the package.
func bombs(t testing.TB) map[string]string {
	leaf := func(e string) string { return contextOf(t, "$"+e) }
	many := func(n int, s string) string { return strings.Repeat(s, n) }
	return map[string]string{
		"10 MB":                      contextWith(`"` + many(10<<20, "x") + `"`),
		"10,000 entries":             `{"evaluations": {"resource": {"type": "t", "id": "i"}, "evaluations": [` + many(9999, `{"action": {"name": "a"}},`) + `{"action": {"name": "a"}}]}}`,
		"1,000 entries of one byte":  `{"evaluations": {"resource": {"type": "t", "id": "i"}, "action": {"name": "a"}, "evaluations": [` + many(999, `{},`) + `{}]}}`,
		"a long expression":          leaf("'" + many(4000, "x") + "'"),
		"deep literals":              contextWith(many(150, `{"a":`) + `1` + many(150, `}`)),
		"deep parentheses":           leaf(many(1000, "(") + "1" + many(1000, ")")),
		"deep lists":                 leaf(many(500, "[") + many(500, "]")),
		"deep conditions":            leaf(many(200, "(true?") + "1" + many(200, ":1)")),
		"nested comprehensions":      leaf("params.l.map(a, params.l.map(b, params.l.map(c, params.l.map(d, d))))"),
		"comprehensions of literals": leaf("[1].map(a, " + many(7, "[1,2,3,4,5,6,7,8,9].map(b, ") + "1" + many(8, ")")),
		"doubled lists":              leaf("[1]" + many(100, ".map(a, [a, a])")),
		"doubled lists, few":         leaf("[1]" + many(8, ".map(a, [a,a,a,a,a,a,a,a])")),
		"doubled types":              leaf("[1]" + many(60, ".map(a, {a: a})")),
		"doubled types of values":    leaf("[1]" + many(8, ".map(a, {'a': a, 'b': a})")),
		"doubled sums":               leaf("[[1]]" + many(8, ".map(a, a + a + a + a + a + a + a + a)")),
		"doubled text":               leaf("['x']" + many(8, ".map(a, a + a + a + a + a + a + a + a)")),
		"doubled argument":           leaf("params.s" + many(30, " + params.s")),
		"compared doubles":           leaf("[[1]]" + many(7, ".map(a, [a, a, a, a])") + ".map(a, a == a)"),
		"optional values":            leaf(many(60, "optional.of(") + "1" + many(60, ")")),
		"optional macros":            leaf("optional.of([1])" + many(40, ".optMap(a, [a, a])")),
		"a pattern of a million":     leaf("params.s.matches('(x{1000}){1000}')"),
		"a wide pattern":             leaf("params.s.matches('" + many(200, "x{1000}") + "')"),
		"a slow pattern":             leaf("params.l.exists(a, params.m.matches('(x?){90}y'))"),
		"a slow pattern of letters":  leaf(`params.s.matches('(\\pL|\\pN){40}z')`),
		"a pattern of the caller":    leaf("params.s.matches(params.s)"),
		"a pattern by another name":  leaf("params.l.exists(a, .matches(params.m, params.p))"),
		"a wide one by it":           leaf(".matches(params.m, '" + many(200, "x{1000}") + "')"),
		"conversions":                leaf("params.l.exists(a, int(params.s) == 1)"),
		"copies":                     leaf("params.l.map(a, params.s)"),
		"all of it, many times":      leaf("params.l.map(a, params)"),
		"all of it compared":         leaf("params.l.exists(a, params == params)"),
		"a search in a search":       leaf("params.l.exists(a, params.t.exists(b, b.contains(params.m)))"),
		"many costly expressions":    contextWith(`[` + many(200, `"$params.l.exists(a, a == 2)",`) + `1]`),
		"errors that are absorbed":   leaf("params.l.exists(a, params[params.s] == 1)"),
		"an error that holds it all": leaf("params.l.exists(a, [?dyn(params.t)] == [])"),
		"thousands of copies":        contextWith(`[` + many(2000, `"$params.s",`) + `1]`),
		"thousands of built copies":  contextWith(`[` + many(2000, `"$[params.u]",`) + `1]`),
		"copies in each entry":       `{"evaluations": {"resource": {"type": "t", "id": "i"}, "action": {"name": "a"}, "evaluations": [` + many(63, `{"context": {"x": "$params"}},`) + `{}]}}`,
		"names, over and over":       leaf("params.l.all(a, params.o.exists(k, true))"),
		"an object, compared":        leaf("params.l.all(a, params.o != a)"),
		"an object, looked for":      leaf("params.l.all(a, !(params.o in [a]))"),
		"an object, in an optional":  leaf("params.l.all(a, !params.?o.hasValue(a))"),
		"a built list, compared":     leaf("[optional.of(params.l + [1])].all(b, params.l.all(a, b != optional.of(a)))"),
		"a built list, looked for":   leaf("[params.l + [1]].all(b, params.l.all(a, !(b in [a])))"),
		"a long number":              leaf("params.l.all(a, params.f > 0)"),
		"a long number, compared":    contextWith(`[` + many(800, `"$params.f==1",`) + `1]`),
		"thousands of expressions":   contextWith(`[` + many(6000, `"$1",`) + `1]`),
		"hundreds of macros":         contextWith(`[` + many(280, `"$[1]`+many(8, ".map(a, [a, a])")+`",`) + `1]`),
		"hundreds of patterns":       contextWith(`[` + many(1000, `"$''.matches('x{300}')",`) + `1]`),
		"patterns in an expression":  leaf(many(60, "''.matches('^(?:a|b|ab|x){99}$')||") + "true"),
		"hundreds of nested maps":    contextWith(`[` + many(140, `"$`+many(31, "{'a':")+"1"+many(31, "}")+`",`) + `1]`),
		"mistakes all over":          leaf(many(30, "''.matches('^(?:a|b|ab|x){99}$')||") + "''.matches('" + many(27, "''.matches('^(?:a|b|ab|x){99}$')||") + "true"),
		"messages":                   leaf("google.protobuf.Any{type_url: params.s}"),
	}
}

// greedy are arguments as large as a request may be.
func greedy(t testing.TB) coaz.Operation {
	t.Helper()
	many := func(n int, s string) string { return strings.TrimSuffix(strings.Repeat(s+",", n), ",") }
	return operationOf(t, `{"method": "tools/call", "token": {"sub": "alice"}, "params": {"s": "`+strings.Repeat("x", 500_000)+`", "m": "`+strings.Repeat("x", 1000)+`", "p": "`+strings.Repeat("x{1000}", 300)+`", "u": "`+strings.Repeat("x", 150_000)+`",
		"y": 1e400, "f": 0.5`+strings.Repeat("0", 500_000)+`, "o": {`+strings.TrimSuffix(strings.ReplaceAll(manyMembers(4000), ":1,", ":0.5,"), ",")+`},
		"l": [`+many(4000, "1")+`], "t": [`+many(4000, `"`+strings.Repeat("y", 100)+`"`)+`]}}`)
}

// TestMaliciousMappings has each bomb end in an error, or within the bounds of the package.
func TestMaliciousMappings(t *testing.T) {
	t.Parallel()
	dropBombs(t, func(f func()) uint64 { f(); return 0 })
}

// TestMemoryOfMaliciousMappings counts what each bomb allocates: other processes do not change that, as they do times.
func TestMemoryOfMaliciousMappings(t *testing.T) {
	night.Measures(t)
	dropBombs(t, allocated)
}

// dropBombs compiles each bomb and asks it. What either takes is bounded, in bytes that measured says.
func dropBombs(t *testing.T, measured func(func()) uint64) {
	t.Helper()
	const mostCompiling, mostAsking = 64 << 20, 16 << 20
	b := newBinding(t, coaz.Options{})
	op := greedy(t)
	for name, mapping := range bombs(t) {
		t.Run(name, func(t *testing.T) {
			definition := tool(t, mapping)
			var m *coaz.Mapping
			var err error
			compiling := measured(func() { m, err = b.Parse(definition) })
			if compiling > mostCompiling {
				t.Errorf("compiling it takes %d bytes", compiling)
			}
			if err != nil {
				mappingError(t, err)
				return
			}
			var q coaz.Questions
			asking := measured(func() { q, err = m.Questions(op) })
			if asking > mostAsking {
				t.Errorf("asking takes %d bytes", asking)
			}
			if err != nil {
				mappingError(t, err)
			} else if size := len(q.Envelopes[0].Body); size > 1<<20 {
				t.Errorf("the question has %d bytes", size)
			}
		})
	}
}

// A long number that an expression compares costs what reading it does, where another number has all of them read.
func TestLongNumbersCost(t *testing.T) {
	t.Parallel()
	mapping := contextWith(`[` + strings.Repeat(`"$params.n==1",`, 9) + `1]`)
	for digits, fits := range map[int]bool{2: true, 20_000: false} {
		op := operationOf(t, `{"method": "tools/call", "token": {"sub": "alice"}, "params": {"y": 1e400, "n": 0.5`+strings.Repeat("0", digits)+`}}`)
		if _, err := declare(t, newBinding(t, coaz.Options{}), mapping).Questions(op); (err == nil) != fits {
			t.Errorf("%d digits: %v", digits, err)
		}
	}
}

// The older dialect has no cost that could run out: it copies.
func TestMaliciousOlderMapping(t *testing.T) {
	t.Parallel()
	askOlderBomb(t, func(f func()) uint64 { f(); return 0 })
}

func TestMemoryOfMaliciousOlderMapping(t *testing.T) {
	night.Measures(t)
	askOlderBomb(t, allocated)
}

func askOlderBomb(t *testing.T, measured func(func()) uint64) {
	t.Helper()
	m, err := newBinding(t, coaz.Options{}).Parse(object(t, sepTool(older(t, "context", `{"x": [`+strings.Repeat(`"$.properties",`, 1500)+`"$.token.sub"]}`))))
	if err != nil {
		t.Fatal(err)
	}
	op := operationOf(t, `{"method": "tools/call", "token": {"sub": "alice"}, "params": {"arguments": {"id": "i", "s": "`+strings.Repeat("x", 500_000)+`"}}}`)
	if used := measured(func() { _, err = m.Questions(op) }); used > 16<<20 {
		t.Errorf("asking takes %d bytes", used)
	}
	if wrong := mappingError(t, err); !strings.Contains(wrong.Detail, "more than 1048576 bytes") || !strings.HasPrefix(wrong.Pointer, "/context/x/") || wrong.Expression != "$.properties" {
		t.Errorf("%+v", wrong)
	}
}

func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestLiars are declared mappings that would have the PDP asked about something else than the call. What cannot be told
// from an honest mapping is for the PEP, which asks its own question beside it; the subject it cannot choose.
func TestLiars(t *testing.T) {
	t.Parallel()
	const victim = `{"id": "$params.arguments.user"}`
	b := newBinding(t, coaz.Options{})
	op := operationOf(t, `{"method": "tools/call", "params": {"name": "delete_all", "arguments": {"user": "root", "action": "read", "context": {"approval_id": "apr_1"}, "entity": {"type": "t", "id": "i"}}},
		"token": {"sub": "alice", "client_id": "agent-1"}}`)
	for name, mapping := range map[string]string{
		"the subject is an argument":       single(map[string]string{"subject": victim}),
		"the subject is constant":          single(map[string]string{"subject": `{"id": "root"}`}),
		"the subject is another claim":     single(map[string]string{"subject": `{"id": "$token.client_id"}`}),
		"the subject is computed":          single(map[string]string{"subject": `{"id": "$token.sub == 'alice' ? 'root' : token.sub"}`}),
		"the subject is a whole argument":  single(map[string]string{"subject": `"$params.arguments.entity"`}),
		"an entry has a subject":           `{"evaluations": {"resource": {"type": "t", "id": "i"}, "action": {"name": "a"}, "evaluations": [{"subject": ` + victim + `}]}}`,
		"a second envelope":                `{"evaluation": {"action": {"name": "a"}, "resource": {"type": "t", "id": "i"}}, "evaluations": {"evaluations": [{}]}}`,
		"the first permit decides":         `{"evaluations": {"options": {"evaluations_semantic": "permit_on_first_permit"}, "resource": {"type": "t", "id": "i"}, "action": {"name": "a"}, "evaluations": [{}]}}`,
		"an approval is presented":         single(map[string]string{"context": `{"approval_id": "apr_1"}`}),
		"an approval from the arguments":   single(map[string]string{"context": `"$params.arguments.context"`}),
		"an approval in an entry":          `{"evaluations": {"resource": {"type": "t", "id": "i"}, "action": {"name": "a"}, "evaluations": [{"context": {"approved": true}}]}}`,
		"it says that it was approved":     single(map[string]string{"context": `{"justification": "approved"}`}),
		"it declares obligations":          single(map[string]string{"context": `{"supported_obligations": ["redact"]}`}),
		"it sets what the PDP knows":       single(map[string]string{"context": `{"pdp": {"approved": true}}`}),
		"it sets the action's attributes":  single(map[string]string{"context": `"${'action': {'impact': 'read'}}"`}),
		"a reference into the PDP's store": single(map[string]string{"context": `"${'x': {'__entity': {'type': 'User', 'id': 'root'}}}"`}),
		"variables of operators":           single(map[string]string{"resource": `{"type": "t", "id": "$server.name"}`}),
	} {
		m, err := b.Parse(tool(t, mapping))
		var q coaz.Questions
		if err == nil {
			q, err = m.Questions(op)
		}
		if err == nil {
			t.Errorf("%s: %s", name, q.Envelopes[0].Body)
			continue
		}
		mappingError(t, err)
	}
	// A caller cannot put what is between PEP and PDP into what an operator's mapping copies; the operator himself can.
	for mapping, ok := range map[string]bool{
		single(map[string]string{"context": `"$params.arguments.context"`}):                              false,
		single(map[string]string{"context": `{"approval_id": "$params.arguments.context.approval_id"}`}): true,
	} {
		m, err := b.Compile(object(t, mapping), coaz.AuthZEN)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Questions(op); (err == nil) != ok {
			t.Errorf("%s: %v", mapping, err)
		}
	}
}

// TestNothingFallsBack: a caller who leaves out an argument, or sends null, does not have the default beside the entries
// asked about instead.
func TestNothingFallsBack(t *testing.T) {
	t.Parallel()
	for _, own := range []string{
		`"resource": {"type": "object", "id": "$params.arguments.to"}`, `"resource": {"type": "object", "id": "$params.arguments.?to"}`,
		`"resource": {"type": "object", "id": "$params.arguments.?gone"}`, `"resource": {"type": "$params.arguments.to", "id": "x"}`,
		`"resource": "$params.arguments.?gone"`, `"resource": "$params.arguments.to"`, `"resource": "$params.arguments.half"`, `"resource": "$params.arguments.none"`,
		`"action": {"name": "$params.arguments.to"}`, `"action": "$params.arguments.none"`, `"action": "$params.arguments.?gone"`,
	} {
		text := `{"evaluations": {"subject": {"type": "user", "id": "$token.sub"}, "resource": {"type": "object", "id": "public"}, "action": {"name": "read"},
			"evaluations": [{}, {` + own + `}]}}`
		op := operationOf(t, `{"method": "tools/call", "params": {"arguments": {"to": null, "half": {"type": "object", "id": null}, "none": {}}}, "token": {"sub": "alice"}}`)
		b := newBinding(t, coaz.Options{})
		ofOperator, err := b.Compile(object(t, text), coaz.AuthZEN)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range []*coaz.Mapping{declare(t, b, text), ofOperator} {
			q, err := m.Questions(op)
			if err == nil {
				t.Errorf("%s: %s", own, q.Envelopes[0].Body)
				continue
			}
			if wrong := mappingError(t, err); !strings.HasPrefix(wrong.Pointer, "/evaluations/evaluations/1/") || wrong.Expression == "" {
				t.Errorf("%s: %+v", own, wrong)
			}
		}
	}
}

// TestLimits goes one beyond each bound, and not beyond it.
func TestLimits(t *testing.T) {
	t.Parallel()
	limits := coaz.Limits{Mapping: 400, Depth: 4, Entries: 2, Expression: 50, Cost: 60, Values: 50, Request: evaluation.DefaultLimits()}
	entries := func(n int) string {
		return `{"evaluations": {"resource": {"type": "t", "id": "i"}, "evaluations": [` + strings.TrimSuffix(strings.Repeat(`{"action": {"name": "a"}},`, n), ",") + `]}}`
	}
	for _, row := range []struct{ within, beyond, detail string }{
		{contextWith(`"` + strings.Repeat("x", 280) + `"`), contextWith(`"` + strings.Repeat("x", 400) + `"`), "more than 400 bytes"},
		{contextWith(`[{"a": [1]}]`), contextWith(`{"a": [[{"b": 1}]]}`), "more than 4 levels"},
		{entries(2), entries(3), "more than 2 entries"},
		{contextWith(`"$` + strings.Repeat(" ", 48) + `1"`), contextWith(`"$` + strings.Repeat(" ", 49) + `1"`), "more than 50 bytes in one expression"},
		{contextWith(`"$[1,2].all(x, x > 0)"`), contextWith(`"$[1,2,3,4,5,6,7,8,9,10,11,12].all(x, x>0)"`), "more than 60 units of cost"},
		{contextWith(`["$[1,2].all(x, x > 0)"]`), contextWith(`["$[1,2].all(x, x > 0)", "$[1,2].all(x, x > 0)", "$[1,2].all(x, x > 0)"]`), "more than 60 units of cost"},
		{contextWith(`"$[params.arguments.s]"`), contextWith(`"$[params.arguments.t]"`), "more than 50 values"},
	} {
		b, err := coaz.NewWithin(coaz.Options{}, limits)
		if err != nil {
			t.Fatal(err)
		}
		ask := func(mapping string) error {
			m, err := b.Parse(tool(t, mapping))
			if err != nil {
				return err
			}
			_, err = m.Questions(operationOf(t, fmt.Sprintf(`{"method": "tools/call", "params": {"arguments": {"s": "%s", "t": "%s"}}, "token": {"sub": "alice"}}`, strings.Repeat("x", 400), strings.Repeat("x", 600))))
			return err
		}
		if err := ask(row.within); err != nil {
			t.Errorf("within the bound: %v: %s", err, row.within)
		}
		if err := ask(row.beyond); err == nil || !strings.Contains(err.Error(), row.detail) {
			t.Errorf("beyond the bound (%s): %v: %s", row.detail, err, row.beyond)
		}
	}
}

// TestLimitsOfAnExpression goes one beyond each bound of what an expression is made of, and not beyond it.
func TestLimitsOfAnExpression(t *testing.T) {
	t.Parallel()
	many := strings.Repeat
	for _, row := range [][3]string{
		{"$[1]" + many(".map(a, 1)", 8), "$[1]" + many(".map(a, 1)", 9), "more than 8 macros in one expression"},
		{"$[" + many("[],", 30) + "[]]", "$[" + many("[],", 31) + "[]]", "more than 32 lists, maps and optional values in one expression"},
		{"$[" + many("{},", 30) + "{}]", "$[" + many("{},", 31) + "{}]", "more than 32 lists, maps and optional values in one expression"},
		{"$[" + many("optional.of(1).value(),", 30) + "optional.of(1).value()]", "$[" + many("optional.of(1).value(),", 31) + "optional.of(1).value()]", "more than 32 lists, maps and optional values in one expression"},
		{"$'x'.matches('" + many("x", 999) + "')", "$'x'.matches('" + many("x", 1000) + "')", "more than 1000 steps in a pattern"},
		{"$" + many("(", 25) + "1" + many(")", 25), "$" + many("(", 70) + "1" + many(")", 70), "nests too deep"},
		{"$size(params.few) == 1000", "$size(params.many) == 200000", "more than 10000 units of cost"},
	} {
		ask := func(leaf string) error {
			m, err := newBinding(t, coaz.Options{}).Parse(tool(t, contextOf(t, leaf)))
			if err == nil {
				_, err = m.Questions(operationOf(t, `{"method": "tools/call", "token": {"sub": "alice"}, "params": {"few": "`+many("x", 1000)+`", "many": "`+many("x", 200_000)+`"}}`))
			}
			return err
		}
		if err := ask(row[0]); err != nil {
			t.Errorf("within the bound: %v: %s", err, row[0])
		}
		if err := ask(row[1]); err == nil || !strings.Contains(mappingError(t, err).Detail, row[2]) {
			t.Errorf("beyond the bound (%s): %v: %s", row[2], err, row[1])
		}
	}
}

// TestLimitsOfAllExpressions goes one beyond each bound of what all expressions of a mapping are made of, and not beyond it.
func TestLimitsOfAllExpressions(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		leaf   string
		within int
		detail string
	}{
		{"$1 + 1", 1365, "more than 4096 parts in all expressions"},
		{"$[1].exists(a, true)", 128, "more than 128 macros in all expressions"},
		{"$[1]", 256, "more than 256 lists, maps and optional values in all expressions"},
		{"$'x'.matches('x{99}')", 13, "more than 4000 steps in all patterns"},
	} {
		for n, refused := range map[int]bool{row.within: false, row.within + 1: true} {
			_, err := newBinding(t, coaz.Options{}).Parse(tool(t, contextWith(`[`+strings.Repeat(`"`+row.leaf+`",`, n)+`1]`)))
			if refused != (err != nil) || refused && mappingError(t, err).Detail != row.detail {
				t.Errorf("%d of %s: %v", n, row.leaf, err)
			}
		}
	}
}

// TestMatchingIsBounded: a pattern takes time for each of its steps and each byte of a text. It fails before it takes
// much, and what it takes costs.
func TestMatchingIsBounded(t *testing.T) {
	t.Parallel()
	op := operationOf(t, `{"method": "tools/call", "token": {"sub": "alice"}, "params": {"few": "`+strings.Repeat("x", 1000)+`", "many": "`+strings.Repeat("x", 2500)+`", "l": [1, 2, 3, 4, 5]}}`)
	for leaf, detail := range map[string]string{
		"$params.few.matches('LONG')":                     "",
		"$params.many.matches('LONG')":                    "a text is too long for the pattern that it is matched with",
		"$params.l.exists(a, params.few.matches('LONG'))": "more than 10000 units of cost for all expressions",
	} {
		_, err := declare(t, newBinding(t, coaz.Options{}), contextOf(t, strings.ReplaceAll(leaf, "LONG", strings.Repeat("x", 600)+"y"))).Questions(op)
		if (err != nil) != (detail != "") || err != nil && mappingError(t, err).Detail != detail {
			t.Errorf("%s: %v", leaf, err)
		}
	}
}

// TestRequestLimits: what a mapping makes of the arguments is bounded as the PDP bounds a request.
func TestRequestLimits(t *testing.T) {
	t.Parallel()
	m := declare(t, newBinding(t, coaz.Options{}), single(map[string]string{"context": `{"arguments": "$params.arguments"}`}))
	for arguments, want := range map[string][2]string{
		`{"m": [[1, 2], [3]]}`:       {},
		`{"m": [[[1.5]], [[null]]]}`: {},
		`{"m": [` + strings.TrimSuffix(strings.Repeat("1,", 10_000), ",") + `]}`:      {},
		`{"m": [` + strings.TrimSuffix(strings.Repeat(`{"a": 1},`, 5000), ",") + `]}`: {},
		`{"m": "` + strings.Repeat("x", 1<<20) + `"}`:                                 {"/evaluation", "more than 1048576 bytes"},
		`{"m": ` + strings.Repeat(`{"a":`, 20) + `1` + strings.Repeat(`}`, 20) + `}`:  {"/evaluation/context/arguments/m" + strings.Repeat("/a", 13), "more than 16 deep"},
		`{"m": {` + strings.TrimSuffix(manyMembers(20_001), ",") + `}}`:               {"/evaluation/context/arguments/m", "more than 20000 values"},
	} {
		_, err := m.Questions(operationOf(t, `{"method": "tools/call", "params": {"arguments": `+arguments+`}, "token": {"sub": "alice"}}`))
		if want == [2]string{} {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		wrong := mappingError(t, err)
		if !strings.HasPrefix(wrong.Pointer, want[0]) || !strings.Contains(wrong.Detail, want[1]) || want[0] != "/evaluation" && wrong.Expression != "$params.arguments" {
			t.Errorf("%s: %s %q, want %s", wrong.Pointer, wrong.Detail, wrong.Expression, want)
		}
	}
}

func manyMembers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"m%d":1,`, i)
	}
	return b.String()
}
