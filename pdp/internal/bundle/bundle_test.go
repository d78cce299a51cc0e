package bundle_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"policy-service/pdp"
)

const permitAdmins = "@id(\"p\") permit(principal in role::\"admin\", action, resource);\n"

const permitUsers = "@id(\"p\") permit(principal is user, action, resource);\n"

// Each broken bundle and its problem: place and code. All of a bundle's
// problems are reported, none of them quotes a value, each says what to try.
func TestProblems(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]problemCase{
		"syntax":                       {one("permit(principal, action resource);"), []string{"p.cedar:1:26 policy_syntax"}},
		"half-written":                 {one(permitUsers + "forbid(princ"), []string{"p.cedar:2:8 policy_syntax"}},
		"arguments of a function":      {one(permitUsers + `forbid(principal, action, resource) when { context.a == ip("a") || context.a == ip("a", "b") };`), []string{"p.cedar:2:81 policy_call"}},
		"arguments of two methods":     {one(permitUsers + "forbid(principal, action, resource)\nwhen { context.a.isInRange(ip(\"10.0.0.0/8\", [(1), 2]), ip({a: 1})) };"), []string{"p.cedar:3:18 policy_call", "p.cedar:3:28 policy_call"}},
		"arguments behind a chain":     {one(permitUsers + `forbid(principal, action, resource) when { {a: {b: [ip()]}}.a has b && {c: datetime()}.c == principal };`), []string{"p.cedar:2:53 policy_call", "p.cedar:2:76 policy_call"}},
		"arguments behind a comma":     {one(permitUsers + `forbid(principal, action, resource) when { context.a.isInRange(ip("10.0.0.0/8",),) };`), nil},
		"arguments, with a schema":     {one(permitUsers+`forbid(principal, action, resource) when { ip("10.0.0.1").isIpv4(1) };`, "schema.cedarschema", "entity user; action a appliesTo { principal: user, resource: user };"), []string{"p.cedar:2:59 policy_call"}},
		"an external entity":           {one(permitUsers, "schema.cedarschema", "entity user; external entity team;"), []string{"schema.cedarschema:1:14 schema_syntax"}},
		"parentheses":                  {one("permit(principal, action, resource) when { " + strings.Repeat("(", 200_000)), []string{"p.cedar:1:244 policy_nesting"}},
		"dotted chain":                 {one("permit(principal, action, resource) when { context has " + strings.Repeat("a.", 8000) + "a };"), []string{"p.cedar:1:89 policy_chain"}},
		"chain over lines":             {one("permit(principal, action, resource) when { context" + strings.Repeat(" . // x\n a", 17) + " };"), []string{"p.cedar:17:3 policy_chain"}},
		"parentheses behind a comment": {one("permit(principal, action, resource) when {/*\"*/ " + strings.Repeat("(", 300) + "true" + strings.Repeat(")", 300) + " };"), []string{"p.cedar:1:249 policy_nesting"}},
		"a comment in a comment":       {one("permit(principal, action, resource) when {/*//*/ context has " + strings.Repeat("a.", 16) + "a };"), []string{"p.cedar:1:95 policy_chain"}},
		"a comment over lines":         {one(permitUsers + "/* ( \n \" ( */ forbid(principal, action, resource) when { context.a == \"/*\" };"), nil},
		"signs":                        {one("permit(principal, action, resource) when { " + strings.Repeat("!", 300) + "true };"), []string{"p.cedar:1:244 policy_nesting"}},
		"signs apart":                  {one(permitUsers + "forbid(principal, action, resource) when { " + strings.Repeat("!true || -1 == 1 || ", 300) + "true };"), nil},
		"ifs":                          {one("permit(principal, action, resource) when { " + strings.Repeat("if true then true else ", 300) + "true };"), []string{"p.cedar:1:4623 policy_nesting"}},
		"ifs apart":                    {one(permitUsers + "forbid(principal, action, resource) when { " + strings.Repeat("(if true then true else true) && ", 300) + "true };"), nil},
		"a schema of sets":             {one(permitUsers, "schema.cedarschema", "entity u { a: "+strings.Repeat("Set<", 300)+"Long"+strings.Repeat(">", 300)+" };"), []string{"schema.cedarschema:1:815 schema_nesting"}},
		"brackets in text":             {one(permitUsers + `forbid(principal, action, resource) when { context.a == "` + strings.Repeat("(", 300) + `" }; // ` + strings.Repeat("[", 300)), nil},
		"one id twice":                 {one(permitUsers, "q.cedar", permitUsers), []string{"q.cedar:1:1 duplicate_id"}},
		"an id that is a place":        {one(permitUsers+"forbid(principal, action, resource);", "q.cedar", `@id("p.cedar#1") forbid(principal, action, resource);`), []string{"q.cedar:1:1 duplicate_id"}},
		"empty id":                     {one(`@id permit(principal is user, action, resource);`), []string{"p.cedar:1:1 empty_id"}},
		"unknown obligation":           {one(`@obligation("aproval_required") permit(principal is user, action, resource);`), []string{"p.cedar:1:13 unknown_obligation"}},
		"no obligation named":          {one(`@obligation("log, ") permit(principal is user, action, resource);`), []string{"p.cedar:1:13 obligation_name"}},
		"obligation twice":             {one(`@obligation("log,log") permit(principal is user, action, resource);`), []string{"p.cedar:1:13 obligation_twice"}},
		"approval on a forbid":         {one(permitUsers + `@obligation("approval_required") forbid(principal, action, resource);`), []string{"p.cedar:2:13 obligation_never"}},
		"allow only, on a forbid":      {one(permitUsers+`@obligation("x") forbid(principal, action, resource);`, "obligations.yaml", "x: {type: log, on: allow}"), []string{"p.cedar:2:13 obligation_never"}},
		"deny only, on a permit":       {one(`@obligation("x") permit(principal is user, action, resource);`, "obligations.yaml", "x: {type: log, on: deny}"), []string{"p.cedar:1:13 obligation_never"}},
		"obligation without a type":    {one(permitUsers, "obligations.yaml", "x: {}"), []string{"obligations.yaml:1:4 missing_key"}},
		"obligation of no type":        {one(permitUsers, "obligations.yaml", "x:\n  type: notificaton"), []string{"obligations.yaml:2:9 obligation_type"}},
		"obligation key":               {one(permitUsers, "obligations.yaml", "x: {type: log, when: allow}"), []string{"obligations.yaml:1:16 unknown_key"}},
		"obligation on":                {one(permitUsers, "obligations.yaml", "x: {type: log, on: never}"), []string{"obligations.yaml:1:20 yaml_value"}},
		"property missing":             {one(permitUsers, "obligations.yaml", "x: {type: step-up}"), []string{"obligations.yaml:1:4 obligation_properties"}},
		"property of another type":     {one(permitUsers, "obligations.yaml", "x: {type: step-up, properties: {acr_value: 3}}"), []string{"obligations.yaml:1:44 obligation_properties"}},
		"property too many":            {one(permitUsers, "obligations.yaml", "x: {type: notification, properties: {to: a, body: b, cc: c}}"), []string{"obligations.yaml:1:54 obligation_properties"}},
		"a form of approvals":          {one(permitUsers, "obligations.yaml", "x: {type: approval_required, properties: {template: t, form: review}}"), nil},
		"a form that there is not":     {one(permitUsers, "obligations.yaml", "x: {type: approval_required, properties: {template: t, form: choose}}"), []string{"obligations.yaml:1:62 obligation_properties"}},
		"a form by a template":         {one(permitUsers, "obligations.yaml", "x: {type: approval_required, properties: {template: t, form: '${context.form}'}}"), []string{"obligations.yaml:1:62 obligation_properties"}},
		"reserved property":            {one(permitUsers, "obligations.yaml", "x: {type: custom, properties: {a: {__entity: 1}}}"), []string{"obligations.yaml:1:31 obligation_properties"}},
		"template of no meaning":       {one(permitUsers, "obligations.yaml", "x: {type: custom, properties: {a: ['${principal.name}']}}"), []string{"obligations.yaml:1:36 obligation_template"}},
		"template without an end":      {one(permitUsers, "obligations.yaml", "x: {type: custom, properties: {a: 'to ${principal.id'}}"), []string{"obligations.yaml:1:35 obligation_template"}},
		"template of the protocol":     {one(permitUsers, "obligations.yaml", "x: {type: custom, properties: {a: '${context.approval_id}'}}"), []string{"obligations.yaml:1:35 obligation_template"}},
		"template of nothing below":    {one(permitUsers, "obligations.yaml", "x: {type: custom, properties: {a: '${context.a.}'}}"), []string{"obligations.yaml:1:35 obligation_template"}},
		"template of a secret below":   {one(permitUsers, "obligations.yaml", "x: {type: custom, properties: {a: '${context.arguments.api_key}'}}"), []string{"obligations.yaml:1:35 obligation_template"}},
		"template of what is in one":   {one(permitUsers, "obligations.yaml", "x: {type: custom, properties: {a: '${context.passwords.of.alice}'}}"), []string{"obligations.yaml:1:35 obligation_template"}},
		"built in, of another type":    {one(permitUsers, "obligations.yaml", "log: {type: custom}"), []string{"obligations.yaml:1:13 obligation_type"}},
		"built in, anew":               {one(permitUsers, "obligations.yaml", "approval_required: {type: approval_required, properties: {message: please}}"), nil},
		"built in, in a tenant":        {one(permitUsers, "tenants/t/p.cedar", permit("x"), "tenants/t/obligations.yaml", "log: {type: log}"), []string{"tenants/t/obligations.yaml:1:1 obligation_redefined"}},
		"the root's, in a tenant":      {one(permitUsers, "obligations.yaml", "x: {type: log}", "tenants/t/p.cedar", permit("x"), "tenants/t/obligations.yaml", "x: {type: log}"), []string{"tenants/t/obligations.yaml:1:1 obligation_redefined"}},
		"a tenant's, in the root":      {one(`@obligation("x") `+permitUsers, "tenants/t/p.cedar", permit("x"), "tenants/t/obligations.yaml", "x: {type: log}"), []string{"p.cedar:1:13 unknown_obligation"}},
		"a tenant's own":               {one(permitUsers, "tenants/t/p.cedar", `@obligation("x, log") `+permit("x"), "tenants/t/obligations.yaml", "x: {type: log}"), nil},
		"obligation twice in a file":   {one(permitUsers, "obligations.yaml", "x: {type: log}\nx: {type: log}"), []string{"obligations.yaml:2:1 duplicate_key"}},
		"no permit":                    {one(`forbid(principal, action, resource);`), []string{"bundle no_permit"}},
		"permit to all":                {one(`permit(principal, action, resource);`), []string{"p.cedar:1:1 trivial_permit"}},
		"allowed to all":               {one(`permit(principal, action, resource);`, "bundle.yaml", "allow_trivial: true"), nil},
		"permit to all, but":           {one(`permit(principal, action, resource); forbid(principal is robot, action, resource);`), nil},
		"a tenant's permit to all":     {one(permitUsers, "tenants/t/p.cedar", "\n permit(principal, action, resource);"), []string{"tenants/t/p.cedar:2:2 trivial_permit"}},

		"unknown key":     {one(permitUsers, "bundle.yaml", "known: [user]\nforbid_error: deny"), []string{"bundle.yaml:2:1 unknown_key"}},
		"key twice":       {one(permitUsers, "bundle.yaml", "known: [user]\nknown: []"), []string{"bundle.yaml:2:1 duplicate_key"}},
		"wrong value":     {one(permitUsers, "bundle.yaml", "attributes:\n  user: sent\n"), []string{"bundle.yaml:2:9 yaml_value"}},
		"not YAML":        {one(permitUsers, "bundle.yaml", "a: [1\nb: }"), []string{"bundle.yaml:1:1 yaml_syntax"}},
		"not injective":   {one(permitUsers, "bundle.yaml", "types: {a: X, b: X}"), []string{"bundle.yaml:1:18 types_not_injective"}},
		"not a type":      {one(permitUsers, "bundle.yaml", "types: {a: \"X Y\"}"), []string{"bundle.yaml:1:12 type_name"}},
		"an action type":  {one(permitUsers, "bundle.yaml", "types: {a: N::Action}"), []string{"bundle.yaml:1:12 type_name"}},
		"a shadowed name": {one(permitUsers, "bundle.yaml", "types: {a: X}\nknown: [X]"), []string{"bundle.yaml:2:9 type_name"}},
		"JSON is YAML":    {one(permitUsers, "bundle.yaml", `{"known": ["user"], "allow_trivial": false}`), nil},
		"two documents":   {one(permitUsers, "bundle.yaml", "known: [user]\n---\nforbid_errors: ignore"), []string{"bundle.yaml:2:1 yaml_documents"}},
		"merge key":       {one(permitUsers, "bundle.yaml", "attributes: &a {user: fill}\nparents:\n  <<: *a"), []string{"bundle.yaml:3:3 yaml_form"}},

		"entities syntax":                         {one(permitUsers, "entities/e.json", `[{"uid":{"type":"u","id":"secret"}`), []string{"entities/e.json:1:35 entity_syntax"}},
		"entities form":                           {one(permitUsers, "entities/e.json", "[\n  {\"uid\":{\"type\":\"u\",\"id\":\"secret\"},\"attrs\":{\"a\":1.5},\"parents\":[]}]"), []string{"entities/e.json:2:46 entity_form"}},
		"array of 200 plain values":               {one(permitUsers, "entities/e.json", arrayEntity(200, "0")), nil},
		"array of 128, the last of them nested":   {one(permitUsers, "entities/e.json", arrayEntity(127, "[0]")), nil},
		"array of 129, the last of them nested":   {one(permitUsers, "entities/e.json", arrayEntity(128, "[0]")), []string{"entities/e.json:1:40 entity_form"}},
		"array of 129, the last of them a record": {one(permitUsers, "entities/e.json", arrayEntity(128, "{}")), []string{"entities/e.json:1:40 entity_form"}},
		"array of 201, the first of them nested":  {one(permitUsers, "entities/e.json", entities(entity("u", "a", `{"a":[[0]`+strings.Repeat(",1", 200)+`]}`))), []string{"entities/e.json:1:40 entity_form"}},

		"entities object":    {one(permitUsers, "entities/e.json", `{}`), []string{"entities/e.json:1:2 entity_syntax"}},
		"member twice":       {one(permitUsers, "entities/e.json", `[{"uid":{"type":"u","id":"a"},"attrs":{"a":1,"a":2},"parents":[]}]`), []string{"entities/e.json:1:46 entity_syntax"}},
		"entity member":      {one(permitUsers, "entities/e.json", `[{"uid":{"type":"u","id":"a"},"attrs":{},"parents":[],"parent":[]}]`), []string{"entities/e.json:1:2 warning entity_member"}},
		"entity twice":       {one(permitUsers, "entities/e.json", entities(entity("u", "a", "{}")), "entities/f.json", entities(entity("u", "a", "{}"))), []string{"entities/f.json:1:2 duplicate_entity"}},
		"bad extension":      {one(permitUsers, "entities/e.json", entities(entity("u", "a", `{"ip":{"__extn":{"fn":"ip","arg":"secret"}}}`))), []string{"entities/e.json:1:40 entity_form"}},
		"parent attribute":   {one(permitUsers, "bundle.yaml", "parents: {u: {r: role}}", "entities/e.json", entities(entity("u", "a", `{"r":[1]}`))), []string{"entities/e.json:1:2 parent_attribute"}},
		"tenant redefines":   {one(permitUsers, "entities/e.json", entities(entity("u", "a", "{}")), "tenants/t/entities/e.json", entities(entity("u", "a", "{}"))), []string{"tenants/t/entities/e.json:1:2 duplicate_entity"}},
		"tenant's policy id": {one(permitUsers, "tenants/t/p.cedar", permitUsers), []string{"tenants/t/p.cedar:1:1 duplicate_id"}},
		"two tenants' ids":   {one(permitUsers, "tenants/t/p.cedar", `@id("x") permit(principal is a, action, resource);`, "tenants/u/p.cedar", `@id("x") permit(principal is a, action, resource);`), nil},
		"tenant below root":  {one(`permit(principal in role::"admin", action, resource);`, "tenants/t/entities/e.json", entities(entity("u", "a", "{}", "role:admin"))), []string{"tenants/t/entities/e.json:1:2 root_parent"}},
		"tenant below root by attribute": {one(`permit(principal is u, action, resource) when { principal in [role::"admin"] };`, "bundle.yaml", "parents: {u: {r: role}}", "tenants/t/entities/e.json", entities(entity("u", "a", `{"r":"admin"}`))),
			[]string{"tenants/t/entities/e.json:1:2 root_parent"}},
		"tenant below a root entity's parent":         {one(permitUsers, "entities/e.json", entities(entity("u", "a", "{}", "g:1")), "tenants/t/entities/e.json", entities(entity("u", "b", "{}", "g:1"))), []string{"tenants/t/entities/e.json:1:2 root_parent"}},
		"tenant below what a root entity's tag names": {one(permitUsers, "entities/e.json", `[{"uid":{"type":"d","id":"1"},"attrs":{},"parents":[],"tags":{"t":{"__entity":{"type":"g","id":"1"}}}}]`, "tenants/t/entities/e.json", entities(entity("u", "b", "{}", "g:1"))), []string{"tenants/t/entities/e.json:1:2 root_parent"}},
		"tenant defines what the root names":          {one(permitUsers, "entities/e.json", entities(entity("d", "1", `{"owner":{"__entity":{"type":"u","id":"ghost"}}}`)), "tenants/t/entities/e.json", entities(entity("u", "ghost", `{"vetted":true}`))), []string{"tenants/t/entities/e.json:1:2 warning root_entity"}},
		"tenant below a root that lets it":            {one(permitAdmins, "bundle.yaml", "tenants: {parents: [role]}", "tenants/t/entities/e.json", entities(entity("u", "a", "{}", "role:admin"))), nil},
		"by the wire name of the type":                {one(permitAdmins, "bundle.yaml", "types: {position: role}\ntenants: {parents: ['position::\"admin\"']}", "tenants/t/entities/e.json", entities(entity("u", "a", "{}", "role:admin"))), nil},
		"a root that lets it be below another": {one(permitAdmins, "bundle.yaml", `tenants: {parents: [role::"adnim"]}`, "tenants/t/entities/e.json", entities(entity("u", "a", "{}", "role:admin"))),
			[]string{"bundle.yaml:1:21 warning tenant_parent_unnamed", "tenants/t/entities/e.json:1:2 root_parent"}},
		"a tenant's own between": {one(permitAdmins, "bundle.yaml", `tenants: {parents: [role::"staff"]}`, "entities/e.json", entities(entity("role", "staff", "{}")), "tenants/t/entities/e.json", entities(entity("u", "a", "{}", "role:own"), entity("role", "own", "{}", "role:admin"))),
			[]string{"tenants/t/entities/e.json:1:82 root_parent"}},
		"tenants below more than is named":   {one(permitAdmins, "bundle.yaml", `tenants: {parents: [role]}`, "entities/e.json", entities(entity("role", "admin", "{}", "group:operators"))), []string{"bundle.yaml:1:21 tenant_parent_above"}},
		"approvers below more than is named": {one(permitAdmins, "bundle.yaml", `tenants: {parents: [role], approvers: [role::"admin"]}`, "entities/e.json", entities(entity("role", "admin", "{}", "role:operators"))), []string{"bundle.yaml:1:40 tenant_parent_above"}},
		"approvers that are no tenant's":     {one(permitAdmins, "bundle.yaml", `tenants: {parents: [role::"admin"], approvers: [role]}`), []string{"bundle.yaml:1:49 tenant_approver"}},
		"tenants below actions":              {one(permitAdmins, "bundle.yaml", `tenants: {parents: [Action]}`), []string{"bundle.yaml:1:21 type_name"}},
		"tenants below no entity":            {one(permitAdmins, "bundle.yaml", `tenants: {parents: ['role::"admin']}`), []string{"bundle.yaml:1:21 type_name"}},
		"an unknown key of tenants":          {one(permitAdmins, "bundle.yaml", `tenants: {parent: [role]}`), []string{"bundle.yaml:1:11 unknown_key"}},
		"what the root names, below the root's": {one(permitAdmins, "bundle.yaml", "tenants: {parents: [role]}", "entities/e.json", entities(entity("u", "a", "{}", "team:red")), "tenants/t/entities/e.json", entities(entity("team", "red", "{}", "role:own"), entity("role", "own", "{}", "role:admin"))),
			[]string{"tenants/t/entities/e.json:1:2 warning root_entity", "tenants/t/entities/e.json:1:2 root_parent"}},
		"tenant bundle.yaml": {one(permitUsers, "tenants/t/p.cedar", permit("x"), "tenants/t/bundle.yaml", "allow_trivial: true"), []string{"tenants/t/bundle.yaml unknown_file"}},

		"schema syntax":    {one(permitUsers, "schema.cedarschema", "entity User {"), []string{"schema.cedarschema:1:14 schema_syntax"}},
		"schema reference": {one(permitUsers, "schema.cedarschema", "entity User in [Role];"), []string{"schema.cedarschema:1:17 schema_reference"}},
		"one schema of three files": {one(`permit(principal, action == Action::"read", resource) when { context.n > 1 };`, "schema.cedarschema", "entity user; type N = Long;", "b.cedarschema", `action "read" in "all" appliesTo { principal: user, resource: user, context: { n: N } };`,
			"c.cedarschema.json", `{"": {"entityTypes": {}, "actions": {"all": {}}}}`), nil},
		"one schema of namespaces": {one(`permit(principal is N::robot, action, resource);`, "a.cedarschema", "@doc(\"a\") namespace N { entity user; }", "b.cedarschema", "@doc(\"b\") namespace N { entity robot in user; action a appliesTo { principal: robot, resource: user }; }"), nil},
		"a name in two files": {one(permitUsers, "a.cedarschema", "// entity user;\nentity thing, user;", "b.cedarschema", "\nentity user enum [\"a\"]; action a; type T = Long;", "c.cedarschema", "action a; type T = Long; // entity thing"),
			[]string{"b.cedarschema:2:8 schema_twice", "c.cedarschema:1:8 schema_twice", "c.cedarschema:1:16 schema_twice"}},
		"syntax in the second file":         {one(permitUsers, "schema.cedarschema", "entity user;", "t:9:9.cedarschema", "\n entity"), []string{"t:9:9.cedarschema:2:8 schema_syntax"}},
		"a gap between two files":           {one(permitUsers, "schema.cedarschema", "entity user;", "tools.cedarschema", "\naction a appliesTo { principal: agent, resource: user };"), []string{"tools.cedarschema:2:33 schema_reference"}},
		"a group of no file":                {one(permitUsers, "schema.cedarschema", "entity user;", "tools.cedarschema", "\naction \"a:b\" in \"all\";"), []string{"tools.cedarschema:2:17 schema_reference"}},
		"pdp in the second file":            {one(permitUsers, "schema.cedarschema", "entity user;", "tools.cedarschema", "action a appliesTo { principal: user, resource: user, context: {\n pdp: Long } };"), []string{"tools.cedarschema:2:2 schema_context"}},
		"files too large together":          {one(permitUsers, append([]string{"a.cedarschema", "entity user;"}, large(5)...)...), []string{"l4.cedarschema too_large"}},
		"the same action of two":            {one(permitUsers, "a.cedarschema", "namespace A { entity user; action a; }", "b.cedarschema", "entity user; action a;"), []string{"a.cedarschema:1:22 schema_reference"}},
		"schema declares pdp":               {one(permitUsers, "schema.cedarschema", "entity user; action a appliesTo { principal: user, resource: user, context: { pdp: { now: Long } } };"), []string{"schema.cedarschema:1:79 schema_context"}},
		"schema declares a part of pdp":     {one(permitUsers, "schema.cedarschema", "entity user; // action a pdp: {}\naction b appliesTo { principal: user, resource: user, context: { x: Bool } };\naction \"a\" appliesTo { principal: user, resource: user, context: {\n  pdp: { now: datetime, tenant: String, caller: String },\n} };"), []string{"schema.cedarschema:4:3 schema_context"}},
		"schema declares more of pdp":       {one(permitUsers, "schema.cedarschema", "entity user;\naction a appliesTo { principal: user, resource: user, context: { \"pdp\": { now: datetime, tenant: String, caller: String, approved: Bool, agent: String } } };"), []string{"schema.cedarschema:2:66 schema_context"}},
		"schema may leave out pdp":          {one(permitUsers, "schema.cedarschema", "entity user; action a appliesTo { principal: user, resource: user, context: { pdp?: { now: datetime, tenant: String, caller: String, approved: Bool } } };"), []string{"schema.cedarschema:1:79 schema_context"}},
		"schema may leave out a part":       {one(permitUsers, "schema.cedarschema", "entity user; action a appliesTo { principal: user, resource: user, context: { pdp: { now: datetime, tenant: String, caller: String, approved?: Bool } } };"), []string{"schema.cedarschema:1:79 schema_context"}},
		"schema declares pdp by a name":     {one(permitUsers, "schema.cedarschema", "entity user; type C = { pdp: { now: datetime } };\naction a appliesTo { principal: user, resource: user, context: C };"), []string{"schema.cedarschema:2:8 schema_context"}},
		"schema declares pdp in JSON":       {one(permitUsers, "s.cedarschema.json", "{\"\": {\"entityTypes\": {\"user\": {}}, \"actions\": {\"a\": {\"appliesTo\": {\"principalTypes\": [\"user\"], \"resourceTypes\": [\"user\"], \"context\": {\"type\": \"Record\", \"attributes\": {\n\"pdp\": {\"type\": \"String\"}}}}}}}}"), []string{"s.cedarschema.json:2:1 schema_context"}},
		"schema declares action as text":    {one(permitUsers, "schema.cedarschema", "entity user; action a appliesTo { principal: user, resource: user, context: { action: String } };"), []string{"schema.cedarschema:1:79 schema_context"}},
		"schema declares pdp the same":      {one(permitUsers, "schema.cedarschema", "entity user; action a appliesTo { principal: user, resource: user, context: { pdp: { now: datetime, tenant: String, caller: String, approved: Bool } } };"), nil},
		"a policy off the schema":           {one(permitUsers+`permit(principal is user, action, resource) when { principal.x };`, "schema.cedarschema", "entity user; action a appliesTo { principal: user, resource: user };"), []string{"p.cedar:2:62 schema_policy"}},
		"has undeclared":                    {one(permitUsers+`forbid(principal is user, action, resource) when { principal has x };`, "schema.cedarschema", "entity user; action a appliesTo { principal: user, resource: user };"), []string{"p.cedar:2:66 has_undeclared"}},
		"has undeclared, deep":              {one(permitUsers+`forbid(principal is user, action, resource) when { principal has a && principal.a has b.c };`, "schema.cedarschema", "entity user { a?: { b?: { d?: Bool } } }; action a appliesTo { principal: user, resource: user };"), []string{"p.cedar:2:89 has_undeclared"}},
		"has declared for one of two":       {one(permitUsers+`forbid(principal, action, resource) when { principal has x && principal.x };`, "schema.cedarschema", "entity user; entity robot { x?: Bool }; action a appliesTo { principal: [user, robot], resource: user };"), nil},
		"never applies":                     {one(permitUsers+`permit(principal is thing, action, resource);`, "schema.cedarschema", "entity user; entity thing; action a appliesTo { principal: user, resource: user };"), []string{"p.cedar:2:1 warning no_applicable_action"}},
		"enumerated id":                     {one(`permit(principal is user, action, resource == st::"ajar");`, "schema.cedarschema", `entity user; entity st enum ["open"]; action a appliesTo { principal: user, resource: st };`), []string{"p.cedar:1:47 enum_id"}},
		"stored entity off the schema":      {one(permitUsers, "entities/e.json", entities(entity("user", "a", `{"x":1}`)), "schema.cedarschema", "entity user; action a appliesTo { principal: user, resource: user };"), []string{"entities/e.json:1:43 schema_entity"}},
		"enumerated with attributes":        {one(permitUsers, "entities/e.json", entities(entity("st", "open", `{"x":1}`)), "schema.cedarschema", `entity user; entity st enum ["open"]; action a appliesTo { principal: user, resource: st };`), []string{"entities/e.json:1:2 schema_entity"}},
		"schema declares all of pdp":        {one(permitUsers+` permit(principal, action, resource) when { context.pdp.resource.id like "x:*" && context.pdp.subject.type == "user" && context.pdp.capability.depth < 1 };`, "schema.cedarschema", "entity user; type Ref = {type: String, id: String}; action a appliesTo { principal: user, resource: user, context: { pdp: { now: datetime, tenant: String, caller: String, approved: Bool, subject: Ref, resource: Ref, capability: {held: Bool, id: String, depth: Long} } } };"), nil},
		"schema declares pdp but one":       {one(permitUsers, "schema.cedarschema", "entity user; type Ref = {type: String, id: String}; action a appliesTo { principal: user, resource: user, context: { pdp: { now: datetime, tenant: String, caller: String, approved: Bool, subject: Ref, resource: Ref } } };"), []string{"schema.cedarschema:1:118 schema_context"}},
		"schema may leave out an id":        {one(permitUsers, "schema.cedarschema", "entity user; type Ref = {type: String, id?: String}; action a appliesTo { principal: user, resource: user, context: { pdp: { now: datetime, tenant: String, caller: String, approved: Bool, subject: Ref, resource: Ref, capability: {held: Bool, id: String, depth: Long} } } };"), []string{"schema.cedarschema:1:119 schema_context"}},
		"first pdp, and more is read":       {one(permitUsers+"\npermit(principal, action, resource) when { context.pdp.resource.id like \"x:*\" };\npermit(principal, action, resource) when { context.pdp has capability };", "schema.cedarschema", "entity user; action a appliesTo { principal: user, resource: user, context: { pdp: { now: datetime, tenant: String, caller: String, approved: Bool } } };"), []string{"p.cedar:3:56 schema_policy", "p.cedar:4:60 has_undeclared"}},
		"schema requires a protocol member": {one(permitUsers, "schema.cedarschema", "entity user; action a appliesTo { principal: user, resource: user, context: { approved: Bool } };"), []string{"schema.cedarschema:1:79 schema_context"}},
		"parents off the schema":            {one(permitUsers, "bundle.yaml", "parents:\n  user: {roles: role}", "schema.cedarschema", "entity role; entity user; action a appliesTo { principal: user, resource: user };"), []string{"bundle.yaml:2:17 parent_type"}},
		"stored enumerated id":              {one(permitUsers, "entities/e.json", entities(entity("st", "ajar", `{}`)), "schema.cedarschema", `entity user; entity st enum ["open"]; action a appliesTo { principal: user, resource: user };`), []string{"entities/e.json:1:2 schema_entity"}},

		"several at once": {one("permit(", "bundle.yaml", "x: 1", "entities/e.json", "{", "q.cedar", permitUsers), []string{"bundle.yaml:1:1 unknown_key", "entities/e.json:1:2 entity_syntax", "p.cedar:1:8 policy_syntax"}},
	} {
		t.Run(name, test.run)
	}
}

// problemCase is a bundle with its problems: place and code.
type problemCase struct {
	bundle small
	want   []string
}

func (c problemCase) run(t *testing.T) {
	loaded, problems := pdp.Load(c.bundle.Source())
	var got []string
	for _, p := range problems {
		got = append(got, place(p))
		if strings.Contains(p.String(), "secret") {
			t.Errorf("a value is quoted: %s", p)
		}
		if p.Message == "" || p.Try == "" && p.Code != "yaml_value" {
			t.Errorf("not helpful: %+v", p)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(c.want) {
		t.Errorf("got  %v\nwant %v\n%v", got, c.want, problems)
	}
	if (loaded == nil) != problems.Refuse() {
		t.Errorf("bundle %v beside problems %v", loaded, problems)
	}
}

func permit(typ string) string {
	return fmt.Sprintf("permit(principal is %s, action, resource);", typ)
}

func place(p pdp.Problem) string {
	s := p.File
	if s == "" {
		s = "bundle"
	}
	if p.Line > 0 {
		s += fmt.Sprintf(":%d:%d", p.Line, p.Column)
	}
	if p.Severity == pdp.SeverityWarning && p.Code != "unknown_file" {
		s += " warning"
	}
	return s + " " + p.Code
}

// A has that is always false is found wherever it looks, and none else is.
func TestHasUndeclared(t *testing.T) {
	t.Parallel()
	const schema = `
type Address = { city?: String, geo?: { lat?: Long } };
entity Team { lead?: User };
entity User { boss?: User, level?: Long, home?: Address, "odd name"?: Bool };
entity Agent { suspended?: Bool, by?: User };
entity Doc { owner: User, draft?: Bool } tags User;
entity Folder tags { since?: Long };
entity Status enum ["open"];
action read appliesTo { principal: [User, Agent], resource: Doc, context: { who?: User, mfa?: { at?: Long } } };
action list appliesTo { principal: [User, Agent], resource: Folder, context: { depth?: Long, action?: { mode?: String } } };
`
	for condition, want := range map[string]string{
		`User::"root" has suspnded`:         `User::"root".suspnded`,
		`User::"root" has suspended`:        `User::"root".suspended`,
		`Status::"open" has x`:              `Status::"open".x`,
		`action has suspnded`:               "action.suspnded",
		`Action::"read" has x`:              `Action::"read".x`,
		`{who: principal}.who has suspnded`: "(…).who.suspnded",
		`{who: principal} has whom`:         "(…).whom",
		`resource is Doc && resource.hasTag("x") && resource.getTag("x") has suspended`:                                     "(…).suspended",
		`resource is Doc && principal is User && (if principal has level then principal else resource.owner) has suspended`: "(…).suspended",
		`principal is User && principal has suspended`:                                                                      "principal.suspended",
		`context.pdp.approved && principal is User && principal has suspended`:                                              "principal.suspended",
		`context.pdp.approved || (principal is User && principal has suspended)`:                                            "principal.suspended",
		`if principal is User then principal has suspended else false`:                                                      "principal.suspended",
		`principal == User::"a" && principal has suspended`:                                                                 "principal.suspended",
		`action == Action::"read" && context has depth`:                                                                     "context.depth",
		`principal is User && principal has "no such"`:                                                                      `principal["no such"]`,
		`principal is User && principal has home && principal.home has geo && principal.home.geo has lon`:                   "principal.home.geo.lon",

		`principal has suspended`: "",
		`principal is Agent && principal has suspended && principal.suspended`:                    "",
		`principal is User && context.pdp.approved || principal has suspended`:                    "",
		`if principal is User then false else principal has suspended`:                            "",
		`(if principal is Agent then principal has suspended else principal has level)`:           "",
		`principal is User && principal has "odd name"`:                                           "",
		`principal is User && principal has home.geo.lat`:                                         "",
		`principal in Team::"x" && principal has suspended`:                                       "",
		`User::"root" has boss.boss.home.city`:                                                    "",
		`Team::"x" has lead.home`:                                                                 "",
		`context has mfa.at`:                                                                      "",
		`context has who.boss.level`:                                                              "",
		`context has depth || context has action && context.action has mode`:                      "",
		`context has pdp && context.pdp has tenant`:                                               "",
		`action == Action::"list" && context has depth`:                                           "",
		`action in [Action::"list", Action::"read"] && context has depth`:                         "",
		`resource is Doc && resource.hasTag("x") && resource.getTag("x") has boss`:                "",
		`resource is Folder && resource.hasTag("x") && resource.getTag("x") has since`:            "",
		`{who: User::"x"}.who has level`:                                                          "",
		`{who: {a: 1}}.who has a`:                                                                 "",
		`resource is Doc && (if resource has draft then resource.owner else User::"x") has level`: "",
		`(if principal is User then principal else User::"x") has level`:                          "",
		`(if principal has by then principal.by else User::"x") has home.city`:                    "",
	} {
		t.Run(condition, func(t *testing.T) {
			for _, form := range []string{"when { %s }", "when { true } unless { %s }"} {
				const head = `@id("f") forbid(principal, action, resource) `
				_, problems := pdp.Load(one(permit("User")+"\n"+head+fmt.Sprintf(form, condition)+";", "schema.cedarschema", schema).Source())
				var got string
				for _, p := range problems {
					if p.Severity == pdp.SeverityError {
						at := place(p)
						if p.Code == "has_undeclared" && p.Line == 2 && p.Column > len(head+"when { ") {
							at = "in the condition has_undeclared"
						}
						message, _, _ := strings.Cut(p.Message, "; did you mean")
						got += at + " " + strings.TrimSuffix(strings.TrimPrefix(message, `policy "f" tests for `), ", which the schema does not declare: the test is always false")
					}
				}
				switch variable, _, _ := strings.Cut(want, "."); {
				case want == "", strings.HasPrefix(want, "p.cedar"), strings.HasPrefix(want, "in the condition"):
				case slices.Contains([]string{"principal", "action", "resource", "context", `principal["no such"]`}, variable):
					want = "in the condition has_undeclared " + want
				default: // what is read of no variable is not found in the text
					want = "p.cedar:2:1 has_undeclared " + want
				}
				if got != want {
					t.Errorf(form+": got %q, want %q", condition, got, want)
				}
			}
		})
	}
}

// arrayEntity is a file of an entity with an array: n plain values, and then last.
func arrayEntity(n int, last string) string {
	return entities(entity("u", "a", `{"a":[`+strings.Repeat("1,", n)+last+`]}`))
}

// large are n files of a schema, each nearly as large as one may be.
func large(n int) (files []string) {
	for i := range n {
		files = append(files, fmt.Sprintf("l%d.cedarschema", i), "//"+strings.Repeat("x", 1<<20-100))
	}
	return files
}
