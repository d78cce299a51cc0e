package pdp

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/obligations"
)

// TestPropertyHidden decides requests again of which masks hide some values. If there is an answer, every value gives it.
func TestPropertyHidden(t *testing.T) {
	t.Parallel()
	for name, makes := range map[string]func(*testing.T, *generator) possibleWorld{"obliged": secretWorld, "typed": possibleOfTyped} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := tally{}
			eachSeed(t, 200, func(t *testing.T, g *generator) {
				g.prefixed = g.seed%3 == 1
				w := makes(t, g)
				for range 20 {
					a, d := w.ask(), g.declaration()
					call := a.by(t, d)
					if g.chance(30) {
						call = call.native()
					}
					hidden := g.hide(call.Request)
					if diff := hiddenDiffers(g, w, call, hidden, seen); diff != "" {
						t.Fatalf("seed %d: %s\n%s%s%+v\nhidden %+v", g.seed, diff, w, a, d, hidden)
					}
				}
			})
			for what, percent := range map[string]int{"exact": 30, "unknown": 5, "exact, two hidden": 5} {
				seen.atLeast(t, what, percent)
			}
		})
	}
}

// secretWorld has policies that read what is hidden now and then.
func secretWorld(t *testing.T, g *generator) possibleWorld {
	o := g.obliged(8)
	for n := range 4 {
		o.policies = append(o.policies, g.secretive(fmt.Sprintf("x%d", n)))
	}
	return possibleWorld{Stringer: o, bundle: o.load(t), ask: func() asked { return g.question(o.world) }}
}

// secretive makes a policy that reads what is hidden now and then.
func (g *generator) secretive(id string) policyText {
	condition := func() string {
		return oneOf(g, `context.s == "a"`, `context.s like "*b*"`, `context.s like "a*"`, `["a", "q"].contains(context.s)`, "context.n < 2", "context.n >= 1", "context.n + 1 == 2", "context.n * 2 - 1 < principal.n", "-context.n > 5",
			"context.flag", "!context.flag", "context.flag == principal.flag", "principal.n == context.n", "principal.s == context.s",
			`context has groups && context.groups.contains("g0")`, `context has groups && context.groups.isEmpty()`, `context.groups == ["g0", "g1"]`,
			`context has odd && context.odd == 1`, "resource.n <= principal.n", `principal has opt && principal.opt == "x"`, "context has n")
	}
	join := oneOf(g, " && ", " || ")
	return policyText{id: id, text: fmt.Sprintf("@id(%q) %s (principal, action, resource) when { %s%s%s };", id,
		oneOf(g, "permit", "permit", "forbid"), condition(), join, condition())}
}

// hide chooses places to hide. The rest says nothing of them: Fit is left to the caller.
func (g *generator) hide(r evaluation.Request) (all []evaluation.Hidden) {
	add := func(at string, o evaluation.Object) {
		if g.chance(1) { // all of it
			all = append(all, evaluation.Hidden{At: at, Type: "object"})
			return
		}
		for name, v := range o.Members {
			if evaluation.Protocol(name) || !g.chance(35) {
				continue
			}
			one := evaluation.Hidden{At: at + "/" + name, Type: typeOf(v)}
			if v.Kind() == evaluation.Map && g.chance(50) {
				for member, inner := range v.Object().Members {
					one.At, one.Type = at+"/"+name+"/"+member, typeOf(inner)
				}
			}
			if v.Kind() == evaluation.Array && v.Len() > 0 && g.chance(50) {
				for n, e := range v.Elements {
					if e.Kind() == evaluation.Null {
						return
					}
					one.At, one.Type = fmt.Sprintf("%s/%s/%d", at, name, n), typeOf(e)
				}
			}
			all = append(all, one)
		}
	}
	add("/subject/properties", r.Subject.Properties)
	add("/resource/properties", r.Resource.Properties)
	add("/context", r.Context)
	return all
}

func typeOf(v evaluation.Value) string {
	return map[evaluation.Kind]string{evaluation.String: "string", evaluation.Number: "number", evaluation.Bool: "bool",
		evaluation.Array: "array", evaluation.Map: "object"}[v.Kind()]
}

// tenValues are values that can have stood at a place.
func tenValues(typ string) (all []evaluation.Value) {
	for _, raw := range map[string][]any{
		"string": {"red", "green", "blue", "2026-05-05", "d0", "low", "bob", "a", "b", "q", "", "x", "ax", "ab", "u0", "g0", "qb", "1", "g1", "g2", "g3", "g4", "f0", "f1", "f2", "f3"},
		"number": {0, 1, 2, 3, -6, -7, 100, int64(1<<63 - 1), -1 << 63, int64(1 << 62), -1<<62 - 1},
		"bool":   {true, false},
		"array":  {[]any{}, []any{"g0"}, []any{"g0", "g1"}, []any{"a"}, []any{1}, []any{"g1"}, []any{"g2"}, []any{"f0"}, []any{"f0", "f1"}, []any{"zz"}},
		"object": {map[string]any{}, map[string]any{"n": 1}, map[string]any{"x": "a"}, map[string]any{"amount": 5}, map[string]any{"amount": 5, "to": "bob", "list": []any{1}},
			map[string]any{"deep": map[string]any{"a": 1, "b": true}}, map[string]any{"city": "a"}, map[string]any{"impact": "low"}, map[string]any{"type": "User", "id": "u0"},
			map[string]any{"level": 5, "color": "red", "groups": []any{"g0"}}, map[string]any{"size": 1, "labels": map[string]any{"impact": "high", "area": "x"}, "owner": "u0"}},
	}[typ] {
		o, err := evaluation.NewObject(map[string]any{"v": raw})
		if err != nil {
			panic(err)
		}
		v, _ := o.Get("v")
		all = append(all, v)
	}
	return all
}

// valuesAt are values that can have stood at a place.
func valuesAt(h evaluation.Hidden) (all []evaluation.Value) {
	text := func(s string) evaluation.Value {
		v, _ := evaluation.Text(s)
		return v
	}
	if strings.HasPrefix(h.At, "/context/supported_obligations/") {
		for _, typ := range obligations.Types() {
			all = append(all, text(typ))
		}
		return append(all, text("x"))
	}
	if strings.HasPrefix(h.At, "/context/supported_mandatory_extensions/") {
		return append(all, text("x"), text("obligations"))
	}
	all = tenValues(h.Type)
	if h.At == "/context" {
		o, _ := evaluation.NewObject(map[string]any{"supported_obligations": obligations.Types()})
		all = append(all, o.Value())
	}
	if odd, ok := map[string]any{"number": 0.5, "array": []any{nil}, "object": map[string]any{"x": []any{nil}}}[h.Type]; ok && h.Fit == evaluation.FitUnknown {
		o, _ := evaluation.NewObject(map[string]any{"v": odd})
		v, _ := o.Get("v")
		all = append(all, v)
	}
	return all
}

// someValue stands at a hidden place.
func someValue(typ string) evaluation.Value {
	if typ == "string" {
		v, _ := evaluation.Text("masked:abcdefghijklmnopqrstuv")
		return v
	}
	return tenValues(typ)[0]
}

func hiddenDiffers(g *generator, w possibleWorld, call Call, hidden []evaluation.Hidden, seen tally) string {
	p := Of(w.bundle, Options{NewID: func() string { return "id" }})
	decide := func(r evaluation.Request) (evaluation.Decision, error) {
		one := call
		one.Request = r
		return p.Evaluate(context.Background(), one)
	}
	want, err := decide(call.Request)
	if err != nil {
		return "" // then there is no record, or one that is malformed
	}
	again := call
	for _, one := range hidden {
		switch one.Fit = evaluation.Fits; {
		case g.chance(10):
			one.Fit = evaluation.FitUnknown
		case misfits(want, one):
			one.Fit = evaluation.Misfits
		}
		again.Hidden = append(again.Hidden, one)
		again.Request = putAt(again.Request, one.At, someValue(one.Type))
	}
	got, err := p.Evaluate(context.Background(), again)
	var unknown *Unknown
	if errors.As(err, &unknown) {
		seen.count("unknown", true)
		for _, at := range unknown.Paths {
			if !slices.ContainsFunc(again.Hidden, func(h evaluation.Hidden) bool { return h.At == at }) {
				return at + " is not hidden"
			}
		}
		return ""
	}
	if err != nil {
		return "decided again: " + err.Error()
	}
	seen.count("unknown", false)
	seen.count("exact", len(hidden) > 0)
	seen.count("exact, two hidden", len(hidden) > 1)
	if diff := whereDiffers("the decision made again", visibleAnswer(got, got), visibleAnswer(want, got)); diff != "" {
		return diff
	}
	for _, id := range got.Determining {
		if !slices.Contains(want.Determining, id) {
			return fmt.Sprintf("made again, %s determines, and does not in truth", id)
		}
	}
	for range 16 { // the theorem: no value changes an exact answer
		r := call.Request
		for _, one := range again.Hidden {
			if one.Fit != evaluation.Misfits && g.chance(70) {
				r = putAt(r, one.At, oneOf(g, append(valuesAt(one), mentioned(w, one.Type)...)...))
			}
		}
		other, err := decide(r)
		unfit := func(one evaluation.Hidden) bool { return one.Fit == evaluation.Fits && misfits(other, one) }
		if err == nil && !slices.ContainsFunc(again.Hidden, unfit) {
			if diff := whereDiffers("with another value", visibleAnswer(got, got), visibleAnswer(other, got)); diff != "" {
				text, _ := r.MarshalJSON()
				return diff + "\n" + string(text)
			}
		}
	}
	return ""
}

// putAt returns the request with another value at a place, if a value can be there.
func putAt(r evaluation.Request, at string, v evaluation.Value) evaluation.Request {
	for above, o := range map[string]*evaluation.Object{
		"/subject/properties": &r.Subject.Properties, "/action/properties": &r.Action.Properties,
		"/resource/properties": &r.Resource.Properties, "/context": &r.Context,
	} {
		if rest, ok := strings.CutPrefix(at, above); ok {
			if made, ok := o.Value().Put(evaluation.Tokens(rest), v); ok {
				*o = made.Object()
			}
		}
	}
	return r
}

// misfits reports whether a decision lists a hidden place, or one below or above it, as what does not fit.
func misfits(d evaluation.Decision, one evaluation.Hidden) bool {
	return slices.ContainsFunc(d.Mismatch, func(m evaluation.Mismatch) bool {
		return strings.HasPrefix(m.Place+"/", one.At+"/") || strings.HasPrefix(one.At+"/", m.Place+"/")
	})
}

// mentioned are values made of the ids that the policies of a world name.
func mentioned(o fmt.Stringer, typ string) (all []evaluation.Value) {
	var ids []string
	for _, found := range regexp.MustCompile(`::"([^"]*)"`).FindAllStringSubmatch(o.String(), -1) {
		if !slices.Contains(ids, found[1]) {
			ids = append(ids, found[1])
		}
	}
	for _, id := range ids {
		var v any = id
		if typ == "array" {
			v = []any{id}
		} else if typ != "string" {
			return nil
		}
		made, _ := evaluation.NewObject(map[string]any{"v": v})
		value, _ := made.Get("v")
		all = append(all, value)
	}
	return all
}

// visibleAnswer is what a caller sees of a decision, without what is filled into the obligations that
// are not filled in the other one.
func visibleAnswer(d, like evaluation.Decision) string {
	var b strings.Builder
	fmt.Fprintln(&b, d.Allow, d.Reason, d.ReasonUser, d.Required, d.LeftOut, d.Met)
	for _, o := range d.Obligations {
		properties := fmt.Sprint(o.Properties)
		for _, other := range like.Obligations {
			if text := fmt.Sprint(other.Properties); other.ID == o.ID && strings.Contains(text, "${") {
				properties = text
			}
		}
		fmt.Fprintln(&b, o.ID, o.Type, properties)
	}
	return b.String()
}
