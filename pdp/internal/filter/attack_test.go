package filter_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"policy-service/pdp/internal/filter"
	"policy-service/pdp/pdptest/bound"
	"policy-service/pdp/pdptest/database"
)

// What an attacker would try, who wants rows that decisions deny.
func init() {
	ignoring := func(texts ...string) map[string]string {
		return with(policies(texts...), "bundle.yaml", "forbid_errors: ignore\n")
	}
	evaluating := func(more string, texts ...string) map[string]string {
		return with(policies(texts...), "bundle.yaml", "unknown_entities: evaluate\n"+more)
	}
	nested := typed("label?: {category: String, note?: String}", "label?: {category: String, note?: String, sub?: {x: String, y?: String}, req: {z?: String, w?: String}}")
	nestedTable := func(required ...[]string) func(filter.Dialect, *database.Table) {
		return func(_ filter.Dialect, t *database.Table) {
			for _, name := range []string{"sub.x", "sub.y", "req.z", "req.w"} {
				record, member, _ := strings.Cut(name, ".")
				t.Fields = append(t.Fields, database.Field{Path: []string{"label", record, member}, Kind: "string", Column: member, Type: "text"})
			}
			t.RequiredRecords = append(required, []string{"label", "req"})
		}
	}
	nestedMapped := remapped("label.note: note", "label.note: note\n    label.sub.x: x\n    label.sub.y: y\n    label.req.z: z\n    label.req.w: w")
	nestedCreate := map[filter.Dialect]string{postgres: strings.Replace(creating(postgres), "n bigint", "n bigint, x text, y text, z text, w text", 1),
		sqlite: strings.Replace(creating(sqlite), "n bigint", "n bigint, x text, y text, z text, w text", 1)}
	nestedRows := []row{{"id": "a"}, {"id": "b", "category": "c"}, {"id": "c", "note": "c"}, {"id": "d", "category": "c", "x": "1"}, {"id": "e", "category": "c", "y": "1"}, {"id": "f", "x": "1"},
		{"id": "g", "z": "1"}, {"id": "h", "category": "c", "z": "1"}, {"id": "i", "category": "c", "w": "1", "x": "1", "y": "1"}, {"id": "j", "y": "1"}}
	bin := func(a, b string) map[filter.Dialect]string { return map[filter.Dialect]string{postgres: a, sqlite: b} }
	created := func(change ...string) map[filter.Dialect]string {
		return bin(strings.NewReplacer(change...).Replace(creating(postgres)), strings.NewReplacer(change...).Replace(creating(sqlite)))
	}
	strict := func(m map[filter.Dialect]string) map[filter.Dialect]string {
		m = maps.Clone(m)
		for d := range m {
			m[d] += "  strict: true\n"
		}
		return m
	}
	same := remapped()
	cases = append(cases, []example{
		{
			name: "char blanks permit", says: "a column of char(8) has blanks, which are compared", only: postgres,
			files:  policies(permit(`resource has title && resource.title == "ab      "`), permit(`resource has title && ["cd      ", "ce"].contains(resource.title)`)),
			create: created("title text", "title char(8)"),
			rows:   []row{{"id": "a", "title": "ab"}, {"id": "b", "title": "cd"}, {"id": "c", "title": "x"}}, selected: "a b",
		},
		{
			name: "char blanks forbid", says: "a column of char(8) has blanks, which are compared", only: postgres,
			files:  ignoring(anybody, forbid(`resource has title && resource.title == "ab      "`), forbid(`resource has title && ["cd      ", "ce"].contains(resource.title)`)),
			create: created("title text", "title char(8)"),
			rows:   []row{{"id": "a", "title": "ab"}, {"id": "b", "title": "cd"}, {"id": "c", "title": "x"}}, selected: "c",
		},
		{
			name: "char id", says: "an id of char(8) has blanks", only: postgres,
			files:  ignoring(anybody, forbid(`resource == document::"ab      "`), forbid(`context.pdp.resource.id == "cd      "`), forbid(`resource.tags.contains("x")`)),
			create: created("docs (id text", "docs (id char(8)", "doc text", "doc char(8)"),
			rows:   []row{{"id": "ab"}, {"id": "cd"}, {"id": "e", "tags": []any{"x"}}, {"id": "f", "tags": []any{"y"}}}, selected: "f       ",
		},
		{
			name: "strict collations", says: "columns have different collations", only: postgres, mapped: strict(same),
			files:  policies(permit(`resource has title && resource has owner && resource.tags.contains(resource.title)`), permit(`resource has label && resource has title && resource.title == resource.label.category`), permit(`resource has teams && resource has team && resource.teams.contains(resource.team)`)),
			create: created("title text", `title text COLLATE "C"`, "category text", `category text COLLATE "POSIX"`, " team text", ` team text COLLATE "C"`, "teams text[]", `teams text[] COLLATE "POSIX"`),
			rows:   []row{{"id": "a", "title": "x", "category": "x"}, {"id": "b", "title": "x", "category": "y"}, {"id": "c", "team": "t1", "teams": []any{"t1"}}}, selected: "a c",
		},
		{
			name: "collations", says: "columns have different collations", only: postgres,
			files:  policies(permit(`resource has title && resource has owner && resource.tags.contains(resource.title)`), permit(`resource has label && resource has title && resource.title == resource.label.category`), permit(`resource has teams && resource has team && resource.teams.contains(resource.team)`)),
			create: created("docs (id text", `docs (id text COLLATE "C"`, "doc text", `doc text COLLATE "POSIX"`, "title text", `title text COLLATE "C"`, "category text", `category text COLLATE "POSIX"`, " team text", ` team text COLLATE "C"`, "teams text[]", `teams text[] COLLATE "POSIX"`, "tag text", `tag text COLLATE "POSIX"`),
			rows:   []row{{"id": "a", "title": "x", "category": "x"}, {"id": "b", "title": "x", "category": "y"}, {"id": "c", "team": "t1", "teams": []any{"t1"}}, {"id": "d", "owner": "u1", "title": "t", "tags": []any{"t"}}}, selected: "a c d",
		},
		{
			name: "empty texts", says: "an empty text is an id, and a value",
			files: policies(permit(`resource has owner && resource.owner == user::""`), permit(`resource has title && resource.title == ""`), permit(`resource.tags.contains("")`), permit(`resource has teams && resource.teams.contains(team::"")`), permit(`resource == document::""`)),
			rows:  []row{{"id": ""}, {"id": "a", "owner": ""}, {"id": "b", "title": ""}, {"id": "c", "tags": []any{""}}, {"id": "d", "teams": []any{""}}, {"id": "e"}}, selected: " a b c d",
		},
		{
			name: "empty parents", says: "an empty text is a parent",
			files: with(policies(permit(`resource in team::""`)), "bundle.yaml", "parents: {document: {team: team}}\n"), rules: parentRules{"document": {"team": "team"}},
			rows: []row{{"id": "a", "team": ""}, {"id": "b", "team": "t1"}, {"id": "e"}}, selected: "a",
		},
		{
			name: "nested fit", says: "records in records", files: with(policies(anybody), "schema.cedarschema", nested),
			mapped: nestedMapped, create: nestedCreate, table: nestedTable(), rows: nestedRows, selected: "a b d h i",
		},
		{
			name: "nested fit required", says: "records in records", files: with(policies(anybody), "schema.cedarschema", strings.Replace(nested, "label?", "label", 1)),
			mapped: nestedMapped, create: nestedCreate, table: nestedTable([]string{"label"}), rows: nestedRows, selected: "b d h i",
		},
		{
			name: "nested sub required", says: "records in records", files: with(policies(anybody), "schema.cedarschema", strings.Replace(nested, "sub?", "sub", 1)),
			mapped: nestedMapped, create: nestedCreate, table: nestedTable([]string{"label", "sub"}), rows: nestedRows, selected: "a d i",
		},
		{
			name: "nested optional alone", says: "records in records", files: with(policies(anybody, forbid(`resource has label && resource.label has sub && resource.label.sub has y`), forbid("resource has label && !(resource.label has category)"), forbid("!(resource has label)")), "schema.cedarschema", strings.NewReplacer("category: String", "category?: String", "sub?: {x: String", "sub?: {x?: String").Replace(nested)),
			mapped: nestedMapped, create: nestedCreate, table: nestedTable(), rows: nestedRows, selected: "b d h",
		},
		{
			name: "nested has", says: "records in records", files: with(ignoring(anybody, forbid(`resource has label && resource.label.req has z`), forbid(`resource has label && resource.label has sub && resource.label.sub.x == "1" && !(resource.label.sub has y)`)), "schema.cedarschema", nested),
			mapped: nestedMapped, create: nestedCreate, table: nestedTable(), rows: nestedRows, selected: "a b i",
		},
		{
			name: "nested evaluate", says: "records in records, where unknown entities are evaluated", files: with(evaluating("forbid_errors: ignore\n", anybody, forbid(`resource.label.req has z`), forbid(`resource.label has sub && resource.label.sub.x == "1" && !(resource.label.sub has y)`)), "schema.cedarschema", strings.Replace(nested, "label?", "label", 1)),
			mapped: nestedMapped, create: nestedCreate, table: nestedTable([]string{"label"}), rows: nestedRows, selected: "b i",
		},
		{
			name: "missing required", says: "an attribute that a row lacks errs",
			files: with(evaluating("", anybody, forbid(`!(resource.n > 3) || resource.title == "x"`), forbid(`if resource.tags.contains(resource.title) then resource.n == 9 else false`)), "schema.cedarschema", typed("n?: Long", "n: Long", "title?", "title")),
			rows:  []row{{"id": "a", "n": 4, "title": "y"}, {"id": "b", "n": 4}, {"id": "c", "title": "y"}, {"id": "d", "n": 9, "title": "y", "tags": []any{"y"}}, {"id": "e", "n": 4, "title": "x"}, {"id": "f", "n": 1}}, selected: "a",
		},
		{
			name: "missing ignored", says: "an attribute that a row lacks errs",
			files: with(evaluating("forbid_errors: ignore\n", anybody, forbid(`!(resource.n > 3) || resource.title == "x"`), forbid(`if resource.tags.contains(resource.title) then resource.n == 9 else false`)), "schema.cedarschema", typed("n?: Long", "n: Long", "title?", "title")),
			rows:  []row{{"id": "a", "n": 4, "title": "y"}, {"id": "b", "n": 4}, {"id": "c", "title": "y"}, {"id": "d", "n": 9, "title": "y", "tags": []any{"y"}}, {"id": "e", "n": 4, "title": "x"}, {"id": "f", "n": 1}}, selected: "a b c",
		},
		{
			name: "tags of a missing title", says: "a set contains no attribute that is not there",
			files: with(evaluating("forbid_errors: ignore\n", permit(`!resource.tags.contains(resource.title)`), forbid(`resource.tags.contains(resource.title) == resource.tags.contains("q")`)), "schema.cedarschema", typed("title?", "title")),
			rows:  []row{{"id": "a", "title": "y"}, {"id": "b"}, {"id": "c", "title": "y", "tags": []any{"y"}}, {"id": "d", "title": "y", "tags": []any{"q"}}, {"id": "e", "tags": []any{"q"}}}, selected: "d",
		},
		{
			name: "whole sets", says: "sets are equal whatever their order and repetitions are",
			files: policies(permit(`resource.tags == ["x", "y"]`), permit(`["z"] == resource.tags`), permit(`resource has teams && resource.teams == [team::"t1"]`), permit(`resource has n && resource.n == 1 && resource.tags != ["q"]`)),
			rows:  []row{{"id": "a", "tags": []any{"y", "x", "y"}}, {"id": "b", "tags": []any{"x"}}, {"id": "c", "tags": []any{"z", "z"}}, {"id": "d", "teams": []any{"t1", "t1"}}, {"id": "e", "teams": []any{"t1", "t2"}}, {"id": "f", "n": 1, "tags": []any{"q"}}, {"id": "g", "n": 1, "tags": []any{"q", "r"}}, {"id": "h", "tags": []any{"x", "y", "z"}}}, selected: "a c d g",
		},
		{
			name: "lists of row values", says: "lists with something of the row",
			files: evaluating("", permit(`resource has title && ["x", resource.title].containsAll(["x", "q"])`), permit(`resource has title && resource has label && [resource.title, resource.label.category].containsAny(resource.tags)`), permit(`resource has title && resource.tags.containsAll([resource.title, "k"])`), permit(`resource has team && resource has owner && principal in [resource.owner, user::"zz"] && !(principal in [resource.team])`)),
			rows:  []row{{"id": "a", "title": "q"}, {"id": "b", "title": "x"}, {"id": "c", "title": "b", "category": "c", "tags": []any{"c"}}, {"id": "d", "title": "b", "category": "c", "tags": []any{"d"}}, {"id": "e", "title": "m", "tags": []any{"k", "m"}}, {"id": "f", "title": "m", "tags": []any{"k"}}, {"id": "g", "owner": "u1", "team": "t3"}, {"id": "h", "owner": "u1", "team": "t1"}}, selected: "a c e g",
		},
		{
			name: "ids", says: "the id in the context is the row's",
			files: policies(permit(`resource has title && context.pdp.resource.id == resource.title`), permit(`["b", "c"].contains(context.pdp.resource.id)`), permit(`resource.tags.contains(context.pdp.resource.id)`), forbid(`!(context.pdp.resource has id)`), forbid(`context.pdp.resource.id == "c" && context.pdp.resource.type == "document"`)),
			rows:  []row{{"id": "a", "title": "a"}, {"id": "b"}, {"id": "c"}, {"id": "d", "tags": []any{"d"}}, {"id": "e", "title": "f"}}, selected: "a b d",
		},
		{
			name: "one column twice", says: "two attributes are in one column", mapped: remapped("title: title", "title: {column: owner, type: uuid}"), only: sqlite,
			files: policies(permit(`resource has owner && resource has title && (resource.owner == user::"zz" || resource.title == "A" || resource.owner == user::"b")`)),
			rows:  []row{{"id": "a", "owner": "A"}, {"id": "b", "owner": "b"}, {"id": "c", "owner": "c"}}, selected: "a b",
			table: func(_ filter.Dialect, t *database.Table) { t.Fields[2].Column = "owner" },
		},
		{
			name: "own parents", says: "a row is below a row", rules: parentRules{"document": {"title": "document", "team": "team"}},
			files: with(with(policies(permit(`resource in document::"f"`), permit(`resource in team::"t1"`)), "bundle.yaml", "parents: {document: {title: document, team: team}}\n"), "schema.cedarschema", typed("entity document in [team]", "entity document in [team, document]")),
			rows:  []row{{"id": "a", "title": "f"}, {"id": "f", "title": "g"}, {"id": "b", "title": "a"}, {"id": "g", "title": "g"}, {"id": "h", "title": "x", "team": "t2"}, {"id": "i", "title": "h"}}, selected: "a f h",
		},
		{
			name: "affinities", says: "SQLite converts texts for columns of other affinities", only: sqlite,
			create: created("title text", "title STRING", "owner text", "owner", "category text", "category BLOB", "tag text", "tag STRING"),
			files:  policies(permit(`resource has title && resource.title == "007"`), permit(`resource has title && resource.title == "x7"`), permit(`resource has owner && ["07", "7"].contains(context.pdp.resource.id) && resource.owner == user::"07"`), permit(`resource has title && resource has label && resource.label.category == resource.title`), permit(`resource.tags.contains("1e1")`)),
			rows:   []row{{"id": "a", "title": "007"}, {"id": "b", "title": "x7"}, {"id": "7", "owner": "07"}, {"id": "07", "owner": "7"}, {"id": "c", "title": "y", "category": "y"}, {"id": "d", "tags": []any{"1e1"}}, {"id": "e", "category": "1", "title": " 1"}}, selected: "7 b c",
		},
		{
			name: "key affinities", says: "SQLite converts texts for columns of other affinities", only: sqlite,
			create: created("doc text", "doc INTEGER"),
			files:  policies(permit(`resource.tags.contains("x")`)),
			rows:   []row{{"id": "7", "tags": []any{"x"}}, {"id": "07"}, {"id": "q", "tags": []any{"x"}}}, selected: "q",
		},
		{
			name: "negated patterns", says: "a pattern does not match what is not there",
			files: with(evaluating("forbid_errors: ignore\n", permit(`!(resource.title like "*a*")`), forbid(`resource.title like ""`)), "schema.cedarschema", typed("title?", "title")),
			rows:  []row{{"id": "a", "title": "y"}, {"id": "b"}, {"id": "c", "title": "bab"}, {"id": "d", "title": ""}, {"id": "e", "title": "A"}}, selected: "a e",
		},
		{
			name: "owes and errs", says: "a permit with an obligation that errs denies, unless errors are ignored",
			files: with(evaluating("", anybody, "@obligation(\"second_look\")\n"+permit("resource.n > 5")), "schema.cedarschema", typed("n?: Long", "n: Long")),
			rows:  []row{{"id": "a", "n": 5}, {"id": "b", "n": 6}, {"id": "c"}}, selected: "a",
		},
		{
			name: "owes and errs ignored", says: "a permit with an obligation that errs denies, unless errors are ignored",
			files: with(evaluating("forbid_errors: ignore\n", anybody, "@obligation(\"second_look\")\n"+permit("resource.n > 5")), "schema.cedarschema", typed("n?: Long", "n: Long")),
			rows:  []row{{"id": "a", "n": 5}, {"id": "b", "n": 6}, {"id": "c"}}, selected: "a c",
		},
		{
			name: "attributes mode", says: "attributes of rows come from the request, whatever the mode is",
			files: with(policies(permit(`resource has n && resource.n == 1`), permit("resource has owner && resource.owner has d && resource.owner.d == \"z\"")), "bundle.yaml", "attributes: {document: store, user: store}\n"),
			rows:  []row{{"id": "a", "n": 1}, {"id": "b", "owner": "u1"}, {"id": "c", "owner": "u9"}}, selected: "a c",
			question: `{"subject":{"type":"user","id":"u9","properties":{"d":"z","vip":false}},"action":{"name":"read"},"resource":{"type":"document"}}`,
		},
		{
			name: "attributes mode known", says: "what the subject sends does not count",
			files: with(policies(permit(`resource has n && resource.n == 1`), permit("resource has owner && resource.owner has d && resource.owner.d == \"z\"")), "bundle.yaml", "attributes: {document: store, user: store}\n"),
			rows:  []row{{"id": "a", "n": 1}, {"id": "b", "owner": "u1"}, {"id": "c", "owner": "u9"}}, selected: "a",
			question: `{"subject":{"type":"user","id":"u1","properties":{"d":"z","vip":false}},"action":{"name":"read"},"resource":{"type":"document"}}`,
		},
		{
			name: "owner attributes", says: "stored attributes of several values",
			files: with(evaluating("", anybody, forbid(`!(resource.owner.vip || resource.owner has d && resource.owner.d == "x")`), forbid(`if resource.owner has d then resource.owner.d == "y" && resource.tags.contains(resource.owner.d) else false`)), "schema.cedarschema", typed("owner?", "owner")),
			rows:  []row{{"id": "a", "owner": "u1"}, {"id": "b", "owner": "u2"}, {"id": "c", "owner": "u3"}, {"id": "d", "owner": "nobody"}, {"id": "e"}, {"id": "f", "owner": "u2", "tags": []any{"y"}}}, selected: "a b",
		},
		{
			name: "known option", says: "a type of which all are stored",
			files: with(policies(permit(`resource has owner`), forbid(`resource has owner && resource.owner == user::"u2"`)), "bundle.yaml", "known: [user]\n"),
			rows:  []row{{"id": "a", "owner": "u1"}, {"id": "b", "owner": "u2"}, {"id": "c", "owner": "nobody"}}, selected: "a c",
		},
		{
			notRust: "it has no types of which all are stored",
			name:    "known option stranger", says: "a type of which all are stored",
			files:    with(policies(permit(`resource has owner`)), "bundle.yaml", "known: [user]\n"),
			question: `{"subject":{"type":"user","id":"stranger","properties":{"vip":true}},"action":{"name":"read"},"resource":{"type":"document"}}`,
			rows:     []row{{"id": "a", "owner": "u1"}},
		},
		{
			name: "leading tests", says: "a test that stands first keeps what is behind it from being evaluated",
			files: with(evaluating("", anybody, forbid(`resource in team::"t1" && resource.n == 1`), forbid(`resource.n == 3 && resource == document::"zz"`)), "schema.cedarschema", typed("n?: Long", "n: Long")),
			rows:  []row{{"id": "a", "n": 1}, {"id": "b"}, {"id": "c", "n": 3}}, selected: "a c",
		},
		{
			notRust: "JavaScript has no such numbers",
			name:    "null elements of ints", says: "a set of numbers", mapped: remapped("tags: {table: tags, key: doc, value: tag}", "tags: {table: tags, key: doc, value: tag, type: bigint}"),
			create: created("tag text", "tag bigint"),
			files:  with(policies(permit(`resource.tags.contains(7)`), permit(`resource has n && resource.tags.contains(resource.n)`), permit(`resource.tags == [1, 2]`), permit(`[3, 4, 5].containsAll(resource.tags) && !resource.tags.isEmpty()`)), "schema.cedarschema", typed("tags: Set<String>", "tags: Set<Long>")),
			table: func(_ filter.Dialect, t *database.Table) {
				t.Fields[6].Element, t.Fields[6].Rows.Type = "long", "bigint"
			},
			rows: []row{{"id": "a", "tags": []any{7, 8}}, {"id": "b", "tags": []any{7, nil}}, {"id": "c", "tags": []any{raw("9223372036854775807")}, "n": raw("9223372036854775807")}, {"id": "d", "tags": []any{2, 1, 1}}, {"id": "e", "tags": []any{3, 5}}, {"id": "f", "tags": []any{3, 6}}}, selected: "a c d e",
		},
		{
			name: "noncharacters in PostgreSQL", says: "U+FFFD, U+FFFE and U+FFFF differ", only: postgres,
			files: policies(permit(`resource has title && resource.title like "\u{FFFF}*"`), permit(`context.pdp.resource.id like "\u{FFFE}*"`)),
			rows:  []row{{"id": "a", "title": "\uffffx"}, {"id": "b", "title": "\ufffdx"}, {"id": "\uffffi"}, {"id": "\ufffei"}}, selected: "a \ufffei",
		},
		{
			name: "noncharacters", says: "SQLite 3.40 takes U+FFFD, U+FFFE and U+FFFF for one in a pattern", only: sqlite,
			files: policies(permit(`resource has title && resource.title like "\u{FFFF}*"`)), refused: filter.Unsupported,
		},
		{
			name: "noncharacters in an id", says: "SQLite 3.40 takes U+FFFD, U+FFFE and U+FFFF for one in a pattern", only: sqlite,
			files: policies(permit(`context.pdp.resource.id like "\u{FFFE}*"`)), refused: filter.Unsupported,
		},
		{
			name: "a column named false", says: "SQLite takes TRUE and FALSE for the names of columns", only: sqlite,
			files:  ignoring(permit(`resource has title && resource.title == "x"`), forbid(`resource has n && resource.n == 1`)),
			create: created("n bigint", `n bigint, "false" INTEGER DEFAULT 1, "true" INTEGER DEFAULT 0`),
			rows:   []row{{"id": "a", "title": "x", "n": 1}, {"id": "b", "title": "x", "n": 2}, {"id": "c"}}, selected: "b",
		},
		{
			name: "a column named false, and no permit", says: "SQLite takes TRUE and FALSE for the names of columns", only: sqlite,
			files:  policies(permit(`false`)),
			create: created("n bigint", `n bigint, "false" INTEGER DEFAULT 1, "true" INTEGER DEFAULT 0`),
			rows:   []row{{"id": "a", "title": "x", "n": 1}},
		},
		{
			name: "array of char", says: "elements of char(8) have blanks", only: postgres,
			files:  policies(permit(`resource has teams && resource has team && resource.teams.contains(resource.team)`)),
			create: created("teams text[]", "teams char(8)[]"),
			rows:   []row{{"id": "a", "team": "t1", "teams": []any{"t1"}}, {"id": "b", "team": "t1      ", "teams": []any{"t1"}}}, selected: "b",
		},
		{
			name: "set in a record", says: "a record with a set in rows of another table is always there",
			mapped: remapped("    tags: {table: tags, key: doc, value: tag}", "    tags: {table: tags, key: doc, value: tag}\n    label.marks: {table: marks, key: doc, value: mark}"),
			create: created("CREATE TABLE tags", "CREATE TABLE marks (doc text, mark text); INSERT INTO marks VALUES ('a', 'm'), ('b', 'm'); CREATE TABLE tags"),
			files:  with(policies(permit(`resource has label && resource.label.marks.contains("m")`), permit(`resource has label && resource.label.marks.isEmpty()`)), "schema.cedarschema", typed("category: String,", "category: String, marks: Set<String>,")),
			table: func(_ filter.Dialect, t *database.Table) {
				t.Fields = append(t.Fields, database.Field{Path: []string{"label", "marks"}, Kind: "set", Element: "string", Rows: &database.Rows{Table: "marks", Key: "doc", Value: "mark", Type: "text"}})
			},
			rows: []row{{"id": "a", "category": "x"}, {"id": "b"}, {"id": "c", "category": "x"}, {"id": "d"}}, selected: "a c",
		},
		{
			name: "optional set in a record", says: "a record with a set in rows of another table is always there",
			mapped: remapped("    tags: {table: tags, key: doc, value: tag}", "    tags: {table: tags, key: doc, value: tag}\n    label.marks: {table: marks, key: doc, value: mark}"),
			create: created("CREATE TABLE tags", "CREATE TABLE marks (doc text, mark text); INSERT INTO marks VALUES ('a', 'm'), ('b', 'm'); CREATE TABLE tags"),
			files:  with(ignoring(permit(`resource has label && resource.label has marks && resource.label.marks.contains("m")`), permit(`resource has label && !(resource.label has category) && resource.label has marks && resource.label.marks.isEmpty()`)), "schema.cedarschema", typed("category: String,", "category?: String, marks?: Set<String>,")),
			table: func(_ filter.Dialect, t *database.Table) {
				t.Fields = append(t.Fields, database.Field{Path: []string{"label", "marks"}, Kind: "set", Element: "string", Rows: &database.Rows{Table: "marks", Key: "doc", Value: "mark", Type: "text"}})
			},
			rows: []row{{"id": "a", "category": "x"}, {"id": "b"}, {"id": "c", "category": "x"}, {"id": "d"}}, selected: "a b d",
		},
		{
			name: "domains and views", says: "a view of columns of domains", only: postgres,
			create: map[filter.Dialect]string{postgres: `CREATE DOMAIN name_of AS text; CREATE DOMAIN names_of AS text[]; CREATE DOMAIN small AS bigint CHECK (VALUE < 100); CREATE TABLE base (id name_of, tenant text, owner varchar(30), n small, title name_of, at timestamptz(0), team varchar, teams names_of, category citext, note name);
				CREATE VIEW docs AS SELECT * FROM base WHERE id <> 'hidden'; CREATE TABLE tags (id text DEFAULT 'd1', doc varchar(9), tag varchar(20))`},
			files: policies(permit(`resource has title && resource.title == "x"`), permit(`resource has teams && resource.teams.containsAny([team::"t1", team::"t9"])`), permit(`resource has n && resource.n < 7000000000`), permit(`resource has owner && [user::"u1", user::"u2"].contains(resource.owner)`), permit(`resource.tags.containsAll(["p", "q"])`), permit(`resource has label && resource.label has note && resource.label.note like "a*"`)),
			rows:  []row{{"id": "a", "title": "x"}, {"id": "b", "title": "X"}, {"id": "c", "teams": []any{"t1"}}, {"id": "d", "n": 5}, {"id": "e", "owner": "u2"}, {"id": "f", "tags": []any{"q", "p"}}, {"id": "g", "category": "c", "note": "ab"}, {"id": "hidden", "title": "x"}}, selected: "a c d e f g",
		},
		{
			name: "a set of uuids and text", says: "elements and values of different types of columns", only: postgres,
			mapped: remapped(`{column: teams, type: "text[]"}`, `{column: teams, type: "uuid[]"}`),
			create: created("teams text[]", "teams uuid[]"),
			files:  policies(permit(`resource has teams && resource has team && resource.teams.contains(resource.team)`), permit(`resource has teams && resource.teams.contains(team::"A0000000-0000-0000-0000-00000000000B")`), permit(`resource has teams && resource.teams.containsAll([team::"a0000000-0000-0000-0000-00000000000c", team::"a0000000-0000-0000-0000-00000000000d"])`)),
			table:  func(_ filter.Dialect, t *database.Table) { t.Fields[5].Type = "uuid[]" },
			rows: []row{{"id": "a", "team": "a0000000-0000-0000-0000-00000000000b", "teams": raw("ARRAY['A0000000-0000-0000-0000-00000000000B'::uuid]")}, {"id": "b", "team": "A0000000-0000-0000-0000-00000000000B", "teams": raw("ARRAY['A0000000-0000-0000-0000-00000000000B'::uuid]")},
				{"id": "c", "teams": raw("ARRAY['A0000000-0000-0000-0000-00000000000C', 'A0000000-0000-0000-0000-00000000000D', 'A0000000-0000-0000-0000-00000000000D']::uuid[]")}}, selected: "a c",
		},
	}...)
}

// What a subject sends, and how many entities are stored, does not let a filter take long: it is made, or refused as too large.
func TestHostileCost(t *testing.T) {
	t.Parallel()
	var users, sent []string
	for n := range 5000 {
		users = append(users, fmt.Sprintf(`{"uid":{"type":"user","id":"s%d"},"attrs":{"d":"x%d","vip":true},"parents":[{"type":"team","id":"t2"}]}`, n, n))
	}
	for n := range 4000 {
		sent = append(sent, fmt.Sprintf(`"e%d"`, n))
	}
	question := strings.Replace(ask, `"id":"u1"`, `"id":"u8","properties":{"vip":true,"many":[`+strings.Join(sent, ",")+`]}`, 1)
	const owned = "resource has owner && resource.owner has d && "
	for _, condition := range []string{
		"principal is user && principal has many && resource.tags.containsAll(principal.many)",
		owned + `resource has title && resource.owner.d == resource.title`,
		owned + `resource.owner.d == resource.owner.d`,
		owned + `[resource.owner.d, resource.owner.d].contains("x")`,
		`resource has owner && (` + strings.Repeat(`resource.owner in team::"t1" && resource.owner != principal || `, 150) + `false)`,
		`resource has owner && (` + strings.Repeat(`resource.owner has d || resource.owner.vip || `, 75) + `false)`,
		`resource has title && (` + strings.Repeat(`resource.title == "x" && resource has n || `, 500) + `false)`,
	} {
		bundle := map[string]string{"filters.yaml": mapping(postgres), "p.cedar": permit(condition)}
		maps.Copy(bundle, files)
		bundle["schema.cedarschema"], bundle["entities/more.json"] = typed("d?: String", "d?: String, many?: Set<String>"), "["+strings.Join(users, ",")+"]"
		in := inquire(t, load(t, bundle), question, "default")
		var passes bound.Passes
		for range 3 {
			start := time.Now()
			_, err := filter.Make(context.Background(), in, filter.Options{Dialect: postgres})
			passes.Took(time.Since(start))
			if refusal := new(filter.Refusal); err != nil && (!errors.As(err, &refusal) || refusal.Reason != filter.TooLarge) {
				t.Fatal(err)
			}
		}
		if bound.Broken(passes.Median(), 1000) {
			t.Errorf("%.100s: %.0f ms", condition, passes.Median())
		}
	}
}
