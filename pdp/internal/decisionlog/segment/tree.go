package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"go.etcd.io/bbolt"
	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/internal/boltfile"
	"policy-service/pdp/internal/boltfile/pages"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
)

// Edge is the right edge of the tree: the hashes of the greatest whole subtrees, largest first. The edge is enough to add
// leaves and to compute the root, so the writer reads no hashes.
type Edge struct {
	Size   uint64
	Hashes []tlog.Hash
}

// Hash returns the hash with a stored index. It fails for an index that is not on the edge.
func (e Edge) Hash(index int64) (tlog.Hash, error) {
	level, n := tlog.SplitStoredHashIndex(index)
	if e.Size>>level&1 == 0 || uint64(n) != e.Size>>level-1 {
		return tlog.Hash{}, fmt.Errorf("hash %d is not on the edge of a tree of %d", index, e.Size)
	}
	return e.Hashes[bits.OnesCount64(e.Size>>(level+1))], nil
}

// AddLeaf adds a leaf. It appends the hashes to be stored with the leaf to stored.
func (e *Edge) AddLeaf(stored []byte, leaf tlog.Hash) []byte {
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

// addAndCompare adds a leaf and reports whether stored holds the hashes that belong to it.
func (e *Edge) addAndCompare(leaf tlog.Hash, stored []byte) (same bool) {
	var some [8 * tlog.HashSize]byte // usually enough
	return bytes.Equal(e.AddLeaf(some[:0], leaf), stored)
}

// Clone returns a copy to which leaves can be added.
func (e Edge) Clone() Edge {
	return Edge{e.Size, append(make([]tlog.Hash, 0, len(e.Hashes)+1), e.Hashes...)}
}

// Root returns the root of the tree.
func (e Edge) Root() (tlog.Hash, error) { return tlog.TreeHash(int64(e.Size), HashFunc(e.Hash)) }

// HashesWith returns a reader that takes hashes of the tree up to e from the edge, and later ones from r. The segments before
// the edge are not needed.
func (e Edge) HashesWith(r tlog.HashReader) tlog.HashReader {
	return SplitHashes(e.Size, HashFunc(e.Hash), r)
}

// SplitHashes returns a reader that takes hashes that are complete in a tree of a size from first, and all others from then.
func SplitHashes(size uint64, first, then tlog.HashReader) tlog.HashReader {
	return HashFunc(func(index int64) (tlog.Hash, error) {
		from := then
		if sequence, _ := locateHash(index); sequence < size {
			from = first
		}
		one, err := from.ReadHashes([]int64{index})
		if err != nil {
			return tlog.Hash{}, err
		}
		return one[0], nil
	})
}

// CheckBegins returns [record.ErrDamaged] unless the tree of e is the beginning of the tree of later.
func (e Edge) CheckBegins(later Edge, r tlog.HashReader) error {
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

// readEdge reads the edge of the tree of a size.
func readEdge(size uint64, r tlog.HashReader) (Edge, error) {
	var indexes []int64
	for level := 63; level >= 0; level-- {
		if size>>level&1 == 1 {
			indexes = append(indexes, tlog.StoredHashIndex(level, int64(size>>level-1)))
		}
	}
	hashes, err := r.ReadHashes(indexes)
	return Edge{size, hashes}, err
}

// ReadEdgeBefore reads the edge of the tree before the first record of a segment.
func ReadEdgeBefore(tx *bbolt.Tx, first uint64) (Edge, error) {
	hashes, err := parseHashes(tx.Bucket([]byte(format.BucketMeta)).Get([]byte(format.MetaEdge)))
	if err == nil && len(hashes) != bits.OnesCount64(first) {
		err = fmt.Errorf("%w: its edge has %d hashes, and it begins with record %d", record.ErrDamaged, len(hashes), first)
	}
	return Edge{first, hashes}, err
}

// hashesWithin returns a reader that needs only one segment: it takes earlier hashes from the edge of that segment.
func hashesWithin(tx *bbolt.Tx, first uint64) (tlog.HashReader, error) {
	before, err := ReadEdgeBefore(tx, first)
	return before.HashesWith(HashesIn(tx)), err
}

// HashFunc is a [tlog.HashReader] that reads one hash at a time.
type HashFunc func(index int64) (tlog.Hash, error)

// ReadHashes implements [tlog.HashReader].
func (f HashFunc) ReadHashes(indexes []int64) (out []tlog.Hash, err error) {
	out = make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		if out[i], err = f(index); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// locateHash returns the record with which a hash is stored, and the index of the hash in the stored value.
func locateHash(index int64) (sequence uint64, level int) {
	level, n := tlog.SplitStoredHashIndex(index)
	return uint64(n+1)<<level - 1, level
}

// JoinHashes encodes a list of hashes.
func JoinHashes(hashes []tlog.Hash) []byte {
	b := make([]byte, 0, tlog.HashSize*len(hashes))
	for i := range hashes {
		b = append(b, hashes[i][:]...)
	}
	return b
}

// parseHashes decodes the result of [JoinHashes].
func parseHashes(b []byte) ([]tlog.Hash, error) {
	if len(b)%tlog.HashSize != 0 {
		return nil, fmt.Errorf("%w: a list of hashes has %d bytes", record.ErrDamaged, len(b))
	}
	hashes := make([]tlog.Hash, len(b)/tlog.HashSize)
	for i := range hashes {
		copy(hashes[i][:], b[i*tlog.HashSize:])
	}
	return hashes, nil
}

// ReadHashes implements [tlog.HashReader] over all segments.
func (r *Reader) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	return r.readHashes(indexes, func(s *File, read func(HashFunc) error) error {
		return r.View(s, func(tx *bbolt.Tx) error { return read(HashesIn(tx)) })
	})
}

// PeekHashes is [Reader.ReadHashes] without opening segments: in a segment that is not open, only the pages that are read
// are checked. Opening a segment takes longer than reading a tile.
func (r *Reader) PeekHashes(indexes []int64) ([]tlog.Hash, error) {
	return r.readHashes(indexes, func(s *File, read func(HashFunc) error) error {
		err := s.View(func(tx *bbolt.Tx) error { return read(HashesIn(tx)) })
		if err == errClosed {
			err = namePath(boltfile.Look(s.Path, record.ErrDamaged, readerWait, func(f *pages.File) error {
				hashes, found, err := f.Bucket(format.BucketHashes)
				if err != nil || !found {
					return errors.Join(fmt.Errorf("%w: it has no bucket %s", record.ErrDamaged, format.BucketHashes), err)
				}
				c := hashes.Cursor()
				return read(hashesBySeek(func(to []byte) (key, value []byte, err error) {
					var e pages.Element
					if to == nil {
						e, _, err = c.Next()
					} else {
						e, _, err = c.Seek(to)
					}
					return e.Key, e.Value, err
				}))
			}), s.Path)
		}
		return err
	})
}

// readHashes reads hashes. It calls in once for consecutive indexes in one segment.
func (r *Reader) readHashes(indexes []int64, in func(*File, func(HashFunc) error) error) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(indexes))
	for i := 0; i < len(indexes); {
		sequence, _ := locateHash(indexes[i])
		s, end, err := r.findFileAndEnd(sequence)
		if err != nil {
			return nil, err
		}
		err = in(s, func(stored HashFunc) error { // as many consecutive ones as are in this segment
			for ; i < len(indexes); i++ {
				if sequence, _ := locateHash(indexes[i]); sequence < s.First || sequence >= end {
					return nil
				}
				if out[i], err = stored(indexes[i]); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// HashesIn returns a reader of the hashes that are stored in a segment.
func HashesIn(tx *bbolt.Tx) HashFunc {
	c := tx.Bucket([]byte(format.BucketHashes)).Cursor()
	return hashesBySeek(func(to []byte) (key, value []byte, err error) {
		if to == nil {
			key, value = c.Next()
		} else {
			key, value = c.Seek(to)
		}
		return key, value, nil
	})
}

// hashesBySeek returns a reader of the hashes in a bucket. seek moves to a key, or to the next one if to is nil: hashes of
// consecutive records need no search.
func hashesBySeek(seek func(to []byte) (key, value []byte, err error)) HashFunc {
	var at uint64 // the record after the position of the cursor
	var wanted [8]byte
	return func(index int64) (tlog.Hash, error) {
		sequence, level := locateHash(index)
		binary.BigEndian.PutUint64(wanted[:], sequence)
		var to []byte
		if at == 0 || sequence != at {
			to = wanted[:]
		}
		key, stored, err := seek(to)
		at = sequence + 1
		if err != nil {
			return tlog.Hash{}, err
		}
		if !bytes.Equal(key, wanted[:]) || len(stored) < (level+1)*tlog.HashSize {
			at = 0
			return tlog.Hash{}, fmt.Errorf("%w: it has no hash of record %d on level %d", record.ErrDamaged, sequence, level)
		}
		return tlog.Hash(stored[level*tlog.HashSize:][:tlog.HashSize]), nil
	}
}
