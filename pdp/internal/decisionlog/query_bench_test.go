package decisionlog

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/pdptest/bound"
)

// What does the index cost a record that is made durable? Both in one run, because
// only their ratio means something on a machine that others use.
func BenchmarkIndexCost(b *testing.B) {
	const callers, records, passes = 128, 50_000, 3
	var all [2]time.Duration
	var ratios bound.Passes
	for range passes {
		var used [2]time.Duration
		for i, index := range []bool{false, true} {
			l := mustOpen(b, b.TempDir(), Options{Index: index})
			before := cpu()
			var left atomic.Int64
			left.Store(records)
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					for n := left.Add(-1); n >= 0; n = left.Add(-1) {
						if err := l.Append(context.Background(), []record.Entry{typical(int(n))}); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			if index {
				settled(b, l)
			}
			used[i] = cpu() - before
			all[i] += used[i]
			must(b, l.Close())
		}
		ratios.Against(used[1], used[0])
	}
	per := func(d time.Duration) float64 { return float64(d.Microseconds()) / passes / records }
	b.ReportMetric(per(all[0]), "cpu-µs/record-without")
	b.ReportMetric(per(all[1]), "cpu-µs/record-with")
	bound.Check(b, ratios.Median(), "ratio", 1.3)
	b.ReportMetric(0, "ns/op")
}

// typical is a record as a gateway's: a tenth of the subjects and resources are seen
// once only.
func typical(n int) record.Entry {
	e := entry(fmt.Sprintf("0197f0c0-0000-7000-8000-%012d", n))
	e.Tenant = fmt.Sprint("tenant-", n%10)
	asked := &evaluation.Request{Action: evaluation.Action{Name: "tool.invoke"}}
	asked.Subject = evaluation.Entity{Type: "user", ID: fmt.Sprint("user-", unique(n, 10_000)), Properties: ofSales}
	asked.Resource = evaluation.Entity{Type: "tool", ID: fmt.Sprint("tool-", unique(n, 1000))}
	asked.Context = ofSales
	e.Request = &record.Request{Asked: asked}
	e.Decision.Allow = n%7 != 0
	return e
}

// ofSales are properties and a context.
var ofSales, _ = evaluation.NewObject(map[string]any{"department": "sales", "purpose": "two\nlines"})

func unique(n, among int) int {
	if n%10 == 0 {
		return n + among
	}
	return n % among
}

// How long does a page of 100 take, of a million records?
func BenchmarkQueryMillion(b *testing.B) {
	l := mustOpen(b, b.TempDir(), Options{Index: true})
	defer func() { _ = l.Close() }()
	const million = 1_000_000
	for n := 0; n < million; n += 1000 {
		entries := make([]record.Entry, 1000)
		for i := range entries {
			entries[i] = typical(n + i)
		}
		mustAppend(b, l, entries...)
	}
	settled(b, l)
	first, err := l.Get(1)
	must(b, err)
	begun, _ := segment.ParseTime(first.Line)
	took := time.Since(begun)
	b.Run("by=id", func(b *testing.B) {
		var found bound.Passes
		for n := 0; b.Loop(); n++ {
			begun := time.Now()
			if _, err := l.ByID(fmt.Sprintf("0197f0c0-0000-7000-8000-%012d", n*7919%million)); err != nil {
				b.Fatal(err)
			}
			found.Took(time.Since(begun))
		}
		bound.Check(b, found.Median(), "ms-median", 20)
	})
	for name, f := range map[string]record.Filter{
		"time":           {From: begun.Add(took / 3), To: begun.Add(took / 2)},
		"subject":        {Subject: "user-77"},
		"subject-once":   {Subject: "user/user-20000"},
		"subject-nobody": {Subject: "nobody"},
		"resource":       {Resource: "tool/tool-77"},
		"decision":       {Decision: "deny"},
		"all-of-it":      {From: begun.Add(took / 3), Tenant: "tenant-7", Subject: "user-7777", Decision: "allow", Kind: format.KindDecision},
	} {
		for _, newest := range []bool{true, false} {
			b.Run(fmt.Sprintf("by=%s/newest=%v", name, newest), func(b *testing.B) {
				var longest time.Duration
				var pages bound.Passes
				for b.Loop() {
					q, begun := Query{Filter: f, Newest: newest, Limit: 100}, time.Now()
					if newest {
						q.Cursor = End
					}
					page, err := l.Query(b.Context(), q)
					if err != nil || len(page.Lines) == 0 && f.Subject != "nobody" {
						b.Fatal(len(page.Lines), err)
					}
					took := time.Since(begun)
					longest = max(longest, took)
					pages.Took(took)
				}
				bound.Check(b, pages.Median(), "ms-median", 20)
				b.ReportMetric(float64(longest.Microseconds())/1000, "ms-max")
			})
		}
	}
}
