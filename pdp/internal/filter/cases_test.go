package filter_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/engine"
	"policy-service/pdp/internal/filter"
	"policy-service/pdp/pdptest/database"
)

// example is a case in which filters were seen to go wrong: what the rows are, and which of them a decision allows.
type example struct {
	name, says string
	files      map[string]string // beside and in place of files
	create     map[filter.Dialect]string
	mapped     map[filter.Dialect]string // in place of mapping
	rules      parentRules               // of bundle.yaml
	table      func(filter.Dialect, *database.Table)
	rows       []row
	question   string // "" is ask
	tenant     string // "" is default
	// selected are the ids of the rows that are allowed. Of a case that has no filter, refused is the reason.
	selected string
	refused  string
	only     filter.Dialect
	notRust  string // why Rust Cedar is not asked
}

// row is a row of docs, by columns, with the elements of its sets.
type row map[string]any

const ask = `{"subject":{"type":"user","id":"u1"},"action":{"name":"read"},"resource":{"type":"document"}}`

var files = map[string]string{
	"schema.cedarschema": `
entity team in [team];
entity user in [team, document] = {d?: String, vip: Bool, pinned?: document};
entity document in [team] = {
  owner?: user, n?: Long, title?: String, at?: datetime, team?: team, teams?: Set<team>, tags: Set<String>, label?: {category: String, note?: String},
};
action read, edit appliesTo {principal: [user, document], resource: [document], context: {on?: Bool}};
action "tool.fulfil", "capability.grant" appliesTo {principal: [user], resource: [document]};
`,
	"obligations.yaml": "second_look: {type: log, properties: {level: info}}\nhide: {type: redact, properties: {fields: [/title]}}\n",
	"entities/all.json": `[
{"uid":{"type":"user","id":"u1"},"attrs":{"d":"x","vip":false},"parents":[{"type":"team","id":"t2"}]},
{"uid":{"type":"user","id":"u2"},"attrs":{"d":"y","vip":true},"parents":[]},
{"uid":{"type":"user","id":"u3"},"attrs":{"vip":false},"parents":[]},
{"uid":{"type":"team","id":"t2"},"attrs":{},"parents":[{"type":"team","id":"t1"}]},
{"uid":{"type":"team","id":"t1"},"attrs":{},"parents":[]}]`,
}

const mapped = `document:
  table: docs
  id: {column: id, type: text}
  actions: [read, edit]
  columns:
    owner: owner
    n: {column: n, type: bigint}
    title: title
    at: {column: at, type: %s}
    team: team
    teams: %s
    tags: {table: tags, key: doc, value: tag}
    label.category: category
    label.note: note
`

func mapping(d filter.Dialect) string {
	if d == filter.SQLite {
		return fmt.Sprintf(mapped, "millis", "{table: doc_teams, key: doc, value: team}")
	}
	return fmt.Sprintf(mapped, "timestamptz", `{column: teams, type: "text[]"}`)
}

func creating(d filter.Dialect) string {
	more := "; CREATE TABLE tags (id text DEFAULT 'd1', doc text, tag text)"
	if d == filter.SQLite {
		return "CREATE TABLE docs (id text, tenant text, owner text, n bigint, title text, at integer, team text, category text, note text)" + more +
			"; CREATE TABLE doc_teams (doc text, team text)"
	}
	return "CREATE TABLE docs (id text, tenant text, owner text, n bigint, title text, at timestamptz, team text, teams text[], category text, note text)" + more
}

func described(d filter.Dialect) *database.Table {
	at, teams := "timestamptz", database.Field{Path: []string{"teams"}, Kind: "set", Element: "entity", Entity: "team", Column: "teams", Type: "text[]"}
	if d == filter.SQLite {
		at, teams = "millis", database.Field{Path: []string{"teams"}, Kind: "set", Element: "entity", Entity: "team", Rows: &database.Rows{Table: "doc_teams", Key: "doc", Value: "team", Type: "text"}}
	}
	return &database.Table{Name: "docs", ID: database.Field{Column: "id", Type: "text"}, Fields: []database.Field{
		{Path: []string{"owner"}, Kind: "entity", Entity: "user", Column: "owner", Type: "text"},
		{Path: []string{"n"}, Kind: "long", Column: "n", Type: "bigint"},
		{Path: []string{"title"}, Kind: "string", Column: "title", Type: "text"},
		{Path: []string{"at"}, Kind: "datetime", Column: "at", Type: at},
		{Path: []string{"team"}, Kind: "entity", Entity: "team", Column: "team", Type: "text"},
		teams,
		{Path: []string{"tags"}, Kind: "set", Element: "string", Rows: &database.Rows{Table: "tags", Key: "doc", Value: "tag", Type: "text"}},
		{Path: []string{"label", "category"}, Kind: "string", Column: "category", Type: "text"},
		{Path: []string{"label", "note"}, Kind: "string", Column: "note", Type: "text"},
	}}
}

// permit is a policy with a condition.
func permit(when string) string {
	return "permit(principal, action, resource) when { " + when + " };\n"
}

func forbid(when string) string {
	return "forbid(principal, action, resource) when { " + when + " };\n"
}

const anybody = "permit(principal, action, resource is document) unless { context has on && context.on };\n"

func policies(texts ...string) map[string]string {
	return map[string]string{"p.cedar": strings.Join(texts, "")}
}

func with(files map[string]string, name, text string) map[string]string {
	files = maps.Clone(files)
	files[name] = text
	return files
}

// literal writes a value in SQL.
func literal(v any) string {
	switch v := v.(type) {
	case nil:
		return "NULL"
	case int:
		return fmt.Sprint(v)
	case raw:
		return string(v)
	}
	return "'" + strings.ReplaceAll(v.(string), "'", "''") + "'"
}

// raw is a value as SQL has it.
type raw string

// inserts returns the statements that insert a row.
func (r row) inserts(d filter.Dialect) (statements []string) {
	var columns, values []string
	for _, name := range slices.Sorted(maps.Keys(r)) {
		elements, isSet := r[name].([]any)
		switch {
		case isSet && name == "teams" && d == filter.Postgres:
			texts := make([]string, len(elements))
			for n, e := range elements {
				texts[n] = literal(e)
			}
			columns, values = append(columns, name), append(values, "ARRAY["+strings.Join(texts, ",")+"]::text[]")
		case isSet:
			table, column := "tags", "tag"
			if name == "teams" {
				table, column = "doc_teams", "team"
			}
			for _, e := range elements {
				statements = append(statements, fmt.Sprintf("INSERT INTO %s (doc, %s) VALUES (%s, %s)", table, column, literal(r["id"]), literal(e)))
			}
		default:
			columns, values = append(columns, name), append(values, literal(r[name]))
		}
	}
	return append(statements, "INSERT INTO docs ("+strings.Join(columns, ", ")+") VALUES ("+strings.Join(values, ", ")+")")
}

// engines are the databases of a test.
func engines(t *testing.T) map[filter.Dialect]func() *database.DB {
	return map[filter.Dialect]func() *database.DB{
		filter.Postgres: func() *database.DB { return database.Postgres(t) },
		filter.SQLite:   func() *database.DB { return database.SQLite(t) },
	}
}

// load loads a bundle of files.
func load(t testing.TB, files map[string]string) *pdp.Bundle {
	t.Helper()
	b, problems := loadFiles(files)
	if b == nil {
		t.Fatalf("the bundle does not load: %v", problems)
	}
	return b
}

var now = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// inquire asks for a filter.
func inquire(t testing.TB, b *pdp.Bundle, question, tenant string) *engine.Inquiry {
	t.Helper()
	search, err := evaluation.DecodeSearch(evaluation.ResourceSearch, []byte(question), tenant, evaluation.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	return &engine.Inquiry{Bundle: b, Request: search.Request, Now: now}
}

// allowed decides about all rows, and returns the ids of those that are allowed.
func allowed(t testing.TB, b *pdp.Bundle, questions []database.Question, tenant string) (ids []string) {
	t.Helper()
	p := pdp.Of(b, pdp.Options{})
	for _, q := range questions {
		if q.Denied != "" {
			continue
		}
		r, err := evaluation.Decode(q.Body, tenant, evaluation.DefaultLimits())
		var d evaluation.Decision
		if err == nil {
			d, err = p.Evaluate(context.Background(), pdp.Call{Request: r, Now: now})
		}
		var malformed *evaluation.Error
		if err != nil && !errors.As(err, &malformed) {
			t.Fatal(err)
		}
		if err == nil && d.Allow {
			ids = append(ids, q.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// loadFiles loads a bundle of files, if it loads.
func loadFiles(files map[string]string) (*pdp.Bundle, pdp.Problems) {
	fsys := fstest.MapFS{}
	for name, text := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return pdp.Load(pdp.FS(fsys))
}

// about returns what all questions about the rows share.
func about(t testing.TB, question string) (shared map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(question), &shared); err != nil {
		t.Fatal(err)
	}
	return shared
}

// selects returns the ids of the rows that a condition selects, by an alias, beside a table with the same columns.
func selects(t testing.TB, db *database.DB, table *database.Table, f *filter.Filter) (ids []string) {
	t.Helper()
	rows, err := db.Query("SELECT d."+table.ID.Column+" FROM "+table.Name+" d JOIN (SELECT 1 AS one) other ON other.one = 1 WHERE "+f.SQL, f.Parameters...)
	if err != nil {
		t.Fatalf("%v: %s %q", err, f.SQL, f.Parameters)
	}
	for _, r := range rows {
		ids = append(ids, fmt.Sprint(r[0]))
	}
	slices.Sort(ids)
	return ids
}
