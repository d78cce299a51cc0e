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

// add adds a leaf, and appends the hashes to store with it.
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

// extend adds a leaf, and reports whether the hashes stored with it are those of the tree.
func (e *Edge) addAndCompare(leaf tlog.Hash, stored []byte) (same bool) {
	var some [8 * tlog.HashSize]byte // mostly enough
	return bytes.Equal(e.AddLeaf(some[:0], leaf), stored)
}

func (e Edge) Clone() Edge {
	return Edge{e.Size, append(make([]tlog.Hash, 0, len(e.Hashes)+1), e.Hashes...)}
}

func (e Edge) Root() (tlog.Hash, error) { return tlog.TreeHash(int64(e.Size), HashFunc(e.Hash)) }

// then reads from the edge what was complete with it, and all else from r: the segments
// before it need not be here.
func (e Edge) HashesWith(r tlog.HashReader) tlog.HashReader {
	return SplitHashes(e.Size, HashFunc(e.Hash), r)
}

// splitAt reads from one reader what is complete before the tree has a size, and all else from another.
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

// begins holds an edge against one that the tree has later: it must be the beginning of
// that tree.
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

// edgeAt reads the edge of the tree of a size.
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

// edgeBefore reads the edge that a segment begins with.
func ReadEdgeBefore(tx *bbolt.Tx, first uint64) (Edge, error) {
	hashes, err := parseHashes(tx.Bucket([]byte(format.BucketMeta)).Get([]byte(format.MetaEdge)))
	if err == nil && len(hashes) != bits.OnesCount64(first) {
		err = fmt.Errorf("%w: its edge has %d hashes, and it begins with record %d", record.ErrDamaged, len(hashes), first)
	}
	return Edge{first, hashes}, err
}

// segmentHashes reads hashes from one segment alone: those before it from
// its edge.
func hashesWithin(tx *bbolt.Tx, first uint64) (tlog.HashReader, error) {
	before, err := ReadEdgeBefore(tx, first)
	return before.HashesWith(HashesIn(tx)), err
}

// hashOf is a [tlog.HashReader] that reads the hashes one by one.
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

// completes says which record a stored hash stands with, and where in its value.
func locateHash(index int64) (sequence uint64, level int) {
	level, n := tlog.SplitStoredHashIndex(index)
	return uint64(n+1)<<level - 1, level
}

func JoinHashes(hashes []tlog.Hash) []byte {
	b := make([]byte, 0, tlog.HashSize*len(hashes))
	for i := range hashes {
		b = append(b, hashes[i][:]...)
	}
	return b
}

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

// glance is [Reader.ReadHashes] that opens no segment: one that is not open is looked into, and only the pages that are
// read are checked. To open it takes longer than to read a tile.
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

func (r *Reader) readHashes(indexes []int64, in func(*File, func(HashFunc) error) error) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(indexes))
	for i := 0; i < len(indexes); {
		sequence, _ := locateHash(indexes[i])
		s, end, err := r.findFileAndEnd(sequence)
		if err != nil {
			return nil, err
		}
		err = in(s, func(stored HashFunc) error { // as many as stand in this segment one after the other
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

// storedHashes reads hashes of a segment.
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

// hashesFrom reads hashes in a bucket, in which seek goes to a key, or to the next one if it is nil. Those of one record
// after the other need no search.
func hashesBySeek(seek func(to []byte) (key, value []byte, err error)) HashFunc {
	var at uint64 // the record after the one that the cursor stands on
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
