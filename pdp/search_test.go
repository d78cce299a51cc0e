package pdp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/google/go-cmp/cmp"

	"policy-service/evaluation"
)

// TestPropertySearch holds searches to evaluation: what is found is what
// evaluation permits, in order, in pages of any size and in one.
func TestPropertySearch(t *testing.T) {
	total, narrowed := 0, 0
	eachSeed(t, 60, func(t *testing.T, g *generator) {
		w := g.world(24)
		b := w.load(t)
		p := Of(b, Options{})
		for range 6 {
			call := g.question(w).call(t)
			call.Now = time.Unix(0, 0)
			for _, kind := range []evaluation.SearchKind{evaluation.SubjectSearch, evaluation.ResourceSearch, evaluation.ActionSearch} {
				want, err := permitted(p, b, kind, call)
				if err != nil {
					continue
				}
				search := SearchCall{Search: evaluation.Search{Kind: kind, Request: without(kind, call.Request)}, Now: call.Now, Limit: evaluation.MaxPage}
				got := pages(t, p, search)
				search.Limit = 1 + g.IntN(3)
				if paged := pages(t, p, search); !cmp.Equal(got, want) || !cmp.Equal(paged, want) {
					t.Fatalf("seed %d, %s search\nfound    %v\nin pages %v\nwant     %v\n%s", g.seed, kind, got, paged, want, w)
				}
				total += len(want)
				if c, err := b.searched(kind, &Call{Request: search.Search.Request, Now: call.Now}, new(memo)); err == nil && kind == evaluation.ResourceSearch && c.len() < len(b.viewOf(call).store.ids[b.resourceType(call)]) {
					narrowed++
				}
			}
		}
	})
	if total < 100 || narrowed < 10 {
		t.Errorf("%d results, %d searches narrowed: the generator shows little", total, narrowed)
	}
}

func (b *Bundle) resourceType(c Call) (typ types.EntityType) {
	typ, _ = b.config.entityType(c.Request.Resource.Type)
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
	v := b.viewOf(call)
	typ, _ := b.config.entityType(r.Subject.Type)
	if kind == evaluation.ResourceSearch {
		typ, _ = b.config.entityType(r.Resource.Type)
	}
	ids := slices.Clone(v.actions)
	if kind != evaluation.ActionSearch {
		ids = nil
		for s := v.store; s != nil; s = s.root {
			for uid := range s.entities {
				if uid.Type == typ {
					ids = append(ids, string(uid.ID))
				}
			}
		}
	}
	slices.Sort(ids)
	found := []string{}
	for _, id := range ids {
		d, err := p.Evaluate(context.Background(), Call{Request: about(kind, r, id), Now: call.Now})
		var malformed *evaluation.Error
		if errors.As(err, &malformed) {
			return nil, err // the search says so too, or passes the candidate over
		} else if err != nil {
			return nil, err
		}
		if d.Allow {
			found = append(found, id)
		}
	}
	return found, nil
}

func pages(t *testing.T, p *PDP, search SearchCall) []string {
	t.Helper()
	all := []string{}
	for range 1000 {
		page, err := p.Search(t.Context(), search)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range page.Found {
			all = append(all, f.ID+f.Name)
		}
		if search.After = page.Last; !page.More {
			return all
		}
	}
	t.Fatal("the pages do not end")
	return nil
}

// A page ends where its work does, and the pages together miss nothing.
func TestSearchWorkIsBounded(t *testing.T) {
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
	b, problems := Load(FS(fstest.MapFS{
		"p.cedar":         {Data: []byte(`permit(principal, action, resource is doc) when { resource.public };`)},
		"entities/d.json": {Data: text},
	}))
	if problems.Refuse() {
		t.Fatal(problems)
	}
	return b
}
