package pdp

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp/pdptest/bound"
)

// A library has 50,000 books and 10,000 policies. In the one, some permits look
// at attributes, so that every book is a candidate; in the other every permit
// names shelves, so that those on one shelf are.
const (
	manyBooks  = 50_000
	manyShelf  = 500
	manyRules  = 10_000
	searchedBy = "reader-7"
)

func libraryOf(b *testing.B, named bool) (p *PDP, bytesPerEntity float64) {
	b.Helper()
	var policies, entities strings.Builder
	for n := range manyRules {
		switch {
		case named || n%2 == 0:
			fmt.Fprintf(&policies, "permit (principal == user::\"reader-%d\", action == Action::\"read\", resource in shelf::\"shelf-%d\");\n", n%1000, n%manyShelf)
		default:
			fmt.Fprintf(&policies, "permit (principal in team::\"team-%d\", action == Action::\"read\", resource is book) when { resource.genre == \"g%d\" };\n", n%1000, n%50)
		}
	}
	for n := range manyBooks {
		fmt.Fprintf(&entities, ",\n{\"uid\":{\"type\":\"book\",\"id\":\"book-%05d\"},\"attrs\":{\"genre\":\"g%d\"},\"parents\":[{\"type\":\"shelf\",\"id\":\"shelf-%d\"}]}", n, n%50, n%manyShelf)
	}
	files := fstest.MapFS{"entities/b.json": {Data: []byte("[" + entities.String()[1:] + ",\n{\"uid\":{\"type\":\"user\",\"id\":\"" + searchedBy + "\"},\"attrs\":{},\"parents\":[{\"type\":\"team\",\"id\":\"team-7\"}]}]")}}
	const part = 100_000 // a file stays within its limit
	for n, rest := 0, policies.String(); rest != ""; n++ {
		cut := len(rest)
		if cut > part {
			cut = strings.LastIndexByte(rest[:part], '\n') + 1
		}
		files[fmt.Sprintf("p%d.cedar", n)] = &fstest.MapFile{Data: []byte(rest[:cut])}
		rest = rest[cut:]
	}
	before := heap()
	bundle := bundleFrom(b, FS(files))
	return Of(bundle, Options{NewID: func() string { return "0" }}), float64(heap()-before) / manyBooks
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// How do all pages of a search compare with asking about every book by itself?
func BenchmarkSearchAllPagesAgainstSingles(b *testing.B) {
	for name, most := range map[string]float64{"attributes": 1.5, "named": .15} {
		b.Run(name, func(b *testing.B) {
			p, perEntity := libraryOf(b, name == "named")
			request := evaluation.Request{Subject: evaluation.Entity{Type: "user", ID: searchedBy}, Action: evaluation.Action{Name: "read"}, Resource: evaluation.Entity{Type: "book"}}
			var passes bound.Passes
			found, allowed := 0, 0
			for b.Loop() {
				start := time.Now()
				found = searchAll(b, p, request)
				searching := time.Since(start)
				start = time.Now()
				allowed = askAll(b, p, request)
				passes.Against(searching, time.Since(start))
			}
			if found != allowed || found == 0 {
				b.Fatalf("%d found, %d allowed", found, allowed)
			}
			bound.Check(b, passes.Median(), "x-of-singles", most)
			b.ReportMetric(float64(found), "results")
			b.ReportMetric(perEntity, "B/entity") // with its share of 10,000 policies
			b.ReportMetric(0, "ns/op")
		})
	}
}

func searchAll(b *testing.B, p *PDP, request evaluation.Request) int {
	search, found := SearchCall{Search: evaluation.Search{Kind: evaluation.ResourceSearch, Request: request}, Limit: evaluation.MaxPage}, 0
	for {
		page, err := p.Search(b.Context(), search)
		must(b, err)
		found += len(page.Found)
		if search.After = page.Last; !page.More {
			return found
		}
	}
}

func askAll(b *testing.B, p *PDP, request evaluation.Request) int {
	allowed := 0
	for n := range manyBooks {
		request.Resource.ID = fmt.Sprintf("book-%05d", n)
		d, err := p.Evaluate(b.Context(), Call{Request: request})
		must(b, err)
		if d.Allow {
			allowed++
		}
	}
	return allowed
}
