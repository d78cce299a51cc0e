package decisionlog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
)

// Most answered records are in the journal first, and in the segments a moment later. Has, ByID and Find see
// them at once: they wait until the segments have them, and fail if that cannot be known.

// Has reports whether there is or was a record with an id. While the log cannot be written that is unknown, and an error: the
// record that failed last may be there or not.
func (l *Log) Has(id string) (bool, error) {
	if !l.Status().OK {
		return false, segment.ErrUnavailable
	}
	_, err := l.ByID(id)
	switch {
	case err == nil, errors.Is(err, segment.ErrGone):
		return true, nil
	case errors.Is(err, segment.ErrNotFound):
		return false, nil
	}
	return false, err
}

// ByID returns the record with an id, as [segment.Reader.ByID] does. It first waits until the segments have all that was
// answered.
func (l *Log) ByID(id string) (record.Record, error) {
	ctx, cancel := context.WithTimeout(context.Background(), longestWait)
	defer cancel()
	if err := l.waitUntilFilled(ctx); err != nil {
		return record.Record{}, err
	}
	return l.Reader.ByID(id)
}

// Find finds a record by its id, as [Log.ByID] does, or by the id of one of its questions.
func (l *Log) Find(id string) (record.Record, error) { return segment.FindRecord(id, l.ByID) }

// longestWait is how long a read waits whose caller sets no end. Filling takes milliseconds, unless the disk hangs.
const longestWait = 10 * time.Second

// waitUntilFilled waits until the segments have all that was answered.
func (l *Log) waitUntilFilled(ctx context.Context) error { return l.writer.frames.waitUntilFilled(ctx) }

// Beyond waits until the log has more records than size. A follower of the log then
// reads the further records with [segment.Reader.Records]. They are durable.
func (l *Log) Beyond(ctx context.Context, size uint64) error {
	for {
		grown := *l.writer.told.grown.Load() // before the size is read: what comes after that closes this one
		if l.Size() > size {
			return nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Snapshot returns the log as of its newest checkpoint.
func (l *Log) Snapshot() (*segment.Snapshot, error) {
	last, err := l.LastCheckpointWithin(l.Size())
	if err != nil {
		return nil, err
	}
	return l.SnapshotTo(last)
}

// Settled returns a snapshot that [Log.At] can return again unchanged, until some of its
// content is removed. It ends before every removal that is under way, because a record
// that is being removed can be there in one read and gone in the next.
func (l *Log) Settled() (*segment.Snapshot, error) {
	last, err := l.LastCheckpointWithin(l.Size())
	if err != nil {
		return nil, err
	}
	// In this order: if a removal began before the checkpoint was read, its new file is
	// still here, or the removal is done.
	before, err := l.SizeBeforeRemovals()
	if err != nil {
		return nil, err
	}
	if before < last.Size {
		if last, err = l.LastCheckpointWithin(before); err != nil {
			return nil, err
		}
	}
	return l.WatchedSnapshot(last)
}

// At returns the log as it was at a moment, or [segment.ErrNotFound] if there was no such
// moment. If content was removed since, reading the snapshot fails with [segment.ErrChanged].
func (l *Log) At(m segment.Moment) (*segment.Snapshot, error) {
	if m.Size == 0 {
		return nil, segment.ErrNotFound
	}
	c, err := l.CheckpointAt(m)
	if err != nil {
		return nil, err
	}
	return l.WatchedSnapshot(c)
}

// tileWidth is the number of hashes in a whole tile.
const tileWidth = 256

// Signed returns the newest checkpoint from memory. The checkpoint is durable, and so are its records. The error is
// [segment.ErrNotFound] if the log has no checkpoint yet.
func (l *Log) Signed() (segment.Checkpoint, error) {
	if c := l.writer.told.signed.Load(); c != nil {
		return *c, nil
	}
	return segment.Checkpoint{}, fmt.Errorf("%w: there is no checkpoint yet", segment.ErrNotFound)
}

// Tile returns the hashes of a tile of C2SP tlog-tiles, concatenated. The error is [segment.ErrNotFound] if the checkpoint
// [Log.Signed] does not cover all of them.
func (l *Log) Tile(t tlog.Tile) ([]byte, error) {
	signed, err := l.Signed()
	if err != nil {
		return nil, err
	}
	if t.H != 8 || t.L < 0 || t.N < 0 || t.W < 1 || t.W > tileWidth {
		return nil, fmt.Errorf("%w: there is no tile %s", segment.ErrNotFound, t.Path())
	}
	hashes := signed.Size >> (t.H * t.L) // on this level
	if uint64(t.N) > hashes/tileWidth || uint64(t.N)*tileWidth+uint64(t.W) > hashes {
		return nil, fmt.Errorf("%w: the checkpoint of %d records does not cover tile %s", segment.ErrNotFound, signed.Size, t.Path())
	}
	all := t
	all.W = int(min(tileWidth, hashes-uint64(t.N)*tileWidth))
	data, err := l.tiles.readTile(all, tlog.HashReaderFunc(l.PeekHashes))
	if err != nil {
		return nil, err
	}
	return data[:t.W*tlog.HashSize], nil
}

// tiles caches tiles: above the lowest level, hashes are far apart, in many segments. It keeps at least
// the newest tilesKept, and at most twice as many. The zero value is empty.
type tiles struct {
	mu       sync.Mutex
	now, old map[tlog.Tile][]byte // by tile, as if it was whole
}

const tilesKept = 64

// readTile returns a tile. It reads only the hashes that the cache lacks. The caller must not write to the result.
func (t *tiles) readTile(tile tlog.Tile, r tlog.HashReader) ([]byte, error) {
	whole := tile
	whole.W = tileWidth
	data := t.get(whole)
	n := len(data) / tlog.HashSize
	if n >= tile.W {
		return data, nil
	}
	indexes := make([]int64, 0, tile.W)
	for i := n; i < tile.W; i++ {
		indexes = append(indexes, tlog.StoredHashIndex(tile.H*tile.L, tile.N*tileWidth+int64(i)))
	}
	hashes, err := r.ReadHashes(indexes)
	if err != nil {
		return nil, err
	}
	data = append(data[:len(data):len(data)], segment.JoinHashes(hashes)...)
	t.put(whole, data)
	return data, nil
}

func (t *tiles) get(whole tlog.Tile) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	data, found := t.now[whole]
	if !found {
		data = t.old[whole]
	}
	return data
}

func (t *tiles) put(whole tlog.Tile, data []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now == nil || len(t.now) >= tilesKept {
		t.now, t.old = map[tlog.Tile][]byte{}, t.now
	}
	t.now[whole] = data
}
