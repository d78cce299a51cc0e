package lint_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"policy-service/pdp"
	"policy-service/pdp/pdptest/bound"
	"policy-service/pdp/pdptest/night"
)

// named is a bundle of policies, an obligations.yaml, and pairs of name and
// content of other files.
func named(policies, definitions string, files ...string) fstest.MapFS {
	fsys := fstest.MapFS{"policy.cedar": {Data: []byte(policies)}}
	if definitions != "" {
		fsys["obligations.yaml"] = &fstest.MapFile{Data: []byte(definitions)}
	}
	for i := 0; i < len(files); i += 2 {
		fsys[files[i]] = &fstest.MapFile{Data: []byte(files[i+1])}
	}
	return fsys
}

const taggedPermit = "\n" + `@id("o") @obligation("tell") permit (principal is User, action == Action::"read", resource is Doc);` + "\n"

func TestCheckObligationsProduced(t *testing.T) {
	t.Parallel()
	const (
		tell   = "tell: {type: log}\n"
		unused = "obligation_unused obligations.yaml:2:1"
		never  = "obligation_never_produced obligations.yaml:1:1"
	)
	impossible := func(policy string, files ...string) fstest.MapFS {
		return named("@id(\"base\") permit (principal is User, action == Action::\"base\", resource is Doc);\n@id(\"p\") @obligation(\"tell\") "+policy, tell, files...)
	}
	schema := []string{"schema.cedarschema", lintSchema}
	for _, c := range []lintCase{
		{"defined, named by nobody", named(taggedPermit, tell+"shout: {type: log}\n"), unused},
		{"two of them", named(taggedPermit, tell+"shout: {type: log}\n  \nwhisper: {type: log}\n"), unused + "\nobligation_unused obligations.yaml:4:1"},
		{"built in, and defined anew", named(taggedPermit, tell+"log: {type: log}\n"), unused},
		{"built in", named(taggedPermit, tell), ""},
		{"named by a forbid alone", named(`@id("base") permit (principal is User, action, resource); @id("p") @obligation("tell") forbid (principal is Doc, action, resource);`, tell), ""},
		{"a tenant's", named(taggedPermit, tell, "tenants/t/obligations.yaml", "\n\nown: {type: log}", "tenants/t/p.cedar", `@id("t") permit (principal is Spy, action, resource);`), "obligation_unused tenants/t/obligations.yaml:3:1"},
		{"the root's, named by a tenant", named(`@id("base") permit (principal is User, action, resource);`, tell, "tenants/t/p.cedar", `@id("t") @obligation("tell") permit (principal is Spy, action, resource);`), ""},
		{"another tenant's of the same name", named(taggedPermit, tell,
			"tenants/t/obligations.yaml", "own: {type: log}", "tenants/t/p.cedar", `@id("t") @obligation("own") permit (principal is Spy, action, resource);`,
			"tenants/s/obligations.yaml", "own: {type: log}", "tenants/s/p.cedar", `@id("s") permit (principal is Spy, action, resource);`), "obligation_unused tenants/s/obligations.yaml:1:1"},

		{"no action of the schema", impossible(`permit (principal is Doc, action == Action::"read", resource is Doc);`, schema...), never + "\nno_applicable_action policy.cedar:2:1"},
		{"an action of another type", impossible(`permit (principal is User, action == Operation::"read", resource);`), never + "\naction_type policy.cedar:2:1"},
		{"two types", impossible(`permit (principal is User, action == Action::"x", resource) when { principal is Agent };`), never + "\nnever_applies policy.cedar:2:1"},
		{"an id of another type", impossible(`forbid (principal is User, action == Action::"x", resource) when { principal == Agent::"a" };`), never + "\nnever_applies policy.cedar:2:1"},
		{"two ids", impossible(`permit (principal == User::"a", action == Action::"x", resource) when { principal == User::"b" };`), never + "\nnever_applies policy.cedar:2:1"},
		{"no id at all", impossible(`permit (principal is User, action in [], resource);`), never},
		{"false", impossible(`permit (principal is User, action == Action::"x", resource) when { context.pdp.approved && false };`), never + "\nnever_applies policy.cedar:2:1"},
		{"unless true", impossible(`permit (principal is User, action == Action::"x", resource) unless { true };`), never + "\nnever_applies policy.cedar:2:1"},
		{"built in, at the policy", named("@id(\"base\") permit (principal is User, action == Action::\"base\", resource);\n @id(\"p\") @obligation(\"log\") permit (principal is User, action == Action::\"x\", resource) when { false };", ""), "never_applies policy.cedar:2:2\nobligation_never_produced policy.cedar:2:2"},
		{"one policy that can", impossible("permit (principal is User, action == Action::\"x\", resource) when { false };\n@id(\"q\") @obligation(\"tell\") permit (principal is User, action == Action::\"x\", resource);"), "never_applies policy.cedar:2:1"},
		{"groups may be of any type", impossible(`permit (principal is User in Agent::"a", action == Action::"x", resource) when { principal in Group::"g" };`), ""},
		{"false, but not for all", impossible(`permit (principal is User, action == Action::"x", resource) when { context.pdp.approved || false };`), ""},
	} {
		c.run(t)
	}
}

func TestCheckMisspelt(t *testing.T) {
	t.Parallel()
	with := func(annotation string) fstest.MapFS {
		return named("\n@id(\"p\") @"+annotation+` permit (principal is User, action, resource);`, "")
	}
	const here = "obligation_misspelt policy.cedar:2:10"
	for annotation, want := range map[string]string{
		`obligations("log")`: here, `Obligation("log")`: here, `OBLIGATIONS("log")`: here, `obligatoin("log")`: here, `obligation_("log")`: here,
		`obligation("log")`: "", `description("obligation")`: "", `owner("x")`: "", `object("x")`: "", `obligatory_reading("x")`: "",
	} {
		lintCase{annotation, with(annotation), want}.run(t)
	}
}

func TestCheckOverlap(t *testing.T) {
	t.Parallel()
	const here = "obligation_overlap policy.cedar:1:1"
	const anybody = `(principal is User, action == Action::"a", resource is Doc)`
	// p is the permit without an obligation, on line 1; o has one, on line 2.
	two := func(p, o string, files ...string) fstest.MapFS {
		return named("@id(\"p\") permit "+p+";\n@id(\"o\") @obligation(\"log\") permit "+o+";", "", files...)
	}
	wants := func(p, o string) fstest.MapFS {
		const has = " when { context has x && context has y && ("
		return two(anybody+has+p+") }", anybody+has+o+") }")
	}
	schema := []string{"schema.cedarschema", lintSchema}
	groups := []string{"entities/a.json", `[{"uid": {"type": "Action", "id": "read"}, "attrs": {}, "parents": [{"type": "Action", "id": "reads"}]}, {"uid": {"type": "Action", "id": "list"}, "attrs": {}, "parents": [{"type": "Action", "id": "reads"}]}]`}
	for _, c := range []lintCase{
		{"a condition", two(anybody, anybody+` when { context has mfa }`), here},
		{"narrower principals", two(anybody, `(principal == User::"a", action == Action::"a", resource is Doc)`), here},
		{"groups", two(`(principal in Group::"a", action == Action::"a", resource)`, `(principal in Group::"b", action == Action::"a", resource)`), here},
		{"a group of a type", two(`(principal is User, action == Action::"a", resource)`, `(principal is User in Group::"b", action == Action::"a", resource)`), here},
		{"an id and a group of another type", two(`(principal == User::"a", action == Action::"a", resource)`, `(principal in Group::"b", action == Action::"a", resource)`), here},
		{"narrower resources", two(anybody, `(principal is User, action == Action::"a", resource in Folder::"secret")`), here},
		{"one of its actions", two(`(principal is User, action in [Action::"a", Action::"b"], resource)`, `(principal is User, action in [Action::"b", Action::"c"], resource)`), here},
		{"no action in the one", two(`(principal is User, action, resource)`, `(principal is User, action == Action::"c", resource)`), here},
		{"an action of a group", two(`(principal is User, action in Action::"reads", resource)`, `(principal is User, action == Action::"read", resource)`, groups...), here},
		{"a clause that leads", two(`(principal is User, action == Action::"a", resource) when { resource is Doc }`, anybody+` when { resource in Folder::"secret" }`), here},
		{"one clause of two", two(anybody+` when { context has mfa }`, anybody+` when { context has mfa && context has b }`), here},
		{"excludes something else", two(anybody+` unless { context has b }`, anybody+` when { context has mfa }`), here},
		{"excludes only one half", two(anybody+` unless { context has mfa && context has b }`, anybody+` when { context has mfa }`), here},
		{"named in each", two(anybody+` when { context has a }`, anybody+` when { context has b }`), here},
		{"beside a schema", two(`(principal is User, action == Action::"read", resource is Doc)`, `(principal, action == Action::"read", resource) when { principal is User && context.purpose == "x" }`, schema...), here},
		{"once, however many", named("@id(\"p\") permit "+anybody+";\n"+each5(`@id("o%d") @obligation("log") permit `+anybody+` when { context has a%d };`), ""), here},

		{"other actions", two(anybody, `(principal is User, action == Action::"b", resource is Doc)`), ""},
		{"other actions of sets", two(`(principal is User, action in [Action::"a", Action::"b"], resource)`, `(principal is User, action in [Action::"c", Action::"d"], resource)`), ""},
		{"an action outside the group", two(`(principal is User, action in Action::"reads", resource)`, `(principal is User, action == Action::"write", resource)`, groups...), ""},
		{"other types", two(anybody, `(principal is Agent, action == Action::"a", resource is Doc)`), ""},
		{"an id of another type", two(anybody, `(principal == Agent::"a", action == Action::"a", resource is Doc)`), ""},
		{"another id", two(`(principal == User::"a", action, resource)`, `(principal == User::"b", action, resource)`), ""},
		{"other types in clauses that lead", two(anybody+` when { principal is User }`, `(principal, action == Action::"a", resource is Doc) when { principal is Agent }`), ""},
		{"types that only the schema tells apart", two(`(principal, action == Action::"base", resource)`, `(principal is Agent, action, resource) when { resource has x || true }`, "schema.cedarschema", strings.Replace(lintSchema, "entity Group, Doc;", "entity Group; entity Doc = { x?: Long };", 1)), ""},
		{"excludes what the other wants", two(anybody+` unless { context has mfa }`, anybody+` when { context has mfa }`), ""},
		{"excludes both halves", two(anybody+` unless { context has mfa && context has b }`, anybody+` when { context has b && context has mfa && context has c }`), ""},
		{"excludes one or the other", two(anybody+` unless { context has mfa || context has b }`, anybody+` when { context has b }`), ""},
		{"excludes by not", two(anybody+` when { !(context has mfa) }`, anybody+` when { context has mfa }`), ""},
		{"is excluded", two(anybody+` when { context has mfa && context.mfa }`, anybody+` unless { context has mfa }`), ""},
		{"excludes by not, twice", two(anybody+` unless { !(!(context has mfa)) }`, anybody+` when { context has mfa }`), ""},
		{"demands by not", two(anybody+` unless { !(context has mfa) }`, anybody+` unless { context has mfa }`), ""},
		{"excludes a scope", two(anybody+` unless { resource in Folder::"secret" }`, `(principal is User, action == Action::"a", resource in Folder::"secret")`), ""},
		{"excludes a wider scope", two(anybody+` unless { resource is Doc }`, `(principal is User, action == Action::"a", resource is Doc in Folder::"secret")`), "never_applies policy.cedar:1:1"},
		{"excludes scopes by a set", two(anybody+` unless { resource in [Folder::"a", Folder::"secret"] }`, `(principal is User, action == Action::"a", resource in Folder::"secret")`), ""},
		{"excludes an id by a set", two(anybody+` unless { resource in [Folder::"a", Doc::"b"] }`, `(principal is User, action == Action::"a", resource == Doc::"b")`), ""},
		{"excludes a leading test by a set", two(anybody+` unless { resource in [Folder::"a", Folder::"secret"] }`, anybody+` when { resource in Folder::"secret" && context has b }`), ""},
		{"excludes a smaller set", two(anybody+` unless { resource in [Folder::"a", Folder::"b", Folder::"c"] }`, anybody+` when { resource in [Folder::"c", Folder::"a"] }`), ""},
		{"excludes a set, but not all of it", two(anybody+` unless { resource in [Folder::"a", Folder::"b"] }`, anybody+` when { resource in [Folder::"c", Folder::"a"] }`), here},
		{"excludes an id, but not what is in it", two(anybody+` unless { resource == Doc::"b" }`, `(principal is User, action == Action::"a", resource in Doc::"b")`), here},
		{"another string", wants(`context.x == "a"`, `context.x == "b"`), ""},
		{"strings, and another", wants(`["a", "b"].contains(context.x)`, `context.x == "c"`), ""},
		{"strings, and others", wants(`["a", "b"].contains(context["x"])`, `["c", "d"].contains(context.x)`), ""},
		{"no strings", wants(`["a"].contains(context.x)`, `[].contains(context.x)`), "never_applies policy.cedar:2:1"},
		{"another string behind two nots", two(anybody+` when { context has x && context.x == "a" }`, anybody+` unless { !(context has x && context.x == "b") }`), ""},
		{"strings, and one of them", wants(`["a", "b"].contains(context.x)`, `context.x == "b"`), here},
		{"a string of something else", wants(`context.x == "a"`, `context.y == "b"`), here},
		{"not a string", wants(`context.x == "a"`, `context.x != "b"`), here},
		{"not strings", wants(`context.x == "a"`, `!(["b"].contains(context.x))`), here},
		{"some of its strings", wants(`["a"].containsAny(context.x)`, `["b"].containsAll(context.x)`), here},
		{"strings it contains", wants(`context.x.contains("a")`, `context.x.contains("b")`), here},
		{"a string of a name with more spaces", wants(`context has "a b" && context["a b"] == "a"`, `context has "a  b" && context["a  b"] == "b"`), here},
		{"what may be the same string", wants(`context.x == "a"`, `context.x == context.y`), here},
		{"what may be one of the strings", wants(`context.x == "a"`, `["b", context.y].contains(context.x)`), here},
		{"another string, or something else", wants(`context.x == "a"`, `context.x == "b" || context has z`), here},
		{"ids that begin otherwise", two(anybody+` when { context.pdp.resource.id like "a:*" }`, anybody+` when { context.pdp.resource.id like "b:*" && context has x }`), ""},
		{"an id that begins otherwise", two(anybody+` when { context.pdp.subject.id like "a:*" }`, `(principal == User::"b:1", action == Action::"a", resource is Doc)`), ""},
		{"ids that begin longer", two(anybody+` when { context.pdp.resource.id like "a:*" }`, anybody+` when { context.pdp.resource.id like "a:b*" }`), here},
		{"ids of the other variable", two(anybody+` when { context.pdp.resource.id like "a:*" }`, anybody+` when { context.pdp.subject.id like "b:*" }`), here},
		{"ids that end otherwise", two(anybody+` when { context.pdp.resource.id like "*a" }`, anybody+` when { context.pdp.resource.id like "*b" }`), here},
		{"ids that begin so, and what is below one", two(anybody+` when { context.pdp.resource.id like "a:*" }`, `(principal is User, action == Action::"a", resource in Doc::"b:1")`), here},
		{"excludes ids that begin so", two(anybody+` unless { context.pdp.resource.id like "a:*" }`, anybody+` when { context.pdp.resource.id like "a:b*" }`), ""},
		{"excludes only ids that begin longer", two(anybody+` unless { context.pdp.resource.id like "a:b*" }`, anybody+` when { context.pdp.resource.id like "a:*" }`), here},
		{"always with it: ids that begin shorter", two(anybody+` when { context.pdp.resource.id like "a:b*" }`, anybody+` when { context.pdp.resource.id like "a:*" }`), ""},
		{"always with it: an id", two(`(principal is User, action == Action::"a", resource == Doc::"a:1")`, `(principal is User, action == Action::"a", resource is Doc) when { context.pdp.resource.id like "a:*" }`), ""},
		{"always with it: the same", two(anybody, anybody), ""},
		{"always with it: wider", two(anybody, `(principal, action == Action::"a", resource)`), ""},
		{"always with it: no tests", two(anybody, `(principal, action, resource) when { principal is User }`), ""},
		{"always with it: a group of sets", two(`(principal in Group::"g", action == Action::"a", resource)`, `(principal, action in [Action::"a", Action::"b"], resource) when { principal in [Group::"f", Group::"g"] }`), ""},
		{"always with it: the type of an id", two(`(principal == User::"a", action == Action::"a", resource)`, `(principal is User, action == Action::"a", resource)`), ""},
		{"always with it: a group of actions", two(`(principal is User, action in [Action::"read", Action::"list"], resource)`, `(principal is User, action in Action::"reads", resource)`, groups...), ""},
		{"always with it: as the schema says", two(`(principal is User, action == Action::"read", resource)`, `(principal is User, action, resource is Doc)`, schema...), ""},
		{"always with it: the same clauses", two(anybody+` when { context has a && context.a } unless { context has b }`, anybody+` when { context has a } unless { context has b }`), ""},
		{"a number up to, and above", wants(`context.x <= 500`, `context.x > 500`), ""},
		{"a number below, and from", wants(`context.x < 500`, `context.x >= 500`), ""},
		{"a number, and another one", wants(`context.x == 500`, `context.x != 500`), ""},
		{"a number, and two others", wants(`context.x == 500`, `context.x == 501`), ""},
		{"numbers apart", wants(`context.x < 400`, `500 < context.x`), ""},
		{"numbers apart, turned round", wants(`500 >= context["x"]`, `!(context.x <= 500)`), ""},
		{"below a number, and that", wants(`context.x < 500`, `context.x == 500`), ""},
		{"a number, and above", wants(`context.x == 400`, `context.x > 400`), ""},
		{"a number up to, or another way", wants(`context.x <= 500`, `context.x > 500 || context.y == 1`), here},
		{"numbers that touch", wants(`context.x <= 500`, `context.x >= 500`), here},
		{"numbers that overlap", wants(`context.x < 500`, `context.x > 400`), here},
		{"numbers of two paths", wants(`context.x <= 500`, `context.y > 500`), here},
		{"a number, and not another", wants(`context.x == 500`, `context.x != 400`), here},
		{"not one, and not another", wants(`context.x != 500`, `context.x != 400`), here},
		{"compared with what is not written out", wants(`context.x <= context.y`, `context.x > context.y`), here},
		{"unless it is above", two(anybody+` when { context has x } unless { context.x > 500 }`, anybody+` when { context has x && context.x > 500 }`), ""},
		{"unless one of two is above", two(anybody+` when { context has x } unless { context has y || context.x > 500 }`, anybody+` when { context has x && context.x >= 501 }`), ""},
		{"unless both are", two(anybody+` when { context has x } unless { context has y && context.x > 500 }`, anybody+` when { context has x && context.x >= 501 }`), here},
		{"decimals", wants(`context.x.lessThan(decimal("500.0"))`, `context.x.greaterThanOrEqual(decimal("500.00"))`), ""},
		{"decimals, the other way", wants(`context.x.lessThanOrEqual(decimal("500.0"))`, `context.x.greaterThan(decimal("500.0"))`), ""},
		{"decimals apart", wants(`context.x.lessThan(decimal("1.5"))`, `context.x.greaterThan(decimal("2.5"))`), ""},
		{"decimals that touch", wants(`context.x.lessThanOrEqual(decimal("500.0"))`, `context.x.greaterThanOrEqual(decimal("500.0"))`), here},
		{"a decimal on the left", wants(`decimal("500.0").lessThan(context.x)`, `context.x == decimal("500.0")`), ""},
		{"before a time, and from it", wants(`context.pdp.now < datetime("2026-01-01")`, `context.pdp.now >= datetime("2026-01-01")`), ""},
		{"before a time, and before another", wants(`context.pdp.now < datetime("2026-01-01")`, `context.pdp.now < datetime("2027-01-01")`), here},
		{"a flag, and not", wants(`context.x`, `!context.x`), ""},
		{"a flag that is true, and false", wants(`context.x == true`, `context.x == false`), ""},
		{"an entity, and another", wants(`context.x == User::"a"`, `context.x != User::"a"`), ""},
		{"an address, in a range or not", wants(`context.x.isInRange(ip("10.0.0.0/8"))`, `!context.x.isInRange(ip("10.0.0.0/8"))`), ""},
		{"both oblige", named(`@id("p") @obligation("approval_required") permit `+anybody+`; @id("o") @obligation("log") permit `+anybody+` when { context has a };`, ""), ""},
		{"a forbid", named(`@id("p") permit `+anybody+`; @id("o") @obligation("log") forbid `+anybody+` unless { context.pdp.approved };`, ""), ""},
		{"one that never applies", two(anybody, anybody+` when { false }`), "never_applies policy.cedar:2:1\nobligation_never_produced policy.cedar:2:1"},
		{"a tenant's, and the root's", two(`(principal is Spy, action == Action::"b", resource)`, anybody, "tenants/t/t.cedar", "\n@id(\"t\") permit "+`(principal == User::"a", action, resource);`), "obligation_overlap tenants/t/t.cedar:2:1"},
		{"the root's, and a tenant's", named(`@id("p") permit `+anybody+`;`, "", "tenants/t/t.cedar", "@id(\"t\") @obligation(\"log\") permit "+`(principal == User::"a", action, resource);`), here},
		{"two tenants'", named(`@id("p") permit (principal is Spy, action, resource);`, "", "tenants/t/t.cedar", "@id(\"t\") @obligation(\"log\") permit "+`(principal == User::"a", action, resource);`, "tenants/s/s.cedar", "@id(\"s\") permit "+`(principal is User, action, resource);`), ""},
	} {
		c.run(t)
	}
}

func each5(format string) string {
	var b strings.Builder
	for n := range 5 {
		fmt.Fprintf(&b, format+"\n", n, n)
	}
	return b.String()
}

// Permits that get round the same obligations have one cause, and one warning.
func TestCheckOverlapOnce(t *testing.T) {
	t.Parallel()
	const free, obliging = `@id("p%d") permit (principal is User, action, resource) when { context has a%d };`,
		`@id("o") @obligation("log") permit (principal is User, action, resource) when { context has b };`
	for name, test := range map[string]struct {
		files fstest.MapFS
		want  string // file:line: message
	}{
		"one permit, round several": {named("@id(\"p\") permit (principal is User, action, resource);\n"+each5(`@id("o%d") @obligation("log") permit (principal is User, action, resource) when { context has a%d };`), ""),
			`policy.cedar:1:1: policy "p" permits without an obligation, and may be alone in permitting, what "o0" at policy.cedar:2:1, "o1" at policy.cedar:3:1, "o2" at policy.cedar:4:1 and 2 more permits with one`},
		"in one file": {named(each5(free)+obliging, ""), `policy.cedar:6:1: policy "o" permits with an obligation, what "p0" at policy.cedar:1:1, "p1" at policy.cedar:2:1, ` +
			`"p2" at policy.cedar:3:1 and 2 more permit without one, and each of them may be alone in permitting it`},
		"of a tenant, round the root's": {named(obliging, "", "tenants/t/t.cedar", each5(free)), `tenants/t/t.cedar:1:1: policy "p0" and "p1" at tenants/t/t.cedar:2:1, ` +
			`"p2" at tenants/t/t.cedar:3:1, "p3" at tenants/t/t.cedar:4:1 and 1 more permit without an obligation, and may be alone in permitting, what "o" at policy.cedar:1:1 permits with one`},
		"of the root, round a tenant's": {named(each5(free), "", "tenants/t/t.cedar", obliging), `tenants/t/t.cedar:1:1: policy "o" permits with an obligation, what "p0" at policy.cedar:1:1, ` +
			`"p1" at policy.cedar:2:1, "p2" at policy.cedar:3:1 and 2 more permit without one, and each of them may be alone in permitting it`},
	} {
		_, problems := pdp.Check(pdp.FS(test.files), lintNow)
		if len(problems) != 1 || fmt.Sprintf("%s:%d:%d: %s", problems[0].File, problems[0].Line, problems[0].Column, problems[0].Message) != test.want {
			t.Errorf("%s: got %v\nwant %s", name, []pdp.Problem(problems), test.want)
		}
	}
}

// A text says … for a secret, and the warning stands where the obligation is defined.
func TestCheckSecretsInTexts(t *testing.T) {
	t.Parallel()
	for _, c := range []lintCase{
		{"a secret", named(taggedPermit, "# one\ntell: {type: log, properties: {a: \"${context.token}\", b: [\"${context.token}${context.apiKey}\"]}}"), "obligation_secret obligations.yaml:2:1\nobligation_secret obligations.yaml:2:1"},
		{"none", named(taggedPermit, "tell: {type: log, properties: {a: \"${context.arguments.amount} ${context.note}\"}}"), ""},
	} {
		c.run(t)
	}
}

// manyPermits are permits of which half oblige.
func manyPermits(n int) fstest.MapFS {
	var b strings.Builder
	for n := range n {
		fmt.Fprintf(&b, `@id("%d")`, n)
		if n%2 == 0 {
			b.WriteString(`@obligation("log")`)
		}
		fmt.Fprintf(&b, `permit(principal in G::"%d",action==Action::"a",resource)when{context has x};`, n)
	}
	return named(b.String(), "")
}

// What check costs where half of many permits oblige, where many entities have ids that policies do not name, and with long
// conditions.
func TestCostOfCheck(t *testing.T) {
	night.Measures(t)
	type many struct {
		files    fstest.MapFS
		problems int // -1 for any number
		most     time.Duration
	}
	all := map[string]many{
		"permits": {manyPermits(2400), 1, 20 * time.Second},
		"ids":     {manyLiterals(2_000), 2_000, 20 * time.Second},
	}
	for name, condition := range longConditions(20) {
		all["a long condition: "+name] = many{named(`@id("p") permit (principal is User, action, resource) when { `+condition+` };`, ""), -1, 10 * time.Second}
	}
	for name, c := range all {
		start := bound.CPU(t)
		b, problems := pdp.Check(pdp.FS(c.files), lintNow)
		took := bound.CPU(t) - start
		if t.Log(name, took); b == nil || c.problems >= 0 && len(problems) != c.problems || took > c.most {
			t.Errorf("%s: %d problems in %s of CPU", name, len(problems), took)
		}
	}
}
