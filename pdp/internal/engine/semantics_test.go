package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp"
)

type asked struct{ request, want string }

func TestMeaning(t *testing.T) {
	t.Parallel()
	const anyDoc = `@id("p") permit(principal is user, action, resource is doc) when `
	yaml := func(text string) []string { return []string{"bundle.yaml", text} }
	for name, test := range map[string]struct {
		bundle small
		asked  []asked
	}{
		"default is deny": {one(`permit(principal == user::"a", action, resource);`), []asked{
			{q("user:a", "x", "doc:1"), allow}, {q("user:A", "x", "doc:1"), deny}, {q("user:", "x", "doc:1"), deny},
		}},
		"a forbid wins": {one(`permit(principal is user, action, resource); @reason_user("no") forbid(principal, action == Action::"del", resource);`), []asked{
			{q("user:a", "x", "doc:1"), allow},
			{q("user:a", "del", "doc:1"), `{"decision":false,"context":{"reason_user":"no"}}`},
		}},
		"numbers": {one(anyDoc + `{ context.n == 1 };`), []asked{
			{q("user:a", "x", "doc:1", `c{"n":1}`), allow}, {q("user:a", "x", "doc:1", `c{"n":1.0}`), allow},
			{q("user:a", "x", "doc:1", `c{"n":10e-1}`), allow}, {q("user:a", "x", "doc:1", `c{"n":1.5}`), deny},
			{q("user:a", "x", "doc:1", `c{"n":"1"}`), deny}, {q("user:a", "x", "doc:1", `c{"n":1e400}`), deny},
		}},
		"unusable: != is no way around": {one(anyDoc + `{ context.n != 1 };`), []asked{
			{q("user:a", "x", "doc:1", `c{"n":2}`), allow}, {q("user:a", "x", "doc:1", `c{"n":1.5}`), deny}, {q("user:a", "x", "doc:1", `c{"n":[null]}`), deny},
		}},
		"unusable: has counts as errored": {one(anyDoc + `{ true }; forbid(principal, action, resource) when { context has n && context.n > 5 };`), []asked{
			{q("user:a", "x", "doc:1"), allow}, {q("user:a", "x", "doc:1", `c{"n":6}`), deny}, {q("user:a", "x", "doc:1", `c{"n":6.5}`), reason("policy_error")},
			{q("user:a", "x", "doc:1", `c{"m":6.5}`), allow},
		}},
		"unusable: the whole context": {one(anyDoc + `{ !(context == {}) };`), []asked{
			{q("user:a", "x", "doc:1"), allow}, {q("user:a", "x", "doc:1", `c{"n":0.5}`), deny},
		}},
		"unusable: action properties": {one(anyDoc + `{ context.action == {} };`), []asked{
			{q("user:a", "x", "doc:1"), allow}, {q("user:a", "x", "doc:1", `a{"n":1}`), deny}, {q("user:a", "x", "doc:1", `a{"n":0.5}`), deny},
		}},
		"errored forbid denies": {one(anyDoc + `{ true }; forbid(principal, action, resource) when { context.n > 5 };`), []asked{
			{q("user:a", "x", "doc:1", `c{"n":1}`), allow}, {q("user:a", "x", "doc:1"), reason("policy_error")},
			{q("nobody:a", "x", "doc:1"), deny}, // no allow without it either
		}},
		"errored forbid ignored, but not for an unusable value": {one(anyDoc+`{ true }; forbid(principal, action, resource) when { context.n > 5 };`, yaml("forbid_errors: ignore")...), []asked{
			{q("user:a", "x", "doc:1"), allow}, {q("user:a", "x", "doc:1", `c{"n":"s"}`), allow}, {q("user:a", "x", "doc:1", `c{"n":5.5}`), reason("policy_error")},
		}},
		"errored permit does not count": {one(anyDoc + `{ context.n > 5 };`), []asked{
			{q("user:a", "x", "doc:1"), deny}, {q("user:a", "x", "doc:1", `c{"n":6}`), allow},
		}},
		"null is absent, arrays are sets": {one(anyDoc + `{ !(context has n) && context.s == ["b", "a"] };`), []asked{
			{q("user:a", "x", "doc:1", `c{"n":null,"s":["a","b","b"]}`), allow}, {q("user:a", "x", "doc:1", `c{"n":{"m":null},"s":["a","b"]}`), deny},
		}},
		"null below the arguments is absent, too": {one(anyDoc + `{ !(context.arguments has n) && !(context.arguments.m has n) && context.arguments.m == {} && context.arguments.l.contains({}) };`), []asked{
			{q("user:a", "x", "doc:1", `c{"arguments":{"n":null,"m":{"n":null},"l":[{"n":null}]}}`), allow}, {q("user:a", "x", "doc:1", `c{"arguments":{"n":1,"m":{"n":null},"l":[{"n":null}]}}`), deny},
		}},
		"protocol members are not seen": {one(anyDoc + `{ !(context has approved) && !context.pdp.approved };`), []asked{
			{q("user:a", "x", "doc:1", `c{"approved":true,"justification":1.5,"evaluation_id":[null]}`), allow},
		}},
		"facts of the PDP": {one(anyDoc + `{ context.pdp == {now: datetime("2026-01-02T03:04:05Z"), tenant: "default", caller: "", approved: false,
			subject: {type: "user", id: "a"}, resource: {type: "doc", id: "1"}, capability: {held: false, id: "", depth: 0}} };`), []asked{
			{q("user:a", "x", "doc:1"), allow}, {q("user:b", "x", "doc:1"), deny}, {q("user:a", "x", "doc:2"), deny}, {q("user:a", "x", "doc:1", `c{"pdp":{}}`), "400 /context/pdp"}, {q("user:a", "x", "doc:1", `c{"action":{}}`), "400 /context/action"},
		}},
		"ids as texts": {one(`permit(principal is App::User, action, resource) when { context.pdp.resource.id like "x:*" && context.pdp.resource.type == "doc" && context.pdp.subject.type == "user" };`, yaml("namespace: App\ntypes: {user: User}")...), []asked{
			{q("user:a", "x", "doc:x:1"), allow}, {q("user:a", "x", "doc:x:"), allow}, {q("user:a", "x", "doc:x"), deny}, {q("user:a", "x", "doc:yx:1"), deny}, {q("user:a", "x", "tool:x:1"), deny},
		}},
		"names of types": {one(`permit(principal is App::User, action == App::Action::"x", resource is App::A::B);`, yaml("namespace: App\ntypes: {user: User}")...), []asked{
			{`{"subject":{"type":"user","id":"a"},"action":{"name":"x"},"resource":{"type":"A::B","id":"1"}}`, allow},
			{q("User:a", "x", "doc:1"), reason("unknown_type")}, {q("us er:a", "x", "doc:1"), reason("unknown_type")}, {q("Action:a", "x", "doc:1"), reason("unknown_type")},
			{`{"subject":{"type":"user","id":"a"},"action":{"name":"x"},"resource":{"type":"__cedar::User","id":"1"}}`, reason("unknown_type")},
			{`{"subject":{"type":"","id":"a"},"action":{"name":"x"},"resource":{"type":"doc","id":"1"}}`, reason("unknown_type")},
		}},
		"attributes fill": {one(anyDoc+`{ principal.role == "admin" };`, "entities/e.json", entities(entity("user", "a", `{"role":"admin"}`), entity("user", "b", `{}`))), []asked{
			{q("user:a", "x", "doc:1"), allow}, {q("user:a", "x", "doc:1", `s{"role":"no"}`), allow}, {q("user:a", "x", "doc:1", `s{"role":1.5}`), allow},
			{q("user:b", "x", "doc:1", `s{"role":"admin"}`), allow}, {q("user:c", "x", "doc:1", `s{"role":"admin"}`), allow},
		}},
		"attributes store": {one(anyDoc+`{ principal.role == "admin" };`, "entities/e.json", entities(entity("user", "b", `{}`)), "bundle.yaml", "attributes: {user: store}"), []asked{
			{q("user:b", "x", "doc:1", `s{"role":"admin"}`), deny}, {q("user:c", "x", "doc:1", `s{"role":"admin"}`), allow},
		}},
		"attributes request": {one(anyDoc+`{ principal.role != "guest" };`, "entities/e.json", entities(entity("user", "a", `{"role":"admin"}`)), "bundle.yaml", "attributes: {user: request}"), []asked{
			{q("user:a", "x", "doc:1"), allow}, {q("user:a", "x", "doc:1", `s{"role":"guest"}`), deny}, {q("user:a", "x", "doc:1", `s{"role":null}`), allow},
			{q("user:a", "x", "doc:1", `s{"role":1.5}`), deny}, // the stored one does not stand in
		}},
		"known": {one(anyDoc+`{ true };`, "entities/e.json", entities(entity("user", "a", `{}`)), "bundle.yaml", "known: [user]"), []asked{
			{q("user:a", "x", "doc:1"), allow}, {q("user:b", "x", "doc:1"), reason("unknown_entity")},
		}},
		"parents from attributes": {one(`permit(principal in role::"r", action, resource); forbid(principal in role::"bad", action, resource);`,
			"entities/e.json", entities(entity("user", "stored", `{"roles":["r"]}`), entity("user", "below", `{}`, "role:r")),
			"bundle.yaml", "parents: {user: {roles: role}}"), []asked{
			{q("user:a", "x", "doc:1", `s{"roles":["r","s"]}`), allow}, {q("user:a", "x", "doc:1", `s{"roles":"r"}`), allow},
			{q("user:a", "x", "doc:1", `s{"roles":["r","bad"]}`), deny}, {q("user:a", "x", "doc:1", `s{"roles":["r",1]}`), "400 /subject/properties/roles"},
			{q("user:a", "x", "doc:1", `s{"roles":{"id":"r"}}`), "400 /subject/properties/roles"}, {q("user:a", "x", "doc:1", `s{"roles":[null]}`), "400 /subject/properties/roles"},
			{q("user:stored", "x", "doc:1"), allow}, {q("user:stored", "x", "doc:1", `s{"roles":["bad"]}`), allow},
			{q("user:below", "x", "doc:1"), allow}, {q("user:below", "x", "doc:1", `s{"roles":["bad"]}`), deny},
		}},
		"one entity, and parents only the resource sends": {one(`permit(principal is user, action, resource);`, "bundle.yaml", "parents: {user: {roles: role}}"), []asked{
			{q("user:a", "x", "user:a", `r{"roles":["r"]}`), "400 /resource/properties/roles"}, {q("user:a", "x", "user:a", `s{"roles":["r"]}`), allow},
		}},
		"subject and resource are one": {one(`permit(principal is user, action, resource) when { principal.role == "admin" };`, "entities/e.json", entities(entity("user", "s", `{"role":"admin"}`))), []asked{
			{q("user:a", "x", "user:a", `s{"role":"admin"}`), allow}, {q("user:a", "x", "user:a", `r{"role":"admin"}`), deny},
			{q("user:a", "x", "user:a", `s{"role":"admin"}`, `r{"role":"admin"}`), allow}, {q("user:a", "x", "user:a", `s{"role":"admin"}`, `r{"role":"x"}`), "400 /resource/properties/role"},
			{q("user:s", "x", "user:s", `r{"role":"x"}`), allow},
		}},
		"no Cedar operator sees an entity in a string": {one(anyDoc + `{ context.e == user::"a" };`), []asked{
			{q("user:a", "x", "doc:1", `c{"e":"user::\"a\""}`), deny}, {q("user:a", "x", "doc:1", `c{"e":{"type":"user","id":"a"}}`), deny},
			{q("user:a", "x", "doc:1", `c{"e":{"__entity":{"type":"user","id":"a"}}}`), "400 /context/e/__entity"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := test.bundle.Load(t)
			for _, a := range test.asked {
				if got := ask(t, p, a.request); got != a.want {
					t.Errorf("%s\n got %s\nwant %s", a.request, got, a.want)
				}
			}
		})
	}
}

const docSchema = `
entity Role;
entity Status enum ["open", "closed"];
entity User in [Role] { name?: String, level: Long, boss?: User, roles?: Set<String> };
entity Doc { price?: decimal, at?: datetime, from?: ipaddr, ttl?: duration, labels?: { kind?: String }, status?: Status };
action read appliesTo { principal: [User], resource: [Doc, Status], context: { note?: String, action: { soft?: Bool } } };
action write appliesTo { principal: [User], resource: [Doc] };
`

func TestMeaningWithSchema(t *testing.T) {
	t.Parallel()
	b := one(`permit(principal is User, action == Action::"read", resource is Doc) when {
	  (if resource has price then resource.price.lessThan(decimal("10.5")) else true) &&
	  (if resource has at then resource.at < datetime("2026-01-01") else true) &&
	  (if resource has from then resource.from.isInRange(ip("10.0.0.0/8")) else true) &&
	  (if resource has ttl then resource.ttl < duration("1h") else true) &&
	  (if principal has boss then principal.boss == User::"b" else true) &&
	  (if context.action has soft then context.action.soft else true)
	};
	permit(principal is User, action == Action::"read", resource == Status::"open");`,
		"schema.cedarschema", docSchema, "bundle.yaml", "parents: {User: {roles: Role}}")
	mismatch := reason("schema_mismatch")
	read := func(more ...string) string { return q("User:a", "read", "Doc:1", append(more, `s{"level":1}`)...) }
	p := b.Load(t)
	for _, a := range []asked{
		{read(), allow},
		{q("User:a", "read", "Doc:1"), mismatch}, // level is required
		{q("User:a", "read", "Doc:1", `s{"level":1.0}`), allow},
		{q("User:a", "read", "Doc:1", `s{"level":1.5}`), mismatch},
		{q("User:a", "read", "Doc:1", `s{"level":1,"extra":1.5}`), allow},
		{read(`r{"price":10}`), allow}, {read(`r{"price":10.4999}`), allow}, {read(`r{"price":"10.4"}`), allow}, {read(`r{"price":11}`), deny},
		{read(`r{"price":1.23456}`), mismatch}, {read(`r{"price":1e18}`), mismatch}, {read(`r{"price":"+1.0"}`), mismatch}, {read(`r{"price":true}`), mismatch},
		{read(`r{"at":"2025-12-31"}`), allow}, {read(`r{"at":"2026-12-31"}`), deny}, {read(`r{"at":"yesterday"}`), mismatch},
		{read(`r{"from":"10.1.2.3"}`), allow}, {read(`r{"from":"11.1.2.3"}`), deny}, {read(`r{"from":"x"}`), mismatch},
		{read(`r{"ttl":"30m"}`), allow}, {read(`r{"ttl":1}`), mismatch},
		{read(`r{"labels":{"kind":"k","other":[null]}}`), allow}, {read(`r{"labels":[]}`), mismatch},
		{q("User:a", "read", "Doc:1", `s{"level":1,"boss":"b"}`), allow}, {q("User:a", "read", "Doc:1", `s{"level":1,"boss":{"type":"User","id":"b"}}`), allow},
		{q("User:a", "read", "Doc:1", `s{"level":1,"boss":"c"}`), deny}, {q("User:a", "read", "Doc:1", `s{"level":1,"boss":{"type":"Doc","id":"b"}}`), mismatch},
		{read(`a{"soft":true}`), allow}, {read(`a{"soft":false}`), deny}, {read(`a{"soft":"yes"}`), mismatch}, {read(`a{"hard":1.5}`), allow},
		{read(`c{"note":1}`), mismatch}, {read(`c{"note":"n","approved":17}`), allow}, {read(`c{"unknown":[[1],[2]]}`), allow},
		{q("User:a", "delete", "Doc:1", `s{"level":1}`), mismatch}, {q("Doc:a", "read", "Doc:1"), mismatch}, {q("User:a", "write", "Status:open", `s{"level":1}`), mismatch},
		{q("User:a", "read", "Status:open", `s{"level":1}`), allow}, {q("User:a", "read", "Status:ajar", `s{"level":1}`), mismatch}, {read(`r{"status":"ajar"}`), mismatch}, {read(`r{"status":"open"}`), allow},
		{q("Other:a", "read", "Doc:1"), mismatch}, {q("Action:a", "read", "Doc:1"), reason("unknown_type")},
		{q("User:a", "read", "Doc:1", `s{"level":1,"roles":[1]}`), "400 /subject/properties/roles"},
	} {
		if got := ask(t, p, a.request); got != a.want {
			t.Errorf("%s\n got %s\nwant %s", a.request, got, a.want)
		}
	}

	b["bundle.yaml"] = "unknown_properties: reject"
	p = b.Load(t)
	for _, a := range []asked{
		{q("User:a", "read", "Doc:1", `s{"level":1,"extra":1}`), "400 /subject/properties/extra"},
		{read(`r{"labels":{"other":1}}`), "400 /resource/properties/labels/other"},
		{read(`a{"hard":1}`), "400 /action/properties/hard"},
		{read(`c{"unknown":1}`), "400 /context/unknown"},
		{read(`c{"approved":1}`), allow},
		// What nobody declared is no place to send unknown members to: a deny.
		{q("User:a", "delete", "Doc:1", `s{"level":1}`, `c{"unknown":1}`), mismatch},
		{q("Other:a", "read", "Doc:1", `s{"level":1}`), mismatch},
		{q("User:a", "read", "Status:open", `s{"level":1}`, `r{"x":1}`), "400 /resource/properties/x"},
	} {
		if got := ask(t, p, a.request); got != a.want {
			t.Errorf("reject: %s\n got %s\nwant %s", a.request, got, a.want)
		}
	}
}

// TestUnknownEntities: what a schema requires of an entity in no store is required, unless
// bundle.yaml says otherwise, and then what is missing makes no allow.
func TestUnknownEntities(t *testing.T) {
	t.Parallel()
	b := one(`
@id("read") permit(principal is User, action == Action::"read", resource is Doc) when { principal.level > 1 };
@id("list") permit(principal is User, action == Action::"list", resource is Doc);
@id("low") forbid(principal is User, action == Action::"list", resource is Doc) when { principal.level < 3 };
@id("has") permit(principal is User, action == Action::"may", resource is Doc) when { principal has level && principal.level > 1 };
@id("guest") permit(principal is User, action == Action::"may", resource is Doc) unless { principal has level };
@id("out") forbid(principal is User, action, resource) when { principal in Role::"suspended" };
@id("kind") permit(principal is User, action == Action::"list", resource == Doc::"2") when { resource has labels && resource.labels.kind == "a" };`,
		"schema.cedarschema", `entity Role enum ["suspended", "reader"];
entity User in [Role] { level: Long, name?: String, boss?: User };
entity Member in [Role] { roles: Set<String> };
entity Doc { labels?: { kind: String } };
action read, list, may appliesTo { principal: [User, Member], resource: [Doc] };`,
		"entities/e.json", entities(entity("User", "stored", `{"level":2}`)))
	read := func(more ...string) string { return q("User:a", "read", "Doc:1", more...) }
	mismatch := reason("schema_mismatch")
	for config, list := range map[string][]asked{
		"unknown_entities: deny": {
			{read(), mismatch}, {read(`s{"level":2}`), allow}, {q("User:stored", "read", "Doc:1"), allow}, {q("User:a", "may", "Doc:1"), mismatch},
		},
		"unknown_entities: evaluate\nparents: {Member: {roles: Role}}": {
			{read(), deny}, {read(`s{"level":2}`), allow}, {q("User:stored", "read", "Doc:1"), allow},
			{read(`s{"level":"2"}`), mismatch}, {read(`s{"level":2,"name":1}`), mismatch}, {read(`s{"name":1}`), mismatch}, {read(`s{"name":"a","other":1}`), deny},
			{q("User:stored", "read", "Doc:1", `s{"level":"2"}`), allow}, // passed over
			{read(`s{"level":2}`, `r{"labels":{}}`), mismatch}, {q("Other:a", "list", "Doc:1"), mismatch}, {q("User:a", "write", "Doc:1"), mismatch},
			{q("User:a", "list", "Doc:1"), reason("policy_error")}, {q("User:a", "list", "Doc:1", `s{"level":null}`), reason("policy_error")},
			{q("User:a", "list", "Doc:1", `s{"level":2}`), deny}, {q("User:a", "list", "Doc:1", `s{"level":3}`), allow},
			{q("User:a", "may", "Doc:1"), allow}, {q("User:a", "may", "Doc:1", `s{"level":1}`), deny}, {q("User:a", "may", "Doc:1", `s{"level":2}`), allow},
			// What gives parents is not missing: no policy would err, and "out" would not apply.
			{q("Member:a", "list", "Doc:1"), mismatch}, {q("Member:a", "list", "Doc:1", `s{"roles":["nosuch"]}`), mismatch}, {q("Member:a", "list", "Doc:1", `s{"roles":["reader"]}`), deny},
		},
		"unknown_entities: evaluate\nknown: [User]": {
			{read(), reason("unknown_entity")}, {read(`s{"level":2}`), reason("unknown_entity")}, {q("User:stored", "read", "Doc:1"), allow},
		},
		"unknown_entities: evaluate\nforbid_errors: ignore": {
			{q("User:a", "list", "Doc:1"), allow}, {q("User:a", "list", "Doc:1", `s{"level":2}`), deny},
		},
		"unknown_entities: evaluate\nattributes: {User: request}": {
			{q("User:stored", "read", "Doc:1", `s{"level":1}`), deny}, {q("User:stored", "read", "Doc:1", `s{"level":"1"}`), mismatch},
		},
	} {
		b["bundle.yaml"] = config
		p := b.Load(t)
		for _, a := range list {
			if got := ask(t, p, a.request); got != a.want {
				t.Errorf("%s: %s\n got %s\nwant %s", config, a.request, got, a.want)
			}
		}
	}
	// A search permits what an evaluation does.
	for config, want := range map[string]int{"unknown_entities: deny": 0, "unknown_entities: evaluate": 1} {
		b["bundle.yaml"], b["entities/e.json"] = config, entities(entity("Doc", "1", `{}`))
		for _, action := range []string{"may", "list"} { // "low" errs for the latter
			s, err := evaluation.DecodeSearch(evaluation.ResourceSearch, []byte(`{"subject":{"type":"User","id":"a"},"action":{"name":"`+action+`"},"resource":{"type":"Doc"}}`), "", evaluation.DefaultLimits())
			if err != nil {
				t.Fatal(err)
			}
			answer, err := b.Load(t).Search(t.Context(), pdp.SearchCall{Search: s, Limit: 10})
			if err != nil || len(answer.Found) != want || answer.Examined != 1 {
				t.Errorf("%s, %s: found %v, %v", config, action, answer, err)
			}
			want = 0
		}
	}
	// Of one entity that is both, what only the resource sends is no value, and not missing either.
	one := one(`permit(principal, action, resource) unless { principal has level };`, "schema.cedarschema",
		`entity User { level: Long }; action edit appliesTo { principal: User, resource: User };`, "bundle.yaml", "allow_trivial: true\nunknown_entities: evaluate").Load(t)
	for properties, want := range map[string]string{`s{}`: allow, `s{"level":1}`: deny, `r{"level":1}`: deny} {
		if got := ask(t, one, q("User:a", "edit", "User:a", properties)); got != want {
			t.Errorf("%s: got %s, want %s", properties, got, want)
		}
	}
}

// What a schema declares bounds parents, references and what only one of two sends.
func TestMeaningOfWhatIsDeclared(t *testing.T) {
	t.Parallel()
	mismatch := reason("schema_mismatch")
	// A parent that its type has no such id of would be in nothing, and a forbid of what is below the one that was meant
	// passed over.
	enumerated := one(`permit(principal, action, resource == doc::"1"); forbid(principal, action, resource) when { principal in [role::"suspended"] };`,
		"schema.cedarschema", `entity role enum ["suspended", "reader"]; entity user in [role] { roles?: Set<String>, r?: role }; entity doc; action read appliesTo { principal: user, resource: doc };`,
		"bundle.yaml", "parents: {user: {roles: role}}").Load(t)
	// Of one entity that is both, what only the resource sends is no value; what the schema drops was none before.
	edit := func(more string) *pdp.PDP {
		return one(`permit(principal, action, resource); forbid(principal, action, resource) when { context has nick && context.nick == "root" };`,
			"schema.cedarschema", `entity user { role?: String }; action edit appliesTo { principal: user, resource: user, context: { nick?: String } };`, "bundle.yaml", "allow_trivial: true"+more).Load(t)
	}
	dropping, rejecting := edit(""), edit("\nunknown_properties: reject")
	// A reference in a request names its type as requests do.
	references := one(`permit(principal is App::User, action, resource) when { principal.boss == App::User::"b" };`,
		"schema.cedarschema", `namespace App { entity User { boss: User }; entity Doc; action read appliesTo { principal: User, resource: Doc }; }`,
		"bundle.yaml", "namespace: App\ntypes: {user: User}").Load(t)
	read := func(properties string) string { return q("user:a", "read", "doc:1", properties) }
	own := func(properties string) string { return q("user:a", "edit", "user:a", properties) }
	boss := func(boss string) string { return q("user:a", "read", "Doc:1", `s{"boss":`+boss+`}`) }
	for _, c := range []struct {
		of *pdp.PDP
		asked
	}{
		{enumerated, asked{read(`s{"roles":["reader"]}`), allow}}, {enumerated, asked{read(`s{"roles":["suspended"]}`), deny}},
		{enumerated, asked{read(`s{"roles":["Suspended"]}`), mismatch}}, {enumerated, asked{read(`s{"roles":["reader","nosuch"]}`), mismatch}}, {enumerated, asked{read(`s{"r":"nosuch"}`), mismatch}},
		{dropping, asked{own(`r{"nick":"x"}`), allow}}, {dropping, asked{own(`r{"other":"x"}`), allow}}, {dropping, asked{own(`s{"nick":"x"}`), allow}},
		{rejecting, asked{own(`r{"nick":"x"}`), "400 /resource/properties/nick"}},
		{references, asked{boss(`"b"`), allow}}, {references, asked{boss(`{"type":"user","id":"b"}`), allow}}, {references, asked{boss(`{"type":"user","id":"c"}`), deny}},
		{references, asked{boss(`{"type":"User","id":"b"}`), mismatch}}, {references, asked{boss(`{"type":"App::User","id":"b"}`), mismatch}}, {references, asked{boss(`{"type":"user","id":"b","x":1}`), mismatch}},
	} {
		if got := ask(t, c.of, c.request); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.request, got, c.want)
		}
	}
}

func TestTenants(t *testing.T) {
	t.Parallel()
	b := one(`@id("root") permit(principal == user::"root", action, resource); @id("no") forbid(principal, action == Action::"never", resource);`,
		"tenants/t1/p.cedar", `@id("own") permit(principal in group::"g", action, resource);`,
		"tenants/t1/entities/e.json", entities(entity("user", "u", `{}`, "group:g")),
		"tenants/t2/p.cedar", `@id("own") permit(principal == user::"v", action, resource);`)
	p := b.Load(t)
	in := func(tenant string) func(*pdp.Call) {
		return func(c *pdp.Call) { c.Request.Tenant = tenant }
	}
	for _, c := range []struct{ tenant, subject, action, want string }{
		{"default", "user:root", "x", allow}, {"default", "user:u", "x", deny}, {"", "user:root", "x", allow},
		{"t1", "user:root", "x", allow}, {"t1", "user:u", "x", allow}, {"t1", "user:u", "never", deny}, {"t1", "user:v", "x", deny},
		{"t2", "user:u", "x", deny}, {"t2", "user:v", "x", allow},
		{"t3", "user:root", "x", "no such tenant"}, {"tenants", "user:root", "x", "no such tenant"},
	} {
		if got := ask(t, p, q(c.subject, c.action, "doc:1"), in(c.tenant)); got != c.want {
			t.Errorf("%s %s %s: got %s, want %s", c.tenant, c.subject, c.action, got, c.want)
		}
	}
}

func TestNativeNamesItsTenant(t *testing.T) {
	t.Parallel()
	p := one(`permit(principal is agent, action, resource);`).Load(t)
	for tenant, want := range map[string]string{"default": `{"allow":true}`, "": "no such tenant", "Default": "no such tenant"} {
		body := fmt.Sprintf(`{"tenant_id":%q,"actor":{"actor_id":"a","actor_type":"agent"},"action":"x","resource":{"type":"tool","id":"t"}}`, tenant)
		if got := ask(t, p, body); got != want {
			t.Errorf("tenant_id %q: got %s, want %s", tenant, got, want)
		}
	}
}

type failing struct{}

func (failing) Record(context.Context, []pdp.Record) error { return errors.New("disk full") }

// An allow that is not on record must not leave.
func TestNotRecorded(t *testing.T) {
	t.Parallel()
	loaded, _ := pdp.Load(one(`permit(principal is user, action, resource);`).Source())
	p := pdp.Of(loaded, pdp.Options{Recorder: failing{}})
	r, err := evaluation.Decode([]byte(q("user:a", "x", "doc:1")), "", evaluation.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	d, err := p.Evaluate(t.Context(), pdp.Call{Request: r})
	if !errors.Is(err, pdp.ErrNotRecorded) || d.Allow {
		t.Errorf("got %v, %v; want no allow and ErrNotRecorded", d.Allow, err)
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	p := one(`
@id("near") permit(principal is user, action, resource) when { context.mfa } when { resource.kind == "public" };
@id("far") permit(principal is user, action, resource) when { context has purpose };
@id("other") permit(principal is robot, action, resource);
@id("stop") forbid(principal, action, resource) unless { principal.level > 1 && context.pdp.tenant == "default" };
`, "entities/e.json", entities(entity("user", "a", `{"level":2}`))).Load(t)
	got := ask(t, p, q("user:a", "x", "doc:1", `c{"mfa":true}`, `s{"level":0}`, `r{"kind":1.5}`), func(c *pdp.Call) { c.Explain = true })
	want := `{"decision":false,"context":{"explain":{"mismatch":[{"pointer":"/resource/properties/kind","detail":"not an integer; send an integer, or declare it as decimal in schema.cedarschema"}],"policies":[
 {"id":"near","effect":"permit","verdict":"error","position":"p.cedar:2:1","failed":"when { resource.kind == \"public\" }","attributes":[{"path":"context.mfa","source":"sent"},{"path":"resource.kind","source":"unusable"}]},
 {"id":"far","effect":"permit","verdict":"not_satisfied","position":"p.cedar:3:1","failed":"when { context has purpose }","attributes":[{"path":"context.purpose","source":"missing"}]},
 {"id":"stop","effect":"forbid","verdict":"not_satisfied","position":"p.cedar:5:1","attributes":[{"path":"context.pdp.tenant","source":"pdp"},{"path":"principal.level","source":"passed_over"}]}]}}}`
	if compact(t, got) != compact(t, want) {
		t.Errorf("got  %s\nwant %s", compact(t, got), compact(t, want))
	}
}

func compact(t *testing.T, text string) string {
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	b, _ := json.Marshal(v)
	return string(b)
}
