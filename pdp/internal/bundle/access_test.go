package bundle_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp"
)

// toolSchema declares what declarations are about.
const toolSchema = `entity Role; entity agent in [Role]; entity user in [Role]; entity tool;
action "tool.invoke" appliesTo { principal: [agent, user], resource: [tool] };`

// deskAccess is a declaration of a few rules.
const deskAccess = `mode: allowlist
rules:
  - {agent: alice, tools: [read, list]}
  - {agent: {type: user, id: mia}, tools: "*", requires_approval: true}
`

// Each declaration that is wrong, or wrong beside other files, and where.
func TestAccessProblems(t *testing.T) {
	t.Parallel()
	with := func(files ...string) small { return one(permitUsers, files...) }
	many := make([]string, 40)
	for i := range many {
		many[i] = fmt.Sprintf(`{agent: alice, tools: ["it's %d"]}`, i)
	}
	for name, test := range map[string]problemCase{
		"a declaration":                 {with("access/desk.yaml", deskAccess), nil},
		"by the other ending":           {with("access/desk.yml", deskAccess), nil},
		"alone":                         {small{"access/desk.yaml": deskAccess}, nil},
		"with a schema":                 {with("access/desk.yaml", deskAccess, "schema.cedarschema", toolSchema), nil},
		"of no rule of the layout":      {with("access/desk.json", "{}", "access/a/b.yaml", deskAccess), []string{"access/a warning unknown_directory", "access/desk.json unknown_file"}},
		"a file of that name":           {with("access", deskAccess, "tenants/t/access", "x", "tenants/t/p.cedar", "//"), []string{"access unknown_file", "tenants/t/access unknown_file"}}, // as before there were any
		"empty":                         {with("access/desk.yaml", ""), []string{"access/desk.yaml empty_file"}},
		"too large":                     {with("access/desk.yaml", deskAccess+strings.Repeat("#", 256<<10)), []string{"access/desk.yaml too_large"}},
		"no YAML":                       {with("access/desk.yaml", "mode: allowlist\nrules: [\n"), []string{"access/desk.yaml:2:1 yaml_syntax"}},
		"no mode":                       {with("access/desk.yaml", "rules: []"), []string{"access/desk.yaml:1:1 missing_key"}},
		"an unknown key":                {with("access/desk.yaml", deskAccess+"tools: []\n"), []string{"access/desk.yaml:5:1 unknown_key"}},
		"an unknown type":               {with("access/desk.yaml", "mode: allowlist\nsubjects: [robot, 'a b']\n"), []string{"access/desk.yaml:2:19 access_type"}},
		"beside broken settings":        {with("access/desk.yaml", "mode: no", "bundle.yaml", "x: 1"), []string{"access/desk.yaml:1:7 yaml_value", "bundle.yaml:1:1 unknown_key"}},
		"beside a broken schema":        {with("tenants/t/access/desk.yaml", "mode: no", "schema.cedarschema", "entity {"), []string{"schema.cedarschema:1:8 schema_syntax", "tenants/t/access/desk.yaml:1:7 yaml_value"}},
		"a tenant of nothing else":      {with("tenants/t/access/desk.yaml", deskAccess), nil},
		"one owner twice":               {with("access/a.yaml", "owner: desk\n"+deskAccess, "access/desk.yaml", deskAccess), []string{"access/desk.yaml:1:1 access_owner_twice"}},
		"one owner on two levels":       {with("tenants/t/access/desk.yaml", deskAccess, "access/desk.yaml", deskAccess), nil},
		"one owner in two tenants":      {with("tenants/t/access/desk.yaml", deskAccess, "tenants/u/access/desk.yaml", deskAccess), nil},
		"approval of no form":           {with("access/desk.yaml", deskAccess+"approval: {templat: x}\n"), []string{"access/desk.yaml:5:12 obligation_properties"}},
		"approval that no rule needs":   {with("access/desk.yaml", "mode: allowlist\napproval:\n  timeout: soon\n"), []string{"access/desk.yaml:3:12 obligation_properties"}},
		"a template of no meaning":      {with("access/desk.yaml", deskAccess+"approval: {message: '${agent}'}\n"), []string{"access/desk.yaml:5:21 obligation_template"}},
		"a reserved id":                 {with("access/desk.yaml", deskAccess, "q.cedar", "@id(\"access.x\")"+permit("x")), []string{"q.cedar:1:1 access_reserved"}},
		"a reserved obligation":         {with("access/desk.yaml", deskAccess, "obligations.yaml", "access.desk: {type: log}"), []string{"obligations.yaml:1:1 access_reserved"}},
		"reserved below the root's":     {with("access/desk.yaml", deskAccess, "tenants/t/q.cedar", "@id(\"access.x\")"+permit("x"), "tenants/t/obligations.yaml", "access.x: {type: log}"), []string{"tenants/t/obligations.yaml:1:1 access_reserved", "tenants/t/q.cedar:1:1 access_reserved"}},
		"reserved above a tenant's":     {with("q.cedar", "@id(\"access.x\")"+permit("x"), "tenants/t/access/desk.yaml", deskAccess), []string{"tenants/t/access/desk.yaml:1:1 access_reserved"}},
		"an obligation above a tenant":  {with("obligations.yaml", "access.x: {type: log}", "tenants/t/access/desk.yaml", deskAccess), []string{"tenants/t/access/desk.yaml:1:1 access_reserved"}},
		"reserved in another tenant":    {with("tenants/u/q.cedar", "@id(\"access.x\")"+permit("x"), "tenants/t/access/desk.yaml", deskAccess), nil},
		"the place of a policy":         {with("access/desk.yaml", deskAccess, "access.cedar", permit("x"), "tenants/t/access/desk.yaml", deskAccess), nil},
		"not reserved without one":      {with("q.cedar", "@id(\"access.x\")@obligation(\"access.t/x\")"+permit("x"), "obligations.yaml", "access.t/x: {type: log}"), nil},
		"a schema without tools":        {with("access/desk.yaml", deskAccess+"owner: d\n", "schema.cedarschema", "entity user; action a appliesTo { principal: user, resource: user };"), []string{"access/desk.yaml:5:8 access_schema"}},
		"a schema without the action":   {with("access/desk.yaml", deskAccess, "schema.cedarschema", strings.ReplaceAll(toolSchema, "invoke", "call")), []string{"access/desk.yaml:1:1 access_schema"}},
		"the action as a group":         {with("access/desk.yaml", deskAccess, "schema.cedarschema", strings.Replace(toolSchema, "action \"tool.invoke\"", "action \"tool.invoke\"; action \"desk:read\" in \"tool.invoke\"", 1)), nil},
		"wrong for several actions":     {with("access/desk.yaml", "mode: denylist\nrules:\n  - agent: {in: 'user::\"r\"'}\n    tools: x\n  - {agent: {in: 'Team::\"r\"'}, tools: y}\n", "schema.cedarschema", toolSchema+` action "a" in "tool.invoke" appliesTo { principal: user, resource: tool }; action "b" in "tool.invoke" appliesTo { principal: agent, resource: [tool, Role] }; action "c" in "tool.invoke" appliesTo { principal: user, resource: Role };`), []string{"access/desk.yaml:5:5 schema_policy"}},
		"the action on something else":  {with("access/desk.yaml", deskAccess, "schema.cedarschema", strings.ReplaceAll(toolSchema, "[tool]", "[Role]")), []string{"access/desk.yaml:1:1 access_schema"}},
		"a schema without agents":       {with("access/desk.yaml", deskAccess, "schema.cedarschema", strings.NewReplacer("entity agent in [Role];", "", "agent, ", "").Replace(toolSchema)), []string{"access/desk.yaml:1:1 access_schema"}},
		"agents that call no tools":     {with("access/desk.yaml", deskAccess, "schema.cedarschema", strings.ReplaceAll(toolSchema, "agent, ", "")), []string{"access/desk.yaml:1:1 access_schema"}},
		"context.pdp of four members":   {with("access/desk.yaml", deskAccess, "schema.cedarschema", strings.Replace(toolSchema, "[tool] }", "[tool], context: { pdp: {now: datetime, tenant: String, caller: String, approved: Bool} } }", 1)), []string{"access/desk.yaml:1:1 access_schema"}},
		"no bare name, no agents":       {with("access/desk.yaml", strings.ReplaceAll(deskAccess, "alice", "{in: 'Role::\"r\"'}"), "schema.cedarschema", strings.NewReplacer("entity agent in [Role];", "", "agent, ", "").Replace(toolSchema)), nil},
		"a group that is not declared":  {with("access/desk.yaml", "mode: denylist\nrules:\n  - agent: {in: 'Team::\"r\"'}\n    tools: x\n", "schema.cedarschema", toolSchema), []string{"access/desk.yaml:3:5 schema_policy"}},
		"an id that is not enumerated":  {with("access/desk.yaml", "mode: denylist\nrules:\n  - agent: {in: 'Role::\"r\"'}\n    tools: x\n", "schema.cedarschema", strings.Replace(toolSchema, "entity Role", "entity Role enum [\"s\"]", 1)), []string{"access/desk.yaml:3:5 enum_id"}},
		"a tool that the schema has no": {with("access/desk.yaml", "mode: denylist\nrules:\n  - {agent: alice, tools: [x, y]}\n", "schema.cedarschema", strings.Replace(toolSchema, "entity tool", "entity tool enum [\"desk:x\"]", 1)), []string{"access/desk.yaml:3:5 enum_id"}},
		"a tenant's entity of the root": {with("access/desk.yaml", deskAccess, "tenants/t/entities/e.json", entities(entity("tool", "desk:read", "{}"))), []string{"tenants/t/entities/e.json:1:2 warning root_entity"}},
		"names that must be escaped":    {with("access/desk.yaml", "mode: allowlist\nrules:\n- "+strings.Join(many, "\n- ")), nil},
	} {
		t.Run(name, test.run)
	}
}

// outcome is the answer to a call of a tool, and what made it.
type outcome struct {
	allow       bool
	determining string
	reason      string
	owed        string
}

// calls asks if a subject may do something with a tool.
func calls(t *testing.T, p *pdp.PDP, tenant, subject, action, tool string) outcome {
	t.Helper()
	typ, id, _ := strings.Cut(subject, ":")
	r := evaluation.Request{
		Tenant: tenant, Subject: evaluation.Entity{Type: typ, ID: id},
		Action: evaluation.Action{Name: action}, Resource: evaluation.Entity{Type: "tool", ID: tool},
	}
	d, err := p.Evaluate(t.Context(), pdp.Call{Request: r})
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Errors) > 0 || d.Reason != "" && d.Reason != evaluation.ApprovalRequired {
		t.Errorf("%s %s: %v %v", subject, tool, d.Reason, d.Errors)
	}
	return outcome{d.Allow, strings.Join(slices.Concat(d.Determining, d.Overruled), " "), d.ReasonUser, strings.Join(d.Required, " ")}
}

// What declarations mean beside policies written by hand, and beside each other.
func TestAccessBesideOtherPolicies(t *testing.T) {
	t.Parallel()
	const closed = "desk has not opened this tool to you."
	files := small{
		"access/desk.yaml":          deskAccess,
		"schema.cedarschema":        toolSchema + ` action "desk:read" in "tool.invoke" appliesTo { principal: user, resource: tool };`,
		"access/open.yaml":          "mode: open\n",
		"access/shed.yaml":          "mode: denylist\nrules: [{agent: bob, tools: [saw]}]\n",
		"p.cedar":                   `@id("all") permit(principal == agent::"root", action, resource); @id("stop") @reason_user("No.") forbid(principal == agent::"mallory", action, resource);`,
		"tenants/t/access/desk.yml": "mode: allowlist\nrules: [{agent: alice, tools: [read]}, {agent: carol, tools: [read]}]\n",
		"tenants/t/access/own.yaml": "mode: allowlist\nrules: [{agent: carol, tools: [x]}]\n",
		"tenants/t/p.cedar":         `@id("t") permit(principal, action, resource) when { resource == tool::"desk:list" || resource == tool::"own:y" };`,
	}
	p := files.Load(t)
	for _, c := range []struct {
		tenant, subject, tool string
		want                  outcome
	}{
		{"default", "agent:alice", "desk:read", outcome{true, "access.desk.1", "", ""}},
		{"default", "agent:alice", "desk:write", outcome{false, "access.desk.guard", closed, ""}},
		{"default", "user:alice", "desk:read", outcome{false, "access.desk.guard", closed, ""}},
		{"default", "user:mia", "desk:write", outcome{false, "access.desk.2", "", "approval_required"}},
		{"default", "agent:bob", "open:x", outcome{true, "access.open.default", "", ""}},
		{"default", "agent:bob", "shed:saw", outcome{false, "access.shed.1", "shed has closed this tool to you.", ""}},
		{"default", "agent:bob", "shed:hammer", outcome{true, "access.shed.default", "", ""}},
		{"default", "agent:bob", "desktop:read", outcome{}},
		// A permit written by hand opens nothing that a guard closes, and a forbid closes what a rule opens.
		{"default", "agent:root", "desk:read", outcome{false, "access.desk.guard", closed, ""}},
		{"default", "agent:root", "desktop:read", outcome{true, "all", "", ""}},
		{"default", "agent:mallory", "open:x", outcome{false, "stop", "No.", ""}},
		// In a tenant both levels apply: what either guard closes is closed.
		{"t", "agent:alice", "desk:read", outcome{true, "access.desk.1 access.t/desk.1", "", ""}},
		{"t", "agent:alice", "desk:list", outcome{false, "access.t/desk.guard", closed, ""}},
		{"t", "agent:carol", "desk:read", outcome{false, "access.desk.guard", closed, ""}},
		{"t", "agent:carol", "own:x", outcome{true, "access.t/own.1", "", ""}},
		{"t", "agent:alice", "own:y", outcome{false, "access.t/own.guard", "own has not opened this tool to you.", ""}},
		{"default", "agent:carol", "own:x", outcome{}},
	} {
		if got := calls(t, p, c.tenant, c.subject, "tool.invoke", c.tool); got != c.want {
			t.Errorf("%s: %s %s: got %v, want %v", c.tenant, c.subject, c.tool, got, c.want)
		}
	}

	// As it is shown it can take the place of the declarations.
	byHand := small{"schema.cedarschema": files["schema.cedarschema"], "p.cedar": files["p.cedar"], "tenants/t/p.cedar": files["tenants/t/p.cedar"]}
	shown := p.Bundle().Access()
	for n, a := range shown {
		dir := ""
		if a.Tenant != "default" {
			dir = "tenants/" + a.Tenant + "/"
		}
		byHand[fmt.Sprintf("%sshown%d.cedar", dir, n)] = a.Cedar
		if a.Obligations != "" {
			byHand[dir+"obligations.yaml"] += a.Obligations
		}
	}
	q := byHand.Load(t)
	for _, tenant := range []string{"default", "t"} {
		for _, subject := range []string{"agent:alice", "agent:bob", "agent:carol", "agent:root", "agent:mallory", "user:mia"} {
			for _, tool := range []string{"desk:read", "desk:list", "desk:write", "desk:", "own:x", "own:y", "open:x", "shed:saw", "shed:hammer", "desktop:read"} {
				if got, want := calls(t, q, tenant, subject, "tool.invoke", tool), calls(t, p, tenant, subject, "tool.invoke", tool); got != want {
					t.Errorf("%s: %s %s: by hand %v, declared %v", tenant, subject, tool, got, want)
				}
			}
		}
	}
	var listed []string
	for _, a := range shown {
		listed = append(listed, a.Tenant+" "+a.Owner+" "+a.File)
	}
	want := []string{"default desk access/desk.yaml", "default open access/open.yaml", "default shed access/shed.yaml", "t desk tenants/t/access/desk.yml", "t own tenants/t/access/own.yaml"}
	if !slices.Equal(listed, want) || len(q.Bundle().Access()) > 0 {
		t.Errorf("it lists %q", listed)
	}
}

// A gateway with `ask: tool` asks about an action of its own for each tool, which a schema has
// below tool.invoke. Declarations are about those, too.
func TestAccessWhereEachToolIsAnAction(t *testing.T) {
	t.Parallel()
	p := small{
		"access/wiki.yaml": "mode: allowlist\nrules: [{agent: alice, tools: [read]}]\n",
		"access/crm.yaml":  "mode: denylist\nrules: [{agent: bob, tools: [drop]}]\n",
		"p.cedar":          `@id("all") permit(principal == agent::"bob", action, resource is tool);`,
		"schema.cedarschema": `entity agent; entity tool;
action "tool.invoke" appliesTo { principal: [agent], resource: [tool] };
action "wiki:read", "crm:drop" in ["tool.invoke"] appliesTo { principal: [agent], resource: [tool] };
action "tool.other" appliesTo { principal: [agent], resource: [tool] };`,
	}.Load(t)
	for _, c := range []struct {
		subject, action, tool string
		allow                 bool
		by                    string
	}{
		{"alice", "tool.invoke", "wiki:read", true, "access.wiki.1"},
		{"alice", "wiki:read", "wiki:read", true, "access.wiki.1"},
		{"bob", "wiki:read", "wiki:read", false, "access.wiki.guard"},
		{"bob", "crm:drop", "crm:drop", false, "access.crm.1"},
		{"alice", "crm:drop", "crm:drop", true, "access.crm.default"},
		{"bob", "tool.other", "wiki:read", true, "all"},
	} {
		if got := calls(t, p, "default", "agent:"+c.subject, c.action, c.tool); got.allow != c.allow || got.determining != c.by {
			t.Errorf("%s %s %s: %v", c.subject, c.action, c.tool, got)
		}
	}
}

// A policy that is made from a declaration stands where its rule does.
func TestAccessStandsInTheDeclaration(t *testing.T) {
	t.Parallel()
	loaded, problems := pdp.Load(small{"tenants/t/access/desk.yaml": deskAccess + "approval: {template: x, timeout: 10m}\n", "p.cedar": permitUsers}.Source())
	if problems.Refuse() {
		t.Fatal(problems)
	}
	got := map[string]string{}
	for _, p := range loaded.Policies() {
		got[p.ID] = p.Effect + " " + p.Position + " " + p.Tenant
	}
	at := "tenants/t/access/desk.yaml:"
	want := map[string]string{
		"p": "permit p.cedar:1:1 default", "access.t/desk.1": "permit " + at + "3:5 t", "access.t/desk.2": "permit " + at + "4:5 t",
		"access.t/desk.guard": "forbid " + at + "1:7 t",
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	if at := loaded.ObligationPosition("t", "access.t/desk"); at != "tenants/t/access/desk.yaml:5:11" {
		t.Errorf("the obligation stands at %q", at)
	}
	shown := loaded.Access()[0].Obligations
	const text = `access.t/desk:
  type: approval_required
  properties:
    template: x
    timeout: 10m
    message: ${principal.id} wants to use ${resource.id}.
`
	if shown != text {
		t.Errorf("the obligation is shown as\n%s", shown)
	}
}

// What is wrong with one declaration by itself.
func TestReadAccess(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		deskAccess: "[]",
		"mode: allowlist\napproval: {timeout: soon}\nrules: [{agent: a, tools: [b, b*c]}]":      "[access/desk.yaml:3:31 access_glob]",
		"mode: allowlist\napproval: {timeout: soon}\n":                                          "[access/desk.yaml:2:21 obligation_properties]",
		"mode: open\nsubjects: [robot]\nrules: [{agent: a, tools: x, requires_approval: true}]": "[]",
		strings.Repeat("x:\n", 300): "many",
	} {
		problems := pdp.ReadAccess("access/desk.yaml", []byte(text))
		var got []string
		for _, p := range problems {
			got = append(got, place(p))
		}
		if fmt.Sprint(got) != want && (want != "many" || len(got) != 101) {
			t.Errorf("%q: got %v, want %s", text, got, want)
		}
	}
}
