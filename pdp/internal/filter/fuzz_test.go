package filter_test

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp/internal/engine"
	"policy-service/pdp/internal/filter"
	"policy-service/pdp/pdptest/database"
)

// token matches what a condition is made of.
var token = regexp.MustCompile(`^(\s+|"[^"]*"|'[^']*'|[$?][0-9]+|[0-9]+|[A-Za-z_]+|::|<=|>=|<>|@>|&&|<@|[()\[\].,=<>-])`)

// words are all that conditions have besides names and parameters.
var words = append(strings.Fields(`TRUE FALSE AND OR NOT IS NULL IN ANY ALL ARRAY LIKE GLOB ESCAPE COLLATE BINARY BETWEEN EXISTS SELECT FROM WHERE LIMIT OFFSET
	CASE WHEN THEN ELSE END CAST AS INTEGER TEXT text uuid bigint timestamptz concat cardinality coalesce array_ndims array_position date_trunc typeof instr char json_each
	'!' 'milliseconds' 'text' 'integer' "C" "default" "value" "_pf1"`), "'0001-01-01 00:00:00+00'", "'10000-01-01 00:00:00+00'")

// strange returns the first part of a condition that is neither one of words, nor a name of the mapping, nor a parameter.
func strange(sql string, names []string) string {
	for sql != "" {
		one := token.FindString(sql)
		if one == "" {
			return sql
		}
		sql = sql[len(one):]
		first := strings.TrimSpace(one)
		isWord := first != "" && (first[0] == '"' || first[0] == '\'' || first[0] >= 'A' && first[0] != '[' && first[0] != ']' && first[0] != '_' || first[0] == '_')
		if isWord && !slices.Contains(words, first) && !slices.Contains(names, strings.Trim(first, `"`)) {
			return one
		}
	}
	return ""
}

// names are those of the mapping, and the alias.
var names = strings.Fields("d docs tags doc_teams id tenant owner n title at team teams category note doc tag")

// ofFuzzing is the test that a fuzz target belongs to, of which the target may not call Helper.
type ofFuzzing struct{ testing.TB }

func (ofFuzzing) Helper() {}

// Hostile policies and values put no text into SQL, raise no error in either engine, and stay within the bounds.
func FuzzFilter(f *testing.F) {
	for _, e := range cases {
		for _, text := range strings.SplitAfter(e.files["p.cedar"], ";\n") {
			if _, when, ok := strings.Cut(text, "when { "); ok {
				f.Add(strings.TrimSuffix(when, " };\n"), "u1", "x", uint8(0))
			}
		}
	}
	f.Add(`resource has title && (resource.title == context.pdp.subject.id || resource.title like "a*b?c%d_e!f[g]h\0*" || ["\0", "'", "\"", "$1", "?1"].contains(resource.title))`, "' OR 1=1 --", "\x00\"'\\", uint8(3))
	f.Add(`resource.tags.containsAll(["'", "\\", "}"]) || resource has teams && resource.teams == [team::"'"]`, "😀\u0301", "\\", uint8(9))
	databases := map[filter.Dialect]*database.DB{postgres: database.Postgres(ofFuzzing{f}), sqlite: database.SQLite(ofFuzzing{f})}
	for engine, db := range databases {
		for statement := range strings.SplitSeq(creating(engine), ";") {
			db.Exec(statement)
		}
		at := map[filter.Dialect]any{postgres: "2026-01-01 00:00:00+00", sqlite: 1}[engine]
		db.Exec(row{"id": "a", "owner": "u1", "n": 1, "title": "x", "at": at, "team": "t1", "teams": []any{"t1", "t2"}, "tags": []any{"x", "y"}, "category": "c"}.inserts(engine)...)
		db.Exec(row{"id": "b"}.inserts(engine)...)
	}
	f.Fuzz(func(t *testing.T, condition, subject, property string, deep uint8) {
		for range deep % 8 {
			condition = "!(" + condition + ") || (" + condition + ") && !(true && " + condition + ")"
			if len(condition) > 10_000 {
				return
			}
		}
		bundle := map[string]string{"p.cedar": "permit(principal, action, resource is document) when { " + condition + " };\n", "bundle.yaml": "unknown_entities: evaluate\n"}
		for name, text := range files {
			bundle[name] = text
		}
		question, err := json.Marshal(map[string]any{
			"subject": map[string]any{"type": "user", "id": subject, "properties": map[string]any{"d": property, "vip": true}},
			"action":  map[string]any{"name": "read"}, "resource": map[string]any{"type": "document"},
		})
		if err != nil {
			t.Skip()
		}
		search, err := evaluation.DecodeSearch(evaluation.ResourceSearch, question, "", evaluation.DefaultLimits())
		if err != nil {
			t.Skip()
		}
		for dialect, db := range databases {
			bundle["filters.yaml"] = mapping(dialect)
			b, _ := loadFiles(bundle)
			if b == nil {
				t.Skip()
			}
			made, err := filter.Make(context.Background(), &engine.Inquiry{Bundle: b, Request: search.Request, Now: now}, filter.Options{Dialect: dialect, Alias: "d"})
			var refusal *filter.Refusal
			var malformed *evaluation.Error
			switch {
			case errors.As(err, &refusal), errors.As(err, &malformed):
				continue
			case err != nil:
				t.Fatal(err)
			}
			if part := strange(made.SQL, names); part != "" {
				t.Fatalf("the condition has %q: %s", part, made.SQL)
			}
			size := 0
			for _, p := range made.Parameters {
				if text, one := p.(string); one {
					size += len(text)
				} else {
					size += len(strings.Join(p.([]string), ""))
				}
			}
			if len(made.SQL) > 64<<10 || size > 256<<10 {
				t.Fatalf("the condition has %d bytes, the parameters %d", len(made.SQL), size)
			}
			if _, err := db.Query("SELECT d.id FROM docs d WHERE "+made.SQL, made.Parameters...); err != nil {
				t.Fatalf("%v: %s\n%q", err, made.SQL, made.Parameters)
			}
		}
	})
}
