package decisionlog

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"policy-service/pdp/pdptest/bound"
)

// How long is the writer kept by rotation and by retention of full segments, by
// its own spans, while it is written to as fast as it goes?
func BenchmarkWriterKeptAt1CallerOf1000(b *testing.B)   { writerKept(b, 1, 1000, 20) }
func BenchmarkWriterKeptAt64CallersOf1(b *testing.B)    { writerKept(b, 64, 1, 10) }
func BenchmarkWriterKeptAt64CallersOf1000(b *testing.B) { writerKept(b, 64, 1000, 20) }

func writerKept(b *testing.B, callers, records, segments int) {
	var rotations, replacements []time.Duration
	for b.Loop() {
		ctx, stop := context.WithCancel(b.Context())
		sealed := make(chan struct{}, 1)
		l := mustOpen(b, b.TempDir(), Options{
			On: Hooks{
				Rotate: func(_ uint64, kept time.Duration) {
					rotations = append(rotations, kept)
					select {
					case sealed <- struct{}{}:
					default:
					}
				},
				Replace: func(_ uint64, kept time.Duration) { replacements = append(replacements, kept) },
			},
		})
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				for ctx.Err() == nil {
					entries := make([]Entry, records)
					for i := range entries {
						entries[i] = entryOf("", true)
					}
					if err := l.Append(b.Context(), entries); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		for retired := 0; retired < segments && !b.Failed(); { // as serve does: after each segment that was sealed
			<-sealed
			done, err := l.Retain(b.Context(), Retention{Bytes: 128 << 20}, time.Now())
			if err != nil {
				b.Error(err)
			}
			retired += len(done.Segments)
		}
		stop()
		wg.Wait()
		if err := l.Close(); err != nil { // so that the lists are ours
			b.Fatal(err)
		}
	}
	for unit, all := range map[string][]time.Duration{"ms-rotation": rotations, "ms-replacement": replacements} {
		report(b, all, unit)
		var spans bound.Passes
		for _, kept := range all {
			spans.Took(kept)
		}
		bound.Check(b, spans.Median(), "median-"+unit, 20) // the longest ones are the disk's, or whoever else had the processor
	}
}

// report reports how durations are distributed.
func report(b *testing.B, all []time.Duration, unit string) {
	if len(all) == 0 {
		b.Fatal("there was none: ", unit)
	}
	slices.SortFunc(all, cmp.Compare)
	for _, part := range []struct {
		name string
		at   int
	}{{"p99", len(all) * 99 / 100}, {"max", len(all) - 1}} {
		b.ReportMetric(float64(all[part.at].Microseconds())/1000, part.name+"-"+unit)
	}
	b.ReportMetric(float64(len(all))/float64(b.N), unit[len("ms-"):]+"s")
}
