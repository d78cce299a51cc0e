package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"policy-service/pdp/internal/decisionlog/record"

	"golang.org/x/mod/sumdb/tlog"
)

// edge is the right edge of the tree: the hashes of the greatest whole subtrees
// that cover it, largest first. A tree grows, and its root is known, from its
// edge alone: the writer reads nothing.
type Edge struct {
	Size   uint64
	Hashes []tlog.Hash
}

// hash is the hash of an index that stands on the edge.
func (e Edge) Hash(index int64) (tlog.Hash, error) {
	level, n := tlog.SplitStoredHashIndex(index)
	if e.Size>>level&1 == 0 || uint64(n) != e.Size>>level-1 {
		return tlog.Hash{}, fmt.Errorf("hash %d is not on the edge of a tree of %d", index, e.Size)
	}
	return e.Hashes[bits.OnesCount64(e.Size>>(level+1))], nil
}

// hashOf is a [tlog.HashReader] that reads the hashes one by one.
type HashOf func(index int64) (tlog.Hash, error)

// ReadHashes implements [tlog.HashReader].
func (f HashOf) ReadHashes(indexes []int64) (out []tlog.Hash, err error) {
	out = make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		if out[i], err = f(index); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// add adds a leaf, and appends the hashes to store with it.
func (e *Edge) Add(stored []byte, leaf tlog.Hash) []byte {
	hash := leaf
	stored = append(stored, hash[:]...)
	for n := e.Size; n&1 == 1; n >>= 1 {
		last := len(e.Hashes) - 1
		hash = tlog.NodeHash(e.Hashes[last], hash)
		e.Hashes = e.Hashes[:last]
		stored = append(stored, hash[:]...)
	}
	e.Hashes = append(e.Hashes, hash)
	e.Size++
	return stored
}

// extend adds a leaf, and reports whether the hashes stored with it are those of the tree.
func (e *Edge) extend(leaf tlog.Hash, stored []byte) (same bool) {
	var some [8 * tlog.HashSize]byte // mostly enough
	return bytes.Equal(e.Add(some[:0], leaf), stored)
}

func (e Edge) Clone() Edge {
	return Edge{e.Size, append(make([]tlog.Hash, 0, len(e.Hashes)+1), e.Hashes...)}
}

func (e Edge) Root() (tlog.Hash, error) { return tlog.TreeHash(int64(e.Size), HashOf(e.Hash)) }

// then reads from the edge what was complete with it, and all else from r: the segments
// before it need not be here.
func (e Edge) Then(r tlog.HashReader) tlog.HashReader {
	return SplitAt(e.Size, HashOf(e.Hash), r)
}

// splitAt reads from one reader what is complete before the tree has a size, and all else from another.
func SplitAt(size uint64, first, then tlog.HashReader) tlog.HashReader {
	return HashOf(func(index int64) (tlog.Hash, error) {
		from := then
		if sequence, _ := completes(index); sequence < size {
			from = first
		}
		one, err := from.ReadHashes([]int64{index})
		if err != nil {
			return tlog.Hash{}, err
		}
		return one[0], nil
	})
}

// begins holds an edge against one that the tree has later: it must be the beginning of
// that tree.
func (e Edge) Begins(later Edge, r tlog.HashReader) error {
	root, err := e.Root()
	grown, err2 := later.Root()
	proof, err3 := tlog.ProveTree(int64(later.Size), int64(e.Size), r)
	if err := errors.Join(err, err2, err3); err != nil {
		return err
	}
	if err := tlog.CheckTree(proof, int64(later.Size), grown, int64(e.Size), root); err != nil {
		return fmt.Errorf("%w: %w", record.ErrDamaged, err)
	}
	return nil
}

// edgeAt reads the edge of the tree of a size.
func edgeAt(size uint64, r tlog.HashReader) (Edge, error) {
	var indexes []int64
	for level := 63; level >= 0; level-- {
		if size>>level&1 == 1 {
			indexes = append(indexes, tlog.StoredHashIndex(level, int64(size>>level-1)))
		}
	}
	hashes, err := r.ReadHashes(indexes)
	return Edge{size, hashes}, err
}

// completes says which record a stored hash stands with, and where in its value.
func completes(index int64) (sequence uint64, level int) {
	level, n := tlog.SplitStoredHashIndex(index)
	return uint64(n+1)<<level - 1, level
}

func Number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// readNumber reads what number wrote; anything else is 0 and false.
func ReadNumber(b []byte) (uint64, bool) {
	if len(b) != 8 {
		return 0, false
	}
	return binary.BigEndian.Uint64(b), true
}

func JoinHashes(hashes []tlog.Hash) []byte {
	b := make([]byte, 0, tlog.HashSize*len(hashes))
	for i := range hashes {
		b = append(b, hashes[i][:]...)
	}
	return b
}

func splitHashes(b []byte) ([]tlog.Hash, error) {
	if len(b)%tlog.HashSize != 0 {
		return nil, fmt.Errorf("%w: a list of hashes has %d bytes", record.ErrDamaged, len(b))
	}
	hashes := make([]tlog.Hash, len(b)/tlog.HashSize)
	for i := range hashes {
		copy(hashes[i][:], b[i*tlog.HashSize:])
	}
	return hashes, nil
}
