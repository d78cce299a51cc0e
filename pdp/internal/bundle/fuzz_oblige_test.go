package bundle_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"policy-service/evaluation"
	"policy-service/obligations"
	"policy-service/pdp"
	"policy-service/pdp/internal/bundle"
)

// obliging is a bundle of policies and an obligations.yaml.
func obliging(policies, definitions string) fstest.MapFS {
	return fstest.MapFS{"p.cedar": {Data: []byte(policies)}, "obligations.yaml": {Data: []byte(definitions)}}
}

type hostileObligation struct {
	files fstest.MapFS
	codes string // of its first problem, and of its last
}

// hostileObligations are the annotations and the obligations.yaml that cost most to load. The first two took 80 and 10
// seconds before they were mended.
func hostileObligations() map[string]hostileObligation {
	many := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	annotated := func(names string) string {
		return `@id("p") @obligation("` + names + `log") permit(principal is u, action, resource);`
	}
	known := many(6000, "o%d: {type: log}\n")
	return map[string]hostileObligation{
		"30,000 unknown names":        {obliging(annotated(many(30_000, "x%d,")), known), "policy_text policy_text"},
		"one name of 250,000 letters": {obliging(annotated(strings.Repeat("a", 250_000)), known), "policy_text policy_text"},
		"6,000 names of one policy":   {obliging(annotated(many(6000, "o%d,")), known), "policy_text policy_text"},
		"4,000 obliging policies":     {obliging(many(4000, `@id("%d")@obligation("log")permit(principal is u,action,resource);`), "x: {type: log}"), "too_large too_large"},
		"40,000 templates":            {obliging(annotated(""), "x: {type: custom, properties: {a: '"+strings.Repeat("${principal.id}", 40_000)+"'}}"), "obligation_unused obligation_unused"},
		"200,000 unended templates":   {obliging(annotated(""), "x: {type: custom, properties: {a: '"+strings.Repeat("${", 200_000)+"'}}"), "obligation_template obligation_template"},
		"100,000 brackets":            {obliging(annotated(""), "x: {type: custom, properties: {a: "+strings.Repeat("[", 100_000)+"}}"), "yaml_syntax yaml_syntax"},
	}
}

// Each of them loads, or is refused for its form.
func TestHostileObligations(t *testing.T) {
	t.Parallel()
	for name, c := range hostileObligations() {
		_, problems := pdp.Check(pdp.FS(c.files), time.Time{})
		if got := problems[0].Code + " " + problems[len(problems)-1].Code; got != c.codes {
			t.Errorf("%s: got %s, want %s", name, got, c.codes)
		}
	}
}

// A tag that YAML lets stand before any text is no way round the check.
func TestTemplatesOfEveryTag(t *testing.T) {
	t.Parallel()
	for _, tag := range []string{"", "!!str ", "!!timestamp ", "!!int ", "!!binary ", "!own "} {
		for _, text := range []string{"${x}", "${principal.name}", "${", "${context.approved}"} {
			yaml := "x: {type: custom, properties: {a: [" + tag + `"` + text + "\"]}}\n"
			if b, _ := pdp.Load(pdp.FS(obliging(`permit(principal is u, action, resource);`, yaml))); b != nil {
				t.Errorf("loads: %s", yaml)
			}
		}
	}
}

// FuzzAnnotation gives a policy any annotation. What loads names obligations that
// there are, each once, and in the order of the text; what does not says where.
func FuzzAnnotation(f *testing.F) {
	for _, seed := range []string{
		"log", "log,approval_required", " a , b-2\t,\nlog", "", ",", "log,,a", "log,log", "Log", "a.b", "on-deny", "logg", `\"`, `a\u{0}b`, "é", strings.Repeat("a,", 99), strings.Repeat("x", 300),
	} {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	f.Fuzz(func(t *testing.T, annotation string, permits bool) {
		effect := "permit"
		if !permits {
			effect = "forbid"
		}
		b, problems := pdp.Load(pdp.FS(obliging(permitEverybody+`@id("p") @obligation("`+annotation+`") `+effect+"(principal is u, action, resource);",
			"a: {type: custom}\nb-2: {type: custom}\na.b: {type: redact}\non-deny: {type: log, on: deny}\n")))
		saysWhere(t, problems)
		if b == nil || b.Views["default"].ByID["p"] == nil {
			return // what is not Cedar, or ends the annotation
		}
		p, names := b.Views["default"].ByID["p"], []string{}
		for _, d := range p.Obliges {
			names = append(names, d.Name)
			if !d.On.With(permits) {
				t.Errorf("%q never comes with a %s", d.Name, effect)
			}
		}
		if p.Obligation == nil {
			if len(names) > 0 {
				t.Errorf("%q without an annotation", names)
			}
			return
		}
		var want []string
		for name := range strings.SplitSeq(*p.Obligation, ",") {
			want = append(want, strings.TrimSpace(name))
		}
		if !slices.Equal(names, want) {
			t.Errorf("%q names %q", *p.Obligation, names)
		}
	})
}

const permitEverybody = `@id("base") permit(principal is nobody, action, resource);` + "\n"

// saysWhere holds problems to what they are for: one line each, with a place.
func saysWhere(t *testing.T, problems pdp.Problems) {
	t.Helper()
	for _, p := range problems {
		if p.Message == "" || p.Code == "" || p.Line < 0 || strings.ContainsAny(p.String(), "\n\x00") {
			t.Errorf("a problem that tells nobody: %q", p)
		}
	}
}

// FuzzObligationsFile gives the loader an obligations.yaml of anything. What loads
// holds only what it may, and an answer made of it can be read by anybody.
func FuzzObligationsFile(f *testing.F) {
	for _, seed := range []string{
		"", "{}", "a: {type: log}", "a:\n  type: step-up\n  on: both\n  properties: {acr_value: gold}\n", "approval_required: {type: approval_required, properties: {quorum: 2, timeout: 10m}}",
		`{"a":{"type":"custom","properties":{"b":[1.0,1e3,null,{"c":"${context.x} ${principal.id}"}]}}}`, "a: {type: custom, properties: {a: !!timestamp '${x}'}}",
		"a: {type: redact, properties: {fields: [/a], \"${\": 1}}", "a: &x {type: log}\nb: *x\n", "log: {type: log, on: deny}", "<<: {a: {type: log}}", "a: {type: log}\na: {type: log}",
		"a: {type: custom, properties: {__entity: {type: a, id: b}}}", "a: {type: custom, properties: {x: .inf, y: 0x10, z: 2026-01-02, \"a\\nb\": \"${\\n}\"}}", "- a", "1: {type: log}", "a: {type: {}, on: []}", "? {}\n: {}", "---\n---\n",
		"a: {type: notification, properties: {to: \"${resource.id}\", body: \"${action.name}\"}}", "\xff: {type: log}", "a: {type: custom, properties: {a: \"\\ud800\"}}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, definitions []byte) {
		b, problems := pdp.Load(pdp.FS(obliging(permitEverybody, string(definitions))))
		saysWhere(t, problems)
		if b == nil {
			return
		}
		var all []obligations.Owed
		for name, d := range b.Views["default"].Obligations {
			if d.Name != name || !bundle.ObligationName.MatchString(name) || d.On == 0 || d.File != "" && d.Line < 1 {
				t.Errorf("%q is %+v", name, d)
			}
			all = append(all, obligations.Owed{Definition: d.Definition, Policy: "p"})
		}
		readable(t, all)
	})
}

// readable makes answers of obligations, all of whose variables have a value, and
// reads them again.
func readable(t *testing.T, all []obligations.Owed) {
	t.Helper()
	for _, allow := range []bool{true, false} {
		asked := ""
		out := obligations.Resolve(allow, slices.Clone(all), func(name string) (string, bool) { asked = name; return `"${x}` + "\n", true })
		if out.Unfilled {
			t.Errorf("after %q something had no value: %+v", asked, out.LeftOut)
		}
		for _, shape := range []evaluation.Shape{evaluation.AuthZEN, evaluation.Native} {
			body, err := shape.Answer(evaluation.Decision{Allow: allow, Obligations: out.Obligations})
			if err != nil {
				t.Fatal(err)
			}
			// An answer may be larger and deeper than what one definition may be.
			limits := evaluation.Limits{Body: 1 << 30, Depth: 32, Values: 1 << 20}
			var refused *evaluation.Error
			if _, err := evaluation.ParseObject(body, limits); errors.As(err, &refused) {
				t.Errorf("%s: %v", body, refused)
			}
		}
	}
}
