package decisionlog

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/pdptest/bound"
)

// How long does the first read of a tile take in a log of a million records, whose segments no reader has opened yet? The
// hashes of level 2 stand farthest apart.
func BenchmarkTileMillion(b *testing.B) {
	l := logOf(b, 1_000_000, Options{SegmentBytes: 9 << 20})
	b.Logf("%d segments", len(l.Segments()))
	forget := func(files bool) {
		l.tiles = tiles{}
		for _, s := range sealedOf(l) {
			if files {
				err := errors.Join(s.Close(), os.Chtimes(s.Path, time.Time{}, time.Now())) // then it is looked through again
				if err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	for _, test := range []struct {
		tile  tlog.Tile
		files bool // are not open either
		most  float64
	}{
		{tlog.Tile{H: 8, L: 0, N: 2000, W: 256}, false, 0.1},
		{tlog.Tile{H: 8, L: 0, N: 2000, W: 256}, true, 0.3},
		{tlog.Tile{H: 8, L: 1, N: 7, W: 256}, true, 20},
		{tlog.Tile{H: 8, L: 2, N: 0, W: 15}, true, 20},
	} {
		b.Run(fmt.Sprintf("level%d/files-closed=%t", test.tile.L, test.files), func(b *testing.B) {
			forget(true)
			if !test.files { // a reader of records opens it
				for _, err := range l.Records(b.Context(), uint64(test.tile.N)*tileWidth, uint64(test.tile.N+1)*tileWidth) {
					must(b, err)
				}
			}
			var reads bound.Passes
			for b.Loop() {
				b.StopTimer()
				forget(test.files)
				b.StartTimer()
				start := time.Now()
				if _, err := l.Tile(test.tile); err != nil {
					b.Fatal(err)
				}
				reads.Took(time.Since(start))
			}
			bound.Check(b, reads.Median(), "ms-median", test.most)
			if open := openSealed(l); open > segment.MaxOpen {
				b.Errorf("%d files are open", open)
			}
		})
	}
}

// openSealed is how many files of sealed segments are open.
func openSealed(l *Log) (n int) {
	for _, s := range sealedOf(l) {
		if s.View(func(*bbolt.Tx) error { return nil }) == nil {
			n++
		}
	}
	return n
}

func sealedOf(l *Log) []*segment.File { return l.SegmentFiles()[:len(l.SegmentFiles())-1] }

// To read tiles opens no file for good: those that are open are for readers of records.
func TestTilesOpenNoSegment(t *testing.T) {
	t.Parallel()
	l := mustOpen(t, t.TempDir(), Options{})
	for n := range 2 * segment.MaxOpen {
		var entries []record.Entry
		for i := range 100 {
			entries = append(entries, entry(fmt.Sprint(n, " ", i)))
		}
		mustAppend(t, l, entries...)
		must(t, l.Rotate(t.Context()))
	}
	if _, err := l.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := openSealed(l)
	for n := range int64(l.Size()) / tileWidth {
		if _, err := l.Tile(tlog.Tile{H: 8, N: n, W: tileWidth}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Tile(tlog.Tile{H: 8, L: 1, W: int(l.Size() / tileWidth)}); err != nil {
		t.Fatal(err)
	}
	if open := openSealed(l); open != before {
		t.Errorf("%d files are open, and were %d", open, before)
	}
}
