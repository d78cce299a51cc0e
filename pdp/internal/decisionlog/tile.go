package decisionlog

import (
	"fmt"
	"policy-service/pdp/internal/decisionlog/segment"
	"sync"

	"golang.org/x/mod/sumdb/tlog"
)

// tileWidth is how many hashes a whole tile has.
const tileWidth = 256

// Signed is the newest checkpoint. It is durable, and so are its records. It is in memory: nothing is read, made or
// signed. The error is [segment.ErrNotFound] if the log has none yet.
func (l *Log) Signed() (segment.Checkpoint, error) {
	if c := l.writer.told.signed.Load(); c != nil {
		return *c, nil
	}
	return segment.Checkpoint{}, fmt.Errorf("%w: there is no checkpoint yet", segment.ErrNotFound)
}

// sign keeps the newest checkpoint for [Log.Signed].
func (t *told) sign(note []byte) {
	if c, err := segment.ParseCheckpoint(note, nil); err == nil { // it is the writer's own
		t.signed.Store(&c)
	}
}

// Tile is the hashes of a tile of C2SP tlog-tiles, one behind the other. The error is [segment.ErrNotFound] if the checkpoint
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
	data, err := l.tiles.read(all, tlog.HashReaderFunc(l.Glance))
	if err != nil {
		return nil, err
	}
	return data[:t.W*tlog.HashSize], nil
}

// tiles keeps tiles that were read: above the lowest level, hashes stand far apart, in many segments. It keeps at least
// the newest tilesKept, and at most twice as many. The zero value is empty.
type tiles struct {
	mu       sync.Mutex
	now, old map[tlog.Tile][]byte // by tile, as if it was whole
}

const tilesKept = 64

// read is a tile. What is there of it already is not read again. The caller must not write to it.
func (t *tiles) read(tile tlog.Tile, r tlog.HashReader) ([]byte, error) {
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
