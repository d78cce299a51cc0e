package filter_test

import (
	"strings"

	"policy-service/pdp/internal/filter"
	"policy-service/pdp/pdptest/database"
)

// typed is a schema in which each attribute of a document is required that is named, beside those that are not.
func typed(change ...string) string {
	return strings.NewReplacer(change...).Replace(files["schema.cedarschema"])
}

// remapped is a mapping of either dialect with changes.
func remapped(change ...string) map[filter.Dialect]string {
	return map[filter.Dialect]string{
		postgres: strings.NewReplacer(change...).Replace(mapping(postgres)),
		sqlite:   strings.NewReplacer(change...).Replace(mapping(sqlite)),
	}
}

func many(n int) (elements []any) {
	for range n {
		elements = append(elements, "x")
	}
	return elements
}

// what the mistakes of the test of mutants would select.
func init() {
	enumerated := typed("entity team in [team];", `entity team enum ["t1", "t2"]; entity group;`, "in [team, document]", "in [team, group]", "document in [team]", "document in [team, group]")
	enumEntities := `[{"uid":{"type":"user","id":"u1"},"attrs":{"vip":false},"parents":[]}]`
	cases = append(cases, []example{
		{
			name: "a record that the schema requires lacks a member", says: "each member that is required of it must be there",
			files: with(policies(anybody), "schema.cedarschema", typed("label?", "label")),
			rows:  []row{{"id": "a", "category": "x"}, {"id": "b", "note": "y"}, {"id": "c"}}, selected: "a",
		},
		{
			name: "an optional record lacks a member", says: "if one member is there, the required ones must be",
			files: policies(anybody),
			rows:  []row{{"id": "a", "category": "x"}, {"id": "b", "note": "y"}, {"id": "c"}}, selected: "a c",
		},
		{
			name: "an array has two dimensions", says: "its elements are arrays, which are no texts",
			files: policies(anybody), only: postgres,
			rows: []row{{"id": "a", "teams": raw("ARRAY['x']")}, {"id": "b", "teams": raw("ARRAY[['x','y'],['z','w']]")}}, selected: "a",
		},
		{
			notRust: "it takes sets of any size",
			name:    "sets are large", says: "a request can have 4,096 elements",
			files: policies(anybody),
			rows:  []row{{"id": "a", "tags": many(4096)}, {"id": "b", "tags": many(4097)}, {"id": "c", "teams": many(4096)}, {"id": "d", "teams": many(4097)}}, selected: "a c",
		},
		{
			name: "times are out of range", says: "a request can have the years 1 to 9999",
			files: policies(anybody), only: postgres,
			rows: []row{{"id": "a", "at": "0001-01-01 00:00:00+00"}, {"id": "b", "at": "9999-12-31 23:59:59.9999+00"}, {"id": "c", "at": "10000-01-01 00:00:00+00"},
				{"id": "d", "at": "0001-12-31 23:59:59+00 BC"}, {"id": "e", "at": "infinity"}, {"id": "f", "at": "-infinity"}}, selected: "a b",
		},
		{
			mapped: remapped("n: {column: n, type: bigint}", "n: {column: n, type: bigint}\n    b: {column: b, type: boolean}"),
			name:   "columns of SQLite have values of other types", says: "such a value fits no declared type",
			files: with(policies(anybody), "schema.cedarschema", typed("n?: Long", "n?: Long, b?: Bool")), only: sqlite,
			create: map[filter.Dialect]string{sqlite: strings.Replace(creating(sqlite), "n bigint", "n, b", 1)},
			table: func(_ filter.Dialect, t *database.Table) {
				t.Fields = append(t.Fields, database.Field{Path: []string{"b"}, Kind: "bool", Column: "b", Type: "boolean"})
			},
			rows: []row{{"id": "a", "n": 1, "b": 1}, {"id": "b", "n": "x"}, {"id": "c", "n": raw("1.5")}, {"id": "d", "title": raw("x'61'")}, {"id": "e", "b": 2},
				{"id": "f", "b": "true"}, {"id": "g", "tags": []any{"x", raw("x'61'")}}, {"id": "h", "tags": []any{raw("'a' || char(0)")}}, {"id": "i", "title": raw("'a' || char(0)")}, {"id": "j", "b": 0}},
			selected: "a j",
		},
		{
			name: "references are to no entity of an enumerated type", says: "the schema lists its ids",
			files:    with(with(policies(anybody), "schema.cedarschema", enumerated), "entities/all.json", enumEntities),
			rows:     []row{{"id": "a", "team": "t1"}, {"id": "b", "team": "t3"}, {"id": "c", "teams": []any{"t1", "t2"}}, {"id": "d", "teams": []any{"t1", "t3"}}, {"id": "e"}, {"id": "f", "teams": []any{}}},
			selected: "a c e f",
		},
		{
			name: "a parent is no entity of an enumerated type", says: "the schema lists its ids",
			files: with(with(with(policies(anybody), "schema.cedarschema", strings.Replace(enumerated, "title?: String", "title?: String", 1)), "entities/all.json", enumEntities),
				"bundle.yaml", "parents: {document: {title: team, tags: team}}\n"),
			rules:    parentRules{"document": {"title": "team", "tags": "team"}},
			rows:     []row{{"id": "a", "title": "t1"}, {"id": "b", "title": "t3"}, {"id": "c", "tags": []any{"t1", "t2"}}, {"id": "d", "tags": []any{"t1", "t3"}}, {"id": "e"}},
			selected: "a c e",
		},
		{
			name: "errors of forbids are ignored", says: "then an errored forbid does not deny, and one that holds does",
			files: with(policies(anybody, forbid("resource has owner && resource.owner.vip")), "bundle.yaml", "forbid_errors: ignore\n"),
			rows:  []row{{"id": "a", "owner": "u1"}, {"id": "b", "owner": "u2"}, {"id": "c", "owner": "nobody"}, {"id": "d"}}, selected: "a c d",
		},
		{
			name: "what stands behind an error", says: "is not evaluated",
			files: with(with(policies(permit(`!(resource.owner.vip && false)`), permit(`resource.owner.vip || resource.tags.contains("x")`)), "schema.cedarschema", typed("owner?", "owner")),
				"bundle.yaml", "unknown_entities: evaluate\n"),
			rows: []row{{"id": "a", "owner": "u1"}, {"id": "b", "owner": "nobody"}, {"id": "c", "tags": []any{"x"}}}, selected: "a",
		},
		{
			name: "a forbid about a group that nobody is in", says: "an owner is needed to know",
			files: with(with(policies(anybody, forbid(`resource.owner in team::"empty"`)), "schema.cedarschema", typed("owner?", "owner")), "bundle.yaml", "unknown_entities: evaluate\n"),
			rows:  []row{{"id": "a", "owner": "u1"}, {"id": "b"}}, selected: "a",
		},
		{
			name: "numbers in order", says: "each sign, from either side, and its opposite",
			files: policies(permit("resource has n && (resource.n < 1 || 3 < resource.n)"), permit(`resource has n && resource.tags.contains("le") && resource.n <= 2`), permit(`resource has n && resource.tags.contains("ge") && 2 <= resource.n`),
				permit(`resource has n && resource.tags.contains("not") && !(resource.n < 2)`), permit(`resource has n && resource.tags.contains("gt") && !(resource.n >= 2)`)),
			rows: []row{{"id": "a", "n": 0}, {"id": "b", "n": 1}, {"id": "c", "n": 3}, {"id": "d", "n": 4}, {"id": "e", "n": 2, "tags": []any{"le"}}, {"id": "f", "n": 3, "tags": []any{"le"}},
				{"id": "g", "n": 2, "tags": []any{"ge"}}, {"id": "h", "n": 1, "tags": []any{"ge"}}, {"id": "i", "n": 2, "tags": []any{"not"}}, {"id": "j", "n": 1, "tags": []any{"not"}},
				{"id": "k", "n": 2, "tags": []any{"gt"}}, {"id": "l", "n": 1, "tags": []any{"gt"}}, {"id": "m"}},
			selected: "a d e g i l",
		},
		{
			mapped: remapped("title: title", "title: title\n    to: {column: to, type: timestamptz}"),
			name:   "columns of times", says: "are compared by milliseconds",
			files: with(policies(permit("resource has at && resource has to && (resource.at == resource.to || resource.at > resource.to)")), "schema.cedarschema", typed("at?: datetime", "at?: datetime, to?: datetime")),
			only:  postgres, create: map[filter.Dialect]string{postgres: strings.Replace(creating(postgres), "n bigint", `n bigint, "to" timestamptz`, 1)},
			table: func(_ filter.Dialect, t *database.Table) {
				t.Fields = append(t.Fields, database.Field{Path: []string{"to"}, Kind: "datetime", Column: "to", Type: "timestamptz"})
			},
			rows: []row{{"id": "a", "at": "2026-01-01 00:00:00.1231+00", `"to"`: "2026-01-01 00:00:00.1239+00"}, {"id": "b", "at": "2026-01-01 00:00:00.1231+00", `"to"`: "2026-01-01 00:00:00.124+00"},
				{"id": "c", "at": "2026-01-01 00:00:00.124+00", `"to"`: "2026-01-01 00:00:00.1239+00"}, {"id": "d", "at": "2026-01-01 00:00:00.1238+00", `"to"`: "2026-01-01 00:00:00.1231+00"}},
			selected: "a c d",
		},
		{
			name: "patterns", says: "what is special in SQL is not special in Cedar",
			files: policies(permit(`resource has title && resource.title like "a\*b*"`), permit(`resource has title && resource.title like "c?d*"`), permit(`resource has title && resource.title like "e[f]*"`),
				permit(`resource has title && resource.title like "g%h*"`), permit(`resource has title && resource.title like "i_j*"`), permit(`resource has title && resource.title like "k!*l"`)),
			rows: []row{{"id": "a", "title": "a*b."}, {"id": "b", "title": "axxb."}, {"id": "c", "title": "c?d"}, {"id": "d", "title": "cxd"}, {"id": "e", "title": "e[f]"}, {"id": "f", "title": "ef"},
				{"id": "g", "title": "g%h"}, {"id": "h", "title": "gxh"}, {"id": "i", "title": "i_j"}, {"id": "j", "title": "ixj"}, {"id": "k", "title": "k!\nl"}, {"id": "l", "title": "k*l"}, {"id": "m", "title": "kl"}},
			selected: "a c e g i k",
		},
		{
			mapped: remapped("owner: owner", "owner: {column: owner, type: uuid}"),
			name:   "a uuid in upper case", says: "is the id of nobody in a column of uuid",
			files: with(policies(permit("resource has owner && resource.owner == principal"), permit(`resource has owner && resource.owner in team::"upper"`)), "entities/more.json",
				`[{"uid":{"type":"user","id":"A0000000-0000-0000-0000-00000000000B"},"attrs":{"vip":false},"parents":[{"type":"team","id":"upper"}]},{"uid":{"type":"team","id":"upper"},"attrs":{},"parents":[]}]`),
			only: postgres, create: map[filter.Dialect]string{postgres: strings.Replace(creating(postgres), "owner text", "owner uuid", 1)},
			table:    func(_ filter.Dialect, t *database.Table) { t.Fields[0].Type = "uuid" },
			question: strings.Replace(ask, "u1", "A0000000-0000-0000-0000-00000000000B", 1),
			rows:     []row{{"id": "a", "owner": "a0000000-0000-0000-0000-00000000000b"}},
		},
		{
			mapped: remapped("owner: owner", "owner: {column: owner, type: bigint}"),
			name:   "a number with zeros before it", says: "is the id of nobody in a column of bigint",
			files: with(policies(permit("resource has owner && resource.owner == principal")), "entities/more.json",
				`[{"uid":{"type":"user","id":"007"},"attrs":{"vip":false},"parents":[]}]`),
			create:   map[filter.Dialect]string{postgres: strings.Replace(creating(postgres), "owner text", "owner bigint", 1), sqlite: strings.Replace(creating(sqlite), "owner text", "owner bigint", 1)},
			table:    func(_ filter.Dialect, t *database.Table) { t.Fields[0].Type = "bigint" },
			question: strings.Replace(ask, "u1", "007", 1),
			rows:     []row{{"id": "a", "owner": 7}},
		},
	}...)
}
