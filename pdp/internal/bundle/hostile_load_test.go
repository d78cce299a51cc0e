package bundle_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"policy-service/pdp"
)

type hostilePolicyFile struct {
	n    int // the largest within the limits of files
	text func(n int) string
	code string // why it is refused, at an eighth of that size and above
}

// hostilePolicyFiles are those that take longest to load. Each of the first four took from ten seconds to three minutes
// before it was mended.
func hostilePolicyFiles() map[string]hostilePolicyFile {
	when := func(condition string) string {
		return "permit(principal, action, resource) when { " + condition + " };"
	}
	many := func(n int, f, sep string) string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf(f, i)
		}
		return strings.Join(all, sep)
	}
	return map[string]hostilePolicyFile{
		"distinct reads": {14_000, func(n int) string { return when(many(n, "context.a%d==1", "||")) }, ""},
		"a chain":        {50_000, func(n int) string { return when("context" + strings.Repeat(`["a"]`, n) + " == 1") }, ""},
		"a chain on {}":  {50_000, func(n int) string { return when("{}" + strings.Repeat(`["a"]`, n) + " == 1") }, ""},
		"uids times uids": {5_000, func(n int) string {
			return when("principal in [" + many(n, `P::"%d"`, ",") + "] && resource in [" + many(n, `R::"%d"`, ",") + "]")
		}, ""},
		"a sum":     {120_000, func(n int) string { return when("1" + strings.Repeat("+1", n) + " == 1") }, ""},
		"conjuncts": {40_000, func(n int) string { return when("true" + strings.Repeat("&&true", n)) }, ""},
		"nested ifs": {12_000, func(n int) string {
			return when(strings.Repeat("if true then ", n) + "true" + strings.Repeat(" else 1", n))
		}, "policy_nesting"},
		"chains of has": {4_000, func(n int) string { return when(many(n, "context has a%d.b.c.d.e.f.g.h.i.j.k.l.m.n.o", "||")) }, "policy_has"},
		"policies":      {6_000, func(n int) string { return many(n, "permit(principal, action, resource == d::\"%d\");", "") }, ""},
		"clauses": {25_000, func(n int) string {
			return "permit(principal, action, resource)" + strings.Repeat("when{true}", n) + ";"
		}, ""},
		"a pattern":   {100_000, func(n int) string { return when(`context.a like "` + strings.Repeat("*a", n) + `"`) }, "policy_pattern"},
		"parentheses": {600_000, func(n int) string { return when(strings.Repeat("(", n)) }, "policy_nesting"},
		"a has chain": {8_000, func(n int) string { return when("context has " + strings.Repeat("a.", n) + "a") }, "policy_chain"},
	}
}

func hostilePolicy(text string) fstest.MapFS {
	return fstest.MapFS{"p.cedar": {Data: []byte(text)}, "bundle.yaml": {Data: []byte("allow_trivial: true\n")}}
}

// Each of them loads, or is refused for its form.
func TestHostilePolicyFiles(t *testing.T) {
	t.Parallel()
	for name, c := range hostilePolicyFiles() {
		got := ""
		_, problems := pdp.Load(pdp.FS(hostilePolicy(c.text(c.n / 8))))
		for _, p := range problems {
			if p.Severity == pdp.SeverityError {
				got = p.Code
			}
		}
		if got != c.code {
			t.Errorf("%s: got %q, want %q", name, got, c.code)
		}
	}
}
