package bundle_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"

	"policy-service/pdp"
	"policy-service/pdp/pdptest/worst"
)

// hostileSchemas are small texts that are large once names of types and shared lists are written out: the first took
// 10 GB, the others minutes.
func hostileSchemas() map[string]struct{ file, text, code string } {
	many := func(n int, f, sep string) string {
		return strings.Join(worst.Each(worst.Numbers(n), func(i int) string { return strings.ReplaceAll(f, "#", fmt.Sprint(i)) }), sep)
	}
	doubling := "type T0 = {a: Long};\n" + strings.Join(worst.Each(worst.Numbers(26), func(i int) string {
		return fmt.Sprintf("type T%d = {a: T%d, b: T%d};", i+1, i, i)
	}), "\n")
	const human, form = "schema.cedarschema", "s.cedarschema.json"
	return map[string]struct{ file, text, code string }{
		"an entity of types that name others twice":  {human, doubling + "\nentity E = {t: T26};", "schema_size"},
		"tags of such types":                         {human, doubling + "\nentity E tags T26;", "schema_size"},
		"a context of such types":                    {human, doubling + "\nentity E; action a appliesTo {principal: E, resource: E, context: T26};", "schema_size"},
		"sets of such types, in a namespace":         {human, "namespace A::B {" + doubling + "\nentity E = {t: Set<A::B::T26>}; }", "schema_size"},
		"a chain of names, named by many":            {human, chain(9000) + "entity E = {" + many(100, "a#: C8999", ",") + "};", "schema_size"},
		"one list of groups, shared by many actions": {human, "action " + many(4000, "a#", ",") + " in [" + many(4000, "g#", ",") + "];" + many(4000, "action g#;", ""), "schema_size"},
		"one list of types, shared by many actions":  {human, many(2000, "entity E#;", "") + "action " + many(2000, "a#", ",") + " appliesTo {principal: [" + many(2000, "E#", ",") + "], resource: E0};", "schema_size"},
		"one context, shared by many actions":        {human, "entity E; action " + many(2000, "a#", ",") + " appliesTo {principal: E, resource: E, context: {" + many(2000, "m#: Long", ",") + "}};", "schema_size"},
		"one shape, shared by many entities":         {human, "entity " + many(2000, "E#", ",") + " {" + many(2000, "m#: Long", ",") + "};", "schema_size"},
		"one list of ids, shared by many entities":   {human, "entity " + many(2000, "E#", ",") + " enum [" + many(2000, `"#"`, ",") + "];", "schema_size"},
		"groups within groups within groups":         {human, ladder(100, 20) + "action " + many(4000, "x#", ",") + " in [" + many(20, "l99_#", ",") + "];", "schema_groups"},
		"the same in JSON":                           {form, `{"":{"commonTypes":{` + many(26, `"T#":{"type":"Record","attributes":{"a":{"type":"U#"},"b":{"type":"U#"}}}`, ",") + `,` + jsonAliases(26) + `},"entityTypes":{"E":{"shape":{"type":"Record","attributes":{"t":{"type":"T25"}}}}},"actions":{}}}`, "schema_size"},
		"braces within braces":                       {human, "entity E = " + strings.Repeat("{a:", 300_000), "schema_nesting"},
		"sets of sets":                               {human, "entity E = {a:" + strings.Repeat("Set<", 200_000), "schema_nesting"},
		"objects within objects in JSON":             {form, `{"":{"actions":{},"entityTypes":{"E":{"tags":` + strings.Repeat(`{"type":"Set","element":`, 4_000) + `{"type":"Long"}` + strings.Repeat("}", 4_000) + `}}}}`, "schema_nesting"},
		"a name twice, before brackets in JSON":      {form, `{"":{"actions":{},"actions":` + strings.Repeat("[", 201) + strings.Repeat("]", 201) + `,"entityTypes":{}}}`, "schema_syntax"},
		"a namespace of many parts":                  {human, "namespace a" + strings.Repeat("::a", 300_000) + " {}", "schema_chain"},
		"a megabyte":                                 {human, "entity E; //" + strings.Repeat("x", 1<<20), "too_large"},
	}
}

// chain is n types, each another name for the one before.
func chain(n int) string {
	return "type C0 = Long;" + strings.Join(worst.Each(worst.Numbers(n-1), func(i int) string { return fmt.Sprintf("type C%d = C%d;", i+1, i) }), "")
}

// ladder is groups of actions in rows, each in all of the row below.
func ladder(rows, wide int) string {
	var b strings.Builder
	for row := range rows {
		for n := range wide {
			fmt.Fprintf(&b, "action l%d_%d", row, n)
			if row > 0 {
				fmt.Fprintf(&b, " in [%s]", strings.Join(worst.Each(worst.Numbers(wide), func(i int) string { return fmt.Sprintf("l%d_%d", row-1, i) }), ","))
			}
			b.WriteString(";")
		}
	}
	return b.String()
}

// jsonAliases let U1 be T0, U2 be T1 and so on.
func jsonAliases(n int) string {
	return strings.Join(worst.Each(worst.Numbers(n), func(i int) string {
		if i == 0 {
			return `"U0":{"type":"Long"}`
		}
		return fmt.Sprintf(`"U%d":{"type":"T%d"}`, i, i-1)
	}), ",")
}

func hostileSchema(file, text string) fstest.MapFS {
	return fstest.MapFS{file: {Data: []byte(text)}, "p.cedar": {Data: []byte("permit(principal, action, resource);")}, "bundle.yaml": {Data: []byte("allow_trivial: true\n")}}
}

// A schema that is larger than it looks is refused before it is written out, at the declaration that is the largest.
func TestSchemaIsMeasuredBeforeItIsResolved(t *testing.T) {
	t.Parallel()
	for name, c := range hostileSchemas() {
		t.Run(name, func(t *testing.T) {
			b, problems := pdp.Load(pdp.FS(hostileSchema(c.file, c.text)))
			if b != nil || len(problems) == 0 || problems[0].Code != c.code || problems[0].File != c.file || c.code != "too_large" && problems[0].Line == 0 {
				t.Errorf("got %+v", problems)
			}
		})
	}
}

// schemaAtItsBound is a bundle whose schema is as large as may be.
func schemaAtItsBound() fstest.MapFS {
	all := func(n int, f string) string {
		return strings.Join(worst.Each(worst.Numbers(n), func(i int) string { return strings.ReplaceAll(f, "#", fmt.Sprint(i)) }), ",")
	}
	text := "entity E; entity A in [A] = {" + all(1000, "m#: Long") + "}; action " + all(30, "g#") + "; action " + all(3_800, "a#") + " in [" + all(20, "g#") + "] appliesTo {principal: [E, A], resource: [E, A], context: {" + all(30, "m#?: Long") + "}};"
	files := hostileSchema("schema.cedarschema", text)
	files["p.cedar"].Data = []byte(strings.Join(worst.Each(worst.Numbers(1_000), func(i int) string {
		return fmt.Sprintf("permit(principal is E, action == Action::\"a%d\", resource) when { context has m1 && context.m1 == %d };", i, i)
	}), "\n"))
	return files
}

// A schema that is as large as may be is taken.
func TestSchemaAtItsBoundLoads(t *testing.T) {
	t.Parallel()
	if _, problems := pdp.Load(pdp.FS(schemaAtItsBound())); problems.Refuse() {
		t.Error(problems)
	}
}

// In a process that may have 1 GiB, even the worst of them is a refusal and no death.
func TestHostileSchemaFitsInAGibibyte(t *testing.T) {
	t.Parallel()
	if os.Getenv("HOSTILE_SCHEMA") != "" {
		if err := unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: 1 << 30, Max: 1 << 30}); err != nil {
			t.Fatal(err)
		}
		for name, c := range hostileSchemas() {
			if b, _ := pdp.Load(pdp.FS(hostileSchema(c.file, c.text))); b != nil {
				t.Error(name)
			}
		}
		// Two actions take few types, and the third 25 million combinations of types.
		all := strings.Join(worst.Each(worst.Numbers(5000), func(i int) string { return fmt.Sprintf("E%d", i) }), ",")
		wide := hostileSchema("schema.cedarschema", "entity "+all+"; action a1, a2 appliesTo {principal: E1, resource: E1}; action a3 appliesTo {principal: ["+all+"], resource: ["+all+"]};")
		wide["p.cedar"].Data = []byte(`permit(principal, action in [Action::"a1", Action::"a2"], resource) when { context has pdp };`)
		if _, problems := pdp.Load(pdp.FS(wide)); problems.Refuse() {
			t.Error(problems)
		}
		return
	}
	child := exec.Command(os.Args[0], "-test.run=^TestHostileSchemaFitsInAGibibyte$")
	child.Env = append(os.Environ(), "HOSTILE_SCHEMA=1", "GOGC=100")
	if out, err := child.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out[:min(len(out), 2000)])
	}
}
