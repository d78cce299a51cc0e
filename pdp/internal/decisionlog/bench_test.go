package decisionlog

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/pdptest/bound"
)

// What does a durable record cost, and how many share a commit?
func BenchmarkAppendStrict1(b *testing.B)             { appendStrict(b, 1) }
func BenchmarkAppendStrict16(b *testing.B)            { appendStrict(b, 16) }
func BenchmarkAppendStrict128Concurrent(b *testing.B) { appendStrict(b, 128) }

func appendStrict(b *testing.B, callers int) {
	var commits, records, size int
	l := mustOpen(b, b.TempDir(), Options{
		On: Hooks{
			Commit: func(c Commit) { commits, records, size = commits+1, records+c.Records, size+c.Bytes },
		},
	})
	var left atomic.Int64
	left.Store(int64(b.N))
	before := cpu()
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for g := range callers {
		wg.Go(func() {
			for n := left.Add(-1); n >= 0; n = left.Add(-1) {
				if err := l.Append(context.Background(), []record.Entry{entry(fmt.Sprintf("0197f0c0-0000-7000-8000-%04d%08d", g, n))}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	used := cpu() - before
	must(b, l.Close())
	b.ReportMetric(float64(records)/float64(commits), "records/commit")
	b.ReportMetric(float64(used.Microseconds())/float64(b.N), "cpu-µs/record")
	b.ReportMetric(float64(size)/float64(records), "line-bytes/record")
	if bytes := l.Status().Bytes; bytes > 8*allocSize {
		b.ReportMetric(float64(bytes)/float64(records), "disk-bytes/record")
	}
}

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// How long does a start take with a million records, and what does reading all of it cost?
func BenchmarkOpenMillion(b *testing.B) {
	data := b.TempDir()
	o := Options{}
	l := mustOpen(b, data, o)
	for n := 0; n < 1_000_000; n += 1000 {
		entries := make([]record.Entry, 1000)
		for i := range entries {
			entries[i] = entry(fmt.Sprintf("0197f0c0-0000-7000-8000-%012d", n+i))
		}
		mustAppend(b, l, entries...)
	}
	crash(l) // the slower start
	var starts bound.Passes
	for b.Loop() {
		start := time.Now()
		l := mustOpen(b, data, o)
		starts.Took(time.Since(start))
		b.StopTimer()
		crash(l)
		b.StartTimer()
	}
	l = mustOpen(b, data, o)
	start, n := time.Now(), 0
	for _, err := range l.Records(b.Context(), 0, l.Size()) {
		if n++; err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(n)/time.Since(start).Seconds(), "read-records/s")
	b.ReportMetric(float64(len(l.Segments())), "segments")
	crash(l)
	bound.Check(b, starts.Median(), "ms-median", 2000)
}

// What does it cost to have the log vouch for a record, of which a use of an approval
// asks two or more, in a log of 100,000: covered by a checkpoint already, or by one that
// is made for it?
func BenchmarkAttest(b *testing.B) {
	l := mustOpen(b, b.TempDir(), Options{})
	const records = 100_000
	for n := 0; n < records; n += 1000 {
		entries := make([]record.Entry, 1000)
		for i := range entries {
			entries[i] = entry(fmt.Sprint(n + i))
		}
		mustAppend(b, l, entries...)
	}
	attest := func(b *testing.B, id string) {
		if _, err := l.Attest(b.Context(), id); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("covered", func(b *testing.B) {
		b.ReportAllocs()
		for n := 0; b.Loop(); n++ {
			attest(b, fmt.Sprint(n*7919%records))
		}
	})
	made := 0
	b.Run("new", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			id := fmt.Sprint("new ", made)
			mustAppend(b, l, entry(id))
			made++
			b.StartTimer()
			attest(b, id)
		}
	})
}
