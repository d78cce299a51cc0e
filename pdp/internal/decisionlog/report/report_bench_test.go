package report

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/pdptest/night"
)

// How long does one pass over many records take (RECORDS, 50,000 by default)? One in
// four decisions owes something, and nobody ever reports.
func BenchmarkReportRecordsPerSecond(b *testing.B) { benchPass(b, reportOf) }

// And a sample of 25 of them?
func BenchmarkSampleRecordsPerSecond(b *testing.B) { benchPass(b, sampleOf) }

// And the counts of `log stats`?
func BenchmarkStatsRecordsPerSecond(b *testing.B) {
	benchPass(b, func(tb testing.TB, s *segment.Snapshot) {
		if _, err := Count(tb.Context(), s); err != nil {
			tb.Fatal(err)
		}
	})
}

func reportOf(tb testing.TB, s *segment.Snapshot) {
	if _, err := Make(tb.Context(), s, Options{}); err != nil {
		tb.Fatal(err)
	}
}

func sampleOf(tb testing.TB, s *segment.Snapshot) {
	if _, err := Choose(tb.Context(), s, SampleOptions{N: 25, Seed: "s"}); err != nil {
		tb.Fatal(err)
	}
}

func benchPass(b *testing.B, pass func(testing.TB, *segment.Snapshot)) {
	records := 50_000
	if n, err := strconv.Atoi(os.Getenv("RECORDS")); err == nil {
		records = n
	}
	l := fillOwing(b, records)
	b.ReportAllocs()
	for b.Loop() {
		s, err := l.Snapshot()
		if err != nil {
			b.Fatal(err)
		}
		pass(b, s)
	}
	b.ReportMetric(float64(records)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

// fillOwing fills a log with decisions of which every fourth owes something.
func fillOwing(tb testing.TB, n int) *decisionlog.Log {
	tb.Helper()
	l := mustOpen(tb, tb.TempDir(), decisionlog.Options{})
	for from := 0; from < n; from += 1000 {
		var entries []record.Entry
		for i := from; i < min(n, from+1000); i++ {
			e := entryOf(fmt.Sprintf("0197f0c0-0000-7000-8000-%012d", i), i%3 == 0)
			e.Decision.Bundle = ""
			if i%4 == 0 {
				e.Decision.Obligations = []evaluation.Obligation{{ID: "tell-security", Type: "notification", Properties: object(map[string]any{"to": "#security"})}}
			}
			entries = append(entries, e)
		}
		mustAppend(tb, l, entries...)
	}
	if _, err := l.Checkpoint(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return l
}

// What a pass holds in memory does not grow with the decisions, but for what is owed.
func TestOnePassMemory(t *testing.T) {
	night.Measures(t)
	l := fillOwing(t, 40_000)
	s, err := l.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	passes := map[string]func(context.Context) error{
		"report": func(ctx context.Context) error { _, err := Make(ctx, s, Options{}); return err },
		"sample": func(ctx context.Context) error { _, err := Choose(ctx, s, SampleOptions{N: 25, Seed: "s"}); return err },
	}
	for name, pass := range passes {
		var now runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&now)
		before, peak, looked := now.HeapAlloc, uint64(0), 0
		ctx := watched{t.Context(), func() {
			looked++
			runtime.GC()
			runtime.ReadMemStats(&now)
			peak = max(peak, now.HeapAlloc)
		}}
		if err := pass(ctx); err != nil {
			t.Fatal(err)
		}
		// Of the 17 MB of lines a few are held at a time, and of 10,000 obligations some 50 bytes each.
		if grown := int64(peak) - int64(before); looked < 40_000/512 || grown > 4<<20 {
			t.Errorf("%s: %d bytes more, looked at %d times", name, grown, looked)
		}
	}
}

// watched is a context that is told when it is asked whether to go on: between two
// reads of some records.
type watched struct {
	context.Context
	asked func()
}

func (w watched) Err() error {
	w.asked()
	return w.Context.Err()
}
