package export

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
)

// An export of many records takes the memory of few.
func TestExportMemory(t *testing.T) {
	t.Parallel()
	l := fillLog(t, 40_000)
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	s, err := l.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	var peak peakHeap
	done, err := Log{s}.Export(t.Context(), &peak, Options{Filter: record.Filter{Tenant: "acme"}})
	if err != nil {
		t.Fatal(err)
	}
	if grown := int64(peak) - int64(before.HeapAlloc); done.Size < 40_000 || peak == 0 || grown > 4<<20 {
		t.Errorf("%d bytes more for %d records", grown, done.Size)
	}
}

// A merge of many records takes the memory of few.
func TestMergeMemory(t *testing.T) {
	dir := t.TempDir()
	var inputs []Input
	for n := range 3 {
		l := fillLog(t, 20_000)
		s, err := l.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.Create(filepath.Join(dir, fmt.Sprint(n)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		if _, err := (Log{s}).Export(t.Context(), f, Options{}); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		inputs = append(inputs, Input{f.Name(), f})
	}
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var peak peakHeap
	records, err := Merge(&peak, inputs)
	if err != nil {
		t.Fatal(err)
	}
	if grown := int64(peak) - int64(before.HeapAlloc); records < 60_000 || peak == 0 || grown > 4<<20 {
		t.Errorf("%d bytes more for %d records", grown, records)
	}
}

// peakHeap is the largest heap at any write.
type peakHeap uint64

func (p *peakHeap) Write(b []byte) (int, error) {
	runtime.GC()
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	*p = max(*p, peakHeap(now.HeapAlloc))
	return len(b), nil
}

// How many records a second does an export write?
func BenchmarkExportRecordsPerSecond(b *testing.B) {
	l := fillLog(b, 50_000)
	for name, o := range map[string]Options{"ndjson": {}, "proofs": {Proofs: true}, "filtered": {Filter: record.Filter{Tenant: "acme"}}, "csv": {Format: "csv"}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var records int64
			for b.Loop() {
				s, err := l.Snapshot()
				if err != nil {
					b.Fatal(err)
				}
				done, err := Log{s}.Export(b.Context(), io.Discard, o)
				if err != nil {
					b.Fatal(err)
				}
				records += done.Size
			}
			b.ReportMetric(float64(records)/b.Elapsed().Seconds(), "records/s")
		})
	}
}

func fillLog(tb testing.TB, n int) *decisionlog.Log {
	tb.Helper()
	l, err := decisionlog.Open(tb.TempDir(), decisionlog.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = l.Close() })
	for from := 0; from < n; from += 1000 {
		var entries []record.Entry
		for i := from; i < from+1000; i++ {
			entries = append(entries, entryOf(fmt.Sprintf("r-%d", i), i%3 == 0))
		}
		if err := l.Append(tb.Context(), entries); err != nil {
			tb.Fatal(err)
		}
	}
	if _, err := l.Checkpoint(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return l
}

func entryOf(id string, allow bool) record.Entry {
	tenant := "default"
	if strings.HasSuffix(id, "7") {
		tenant = "acme"
	}
	return record.Entry{
		ID:     id,
		Kind:   format.KindDecision,
		Tenant: tenant,
		Caller: "key:pep",
		Request: &record.Request{
			Subject:  jsontext.Value(fmt.Sprintf(`{"type":"user","id":"subject-of-%s"}`, id)),
			Action:   jsontext.Value(`{"name":"read"}`),
			Resource: jsontext.Value(`{"type":"doc","id":"plan"}`),
			Context:  jsontext.Value(fmt.Sprintf(`{"note":"content-of-%s"}`, id)),
		},
		Decision: &record.Decision{Allow: allow, Determining: []string{"p1"}},
	}
}
