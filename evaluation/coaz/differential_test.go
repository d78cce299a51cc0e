package coaz_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/evaluation/coaz"
	"policy-service/pdp/pdptest/night"
	"policy-service/pdp/pdptest/npm"
)

// TestOtherImplementations holds what expressions yield to other implementations of CEL, which npm has: @bufbuild/cel,
// and for optional values, which that one lacks, @marcbachmann/cel-js.
func TestOtherImplementations(t *testing.T) {
	t.Parallel()
	night.Npm(t)
	dir := others(t)
	b := newBinding(t, coaz.Options{})
	var cases []comparison
	for seed := range uint64(3000) {
		cases = append(cases, generated(seed))
	}
	answers := npm.Answers[comparison, answer](t, dir, cases)
	equal, failed := 0, 0
	explained := map[string]int{}
	for n, c := range cases {
		ours, err := evaluated(t, b, c)
		theirs := answers[n]
		same := (err != nil) == (theirs.Error != "")
		if same && err == nil {
			same = ours == theirs.text(t)
		}
		switch why := difference(c, err, theirs); {
		case same && err != nil:
			failed++
		case same:
			equal++
		case why != "":
			explained[why]++
		default:
			t.Errorf("seed %d: %s on %s\nours:   %s %v\ntheirs: %s %s (%s)", n, c.Expression, c.arguments, ours, err, theirs.text(t), theirs.Error, c.Engine)
		}
	}
	t.Logf("%d equal, %d fail in both, explained %v", equal, failed, explained)
	if equal < 1500 || failed < 50 {
		t.Errorf("only %d results are equal, and %d fail in both: the generator makes too little of it", equal, failed)
	}
	for n, a := range npm.Answers[comparison, answer](t, dir, avoidedCases()) {
		d := avoided[n]
		ours, err := evaluated(t, b, comparison{Expression: d.expression, arguments: `{}`})
		if err != nil {
			ours = "error"
		}
		theirs := a.text(t)
		if a.Error != "" {
			theirs = "error"
		}
		if ours != d.ours || theirs != d.theirs {
			t.Errorf("%s: %s here and %s there, where %s and %s are known", d.expression, ours, theirs, d.ours, d.theirs)
		}
	}
	for _, d := range differences {
		if explained[d.why] == 0 {
			t.Errorf("no expression differs any more because %s: delete the line", d.why)
		}
	}
}

// differences are the known ones, each with its reason.
var differences = []struct {
	why  string
	when func(c comparison, ours error, theirs answer) bool
}{
	{"JSON has neither infinity nor NaN: the expression fails here", func(_ comparison, ours error, theirs answer) bool {
		text := fmt.Sprint(theirs.Value)
		return ours != nil && (strings.Contains(text, "Infinity") || strings.Contains(text, "NaN"))
	}},
	{"cel-go guesses the type of what is in [] from the first operation on it: the expression is refused, or fails", func(c comparison, ours error, _ answer) bool {
		return ours != nil && strings.Contains(c.Expression, "[]") &&
			(strings.Contains(ours.Error(), "types in the expression do not fit") || strings.Contains(ours.Error(), "a type that the operation does not take"))
	}},
	{"cel-js finds the operators for what is in [] ambiguous", func(c comparison, _ error, theirs answer) bool {
		return c.Engine == "cel-js" && strings.Contains(c.Expression, "[]") && strings.Contains(theirs.Error, "overlaps with")
	}},
}

// avoided are differences that the generator keeps away from, because they would hide others. Each is what the other implementation does, and not what the language says.
var avoided = []struct{ engine, expression, theirs, ours string }{
	{"bufbuild", "int('')", "0", "error"},                    // a text that is no number is an error
	{"bufbuild", "double('x') < 1.0", "false", "error"},      // as above: it is NaN there
	{"bufbuild", "'\U0001F642' < '\uFFFF'", "true", "false"}, // strings are compared by code points, not by UTF-16
	{"cel-js", "'ABC'.matches('(?i)abc')", "error", "true"},  // patterns are those of RE2, not of JavaScript
}

func avoidedCases() (cases []comparison) {
	for _, d := range avoided {
		cases = append(cases, comparison{Engine: d.engine, Expression: d.expression, Params: typed(evaluation.Object{}.Value())})
	}
	return cases
}

func difference(c comparison, ours error, theirs answer) string {
	for _, d := range differences {
		if d.when(c, ours, theirs) {
			return d.why
		}
	}
	return ""
}

// others installs the implementations, in a directory of the test's own.
func others(t *testing.T) string {
	t.Helper()
	return npm.Install(t, "other implementation of CEL", os.DirFS("testdata/cel"))
}

type comparison struct {
	Engine     string `json:"engine"`
	Expression string `json:"expression"`
	Params     any    `json:"params"` // with the types of the values
	arguments  string
}

type answer struct {
	Value any    `json:"value"`
	Error string `json:"error"`
}

// evaluated is what the expression yields here, as comparable text.
func evaluated(t *testing.T, b *coaz.Binding, c comparison) (string, error) {
	t.Helper()
	m, err := b.Parse(tool(t, contextOf(t, "$"+c.Expression)))
	if err != nil {
		return "", err
	}
	q, err := m.Questions(operationOf(t, `{"method": "tools/call", "params": `+c.arguments+`, "token": {"sub": "alice"}}`))
	if err != nil {
		return "", err
	}
	v, ok := q.Requests[0].Context.Get("x")
	if !ok {
		return "absent", nil
	}
	return comparable(v), nil
}

// comparable writes a value so that numbers that are equal have one text: an int and a double can be.
func comparable(v evaluation.Value) string {
	var all []string
	switch v.Kind() {
	case evaluation.Number:
		if n, ok := v.Scaled(0); ok {
			return strconv.FormatInt(n, 10)
		}
		f, _ := strconv.ParseFloat(v.Text(), 64)
		return strconv.FormatFloat(f, 'g', -1, 64)
	case evaluation.Array:
		for _, e := range v.Elements {
			all = append(all, comparable(e))
		}
		return "[" + strings.Join(all, ",") + "]"
	case evaluation.Map:
		for name, m := range v.Object().Members {
			all = append(all, strconv.Quote(name)+":"+comparable(m))
		}
		return "{" + strings.Join(all, ",") + "}"
	case evaluation.String:
		return strconv.Quote(v.Text())
	case evaluation.Null:
		return "absent"
	}
	return v.Text()
}

// text is the answer as comparable text.
func (a answer) text(t *testing.T) string {
	t.Helper()
	var text func(v any) string
	text = func(v any) string {
		typed, ok := v.(map[string]any)
		if !ok {
			return ""
		}
		var all []string
		switch value := typed["value"].(type) {
		case string:
			switch typed["type"] {
			case "string":
				return strconv.Quote(value)
			case "double":
				if value == "NaN" || strings.HasSuffix(value, "Infinity") {
					return value
				}
				n, _ := object(t, `{"n": `+value+`}`).Get("n")
				return comparable(n)
			}
			return value
		case bool:
			return strconv.FormatBool(value)
		case []any:
			for _, e := range value {
				if pair, ok := e.([]any); ok && typed["type"] == "map" {
					all = append(all, strconv.Quote(pair[0].(string))+":"+text(pair[1]))
				} else {
					all = append(all, text(e))
				}
			}
		}
		switch typed["type"] {
		case "list":
			return "[" + strings.Join(all, ",") + "]"
		case "map":
			slices.Sort(all)
			return "{" + strings.Join(all, ",") + "}"
		}
		return "absent"
	}
	return text(a.Value)
}

// generated is an expression and what it is evaluated on.
func generated(seed uint64) comparison {
	g := generator{rand.New(rand.NewPCG(seed, 2))}
	e := g.expression(g.of("bool", "int", "double", "string", "list", "any"), 3)
	c := comparison{Engine: "bufbuild", Expression: e, arguments: g.arguments()}
	if strings.Contains(e, "?.") || strings.Contains(e, ".?") || strings.Contains(e, "[?") || strings.Contains(e, "optional.") {
		c.Engine = "cel-js"
	}
	o, err := evaluation.ParseWithNulls([]byte(c.arguments), evaluation.DefaultLimits())
	if err != nil {
		panic(err)
	}
	c.Params = typed(o.Value())
	return c
}

func typed(v evaluation.Value) map[string]any {
	all := []any{}
	switch v.Kind() {
	case evaluation.Number:
		if n, ok := v.Scaled(0); ok {
			return map[string]any{"type": "int", "value": strconv.FormatInt(n, 10)}
		}
		return map[string]any{"type": "double", "value": v.Text()}
	case evaluation.String:
		return map[string]any{"type": "string", "value": v.Text()}
	case evaluation.Bool:
		return map[string]any{"type": "bool", "value": v.True()}
	case evaluation.Array:
		for _, e := range v.Elements {
			all = append(all, typed(e))
		}
		return map[string]any{"type": "list", "value": all}
	}
	for name, m := range v.Object().Members {
		all = append(all, []any{name, typed(m)})
	}
	return map[string]any{"type": "map", "value": all}
}

// arguments are the members that generated expressions read; some may be missing, or of another type.
func (g generator) arguments() string {
	members := []string{
		`"i": ` + g.of("0", "1", "7", "-3", "1.0", "9007199254740993", "9223372036854775807"),
		`"d": ` + g.of("0.5", "-2.25", "3.75", "1e-3", "2"),
		`"s": ` + g.of(`""`, `"a"`, `"abc"`, `"Äöü"`, `"42"`, `"x y"`, `"🙂"`),
		`"l": ` + g.of(`[]`, `[1, 2, 3]`, `[3, 1]`, `[7]`),
		`"m": ` + g.of(`{}`, `{"k": "v"}`, `{"k": "w", "n": 1}`),
		`"b": ` + g.of("true", "false"),
	}
	if g.IntN(6) == 0 {
		members = slices.Delete(members, 1, 2)
	}
	if g.IntN(10) == 0 {
		members[0] = `"i": true`
	}
	return "{" + strings.Join(members, ", ") + "}"
}

// expression makes an expression that yields a type, most of the time.
func (g generator) expression(kind string, depth int) string {
	e := func(kind string) string { return g.expression(kind, depth-1) }
	if depth == 0 {
		return map[string]func() string{
			"bool":   func() string { return g.of("true", "false", "params.b") },
			"int":    func() string { return g.of("0", "1", "-5", "42", "params.i", "9223372036854775807", "params.m.n") },
			"double": func() string { return g.of("0.0", "1.5", "-2.25", "params.d", "1e3") },
			"string": func() string {
				return g.of("''", "'a'", "'abc'", "'Äö'", "params.s", "params.m.k", "'7'", "\"q\\\"\"")
			},
			"list": func() string { return g.of("[]", "[1, 2, 3]", "params.l", "[7]") },
			"any": func() string {
				return g.of("params.m", "params.s", "params.i", "params.nope", "null", "params.?nope", "params.?m.?k", "params.l[?1]")
			},
		}[kind]()
	}
	switch kind {
	case "bool":
		switch g.IntN(13) {
		case 0:
			return fmt.Sprintf("(%s && %s)", e("bool"), e("bool"))
		case 1:
			return fmt.Sprintf("(%s || %s)", e("bool"), e("bool"))
		case 2:
			return "!" + e("bool")
		case 3:
			return fmt.Sprintf("(%s %s %s)", e("int"), g.of("==", "!=", "<", "<=", ">", ">="), e("int"))
		case 4:
			return fmt.Sprintf("(%s %s %s)", e("double"), g.of("==", "!=", "<", "<=", ">", ">="), e("double"))
		case 5:
			return fmt.Sprintf("(%s %s %s)", e("string"), g.of("==", "!=", "<", "<="), e("string"))
		case 6:
			return fmt.Sprintf("%s.%s(%s)", e("string"), g.of("contains", "startsWith", "endsWith"), e("string"))
		case 7:
			return fmt.Sprintf("(%s in %s)", e("int"), e("list"))
		case 8:
			return g.of("has(params.m.k)", "has(params.d)", "has(params.nope)", "('k' in params.m)")
		case 9:
			return fmt.Sprintf("%s.%s(x, x > %s)", e("list"), g.of("all", "exists", "exists_one"), e("int"))
		case 10:
			return fmt.Sprintf("%s.matches('%s')", e("string"), g.of("^a", "b$", "[a-c]+", "", ".", "^[0-9]+$", "Ä|x", "a{2,3}"))
		case 11:
			return fmt.Sprintf("(%s == %s)", e("list"), e("list"))
		}
		return fmt.Sprintf("(%s < %s)", e("int"), e("double"))
	case "int":
		switch g.IntN(5) {
		case 0:
			return fmt.Sprintf("(%s %s %s)", e("int"), g.of("+", "-", "*", "/", "%"), e("int"))
		case 1:
			return "size(" + e(g.of("string", "list")) + ")"
		case 2:
			return "int(" + g.of(e("double"), e("int"), "'7'", "'-12'", "'x1'") + ")"
		case 3:
			return fmt.Sprintf("(%s ? %s : %s)", e("bool"), e("int"), e("int"))
		}
		return fmt.Sprintf("%s[%s]", e("list"), g.of("0", "1", "5"))
	case "double":
		switch g.IntN(3) {
		case 0:
			return fmt.Sprintf("(%s %s %s)", e("double"), g.of("+", "-", "*", "/"), e("double"))
		case 1:
			return "double(" + g.of(e("int"), e("double"), "'1.5'", "'-2e3'") + ")"
		}
		return fmt.Sprintf("(%s ? %s : %s)", e("bool"), e("double"), e("double"))
	case "string":
		switch g.IntN(4) {
		case 0:
			return fmt.Sprintf("(%s + %s)", e("string"), e("string"))
		case 1:
			return "string(" + e(g.of("int", "bool", "string")) + ")"
		case 2:
			return "params.?" + g.of("s", "nope") + ".orValue('none')"
		}
		return fmt.Sprintf("(%s ? %s : %s)", e("bool"), e("string"), e("string"))
	case "list":
		switch g.IntN(5) {
		case 0:
			return fmt.Sprintf("(%s + %s)", e("list"), e("list"))
		case 1:
			return fmt.Sprintf("%s.map(x, x + %s)", e("list"), e("int"))
		case 2:
			return fmt.Sprintf("%s.filter(x, x > %s)", e("list"), e("int"))
		case 3:
			return fmt.Sprintf("[%s, %s]", e("int"), e("int"))
		}
		return fmt.Sprintf("(%s ? %s : %s)", e("bool"), e("list"), e("list"))
	}
	switch g.IntN(4) {
	case 0:
		return fmt.Sprintf("{'a': %s, 'b': %s}", e("int"), e("string"))
	case 1:
		return fmt.Sprintf("[%s]", e("string"))
	case 2:
		return e(g.of("bool", "int", "double", "string", "list"))
	}
	return e("any")
}
