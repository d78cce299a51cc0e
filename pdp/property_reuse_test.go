package pdp

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/fstest"

	"policy-service/evaluation"
	"policy-service/pdp/internal/bundle"
	"policy-service/pdp/pdptest/night"
)

// pieces are the files of which a bundle of two tenants is made by chance, each with its
// possible texts; "" is no file. Some are wrong by themselves, some beside others.
var pieces = map[string][]string{
	"bundle.yaml":                   {"", "allow_trivial: true\n", "allow_trivial: true\nparents: {User: {team: Team}}\n", "allow_trivial: true\nunknown_entities: evaluate\n", "wrong: [\n"},
	"schema.cedarschema":            {"", "", "entity Team; entity User in [Team] { n?: Long, team?: String, identities?: Set<User> } ; entity Doc; action read appliesTo { principal: User, resource: Doc };", "entity Team; entity User in [Team] { n?: Long, team?: String, identities?: Set<User> }; entity agent in [Team]; entity Doc; entity tool; action read appliesTo { principal: User, resource: Doc }; action \"tool.invoke\" appliesTo { principal: [User, agent], resource: tool };", "entity {"},
	"more.cedarschema":              {"", "", "", "action write in read;", "entity Robot; action write appliesTo { principal: User, resource: Doc };"},
	"filters.yaml":                  {"", "", "", "Doc: {table: docs, id: id, actions: [read]}\n", "Doc: {table: docs, tenant: t, id: id, actions: [read]}\n", "Doc: {table: a b}\n"},
	"tenants/acme/filters.yaml":     {"", "", "", "", "{}"},
	"obligations.yaml":              {"", "tell: {type: log, on: both}\n", "tell: {type: log}\n", "tell: {type: nothing}\n", "access.x: {type: log}\n"},
	"access/desk.yaml":              {"", "", "mode: allowlist\nrules: [{agent: u1, tools: [read], requires_approval: true}]\n", "mode: denylist\nrules: [{agent: u1, tools: '*'}]\n", "mode: no\n"},
	"tenants/acme/access/desk.yml":  {"", "", "mode: allowlist\napproval: {timeout: 1h}\nrules: [{agent: u1, tools: [read], requires_approval: true}, {agent: u3, tools: x}]\n", "mode: open\n", "owner: more\nmode: open\n"},
	"tenants/acme/access/more.yaml": {"", "", "mode: hybrid\ndefault: deny\nrules: [{agent: {in: 'Team::\"red\"'}, tools: [x, y], effect: allow}]\n"},
	"a.cedar":                       {"@id(\"a\") permit(principal, action, resource) when { principal has n };", "@id(\"a\") @obligation(\"tell\") permit(principal, action, resource);", "@id(\"a\") permit(principal in Team::\"red\", action, resource);", "permit("},
	"b.cedar":                       {"", "@id(\"stop\") forbid(principal == User::\"u1\", action, resource);", "@id(\"x\") forbid(principal, action, resource) when { context.pdp.tenant == \"acme\" };"},
	"entities/e.json":               {"", "[]\n", `[{"uid":{"type":"User","id":"u1"},"attrs":{"n":1,"team":"red"},"parents":[]}]`, `[{"uid":{"type":"User","id":"u2"},"attrs":{},"parents":[{"type":"Team","id":"red"}]}]`, `[{"uid":{}}]`},
	"tenants/acme/x.cedar":          {"", "@id(\"x\") permit(principal, action, resource) when { principal.n > 0 };", "@id(\"x\") @obligation(\"tell\") permit(principal, action, resource);", "@id(\"x\") @obligation(\"own\") forbid(principal == User::\"u3\", action, resource);", "@id(\"stop\") permit(principal is User, action, resource);"},
	"tenants/acme/y.cedar":          {"", "@id(\"y\") forbid(principal == User::\"u2\", action == Action::\"read\", resource);", "@id(\"y\") permit(principal is Robot, action, resource);"},
	"tenants/acme/e.yaml":           {"", "a file that no rule names"},
	"tenants/acme/obligations.yaml": {"", "", "own: {type: log}\n", "tell: {type: log}\n"},
	"tenants/acme/entities/e.json":  {"", `[{"uid":{"type":"User","id":"u3"},"attrs":{"n":3,"identities":[{"__entity":{"type":"User","id":"u4"}}]},"parents":[],"more":1}]`, `[{"uid":{"type":"User","id":"u1"},"attrs":{"n":4},"parents":[]}]`, `[{"uid":{"type":"User","id":"u5"},"attrs":{"n":5,"identities":7},"parents":[{"type":"Team","id":"red"}]}]`},
	"tenants/other/x.cedar":         {"", "@id(\"o\") permit(principal, action, resource) when { principal.n > 2 };", "@id(\"a\") forbid(principal, action, resource);"},
	"tenants/other/entities/e.json": {"", `[{"uid":{"type":"User","id":"u3"},"attrs":{"n":9},"parents":[]},{"uid":{"type":"User","id":"u4"},"attrs":{"n":1,"team":"blue"},"parents":[]}]`},
}

// TestPropertyReuse holds a bundle that was loaded by one edit after the other to the one
// that is loaded of the last files from nothing: it says the same, warning for warning,
// and decides the same. Where tenants are kept apart, it is held to the bundle of the files that are left.
func TestPropertyReuse(t *testing.T) {
	t.Parallel()
	seen := tally{}
	eachSeed(t, 60, func(t *testing.T, g *generator) {
		g.prefixed = g.seed%3 == 1
		names := slices.Sorted(maps.Keys(pieces))
		texts := map[string]string{"bundle.yaml": pieces["bundle.yaml"][1], "a.cedar": pieces["a.cedar"][0]}
		before, beforeApart := bundle.InForce{}, bundle.InForce{}
		for step := range 40 {
			kept := maps.Clone(texts)
			for range 1 + g.IntN(2) {
				name := oneOf(g, names...)
				texts[name] = oneOf(g, pieces[name]...)
			}
			source := fstest.MapFS{}
			for name, text := range texts {
				if text != "" {
					source[name] = &fstest.MapFile{Data: []byte(text)}
				}
			}
			files := FS(source).Read()
			l := bundle.NewLoading(context.Background(), files, before)
			made, said := l.Build()
			got := made.Bundle
			fresh := bundle.NewLoading(context.Background(), FS(source).Read(), bundle.InForce{})
			anew, problems := fresh.Build()
			want := anew.Bundle
			if what := bundlesDiffer(t, got, want, said, problems); what != "" {
				t.Fatalf("seed %d, step %d: %s\n%v", g.seed, step, what, texts)
			}
			apart := bundle.NewLoading(context.Background(), files, beforeApart)
			apart.Apart = true
			left, said := apart.Build()
			if left.Bundle != nil {
				want, problems := bundle.Build(left.Files)
				if out := len(left.Bundle.Unavailable()); want != nil || out == 0 {
					if what := bundlesDiffer(t, left.Bundle, want, said.Only(SeverityWarning), problems); what != "" {
						t.Fatalf("seed %d, step %d, apart: %s\n%v\n%v", g.seed, step, what, said, texts)
					}
					seen.count("a tenant unavailable", out > 0)
				}
				for _, tenant := range []string{"acme", "other"} {
					broken := slices.ContainsFunc(said.Only(SeverityError), func(p Problem) bool { return files.Owner(p.File) == tenant })
					seen.count("a tenant as before", broken && left.Bundle.Views[tenant] != nil)
				}
				beforeApart = left
			}
			if said := said.Only(SeverityError); (left.Bundle == nil) != slices.ContainsFunc(said, func(p Problem) bool { return files.Owner(p.File) == "" }) || said.Refuse() != (want == nil) {
				t.Fatalf("seed %d, step %d: apart it is %v, and whole %v\n%v\n%v", g.seed, step, left.Bundle, want, said, texts)
			}
			seen.count("loads", want != nil)
			seen.count("refusals", want == nil)
			seen.count("declarations", want != nil && len(want.Access()) > 0)
			seen.count("declarations taken over", want != nil && l.Did.AccessFiles < fresh.Did.AccessFiles)
			seen.count("mappings", want != nil && want.Mappings != nil)
			seen.count("mappings taken over", want != nil && l.Did.Mappings < fresh.Did.Mappings)
			seen.count("warnings", want != nil && len(problems) > 0)
			seen.count("a tenant taken over by itself", want != nil && l.Did.PolicyFiles < fresh.Did.PolicyFiles && l.Did.Views == fresh.Did.Views)
			seen.count("a tenant taken over beside another", want != nil && l.Did.Views == 1)
			if got == nil && g.chance(80) {
				texts = kept // the broken file is mended
			}
			if got != nil {
				before = made
			}
		}
	})
	for _, what := range []string{"loads", "refusals", "warnings", "declarations", "declarations taken over", "mappings", "mappings taken over", "a tenant taken over by itself", "a tenant taken over beside another", "a tenant unavailable", "a tenant as before"} {
		seen.atLeast(t, what, 3)
	}
}

// bundlesDiffer describes how two bundles differ; "" is in nothing.
func bundlesDiffer(t *testing.T, got, want *Bundle, said, problems Problems) string {
	if !slices.Equal(said, problems) {
		return fmt.Sprintf("problems\n%v\nwant\n%v", said, problems)
	}
	if got == nil || want == nil {
		if got != want {
			return "one of the two does not load"
		}
		return ""
	}
	for what, pair := range map[string][2]any{
		"digest": {got.Digest(), want.Digest()}, "config": {got.Config, want.Config}, "mappings": {got.Mappings, want.Mappings}, "types": {got.TypeNames, want.TypeNames},
		"policies": {got.Policies(), want.Policies()}, "access": {got.Access(), want.Access()}, "approvals": {got.LongestApproval(), want.LongestApproval()},
		"tenants": {slices.Sorted(maps.Keys(got.Views)), slices.Sorted(maps.Keys(want.Views))},
	} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			return fmt.Sprintf("%s\n%v\nwant\n%v", what, pair[0], pair[1])
		}
	}
	for tenant, v := range got.Views {
		w := want.Views[tenant]
		if root := got.Views[evaluation.DefaultTenant].Store; tenant != evaluation.DefaultTenant && v.Store.Root != root {
			return tenant + " stands above another root"
		}
		for what, pair := range map[string][2]any{
			"index": {v.Index, w.Index}, "actions": {v.Actions, w.Actions}, "obligations": {v.Obligations, w.Obligations},
			"bound": {boundTo(v), boundTo(w)}, "entities": {v.Store.Entities, w.Store.Entities}, "written": {v.Store.Written, w.Store.Written},
			"ids": {v.Store.Ids, w.Store.Ids}, "children": {sets(v.Store.Children), sets(w.Store.Children)}, "identified": {len(v.Store.Identified), len(w.Store.Identified)}, "naming": {len(v.Store.Naming), len(w.Store.Naming)},
		} {
			if !reflect.DeepEqual(pair[0], pair[1]) {
				return fmt.Sprintf("%s of %s\n%v\nwant\n%v", what, tenant, pair[0], pair[1])
			}
		}
		for n := range 6 {
			call := Call{Explain: true, Request: evaluation.Request{Tenant: tenant, Subject: evaluation.Entity{Type: "User", ID: fmt.Sprintf("u%d", n)}, Action: evaluation.Action{Name: "read"}, Resource: evaluation.Entity{Type: "Doc", ID: "d"}}}
			used := call
			used.Request.Subject.Type, used.Request.Action.Name, used.Request.Resource = "agent", "tool.invoke", evaluation.Entity{Type: "tool", ID: "desk:read"}
			for _, call := range []Call{call, used} {
				a, b := decisionText(t, got, call), decisionText(t, want, call)
				if a != b {
					return fmt.Sprintf("decision %d of %s\n%s\nwant\n%s", n, tenant, a, b)
				}
			}
		}
	}
	return ""
}

func sets[K, V comparable](m map[K][]V) map[K]map[V]bool {
	out := map[K]map[V]bool{}
	for k, all := range m {
		out[k] = map[V]bool{}
		for _, v := range all {
			out[k][v] = true
		}
	}
	return out
}

// boundTo is each policy of a view in its order, with its place and its obligations.
func boundTo(v *bundle.View) (all []string) {
	for _, p := range v.Policies {
		text := p.Id + " " + p.Position + " " + p.Tenant
		for _, d := range p.Obliges {
			text += fmt.Sprintf(" %s=%v", d.Name, d.Properties)
			if known := v.Obligations[d.Name]; known.Definition != d {
				text += " of another bundle"
			}
		}
		if v.ByID[p.Id] != p {
			text += " is not the one of its id"
		}
		all = append(all, text)
	}
	return all
}

func decisionText(t *testing.T, b *Bundle, call Call) string {
	d, err := decideBy(context.Background(), b, call)
	text, bad := json.Marshal(struct {
		Decision evaluation.Decision
		Error    string
	}{d, fmt.Sprint(err)})
	must(t, bad)
	return string(text)
}

// An edit of the root reads no file of a tenant again, and an edit of one tenant none of
// another: the files of others are no part of its cost.
func TestAnEditReadsNothingOfOthersAgain(t *testing.T) {
	t.Parallel()
	declared := func(agent string) string {
		return "mode: allowlist\nrules: [{agent: " + agent + ", tools: x, requires_approval: true}]\n"
	}
	files := tree{"access/desk.yaml": declared("a"), "access/shed.yaml": declared("a"), "a.cedar": renamed(smallest, "a"), "b.cedar": renamed(smallest, "b"), "entities/e.json": "[]", "obligations.yaml": "tell: {type: log}\n"}
	const many = 10
	for n := range many {
		dir := fmt.Sprintf("tenants/t%02d/", n)
		files[dir+"p.cedar"] = renamed(smallest, "p")
		files[dir+"q.cedar"] = renamed(smallest, "q")
		files[dir+"obligations.yaml"] = "own: {type: log}\n"
		files[dir+"access/desk.yaml"] = declared("a")
		files[dir+"entities/e.json"] = fmt.Sprintf(`[{"uid":{"type":"User","id":"u%d"},"attrs":{},"parents":[]}]`, n)
	}
	dir := t.TempDir()
	files.Write(t, dir)
	p, err := New(Dir(dir), Options{Quiet: 1})
	must(t, err)
	edit := func(what string, want bundle.Work, views int, files tree) {
		t.Helper()
		files.Write(t, dir)
		before := p.Bundle()
		must(t, p.Reload(t.Context()))
		want.Views = views
		if p.reloader.lastWork != want {
			t.Errorf("%s: read %+v, want %+v", what, p.reloader.lastWork, want)
		}
		fresh := 0
		for tenant, v := range p.Bundle().Views {
			if v != before.Views[tenant] {
				fresh++
			}
		}
		if fresh != views {
			t.Errorf("%s: %d views are new, want %d", what, fresh, views)
		}
		if b, problems := Load(Dir(dir)); problems.Refuse() || bundlesDiffer(t, p.Bundle(), b, nil, nil) != "" {
			t.Errorf("%s: %v, and it differs: %s", what, problems, bundlesDiffer(t, p.Bundle(), b, nil, nil))
		}
	}
	root := bundle.Work{PolicyFiles: 3, EntityFiles: 1, AccessFiles: 2}
	defines := root
	defines.ObligationFiles = 1 + many
	edit("a root policy", root, many+1, tree{"stop.cedar": forbidAll})
	edit("a tenant's policy", bundle.Work{PolicyFiles: 2, EntityFiles: 1, AccessFiles: 1}, 1, tree{"tenants/t07/p.cedar": renamed(numbered(1), "p")})
	edit("what the root defines", defines, many+1, tree{"obligations.yaml": "tell: {type: log, on: both}\n"})
	edit("a root entity", root, many+1, tree{"entities/e.json": `[{"uid":{"type":"User","id":"v"},"attrs":{},"parents":[]}]`})
	edit("what the root declares", defines, many+1, tree{"access/desk.yaml": declared("b")})
	edit("what a tenant declares", bundle.Work{PolicyFiles: 2, EntityFiles: 1, ObligationFiles: 1, AccessFiles: 1}, 1, tree{"tenants/t07/access/desk.yaml": declared("b")})
	edit("a new tenant", bundle.Work{PolicyFiles: 1}, 1, tree{"tenants/fresh/p.cedar": renamed(smallest, "p")})
	edit("a tenant that only declares", bundle.Work{AccessFiles: 1}, 1, tree{"tenants/declares/access/desk.yml": declared("a")})
	edit("the settings, on which all hangs", bundle.Work{Settings: 1, PolicyFiles: 3 + 2*many + 1, EntityFiles: 1 + many, AccessFiles: 2 + many + 1}, many+3, tree{"bundle.yaml": "unknown_entities: evaluate\n"})
}

// The draft of obligations decides what a notification may say: a reload that changes the draft reads obligations again.
func TestAnotherDraftReadsObligationsAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tree{
		"a.cedar": smallest, "tenants/acme/a.cedar": renamed(smallest, "q"), "bundle.yaml": "obligations: october\n",
		"tenants/acme/obligations.yaml": "tell: {type: notification, properties: {to: [a, b], body: c}}\n",
	}.Write(t, dir)
	p, err := New(Dir(dir), Options{Quiet: 1})
	must(t, err)
	tree{"bundle.yaml": "obligations: july\n"}.Write(t, dir)
	_, problems := Load(Dir(dir))
	if err := p.Reload(t.Context()); err == nil || !problems.Refuse() {
		t.Errorf("a reload: %v, a load: %v", err, problems)
	}
}

// The work of a load grows with the tenants, not with their square: a load that one of
// many tenants brings must not take the longer for each file of each other one.
func TestALoadGrowsWithTheTenantsNotTheirSquare(t *testing.T) {
	night.Measures(t)
	took := func(tenants int) uint64 {
		content := tree{"a.cedar": smallest}
		for n := range tenants {
			for m := range 40 {
				content[fmt.Sprintf("tenants/t%03d/p%02d.cedar", n, m)] = "// nothing"
			}
		}
		dir := t.TempDir()
		content.Write(t, dir)
		files := Dir(dir).Read()
		b, problems := bundle.Build(files)
		if problems.Refuse() {
			t.Fatal(problems)
		}
		most := ^uint64(0)
		for range 3 {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			bundle.NewLoading(t.Context(), files, bundle.InForce{Bundle: b, Files: files}).Build()
			runtime.ReadMemStats(&after)
			most = min(most, after.TotalAlloc-before.TotalAlloc)
		}
		return most
	}
	if few, many := took(10), took(80); many > 16*few {
		t.Errorf("8 times the tenants take %d bytes, %d times those of the few", many, many/few)
	}
}

// Decisions and searches go on by the parts that a load takes over. The race detector sees writes
// to it.
func TestDecisionsGoOnWhileALoadTakesOver(t *testing.T) {
	t.Parallel()
	entitiesOf := func(n int) string {
		return fmt.Sprintf(`[{"uid":{"type":"User","id":"u"},"attrs":{"n":%d},"parents":[{"type":"Team","id":"t"}]}]`, n)
	}
	dir := t.TempDir()
	tree{
		"a.cedar": renamed(smallest, "a"), "schema.cedarschema": "entity Team; entity User in [Team] { n: Long }; action read appliesTo { principal: User, resource: User };",
		"obligations.yaml": "tell: {type: log, on: both}\n", "tenants/acme/entities/e.json": entitiesOf(0), "tenants/other/entities/e.json": entitiesOf(0),
		"tenants/acme/x.cedar":  "@id(\"x\") @obligation(\"tell\") permit(principal, action, resource) when { principal.n > 3 };",
		"tenants/other/x.cedar": "@id(\"x\") @obligation(\"tell\") forbid(principal in Team::\"t\", action, resource);",
	}.Write(t, dir)
	p, err := New(Dir(dir), Options{Quiet: 1})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	for _, tenant := range []string{"acme", "other", evaluation.DefaultTenant} {
		asking.Go(func() {
			request := evaluation.Request{Tenant: tenant, Subject: evaluation.Entity{Type: "User", ID: "u"}, Action: evaluation.Action{Name: "read"}, Resource: evaluation.Entity{Type: "User", ID: "u"}}
			for ctx.Err() == nil {
				if _, err := p.Evaluate(context.Background(), Call{Explain: true, Request: request}); err != nil {
					t.Error(err)
					return
				}
				if _, err := p.Search(context.Background(), SearchCall{Search: evaluation.Search{Kind: evaluation.SubjectSearch, Request: request}, Limit: 10}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for n := range 12 {
		switch n % 4 {
		case 0:
			tree{"b.cedar": renamed(numbered(n), "b")}.Write(t, dir)
		case 1:
			tree{"tenants/acme/entities/e.json": entitiesOf(n)}.Write(t, dir)
		case 2:
			tree{"tenants/other/y.cedar": renamed(numbered(n), "y")}.Write(t, dir)
		case 3:
			tree{"entities/e.json": fmt.Sprintf(`[{"uid":{"type":"User","id":"r%d"},"attrs":{"n":1},"parents":[]}]`, n)}.Write(t, dir)
		}
		must(t, p.Reload(t.Context()))
	}
}
