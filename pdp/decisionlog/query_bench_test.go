package decisionlog

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// What does the index cost a record that is made durable? Both in one run, because
// only their ratio means something on a machine that others use.
func BenchmarkIndexCost(b *testing.B) {
	const callers, records = 128, 100_000
	var used [2]time.Duration
	for range b.N {
		for i, index := range []bool{false, true} {
			l := mustOpen(b, b.TempDir(), Options{Index: index})
			before := cpu()
			var left atomic.Int64
			left.Store(records)
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					for n := left.Add(-1); n >= 0; n = left.Add(-1) {
						if _, err := l.Append(context.Background(), []Entry{typical(int(n))}); err != nil {
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
			used[i] += cpu() - before
			if err := l.Close(); err != nil {
				b.Fatal(err)
			}
		}
	}
	per := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(b.N) / records }
	b.ReportMetric(per(used[0]), "cpu-µs/record-without")
	b.ReportMetric(per(used[1]), "cpu-µs/record-with")
	b.ReportMetric(float64(used[1])/float64(used[0]), "ratio")
}

// typical is a record as a gateway's: a tenth of the subjects and resources are seen
// once only.
func typical(n int) Entry {
	e := entry(fmt.Sprintf("0197f0c0-0000-7000-8000-%012d", n))
	e.Tenant = fmt.Sprint("tenant-", n%10)
	e.Request.Subject = jsontext.Value(fmt.Sprintf(`{"type":"user","id":"user-%d","properties":{"department":"sales"}}`, unique(n, 10_000)))
	e.Request.Resource = jsontext.Value(fmt.Sprintf(`{"type":"tool","id":"tool-%d"}`, unique(n, 1000)))
	e.Decision.Allow = n%7 != 0
	return e
}

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
		entries := make([]Entry, 1000)
		for i := range entries {
			entries[i] = typical(n + i)
		}
		mustAppend(b, l, entries...)
	}
	settled(b, l)
	first, err := l.Get(1)
	if err != nil {
		b.Fatal(err)
	}
	begun, _ := timeOf(first.Line)
	took := time.Since(begun)
	b.Run("by=id", func(b *testing.B) {
		for n := 0; b.Loop(); n++ {
			if _, err := l.ByID(fmt.Sprintf("0197f0c0-0000-7000-8000-%012d", n*7919%million)); err != nil {
				b.Fatal(err)
			}
		}
	})
	for name, f := range map[string]Filter{
		"time":           {From: begun.Add(took / 3), To: begun.Add(took / 2)},
		"subject":        {Subject: "user-77"},
		"subject-once":   {Subject: "user/user-20000"},
		"subject-nobody": {Subject: "nobody"},
		"resource":       {Resource: "tool/tool-77"},
		"decision":       {Decision: "deny"},
		"all-of-it":      {From: begun.Add(took / 3), Tenant: "tenant-7", Subject: "user-7777", Decision: "allow", Kind: KindDecision},
	} {
		for _, newest := range []bool{true, false} {
			b.Run(fmt.Sprintf("by=%s/newest=%v", name, newest), func(b *testing.B) {
				var longest time.Duration
				for b.Loop() {
					q, begun := Query{Filter: f, Newest: newest, Limit: 100}, time.Now()
					if newest {
						q.Cursor = End
					}
					page, err := l.Query(b.Context(), q)
					if err != nil || len(page.Lines) == 0 && f.Subject != "nobody" {
						b.Fatal(len(page.Lines), err)
					}
					longest = max(longest, time.Since(begun))
				}
				b.ReportMetric(float64(longest.Microseconds())/1000, "ms-max")
			})
		}
	}
}
