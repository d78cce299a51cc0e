package pdp

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

// What policy files within their limit cost to load grows with their length, not
// with its square: each of the first four took from ten seconds to three minutes
// before it was mended. A file is compared with one an eighth as long in the same
// run, so that a slow machine makes no difference.
func TestHostilePolicyFiles(t *testing.T) {
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
	for name, c := range map[string]struct {
		n    int
		text func(n int) string
	}{
		"distinct reads": {14_000, func(n int) string { return when(many(n, "context.a%d==1", "||")) }},
		"a chain":        {50_000, func(n int) string { return when("context" + strings.Repeat(`["a"]`, n) + " == 1") }},
		"a chain on {}":  {50_000, func(n int) string { return when("{}" + strings.Repeat(`["a"]`, n) + " == 1") }},
		"uids times uids": {5_000, func(n int) string {
			return when("principal in [" + many(n, `P::"%d"`, ",") + "] && resource in [" + many(n, `R::"%d"`, ",") + "]")
		}},
		"a sum":     {120_000, func(n int) string { return when("1" + strings.Repeat("+1", n) + " == 1") }},
		"conjuncts": {40_000, func(n int) string { return when("true" + strings.Repeat("&&true", n)) }},
		"nested ifs": {12_000, func(n int) string {
			return when(strings.Repeat("if true then ", n) + "true" + strings.Repeat(" else 1", n))
		}},
		"chains of has": {4_000, func(n int) string { return when(many(n, "context has a%d.b.c.d.e.f.g.h.i.j.k.l.m.n.o", "||")) }},
		"policies":      {6_000, func(n int) string { return many(n, "permit(principal, action, resource == d::\"%d\");", "") }},
		"clauses": {25_000, func(n int) string {
			return "permit(principal, action, resource)" + strings.Repeat("when{true}", n) + ";"
		}},
		"a pattern":   {100_000, func(n int) string { return when(`context.a like "` + strings.Repeat("*a", n) + `"`) }},
		"parentheses": {600_000, func(n int) string { return when(strings.Repeat("(", n)) }},
		"a has chain": {8_000, func(n int) string { return when("context has " + strings.Repeat("a.", n) + "a") }},
	} {
		t.Run(name, func(t *testing.T) {
			short, long := hostileLoad(t, c.text(c.n/8)), hostileLoad(t, c.text(c.n))
			t.Logf("%d: %s, %d: %s", c.n/8, short.Round(time.Millisecond), c.n, long.Round(time.Millisecond))
			if long > 3*time.Second && long > 40*short {
				t.Errorf("eight times the file takes %d times as much", long/short)
			}
		})
	}
}

// hostileLoad is the CPU that a file takes: who waits for a machine that is busy uses none.
func hostileLoad(t *testing.T, policy string) time.Duration {
	t.Helper()
	start := cpu(t)
	Load(FS(fstest.MapFS{"p.cedar": {Data: []byte(policy)}, "bundle.yaml": {Data: []byte("allow_trivial: true\n")}}))
	return max(cpu(t)-start, time.Microsecond)
}
