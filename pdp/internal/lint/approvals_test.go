package lint_test

import (
	"strings"
	"testing"
	"testing/fstest"
)

const (
	waits  = "\n" + `@id("w") @obligation("ask") permit (principal is agent, action == Action::"tool.invoke", resource is tool);` + "\n"
	asks   = `ask: {type: approval_required, properties: {template: owner}}`
	decide = `@id("d") permit (principal is user, action == Action::"approval.decide", resource is Approval)`
)

func TestCheckApprovals(t *testing.T) {
	t.Parallel()
	const here = "approval_nobody policy.cedar:2:1"
	const schema = `entity user, agent; entity tool; entity Approval = { template: String }; action "tool.invoke" appliesTo { principal: [agent], resource: [tool] };`
	const tenants = `@id("t") permit (principal is user, action == Action::"approval.decide", resource is Approval);`
	const theirs = "\n" + `@id("u") @obligation("theirs") permit (principal is agent, action == Action::"tool.see", resource is tool);`
	const unheard = "\napproval_unheard tenants/t/t.cedar:1:1"
	const declared = schema + ` action "approval.decide" appliesTo { principal: [user], resource: [Approval] };`
	with := func(more string, files ...string) fstest.MapFS { return named(waits+more, asks, files...) }
	for _, c := range []lintCase{
		{"nobody", with(``), here},
		{"anybody", with(decide + `;`), ""},
		{"by the template", with(decide + ` when { resource.template == "owner" };`), ""},
		{"one of the templates", with(decide + ` when { ["other", "owner"].contains(resource.template) };`), ""},
		{"another template", with(decide + ` when { resource.template == "owners" };`), here},
		{"other templates", with(decide + ` when { context.pdp.tenant == "t" && ["a", "b"].contains(resource.template) };`), here},
		{"unless another", with(decide + ` unless { resource.template == "other" };`), ""},
		{"something else", with(decide + ` when { resource.action == "other" };`), ""},
		{"a template in quotes", named(waits+decide+` when { resource.template == "the \"owner\"" };`, `ask: {type: approval_required, properties: {template: 'the  "owner"'}}`), ""},
		{"whatever is sent", named(waits+decide+` when { resource.template == "owner" };`, `ask: {type: approval_required, properties: {template: "${resource.id}"}}`), ""},
		{"no template", named(waits, `ask: {type: approval_required}`), ""},
		{"a forbid", with(`@id("d") forbid (principal is user, action == Action::"approval.decide", resource is Approval);`), here},
		{"a permit that obliges", with(`@id("d") @obligation("log") permit (principal is user, action == Action::"approval.decide", resource is Approval);`), here},
		{"a permit of others", with(`@id("d") permit (principal is user, action, resource is tool) when { resource is tool };`), here},
		{"a permit of a group", with(`@id("d") permit (principal is user, action, resource in tool::"t");`), here},
		{"one approval", with(`@id("d") permit (principal is user, action, resource == Approval::"a");`), ""},
		{"a permit that is never", with(decide + ` when { false };`), here + "\nnever_applies policy.cedar:3:1"},
		{"a wide permit", with(`@id("d") permit (principal is user, action in [Action::"tool.see", Action::"approval.decide"], resource);`), ""},
		{"an action's group", with(`@id("d") permit (principal is user, action in Action::"desk", resource);`, "entities/e.json", `[{"uid":{"type":"Action","id":"approval.decide"},"attrs":{},"parents":[{"type":"Action","id":"desk"}]}]`), ""},
		{"one that never waits", named(`@id("b") permit (principal is agent, action == Action::"a", resource is tool);`+"\n"+`@id("w") @obligation("ask") permit (principal is agent, action == Action::"tool.invoke", resource is tool) when { false };`, asks), "obligation_never_produced obligations.yaml:1:1\nnever_applies policy.cedar:2:1"},
		{"no such action", with(``, "schema.cedarschema", schema), here},
		{"an action of a schema", with(decide+` when { resource.template == "owner" };`, "schema.cedarschema", declared), ""},
		{"a namespace", named(strings.ReplaceAll(waits+decide, "Action::", "N::Action::")+`;`, asks, "bundle.yaml", "namespace: N"), here},
		{"in that namespace", named(strings.NewReplacer("Action::", "N::Action::", "is Approval", "is N::Approval").Replace(waits+decide)+`;`, asks, "bundle.yaml", "namespace: N"), ""},
		{"parents of approvals", with(`@id("d") permit (principal is user, action == Action::"approval.decide", resource in desk::"d");`, "bundle.yaml", "parents: {Approval: {desk: desk}}"), ""},
		{"the root's, everywhere", with(decide+`;`, "tenants/t/t.cedar", `@id("t") @obligation("ask") permit (principal is agent, action == Action::"tool.see", resource is tool);`), ""},
		{"a tenant's man", with(``, "tenants/t/t.cedar", tenants), here + unheard},
		{"a tenant's man besides", with(decide+`;`, "tenants/t/t.cedar", tenants), unheard[1:]},
		{"of another template", with(decide+`;`, "tenants/t/t.cedar", strings.TrimSuffix(tenants, ";")+` when { resource.template == "t" };`), ""},
		{"a tenant's obligation", with(decide+`;`, "tenants/t/t.cedar", tenants+theirs, "tenants/t/obligations.yaml", `theirs: {type: approval_required, properties: {template: owner}}`), ""},
		{"the root's obligation", with(decide+` when { resource.template == "x" };`, "tenants/t/t.cedar", tenants+strings.Replace(theirs, "theirs", "ask", 1)), here + unheard + "\napproval_nobody tenants/t/t.cedar:2:1"},
		{"a tenant's, and more", with(decide+`;`, "tenants/t/t.cedar", strings.Replace(tenants, `== Action::"approval.decide"`, `in [Action::"approval.decide", Action::"tool.see"]`, 1)), ""},
		{"a tenant that has none", named(`@id("b") permit (principal is agent, action == Action::"tool.see", resource is tool);`, asks, "tenants/s/s.cedar", `@id("s") `+decide[len(`@id("d") `):]+`;`, "tenants/t/t.cedar", "\n"+waits), "approval_nobody tenants/t/t.cedar:3:1"},
	} {
		c.run(t)
	}
}

func TestCheckWidePermits(t *testing.T) {
	t.Parallel()
	const here = "approval_unnamed policy.cedar:4:1"
	const tenants = "\n\n\n" + `@id("t") permit (principal is user, action, resource);` + "\n"
	with := func(permit string, files ...string) fstest.MapFS {
		return named(waits+decide+";\n"+permit, asks, files...)
	}
	for _, c := range []lintCase{
		{"anything", with(`@id("p") permit (principal is user, action, resource);`), here},
		{"anything, on condition", with(`@id("p") permit (principal is user, action, resource) when { principal in team::"admins" && context.pdp.tenant == "t" };`), here},
		{"once, in every view", with(`@id("p") permit (principal, action, resource) when { principal is user };`, "tenants/t/t.cedar", `@id("t") @obligation("ask") permit (principal is agent, action == Action::"tool.see", resource is tool);`), here},
		{"a tenant's", with(``, "tenants/t/t.cedar", tenants+strings.Replace(strings.Replace(waits, `"w"`, `"x"`, 1), "ask", "theirs", 1), "tenants/t/obligations.yaml", `theirs: {type: approval_required, properties: {template: owner}}`), "approval_unnamed tenants/t/t.cedar:4:1"},
		{"a tenant's, unheard", with(``, "tenants/t/t.cedar", tenants+strings.Replace(waits, `"w"`, `"x"`, 1)), ""},
		{"where nothing waits", named(`@id("p") permit (principal is user, action, resource);`, ``), ""},
		{"named", with(`@id("p") permit (principal is user, action == Action::"tool.see", resource);`), ""},
		{"named in a condition", with(`@id("p") permit (principal is user, action, resource) when { action == Action::"approval.decide" };`), ""},
		{"approvals", with(`@id("p") permit (principal is user, action, resource is Approval);`), ""},
		{"of a template", with(`@id("p") permit (principal is user, action, resource) when { resource has template && resource.template == "owner" };`), ""},
		{"as a value", with(`@id("p") permit (principal is user, action, resource) when { [principal].contains(resource) };`), ""},
		{"but for approvals", with(`@id("p") permit (principal is user, action, resource) unless { resource is Approval };`), ""},
		{"one that obliges", with(`@id("p") @obligation("log") permit (principal is user, action == Action::"tool.see", resource);`), ""},
		{"a forbid", with(`@id("p") forbid (principal is user, action, resource);`), "always_forbidden policy.cedar:3:1"},
	} {
		c.run(t)
	}
}

func TestCheckKnownApprovals(t *testing.T) {
	t.Parallel()
	for config, want := range map[string]string{
		`known: [user]`:           "",
		`known: [user, Approval]`: "approval_known bundle.yaml:1:15",
		"types: {approval: Approval}\nknown: [user, approval]": "approval_known bundle.yaml:2:15",
	} {
		lintCase{config, named(waits+decide+`;`, asks, "bundle.yaml", config), want}.run(t)
	}
}

// What the PDP says of every approval need not be asked for; what it leads to is the store's.
func TestCheckApprovalAttributes(t *testing.T) {
	t.Parallel()
	const at = "permit_missing_attribute policy.cedar@"
	for conditions, want := range map[string]string{
		`resource.template == "t" && resource.action == "a" && resource.subject == resource.requester && resource.chain.contains(resource.resource)`: "",
		`resource.resource.owner == principal`: at + "resource.resource.owner", `resource.owner == principal`: at + "resource.owner",
		`principal.template == "t"`: at + "principal.template", `context.template == "t"`: at + "context.template",
	} {
		lintCase{conditions, named(decide+" when { "+conditions+" };", ""), want}.run(t)
		lintCase{"of whatever: " + conditions, named(strings.TrimSuffix(decide, " is Approval)")+") when { resource.template == \"t\" };", ""), at + "resource.template"}.run(t)
	}
}

func TestCheckSelfApproval(t *testing.T) {
	t.Parallel()
	with := func(config, definitions string, files ...string) fstest.MapFS {
		return named(waits+decide+`;`, definitions, append(files, "bundle.yaml", config)...)
	}
	const here = "unknown_template bundle.yaml:1:23"
	for _, c := range []lintCase{
		{"a template", with(`allow_self_approval: [owner]`, asks), ""},
		{"no template", with(`allow_self_approval: [owners]`, asks), here},
		{"two that are none", with("volatile: [x]\nallow_self_approval:\n- owner\n- owners\n- log\n", asks), "unknown_template bundle.yaml:4:3\nunknown_template bundle.yaml:5:3"},
		{"an obligation", with(`allow_self_approval: [ask]`, asks), here},
		{"of another type", with(`allow_self_approval: [paper]`, asks+"\nlog: {type: log, properties: {template: paper}}"), here + "\nobligation_unused obligations.yaml:2:1"},
		{"a tenant's", with(`allow_self_approval: [theirs]`, asks, "tenants/t/obligations.yaml", `theirs: {type: approval_required, properties: {template: theirs}}`, "tenants/t/t.cedar", `@id("t") @obligation("theirs") permit (principal is agent, action == Action::"tool.see", resource is tool);`), ""},
		{"what a request says", with(`allow_self_approval: [owners]`, `ask: {type: approval_required, properties: {template: "${action.name}"}}`), ""},
	} {
		c.run(t)
	}
}

// Whose identities cannot be read approves nothing: the store's keeper is told.
func TestCheckIdentities(t *testing.T) {
	t.Parallel()
	const here = "identities_form entities/e.json:1:2"
	for value, want := range map[string]string{
		`["a", {"__entity": {"type": "user", "id": "b"}}]`: "", `[]`: "",
		`"a"`: here, `7`: here, `{"__entity": {"type": "user", "id": "b"}}`: here, `{"a": "b"}`: here, `["a", 7]`: here, `[{"type": "user", "id": "b"}]`: here, `[["a"]]`: here,
	} {
		entities := `[{"uid": {"type": "user", "id": "a"}, "attrs": {"identities": ` + value + `}, "parents": []}]`
		lintCase{value, named(decide+`;`, "", "entities/e.json", entities), want}.run(t)
	}
	typed := `[{"uid": {"type": "user", "id": "a"}, "attrs": {"identities": [{"type": "user", "id": "b"}]}, "parents": []}]`
	const schema = `entity user = { identities: Set<user> }; entity Approval; action "approval.decide" appliesTo { principal: [user], resource: [Approval] };`
	lintCase{"as a schema says", named(decide+`;`, "", "entities/e.json", typed, "schema.cedarschema", schema), ""}.run(t)
}
