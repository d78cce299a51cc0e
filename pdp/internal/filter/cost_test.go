package filter_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp/internal/bundle"
	"policy-service/pdp/internal/engine"
	"policy-service/pdp/internal/filter"
	"policy-service/pdp/internal/source"
	"policy-service/pdp/pdptest/bound"
	"policy-service/pdp/pdptest/database"
	"policy-service/pdp/pdptest/night"
)

// costFiles returns the files of a bundle about documents in a table, which have tags in another table or none.
func costFiles(policies string, strict, tags bool) map[string][]byte {
	tagged := func(text string) string {
		if !tags {
			return ""
		}
		return text
	}
	return map[string][]byte{
		"schema.cedarschema": fmt.Appendf(nil, `entity group; entity department;
entity user in [group] = {department: department};
entity document = {owner: user, department: department, state: String, locked: Bool, size?: Long, shared_with: Set<user>%s};
action "document.read", "document.edit" appliesTo {principal: [user], resource: [document]};`, tagged(", tags: Set<String>")),
		"filters.yaml": fmt.Appendf(nil, `document:
  table: app.documents
  tenant: tenant
  id: {column: id, type: uuid}
  actions: [document.read]
  columns:
    owner: owner
    department: department
    state: state
    locked: {column: locked, type: boolean}
    size: {column: size, type: bigint}
    shared_with: {column: shared_with, type: "text[]"}
%s  not_null: [owner, department, state, locked, shared_with, "shared_with[]"%s]
  strict: %t
`, tagged("    tags: {table: app.document_tags, key: document, value: tag}\n"), tagged(`, "tags[]"`), strict),
		"p.cedar": []byte(policies),
		"entities/e.json": []byte(`[{"uid":{"type":"user","id":"few"},"attrs":{"department":{"__entity":{"type":"department","id":"none"}}},"parents":[]},
{"uid":{"type":"user","id":"staff"},"attrs":{"department":{"__entity":{"type":"department","id":"d7"}}},"parents":[{"type":"group","id":"staff"}]},
{"uid":{"type":"user","id":"tagger"},"attrs":{"department":{"__entity":{"type":"department","id":"d7"}}},"parents":[{"type":"group","id":"press"}]},
{"uid":{"type":"user","id":"auditor"},"attrs":{"department":{"__entity":{"type":"department","id":"d7"}}},"parents":[{"type":"group","id":"auditors"},{"type":"group","id":"g3"}]}]`),
	}
}

func loadCost(t *testing.T, files map[string][]byte) *bundle.Bundle {
	t.Helper()
	b, problems := bundle.Build(&source.Files{Content: files})
	if b == nil {
		t.Fatal(problems)
	}
	return b
}

// costFilter makes the filter of the documents that a user may read.
func costFilter(t *testing.T, b *bundle.Bundle, user string) (*filter.Filter, error) {
	t.Helper()
	r := evaluation.Request{Shape: evaluation.AuthZEN, Tenant: evaluation.DefaultTenant, Action: evaluation.Action{Name: "document.read"}}
	r.Subject, r.Resource = evaluation.Entity{Type: "user", ID: user}, evaluation.Entity{Type: "document"}
	return filter.Make(context.Background(), &engine.Inquiry{Bundle: b, Request: r, Now: time.Unix(1_700_000_000, 0)},
		filter.Options{Dialect: filter.Postgres, Alias: "d"})
}

// costDecision decides about a document.
func costDecision(t *testing.T, b *bundle.Bundle, r evaluation.Request) (d evaluation.Decision) {
	t.Helper()
	room := engine.Borrow()
	defer room.Return()
	in := &room.Inquiry
	in.Bundle, in.Request, in.Now = b, r, time.Unix(1_700_000_000, 0)
	if err := in.Decide(context.Background(), &room.Verdict, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestMakingCost compares the time that a filter takes with that of a decision: both take turns.
func TestMakingCost(t *testing.T) {
	night.Measures(t)
	const policies = 10_000
	r, err := evaluation.DecodeAuthZEN([]byte(`{"subject":{"type":"user","id":"auditor"},"action":{"name":"document.read"},"resource":{"type":"document","id":"abcd0000-0000-0000-0000-00000000000f",
"properties":{"owner":"few","department":"d7","state":"draft","locked":false,"size":70,"shared_with":["staff","tagger"],"tags":["press"]}}}`), "", evaluation.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	conditions := []string{`resource.owner == principal && resource.state == "s#"`, `resource.department == principal.department && resource has size && resource.size > #`,
		`resource.shared_with.contains(principal) && resource.state != "s#"`, `resource.tags.containsAny(["t#", "u#"])`, `resource.state like "x#*"`}
	text := func(scope func(n int) string) string {
		var all strings.Builder
		for n := range policies {
			effect := "permit"
			if n%10 == 9 {
				effect = "forbid"
			}
			fmt.Fprintf(&all, "%s(principal%s, action == Action::\"document.read\", resource) when { %s };\n", effect, scope(n), strings.ReplaceAll(conditions[n%len(conditions)], "#", strconv.Itoa(n)))
		}
		return all.String()
	}
	t.Run("20 of them concern it", func(t *testing.T) {
		b := loadCost(t, costFiles(text(func(n int) string { return fmt.Sprintf(` in group::"g%d"`, n/20) }), true, true))
		var turns bound.Passes
		for range 101 {
			const each = 20
			start := time.Now()
			for range each {
				f, err := costFilter(t, b, "auditor")
				if err != nil || f.Rows != filter.Some || strings.Count(f.SQL, "EXISTS") < 4 {
					t.Fatal(f, err)
				}
			}
			made := time.Since(start)
			start = time.Now()
			for range each {
				if d := costDecision(t, b, r); d.Reason == evaluation.SchemaMismatch {
					t.Fatal(d)
				}
			}
			turns.Against(made, time.Since(start))
		}
		t.Logf("a filter takes %.2f times as long as a decision", turns.Median())
		if bound.Broken(turns.Median(), 3) {
			t.Errorf("a filter takes %.2f times as long as a decision, the bound is 3", turns.Median())
		}
	})
	t.Run("all of them concern it", func(t *testing.T) {
		b := loadCost(t, costFiles(text(func(int) string { return "" }), true, true))
		var passes bound.Passes
		for range 11 {
			start := time.Now()
			_, err := costFilter(t, b, "auditor")
			passes.Took(time.Since(start))
			if refusal := (*filter.Refusal)(nil); err != nil && (!errors.As(err, &refusal) || refusal.Reason != filter.TooLarge) {
				t.Fatal(err)
			}
		}
		t.Logf("%.1f ms", passes.Median())
		if bound.Broken(passes.Median(), 100) {
			t.Errorf("it took %.1f ms to make a filter of %d policies, or to refuse it; the bound is 100", passes.Median(), policies)
		}
	})
}

// TestPageCost compares a page of 50 of a million rows, by the filter, with the same page by a condition that is written by hand for
// those users alone.
func TestPageCost(t *testing.T) {
	night.Measures(t)
	db := database.Postgres(t)
	db.Exec("CREATE SCHEMA app",
		`CREATE TABLE app.documents (id uuid PRIMARY KEY, tenant text NOT NULL, owner text NOT NULL, department text NOT NULL, state text NOT NULL, locked boolean NOT NULL,
			size bigint, shared_with text[] NOT NULL, created timestamptz NOT NULL, title text)`,
		"CREATE TABLE app.document_tags (document uuid NOT NULL, tag text NOT NULL, PRIMARY KEY (document, tag))",
		`INSERT INTO app.documents SELECT ('00000000-0000-4000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, CASE WHEN n % 200 = 7 THEN 'other' ELSE 'default' END,
			CASE WHEN n % 20000 = 1 THEN 'few' ELSE 'u' || n % 5003 END, 'd' || n / 7 % 100, CASE WHEN n % 11 = 0 THEN 'draft' ELSE 'published' END, n % 1009 = 0, n % 1000,
			CASE WHEN n % 20000 = 2 THEN ARRAY['x', 'few'] WHEN n % 10 = 0 THEN ARRAY['u' || n % 4001, 'u' || n % 3001] ELSE '{}' END,
			timestamptz '2020-01-01 00:00:00+00' + n::bigint * 7919 % 1000000 * interval '1 minute', 'title ' || n
			FROM generate_series(1, 1000000) n`,
		"INSERT INTO app.document_tags SELECT id, 't' || size % 50 FROM app.documents WHERE size < 500 UNION ALL SELECT id, 'press' FROM app.documents WHERE size % 100 = 3",
		"CREATE INDEX ON app.documents (tenant, created DESC, id)", "CREATE INDEX ON app.documents (owner)", "CREATE INDEX ON app.documents (department, created DESC)",
		"CREATE INDEX ON app.documents USING gin (shared_with)", "CREATE INDEX ON app.document_tags (tag)",
		"VACUUM (ANALYZE) app.documents", "VACUUM (ANALYZE) app.document_tags", "CHECKPOINT")
	own := "(d.owner = $2 OR d.shared_with @> ARRAY[$2])"
	pages := []struct {
		user, byHand, permit string
		of                   [2]int // rows
	}{
		{"few", own, "", [2]int{90, 110}},
		{"staff", "(d.department = 'd7' OR " + own + ")", `permit(principal in group::"staff", action, resource) when { resource.department == principal.department };`, [2]int{9_000, 11_000}},
		{"auditor", "(d.state = 'published' OR " + own + ")", `permit(principal in group::"auditors", action, resource) when { resource.state == "published" };`, [2]int{880_000, 920_000}},
		{"tagger", "(EXISTS (SELECT 1 FROM app.document_tags t WHERE t.document = d.id AND t.tag = 'press') OR " + own + ")",
			`permit(principal in group::"press", action, resource) when { resource.tags.contains("press") };`, [2]int{9_000, 11_000}},
	}
	for _, mapping := range []struct {
		name         string
		strict, tags bool
		most         float64
	}{
		{"columns alone", true, false, 1.2},
		{"a set in another table", true, true, 1.2},
		{"columns that conditions check", false, true, 5}, // a plan for other rows than there are takes far longer
	} {
		policies := `permit(principal, action, resource) when { resource.owner == principal || resource.shared_with.contains(principal) };
forbid(principal, action, resource) when { resource.locked };`
		for _, page := range pages {
			if mapping.tags || page.user != "tagger" {
				policies += page.permit
			}
		}
		b := loadCost(t, costFiles(policies, mapping.strict, mapping.tags))
		for _, page := range pages {
			if !mapping.tags && page.user == "tagger" {
				continue
			}
			t.Run(mapping.name+"/"+page.user, func(t *testing.T) {
				f, err := costFilter(t, b, page.user)
				if err != nil {
					t.Fatal(err)
				}
				byHand := database.Ask{SQL: "d.tenant = $1 AND NOT d.locked AND " + page.byHand, Params: []any{"default", page.user}}
				byFilter := database.Ask{SQL: f.SQL, Params: f.Parameters}
				ask := func(before string, a database.Ask, behind string) []database.Row {
					a.SQL = before + a.SQL + behind
					rows, err := db.Query(a.SQL, a.Params...)
					if err != nil {
						t.Fatalf("%s: %v", a.SQL, err)
					}
					return rows
				}
				const all, selected, ordered = "SELECT count(*) FROM app.documents d WHERE ", "SELECT d.id, d.title FROM app.documents d WHERE ", " ORDER BY d.created DESC, d.id LIMIT 50"
				n, _ := ask(all, byFilter, "")[0][0].(int64)
				if hand := ask(all, byHand, "")[0][0]; int(n) < page.of[0] || int(n) > page.of[1] || hand != any(n) {
					t.Fatalf("the filter selects %d rows, the condition by hand %v", n, hand)
				}
				run := func(a database.Ask) time.Duration {
					a.SQL = "SELECT count(*) FROM (" + selected + a.SQL + ordered + ") AS page" // or reading rows would take a part of the time
					asks := slices.Repeat([]database.Ask{a}, 20)
					start := time.Now()
					answers := db.All(asks...)
					took := time.Since(start)
					for _, a := range answers {
						if a.Err != nil || a.Rows[0][0] != any(int64(50)) {
							t.Fatal(a)
						}
					}
					return took / time.Duration(len(asks))
				}
				var turns, hand bound.Passes
				run(byFilter)
				for range 31 {
					of, by := run(byFilter), run(byHand)
					turns.Against(of, by)
					hand.Took(by)
				}
				t.Logf("%d rows, %.2f ms by hand, %.2f times as long by the filter", n, hand.Median(), turns.Median())
				if !bound.Broken(turns.Median(), mapping.most) {
					return
				}
				for _, a := range []database.Ask{byFilter, byHand} {
					for _, row := range ask("EXPLAIN (ANALYZE, BUFFERS) "+selected, a, ordered) {
						t.Log(row[0])
					}
				}
				t.Errorf("the page takes %.2f times as long as by hand, the bound is %g: %s", turns.Median(), mapping.most, f.SQL)
			})
		}
	}
}
