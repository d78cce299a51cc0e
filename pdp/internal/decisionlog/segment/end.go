package segment

import (
	"bytes"
	"errors"
	"fmt"
	"math/bits"
	"time"

	"github.com/go-json-experiment/json"
	"go.etcd.io/bbolt"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
)

// end is the end of a log, as far as a reader can check it.
type End struct {
	Edge         Edge
	Time         time.Time // of the last record or checkpoint
	Note         []byte    // the last checkpoint
	Checkpointed uint64    // its size
	Unsigned     int64     // bytes of the lines behind it
}

// checkTail reads the end of the active segment, as far as it is not below the
// last checkpoint, and computes again what the tree says of it.
func CheckEnd(tx *bbolt.Tx, s *File, size uint64) (t End, err error) {
	r, err := segmentHashes(tx, s.First)
	if err != nil {
		return t, err
	}
	from := s.First
	var c Checkpoint
	if _, v := tx.Bucket([]byte(format.BucketCheckpoints)).Cursor().Last(); v != nil {
		verifier, err := note.NewVerifier(s.Key)
		if err != nil {
			return t, fmt.Errorf("%w: %w", record.ErrDamaged, err)
		}
		if c, err = ParseCheckpoint(bytes.Clone(v), note.VerifierList(verifier)); err != nil {
			return t, fmt.Errorf("%w: %w", record.ErrDamaged, err)
		}
		if c.Size > size || c.Size < s.First {
			return t, fmt.Errorf("%w: it has %d records and a checkpoint of %d", record.ErrDamaged, size, c.Size)
		}
		if root, err := tlog.TreeHash(int64(c.Size), r); err != nil || root != c.Root {
			return t, errors.Join(fmt.Errorf("%w: the tree of %d is not the one that was signed", record.ErrDamaged, c.Size), err)
		}
		from = max(s.First, min(c.Size, size-1)) // the last record in any case
	}
	t = End{Note: c.Note, Checkpointed: c.Size, Time: c.Time}
	if t.Edge, err = edgeAt(from, r); err != nil {
		return t, err
	}
	return t, t.replay(tx, size)
}

// replay goes over the last records again, as when they were written.
func (t *End) replay(tx *bbolt.Tx, size uint64) error {
	for r, err := range storedFrom(tx, t.Edge.Size, size) {
		if err != nil {
			return err
		}
		if r.Line != nil && tlog.RecordHash(r.Line) != r.Leaf {
			return fmt.Errorf("%w: record %d is not the one that was hashed", record.ErrDamaged, r.Sequence)
		}
		if !t.Edge.extend(r.Leaf, r.hashes) {
			return fmt.Errorf("%w: the tree does not hold record %d", record.ErrDamaged, r.Sequence)
		}
		if t.Edge.Size > t.Checkpointed {
			t.Unsigned += int64(len(r.Line))
		}
		if at, ok := TimeOf(r.Line); ok && at.After(t.Time) {
			t.Time = at
		}
	}
	return nil
}

// timeOf reads the time of a line.
func TimeOf(line []byte) (time.Time, bool) {
	var stamp struct {
		Time string `json:"time"`
	}
	if json.Unmarshal(line, &stamp) != nil {
		return time.Time{}, false
	}
	at, err := time.Parse(format.TimeLayout, stamp.Time)
	return at, err == nil
}

// edgeBefore reads the edge that a segment begins with.
func EdgeBefore(tx *bbolt.Tx, first uint64) (Edge, error) {
	hashes, err := splitHashes(tx.Bucket([]byte(format.BucketMeta)).Get([]byte(format.MetaEdge)))
	if err == nil && len(hashes) != bits.OnesCount64(first) {
		err = fmt.Errorf("%w: its edge has %d hashes, and it begins with record %d", record.ErrDamaged, len(hashes), first)
	}
	return Edge{first, hashes}, err
}

// segmentHashes reads hashes from one segment alone: those before it from
// its edge.
func segmentHashes(tx *bbolt.Tx, first uint64) (tlog.HashReader, error) {
	before, err := EdgeBefore(tx, first)
	return before.Then(StoredHashes(tx)), err
}
