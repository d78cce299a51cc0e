package filter_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"policy-service/pdp/internal/filter"
	"policy-service/pdp/pdptest/database"
)

const verified = `
entity User; entity Document {
  tenant: String, owner: User, title?: String, size?: Long, public?: Bool, at?: datetime, set?: Set<User>, tags?: Set<String>, years?: Set<Long>, label?: { kind: String },
};
action read appliesTo { principal: User, resource: Document };
`

// verifies is a database, and what the SELECT says of it.
type verifies struct {
	dialect         filter.Dialect
	create, mapping string
	want            []string
}

func TestVerify(t *testing.T) {
	t.Parallel()
	const (
		columns = "\n  tenant: tenant\n  actions: [read]\n  columns:\n    tenant: tenant\n    owner: {column: owner, type: uuid}\n    title: title\n    size: {column: size, type: bigint}\n    public: {column: public, type: boolean}\n    label.kind: kind\n" +
			"    tags: {table: TAGS, key: doc, value: tag}\n    years: {table: years, key: doc, value: year, type: bigint}\n  not_null: [tenant, owner, label.kind, 'tags[]']\n"
		postgres = "Document:\n  table: app.docs\n  id: {column: id, type: uuid}" + columns + "    at: {column: at, type: timestamptz}\n    set: {column: set, type: 'text[]'}\n"
		sqlite   = "Document:\n  table: docs\n  id: {column: id, type: uuid}" + columns + "    at: {column: at, type: millis}\n    set: {table: members, key: doc, value: member, type: bigint}\n"
	)
	of := func(text, tags string) string {
		head, tail, _ := strings.Cut(strings.Replace(text, "TAGS", tags, 1), "  not_null: ")
		promise, more, _ := strings.Cut(tail, "\n")
		return head + more + "  not_null: " + promise + "\n"
	}
	for name, c := range map[string]verifies{
		"PostgreSQL, as mapped": {filter.Postgres, `CREATE SCHEMA app; CREATE TABLE app.docs (id uuid PRIMARY KEY, tenant text NOT NULL, owner uuid NOT NULL, title varchar(80), size integer, public boolean, at timestamptz, set text[], kind text COLLATE "C" NOT NULL);
			CREATE TABLE app.tags (doc uuid, tag text NOT NULL); CREATE TABLE years (doc uuid, year smallint)`, of(postgres, "app.tags"), nil},
		"PostgreSQL, otherwise": {filter.Postgres, `CREATE COLLATION blind (provider = icu, locale = 'und-u-ks-level2', deterministic = false); CREATE DOMAIN word AS text; CREATE SCHEMA app;
			CREATE TABLE app.docs (id text, tenant text, owner text NOT NULL, title text COLLATE blind, size numeric, at timestamp, set varchar[], kind char(8) NOT NULL);
			CREATE VIEW tags AS SELECT id AS doc, title::word AS tag FROM app.docs`, of(postgres, "tags"), []string{
			"app.docs at: it is timestamp without time zone, and mapped as timestamptz",
			"app.docs id: it is text, and mapped as uuid",
			"app.docs kind: it is character(8), and mapped as text",
			"app.docs owner: it is text, and mapped as uuid",
			"app.docs public: there is no such column",
			"app.docs set: it is character varying[], and mapped as text[]",
			"app.docs size: it is numeric, and mapped as bigint",
			"app.docs tenant: it may be NULL",
			"app.docs title: its collation blind takes different texts for equal ones",
			"tags doc: it is text, and mapped as uuid",
			"tags tag: it is word, and mapped as text",
			"years doc: there is no such table or view",
			"years year: there is no such table or view",
		}},
		"PostgreSQL, a view": {filter.Postgres, `CREATE SCHEMA app; CREATE TABLE d (id uuid PRIMARY KEY, tenant text NOT NULL, owner uuid NOT NULL, title text, size bigint, public boolean, at timestamptz, set text[], kind text NOT NULL);
			CREATE VIEW app.docs AS SELECT * FROM d; CREATE TABLE app.tags (doc uuid, tag text NOT NULL); CREATE TABLE years (doc uuid, year bigint); ALTER TABLE d DROP COLUMN title CASCADE; CREATE VIEW app.docs AS SELECT * FROM d`, of(postgres, "app.tags"), []string{
			"app.docs kind: the catalog does not say of a view whether it may be NULL",
			"app.docs owner: the catalog does not say of a view whether it may be NULL",
			"app.docs tenant: the catalog does not say of a view whether it may be NULL",
			"app.docs title: there is no such column",
		}},
		"SQLite, as mapped": {filter.SQLite, `CREATE TABLE docs (id TEXT PRIMARY KEY, tenant TEXT NOT NULL, owner TEXT NOT NULL, title varchar(80), size bigint, public boolean, at integer, "kind" TEXT NOT NULL COLLATE BINARY);
			CREATE TABLE members (doc TEXT, member INT); CREATE TABLE tags (doc TEXT, tag TEXT NOT NULL); CREATE TABLE years (doc TEXT, year INTEGER)`, of(sqlite, "main.tags"), nil},
		"SQLite, otherwise": {filter.SQLite, `CREATE TABLE docs (id BLOB, tenant TEXT, owner POINT NOT NULL,title TEXT COLLATE NOCASE,size REAL, public TEXT, at datetime, [kind] text not null collate rtrim);
			CREATE TABLE members (doc TEXT COLLATE binary, member INT, nocase TEXT COLLATE NOCASE); CREATE VIEW tags AS SELECT tenant AS doc, tenant AS tag FROM docs`, of(sqlite, "tags"), []string{
			"docs at: it is datetime, and mapped as millis",
			"docs id: it is BLOB, and mapped as uuid",
			"docs kind: its collation takes different texts for equal ones",
			"docs owner: it is POINT, and mapped as uuid",
			"docs public: it is TEXT, and mapped as boolean",
			"docs size: it is REAL, and mapped as bigint",
			"docs tenant: it may be NULL",
			"docs title: its collation takes different texts for equal ones",
			"tags tag: the catalog does not say of a view whether it may be NULL",
			"years doc: there is no such table or view",
			"years year: there is no such table or view",
		}},
		"SQLite, arrays": {filter.SQLite, `CREATE TABLE docs (id TEXT, tenant TEXT NOT NULL, owner TEXT NOT NULL, title TEXT, size int, public int, at TEXT, "set" TEXT, kind TEXT NOT NULL); CREATE TABLE tags (doc TEXT, tag TEXT NOT NULL); CREATE TABLE years (doc TEXT, year INTEGER)`,
			strings.Replace(of(postgres, "tags"), "app.docs", "docs", 1), []string{"docs at: SQLite has no timestamptz", "docs set: SQLite has no text[]"}},
		"SQLite, strict": {filter.SQLite, `CREATE TABLE docs (id TEXT, tenant TEXT NOT NULL, owner TEXT NOT NULL, title TEXT, size INT, public INT, at INTEGER, kind TEXT NOT NULL) STRICT;
			CREATE TABLE members (doc TEXT, member INT); CREATE TABLE tags (doc TEXT, tag TEXT NOT NULL) STRICT; CREATE TABLE years (doc TEXT, year INTEGER) STRICT`, of(sqlite, "tags") + "  strict: true\n", []string{
			"docs id: it may be NULL",
			"members doc: the table is not STRICT, so it may have values of other types",
			"members member: the table is not STRICT, so it may have values of other types",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var db *database.DB
			if c.dialect == filter.SQLite {
				db = database.SQLite(t)
			} else {
				db = database.Postgres(t)
			}
			for statement := range strings.SplitSeq(c.create, ";") {
				db.Exec(statement)
			}
			b := load(t, map[string]string{"schema.cedarschema": verified, "p.cedar": "permit (principal is User, action, resource);", "filters.yaml": c.mapping})
			rows, err := db.Query(filter.Verify(b, c.dialect))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range rows {
				got = append(got, fmt.Sprintf("%v %v: %v", r[0], r[1], r[2]))
			}
			if slices.Sort(got); !slices.Equal(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}
