package bundle_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"policy-service/pdp"
	"policy-service/pdp/internal/bundle"
	"policy-service/pdp/pdptest/bound"
	"policy-service/pdp/pdptest/night"
	"policy-service/pdp/pdptest/worst"
)

// wideSchema has many actions in groups, with many types each, a large context, and attributes of large types.
func wideSchema(actions, types int) string {
	var b strings.Builder
	all := func(f, sep string, n int) string {
		return strings.Join(worst.Each(worst.Numbers(n), func(i int) string { return strings.ReplaceAll(f, "#", fmt.Sprint(i)) }), sep)
	}
	fmt.Fprintf(&b, "type Big = {%s};\n", all("m#?: Long", ",", 500))
	fmt.Fprintf(&b, "entity G; %s\n", all("entity E# in ["+map[bool]string{true: "G, E0"}[types > 0]+"] = {x?: Long, big: Big, up?: E0} tags String;", "\n", types))
	fmt.Fprintf(&b, "%s\n", all("action g#;", "", 30))
	fmt.Fprintf(&b, "action %s in [%s] appliesTo {principal: [%s], resource: [%s], context: {c?: Long, d?: Bool}};\n", all("a#", ",", actions), all("g#", ",", 30), all("E#", ",", types), all("E#", ",", types))
	return b.String()
}

// hostilePolicies are those that checking against a schema takes longest of.
func hostilePolicies(n int) map[string]string {
	all := func(f, sep string) string {
		return strings.Join(worst.Each(worst.Numbers(n), func(i int) string { return strings.ReplaceAll(f, "#", fmt.Sprint(i)) }), sep)
	}
	when := func(condition string) string {
		return "permit(principal == E1::\"1\", action == Action::\"a1\", resource == E1::\"1\") when { " + condition + " };"
	}
	return map[string]string{
		"known attributes":      when(all("{a#:1} has a#", "&&")),
		"known tags":            when(all(`principal.hasTag("#")`, "&&")),
		"tags of long texts":    when(all(`principal.hasTag(if principal.hasTag("`+strings.Repeat("x", 100)+`") then "a" else "#")`, "&&")),
		"either":                when(all("{a#:1} has a# && {b#:1} has b#", "||")),
		"a large attribute":     when(all("principal.big == resource.big", "&&")),
		"errors":                when(all(`"#"`, "+") + " == 1"),
		"large errors":          when(all(`principal.big`, "+") + " == 1"),
		"groups":                when("action in [" + all(`Action::"a#"`, ",") + "]"),
		"groups again":          when(all(`action in Action::"g1"`, "&&")),
		"unknown actions":       when(all(`action == Action::"x#"`, "||")),
		"unknown attributes":    when(all(`principal.x#`, "&&")),
		"tests that are false":  when(all(`principal has x#`, "||")),
		"types in types":        when(all(`principal in resource`, "&&")),
		"every combination":     strings.Repeat("permit(principal, action, resource) when { context has c };\n", n),
		"every action":          strings.Repeat("permit(principal == E1::\"1\", action, resource == E1::\"1\") when { context has c };\n", n),
		"every type":            strings.Repeat("permit(principal in G::\"1\", action == Action::\"a1\", resource in G::\"1\") when { context has c };\n", n),
		"a group":               strings.Repeat("permit(principal == E1::\"1\", action in Action::\"g1\", resource == E1::\"1\") when { context has c };\n", n),
		"a list of groups":      "permit(principal == E1::\"1\", action in [" + all(`Action::"a#"`, ",") + "], resource == E1::\"1\") when { context has c };\n",
		"ordinary":              strings.Repeat("permit(principal == E1::\"1\", action == Action::\"a1\", resource is E1) when { context has c && context.c > 3 && principal has x && principal.x == resource.big.m1 };\n", n),
		"ifs within ifs":        when(strings.Repeat("if context has c then principal.big else ", min(n, 150)) + "resource.big == principal.big"),
		"long has with parents": when(all("principal has up && principal.up has up && principal.up.up has x", "||")),
	}
}

// However a policy is written, checking it against a schema takes no longer than the steps say that are counted before.
func TestStepsOfPoliciesAreNeverTooFew(t *testing.T) {
	night.Measures(t)
	for _, size := range []struct{ actions, types, n int }{{20, 5, 20}, {300, 20, 100}, {20, 100, 200}, {200, 4, 400}} {
		var problems pdp.Problems
		s := bundle.ParseSchema([]bundle.SchemaFile{{Name: "schema.cedarschema", Text: []byte(wideSchema(size.actions, size.types))}}, &bundle.Config{}, &problems)
		if s == nil {
			t.Fatal(problems)
		}
		for name, text := range hostilePolicies(size.n) {
			use := bundle.UsageOf("default")
			policies := bundle.ParsePolicies("p.cedar", use, []byte(text), &problems)
			steps := 0
			most := 30_000_000
			for _, p := range policies {
				n, _ := s.StepsOf(p, most)
				if steps += n; steps > most {
					break
				}
			}
			if len(policies) == 0 || steps > most {
				continue // it is refused, whatever it takes
			}
			runtime.GC()
			start := bound.CPU(t)
			for _, p := range policies {
				s.CheckPolicy(p, nil, use, &problems)
			}
			took := bound.CPU(t) - start
			t.Logf("%3d actions, %3d types, %3d times %-22s %9d steps, %8v, %6.0f ns a step", size.actions, size.types, size.n, name, steps, took.Round(time.Millisecond), float64(took.Nanoseconds())/float64(steps))
			if took > 200*time.Millisecond && took > time.Duration(steps)*time.Microsecond {
				t.Errorf("%s: %v for %d steps", name, took, steps)
			}
		}
	}
}

// Of one policy no more errors are placed than are reported: to place all of them would take the square of their number.
func TestNoMoreErrorsArePlacedThanAreReported(t *testing.T) {
	t.Parallel()
	var problems pdp.Problems
	s := bundle.ParseSchema([]bundle.SchemaFile{{Name: "schema.cedarschema", Text: []byte(wideSchema(20, 5))}}, &bundle.Config{}, &problems)
	if s == nil {
		t.Fatal(problems)
	}
	for _, name := range []string{"unknown attributes", "tests that are false", "unknown actions"} {
		text, use := []byte(hostilePolicies(3 * bundle.MostErrors)[name]), bundle.UsageOf("default")
		for _, p := range bundle.ParsePolicies("p.cedar", use, text, &problems) {
			if s.CheckPolicy(p, text, use, &problems); len(problems) != bundle.MostErrors+1 {
				t.Errorf("%s: %d problems", name, len(problems))
			}
		}
		problems = nil
	}
}

// withHostile is a bundle with a large schema of the root's, and a tenant's policies.
func withHostile(text string) fstest.MapFS {
	return fstest.MapFS{
		"schema.cedarschema": {Data: []byte(wideSchema(200, 20))},
		"p.cedar":            {Data: []byte(`permit(principal == E1::"1", action == Action::"a1", resource);`)},
		"tenants/t/p.cedar":  {Data: []byte(text)},
	}
}

// A tenant's policies are refused where checking them would take longer than may be, also where the schema is the root's and large.
func TestChecksOfATenantAreBounded(t *testing.T) {
	t.Parallel()
	refused := map[string]string{ // what takes longer than may be, and what does not fit
		"known attributes": "many_checks", "known tags": "many_checks", "tags of long texts": "many_checks", "groups": "many_checks", "groups again": "many_checks",
		"every combination": "many_checks", "every action": "many_checks", "every type": "many_checks", "a group": "many_checks", "a list of groups": "many_checks",
		"errors": "schema_policy", "large errors": "schema_policy", "unknown actions": "schema_policy", "ordinary": "schema_policy", "ifs within ifs": "schema_policy",
		"unknown attributes": "schema_policy", "tests that are false": "has_undeclared",
	}
	for name, text := range hostilePolicies(800) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, problems := pdp.Load(pdp.FS(withHostile(text)))
			first := pdp.Problem{}
			for _, p := range problems {
				if p.Severity == pdp.SeverityError && first.Code == "" {
					first = p
				}
			}
			if first.Code != refused[name] || first.Code != "" && (first.File != "tenants/t/p.cedar" || first.Line == 0) {
				t.Errorf("got %+v", first)
			}
		})
	}
}
