package filter_test

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
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

// How the byte of a fuzz input sets what is around its condition.
const (
	deepens  = 3 // so often
	forbids  = 4
	ignores  = 8
	strictly = 16
	requires = 32 // unknown_entities: evaluate, and the schema requires what it else lets be absent
	owing    = 64
	grows    = 128 // the condition is not Cedar, but what grown makes one of
)

// grown grows a condition that fits the schema from the bytes of a text, which choose each part of it.
type grown struct {
	from string
	deep int
}

func (g *grown) next() (n int) {
	if g.from != "" {
		n, g.from = int(g.from[0]), g.from[1:]
	}
	return n
}

// grow returns a form that the next byte chooses, with something grown for each of its letters: B a truth value, T a text, N a number,
// S a set of texts, G a set of teams, U a user, E a team, L a literal text, P a pattern.
func (g *grown) grow(kind byte) string {
	forms := map[byte][]string{
		'B': {"true", "(B && B)", "(B || B)", "!B", "(if B then B else B)", "(T == T)", "(T like P)", "(N < N)", "(N >= N)", "(N == N)", "S.contains(T)", "S.containsAll(S)",
			"S.containsAny(S)", "S.isEmpty()", "(U == U)", "(U in E)", "(U in G)", "(E in G)", "(E == E)", "G.contains(E)", "G.containsAny(G)", "G.containsAll(G)", "(resource in E)",
			"U.vip", "(U has d)", "(resource has label)", "(resource has label && resource.label has note)", "(resource == document::L)", "(B == B)", "(B != B)", "(G == G)", "(S == S)",
			"(resource has at && resource.at <= datetime(\"2026-01-01\"))", "(resource has at && context.pdp.now != resource.at)", "(principal in G)", "(resource in [document::L, document::L])",
			"[B, false].contains(B)", "(resource.owner has d && resource.owner.d == T)", "(principal == U)", "[U, principal].contains(U)", "(resource is document in E)"},
		'T': {"resource.title", "L", "(if resource has label then resource.label.category else T)", "context.pdp.resource.id", "context.pdp.subject.id", "(if principal has d then principal.d else T)",
			"(if resource.owner has d then resource.owner.d else T)", "(if B then T else T)", "(if resource has label && resource.label has note then resource.label.note else T)"},
		'N': {"resource.n", "0", "2", "9223372036854775807", "(if B then N else N)", "(-9223372036854775808)"},
		'S': {"resource.tags", "[T]", "[T, T]", "(if B then S else S)", "[L, L, L]"},
		'G': {"resource.teams", "[E]", "[E, E]", "(if B then G else G)"},
		'U': {"resource.owner", "principal", "user::L", `user::"u1"`, "(if B then U else U)"},
		'E': {"resource.team", "team::L", `team::"t1"`, `team::"t2"`, "(if B then E else E)"},
		'L': {`"x"`, `""`, `"X"`, `"X "`, `"a"`, `"u1"`, `"'"`, `"C"`, `"a*b?c%d_e!f[g]h"`, `"\u{FFFF}"`, `"\0"`, `"y"`},
		'P': {`"*"`, `"x"`, `"*b?c*"`, `"a\**"`, `""`, `"*_e!f[g*"`, `"X*"`, `"* "`, `"%"`, `"d?*"`},
	}[kind]
	form := forms[0]
	if n := g.next(); g.deep < 6 {
		form = forms[n%len(forms)]
	}
	g.deep++
	defer func() { g.deep-- }()
	var made strings.Builder
	inText := false
	for n := range len(form) {
		alone := (n == 0 || !letter(form[n-1])) && (n == len(form)-1 || !letter(form[n+1]))
		if inText = inText != (form[n] == '"'); !inText && alone && strings.IndexByte("BTNSGUELP", form[n]) >= 0 {
			made.WriteString(g.grow(form[n]))
		} else {
			made.WriteByte(form[n])
		}
	}
	return made.String()
}

func letter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' }

// Hostile policies and values put no text into SQL, raise no error in either engine, select what the decisions allow, and stay within
// the bounds.
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
	databases[postgres].Exec("SET jit = off") // it compiles 100 tests of a set for half a minute, and runs them in 7 ms
	read := map[filter.Dialect][]database.Answer{}
	for engine, db := range databases {
		for statement := range strings.SplitSeq(creating(engine), ";") {
			db.Exec(statement)
		}
		at := map[filter.Dialect]any{postgres: "2026-01-01 00:00:00+00", sqlite: 1}[engine]
		db.Exec(row{"id": "a", "owner": "u1", "n": 1, "title": "x", "at": at, "team": "t1", "teams": []any{"t1", "t2"}, "tags": []any{"x", "y"}, "category": "c"}.inserts(engine)...)
		db.Exec(row{"id": "b"}.inserts(engine)...)
		db.Exec(row{"id": "", "owner": "u2", "n": -1, "title": "a*b?c%d_e!f[g]h", "team": "", "teams": []any{""}, "tags": []any{"", "'"}, "category": "x", "note": ""}.inserts(engine)...)
		db.Exec(row{"id": "C", "owner": "nobody", "n": raw("9223372036854775807"), "title": "X ", "at": at, "teams": []any{"t1", nil}, "note": "y"}.inserts(engine)...)
		db.Exec(row{"id": "d\uffff", "owner": "u1", "n": 2, "title": "", "team": "t2", "teams": []any{}, "category": "C"}.inserts(engine)...)
		read[engine] = db.All(db.Reads(described(engine))...)
	}
	f.Add(`(resource.n > 2 || resource.title == "x") && (if resource.owner.vip then resource.tags.contains(resource.title) else !(resource.owner in team::"t1"))`, "u1", "x", uint8(requires|forbids|ignores))
	f.Add(`resource.n <= 2 || resource.teams.containsAny([team::"t1", resource.team])`, "u2", "x", uint8(requires|owing|strictly))
	random := rand.New(rand.NewPCG(95, 95))
	for n := range 100 {
		var seed strings.Builder
		for range 60 {
			seed.WriteByte(byte(random.Uint32()))
		}
		f.Add(seed.String(), []string{"u1", "u2", "x"}[n%3], []string{"x", "", "C"}[n%3], uint8(grows|n%32*4))
	}
	f.Fuzz(func(t *testing.T, condition, subject, property string, as uint8) {
		if as&grows != 0 {
			as |= requires
			condition = "principal is user && " + (&grown{from: condition}).grow('B')
		}
		for range as & deepens {
			condition = "!(" + condition + ") || (" + condition + ") && !(true && " + condition + ")"
			if len(condition) > 10_000 {
				return
			}
		}
		bundle := map[string]string{"p.cedar": "permit(principal, action, resource is document) when { " + condition + " };\n", "bundle.yaml": "unknown_entities: evaluate\n"}
		for name, text := range files {
			bundle[name] = text
		}
		if as&forbids != 0 {
			bundle["p.cedar"] = anybody + "forbid" + strings.TrimPrefix(bundle["p.cedar"], "permit")
		} else if as&owing != 0 {
			bundle["p.cedar"] = anybody + "@obligation(\"second_look\")\n" + bundle["p.cedar"]
		}
		if as&ignores != 0 {
			bundle["bundle.yaml"] += "forbid_errors: ignore\n"
		}
		if as&requires != 0 {
			bundle["schema.cedarschema"] = typed("owner?", "owner", "n?: Long", "n: Long", "title?", "title", "team?", "team", "teams?", "teams")
		}
		question, err := json.Marshal(map[string]any{
			"subject": map[string]any{"type": "user", "id": subject, "properties": map[string]any{"d": property, "vip": true}},
			"action":  map[string]any{"name": "read"}, "resource": map[string]any{"type": "document"},
		})
		if err != nil {
			return
		}
		search, err := evaluation.DecodeSearch(evaluation.ResourceSearch, question, "", evaluation.DefaultLimits())
		if err != nil {
			return
		}
		for dialect, db := range databases {
			bundle["filters.yaml"] = mapping(dialect)
			if as&strictly != 0 {
				bundle["filters.yaml"] += "  strict: true\n"
			}
			b, _ := loadFiles(bundle)
			if b == nil {
				return
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
			rows, err := db.Query("SELECT d.id FROM docs d WHERE "+made.SQL, made.Parameters...)
			if err != nil {
				t.Fatalf("%v: %s\n%q", err, made.SQL, made.Parameters)
			}
			var selected []string
			for _, r := range rows {
				selected = append(selected, r[0].(string))
			}
			slices.Sort(selected)
			questions, err := described(dialect).Questions(about(t, string(question)), "default", read[dialect])
			if err != nil {
				t.Fatal(err)
			}
			if decided := allowed(t, b, questions, "default"); !slices.Equal(selected, decided) {
				t.Fatalf("%s: the filter selects %q, and the decisions allow %q\n%s\n%q", dialect, selected, decided, made.SQL, made.Parameters)
			}
		}
	})
}
