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

// shop is the bundle of an author's first hour, with one piece of a file replaced by a mistake.
func shop(file, right, wrong string) fstest.MapFS {
	files := map[string]string{
		"shop.cedar": `// Refunds, by who may give them.
@id("refund-small")
permit (
  principal in role::"support",
  action == Action::"tool.invoke",
  resource == tool::"refunds:create"
)
when { context has arguments && context.arguments has amount && context.arguments.amount <= 500 };

@id("refund-big")
@obligation("manager-agrees")
permit (
  principal in role::"support",
  action == Action::"tool.invoke",
  resource == tool::"refunds:create"
)
when { context has arguments && context.arguments has amount && context.arguments.amount > 500 };

@id("managers")
permit (principal in role::"manager", action == Action::"approval.decide", resource is Approval)
unless { principal == user::"sue" };
`,
		"obligations.yaml": `manager-agrees: {type: approval_required, properties: {template: m, message: "refund of ${context.arguments.amount}"}}`,
		"entities/all.json": `[{"uid": {"type": "role", "id": "support"}, "attrs": {}, "parents": []},
 {"uid": {"type": "role", "id": "manager"}, "attrs": {}, "parents": []},
 {"uid": {"type": "tool", "id": "refunds:create"}, "attrs": {}, "parents": []},
 {"uid": {"type": "user", "id": "sue"}, "attrs": {},
  "parents": [{"type": "role", "id": "support"}]},
 {"uid": {"type": "Action", "id": "tool.invoke"}, "attrs": {}, "parents": [{"type": "Action", "id": "tools"}]}]
`,
	}
	fsys := fstest.MapFS{}
	for name, text := range files {
		if name == file {
			text = strings.Replace(text, right, wrong, 1)
		}
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return fsys
}

// TestCheckMistakes: each mistake is told at its place, with the name that is wrong and the one that is right. And nothing
// else is told.
func TestCheckMistakes(t *testing.T) {
	t.Parallel()
	if _, problems := pdp.Check(pdp.FS(shop("", "", "")), lintNow); len(problems) > 0 {
		t.Fatalf("without a mistake: %v", []pdp.Problem(problems))
	}
	for name, test := range map[string]struct {
		files       fstest.MapFS
		code, place string
		says        []string
	}{
		"a parent":               {shop("entities/all.json", `"id": "support"}]`, `"id": "suport"}]`), "literal_unknown", "entities/all.json:5:15", []string{`user::"sue"`, `role::"suport"`, `did you mean role::"support"?`}},
		"a group in a scope":     {shop("shop.cedar", `role::"support"`, `role::"suport"`), "literal_unknown", "shop.cedar:4:16", []string{`policy "refund-small"`, `role::"suport"`, `did you mean role::"support"?`}},
		"a resource":             {shop("shop.cedar", `tool::"refunds:create"`, `tool::"refund:create"`), "literal_unknown", "shop.cedar:6:15", []string{`tool::"refund:create"`, `did you mean tool::"refunds:create"?`}},
		"in a condition":         {shop("shop.cedar", `user::"sue"`, `user::"su"`), "literal_unknown", "shop.cedar:21:23", []string{`user::"su"`, `did you mean user::"sue"?`}},
		"nothing is near":        {shop("shop.cedar", `user::"sue"`, `user::"somebody else"`), "literal_unknown", "shop.cedar:21:23", []string{`user::"somebody else"`}},
		"an action":              {shop("shop.cedar", `Action::"tool.invoke"`, `Action::"tool.invok"`), "literal_unknown", "shop.cedar:5:13", []string{`Action::"tool.invok"`, `did you mean Action::"tool.invoke"?`}},
		"an optional attribute":  {shop("shop.cedar", `context.arguments has amount && `, ``), "permit_missing_attribute", "shop.cedar:8:33", []string{"context.arguments.amount", "`context.arguments has amount && …`"}},
		"what is around it":      {shop("shop.cedar", `context has arguments && context.arguments has amount && `, ``), "permit_missing_attribute", "shop.cedar:8:8", []string{"context.arguments ", "`context has arguments && …`"}},
		"a name of an attribute": {shop("shop.cedar", `arguments.amount <=`, `arguments.amuont <=`), "permit_missing_attribute", "shop.cedar:8:65", []string{"context.arguments.amuont", "`context.arguments has amuont && …`"}},
		"a true condition":       {shop("shop.cedar", `@id("managers")`, "@id(\"all\") permit (principal, action, resource) when { true };\n@id(\"managers\")"), "trivial_permit", "shop.cedar:19:1", []string{`policy "all" permits everything to everybody`}},
	} {
		t.Run(name, func(t *testing.T) {
			b, problems := pdp.Check(pdp.FS(test.files), lintNow)
			if b == nil {
				t.Fatal(problems.Error())
			}
			var found []pdp.Problem
			for _, p := range problems {
				// Who permits everything permits what has an obligation, too, and lets everybody decide.
				beside := test.code == "trivial_permit" && (p.Code == "obligation_overlap" || p.Code == "approval_unnamed")
				// What does not apply any more gets round nothing. What has another condition may.
				if !beside && p.Code != "obligation_overlap" {
					found = append(found, p)
				}
			}
			if len(found) != 1 {
				t.Fatalf("got %v", found)
			}
			p := found[0]
			if p.Code != test.code || fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column) != test.place {
				t.Errorf("got %s at %s", p.Code, p)
			}
			for _, text := range test.says {
				if !strings.Contains(p.String(), text) {
					t.Errorf("%s\ndoes not say %s", p, text)
				}
			}
		})
	}
}

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

// Each of them is warned of.
func TestCheckOfManyLiterals(t *testing.T) {
	t.Parallel()
	if _, problems := pdp.Check(pdp.FS(manyLiterals(200)), lintNow); len(problems) != 200 {
		t.Errorf("%d problems", len(problems))
	}
}

// Ids that no entity has cost no more where many have one.
func TestCostOfManyLiterals(t *testing.T) {
	night.Measures(t)
	start := bound.CPU(t)
	_, problems := pdp.Check(pdp.FS(manyLiterals(2_000)), lintNow)
	took := bound.CPU(t) - start
	if t.Log(took); len(problems) != 2_000 || took.Seconds() > 20 {
		t.Errorf("%d problems in %s of CPU", len(problems), took)
	}
}
