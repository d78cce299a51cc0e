package filter_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"policy-service/pdp"
	"policy-service/pdp/internal/filter"
	"policy-service/pdp/pdptest/database"
	"policy-service/pdp/pdptest/night"
	"policy-service/pdp/pdptest/npm"
)

// forRust is a bundle with the questions about its rows, as Rust Cedar is given it.
type forRust struct {
	Schema    string            `json:"schema"`
	Policies  map[string]string `json:"policies"`
	Entities  []rustEntity      `json:"entities"`
	Questions []rustQuestion    `json:"questions"`
}

type rustEntity struct {
	UID     rustUID        `json:"uid"`
	Attrs   map[string]any `json:"attrs"`
	Parents []rustUID      `json:"parents"`
}

type rustUID struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

type rustQuestion struct {
	Principal rustUID        `json:"principal"`
	Action    rustUID        `json:"action"`
	Resource  rustUID        `json:"resource"`
	Context   map[string]any `json:"context"`
	Own       []rustEntity   `json:"own"` // the principal and the resource
}

type saidByRust struct {
	Failure string
	Answers []struct {
		Misfit, Decision string
		Reasons, Errors  []string
	}
}

// parentRules are those that a bundle's file has: type, attribute, type of the parents.
type parentRules map[string]map[string]string

// rustOf writes a bundle and the questions about rows for Rust Cedar. What the application sends, and the parents by bundle.yaml, are
// put into entities here, apart from the engine.
func rustOf(t *testing.T, bundle map[string]string, rules parentRules, table *database.Table, questions []database.Question, subject, context []database.Field) (made forRust) {
	t.Helper()
	b := load(t, bundle)
	made.Schema, made.Policies = bundle["schema.cedarschema"], map[string]string{}
	for _, p := range b.Views["default"].Policies {
		made.Policies[p.Id] = string(p.Cedar.MarshalCedar())
	}
	stored := map[rustUID]rustEntity{}
	for name, text := range bundle {
		if strings.HasPrefix(name, "entities/") {
			var some []rustEntity
			if err := json.Unmarshal([]byte(text), &some); err != nil {
				t.Fatal(err)
			}
			made.Entities = append(made.Entities, some...)
		}
	}
	for n, e := range made.Entities {
		made.Entities[n].Parents = append(e.Parents, rules.of(e.UID.Type, e.Attrs)...)
		stored[e.UID] = made.Entities[n]
	}
	for _, q := range questions {
		var body struct {
			Subject, Resource struct {
				Type, ID   string
				Properties map[string]any
			}
			Action  struct{ Name string }
			Context map[string]any
		}
		if err := json.Unmarshal(q.Body, &body); err != nil {
			t.Fatal(err)
		}
		one := rustQuestion{
			Principal: rustUID{body.Subject.Type, body.Subject.ID}, Action: rustUID{"Action", body.Action.Name}, Resource: rustUID{body.Resource.Type, body.Resource.ID},
			Context: map[string]any{},
		}
		maps.Copy(one.Context, body.Context)
		for _, f := range context {
			write(one.Context, body.Context, f.Path, f)
		}
		one.Context["action"] = map[string]any{}
		one.Context["pdp"] = map[string]any{
			"now": map[string]any{"__extn": map[string]any{"fn": "datetime", "arg": now.Format("2006-01-02T15:04:05.000Z")}}, "tenant": "default", "caller": "", "approved": false,
			"subject": one.Principal, "resource": one.Resource, "capability": map[string]any{"held": false, "id": "", "depth": 0},
		}
		sent := map[string]any{}
		maps.Copy(sent, body.Subject.Properties)
		for _, f := range subject {
			write(sent, body.Subject.Properties, f.Path, f)
		}
		who := rustEntity{UID: one.Principal, Attrs: map[string]any{}, Parents: slices.Clone(stored[one.Principal].Parents)}
		maps.Copy(who.Attrs, stored[one.Principal].Attrs)
		for name, v := range sent {
			if _, has := who.Attrs[name]; !has {
				who.Attrs[name] = v
				who.Parents = append(who.Parents, rules.of(who.UID.Type, map[string]any{name: body.Subject.Properties[name]})...)
			}
		}
		resource := rustEntity{UID: one.Resource, Attrs: map[string]any{}, Parents: rules.of(one.Resource.Type, body.Resource.Properties)}
		for _, f := range table.Fields {
			write(resource.Attrs, body.Resource.Properties, f.Path, f)
		}
		for _, path := range table.RequiredRecords {
			if _, has := body.Resource.Properties[path[0]]; has && resource.Attrs[path[0]] == nil {
				resource.Attrs[path[0]] = map[string]any{}
			}
		}
		if resource.Parents == nil {
			resource.Parents = []rustUID{}
		}
		if who.Parents == nil {
			who.Parents = []rustUID{}
		}
		one.Own = []rustEntity{who, resource}
		made.Questions = append(made.Questions, one)
	}
	return made
}

// write writes an attribute as Cedar's JSON has it.
func write(to, from map[string]any, names []string, f database.Field) {
	v, ok := from[names[0]]
	if !ok {
		return
	}
	if len(names) > 1 {
		below, _ := v.(map[string]any)
		inner, _ := to[names[0]].(map[string]any)
		if inner = maps.Clone(inner); inner == nil {
			inner = map[string]any{}
		}
		to[names[0]] = inner
		write(inner, below, names[1:], f)
		return
	}
	one := func(kind string, v any) any {
		text, isText := v.(string)
		switch {
		case kind == "entity" && isText:
			return map[string]any{"type": f.Entity, "id": text}
		case kind == "datetime" && isText:
			return map[string]any{"__extn": map[string]any{"fn": "datetime", "arg": text}}
		}
		return v
	}
	if elements, isSet := v.([]any); isSet {
		set := make([]any, len(elements))
		for n, e := range elements {
			set[n] = one(f.Element, e)
		}
		v = set
	}
	to[names[0]] = one(f.Kind, v)
}

// of returns the parents that attributes give.
func (r parentRules) of(typ string, attrs map[string]any) (parents []rustUID) {
	for attribute, parent := range r[typ] {
		switch v := attrs[attribute].(type) {
		case string:
			parents = append(parents, rustUID{parent, v})
		case []any:
			for _, e := range v {
				if id, ok := e.(string); ok {
					parents = append(parents, rustUID{parent, id})
				}
			}
		}
	}
	return parents
}

// allowedByRust combines what Rust Cedar says of each policy by the rules of the product.
func allowedByRust(b *pdp.Bundle, said saidByRust, questions []rustQuestion) (ids []string) {
	v := b.Views["default"]
	counts := func(policies []string, does func(forbids, obliges bool) bool) bool {
		return slices.ContainsFunc(policies, func(id string) bool { return does(v.ByID[id].Forbids(), len(v.ByID[id].Obliges) > 0) })
	}
	for n, a := range said.Answers {
		denies := a.Misfit != "" || a.Decision != "allow" ||
			counts(a.Reasons, func(forbids, obliges bool) bool { return obliges }) ||
			!b.Config.IgnoreForbidErrors && counts(a.Errors, func(forbids, obliges bool) bool { return forbids || obliges })
		if !denies {
			ids = append(ids, questions[n].Resource.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

func cedarFiles(t *testing.T) fs.FS {
	t.Helper()
	const pinned, ours = "../mcp/toolschema/testdata/cedar", "testdata/cedar"
	all := fstest.MapFS{}
	for _, file := range []string{pinned + "/package.json", pinned + "/package-lock.json", ours + "/run.mjs"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all[path.Base(file)] = &fstest.MapFile{Data: text, Mode: 0o644}
	}
	return all
}

// Rust Cedar decides about the rows of the named cases as the filters do.
func TestRustCedarJudgesCases(t *testing.T) {
	night.Npm(t)
	t.Parallel()
	db := database.SQLite(t)
	var asked []forRust
	var judged []*example
	var bundles []*pdp.Bundle
	for n := range cases {
		e := &cases[n]
		if e.refused != "" || e.notRust != "" || e.only == postgres || strings.Contains(e.files["bundle.yaml"], "unknown_entities") {
			continue // Rust Cedar has no entity that lacks what the schema requires
		}
		bundle, table, questions := e.prepare(t, sqlite, db)
		rules := parentRules{}
		if strings.Contains(bundle["bundle.yaml"], "parents") {
			rules = e.rules
		}
		asked = append(asked, rustOf(t, bundle, rules, table, slices.DeleteFunc(questions, func(q database.Question) bool { return q.Denied != "" }), nil, nil))
		judged, bundles = append(judged, e), append(bundles, load(t, bundle))
		tables, err := db.Query("SELECT name FROM sqlite_schema WHERE type = 'table'")
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range tables {
			db.Exec("DROP TABLE " + quote(r[0].(string)))
		}
	}
	for n, said := range npm.Answers[forRust, saidByRust](t, npm.Install(t, "Rust Cedar", cedarFiles(t)), asked) {
		e := judged[n]
		if said.Failure != "" {
			t.Errorf("%s: %s", e.name, said.Failure)
			continue
		}
		if got := strings.Join(allowedByRust(bundles[n], said, asked[n].Questions), " "); got != e.selected {
			t.Errorf("%s: Rust Cedar allows %q, not %q: %+v", e.name, got, e.selected, said.Answers)
		}
	}
	t.Logf("%d cases", len(judged))
}

// beyond matches numbers that JavaScript does not have.
var beyond = regexp.MustCompile(`[0-9]{16,}`)

// Rust Cedar decides about the rows of generated sets as the filters do.
func TestRustCedarJudgesSets(t *testing.T) {
	night.Npm(t)
	t.Parallel()
	db := database.SQLite(t)
	var asked []forRust
	var judged []*world
	var bundles []*pdp.Bundle
	var selected [][]string
	denied := 0
	for seed := uint64(1); len(judged) < night.Cases(400); seed++ {
		w := newWorld(seed, sqlite)
		bundle := w.in(nil)
		ofTenant := w.tenant != "default" || slices.ContainsFunc(slices.Collect(maps.Keys(bundle)), func(name string) bool { return strings.HasPrefix(name, "tenants/") })
		other := strings.Contains(bundle["bundle.yaml"], "unknown_entities") || strings.Contains(bundle["bundle.yaml"], "namespace") || strings.Contains(bundle["bundle.yaml"], "types") ||
			strings.Contains(bundle["bundle.yaml"], "attributes") || strings.Contains(bundle["bundle.yaml"], "known")
		if ofTenant || other { // Rust Cedar has no such names, and no entity that lacks what the schema requires
			continue
		}
		b := load(t, bundle)
		f, err := w.filtered(b, filter.Options{})
		if err != nil {
			continue
		}
		statements := slices.Concat([]string{"BEGIN"}, w.create, w.inserts())
		db.Exec(statements...)
		questions := db.Questions(w.table, about(t, w.question), w.tenant)
		rows, err := db.Query("SELECT "+quote(w.table.ID.Column)+" FROM "+w.table.Name+" WHERE "+f.SQL, f.Parameters...)
		if err != nil {
			t.Fatal(err)
		}
		db.Exec("ROLLBACK")
		var ids []string
		for _, r := range rows {
			ids = append(ids, fmt.Sprint(r[0]))
		}
		slices.Sort(ids)
		all := len(questions)
		questions = slices.DeleteFunc(questions, func(q database.Question) bool { return q.Denied != "" })
		denied += all - len(questions)
		ask := rustOf(t, bundle, w.rules, w.table, questions, w.subject, w.context)
		if text, err := json.Marshal(ask); err != nil || beyond.Match(text) {
			continue
		}
		asked, judged, bundles, selected = append(asked, ask), append(judged, w), append(bundles, b), append(selected, ids)
	}
	pairs, allows, misfits := 0, 0, 0
	for n, said := range npm.Answers[forRust, saidByRust](t, npm.Install(t, "Rust Cedar", cedarFiles(t)), asked) {
		if said.Failure != "" {
			t.Errorf("seed %d: %s", judged[n].seed, said.Failure)
			continue
		}
		allow := allowedByRust(bundles[n], said, asked[n].Questions)
		if !slices.Equal(allow, selected[n]) {
			t.Errorf("Rust Cedar allows %q, and the filter selects %q: %+v\n%s", allow, selected[n], said.Answers, judged[n])
		}
		pairs, allows = pairs+len(said.Answers), allows+len(allow)
		for _, a := range said.Answers {
			if a.Misfit != "" {
				misfits++
			}
		}
	}
	t.Logf("%d sets, %d pairs: %d allowed, %d do not fit", len(judged), pairs, allows, misfits)
}
