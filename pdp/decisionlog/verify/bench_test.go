package verify_test

import (
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"testing"

	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/decisionlog/export"
	"policy-service/pdp/internal/decisionlog/segment"
)

var million = flag.Int("records", 1_000_000, "how many records the benchmark of verify reads")

// BenchmarkHowFastAndHowSmall: how many records a second, and in how much memory at most,
// which must not depend on how many there are.
func BenchmarkHowFastAndHowSmall(b *testing.B) {
	data := b.TempDir()
	l := openReal(b, data)
	for n := 0; n < *million; n += 5000 {
		appendReal(b, l, n, min(n+5000, *million))
	}
	check(b, l.Close())
	name := filepath.Join(data, "export")
	f, err := os.Create(name)
	check(b, err)
	check(b, segment.Read(data, func(s *segment.Snapshot) error {
		_, err := export.Log{Snapshot: s}.Export(b.Context(), f, export.Options{})
		return err
	}))
	check(b, f.Close())
	b.Run("directory", func(b *testing.B) {
		measure(b, func(o verify.Options) verify.Report { return verify.Directory(data, o) })
	})
	b.Run("export", func(b *testing.B) {
		measure(b, func(o verify.Options) verify.Report {
			f, err := os.Open(name)
			check(b, err)
			defer func() { _ = f.Close() }()
			return verify.Export(f, o)
		})
	})
}

func measure(b *testing.B, do func(verify.Options) verify.Report) {
	debug.FreeOSMemory() // what writing the log took
	peak, records := uint64(0), int64(0)
	o := verify.Options{Record: func(n int64, _ []byte) {
		if n%(1<<16) == 0 {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak = max(peak, m.Sys-m.HeapReleased)
		}
	}}
	for b.Loop() {
		r := do(o)
		if !r.Verified() {
			b.Fatal(r.Problem)
		}
		records += r.Records
	}
	b.ReportMetric(float64(records)/b.Elapsed().Seconds(), "records/s")
	b.ReportMetric(float64(peak)/1e6, "peak-MB")
	b.ReportMetric(0, "ns/op")
}
