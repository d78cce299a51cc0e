package engine_test

import (
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/bundle"
	"policy-service/pdp/pdptest/bound"
	"policy-service/pdp/pdptest/night"
	"policy-service/pdp/pdptest/worst"
)

// No body within the default limits may cost more than 50 ms of CPU. TestCostOfWorstBodies prints what each of the worst
// that we could construct costs, from bytes to decision, and fails only at a multiple that no noise explains.
const tolerated = 500 * time.Millisecond

// worstBundle reads what the bodies below send, with the operators that cost most.
func worstBundle(t testing.TB, schema string) *pdp.PDP {
	t.Helper()
	var policies strings.Builder
	policies.WriteString(`
		permit(principal, action, resource) when { context.a == context.b };
		permit(principal, action, resource) when { context.a.containsAll(context.b) };
		permit(principal, action, resource) when { context.a.containsAny(context.b) };
		permit(principal, action, resource) when { context.s like "*a*b*c*d*e*f*" };
		forbid(principal, action, resource) when { principal has name && principal.name == resource.name };
	`)
	for n := range 200 {
		fmt.Fprintf(&policies, "permit(principal in Role::\"%d\", action, resource in Folder::\"%d\") when { context.a has x%d };\n", n, n, n)
		fmt.Fprintf(&policies, "forbid(principal, action, resource) when { context.k%d == 1 };\n", n)
	}
	files := fstest.MapFS{
		"bundle.yaml":    {Data: []byte("parents: {user: {roles: Role}, doc: {folders: Folder}}\n")},
		"policies.cedar": {Data: []byte(policies.String())},
	}
	if schema != "" {
		files["schema.cedarschema"] = &fstest.MapFile{Data: []byte(schema)}
		files["policies.cedar"] = &fstest.MapFile{Data: []byte(`
			permit(principal, action, resource) when { context has a && context has b && context.a.containsAny(context.b) };
			forbid(principal, action, resource) when { context has s && context.s like "*a*b*c*d*e*f*" };
		`)}
	}
	bundle, problems := pdp.Load(pdp.FS(files))
	if problems.Refuse() {
		t.Fatal(problems)
	}
	return pdp.Of(bundle, pdp.Options{})
}

const worstSchema = `
	entity Role, Folder;
	entity user in [Role] { roles?: Set<String> };
	entity doc in [Folder] { folders?: Set<String>, name?: String };
	action a appliesTo { principal: [user], resource: [doc, user], context: {
		a?: Set<String>, b?: Set<String>, c?: Set<String>, d?: Set<String>, s?: String, n?: Set<Set<String>>, r?: Set<{ x?: Set<Long> }> } };
`

// worstBodies are within the default limits, each at one of their corners.
func worstBodies() map[string]string {
	limits := evaluation.DefaultLimits()
	body := func(context string) string { return worst.Request(`"user","id":"1"`, `"doc","id":"2"`, context) }
	wide := limits.Values - 40
	big := limits.Body - 1000
	strs := worst.List(worst.Colliding(bundle.MostElements), strconv.Quote)
	longs := worst.List(worst.Numbers(bundle.MostElements), strconv.Itoa)
	// true hashes as 1 does, so that each walks past all the numbers to find the one before it.
	floodOf := append(worst.Each(worst.Numbers(bundle.MostElements/2), strconv.Itoa), worst.Times("true", bundle.MostElements/2-1)...)
	flood := "[" + strings.Join(floodOf[1:], ",") + "]"

	return map[string]string{
		"an object of 20,000 members":         body(worst.Object(wide, `"k%d":%d`)),
		"20,000 members of unusable value":    body(worst.Object(wide, `"k%d":0.%d`)),
		"20,000 properties of unusable value": worst.Request(`"user","id":"1","properties":`+worst.Object(wide, `"k%d":0.%d`), `"doc","id":"2"`, `{}`),
		"long names that differ at their end": body(worst.Object(wide, `"`+strings.Repeat("n", 36)+`%d":%d`)),
		"a name of 1 MiB":                     body(`{"` + strings.Repeat("n", big) + `":1}`),
		"a string of 1 MiB":                   body(`{"s":"` + strings.Repeat("abcde", big/5) + `"}`),
		"a string of 1 MiB of escapes":        body(`{"s":"` + strings.Repeat(`\u0061`, big/6) + `"}`),
		"a number of 1 MiB":                   body(`{"a":1` + strings.Repeat("0", big) + `}`),
		"a number with 1 MiB of fraction":     body(`{"a":1.` + strings.Repeat("0", big) + `}`),
		"a number with 1 MiB of exponent":     body(`{"a":1e` + strings.Repeat("9", big) + `}`),
		"objects as deep as may be":           body(`{"a":` + deep(limits.Depth-2, 1200) + `}`),
		"one array of 19,900 numbers":         body(`{"a":` + worst.List(worst.Numbers(19_900), strconv.Itoa) + `}`),
		"9,000 objects in an array":           body(`{"a":[` + strings.Repeat(`{"x":1},`, 8999) + `{"x":2}]}`),
		"arrays as deep as may be":            body(`{"a":[` + strings.Repeat(strings.Repeat("[", 12)+strings.Repeat("]", 12)+",", 1499) + `0]}`),
		"1,200 fractions as deep as may be":   body(`{"a":` + strings.ReplaceAll(deep(limits.Depth-2, 1200), "1}", "0.5}") + `}`),
		"four arrays of 4,096 strings":        body(fourOf(worst.List(worst.Each(worst.Numbers(bundle.MostElements), strconv.Itoa), strconv.Quote))),
		"four arrays of 4,096 numbers":        body(fourOf(longs)),
		"four arrays of numbers and true":     body(fourOf(flood)),
		"four arrays of colliding strings":    body(fourOf(strs)),
		"numbers against strings":             body(`{"a":` + longs + `,"b":` + strs + `}`),
		"sets of one sum":                     body(`{"a":` + worst.Sums(127, 77) + `,"b":` + worst.Sums(127, 77) + `}`),
		"sets of one sum, under a schema":     body(`{"r":[{"x":` + strings.TrimSuffix(strings.TrimPrefix(strings.ReplaceAll(worst.Sums(127, 150), "],[", `]},{"x":[`), "["), "]") + `}]}`),
		"sets of sets of colliding strings":   body(`{"n":` + nestedStrings(127, 150) + `}`),
		"sets of sets of 40 such":             body(`{"n":` + nestedStrings(127, 40) + `,"a":` + nestedStrings(127, 40) + `}`),
		"one entity with 10,000 properties":   worst.Request(`"user","id":"1"`, `"user","id":"1","properties":`+worst.Object(wide, `"p%d":%d`), `{}`),
		"one entity with 10,000 twice":        worst.Request(`"user","id":"1","properties":`+worst.Object(wide/2, `"p%d":%d`), `"user","id":"1","properties":`+worst.Object(wide/2, `"p%d":%d`), `{}`),
		"4,096 roles and 4,096 folders": worst.Request(`"user","id":"1","properties":{"roles":`+worst.List(worst.Each(worst.Numbers(4096), strconv.Itoa), strconv.Quote)+`}`,
			`"doc","id":"2","properties":{"folders":`+worst.List(worst.Each(worst.Numbers(4096), strconv.Itoa), strconv.Quote)+`}`, `{}`),
	}
}

func fourOf(array string) string {
	return `{"a":` + array + `,"b":` + array + `,"c":` + array + `,"d":` + array + `}`
}

func deep(depth, n int) string {
	one := strings.Repeat(`{"a":`, depth-1) + "1" + strings.Repeat("}", depth-1)
	return "{" + strings.Join(worst.Each(worst.Numbers(n), func(i int) string { return fmt.Sprintf(`"m%d":%s`, i, one) }), ",") + "}"
}

// nestedStrings returns n different sets of k strings, where all sets and all strings collide.
func nestedStrings(n, k int) string {
	of := worst.Colliding(n + k)
	return worst.List(worst.Numbers(n), func(i int) string {
		return worst.List(append(append([]string{}, of[:k-1]...), of[k+i-1]), strconv.Quote)
	})
}

// TestWorstBodiesAreAnswered: none of the worst bodies is refused or lost, whatever it costs.
func TestWorstBodiesAreAnswered(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]*pdp.PDP{"untyped": worstBundle(t, ""), "typed": worstBundle(t, worstSchema)} {
		for what, body := range worstBodies() {
			request, err := evaluation.DecodeAuthZEN([]byte(body), "", evaluation.DefaultLimits())
			if err == nil {
				_, err = p.Evaluate(t.Context(), pdp.Call{Request: request})
			}
			if err != nil {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
	}
}

// TestCostOfWorstBodies prints the least of three runs, to which others add nothing.
func TestCostOfWorstBodies(t *testing.T) {
	night.Measures(t)
	var worst time.Duration
	for name, p := range map[string]*pdp.PDP{"untyped": worstBundle(t, ""), "typed": worstBundle(t, worstSchema)} {
		for what, body := range worstBodies() {
			decoding, all, err := cost(t, p, body)
			for range 2 {
				if d, a, _ := cost(t, p, body); a < all {
					decoding, all = d, a
				}
			}
			t.Logf("%-8s %-36s %8d bytes: decoding %8v, all %8v %s", name, what, len(body), decoding, all, refusedFor(err))
			if worst = max(worst, all); all > tolerated {
				t.Errorf("%s, %s: %v of CPU", name, what, all)
			}
		}
	}
	t.Logf("the worst body costs %v of CPU", worst)
}

// cost is what decoding a body takes, and what decoding and answering it take together.
func cost(t *testing.T, p *pdp.PDP, body string) (decoding, all time.Duration, err error) {
	t.Helper()
	runtime.GC()
	start := bound.CPU(t)
	request, err := evaluation.DecodeAuthZEN([]byte(body), "", evaluation.DefaultLimits())
	decoding = bound.CPU(t) - start
	if err == nil {
		_, err = p.Evaluate(t.Context(), pdp.Call{Request: request})
	}
	return decoding, bound.CPU(t) - start, err
}

func refusedFor(err error) string {
	var e *evaluation.Error
	if errors.As(err, &e) {
		return "refused at " + e.Pointer[:min(30, len(e.Pointer))] + ": " + e.Detail
	}
	return ""
}
