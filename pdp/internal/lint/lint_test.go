package lint_test

import (
	"fmt"
	"policy-service/pdp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

// lintNow is the time at which the tests check.
var lintNow = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// permit and forbid make a policy that only its conditions tell from others.
func permit(conditions string) string { return lintPolicy("permit", conditions) }
func forbid(conditions string) string { return lintPolicy("forbid", conditions) }

func lintPolicy(effect, conditions string) string {
	return "\n@id(\"p\")\n" + effect + " (principal is User, action == Action::\"read\", resource is Doc)\n" + conditions + ";"
}

// bundleOf is a bundle of one policy, a permit beside it, and pairs of name and
// content of other files.
func bundleOf(policy string, files ...string) fstest.MapFS {
	fsys := fstest.MapFS{
		"base.cedar":   {Data: []byte(`@id("base") permit (principal, action in [Action::"read", Action::"base"], resource);`)},
		"policy.cedar": {Data: []byte(policy)},
	}
	for i := 0; i < len(files); i += 2 {
		fsys[files[i]] = &fstest.MapFile{Data: []byte(files[i+1])}
	}
	return fsys
}

const lintSchema = `
entity Group, Doc;
entity Role in [Group];
entity Color enum ["red"];
entity User in [Role] = { name: String, level?: Long, dept?: String, unit: Dept, roles?: Set<String>, labels?: { tier?: String, zone: String } };
entity Agent in [Role] = { name?: String };
entity Dept = { code?: String };
action "read" appliesTo { principal: [User, Agent], resource: [Doc], context: { purpose: String, mfa?: Bool, device?: { id?: String, os: String } } };
action "base" appliesTo { principal: [User], resource: [Doc] };
`

const lintUsers = `[
  {"uid": {"type": "User", "id": "a"}, "attrs": {"level": 1, "name": "A", "unit": {"type": "Dept", "id": "x"}}, "parents": []},
  {"uid": {"type": "User", "id": "b"}, "attrs": {"level": 2, "name": "B", "unit": {"type": "Dept", "id": "x"}, "dept": "x"}, "parents": []}
]`

type lintCase struct {
	name  string
	files fstest.MapFS
	want  string // code file:line:column, a line each; or file@text for where the text stands
}

// resolved is what is wanted, with every text by its place.
func (c lintCase) resolved(t *testing.T) string {
	t.Helper()
	lines := strings.Split(c.want, "\n")
	for n, line := range lines {
		place, expression, ok := strings.Cut(line, "@")
		_, file, _ := strings.Cut(place, " ")
		if !ok {
			continue
		}
		before, _, found := strings.Cut(string(c.files[file].Data), expression)
		if !found {
			t.Fatalf("%s has no %s", file, expression)
		}
		begin := strings.LastIndex(before, "\n") + 1
		lines[n] = fmt.Sprintf("%s:%d:%d", place, strings.Count(before, "\n")+1, len([]rune(before[begin:]))+1)
	}
	return strings.Join(lines, "\n")
}

func (c lintCase) run(t *testing.T) {
	t.Run(c.name, func(t *testing.T) {
		b, problems := pdp.Check(pdp.FS(c.files), lintNow)
		if b == nil {
			t.Fatalf("does not load:\n%v", problems.Error())
		}
		var got []string
		for _, p := range problems {
			if p.Severity != pdp.SeverityWarning || p.Message == "" || p.Try == "" {
				t.Errorf("not a whole warning: %+v", p)
			}
			got = append(got, fmt.Sprintf("%s %s:%d:%d", p.Code, p.File, p.Line, p.Column))
		}
		if text := strings.Join(got, "\n"); text != c.resolved(t) {
			t.Errorf("got\n%s\nwant\n%s\n%v", text, c.resolved(t), problems)
		}
		if loaded, _ := pdp.Load(pdp.FS(c.files)); loaded == nil || loaded.Digest() != b.Digest() {
			t.Error("Load has another bundle")
		}
	})
}

func TestCheckMissingAttribute(t *testing.T) {
	t.Parallel()
	at := func(expression string) string { return "permit_missing_attribute policy.cedar@" + expression }
	known := "known: [User]\n"
	for _, c := range []lintCase{
		{"context", bundleOf(permit(`when { context.mfa == true }`)), at(`context.mfa`)},
		{"principal, resource", bundleOf(permit(`when { principal.dept == resource.dept }`)), at("principal.dept") + "\n" + at("resource.dept")},
		{"unless", bundleOf(permit(`unless { context.blocked }`)), at(`context.blocked`)},
		{"member of the action", bundleOf(permit(`when { context.action.soft }`)), at(`context.action.soft`)},
		{"no fact of the PDP", bundleOf(permit(`when { context.pdp.weekday == 1 }`)), at(`context.pdp.weekday`)},
		{"no member of the resource", bundleOf(permit(`when { context.pdp.resource.kind == "x" }`)), at(`context.pdp.resource.kind`)},
		{"guard of another name", bundleOf(permit(`when { context has a && context.b }`)), at(`context.b`)},
		{"guard of the outer record alone", bundleOf(permit(`when { context has a && context.a.b }`)), at(`context.a.b`)},
		{"guard that comes late", bundleOf(permit(`when { context.a && context has a }`)), at(`context.a`)},
		{"guard that may not hold", bundleOf(permit(`when { (context has a || context has b) && context.a }`)), at(`context.a`)},
		{"guard of the other branch", bundleOf(permit(`when { if context has a then true else context.a }`)), at(`context.a`)},
		{"guard that fails with another", bundleOf(permit(`when { !(context has a) && context.pdp.approved || context.a }`)), at(`context.a`)},
		{"guard of one branch", bundleOf(permit(`when { (if context has a then context has b else context.pdp.approved) && context.b }`)), at(`context.b`)},
		{"guard turned round", bundleOf(permit(`when { context has a || context.a }`)), at(`context.a`)},
		{"inside an operand", bundleOf(permit(`when { ["x"].contains(context["a-b"]) }`)), at(`context["a-b"]`)},
		{"once for an outer and an inner name", bundleOf(permit(`when { context.a.b == context.a.c }`)), at(`context.a.b`)},
		{"known, but filled from requests", bundleOf(permit(`when { principal.dept == "x" }`), "bundle.yaml", known, "entities/u.json", lintUsers), at(`principal.dept`)},
		{"stored, but not known", bundleOf(permit(`when { principal.level == 1 }`), "bundle.yaml", "attributes: {User: store}", "entities/u.json", lintUsers), at(`principal.level`)},

		{"guarded", bundleOf(permit(`when { context has a && context.a == 1 }`)), ""},
		{"guarded below", bundleOf(permit(`when { context has a.b && context.a.b == context.a.b }`)), ""},
		{"guarded one by one", bundleOf(permit(`when { context has a && context.a has b && context.a.b }`)), ""},
		{"guarded in an earlier clause", bundleOf(permit("when { principal has a }\nunless { principal.a == 1 }")), ""},
		{"guarded by an earlier unless", bundleOf(permit("unless { !(principal has a) }\nwhen { principal.a == 1 }")), ""},
		{"guarded by the condition of an if", bundleOf(permit(`when { if context has a then context.a else false }`)), ""},
		{"guarded by the else of an if", bundleOf(permit(`when { if !(context has a) then true else context.a }`)), ""},
		{"guarded in both branches", bundleOf(permit(`when { (context has a && context has b || context has a) && context.a }`)), ""},
		{"guarded by a negation before ||", bundleOf(permit(`when { !(context has a) || context.a == 1 }`)), ""},
		{"guarded inside an operand", bundleOf(permit(`when { [context has a && context.a].contains(true) }`)), ""},
		{"what the PDP puts there", bundleOf(permit(`when { context.pdp.tenant == "t" && context.action == {} }`)), ""},
		{"what the question is about", bundleOf(permit(`when { context.pdp.resource.id like "x:*" && context.pdp.subject.type == "user" && !context.pdp.capability.held }`)), ""},
		{"an action's and an entity's own", bundleOf(permit(`when { action.level == 1 && User::"a".level == 1 }`)), ""},
		{"known and stored", bundleOf(permit(`when { principal.dept == "x" }`), "bundle.yaml", known+"attributes: {User: store}", "entities/u.json", lintUsers), ""},
		{"known, and all have it", bundleOf(permit(`when { principal.level == 1 }`), "bundle.yaml", known, "entities/u.json", lintUsers), ""},
		{"required by the schema", bundleOf(permit(`when { principal.name == context.purpose }`), "schema.cedarschema", lintSchema), ""},
		{"guarded beside a schema", bundleOf(permit(`when { principal has labels && principal.labels.zone == "x" }`), "schema.cedarschema", lintSchema), ""},
		{"a forbid", bundleOf(forbid(`unless { context.a like "*" }`)), ""},
	} {
		c.run(t)
	}
}

func TestCheckOmittable(t *testing.T) {
	t.Parallel()
	const here = "forbid_omittable policy.cedar:2:1"
	schema := []string{"schema.cedarschema", lintSchema}
	with := func(conditions string, files ...string) fstest.MapFS {
		return bundleOf(forbid(conditions), append(slices.Clone(schema), files...)...)
	}
	anybody := func(scope string, files ...string) fstest.MapFS {
		return bundleOf("@id(\"p\")\nforbid ("+scope+", action == Action::\"read\", resource);", files...)
	}
	agents := "parents: {Agent: {roles: Role}, User: {roles: Role}}\n"
	roles := `[{"uid": {"type": "User", "id": "a"}, "attrs": {"name": "A", "unit": {"type": "Dept", "id": "x"}, "roles": ["r"]}, "parents": []},
		{"uid": {"type": "Role", "id": "r"}, "attrs": {}, "parents": [{"type": "Group", "id": "g"}]}]`
	for _, c := range []lintCase{
		{"has in when", with(`when { context has mfa && context.mfa == false }`), here},
		{"has turned round in unless", with(`unless { !(context has mfa) || principal.name == "x" }`), here},
		{"has below", with(`when { context has device.id && context.device.id == "x" }`), here},
		{"has in a later clause", with("when { principal.name == \"x\" }\nwhen { principal has level }"), here},
		{"one of two ways", with(`when { principal.name == "x" || context has mfa && context.mfa }`), here},
		{"the then of an if", with(`when { if context has mfa then context.mfa else false }`), here},
		{"a value made of an if", with(`when { (if context has mfa then context.mfa else false) == true }`), here},
		{"optional below a required one", bundleOf(forbid(`when { context.device has id }`), "schema.cedarschema", strings.Replace(lintSchema, "device?", "device", 1)), here},
		{"known, but filled from requests", with(`when { principal has level }`, "bundle.yaml", "known: [User]", "entities/u.json", strings.Replace(lintUsers, `"level": 1, `, "", 1)), here},
		{"stored, but not known", with(`when { principal has level }`, "bundle.yaml", "attributes: {User: store}", "entities/u.json", lintUsers), here},
		{"below one that requests replace", with(`when { principal has labels && principal.labels has tier }`, "bundle.yaml", "known: [User]\nattributes: {User: request}", "entities/u.json",
			`[{"uid": {"type": "User", "id": "a"}, "attrs": {"name": "A", "unit": {"type": "Dept", "id": "x"}, "labels": {"tier": "x", "zone": "y"}}, "parents": []}]`), here},
		{"no schema", bundleOf(forbid(`when { principal has level && principal.level > 5 }`)), here},
		{"a read, where errors are ignored", bundleOf(forbid(`when { context.level > 5 }`), "bundle.yaml", "forbid_errors: ignore"), here},
		{"parents that are sent", anybody(`principal in Role::"r"`, append(schema, "bundle.yaml", agents)...), "forbid_omittable policy.cedar:1:1"},
		{"parents that are sent, of some types", anybody(`principal in Role::"r"`, "bundle.yaml", agents+"known: [User]", "entities/u.json", roles), "forbid_omittable policy.cedar:1:1"},
		{"parents of parents", anybody(`principal is User in Group::"g"`, "bundle.yaml", agents, "entities/u.json", roles), "forbid_omittable policy.cedar:1:1"},
		{"parents, not literal", bundleOf(forbid(`when { principal in context.pdp.groups }`), "bundle.yaml", agents), here},

		{"has in unless", with(`unless { context has mfa && context.mfa }`), ""},
		{"not has in when", with(`when { !(context has mfa) }`), ""},
		{"the rest of the first test", with(`when { !(context has mfa) || (context has mfa && context.mfa == false) }`), ""},
		{"two clauses that make up for each other", with("when { context.purpose == \"x\" }\nunless { context has mfa && principal.name == \"x\" }"), ""},
		{"the else of an if", with(`when { if context has mfa then context.mfa else true }`), ""},
		{"an error", bundleOf(forbid(`unless { !(context.level > 5) }`)), ""},
		{"an error after has of another", with(`when { context.purpose == "x" && principal.name like "*" }`), ""},
		{"what the PDP puts there", with(`when { context has pdp && context has action && context.pdp has tenant && context.pdp.tenant == "t" }`), ""},
		{"required by the schema", with(`when { principal has name && context has purpose }`), ""},
		{"required of this type, by a test that does not lead", with(`when { context.purpose == "x" && principal is User && principal has name }`), ""},
		{"beyond a reference", with(`when { principal.unit has code }`), ""},
		{"known and stored", with(`when { principal has level }`, "bundle.yaml", "known: [User]\nattributes: {User: store}"), ""},
		{"known, and all have it", with(`when { principal has level }`, "bundle.yaml", "known: [User]", "entities/u.json", lintUsers), ""},
		{"known, and all have it, where sent wins", with(`when { principal has level }`, "bundle.yaml", "known: [User]\nattributes: {User: request}", "entities/u.json", lintUsers), ""},
		{"of an entity that the store has", with(`when { Dept::"x" has code }`), ""},
		{"parents that are stored", anybody(`principal in Role::"r"`, schema...), ""},
		{"parents of a known type that all have", anybody(`principal is User in Role::"r"`, append(schema, "bundle.yaml", agents+"known: [User]", "entities/u.json", roles)...), ""},
		{"parents in unless", bundleOf(forbid(`unless { principal in Role::"r" }`), "bundle.yaml", agents), ""},
		{"other parents", anybody(`principal is User in Group::"g"`, "bundle.yaml", agents), ""},
		{"a permit", bundleOf(permit(`when { context has mfa && context.mfa }`)), ""},
	} {
		c.run(t)
	}
}

func TestCheckUntypedComparison(t *testing.T) {
	t.Parallel()
	const here = "forbid_untyped_comparison policy.cedar:2:1"
	for _, c := range []lintCase{
		{"==", bundleOf(forbid(`when { context.env == "production" }`)), here},
		{"== from the right", bundleOf(forbid(`when { "production" == principal.env }`)), here},
		{"== negated in unless", bundleOf(forbid(`unless { !(context.env == "production") }`)), here},
		{"!= in unless", bundleOf(forbid(`unless { resource.env != "production" }`)), here},
		{"contains of a literal set", bundleOf(forbid(`when { ["a", "b"].contains(context.env) }`)), here},
		{"contains of a sent set", bundleOf(forbid(`when { context.tags.contains("a") }`)), here},
		{"containsAll", bundleOf(forbid(`when { context.tags.containsAll(["a"]) }`)), here},
		{"containsAny", bundleOf(forbid(`when { ["a"].containsAny(context.tags) }`)), here},
		{"a member of the action", bundleOf(forbid(`when { context.action.force == true }`)), here},
		{"a value in a set", bundleOf(forbid(`when { [context.a] == ["x"] }`)), here},
		{"a record, which also loses a member", bundleOf(forbid(`when { context.a == {b: 1} && (context.a has b || true) }`)), "forbid_omittable policy.cedar:2:1\n" + here},
		{"two of them", bundleOf(forbid(`when { context.a == principal.b }`)), here + "\n" + here},
		{"also by leaving it out", bundleOf(forbid(`when { context has a && context.a == 1 }`)), "forbid_omittable policy.cedar:2:1\n" + here},

		{"== in unless", bundleOf(forbid(`unless { context.env == "dev" }`)), ""},
		{"!= in when", bundleOf(forbid(`when { context.env != "dev" }`)), ""},
		{"contains in unless", bundleOf(forbid(`unless { ["a", "b"].contains(context.env) }`)), ""},
		{"an operator that errs", bundleOf(forbid(`when { context.env like "prod*" && context.level > 3 }`)), ""},
		{"typed by being a condition", bundleOf(forbid(`when { (context.a && context.b) == true || (context.pdp.approved || context.c) == true }`)), ""},
		{"typed by what comes first", bundleOf(forbid(`when { context.env like "*" && context.env == "production" }`)), ""},
		{"a member of the PDP", bundleOf(forbid(`when { context.pdp.caller == "x" && context.action == {} }`)), ""},
		{"typed by a schema", bundleOf(forbid(`when { context.purpose == "x" && ["x"].contains(principal.name) }`), "schema.cedarschema", lintSchema), ""},
		{"known and stored", bundleOf(forbid(`when { principal.env == "x" }`), "bundle.yaml", "known: [User]\nattributes: {User: store}"), ""},
		{"known, and all have it", bundleOf(forbid(`when { principal.level == 1 }`), "bundle.yaml", "known: [User]", "entities/u.json", lintUsers), ""},
		{"known, but sent wins", bundleOf(forbid(`when { principal.level == 1 }`), "bundle.yaml", "known: [User]\nattributes: {User: request}", "entities/u.json", lintUsers), here},
		{"an entity", bundleOf(forbid(`when { principal == User::"a" && User::"a".level == 1 }`)), ""},
		{"a permit", bundleOf(permit(`when { context has a && context.a == 1 }`)), ""},
	} {
		c.run(t)
	}
}

func TestCheckNames(t *testing.T) {
	t.Parallel()
	yaml := "types: {user: User}\nattributes:\n  user: store\n  ghost: fill\nknown: [user, spook]\n"
	schema := []string{"schema.cedarschema", lintSchema}
	for _, c := range []lintCase{
		{"no scope", bundleOf("@id(\"p\") forbid (principal, action, resource)\nunless { context.pdp.tenant == \"t\" };"), "no_scope policy.cedar:1:1"},
		{"no scope, a test that does not lead", bundleOf(`@id("p") permit (principal, action, resource) when { context.pdp.approved && action == Action::"read" };`), "no_scope policy.cedar:1:1"},
		{"no scope, a leading test", bundleOf(`@id("p") permit (principal, action, resource) when { action == Action::"read" };`), ""},
		{"no scope but a type", bundleOf(`@id("p") permit (principal is User, action, resource);`), ""},
		{"no id", bundleOf("// one\n  permit (principal is User, action, resource); @id(\"two\") permit (principal is Doc, action, resource);"), "no_id policy.cedar:2:3"},
		{"decimal with a sign", bundleOf(permit(`when { decimal("+1.0") == decimal("1.0") }`)), "decimal_sign policy.cedar:2:1"},
		{"decimals without", bundleOf(permit(`when { decimal("-1.0") != decimal("1.0") && "+1.0" like "+*" }`)), ""},
		{"an action's type", bundleOf(`@id("p") permit (principal, action == Operation::"read", resource);`), "action_type policy.cedar:1:1"},
		{"an action's type in a set", bundleOf(`@id("p") permit (principal, action in [Action::"read", Other::Action::"read"], resource);`), "action_type policy.cedar:1:1"},
		{"an action's type in a leading test", bundleOf(`@id("p") permit (principal, action, resource) when { action in Operation::"read" };`), "action_type policy.cedar:1:1"},
		{"an action outside the namespace", bundleOf(`@id("p") permit (principal, action == Action::"read", resource);`, "bundle.yaml", "namespace: Shop", "base.cedar", `@id("base") permit (principal, action == Shop::Action::"read", resource);`), "action_type policy.cedar:1:1"},
		{"a group in another namespace", bundleOf(`@id("p") permit (principal, action in Other::Action::"all", resource);`, "entities/a.json", `[{"uid": {"type": "Action", "id": "read"}, "attrs": {}, "parents": [{"type": "Other::Action", "id": "all"}]}]`), ""},
		{"a type in a condition", bundleOf(permit(`when { context.purpose == "x" || resource is Dok }`), schema...), "unknown_entity_type policy.cedar:4:46"},
		{"a type of an attribute", bundleOf(permit(`when { context.purpose == "x" || principal.unit is Dpt }`), schema...), "unknown_entity_type policy.cedar:4:52"},
		{"a type that is declared", bundleOf(permit(`when { context.purpose == "x" || resource is Role }`), schema...), ""},
		{"a type without a schema", bundleOf(permit(`when { resource is Dok }`)), "never_applies policy.cedar:2:1"},
		{"types in bundle.yaml", bundleOf(permit(""), append(schema, "bundle.yaml", yaml)...), "unknown_entity_type bundle.yaml:4:3\nunknown_entity_type bundle.yaml:5:15"},
		{"types in tenants", bundleOf(permit(`when { context.purpose == "x" && principal in Role::"a" }`), append(schema, "bundle.yaml", "tenants: {parents: [Role, Rol, 'Gruop::\"g\"']}")...),
			"unknown_entity_type bundle.yaml:1:27\ntenant_parent_unnamed bundle.yaml:1:32\nunknown_entity_type bundle.yaml:1:32"},
		{"a right-hand side of types", bundleOf(permit(""), append(schema, "bundle.yaml", "types: {user: Usr}")...), "unknown_entity_type bundle.yaml:1:15"},
		{"types in bundle.yaml without a schema", bundleOf(permit(""), "bundle.yaml", yaml), ""},
		{"protocol members", bundleOf(permit(`when { context has approved && context.approval_id == "x" }`)), "protocol_member policy.cedar:2:1\nprotocol_member policy.cedar:2:1"},
		{"protocol member in a forbid", bundleOf(forbid(`when { context has justification && context.justification == "x" }`)), "protocol_member policy.cedar:2:1"},
		{"names like them", bundleOf(permit(`when { context.pdp.approved && principal has approval && context has a.approval }`)), ""},
		{"a file that no rule names", bundleOf(permit(""), "notes.txt", "x"), "unknown_file notes.txt:0:0"},
		{"a tenant's policy", bundleOf(permit(""), "tenants/t/t.cedar", "\nforbid (principal is User, action, resource) when { context has a };"), "forbid_omittable tenants/t/t.cedar:2:1\nno_id tenants/t/t.cedar:2:1"},
	} {
		c.run(t)
	}
}

func TestCheckUnknownEntities(t *testing.T) {
	t.Parallel()
	files := func(yaml string) []string {
		return []string{"schema.cedarschema", lintSchema, "bundle.yaml", "unknown_entities: evaluate\n" + yaml}
	}
	const permits, forbids = "permit_missing_attribute policy.cedar@principal.name", "forbid_omittable policy.cedar:2:1"
	for _, c := range []lintCase{
		{"a permit reads what is waived", bundleOf(permit(`when { principal.name == "a" }`), files("")...), permits},
		{"a permit asks first", bundleOf(permit(`when { principal has name && principal.name == "a" }`), files("")...), ""},
		{"a permit reads what is below", bundleOf(permit(`when { principal has labels && principal.labels.zone == "a" }`), files("")...), ""},
		{"a permit reads what the context requires", bundleOf(permit(`when { context.purpose == "a" }`), files("")...), ""},
		{"a permit, and the type is known", bundleOf(permit(`when { principal.name == "a" }`), files("known: [User]")...), ""},
		{"a forbid asks first", bundleOf(forbid(`when { principal has name && principal.name == "a" }`), files("")...), forbids},
		{"a forbid asks first, and the type is known", bundleOf(forbid(`when { principal has name && principal.name == "a" }`), files("known: [User]")...), ""},
		{"a forbid errs", bundleOf(forbid(`when { principal.name == "a" }`), files("")...), ""},
		{"a forbid errs and is ignored", bundleOf(forbid(`when { principal.name == "a" }`), files("forbid_errors: ignore")...), forbids},
		{"what is required is required", bundleOf(forbid(`when { principal has name && principal.name == "a" }`), "schema.cedarschema", lintSchema, "bundle.yaml", "unknown_entities: deny"), ""},
		{"without a schema", bundleOf(permit(""), "bundle.yaml", "unknown_entities: deny"), "unknown_entities_unused bundle.yaml:1:19"},
	} {
		c.run(t)
	}
}

func TestCheckStore(t *testing.T) {
	t.Parallel()
	// The root's policy decides in the tenant too, and there is a user without a level.
	user := `[{"uid": {"type": "User", "id": "c"}, "attrs": {}, "parents": []}]`
	files := []string{"bundle.yaml", "known: [User]", "entities/u.json", lintUsers, "tenants/t/entities/u.json", user}
	lintCase{"every tenant's entities count", bundleOf(forbid(`when { principal has level }`), files...), "forbid_omittable policy.cedar:2:1"}.run(t)
	files = append(files, "tenants/s/s.cedar", strings.Replace(forbid(`when { principal has level }`), `"p"`, `"s"`, 1))
	lintCase{"another tenant's do not", bundleOf(permit(""), files...), ""}.run(t)
}

func TestCheckRefuses(t *testing.T) {
	t.Parallel()
	b, problems := pdp.Check(pdp.FS(bundleOf(`permit (`)), lintNow)
	_, loading := pdp.Load(pdp.FS(bundleOf(`permit (`)))
	if b != nil || !slices.Equal(problems, loading) {
		t.Errorf("got %v and %v, while Load says %v", b, problems, loading)
	}
}

// A policy can be too long to look at closely, and then check says so at once.
func TestCheckOfLongPolicies(t *testing.T) {
	t.Parallel()
	var tests []string
	for n := range 200 {
		tests = append(tests, fmt.Sprintf("context has a%d.b.c.d.e.f.g.h.i.j.k.l.m.n.o", n))
	}
	for name, condition := range map[string]string{
		"many tests":   strings.Join(tests, " && "),
		"a long chain": "context" + strings.Repeat(`["a"]`, 8000) + " == 1",
	} {
		_, problems := pdp.Check(pdp.FS(bundleOf("@id(\"p\") permit (principal is User, action, resource) when { "+condition+" };")), lintNow)
		if len(problems) != 1 || problems[0].Code != "too_long_to_check" {
			t.Errorf("%s: %v", name, problems)
		}
	}
}

// TestAMisspeltTypeIsSuggested: an author who misspells a type, or takes the wire's name for the policies' or the other way round, is told which
// one may be meant, wherever it stands.
func TestAMisspeltTypeIsSuggested(t *testing.T) {
	t.Parallel()
	const schema = `entity Role; entity User in [Role]; entity Document; action read appliesTo {principal: [User], resource: [Document]};`
	for config, want := range map[string]string{
		"parents: {Usr: {roles: Role}}":                   "User",
		"parents: {User: {roles: Rol}}":                   "Role",
		"known: [Documnt]":                                "Document",
		"attributes: {Usr: store}":                        "User",
		"types: {person: Usr, doc: Document, role: Role}": "User",
		"types: {person: User}\nknown: [persn, User]":     "person",
	} {
		files := fstest.MapFS{"a.cedar": {Data: []byte(`permit (principal is User, action, resource);`)}, "s.cedarschema": {Data: []byte(schema)}, "bundle.yaml": {Data: []byte(config)}}
		_, problems := pdp.Check(pdp.FS(files), lintNow)
		var told strings.Builder
		for _, p := range problems {
			told.WriteString(p.String() + "\n")
		}
		if !strings.Contains(told.String(), `did you mean "`+want+`"?`) {
			t.Errorf("%s: %s", config, told.String())
		}
	}
}
