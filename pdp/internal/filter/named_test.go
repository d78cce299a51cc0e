package filter_test

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp/internal/filter"
	"policy-service/pdp/pdptest/database"
)

// TestCases holds filters against the decisions about the rows, in cases in which the first design was wider than the decisions.
func TestCases(t *testing.T) {
	t.Parallel()
	for engine, open := range engines(t) {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			for _, e := range cases {
				if e.only != "" && e.only != engine {
					continue
				}
				t.Run(e.name, func(t *testing.T) { e.run(t, engine, open()) })
			}
		})
	}
}

// prepare creates and fills the tables of a case, and returns its bundle and the questions about the rows.
func (e *example) prepare(t *testing.T, engine filter.Dialect, db *database.DB) (bundle map[string]string, table *database.Table, questions []database.Question) {
	t.Helper()
	bundle = map[string]string{"filters.yaml": mapping(engine)}
	if e.mapped != nil {
		bundle["filters.yaml"] = e.mapped[engine]
	}
	maps.Copy(bundle, files)
	for name, text := range e.files {
		bundle[name] = strings.ReplaceAll(text, "MAPPING", mapping(engine))
	}
	create := creating(engine)
	if e.create != nil {
		create = e.create[engine]
	}
	for statement := range strings.SplitSeq(create, ";") {
		db.Exec(statement)
	}
	for _, r := range e.rows {
		db.Exec(r.inserts(engine)...)
	}
	if table = described(engine); e.table != nil {
		e.table(engine, table)
	}
	return bundle, table, db.Questions(table, about(t, e.asks()), e.of())
}

func (e *example) asks() string { return cmp.Or(e.question, ask) }

func (e *example) of() string { return cmp.Or(e.tenant, "default") }

func (e *example) run(t *testing.T, engine filter.Dialect, db *database.DB) {
	bundle, table, questions := e.prepare(t, engine, db)
	b := load(t, bundle)
	f, err := filter.Make(context.Background(), inquire(t, b, e.asks(), e.of()), filter.Options{Dialect: engine, Alias: "d"})
	if e.refused != "" {
		var refusal *filter.Refusal
		if !errors.As(err, &refusal) || refusal.Reason != e.refused {
			t.Fatalf("%s: the filter is %+v, %v; it must be refused for %s", e.says, f, err, e.refused)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	decided, selected := allowed(t, b, questions, e.of()), selects(t, db, table, f)
	if got := strings.Join(decided, " "); got != e.selected {
		t.Errorf("%s: the decisions allow %q, not %q", e.says, got, e.selected)
	}
	if !slices.Equal(selected, decided) {
		t.Errorf("%s: the filter selects %q, and the decisions allow %q\n%s\n%q", e.says, selected, decided, f.SQL, f.Parameters)
	}
}

const (
	postgres = filter.Postgres
	sqlite   = filter.SQLite
)

var cases = []example{
	{
		name: "S1", says: "a forbid reads an attribute of an owner who is in no store, and errs",
		files:    policies(anybody, forbid("resource has owner && resource.owner.vip")),
		rows:     []row{{"id": "a", "owner": "u1"}, {"id": "b", "owner": "u2"}, {"id": "c", "owner": "nobody"}, {"id": "d"}},
		selected: "a d",
	},
	{
		name: "S2", says: "a required column is NULL, and no policy reads it",
		files: with(with(policies(anybody), "schema.cedarschema", strings.Replace(files["schema.cedarschema"], "title?", "title", 1)),
			"filters.yaml", "MAPPING"),
		rows:     []row{{"id": "a", "title": "x"}, {"id": "b"}},
		selected: "a",
	},
	{
		name: "S3", says: "a set has NULL beside an element",
		files:    policies(permit(`resource has teams && resource.teams.contains(team::"t1")`)),
		rows:     []row{{"id": "a", "teams": []any{"t1"}}, {"id": "b", "teams": []any{"t1", nil}}, {"id": "c", "tags": []any{"x", nil}, "teams": []any{"t1"}}},
		selected: "a",
	},
	{
		name: "S4", says: "a forbid reads the id of the resource in the context",
		files:    policies(anybody, forbid(`context.pdp.resource.id like "s*t"`), forbid(`context.pdp.resource.id == "b"`), forbid(`context.pdp.resource.id like "p*"`)),
		rows:     []row{{"id": "a"}, {"id": "b"}, {"id": "set"}, {"id": "pa"}},
		selected: "a",
	},
	{
		name: "S5", says: "a mapped entity is stored",
		files:   with(policies(anybody), "entities/more.json", `[{"uid":{"type":"document","id":"z"},"attrs":{"tags":[]},"parents":[]}]`),
		refused: filter.Stored,
	},
	{
		name: "S6", says: "the subject is a row",
		files:    policies(anybody),
		question: `{"subject":{"type":"document","id":"a"},"action":{"name":"read"},"resource":{"type":"document"}}`,
		refused:  filter.SubjectType,
	},
	{
		name: "S7 read", says: "a policy reads an attribute of a row that the principal names",
		files: with(policies(anybody, forbid("principal has pinned && principal.pinned has n")), "entities/more.json",
			`[{"uid":{"type":"user","id":"u7"},"attrs":{"vip":false,"pinned":{"__entity":{"type":"document","id":"a"}}},"parents":[]}]`),
		question: `{"subject":{"type":"user","id":"u7"},"action":{"name":"read"},"resource":{"type":"document"}}`,
		refused:  filter.Unsupported,
	},
	{
		name: "S7 named", says: "a policy compares the resource with a row that the principal names",
		files: with(policies(permit("principal has pinned && principal.pinned == resource")), "entities/more.json",
			`[{"uid":{"type":"user","id":"u7"},"attrs":{"vip":false,"pinned":{"__entity":{"type":"document","id":"a"}}},"parents":[]}]`),
		question: `{"subject":{"type":"user","id":"u7"},"action":{"name":"read"},"resource":{"type":"document"}}`,
		rows:     []row{{"id": "a"}, {"id": "b"}},
		selected: "a",
	},
	{
		name: "S7 below", says: "the principal is below a row",
		files: with(policies(permit("true"), forbid(`principal in team::"t9"`)), "entities/more.json",
			`[{"uid":{"type":"user","id":"u7"},"attrs":{"vip":false},"parents":[{"type":"document","id":"a"}]}]`),
		question: `{"subject":{"type":"user","id":"u7"},"action":{"name":"read"},"resource":{"type":"document"}}`,
		refused:  filter.Unsupported,
	},
	{
		name: "S7 between", says: "a row is between an owner and a group",
		files: with(policies(permit(`resource has owner && resource.owner in team::"t9"`)), "entities/more.json",
			`[{"uid":{"type":"user","id":"u7"},"attrs":{"vip":false},"parents":[{"type":"document","id":"a"}]}]`),
		refused: filter.Unsupported,
	},
	{
		name: "S8", says: "a row has the parents that bundle.yaml finds in its attributes, and no others",
		files:    with(policies(permit(`resource in team::"t1"`)), "bundle.yaml", "parents: {document: {team: team}}\n"),
		rules:    parentRules{"document": {"team": "team"}},
		rows:     []row{{"id": "a", "team": "t1"}, {"id": "b", "team": "t2"}, {"id": "c", "team": "t3"}, {"id": "d", "teams": []any{"t1"}}, {"id": "e"}},
		selected: "a b",
	},
	{
		name: "S8 refused", says: "the attribute that gives parents is a set",
		files:    with(policies(anybody, forbid(`resource in team::"t1"`)), "bundle.yaml", "parents: {document: {teams: team}}\n"),
		rules:    parentRules{"document": {"teams": "team"}},
		rows:     []row{{"id": "a", "team": "t1"}, {"id": "b", "teams": []any{"t3", "t2"}}, {"id": "c", "teams": []any{"t3"}}, {"id": "d", "teams": []any{}}, {"id": "e"}},
		selected: "a c d e",
	},
	{
		name: "S9", says: "an attribute of the owner comes from the store, and of the subject from the request, too",
		files:    policies(permit(`resource has owner && resource.owner has d && resource.owner.d == "x"`)),
		question: `{"subject":{"type":"user","id":"u3","properties":{"d":"x"}},"action":{"name":"read"},"resource":{"type":"document"}}`,
		rows:     []row{{"id": "a", "owner": "u1"}, {"id": "b", "owner": "u2"}, {"id": "c", "owner": "u3"}, {"id": "d", "owner": "nobody"}, {"id": "e"}},
		selected: "a c",
	},
	{
		name: "S11", says: "the other table has a column of the same name as the row's",
		files:    policies(permit(`resource.tags.contains("x")`)),
		rows:     []row{{"id": "a", "tags": []any{"x"}}, {"id": "b", "tags": []any{"y"}}, {"id": "d1"}},
		selected: "a",
	},
	{
		name: "S13 uuid", says: "a uuid is not equal to the same in upper case",
		files: with(with(policies(permit("resource has owner && resource.owner == principal")), "filters.yaml",
			strings.NewReplacer("owner: owner", "owner: {column: owner, type: uuid}").Replace(mapping(postgres))), "entities/more.json", "[]"),
		create:   map[filter.Dialect]string{postgres: strings.Replace(creating(postgres), "owner text", "owner uuid", 1)},
		question: `{"subject":{"type":"user","id":"A0000000-0000-0000-0000-00000000000B","properties":{"vip":true}},"action":{"name":"read"},"resource":{"type":"document"}}`,
		rows:     []row{{"id": "a", "owner": "a0000000-0000-0000-0000-00000000000b"}, {"id": "b"}},
		only:     postgres,
		table:    func(_ filter.Dialect, t *database.Table) { t.Fields[0].Type = "uuid" },
	},
	{
		name: "S13 number", says: "an id of a number is not equal to the same with zeros before it",
		files: with(policies(permit("resource has owner && resource.owner == principal")), "filters.yaml",
			"MAPPING"),
		create:   map[filter.Dialect]string{postgres: creating(postgres), sqlite: creating(sqlite)},
		question: `{"subject":{"type":"user","id":"007","properties":{"vip":true}},"action":{"name":"read"},"resource":{"type":"document"}}`,
		rows:     []row{{"id": "a", "owner": "7"}, {"id": "b", "owner": "007"}},
		selected: "b",
	},
	{
		name: "S13 citext", says: "a text is not equal to the same in other case, whatever the column compares",
		files:    policies(permit(`resource has title && resource.title == "Ab"`), permit(`resource has title && resource.title like "X*"`)),
		create:   map[filter.Dialect]string{postgres: strings.Replace(creating(postgres), "title text", "title citext", 1), sqlite: strings.Replace(creating(sqlite), "title text", "title text COLLATE NOCASE", 1)},
		rows:     []row{{"id": "a", "title": "Ab"}, {"id": "b", "title": "ab"}, {"id": "c", "title": "xy"}, {"id": "d", "title": "Xy"}},
		selected: "a d",
	},
	{
		name: "S13 char", says: "a text is not equal to the same with blanks behind it",
		files:    policies(permit(`resource has title && resource.title == "ab"`), permit(`resource has title && ["cd", "ce"].contains(resource.title)`), permit(`resource has title && !(resource.title == "zz") && resource has n && resource.n == 1`)),
		create:   map[filter.Dialect]string{postgres: strings.Replace(creating(postgres), "title text", "title char(8)", 1)},
		rows:     []row{{"id": "a", "title": "ab"}, {"id": "b", "title": "cd"}, {"id": "c", "title": "ab      "}},
		only:     postgres,
		selected: "",
	},
	{
		name: "S14", says: "nobody is in an empty group, and no owner is none",
		files: with(with(policies(permit(`!(resource.owner in team::"empty")`)), "schema.cedarschema", strings.Replace(files["schema.cedarschema"], "owner?", "owner", 1)),
			"bundle.yaml", "unknown_entities: evaluate\n"),
		rows:     []row{{"id": "a", "owner": "u1"}, {"id": "b"}},
		selected: "a",
	},
	{
		name: "S15", says: "one of two step-ups that exclude each other is always owed",
		files: policies(anybody, "@obligation(\"second_look\")\n"+permit("resource has n && resource.n > 5"), "@obligation(\"second_look\")\n"+permit("resource has n && resource.n <= 5")),
		rows:  []row{{"id": "a", "n": 5}, {"id": "b", "n": 6}, {"id": "c"}}, selected: "c",
	},
	{
		name: "S16", says: "a row that would be allowed with an obligation is not selected",
		files: policies(anybody, "@obligation(\"hide\")\n"+permit("resource has n && resource.n == 1")),
		rows:  []row{{"id": "a", "n": 1}, {"id": "b", "n": 2}}, selected: "b",
	},
	{
		notRust: "JavaScript has no such numbers",
		name:    "S17", says: "a number beyond what a float holds has neighbours",
		files: policies(permit("resource has n && resource.n == 9007199254740993"), permit("resource has n && resource.n >= 9223372036854775807"), permit("resource has n && resource.n < -9223372036854775807")),
		rows: []row{{"id": "a", "n": raw("9007199254740992")}, {"id": "b", "n": raw("9007199254740993")}, {"id": "c", "n": raw("9007199254740994")},
			{"id": "d", "n": raw("9223372036854775807")}, {"id": "e", "n": raw("-9223372036854775808")}, {"id": "f", "n": raw("-9223372036854775807")}},
		selected: "b d e",
	},
	{
		name: "S18", says: "a decision sees milliseconds of the microseconds in a row",
		files: policies(permit(`resource has at && resource.at == datetime("2026-01-01T00:00:00.123Z")`)),
		rows: []row{{"id": "a", "at": "2026-01-01 00:00:00.1234567+00"}, {"id": "b", "at": "2026-01-01 00:00:00.122999+00"}, {"id": "c", "at": "2026-01-01 00:00:00.124+00"},
			{"id": "d", "at": "2026-01-01 00:00:00.123+00"}, {"id": "e", "at": "infinity"}, {"id": "f"}},
		only: postgres, selected: "a d",
	},
	{
		name: "S18 order", says: "a time is after another one only in a later millisecond",
		files: policies(permit(`resource has at && resource.at > datetime("2026-01-01T00:00:00.123Z")`), forbid(`resource has at && resource.at >= datetime("2030-01-01")`)),
		rows: []row{{"id": "a", "at": "2026-01-01 00:00:00.1234567+00"}, {"id": "b", "at": "2026-01-01 00:00:00.123999+00"}, {"id": "c", "at": "2026-01-01 00:00:00.124+00"},
			{"id": "d", "at": "2030-01-01 00:00:00+00"}, {"id": "e", "at": "10001-01-01 00:00:00+00"}, {"id": "f", "at": "-infinity"}},
		only: postgres, selected: "c",
	},
	{
		name: "S18 range", says: "a time beyond those of rows is before or after all of them",
		files: policies(permit(`resource has at && resource.at < datetime("9999-12-31").offset(duration("400d"))`), forbid(`resource has at && resource.at <= datetime("0001-01-01").offset(duration("-400d"))`)),
		rows:  []row{{"id": "a", "at": 0}, {"id": "b", "at": raw("253402300800000")}, {"id": "c", "at": raw("-62135596800000")}, {"id": "d"}},
		only:  sqlite, selected: "a c",
	},
	{
		name: "S19", says: "SQLite's operators end at U+0000",
		files: policies(permit(`resource has title && resource.title like "a*"`)),
		rows:  []row{{"id": "a", "title": "ab"}, {"id": "b", "title": raw("'a' || char(0) || 'b'")}}, only: sqlite, selected: "a",
	},
	{
		name: "S19 known", says: "no text of PostgreSQL has U+0000",
		files: policies(permit(`resource has title && resource.title == "a\0b"`), permit(`resource has title && !(resource.title like "a\0*")`)),
		rows:  []row{{"id": "a", "title": "ab"}, {"id": "b"}}, selected: "a",
	},
	{
		name: "S21 fulfil", says: "who fulfils a request depends on more than policies",
		files:    policies(anybody),
		question: strings.Replace(ask, `"read"`, `"tool.fulfil"`, 1), refused: filter.Action,
	},
	{
		name: "S21 grant", says: "so does what a capability grants",
		files:    policies(anybody),
		question: strings.Replace(ask, `"read"`, `"capability.grant"`, 1), refused: filter.Action,
	},
	{
		name: "S21 decide", says: "and who decides about an approval",
		files:    policies(anybody),
		question: strings.Replace(ask, `"read"`, `"approval.decide"`, 1), refused: filter.Action,
	},
	{
		name: "S24", says: "the rows of other tenants are not selected, whatever policies say",
		files: with(policies(anybody), "filters.yaml", "MAPPING  tenant: tenant\n"),
		rows:  []row{{"id": "a", "tenant": "default"}, {"id": "b", "tenant": "acme"}, {"id": "c"}},
		table: func(_ filter.Dialect, t *database.Table) { t.Tenant = "tenant" }, selected: "a",
	},
	{
		name: "H3", says: "an attribute that the principal lacks is asked for first",
		files:    policies(permit("principal has d && resource has title && principal.d == resource.title")),
		question: `{"subject":{"type":"user","id":"u3"},"action":{"name":"read"},"resource":{"type":"document"}}`,
		rows:     []row{{"id": "a", "title": "x"}, {"id": "b"}},
	},
	{
		name: "H3 errs", says: "a known part that errs stays in its place",
		files: with(policies(permit(`resource has n && (resource.n == 1 || principal is user && principal.vip)`), forbid("resource has n && resource.n > 2 && principal is user && principal.vip")),
			"bundle.yaml", "unknown_entities: evaluate\n"),
		question: `{"subject":{"type":"user","id":"stranger"},"action":{"name":"read"},"resource":{"type":"document"}}`,
		rows:     []row{{"id": "a", "n": 1}, {"id": "b", "n": 2}, {"id": "c", "n": 3}, {"id": "d"}},
		selected: "a",
	},
	{
		name: "H4", says: "what is not reached need not be translated",
		files: policies(permit("resource has n && (resource.n == 1 || false && resource.n + 1 > 2)")),
		rows:  []row{{"id": "a", "n": 1}, {"id": "b", "n": 2}}, selected: "a",
	},
	{
		name: "H4 refused", says: "what is reached must be",
		files: policies(permit("resource has n && resource.n + 1 > 2")), refused: filter.Unsupported,
	},
	{
		name: "H5", says: "the principal is below one of the row's teams",
		files: policies(permit("resource has teams && principal in resource.teams")),
		rows:  []row{{"id": "a", "teams": []any{"t1"}}, {"id": "b", "teams": []any{"t3", "t2"}}, {"id": "c", "teams": []any{"t3"}}, {"id": "d", "teams": []any{}}, {"id": "e"}}, selected: "a b",
	},
	{
		name: "H6", says: "the subject has the parents that the request sends, and a group is in itself",
		files:    with(policies(permit(`resource has owner && resource.owner in team::"t1"`), permit(`resource has team && resource.team in team::"t1"`)), "bundle.yaml", "parents: {user: {d: team}}\n"),
		rules:    parentRules{"user": {"d": "team"}},
		question: `{"subject":{"type":"user","id":"u5","properties":{"vip":true,"d":"t2"}},"action":{"name":"read"},"resource":{"type":"document"}}`,
		rows:     []row{{"id": "a", "owner": "u1"}, {"id": "b", "owner": "u2"}, {"id": "c", "owner": "u5"}, {"id": "d", "team": "t1"}, {"id": "e", "team": "t2"}, {"id": "f", "team": "t3"}, {"id": "g", "team": "u5"}},
		selected: "a c d e",
	},
}

// S12: a column that is not there, and H1, H2 are questions to the engines.
func TestCaseS12(t *testing.T) {
	t.Parallel()
	for engine, open := range engines(t) {
		db := open()
		db.Exec("CREATE TABLE docs (id text)")
		f := make1(t, engine, policies(permit("resource has n && resource.n == 1")), ask)
		if rows, err := db.Query("SELECT id FROM docs d WHERE "+f.SQL, f.Parameters...); err == nil {
			t.Errorf("%s: a condition on a column that is not there selects %v", engine, rows)
		}
	}
}

// make1 makes the filter of a bundle with the usual files.
func make1(t *testing.T, engine filter.Dialect, more map[string]string, question string) *filter.Filter {
	t.Helper()
	bundle := map[string]string{"filters.yaml": mapping(engine)}
	for name, text := range files {
		bundle[name] = text
	}
	for name, text := range more {
		bundle[name] = text
	}
	f, err := filter.Make(context.Background(), inquire(t, load(t, bundle), question, "default"), filter.Options{Dialect: engine, Alias: "d"})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// A value that is one of a uuid, and an element of a set of texts, has a parameter of each type.
func TestCaseH1(t *testing.T) {
	t.Parallel()
	id := "a0000000-0000-0000-0000-00000000000b"
	more := with(policies(permit(`resource has owner && resource.owner == principal || resource.tags.contains(context.pdp.subject.id)`)), "filters.yaml",
		strings.Replace(mapping(postgres), "owner: owner", "owner: {column: owner, type: uuid}", 1))
	f := make1(t, postgres, more, strings.Replace(ask, `"u1"`, `"`+id+`","properties":{"vip":true}`, 1))
	db := database.Postgres(t)
	for statement := range strings.SplitSeq(strings.Replace(creating(postgres), "owner text", "owner uuid", 1), ";") {
		db.Exec(statement)
	}
	db.Exec("INSERT INTO docs (id, owner) VALUES ('a', '"+id+"'), ('b', NULL), ('c', NULL)", "INSERT INTO tags (doc, tag) VALUES ('b', '"+id+"')")
	rows, err := db.QueryPrepared("SELECT id FROM docs d WHERE "+f.SQL+" ORDER BY id", f.Parameters...)
	if err != nil || len(rows) != 2 {
		t.Errorf("%v, %v: %s", rows, err, f.SQL)
	}
}

// The numbers of parameters begin where the application says, and stand in the condition, so that their order in the text is free.
func TestCaseH2(t *testing.T) {
	t.Parallel()
	for engine, open := range engines(t) {
		bundle := map[string]string{"filters.yaml": mapping(engine)}
		for name, text := range files {
			bundle[name] = text
		}
		bundle["p.cedar"] = permit(`resource has title && resource.title == "x" && resource has n && resource.n == 1`)
		f, err := filter.Make(context.Background(), inquire(t, load(t, bundle), ask, "default"), filter.Options{Dialect: engine, First: 2})
		if err != nil {
			t.Fatal(err)
		}
		db := open()
		for statement := range strings.SplitSeq(creating(engine), ";") {
			db.Exec(statement)
		}
		db.Exec("INSERT INTO docs (id, title, n) VALUES ('a', 'x', 1), ('b', 'x', 1), ('c', 'y', 1)")
		own := map[filter.Dialect]string{postgres: "$1", sqlite: "?1"}[engine]
		rows, err := db.Query("SELECT id FROM docs WHERE "+f.SQL+" AND id = "+own, append([]any{"b"}, f.Parameters...)...)
		if err != nil || len(rows) != 1 || rows[0][0] != "b" {
			t.Errorf("%s: %v, %v: %s", engine, rows, err, f.SQL)
		}
	}
}

// Where no question fits, no row is selected, and the filter has the reason of the decisions.
func TestCaseH7(t *testing.T) {
	t.Parallel()
	for question, reason := range map[string]evaluation.Reason{
		strings.Replace(ask, `"user"`, `"robot"`, 1):                                           evaluation.SchemaMismatch,
		strings.Replace(ask, `"resource"`, `"context":{"on":"yes"},"resource"`, 1):             evaluation.SchemaMismatch,
		strings.Replace(ask, `"id":"u1"`, `"id":"u9","properties":{"d":1}`, 1):                 evaluation.SchemaMismatch,
		strings.Replace(strings.Replace(ask, `"u1"`, `"nobody"`, 1), `"user"`, `"__cedar"`, 1): evaluation.UnknownType,
	} {
		if f := make1(t, postgres, policies(anybody), question); f.Rows != filter.None || f.SQL != "FALSE" || f.Reason != reason {
			t.Errorf("%s: %+v", question, f)
		}
	}
}

// A tenant's filters.yaml (S10), and a column of JSON (S20), do not load.
func TestCaseS10S20(t *testing.T) {
	t.Parallel()
	for says, change := range map[string]map[string]string{
		"S10": {"tenants/acme/filters.yaml": mapping(postgres), "tenants/acme/p.cedar": "// nothing"},
		"S20": {"filters.yaml": strings.Replace(mapping(postgres), "title: title", "title: {column: title, type: jsonb}", 1)},
	} {
		bundle := map[string]string{"filters.yaml": mapping(postgres), "p.cedar": anybody}
		for _, more := range []map[string]string{files, change} {
			for name, text := range more {
				bundle[name] = text
			}
		}
		if b, problems := loadFiles(bundle); b != nil {
			t.Errorf("%s: the bundle loads: %v", says, problems)
		}
	}
}
