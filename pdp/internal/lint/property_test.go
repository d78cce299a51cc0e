package lint_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/pdptest/night"
)

// TestCheckFindsEveryEscape asks the bundle itself: whatever change turns the
// deny of a random forbid into an allow, Check has warned of it. The reverse is
// not asked, because two tests of one value can exclude what Check fears.
func TestCheckFindsEveryEscape(t *testing.T) {
	t.Parallel()
	for seed := range uint64(night.Cases(400)) {
		g := conditions{rand.New(rand.NewPCG(seed, 2))}
		word := []string{"when", "unless"}[g.IntN(2)]
		source := pdp.FS(bundleOf(fmt.Sprintf(`@id("p") forbid (principal, action, resource is Doc) %s { %s };`, word, g.term(3))))
		b, problems := pdp.Check(source, lintNow)
		if b == nil {
			t.Fatal(problems.Error())
		}
		e := escapeTest{t: t, b: b, problems: problems, policy: string(b.Views["default"].Policies[1].Cedar.MarshalCedar())}
		e.try()
	}
}

// conditions writes random conditions over context.a and context.b, which are
// meant to be strings, and context.s, which is meant to be a set of strings.
type conditions struct{ *rand.Rand }

func (g conditions) term(depth int) string {
	one := func(of ...string) string { return of[g.IntN(len(of))] }
	if depth > 0 && g.IntN(4) > 0 {
		l, r := g.term(depth-1), g.term(depth-1)
		return "(" + one(l+" && "+r, l+" && "+r, l+" || "+r, "!"+l,
			"if "+l+" then "+r+" else "+g.term(depth-1), l+" == "+r, "["+l+"].contains("+r+")") + ")"
	}
	ab := one("context.a", "context.b")
	return "(" + one("context has a", "context has b", "context has s", "context has a", "context has b",
		ab+` == "x"`, ab+` != "y"`, `"x" == `+ab, ab+` like "x*"`, `["x"].contains(`+ab+")", "context.a == context.b",
		`context.s.contains("x")`, `context.s.containsAll(["x"])`, `["x"].containsAny(context.s)`, "context.s.isEmpty()",
		`[`+ab+`] == ["x"]`, `{k: `+ab+`} == {k: "x"}`, `(if context has a then context.a else "x") == "x"`, "true", "false") + ")"
}

type escapeTest struct {
	t        *testing.T
	b        *pdp.Bundle
	problems pdp.Problems
	policy   string
}

func (e *escapeTest) try() {
	meant := map[string][]any{
		"a": {nil, "x", "y"}, "b": {nil, "x", "y"}, "s": {nil, []any{"x"}, []any{"y", "x"}, []any{"y"}},
	}
	for _, a := range meant["a"] {
		for _, b := range meant["b"] {
			for _, s := range meant["s"] {
				context := map[string]any{"a": a, "b": b, "s": s}
				if d := e.decide(context); len(d.Determining) == 0 || d.Allow {
					continue // allowed, or denied by an error: not what the author meant
				}
				for name, value := range context {
					if value == nil {
						continue
					}
					e.change(context, name, "forbid_omittable", nil)
					for _, other := range []any{true, 1, map[string]any{"x": "x"}, []any{1}} {
						e.change(context, name, "forbid_untyped_comparison", other)
					}
				}
			}
		}
	}
}

// change tries one, and holds an allow against the warnings.
func (e *escapeTest) change(context map[string]any, name, code string, value any) {
	changed := maps.Clone(context)
	changed[name] = value
	if !e.decide(changed).Allow {
		return
	}
	for _, p := range e.problems {
		if p.Code == code && strings.Contains(p.Message, "context."+name) {
			return
		}
	}
	e.t.Errorf("%v is denied and %v is not; no %s of %s in\n%s", context, changed, code, name, e.policy)
}

func (e *escapeTest) decide(context map[string]any) evaluation.Decision {
	sent := map[string]any{}
	for name, value := range context {
		if value != nil {
			sent[name] = value
		}
	}
	text, _ := json.Marshal(sent)
	r, err := evaluation.DecodeAuthZEN(fmt.Appendf(nil, `{"subject": {"type": "User", "id": "u"}, "action": {"name": "read"}, "resource": {"type": "Doc", "id": "d"}, "context": %s}`, text), "default", evaluation.DefaultLimits())
	if err != nil {
		e.t.Fatal(err)
	}
	d, err := pdp.Of(e.b, pdp.Options{}).Evaluate(e.t.Context(), pdp.Call{Request: r, Now: time.Unix(0, 0)})
	if err != nil {
		e.t.Fatal(err)
	}
	return d
}
