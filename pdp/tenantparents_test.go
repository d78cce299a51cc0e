package pdp_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/pdptest/bundles"
	"policy-service/pdp/pdptest/night"
)

// A tenant gives its people roles of the root, where bundle.yaml says so. What the root demands, and capabilities, stay out
// of its reach: they count there only if they are approvers, too. Where they bar, they count.
func TestATenantGivesNobodyWhatTheRootDemands(t *testing.T) {
	t.Parallel()
	const root = `
		@id("tools") permit (principal in role::"admin", action in [Action::"tool.invoke", Action::"capability.grant"], resource is tool);
		@id("decide") permit (principal, action == Action::"approval.decide", resource is Approval)
			when { principal in [role::"admin", grade::"lead"] } unless { principal in role::"guest" };
		@id("open") permit (principal == user::"tom", action == Action::"approval.decide", resource is Approval)
			when { resource has resource && resource.resource in folder::"open" };
		@id("not-suspended") forbid (principal in role::"suspended", action, resource);
		@id("seniors") forbid (principal, action == Action::"approval.decide", resource) when { principal has careful } unless { principal in role::"senior" };`
	files := one(root,
		"bundle.yaml", "tenants: {parents: [role, grade, folder], approvers: [grade]}\nparents: {user: {roles: role, teams: team}}",
		"entities/e.json", bundles.Entities(bundles.Entity("user", "rex", "{}", "role:admin")),
		"tenants/t/entities/e.json", bundles.Entities(
			bundles.Entity("user", "mia", "{}", "role:admin"),
			bundles.Entity("user", "noah", "{}", "team:own"), bundles.Entity("team", "own", "{}", "team:ops"), bundles.Entity("team", "ops", "{}", "role:admin"),
			bundles.Entity("user", "carl", `{"roles":["admin"]}`),
			bundles.Entity("user", "lea", "{}", "grade:lead"),
			bundles.Entity("user", "gus", "{}", "grade:lead", "role:guest"),
			bundles.Entity("user", "sue", "{}", "grade:lead", "role:suspended"),
			bundles.Entity("user", "una", `{"careful":true}`, "grade:lead", "role:senior"),
			bundles.Entity("tool", "t", "{}", "folder:open"),
		))
	p := files.Load(t)
	question := func(person, action, resource, more string) string {
		properties := ""
		if resource == "Approval" {
			properties = `,"properties":{"template":"owner","resource":{"type":"tool","id":"t"}}`
		}
		return fmt.Sprintf(`{"subject":{"type":"user","id":%q,"properties":{"teams":["none"]}},"action":{"name":%q},"resource":{"type":%q,"id":"t"%s}%s}`,
			person, action, resource, properties, more)
	}
	inTenant := func(c *pdp.Call) { c.Request.Tenant = "t" }
	for person, want := range map[string]struct{ decides, forTenant, tools bool }{
		"rex":  {decides: true, forTenant: true, tools: true},
		"mia":  {forTenant: true, tools: true},
		"noah": {forTenant: true, tools: true},
		"carl": {forTenant: true, tools: true},
		"lea":  {decides: true, forTenant: true},
		"gus":  {},
		"sue":  {},
		"tom":  {forTenant: true},
		"una":  {forTenant: true},
		"zoe":  {},
	} {
		r, err := p.Reviewer("t", pdp.Approver{Entity: evaluation.Ref{Type: "user", ID: person}, Caller: "key:k"})
		if err != nil {
			t.Fatal(err)
		}
		for ofTenant, want := range map[bool]bool{false: want.decides, true: want.forTenant} {
			got, err := r.Review(t.Context(), reviewedIs(func(a *pdp.Reviewed) { a.OfTenant = ofTenant }))
			if err != nil || got.May != want {
				t.Errorf("%s, of the tenant %t: may %t, %v", person, ofTenant, got.May, err)
			}
		}
		for _, test := range []struct {
			action, resource string
			want             bool
		}{
			{"approval.decide", "Approval", want.decides},
			{"tool.invoke", "tool", want.tools},
			{"capability.grant", "tool", want.tools && person == "rex"},
		} {
			asked := question(person, test.action, test.resource, "")
			if got := ask(t, p, asked, inTenant); strings.Contains(got, `"decision":true`) != test.want {
				t.Errorf("%s, %s: %s", person, test.action, got)
			}
			asked = question(person, test.action, test.resource, `,"context":{"x":1},"options":{"unknown":["/context/x"]}`)
			if got := ask(t, p, asked, inTenant); strings.Contains(got, `"possible":true`) != test.want {
				t.Errorf("%s, %s is possible: %s", person, test.action, got)
			}
		}
	}
	for action, want := range map[string]string{"approval.decide": "lea rex", "capability.grant": "rex", "tool.invoke": "carl mia noah rex"} {
		of := map[bool]string{true: "Approval", false: "tool"}[action == "approval.decide"]
		search, err := evaluation.DecodeSearch(evaluation.SubjectSearch, []byte(fmt.Sprintf(
			`{"subject":{"type":"user"},"action":{"name":%q},"resource":{"type":%q,"id":"t","properties":{"resource":{"type":"tool","id":"t"}}}}`,
			action, of)), "t", evaluation.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		found, err := p.Search(t.Context(), pdp.SearchCall{Search: search, Limit: 100})
		var ids []string
		for _, one := range found.Found {
			ids = append(ids, one.ID)
		}
		if got := strings.Join(ids, " "); err != nil || got != want {
			t.Errorf("%s: found %s, %v", action, got, err)
		}
	}
}

// Whatever policies and entities are: what is allowed with the parents that only tenants: {parents: […]} allows is allowed
// without them, where the root demands something, and by the policies as they are.
func TestParentsOfATenantOpenNothingThatTheRootDemands(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(51, 11))
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	group := func() string { return pick("role", "team", "grade") + `::"` + pick("a", "b") + `"` }
	condition := func() string {
		of := pick("principal", "principal", "resource", "resource.resource")
		test := of + " in " + group()
		if of == "resource.resource" {
			test = "resource has resource && " + test
		}
		return pick("when", "when", "unless") + " { " + test + " }"
	}
	opened, barred := 0, 0
	for range night.Cases(400) {
		var policies []string
		for n := range 2 + random.IntN(4) {
			policies = append(policies, fmt.Sprintf(`%s @id("p%d") %s (principal%s, action, resource) %s %s;`,
				pick("", "", "", `@obligation("log")`), n, pick("permit", "permit", "permit", "forbid"), pick("", " in "+group()), condition(), pick("", condition())))
		}
		policies = append(policies, `@id("z") permit (principal == user::"z", action, resource);`)
		const config = "undeclared_obligations: allow\ntenants: {parents: [role, grade], approvers: [grade]}\nparents: {user: {roles: role, teams: team}}"
		root := one(strings.Join(policies, "\n"), "bundle.yaml", config)
		seed := random.Uint64()
		tenant := func(open bool) (list []string) {
			random := rand.New(rand.NewPCG(seed, 0)) // the same for both
			parents := func(of ...string) (all []string) {
				for _, g := range of {
					if random.IntN(3) == 0 && (open || !strings.HasPrefix(g, "role")) {
						all = append(all, g)
					}
				}
				return all
			}
			for _, id := range []string{"u", "v", "w"} {
				attributes := "{}"
				if random.IntN(3) == 0 && open {
					attributes = `{"roles":["a"]}`
				}
				list = append(list, bundles.Entity("user", id, attributes, parents("role:a", "role:b", "grade:a", "squad:x")...))
			}
			return append(list, bundles.Entity("squad", "x", "{}", parents("role:a", "grade:b")...), bundles.Entity("tool", "t", "{}", parents("role:a", "role:b", "grade:a", "squad:x")...))
		}
		with, without := maps.Clone(root), maps.Clone(root)
		with["tenants/t/entities/e.json"] = bundles.Entities(tenant(true)...)
		without["tenants/t/entities/e.json"] = bundles.Entities(tenant(false)...)
		p, q := with.Load(t), without.Load(t)
		for _, person := range []string{"u", "v", "w"} {
			may := func(p *pdp.PDP, ofTenant bool) bool {
				r, err := p.Reviewer("t", pdp.Approver{Entity: evaluation.Ref{Type: "user", ID: person}, Caller: "key:k"})
				if err != nil {
					t.Fatal(err)
				}
				got, err := r.Review(t.Context(), reviewedIs(func(a *pdp.Reviewed) { a.OfTenant = ofTenant }))
				if err != nil {
					t.Fatal(err)
				}
				return got.May
			}
			asks := func(p *pdp.PDP, action, more string) bool {
				body := fmt.Sprintf(`{"subject":{"type":"user","id":%q,"properties":{"teams":["b"]}},"action":{"name":%q},"resource":{"type":"tool","id":"t"},"context":{"x":1}%s}`, person, action, more)
				got := ask(t, p, body, func(c *pdp.Call) { c.Request.Tenant = "t" })
				return strings.Contains(got, `"decision":true`) || strings.Contains(got, `"possible":true`)
			}
			whole, alone := may(p, true), may(q, false)
			if got := may(p, false); got != (whole && alone) {
				t.Fatalf("%s may %t, and of a demand of the tenant %t, and without these parents %t:\n%v", person, got, whole, alone, with)
			}
			const unknown = `,"options":{"unknown":["/context/x"]}`
			for _, more := range []string{"", unknown} {
				whole, alone := asks(p, "read", more), asks(q, "capability.grant", more)
				if got := asks(p, "capability.grant", more); got != (whole && alone) {
					t.Fatalf("%s%s: %t, and to read %t, and without these parents %t:\n%v", person, more, got, whole, alone, with)
				}
				if whole && !alone {
					opened++
				} else if alone && !whole {
					barred++
				}
			}
		}
	}
	if opened == 0 || barred == 0 {
		t.Errorf("such parents opened %d and barred %d questions, so nothing was tried", opened, barred)
	}
}
