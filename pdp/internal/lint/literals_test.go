package lint_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"policy-service/pdp"
)

func TestCheckLiterals(t *testing.T) {
	t.Parallel()
	const unknown = "literal_unknown "
	const some = `@id("p") permit (principal is user, action, resource is doc);`
	entity := func(typ, id string, parents ...string) string {
		return fmt.Sprintf(`{"uid": {"type": %q, "id": %q}, "attrs": {}, "parents": [%s]}`, typ, id, strings.Join(parents, ", "))
	}
	store := func(entities ...string) string { return "[" + strings.Join(entities, ",\n") + "]" }
	in := func(typ, id string) string { return fmt.Sprintf(`{"type": %q, "id": %q}`, typ, id) }
	with := func(policy string, files ...string) fstest.MapFS { return named(policy, "", files...) }
	scope := func(principal string) string {
		return `@id("p") permit (principal ` + principal + `, action == Action::"read", resource is doc);`
	}
	alice, staff := entity("user", "alice"), entity("group", "staff")
	for _, c := range []lintCase{
		{"a stored one", with(scope(`== user::"alice"`), "entities/e.json", store(alice)), ""},
		{"no other is stored", with(scope(`== user::"alic"`), "entities/e.json", store(staff)), ""},
		{"a group that only has members", with(scope(`in group::"editors"`), "entities/e.json", store(staff, entity("user", "bob", in("group", "editors")))), ""},
		{"a group without entities", with(scope(`in group::"nobody"`), "entities/e.json", store(entity("user", "bob", in("group", "editors")))), ""},
		{"a group that nobody names", with(scope(`in group::"staff"`), "entities/e.json", store(staff, entity("user", "bob", in("group", "editors")))), unknown + `entities/e.json@{"type": "group", "id": "editors"}`},
		{"twice in one policy", with(scope(`== user::"alic"`)+"\n"+`@id("q") forbid (principal, action, resource is doc) when { principal == user::"alic" || [user::"alic", user::"alice"].contains(principal) };`, "entities/e.json", store(alice)),
			unknown + `policy.cedar@user::"alic"` + "\n" + unknown + "policy.cedar:2:74"},
		{"a type with a capital, of a group that only has members", with(scope(`in Group::"editors"`), "entities/e.json", store(entity("user", "bob", in("group", "editors")))), unknown + `policy.cedar@Group::"editors"`},
		{"a type with a capital, of a stored one", with(`@id("p") permit (principal == Shop::User::"alice", action, resource);`, "entities/e.json", store(entity("Shop::user", "alice"))), unknown + `policy.cedar@Shop::User::"alice"`},
		{"both types", with(scope(`in group::"staff"`)+"\n"+`@id("q") permit (principal in Group::"staff", action == Action::"write", resource is doc);`, "entities/e.json", store(staff, entity("Group", "staff"))), ""},
		{"in a list", with(scope(`is user`)+"\n"+`@id("q") permit (principal is user, action == Action::"write", resource) when { principal in [group::"staff", group::"stuff"] };`, "entities/e.json", store(alice, staff)), unknown + `policy.cedar@group::"stuff"`},
		{"with a namespace", with(`@id("p") permit (principal == Shop::user::"alic", action, resource);`, "bundle.yaml", "namespace: Shop", "entities/e.json", store(entity("Shop::user", "alice"))), unknown + `policy.cedar@Shop::user::"alic"`},
		{"with signs", with(scope(`== user::"a\n\"b\""`), "entities/e.json", store(alice)), unknown + `policy.cedar@user::"a\n`},
		{"with an escape that Go lacks", with(scope(`== user::"\u{e9}ve"`), "entities/e.json", store(alice)), unknown + "policy.cedar:1:1"},
		{"behind text of all kinds", with("// user::\"alic\"\n@note(\"user::\\\"alic\\\"; é\") "+scope(`== user::"alic"`), "entities/e.json", store(alice)), unknown + "policy.cedar:2:58"},
		{"beside a schema", with(`@id("p") permit (principal == user::"alic", action, resource);`, "schema.cedarschema", "entity user; action read appliesTo { principal: user, resource: user };", "entities/e.json", store(alice)), unknown + "policy.cedar@user::"},
		{"given by an attribute", with(scope(`is user`), "bundle.yaml", "parents: {user: {groups: group}}", "entities/e.json", "["+staff+`,
			{"uid": {"type": "user", "id": "bob"}, "attrs": {"groups": ["staff", "stuff"]}, "parents": []}]`), unknown + "entities/e.json:2:4"},

		{"an action that no entity stands for", with(scope(`is user`), "entities/e.json", store(entity("Action", "write", in("Action", "all")))), ""},
		{"an action like another", with(scope(`is user`), "entities/e.json", store(entity("Action", "reat", in("Action", "all")))), unknown + `policy.cedar@Action::"read"`},
		{"an action and its group", with(scope(`is user`), "entities/e.json", store(entity("Action", "list", in("Action", "read")))), ""},

		{"the root names what a tenant has", with(scope(`== user::"carla"`), "entities/e.json", store(alice), "tenants/t/entities/e.json", store(entity("user", "carla"))), "root_entity tenants/t/entities/e.json:1:2"},
		{"the root names what no tenant has", with(scope(`== user::"carl"`), "tenants/t/entities/e.json", store(entity("user", "carla"))), unknown + `policy.cedar@user::"carl"`},
		{"a tenant names what the root has", with(some, "entities/e.json", store(alice), "tenants/t/t.cedar", strings.Replace(scope(`== user::"alice"`), `"p"`, `"t"`, 1)), ""},
		{"a tenant names what another has", with(some, "entities/e.json", store(alice), "tenants/t/t.cedar", strings.Replace(scope(`== user::"carla"`), `"p"`, `"t"`, 1), "tenants/u/entities/e.json", store(entity("user", "carla"))), unknown + `tenants/t/t.cedar@user::"carla"`},
		{"a tenant's parent", with(some, "entities/e.json", store(alice), "tenants/t/entities/e.json", store(staff, entity("user", "bob", in("group", "stuff")))), unknown + `tenants/t/entities/e.json@{"type": "group", "id": "stuff"}`},
	} {
		c.run(t)
	}
}

// What is told to the author of one part of a bundle names no id of a tenant that is not theirs.
func TestCheckNamesNoOtherTenantsIds(t *testing.T) {
	t.Parallel()
	const users = `[{"uid": {"type": "user", "id": "%s"}, "attrs": {}, "parents": []}]`
	_, problems := pdp.Check(pdp.FS(named(`@id("p") permit (principal == user::"carlb", action == Action::"x", resource);`, "",
		"tenants/t/t.cedar", `@id("t") permit (principal == user::"carlc", action == Action::"x", resource);`,
		"tenants/t/entities/e.json", fmt.Sprintf(users, "carlos"), "tenants/u/entities/e.json", fmt.Sprintf(users, "carla"),
	)), lintNow)
	var told []string
	for _, p := range problems {
		told = append(told, p.String())
	}
	text := strings.Join(told, "\n")
	if len(problems) != 2 || strings.Contains(text, `"carla"`) || strings.Contains(told[0], "did you mean") || !strings.Contains(told[1], `did you mean user::"carlos"?`) {
		t.Errorf("got\n%s", text)
	}
}

// manyLiterals are policies that name ids which none of ten times as many entities has.
func manyLiterals(n int) fstest.MapFS {
	var entities, policies strings.Builder
	for n := range 10 * n {
		fmt.Fprintf(&entities, `,{"uid": {"type": "user", "id": "somebody-%d"}, "attrs": {}, "parents": []}`, n)
	}
	for n := range n {
		fmt.Fprintf(&policies, `@id("%d") permit (principal == user::"nobody-%d", action, resource);`+"\n", n, n)
	}
	return named(policies.String(), "", "entities/e.json", "["+entities.String()[1:]+"]")
}
