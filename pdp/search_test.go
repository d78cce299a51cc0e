package pdp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/google/go-cmp/cmp"

	"policy-service/evaluation"
	"policy-service/pdp/internal/engine"
	"policy-service/pdp/pdptest/night"
)

// TestPropertySearch holds searches to evaluation: what is found is what
// evaluation permits, in order, in pages of any size and in one.
func TestPropertySearch(t *testing.T) {
	t.Parallel()
	total, narrowed, itself, owed := 0, 0, 0, 0
	eachSeed(t, 120, func(t *testing.T, g *generator) {
		g.prefixed = g.seed%3 == 1
		w := g.obliging(obligedWorld{world: g.searchedWorld(), permissive: g.chance(15)})
		b := w.load(t)
		p := Of(b, Options{})
		for range 6 {
			a := g.question(w.world)
			if g.chance(40) { // who asks may be found, by the parents that they send
				a.subject, a.resource[0] = [2]string{"User", oneOf(g, ids["User"]...)}, "User"
				a = a.with(inSubject, "roles", jsonText(some(g, 35, ids["Group"]...)))
			}
			call := a.by(t, g.declaration())
			for _, kind := range []evaluation.SearchKind{evaluation.SubjectSearch, evaluation.ResourceSearch, evaluation.ActionSearch} {
				want, err := permitted(p, b, kind, call)
				if err != nil {
					continue
				}
				search := SearchCall{Search: evaluation.Search{Kind: kind, Request: without(kind, call.Request)}, Now: call.Now, Asker: call.Asker, Limit: evaluation.MaxPage}
				got := pages(t, p, search)
				search.Limit = 1 + g.IntN(3)
				if paged := pages(t, p, search); !cmp.Equal(got, want) || !cmp.Equal(paged, want) {
					t.Fatalf("seed %d, %s search\nfound    %v\nin pages %v\nwant     %v\n%s", g.seed, kind, got, paged, want, w)
				}
				total += len(want)
				owed += len(slices.DeleteFunc(slices.Clone(want), func(found string) bool { return !strings.Contains(found, "[") }))
				in := engine.Inquiry{Bundle: b, Request: search.Search.Request, Now: call.Now}
				if c, err := in.Candidates(t.Context(), kind); err == nil && kind == evaluation.ResourceSearch && c.Len() < len(viewOf(b, call).Store.Ids[resourceType(b, call)]) {
					narrowed++
					if call.Request.Subject.Type == call.Request.Resource.Type && slices.ContainsFunc(want, func(found string) bool { return strings.HasPrefix(found+"[", call.Request.Subject.ID+"[") }) {
						itself++
					}
				}
			}
		}
	})
	const figures = "%d results, %d of them with obligations, %d searches narrowed, %d of them found who asks"
	if t.Logf(figures, total, owed, narrowed, itself); !fewSeeds() && (total < night.Cases(100) || owed < night.Cases(50) || narrowed < night.Cases(100) || itself < night.Cases(5)) {
		t.Errorf(figures+": the generator shows little", total, owed, narrowed, itself)
	}
}

// searchedWorld is a world of many entities and often few permits, each of which
// names entities, some the same one by == and by in: searches can leave much out.
func (g *generator) searchedWorld() world {
	w := g.world(oneOf(g, 0, 0, 24))
	for range 1 + g.IntN(2) {
		v := oneOf(g, "principal", "resource", "resource")
		uid := g.uidFor(oneOf(g, v, "principal")) // which is a group more often
		for _, how := range oneOf(g, []string{" == ", " in "}, []string{" in ", " == "}, []string{" in "}) {
			id := fmt.Sprintf("q%d", len(w.policies))
			scope := "principal, action, resource" + how + uid
			if v == "principal" {
				scope = "principal" + how + uid + ", action, resource"
			}
			text := "permit (" + scope + ");"
			w.policies = append(w.policies, policyText{id, fmt.Sprintf("@id(%q) %s", id, text), parsed(text)})
		}
	}
	for n := range 20 {
		id := fmt.Sprintf("x%02d", n)
		w.entities = append(w.entities,
			entityText("Group", id, nil, refs("Group", some(g, 3, ids["Group"]...))),
			entityText("Folder", id, nil, refs("Folder", some(g, 3, ids["Folder"]...))),
			entityText("User", id, nil, refs("Group", some(g, 5, ids["Group"]...))),
			entityText("Doc", id, nil, append(refs("Folder", some(g, 5, ids["Folder"]...)), refs("Group", some(g, 3, ids["Group"]...))...)))
	}
	return w
}

// What a search may leave out is nothing that an evaluation permits.
func TestSearchLeavesNothingOut(t *testing.T) {
	t.Parallel()
	entities := `{"uid":{"type":"folder","id":"sub"},"attrs":{},"parents":[]}`
	for n := range 20 {
		folder := "other"
		if n < 2 {
			folder = "sub"
		}
		entities += fmt.Sprintf(`,{"uid":{"type":"file","id":"f%02d"},"attrs":{},"parents":[{"type":"folder","id":%q}]},{"uid":{"type":"user","id":"u%02d"},"attrs":{},"parents":[]}`, n, folder, n)
	}
	for name, c := range map[string]struct {
		policies, body string
		want           []string
	}{
		"what is below an entity that another permit names alone": {
			`@id("a") permit(principal, action, resource == folder::"sub");
			 @id("b") permit(principal, action, resource in folder::"sub");`,
			`{"subject":{"type":"user","id":"u00"},"action":{"name":"read"},"resource":{"type":"file"}}`,
			[]string{"f00", "f01"},
		},
		"who asks, by the parents that they send": {
			`permit(principal, action, resource in Group::"g");`,
			`{"subject":{"type":"user","id":"u00","properties":{"groups":["g"]}},"action":{"name":"read"},"resource":{"type":"user"}}`,
			[]string{"u00"},
		},
		"those whose ids begin so": {
			`permit(principal, action, resource) when { context.pdp.resource.id like "f0*" && context.pdp.resource.id like "f01*" };
			 permit(principal, action, resource == file::"f19") when { context.pdp.subject.id like "u*" };
			 permit(principal, action, resource == file::"f18") when { context.pdp.subject.id like "v*" };`,
			`{"subject":{"type":"user","id":"u00"},"action":{"name":"read"},"resource":{"type":"file"}}`,
			[]string{"f01", "f19"},
		},
		"but not one who asks and is not in the bundle": {
			`permit(principal, action, resource in Group::"g");`,
			`{"subject":{"type":"user","id":"stranger","properties":{"groups":["g"]}},"action":{"name":"read"},"resource":{"type":"user"}}`,
			[]string{},
		},
	} {
		b := bundleFrom(t, FS(fstest.MapFS{
			"bundle.yaml":     {Data: []byte("parents: {user: {groups: Group}}")},
			"p.cedar":         {Data: []byte(c.policies)},
			"entities/e.json": {Data: []byte("[" + entities + "]")},
		}))
		s, err := evaluation.DecodeSearch(evaluation.ResourceSearch, []byte(c.body), "", evaluation.DefaultLimits())
		must(t, err)
		for how, b := range map[string]*Bundle{"with": b, "without": b.WithoutIndex()} {
			if got := pages(t, Of(b, Options{}), SearchCall{Search: s, Limit: evaluation.MaxPage}); !cmp.Equal(got, c.want) {
				t.Errorf("%s: %s the index: found %v, want %v", name, how, got, c.want)
			}
		}
	}
}

func resourceType(b *Bundle, c Call) (typ types.EntityType) {
	typ, _ = b.Config.EntityType(c.Request.Resource.Type)
	return typ
}

// without is a request as a search sends it.
func without(kind evaluation.SearchKind, r evaluation.Request) evaluation.Request {
	switch kind {
	case evaluation.SubjectSearch:
		r.Subject = evaluation.Entity{Type: r.Subject.Type}
	case evaluation.ResourceSearch:
		r.Resource = evaluation.Entity{Type: r.Resource.Type}
	default:
		r.Action = evaluation.Action{}
	}
	return r
}

// about is a request as a search sends it, made one about a candidate. It is not the engine's own, which it is to judge.
func about(kind evaluation.SearchKind, r evaluation.Request, id string) evaluation.Request {
	switch kind {
	case evaluation.SubjectSearch:
		r.Subject.ID = id
	case evaluation.ResourceSearch:
		r.Resource.ID = id
	default:
		r.Action.Name = id
	}
	return r
}

// permitted asks about every entity of the type, and every action, one by one.
func permitted(p *PDP, b *Bundle, kind evaluation.SearchKind, call Call) ([]string, error) {
	r := without(kind, call.Request)
	v := viewOf(b, call)
	typ, _ := b.Config.EntityType(r.Subject.Type)
	if kind == evaluation.ResourceSearch {
		typ, _ = b.Config.EntityType(r.Resource.Type)
	}
	ids := slices.Clone(v.Actions)
	if kind != evaluation.ActionSearch {
		ids = nil
		for s := v.Store; s != nil; s = s.Root {
			for uid := range s.Entities {
				if uid.Type == typ {
					ids = append(ids, string(uid.ID))
				}
			}
		}
	}
	slices.Sort(ids)
	found := []string{}
	for _, id := range ids {
		d, err := p.Evaluate(context.Background(), Call{Request: about(kind, r, id), Now: call.Now, Asker: call.Asker})
		var malformed *evaluation.Error
		if errors.As(err, &malformed) {
			return nil, err // the search says so too, or passes the candidate over
		} else if err != nil {
			return nil, err
		}
		if d.Allow {
			found = append(found, withObligations(id, d.Obligations))
		}
	}
	return found, nil
}

func pages(t *testing.T, p *PDP, search SearchCall) []string {
	t.Helper()
	all := []string{}
	for range 1000 {
		page, err := p.Search(t.Context(), search)
		must(t, err)
		for _, f := range page.Found {
			all = append(all, withObligations(f.ID+f.Name, f.Obligations))
		}
		if search.After = page.Last; !page.More {
			return all
		}
	}
	t.Fatal("the pages do not end")
	return nil
}

// withObligations is a result with the obligations that it comes with.
func withObligations(id string, owed []evaluation.Obligation) string {
	for _, o := range owed {
		id += "[" + o.ID + " " + o.Type + " " + jsonText(o.Properties) + "]"
	}
	return id
}

// A page ends where its work does, and the pages together miss nothing.
func TestSearchWorkIsBounded(t *testing.T) {
	t.Parallel()
	b := searchBundle(t, 25_000, func(n int) string { return fmt.Sprintf("d%05d", n) })
	p := Of(b, Options{})
	search := SearchCall{Search: evaluation.Search{Kind: evaluation.ResourceSearch, Request: evaluation.Request{
		Subject: evaluation.Entity{Type: "user", ID: "u"}, Action: evaluation.Action{Name: "read"}, Resource: evaluation.Entity{Type: "doc"},
	}}, Limit: evaluation.MaxPage}
	first, err := p.Search(t.Context(), search)
	if err != nil || len(first.Found) != 1 || !first.More || first.Examined != examinedPerPage {
		t.Fatalf("%d found, more %t, %d examined, %v", len(first.Found), first.More, first.Examined, err)
	}
	if got := pages(t, p, search); !cmp.Equal(got, []string{"d00000", "d20000"}) {
		t.Errorf("got %v", got)
	}
}

// searchBundle has n documents, of which those divisible by 20,000 are public.
func searchBundle(t testing.TB, n int, id func(int) string) *Bundle {
	text := []byte("[")
	for i := range n {
		text = fmt.Appendf(text, `{"uid":{"type":"doc","id":%q},"attrs":{"public":%t},"parents":[]},`, id(i), i%20_000 == 0)
	}
	text[len(text)-1] = ']'
	return bundleFrom(t, FS(fstest.MapFS{
		"p.cedar":         {Data: []byte(`permit(principal, action, resource is doc) when { resource.public };`)},
		"entities/d.json": {Data: text},
	}))
}

// A page ends where it has cost enough to tell the policies of each candidate what the question is about, beside a
// large context; the next page goes on.
func TestPageEndsWhereContextsCost(t *testing.T) {
	t.Parallel()
	var entities []string
	for n := range 600 {
		entities = append(entities, entityText("doc", fmt.Sprintf("x:%03d", n), nil, []entityRef{}))
	}
	b := bundleOfFiles(t, map[string]string{
		"entities/e.json": "[" + strings.Join(entities, ",") + "]",
		"p.cedar":         `permit (principal, action, resource) when { context.pdp.resource.id like "x:*" && context.pdp.resource.id like "*7" && context.text != "" };`,
	})
	body := `{"subject":{"type":"user","id":"a"},"action":{"name":"read"},"resource":{"type":"doc"},"context":{"text":"` + strings.Repeat("x", 1_000_000) + `"}}`
	s, err := evaluation.DecodeSearch(evaluation.ResourceSearch, []byte(body), "", evaluation.DefaultLimits())
	must(t, err)
	search, found, pages := SearchCall{Search: s, Limit: evaluation.MaxPage}, 0, 0
	for more := true; more; pages++ {
		answer, err := Of(b, Options{}).Search(t.Context(), search)
		if err != nil || answer.Examined == 0 || pages > 4 {
			t.Fatal(answer.Examined, pages, err)
		}
		for n, f := range answer.Found {
			if want := fmt.Sprintf("x:%03d", 10*(found+n)+7); f.ID != want {
				t.Fatalf("found %s, want %s", f.ID, want)
			}
		}
		found, more, search.After = found+len(answer.Found), answer.More, answer.Last
	}
	if found != 60 || pages != 2 {
		t.Errorf("%d found on %d pages, want 60 on 2", found, pages)
	}
}
