package decisionlog

import (
	"fmt"
	"io"
	"runtime"
	"testing"
)

// An export of many records takes the memory of few.
func TestExportMemory(t *testing.T) {
	l := fillLog(t, 40_000)
	var before, peak runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	progress := func(int64, int64) {
		runtime.GC()
		var now runtime.MemStats
		if runtime.ReadMemStats(&now); now.HeapAlloc > peak.HeapAlloc {
			peak = now
		}
	}
	s, err := l.snapshot(nil)
	if err != nil {
		t.Fatal(err)
	}
	done, err := s.Export(t.Context(), io.Discard, ExportOptions{Filter: Filter{Tenant: "acme"}, Progress: progress})
	if err != nil {
		t.Fatal(err)
	}
	if grown := int64(peak.HeapAlloc) - int64(before.HeapAlloc); done.Size < 40_000 || grown > 4<<20 {
		t.Errorf("%d bytes more for %d records", grown, done.Size)
	}
}

// How many records a second does an export write?
func BenchmarkExportRecordsPerSecond(b *testing.B) {
	l := fillLog(b, 50_000)
	for name, o := range map[string]ExportOptions{"ndjson": {}, "proofs": {Proofs: true}, "filtered": {Filter: Filter{Tenant: "acme"}}, "csv": {Format: "csv"}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var records int64
			for b.Loop() {
				s, err := l.snapshot(nil)
				if err != nil {
					b.Fatal(err)
				}
				done, err := s.Export(b.Context(), io.Discard, o)
				if err != nil {
					b.Fatal(err)
				}
				records += done.Size
			}
			b.ReportMetric(float64(records)/b.Elapsed().Seconds(), "records/s")
		})
	}
}

func fillLog(tb testing.TB, n int) *Log {
	tb.Helper()
	l, err := Open(tb.TempDir(), Options{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = l.Close() })
	for from := 0; from < n; from += 1000 {
		var entries []Entry
		for i := from; i < from+1000; i++ {
			entries = append(entries, entryOf(fmt.Sprintf("r-%d", i), i%3 == 0))
		}
		if _, err := l.Append(tb.Context(), entries); err != nil {
			tb.Fatal(err)
		}
	}
	if _, err := l.Checkpoint(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return l
}
