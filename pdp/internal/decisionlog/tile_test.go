package decisionlog

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
	"sync"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// logOf is a log of so many records, signed, in segments of some size.
func logOf(t testing.TB, records int, o Options) *Log {
	t.Helper()
	l := mustOpen(t, t.TempDir(), o)
	var some []record.Entry
	for n := int(l.Size()); n < records; n++ {
		some = append(some, entry(fmt.Sprintf("r%d", n)))
		if len(some) == 1000 || n == records-1 {
			must(t, l.Append(t.Context(), some))
			some = nil
		}
	}
	if _, err := l.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	return l
}

// Tiles are those of the tree, and there are no others.
func TestTilesAreTheTree(t *testing.T) {
	t.Parallel()
	l := logOf(t, 1500, Options{SegmentBytes: 256 << 10})
	if len(l.Segments()) < 3 {
		t.Fatalf("there are %d segments", len(l.Segments()))
	}
	var memory tlog.HashReader = hashesOf(t, l)
	size := int64(l.Size())
	for level := range 3 {
		for n := range size/256 + 2 {
			for _, w := range []int{1, 2, 100, 255, 256} {
				tile := tlog.Tile{H: 8, L: level, N: n, W: w}
				there := n*256+int64(w) <= size>>(8*level)
				data, err := l.Tile(tile)
				if !there {
					if !errors.Is(err, segment.ErrNotFound) {
						t.Fatalf("%s: %v", tile.Path(), err)
					}
					continue
				}
				want, wantErr := tlog.ReadTileData(tile, memory)
				if err := errors.Join(err, wantErr); err != nil || !bytes.Equal(data, want) {
					t.Fatalf("%s: %v, or it is not of the tree", tile.Path(), err)
				}
			}
		}
	}
	for _, tile := range []tlog.Tile{
		{H: 8, L: -1, W: 1}, {H: 8, N: -1, W: 1}, {H: 8, W: 0}, {H: 8, W: 257}, {H: 7, W: 1}, {H: 8, L: 63, W: 1}, {H: 8, L: 7, W: 1},
		{H: 8, N: 1<<63 - 1, W: 1}, {H: 8, N: 1 << 56, W: 1},
	} {
		if _, err := l.Tile(tile); !errors.Is(err, segment.ErrNotFound) {
			t.Errorf("%+v: %v", tile, err)
		}
	}
}

// hashesOf makes the tree of the records again.
func hashesOf(t *testing.T, l *Log) tlog.HashReader {
	t.Helper()
	var stored []tlog.Hash
	read := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		out := make([]tlog.Hash, len(indexes))
		for i, index := range indexes {
			out[i] = stored[index]
		}
		return out, nil
	})
	for r, err := range l.Records(t.Context(), 0, l.Size()) {
		must(t, err)
		hashes, err := tlog.StoredHashes(int64(r.Sequence), r.Line, read)
		must(t, err)
		stored = append(stored, hashes...)
	}
	return read
}

// A tile grows with the checkpoints, and not with the records.
func TestTilesEndWithTheCheckpoint(t *testing.T) {
	t.Parallel()
	never := Checkpoints{Records: 1 << 20, Bytes: 1 << 40, Every: 1 << 50, Idle: 1 << 50}
	l := logOf(t, 10, Options{Checkpoints: never})
	signed, err := l.Signed()
	if err != nil || signed.Size != l.Size() {
		t.Fatal(signed.Size, err)
	}
	tile := tlog.Tile{H: 8, W: int(signed.Size)}
	before, err := l.Tile(tile)
	must(t, err)
	mustAppend(t, l, entry("more"))
	if now, err := l.Signed(); err != nil || now.Size != signed.Size {
		t.Errorf("signed are %d, %v", now.Size, err)
	}
	tile.W++
	if _, err := l.Tile(tile); !errors.Is(err, segment.ErrNotFound) {
		t.Errorf("a tile has a record that no checkpoint covers: %v", err)
	}
	if _, err := l.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	after, err := l.Tile(tile)
	if err != nil || !bytes.HasPrefix(after, before) || len(after) != len(before)+tlog.HashSize {
		t.Errorf("%v: the tile did not grow by a hash", err)
	}
}

// A start serves the checkpoint of before it, at once.
func TestSignedAfterAStart(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	l := mustOpen(t, data, Options{})
	mustAppend(t, l, entry("a"))
	must(t, l.Close())
	closed, err := l.Signed()
	must(t, err)
	l = mustOpen(t, data, Options{Checkpoints: Checkpoints{Every: 1 << 50, Idle: 1 << 50}})
	if opened, err := l.Signed(); err != nil || !bytes.Equal(opened.Note, closed.Note) {
		t.Errorf("%v: signed is %s, and was %s", err, opened.Note, closed.Note)
	}
}

func TestWitnessedIsOfThisLog(t *testing.T) {
	t.Parallel()
	l := logOf(t, 20, Options{})
	if c, err := l.Witnessed(); !errors.Is(err, segment.ErrNotFound) {
		t.Fatalf("%+v, %v", c, err)
	}
	signed, err := l.Signed()
	must(t, err)
	must(t, l.KeepWitnessed(signed.Note))
	mustAppend(t, l, entry("more"))
	if c, err := l.Witnessed(); err != nil || c.Size != signed.Size {
		t.Fatalf("%+v, %v", c, err)
	}
	other := logOf(t, 20, Options{Origin: signed.Origin})
	foreign, err := other.Signed()
	must(t, err)
	fork := segment.Checkpoint{Origin: signed.Origin, Size: 5, Root: foreign.Root}
	ahead := segment.Checkpoint{Origin: signed.Origin, Size: l.Size() + 1, Root: foreign.Root}
	for _, c := range []*segment.Checkpoint{&fork, &ahead} {
		must(t, c.Sign(l.writer.key.Signer))
	}
	for name, c := range map[string]struct {
		note []byte
		want error
	}{
		"of another key":    {foreign.Note, nil},
		"of another tree":   {fork.Note, segment.ErrForked},
		"of more records":   {ahead.Note, segment.ErrForked},
		"with a lost line":  {bytes.Replace(signed.Note, []byte("\n\n"), []byte("\n"), 1), nil},
		"no checkpoint":     {[]byte("x"), nil},
		"of too many bytes": {bytes.Repeat([]byte("x"), format.MaxCheckpointBytes+1), nil},
	} {
		must(t, os.WriteFile(filepath.Join(l.data, format.WitnessedFile), c.note, 0o600))
		if got, err := l.Witnessed(); err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	must(t, os.WriteFile(filepath.Join(l.data, format.WitnessedFile), nil, 0o600))
	var unverified *note.UnverifiedNoteError
	if _, err := l.Witnessed(); err == nil || errors.As(err, &unverified) {
		t.Errorf("an empty file: %v", err)
	}
}

// BenchmarkTile reads tiles that were not read before.
func BenchmarkTile(b *testing.B) {
	l := logOf(b, 200_000, Options{SegmentBytes: 4 << 20})
	b.Logf("%d segments", len(l.Segments()))
	for _, tile := range []tlog.Tile{{H: 8, L: 0, N: 5, W: 256}, {H: 8, L: 1, N: 1, W: 256}, {H: 8, L: 2, N: 0, W: 3}} {
		b.Run(fmt.Sprintf("level%d", tile.L), func(b *testing.B) {
			for b.Loop() {
				l.tiles = tiles{}
				if _, err := l.Tile(tile); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Readers of tiles meet the writer and each other: each tile is that of the tree in the end, however early it was read.
func TestTilesWhileTheLogGrows(t *testing.T) {
	t.Parallel()
	l := mustOpen(t, t.TempDir(), Options{SegmentBytes: 64 << 10, Checkpoints: Checkpoints{Records: 50}})
	done := make(chan struct{})
	read := make([]map[tlog.Tile][]byte, 4)
	var readers sync.WaitGroup
	for i := range read {
		read[i] = map[tlog.Tile][]byte{}
		readers.Go(func() {
			for n := 0; ; n++ {
				c, err := l.Signed()
				select {
				case <-done:
					return
				default:
				}
				if err != nil {
					continue
				}
				level := n % 2
				hashes := int64(c.Size) >> (8 * level)
				if hashes == 0 {
					continue
				}
				tile := tlog.Tile{H: 8, L: level, N: (hashes - 1) / 256, W: int((hashes-1)%256) + 1}
				if read[i][tile], err = l.Tile(tile); err != nil {
					t.Errorf("%s of %d records: %v", tile.Path(), c.Size, err)
					return
				}
			}
		})
	}
	for n := range 600 {
		mustAppend(t, l, entry(fmt.Sprintf("r%d", n)))
	}
	close(done)
	readers.Wait()
	memory, seen := hashesOf(t, l), 0
	for _, tiles := range read {
		for tile, data := range tiles {
			seen++
			if want, err := tlog.ReadTileData(tile, memory); err != nil || !bytes.Equal(data, want) {
				t.Errorf("%s: %v, or it was not of the tree", tile.Path(), err)
			}
		}
	}
	if seen < 4 {
		t.Errorf("%d tiles were read", seen)
	}
}
