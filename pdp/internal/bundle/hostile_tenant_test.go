package bundle_test

import (
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"policy-service/pdp"
	"policy-service/pdp/internal/bundle"
	"policy-service/pdp/internal/source"
	"policy-service/pdp/pdptest/bound"
	"policy-service/pdp/pdptest/night"
	"policy-service/pdp/pdptest/worst"
)

// tenantFiles is a bundle with a tenant t, given by pairs of a file's name in its directory and its text.
func tenantFiles(pairs ...string) fstest.MapFS {
	files := fstest.MapFS{"p.cedar": {Data: []byte(`permit(principal == user::"a", action, resource);`)}}
	for i := 0; i < len(pairs); i += 2 {
		files["tenants/t/"+pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
	}
	return files
}

func entityOf(typ, id, attrs string, parents ...string) string {
	return fmt.Sprintf(`{"uid":{"type":%q,"id":%q},"attrs":{%s},"parents":[%s]}`, typ, id, attrs, strings.Join(parents, ","))
}

func parentText(typ, id string) string { return fmt.Sprintf(`{"type":%q,"id":%q}`, typ, id) }

// manyEntities are n, made of their numbers.
func manyEntities(n int, f func(int) string) string {
	return "[" + strings.Join(worst.Each(worst.Numbers(n), f), ",\n") + "]"
}

func plainEntity(i int) string { return entityOf("e", strconv.Itoa(i), "") }

// manyPolicies have as many words as are asked for, of the kind that takes longest.
func manyPolicies(words int) []string {
	const sum = 1_000
	one := "permit(principal == user::\"a\", action, resource) when { 1" + strings.Repeat("+1", sum) + " == 1 };\n"
	var files []string
	for n := words / (2*sum + 20); n > 0; n -= 120 {
		files = append(files, fmt.Sprintf("sum%d.cedar", n), strings.Repeat(one, min(n, 120)))
	}
	return files
}

// tangled is a graph of n entities, each in all of the row above: as many ancestors for each as may be, along as many ways
// as there are parents.
func tangled(rows, wide int) func(int) string {
	return func(i int) string {
		var up []string
		for p := range wide {
			if row := i/wide - 1; row >= 0 && row < rows {
				up = append(up, parentText("e", strconv.Itoa(row*wide+p)))
			}
		}
		return entityOf("e", strconv.Itoa(i), "", up...)
	}
}

// manyNames are obligations, as many as a file of that size holds.
func manyNames(size int) string {
	var b strings.Builder
	for n := 0; b.Len() < size-60; n++ {
		fmt.Fprintf(&b, "o%d: {type: log, properties: {a: [1,1,1,1,1]}}\n", n)
	}
	return b.String()
}

// tenantsAtTheirBounds are the files of tenants that bring as much as may be of one kind, and of all that goes together.
func tenantsAtTheirBounds() map[string][]string {
	b := bundle.TenantBounds
	strs := strings.Join(worst.Each(worst.Numbers(4_000), func(i int) string { return strconv.Quote("text " + strconv.Itoa(i)) }), ",")
	return map[string][]string{
		"ignored":  {"entities/e.json", "[" + entityOf("e", "1", `"a":{"__entity":{"type":"e","id":"1","x":[`+strings.Join(append(worst.Each(worst.Numbers(100_000), strconv.Itoa), worst.Times("true", 100_000)...)[1:], ",")+`]}}`) + "]"},
		"policies": manyPolicies(b.Words - 3_000),
		"entities": {"entities/e.json", manyEntities(b.Entities, plainEntity)},
		"values":   {"entities/e.json", manyEntities(24, func(i int) string { return entityOf("e", strconv.Itoa(i), `"a":[`+strs+`]`) })},
		"objects": {"entities/e.json", manyEntities(1_000, func(i int) string {
			return entityOf("e", strconv.Itoa(i), `"a":`+worst.Object(90, `"k%d":{"__entity":{"type":"e","id":"%d"}}`))
		})},
		"sets of sets": {"entities/e.json", manyEntities(1, func(i int) string { return entityOf("e", strconv.Itoa(i), `"a":`+worst.Sums(127, 700)) })},
		"parents": {"entities/e.json", manyEntities(2_000, func(i int) string {
			return entityOf("e", strconv.Itoa(i), "", worst.Each(worst.Numbers(19), func(p int) string { return parentText("f", strconv.Itoa(p*i)) })...)
		})},
		"a chain of parents": {"entities/e.json", manyEntities(b.Ancestors, func(i int) string {
			return entityOf("e", strconv.Itoa(i), "", parentText("e", strconv.Itoa(i+1)))
		})},
		"many below a chain": {"entities/e.json", manyEntities(b.Entities-1, func(i int) string {
			return entityOf("e", strconv.Itoa(i+1), "", parentText("e", strconv.Itoa(min(i, b.Ancestors-1))))
		})},
		"a circle": {"entities/e.json", manyEntities(700, func(i int) string {
			return entityOf("e", strconv.Itoa(i), "", parentText("e", strconv.Itoa((i+1)%700)))
		})},
		"a tangle": {"entities/e.json", manyEntities(190, tangled(10, 18))},
		"one person": {"entities/e.json", manyEntities(b.Entities, func(i int) string {
			return entityOf("n", strconv.Itoa(i), fmt.Sprintf(`"identities":[{"__entity":{"type":"n","id":"%d"}}]`, i+1))
		})},
		"one id for all": {"entities/e.json", manyEntities(b.Entities, func(i int) string { return entityOf(fmt.Sprintf("n%d", i), "x", `"identities":[]`) })},
		"one name for all": {"entities/e.json", manyEntities(b.Entities, func(i int) string {
			return entityOf("n", strconv.Itoa(i), fmt.Sprintf(`"identities":[{"__entity":{"type":"m%d","id":"x"}}]`, i))
		})},
		"persons": {"entities/e.json", manyEntities(15_000, func(i int) string {
			return entityOf("n", strconv.Itoa(i), fmt.Sprintf(`"identities":[{"__entity":{"type":"n","id":"%d"}}]`, i^1))
		})},
		"a crowd":                     {"entities/e.json", manyEntities(2_000, func(i int) string { return entityOf("n", strconv.Itoa(i), fmt.Sprintf(`"identities":["g%d"]`, i/25)) })},
		"obligations":                 {"obligations.yaml", manyNames(int(source.TenantBounds.Obligations))},
		"bytes":                       {"entities/e.json", `[` + entityOf("e", "1", `"a":"`+strings.Repeat("x", int(source.TenantBounds.Bytes)-200)+`"`) + `]`},
		"nulls":                       {"entities/e.json", `[` + strings.TrimSuffix(entityOf("e", "1", ""), "}") + `,"more":[` + strings.Repeat("1,", int(source.TenantBounds.Bytes)/2-200) + `1]}]`},
		"files":                       filesOf(source.TenantBounds.Files - 1),
		"declarations of short rules": {"access/a.yaml", denials(1_000, denial), "access/b.yaml", denials(1_000, denial), "access/c.yaml", denials(1_000, denial)},
		"all at once": append(manyPolicies(b.Words-3_000), "obligations.yaml", manyNames(int(source.TenantBounds.Obligations)),
			"entities/a.json", manyEntities(190, tangled(10, 18)),
			"entities/b.json", manyEntities(450, func(i int) string {
				return entityOf("v", strconv.Itoa(i), `"a":`+worst.Object(90, `"k%d":{"__entity":{"type":"e","id":"%d"}}`))
			}),
			"entities/c.json", manyEntities(5_000, func(i int) string { return entityOf("n", strconv.Itoa(i), fmt.Sprintf(`"identities":["g%d"]`, i/25)) }),
			"entities/d.json", manyEntities(7_500, func(i int) string {
				return entityOf("x", strconv.Itoa(i), `"a":1`, parentText("y", "1"), parentText("y", "2"), parentText("y", "3"))
			})),
	}
}

// What a tenant may bring loads, each by itself and all of it at once.
func TestATenantAtAllItsBoundsLoads(t *testing.T) {
	t.Parallel()
	for name, files := range tenantsAtTheirBounds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, problems := pdp.Load(pdp.FS(tenantFiles(files...))); problems.Refuse() {
				t.Errorf("%.300v", problems)
			}
		})
	}
}

// costly are bundles by what is costly in them, each with the CPU that no noise explains. What a tenant may bring takes a
// second.
func costly() map[string]costlyFiles {
	all := map[string]costlyFiles{}
	for name, files := range tenantsAtTheirBounds() {
		all["a tenant at its bounds: "+name] = costlyFiles{files: tenantFiles(files...), most: 5 * time.Second}
	}
	for name, c := range tenantsBeyondABound() {
		all["a tenant beyond a bound: "+name] = costlyFiles{files: tenantFiles(c.files...), most: 5 * time.Second}
	}
	for name, c := range hostilePolicyFiles() {
		all["policies: "+name] = costlyFiles{files: hostilePolicy(c.text(c.n)), most: 5 * time.Second}
	}
	for name, text := range hostilePolicies(800) {
		all["checks of a tenant: "+name] = costlyFiles{files: withHostile(text), most: 5 * time.Second}
	}
	for name, c := range hostileSchemas() {
		all["schemas: "+name] = costlyFiles{files: hostileSchema(c.file, c.text), most: 10 * time.Second}
	}
	for name, c := range hostileObligations() {
		all["obligations: "+name] = costlyFiles{c.files, 20 * time.Second, true}
	}
	all["a schema at its bound"] = costlyFiles{schemaAtItsBound(), 30 * time.Second, true}
	return all
}

type costlyFiles struct {
	files fstest.MapFS
	most  time.Duration
	check bool // as check does, and not only loaded
}

func TestCostOfHostileFiles(t *testing.T) {
	night.Measures(t)
	for name, c := range costly() {
		t.Run(name, func(t *testing.T) {
			runtime.GC()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := bound.CPU(t)
			if c.check {
				pdp.Check(pdp.FS(c.files), time.Time{})
			} else {
				pdp.Load(pdp.FS(c.files))
			}
			took := bound.CPU(t) - start
			runtime.ReadMemStats(&after)
			bytes := after.TotalAlloc - before.TotalAlloc
			t.Logf("%v of CPU, %d MiB", took.Round(time.Millisecond), bytes>>20)
			if took > c.most || strings.HasPrefix(name, "schemas: ") && bytes > 512<<20 {
				t.Errorf("it takes %v of CPU and %d MiB", took, bytes>>20)
			}
		})
	}
}

// denial is a rule of two tools.
const denial = "{agent: a%d, tools: [b, c], expires: 2030-01-02T03:04:05Z}"

// denials is a declaration of so many rules.
func denials(n int, rule string) string {
	return "mode: denylist\nrules:\n- " + strings.Join(worst.Each(worst.Numbers(n), func(i int) string { return fmt.Sprintf(rule, i) }), "\n- ") + "\n"
}

// covered is a declaration of rules of which each has to be held against each other, to find those that cannot count.
func covered() string {
	text := "mode: hybrid\ndefault: deny\nrules:\n"
	for n := range 500 {
		tools := strings.Join(worst.Each(worst.Numbers(40), func(i int) string { return fmt.Sprintf("a%d", i) }), ",")
		text += fmt.Sprintf("- {agent: a, tools: [%s,b%d], effect: allow}\n- {agent: a, tools: [%s,c%d], effect: deny}\n", tools, n, tools, n)
	}
	return text
}

func filesOf(n int) (files []string) {
	for i := range n {
		files = append(files, fmt.Sprintf("f%d.cedar", i), "// nothing")
	}
	return files
}

// hiddenNames are names of which no file is loaded.
func hiddenNames(n int) (files []string) {
	for i := range n {
		files = append(files, fmt.Sprintf("entities/.%d", i), "")
	}
	return files
}

type beyondABound struct {
	code, file string
	line       int // -1 for any
	files      []string
}

// tenantsBeyondABound are the files of tenants that bring more than may be, and where they are refused.
func tenantsBeyondABound() map[string]beyondABound {
	b := bundle.TenantBounds
	strs := worst.Colliding(4096)
	flood := strings.Join(append(worst.Each(worst.Numbers(2_000), strconv.Itoa), worst.Times("true", 2_000)...)[1:], ",")
	long := denials(1_000, "{agent: a%d, tools: ["+strings.Repeat("b", 200)+"]}")
	entity := func(attrs string) string { return "[\n" + entityOf("e", "1", attrs) + "]" }
	when := func(condition string) string {
		return "permit(principal == user::\"a\", action, resource)\nwhen { " + condition + " };"
	}
	return map[string]beyondABound{
		"files":                       {"many_files", "", 0, filesOf(source.TenantBounds.Files + 1)},
		"names in a directory":        {"many_names", "entities", 0, hiddenNames(source.TenantBounds.Names + 1)},
		"bytes":                       {"many_bytes", "entities/b.json", 0, []string{"entities/a.json", `[` + entityOf("e", "1", `"a":"`+strings.Repeat("x", int(source.TenantBounds.Bytes)-200)+`"`) + `]`, "entities/b.json", manyEntities(10, plainEntity)}},
		"a file":                      {"too_large", "entities/a.json", 0, []string{"entities/a.json", strings.Repeat(" ", int(source.TenantBounds.EntityFile)+1)}},
		"obligations":                 {"too_large", "obligations.yaml", 0, []string{"obligations.yaml", manyNames(int(source.TenantBounds.Obligations)) + strings.Repeat("#", 100)}},
		"words":                       {"many_words", "", -1, manyPolicies(b.Words + 3_000)},
		"declarations":                {"many_declarations", "access/c.yaml", 0, []string{"access/a.yaml", long, "access/b.yaml", long, "access/c.yaml", long}},
		"declarations of many tools":  {"many_words", "access/a.yaml", -1, []string{"access/a.yaml", denials(48, "{agent: a%d, tools: ["+strings.Join(worst.Each(worst.Numbers(1_000), strconv.Itoa), "x,")+"x]}")}},
		"declarations of one mapping": {"yaml_value", "access/a.yaml", 1, []string{"access/a.yaml", "mode: {" + strings.Repeat("a,", 120_000) + "}", "access/b.yaml", "mode: {" + strings.Repeat("a,", 120_000) + "}"}},
		"declarations of rules that others may cover": {"many_words", "access/a.yaml", -1, []string{"access/a.yaml", covered(), "access/b.yaml", covered()}},
		"entities": {"many_entities", "entities/e.json", b.Entities + 1, []string{"entities/e.json", manyEntities(b.Entities+1, plainEntity)}},
		"values":   {"many_values", "entities/e.json", 1_001, []string{"entities/e.json", manyEntities(2_000, func(i int) string { return entityOf("e", strconv.Itoa(i), `"a":`+worst.Object(98, `"k%d":%d`)) })}},
		"parents": {"many_parents", "entities/e.json", 2_001, []string{"entities/e.json", manyEntities(3_000, func(i int) string {
			return entityOf("e", strconv.Itoa(i), "", worst.Each(worst.Numbers(20), func(p int) string { return parentText("f", strconv.Itoa(p)) })...)
		})}},
		"ancestors": {"many_ancestors", "entities/e.json", 1, []string{"entities/e.json", manyEntities(b.Ancestors+2, func(i int) string { return entityOf("e", strconv.Itoa(i), "", parentText("e", strconv.Itoa(i+1))) })}},
		"a circle": {"many_ancestors", "entities/e.json", 1, []string{"entities/e.json", manyEntities(b.Ancestors+2, func(i int) string {
			return entityOf("e", strconv.Itoa(i), "", parentText("e", strconv.Itoa((i+1)%(b.Ancestors+2))))
		})}},
		"ways up":             {"many_ways_up", "entities/e.json", -1, []string{"entities/e.json", manyEntities(1_900, tangled(100, 18))}},
		"numbers and true":    {"entity_form", "entities/e.json", 2, []string{"entities/e.json", entity(`"a":[` + flood + `]`)}},
		"colliding strings":   {"entity_form", "entities/e.json", 2, []string{"entities/e.json", entity(`"a":` + worst.List(strs, strconv.Quote))}},
		"colliding durations": {"entity_form", "entities/e.json", 2, []string{"entities/e.json", entity(`"a":[` + strings.Join(append(worst.Each(worst.Numbers(1_000), strconv.Itoa), worst.Each(worst.Numbers(1_000), func(i int) string { return fmt.Sprintf(`{"__extn":{"fn":"duration","arg":"%dms"}}`, i) })...), ",") + `]`)}},
		"in a tag":            {"entity_form", "entities/e.json", 2, []string{"entities/e.json", strings.Replace(entity(""), `"attrs":{}`, `"attrs":{},"tags":{"a":[`+flood+`]}`, 1)}},
		"deep in a record":    {"entity_form", "entities/e.json", 2, []string{"entities/e.json", entity(`"a":{"b":{"c":[` + flood + `]}}`)}},
		"4,097 elements":      {"entity_form", "entities/e.json", 2, []string{"entities/e.json", entity(`"a":` + worst.List(worst.Numbers(4097), strconv.Itoa))}},
		"129 arrays":          {"entity_form", "entities/e.json", 2, []string{"entities/e.json", entity(`"a":` + worst.List(worst.Numbers(129), func(i int) string { return fmt.Sprintf("[%d]", i) }))}},
		"arrays of arrays":    {"entity_form", "entities/e.json", 2, []string{"entities/e.json", entity(`"a":` + worst.List(worst.Numbers(20), func(i int) string { return fmt.Sprintf("[[%d],[%d],[1]]", i, i+1) }))}},
		"17 records deep":     {"entity_form", "entities/e.json", 2, []string{"entities/e.json", entity(`"a":` + strings.Repeat(`{"a":`, 16) + "1" + strings.Repeat("}", 16))}},
		"a list of them":      {"policy_list", "p.cedar", 2, []string{"p.cedar", when("[" + flood + "].contains(1)")}},
		"and of strings":      {"policy_list", "p.cedar", 2, []string{"p.cedar", when(worst.List(strs, strconv.Quote) + ".contains(1)")}},
		"with comments":       {"policy_list", "p.cedar", 2, []string{"p.cedar", when("[" + strings.ReplaceAll(flood, ",", "/**/,/**/") + "].contains(1)")}},
		"disguised":           {"policy_list", "p.cedar", 2, []string{"p.cedar", when("[" + strings.ReplaceAll(flood, ",", "+0,") + "].contains(1)")}},
		"a list too long":     {"policy_list", "p.cedar", 2, []string{"p.cedar", when(worst.List(worst.Numbers(4097), strconv.Itoa) + ".contains(1)")}},
		"lists of lists":      {"policy_list", "p.cedar", 2, []string{"p.cedar", when(worst.List(worst.Numbers(33), func(i int) string { return fmt.Sprintf("[1,%d]", i) }) + ".contains(1)")}},
		"three deep":          {"policy_list", "p.cedar", 2, []string{"p.cedar", when("[[[1,2],[3]],[[4]]].contains(1)")}},
		"a long pattern":      {"policy_pattern", "p.cedar", 2, []string{"p.cedar", when(`"` + strings.Repeat("a", 10_000) + `" like "*` + strings.Repeat("a", 5_000) + `b"`)}},
		"a long text":         {"policy_text", "p.cedar", 2, []string{"p.cedar", when(`"` + strings.Repeat("a", 17_000) + `" like "*a"`)}},
		"long paths":          {"policy_has", "p.cedar", 2, []string{"p.cedar", when(strings.Join(worst.Each(worst.Numbers(4_000), func(i int) string { return fmt.Sprintf("context has a%d.b.c.d.e.f.g.h.i.j.k.l.m.n.o", i) }), "||"))}},
		"a type of many":      {"policy_chain", "p.cedar", 2, []string{"p.cedar", when("principal is a" + strings.Repeat("::a", 60_000))}},
	}
}

// What is beyond a bound is refused where it begins to be.
func TestATenantBeyondABoundIsRefusedInItsPlace(t *testing.T) {
	t.Parallel()
	for name, c := range tenantsBeyondABound() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, problems := pdp.Load(pdp.FS(tenantFiles(c.files...)))
			at := pdp.Problem{}
			for _, p := range problems {
				if p.Severity == pdp.SeverityError && at.Code == "" {
					at = p
				}
			}
			if at.Code != c.code || !strings.HasPrefix(at.File, "tenants/t/"+c.file) || c.line >= 0 && at.Line != c.line || c.line < 0 && at.Line == 0 {
				t.Errorf("got %+v", at)
			}
		})
	}
}

// The root may bring more than a tenant, and what it brings is bounded, too.
func TestTheRootMayBringMore(t *testing.T) {
	t.Parallel()
	for name, pairs := range map[string][]string{
		"entities": {"entities/e.json", manyEntities(bundle.TenantBounds.Entities+1, plainEntity)},
		"files":    filesOf(source.TenantBounds.Files + 1),
	} {
		files := fstest.MapFS{"p.cedar": {Data: []byte(`permit(principal == user::"a", action, resource);`)}}
		for i := 0; i < len(pairs); i += 2 {
			files[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
		}
		if _, problems := pdp.Load(pdp.FS(files)); problems.Refuse() {
			t.Errorf("%s: %v", name, problems)
		}
	}
}

// One small file of a tenant cannot make tens of thousands of problems, each a line of the
// log: after the first hundred nothing more of it is read.
func TestOneFileDoesNotMakeThousandsOfProblems(t *testing.T) {
	t.Parallel()
	broken := "[" + strings.Repeat("{},", 15_000) + "{}]"
	doubled := "[" + strings.Repeat(`{"uid":{"type":"User","id":"u"},"attrs":{},"parents":[]},`, 15_000) + `{"uid":{"type":"User","id":"u"},"attrs":{},"parents":[]}]`
	for what, files := range map[string]tree{
		"no entities":      {"tenants/acme/entities/a.json": broken, "tenants/acme/entities/b.json": broken},
		"beside no schema": {"schema.cedarschema": "entity {", "tenants/acme/entities/a.json": broken},
		"the same":         {"tenants/acme/entities/a.json": doubled},
		"a declaration":    {"tenants/acme/access/a.yaml": strings.Repeat("x: y\n", 30_000)},
		"taken ids":        {"tenants/acme/x.cedar": strings.Repeat("@id(\"x\") forbid(principal, action, resource);\n", 3_000)},
	} {
		files["a.cedar"], files["tenants/other/bad.cedar"] = smallest, "forbid("
		dir := t.TempDir()
		files.Write(t, dir)
		read := pdp.Dir(dir).Read()
		l := bundle.NewLoading(t.Context(), read, bundle.InForce{})
		made, problems := l.Build()
		count := map[string]int{}
		for _, p := range problems {
			count[p.Code]++
		}
		if made.Bundle != nil || len(problems) > bundle.MostErrors+4 || count["many_errors"] != 1 || !slices.ContainsFunc(problems, func(p pdp.Problem) bool { return p.File == "tenants/other/bad.cedar" }) {
			t.Errorf("%s: %d problems: %v", what, len(problems), count)
		}
	}
	var problems pdp.Problems
	use := bundle.UsageOf("acme")
	bundle.ParseEntities("tenants/acme/entities/a.json", []byte(broken), use, &problems)
	if use.EntityCount != bundle.MostErrors+1 {
		t.Errorf("%d entities were read", use.EntityCount)
	}
}
