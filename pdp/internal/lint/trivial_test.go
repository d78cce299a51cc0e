package lint_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"policy-service/pdp"
	"policy-service/pdp/pdptest/bound"
	"policy-service/pdp/pdptest/night"
)

// always are conditions that hold in every request, which their text alone proves.
var always = []string{
	`when { {a: 1}.a == 1 }`, `when { {a: {b: "x"}}.a has b }`,
	`when { true }`, `unless { false }`, `when { !false }`, `when { true } when { true } unless { false }`,
	`when { 1 == 1 }`, `when { "a" == "a" && 1 < 2 }`, `when { 1 + 1 == 2 }`, `when { "abc" like "a*" }`, `when { [1, 2].contains(2) }`, `when { 1 != "a" }`,
	`when { decimal("1.0").lessThan(decimal("2.0")) }`, `when { ip("10.0.0.1").isInRange(ip("10.0.0.0/8")) }`, `when { [].isEmpty() }`, `when { User::"a" == User::"a" }`, `when { User::"a" is User }`,
	`when { principal == principal }`, `when { context == context }`, `when { resource in resource }`, `unless { action != action }`,
	`when { context.pdp.now == context.pdp.now }`, `when { (principal is User) == (principal is User) }`,
	`when { true || context.a }`, `when { principal is User || true }`, `when { context has a || true }`, `when { false || true }`,
	`when { if true then true else context.a }`, `when { if false then context.a else true }`, `when { if principal is User then true else 1 == 1 }`,
	`unless { false && context.a }`, `unless { principal is User && false }`, `unless { context has a && false && context.a }`, `when { principal == resource || true }`,
}

// sometimes are conditions that some request does not satisfy, if only because they err, and others of which the text does
// not prove that all do.
var sometimes = []string{
	`when { {a: User::"a"}.a has b }`, `when { {a: context.x}.a == 1 }`, `when { principal == resource }`, `when { principal is User }`, `when { context has a }`, `when { context.a == context.a }`, `when { principal.a == principal.a }`,
	`when { context.a || true }`, `when { context has a.b || true }`, `when { context.a like "*" || true }`, `when { true && context.pdp.approved }`,
	`when { context.a > 1 || !(context.a > 1) }`, `when { if context.a then true else true }`, `when { if principal is User then true else false }`,
	`when { context.pdp.weekday == context.pdp.weekday }`, `when { principal in principal.groups }`, `when { User::"a" in Group::"g" }`, `when { User::"a".x == 1 }`, `when { User::"a".hasTag("x") || true }`,
	`when { (principal is User) == true }`, `unless { context.a && false }`,
}

// never are conditions that hold in no request.
var never = []string{
	`when { false }`, `unless { true }`, `when { 1 == 2 }`, `when { 1 != 1 }`, `when { context.a && false }`, `when { false && context.a }`, `when { principal != principal }`, `when { 1 < true }`,
	`when { context.a } when { !true }`, `when { if true then false else context.a }`, `when { false || 1 > 2 }`, `unless { principal == principal }`, `when { (context.a && false) || false }`,
}

// codesOf are the codes of what Check says of a bundle.
func codesOf(t *testing.T, files fstest.MapFS) (codes []string) {
	t.Helper()
	b, problems := pdp.Check(pdp.FS(files), lintNow)
	if b == nil {
		t.Fatal(problems.Error())
	}
	for _, p := range problems {
		codes = append(codes, p.Code)
	}
	return codes
}

func TestCheckTrivialPermit(t *testing.T) {
	t.Parallel()
	const scope = `@id("p") permit (principal, action, resource) `
	const forbid = "\n" + `@id("f") forbid (principal is User, action == Action::"x", resource is Doc);`
	has := func(policies, code string, files ...string) bool {
		return strings.Contains(" "+strings.Join(codesOf(t, named(policies, "", files...)), " ")+" ", " "+code+" ")
	}
	for _, conditions := range always {
		policy := scope + conditions + ";"
		switch {
		case !has(policy, "trivial_permit"), has(policy, "permit_everything"), has(policy, "no_scope"):
			t.Errorf("%s: %v", conditions, codesOf(t, named(policy, "")))
		case !has(policy+forbid, "permit_everything"), has(policy+forbid, "trivial_permit"), has(policy+forbid, "no_scope"):
			t.Errorf("%s, beside a forbid: %v", conditions, codesOf(t, named(policy+forbid, "")))
		case has(policy, "trivial_permit", "bundle.yaml", "allow_trivial: true"), has(policy+forbid, "permit_everything", "bundle.yaml", "allow_trivial: true"):
			t.Errorf("%s: allow_trivial does not silence it", conditions)
		case has(strings.Replace(policy, "principal,", "principal is User,", 1), "trivial_permit"):
			t.Errorf("%s: also with a scope", conditions)
		case has(strings.Replace(policy, "permit", "forbid", 1)+`permit (principal is User, action, resource);`, "permit_everything"):
			t.Errorf("%s: also a forbid", conditions)
		}
		holds, asked := allowsAll(t, policy)
		if !holds {
			t.Errorf("%s does not hold in %s", conditions, asked)
		}
	}
	for _, conditions := range append(sometimes, never...) {
		if policy := scope + conditions + ";"; has(policy, "trivial_permit") || has(policy+forbid, "permit_everything") {
			t.Errorf("%s counts as none", conditions)
		}
	}
	for _, conditions := range append(sometimes, always...) {
		if has(scope+conditions+";", "never_applies") {
			t.Errorf("%s counts as never", conditions)
		}
	}
	for _, conditions := range never {
		if !has(scope+conditions+";", "never_applies") || !has(`permit (principal is User, action, resource); forbid (principal, action, resource is Doc)`+conditions+";", "never_applies") {
			t.Errorf("%s does not count as never", conditions)
		}
	}
	if !has(scope+`when { true };`+strings.Replace(forbid, ";", " when { false };", 1), "trivial_permit") {
		t.Error("a forbid that never applies forbids something")
	}
	if !has(scope+";"+forbid, "permit_everything") || has(scope+";"+forbid, "no_scope") {
		t.Error("without a condition, beside a forbid")
	}
}

// allowsAll reports whether a bundle of one policy allows each of some requests that differ as much as they can.
func allowsAll(t *testing.T, policy string) (ok bool, asked string) {
	t.Helper()
	b, problems := pdp.Load(pdp.FS(named(policy, "")))
	if b == nil {
		t.Fatal(problems.Error())
	}
	e := escapeTest{t: t, b: b}
	for _, context := range []map[string]any{{}, {"a": true}, {"a": "x"}, {"a": 1}, {"a": map[string]any{"b": 1}}} {
		if !e.decide(context).Allow {
			return false, fmt.Sprint(context)
		}
	}
	return true, ""
}

func TestCheckTrivialPermitOfTenants(t *testing.T) {
	t.Parallel()
	const all, some, forbid = `@id("%") permit (principal, action, resource) when { 1 == 1 };`, `@id("s") permit (principal is User, action, resource);`, "\n" + `@id("f") forbid (principal is Spy, action, resource);`
	of := func(id string) string { return strings.Replace(all, "%", id, 1) }
	for _, c := range []lintCase{
		{"the root's", named(of("p"), "", "tenants/t/t.cedar", forbid), "trivial_permit policy.cedar:1:1"},
		{"a tenant's, and nothing is forbidden", named(some, "", "tenants/t/t.cedar", of("t"), "tenants/u/u.cedar", forbid), "trivial_permit tenants/t/t.cedar:1:1"},
		{"a tenant's, and the root forbids", named(some+forbid, "", "tenants/t/t.cedar", of("t")), "permit_everything tenants/t/t.cedar:1:1"},
	} {
		c.run(t)
	}
}

// longConditions are n times as long as a thousand words.
func longConditions(n int) map[string]string {
	return map[string]string{
		"true":  strings.Repeat("principal is U && ", 600*n) + "true",
		"false": strings.Repeat("false && ", 1_250*n) + "false",
		"equal": "(" + strings.Repeat("principal is U || ", 300*n) + "true) == (" + strings.Repeat("principal is U || ", 300*n) + "true)",
	}
}

// A long condition is looked at, and warned of where it is trivial.
func TestCheckOfLongConditions(t *testing.T) {
	t.Parallel()
	for name, condition := range longConditions(1) {
		if b, problems := pdp.Check(pdp.FS(named(`@id("p") permit (principal is User, action, resource) when { `+condition+` };`, "")), lintNow); b == nil {
			t.Errorf("%s: %v", name, problems.Error())
		}
	}
}

// What check finds out of a long condition takes time in proportion to it.
func TestCostOfLongConditions(t *testing.T) {
	night.Measures(t)
	for name, condition := range longConditions(20) {
		start := bound.CPU(t)
		if b, problems := pdp.Check(pdp.FS(named(`@id("p") permit (principal is User, action, resource) when { `+condition+` };`, "")), lintNow); b == nil {
			t.Fatal(problems.Error())
		}
		if took := bound.CPU(t) - start; took.Seconds() > 10 {
			t.Errorf("%s: %s of CPU", name, took)
		}
	}
}

// TestNoPolicyIsForNothing: a policy that decides nothing is a mistake of its author, who believes that it does.
func TestNoPolicyIsForNothing(t *testing.T) {
	t.Parallel()
	const beside = "\n" + `@id("beside") permit (principal is Robot, action, resource);`
	for policy, want := range map[string]string{
		`permit (principal is User, action, resource) when { principal is Admin };`:                                                            "never_applies",
		`forbid (principal is User, action, resource) when { principal is Admin };`:                                                            "never_applies",
		`permit (principal == User::"a", action, resource) when { principal == User::"b" };`:                                                   "never_applies",
		`permit (principal is User, action, resource) when { context.x && !context.x };`:                                                       "never_applies",
		`permit (principal is User, action, resource) when { context.x } unless { context.x };`:                                                "never_applies",
		`permit (principal is User, action, resource) when { context.x == "a" && context.x == "b" };`:                                          "never_applies",
		`permit (principal is User, action, resource) when { context.n > 5 && context.n < 3 };`:                                                "never_applies",
		`permit (principal is User, action, resource) when { principal is User };`:                                                             "",
		`permit (principal is User, action, resource) when { context.x && !context.y };`:                                                       "",
		`permit (principal is User, action, resource) when { context.x || !context.x };`:                                                       "",
		`permit (principal is User, action, resource) when { context.x == "a" || context.x == "b" };`:                                          "",
		`permit (principal is User, action, resource); forbid (principal is User, action, resource);`:                                          "always_forbidden",
		`permit (principal == User::"a", action, resource is Doc); forbid (principal, action, resource is Doc);`:                               "always_forbidden",
		`permit (principal is User, action == Action::"r", resource) when { context.x }; forbid (principal, action == Action::"r", resource);`: "always_forbidden",
		`permit (principal is User, action, resource); forbid (principal is User, action, resource) when { context.x };`:                       "",
		`permit (principal is User, action, resource); forbid (principal is User, action == Action::"r", resource);`:                           "",
		`permit (principal is User, action, resource); forbid (principal is Admin, action, resource);`:                                         "",
		`permit (principal is User, action, resource); forbid (principal == User::"a", action, resource);`:                                     "",
	} {
		got := ""
		for _, code := range codesOf(t, named(policy+beside, "")) {
			if code == "never_applies" || code == "always_forbidden" {
				got += code
			}
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", policy, got, want)
		}
	}
}
