package segment

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"

	"go.etcd.io/bbolt"
	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/internal/boltfile"
	"policy-service/pdp/internal/boltfile/pages"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
)

// A transaction of a reader ends after so many records, or bytes of them.
const (
	MostRecords = 512
	readBytes   = 1 << 20
)

// Records yields the records from one sequence up to before another. A record
// whose content is gone comes without its Line; the first error is the last
// thing that comes. Nothing is held open between two records.
func (r *Reader) Records(ctx context.Context, from, to uint64) iter.Seq2[record.Record, error] {
	return func(yield func(record.Record, error) bool) {
		to := min(to, r.Size())
		for from < to {
			some, err := r.Some(from, to)
			if err = errors.Join(err, MayGoOn(ctx)); err != nil {
				yield(record.Record{Sequence: from}, err)
				return
			}
			for _, record := range some {
				if !yield(record, nil) {
					return
				}
			}
			from += uint64(len(some))
		}
	}
}

// some reads a few records of one segment, at least one.
func (r *Reader) Some(from, to uint64) (out []record.Record, err error) {
	s, err := r.FileOf(from)
	if err != nil {
		return nil, err
	}
	err = r.View(s, func(tx *bbolt.Tx) (err error) {
		out, err = someOf(tx, from, to)
		return err
	})
	return out, err
}

func someOf(tx *bbolt.Tx, from, to uint64) (out []record.Record, err error) {
	size := 0
	for r, err := range storedFrom(tx, from, to) {
		if err != nil {
			return out, err
		}
		r.Line = bytes.Clone(r.Line)
		if out, size = append(out, r.Record), size+len(r.Line); len(out) == MostRecords || size >= readBytes {
			break
		}
	}
	return out, nil
}

// storedRecord is a record as it lies in a transaction, with the hashes that were stored with it. What is kept of it must
// be copied.
type storedRecord struct {
	record.Record
	hashes []byte
}

// storedFrom yields the records of a segment from one sequence up to before another, at least one. The first error is the
// last thing that comes.
func storedFrom(tx *bbolt.Tx, from, to uint64) iter.Seq2[storedRecord, error] {
	return func(yield func(storedRecord, error) bool) {
		hashes, lines := tx.Bucket([]byte(format.BucketHashes)).Cursor(), tx.Bucket([]byte(format.BucketRecords)).Cursor()
		key, stored := hashes.Seek(Number(from))
		lineKey, line := lines.Seek(Number(from))
		if key == nil {
			yield(storedRecord{}, fmt.Errorf("%w: record %d is not in it", record.ErrDamaged, from))
		}
		for ; key != nil && from < to; from++ {
			if !bytes.Equal(key, Number(from)) || len(stored) < tlog.HashSize {
				yield(storedRecord{}, fmt.Errorf("%w: it has no hash of record %d", record.ErrDamaged, from))
				return
			}
			r := storedRecord{record.Record{Sequence: from, Leaf: tlog.Hash(stored[:tlog.HashSize])}, stored}
			if bytes.Equal(lineKey, key) {
				if len(line) > format.MaxAppend {
					yield(storedRecord{}, fmt.Errorf("%w: record %d is too long", record.ErrDamaged, from))
					return
				}
				r.Line = line
				lineKey, line = lines.Next()
			}
			if !yield(r, nil) {
				return
			}
			key, stored = hashes.Next()
		}
	}
}

// Get returns one record, with ErrGone where its content is gone.
func (r *Reader) Get(sequence uint64) (record.Record, error) {
	some, err := r.Some(sequence, sequence+1)
	if err != nil {
		return record.Record{Sequence: sequence}, err
	}
	return some[0], orGone(some[0])
}

// orGone returns [ErrGone] for a record without content.
func orGone(r record.Record) error {
	if r.Line == nil {
		return fmt.Errorf("record %d: %w", r.Sequence, ErrGone)
	}
	return nil
}

// ByID returns the record with an id. Id and record are read as of one moment: the segment may
// be retired in the next.
func (r *Reader) ByID(id string) (record.Record, error) {
	var some []record.Record
	none := fmt.Errorf("%w: %q", ErrNotFound, id)
	err := r.newestFirst(none, false, func(tx *bbolt.Tx) (found bool, err error) {
		sequence, found := ReadNumber(tx.Bucket([]byte(format.BucketIDs)).Get([]byte(id)))
		if found {
			some, err = someOf(tx, sequence, sequence+1)
		}
		return found, err
	})
	if err != nil {
		return record.Record{}, err
	}
	return some[0], orGone(some[0])
}

// newestFirst looks for something in one segment after another, from the newest back. If it is in
// none, the error is none. While writing fails the active segment is closed: what is looked for may
// yet be in another, unless all segments must be read.
func (r *Reader) newestFirst(none error, all bool, look func(*bbolt.Tx) (found bool, err error)) error {
	for _, s := range slices.Backward(r.Files()) {
		found := false
		err := r.View(s, func(tx *bbolt.Tx) (err error) { found, err = look(tx); return err })
		if errors.Is(err, ErrUnavailable) && !all {
			none = err
		} else if err != nil || found {
			return err
		}
	}
	return none
}

// ReadHashes implements [tlog.HashReader] over all segments.
func (r *Reader) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	return r.readHashes(indexes, func(s *File, read func(HashOf) error) error {
		return r.View(s, func(tx *bbolt.Tx) error { return read(StoredHashes(tx)) })
	})
}

// glance is [Reader.ReadHashes] that opens no segment: one that is not open is looked into, and only the pages that are
// read are checked. To open it takes longer than to read a tile.
func (r *Reader) Glance(indexes []int64) ([]tlog.Hash, error) {
	return r.readHashes(indexes, func(s *File, read func(HashOf) error) error {
		err := s.View(func(tx *bbolt.Tx) error { return read(StoredHashes(tx)) })
		if err == errClosed {
			err = inFile(boltfile.Look(s.Path, record.ErrDamaged, readerWait, func(f *pages.File) error {
				hashes, found, err := f.Bucket(format.BucketHashes)
				if err != nil || !found {
					return errors.Join(fmt.Errorf("%w: it has no bucket %s", record.ErrDamaged, format.BucketHashes), err)
				}
				c := hashes.Cursor()
				return read(hashesFrom(func(to []byte) (key, value []byte, err error) {
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

func (r *Reader) readHashes(indexes []int64, in func(*File, func(HashOf) error) error) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(indexes))
	for i := 0; i < len(indexes); {
		sequence, _ := completes(indexes[i])
		s, end, err := r.findSpan(sequence)
		if err != nil {
			return nil, err
		}
		err = in(s, func(stored HashOf) error { // as many as stand in this segment one after the other
			for ; i < len(indexes); i++ {
				if sequence, _ := completes(indexes[i]); sequence < s.First || sequence >= end {
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
func StoredHashes(tx *bbolt.Tx) HashOf {
	c := tx.Bucket([]byte(format.BucketHashes)).Cursor()
	return hashesFrom(func(to []byte) (key, value []byte, err error) {
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
func hashesFrom(seek func(to []byte) (key, value []byte, err error)) HashOf {
	var at uint64 // the record after the one that the cursor stands on
	var wanted [8]byte
	return func(index int64) (tlog.Hash, error) {
		sequence, level := completes(index)
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

// Checkpoints yields the stored checkpoints with a size from one to another,
// both included, in order.
func (r *Reader) Checkpoints(ctx context.Context, from, to uint64) iter.Seq2[Checkpoint, error] {
	return func(yield func(Checkpoint, error) bool) {
		for _, s := range r.Files() {
			after := append(Number(from), make([]byte, 8)...)
			for more := true; more; {
				var some []Checkpoint
				err := r.View(s, func(tx *bbolt.Tx) (err error) {
					some, after, err = someCheckpoints(tx, after, to)
					return err
				})
				more = len(some) == MostRecords
				if err = errors.Join(err, MayGoOn(ctx)); err != nil {
					yield(Checkpoint{}, err)
					return
				}
				for _, c := range some {
					if !yield(c, nil) {
						return
					}
				}
			}
		}
	}
}

// someCheckpoints reads a few, from a key, and returns the key to go on with.
func someCheckpoints(tx *bbolt.Tx, after []byte, to uint64) (out []Checkpoint, next []byte, err error) {
	c := tx.Bucket([]byte(format.BucketCheckpoints)).Cursor()
	for k, v := c.Seek(after); k != nil && len(out) < MostRecords; k, v = c.Next() {
		checkpoint, err := ParseCheckpoint(bytes.Clone(v), nil)
		if err != nil {
			return out, after, fmt.Errorf("%w: %w", record.ErrDamaged, err)
		}
		if checkpoint.Size > to {
			break
		}
		out, after = append(out, checkpoint), append(bytes.Clone(k), 0)
	}
	return out, after, nil
}

// LastCheckpoint is the newest stored checkpoint. It counts even if it covers more records
// than there are: then it is the evidence that the end of the log was cut off. If a segment
// cannot be read, neither can what it says.
func (r *Reader) LastCheckpoint() (Checkpoint, error) { return r.CheckpointTo(math.MaxUint64) }

// checkpointTo is the newest stored checkpoint of no more than so many records. While writing
// fails the active segment is closed. Then it is the newest one of the sealed segments, which
// are there to be read, unless size leaves none out.
func (r *Reader) CheckpointTo(size uint64) (last Checkpoint, err error) {
	none := fmt.Errorf("%w: there is no checkpoint yet", ErrNotFound)
	err = r.newestFirst(none, size == math.MaxUint64, func(tx *bbolt.Tx) (found bool, err error) {
		c := tx.Bucket([]byte(format.BucketCheckpoints)).Cursor()
		for k, v := c.Last(); k != nil; k, v = c.Prev() {
			if n, ok := ReadNumber(k[:min(8, len(k))]); !ok || n <= size {
				last, err = ParseCheckpoint(bytes.Clone(v), nil)
				return true, err
			}
		}
		return false, nil
	})
	return last, err
}

type goOnKey struct{}

// WithTurns has a reader of many records call goOn before each part of a few hundred records, so
// that several readers take turns. Reading ends with the error of goOn.
func WithTurns(ctx context.Context, goOn func(context.Context) error) context.Context {
	return context.WithValue(ctx, goOnKey{}, goOn)
}

// mayGoOn is called between two parts, while no transaction is open.
func MayGoOn(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if goOn, ok := ctx.Value(goOnKey{}).(func(context.Context) error); ok {
		return goOn(ctx)
	}
	return nil
}

// endOf is where a segment ends, and where the next begins.
func (r *Reader) EndOf(s *File) uint64 {
	all := r.Files()
	if i := slices.Index(all, s); i >= 0 && i+1 < len(all) {
		return all[i+1].First
	}
	return r.Size()
}

// before puts a cursor on the last record before a sequence, to go back from there.
func before(c *bbolt.Cursor, sequence uint64) (k, line []byte, step func() (k, v []byte)) {
	if k, _ = c.Seek(Number(sequence)); k == nil {
		k, line = c.Last()
	} else {
		k, line = c.Prev()
	}
	return k, line, c.Prev
}

// pick reads those of some records of a segment that have content.
func (r *Reader) Pick(s *File, sequences []uint64) (out []record.Record, err error) {
	err = r.View(s, func(tx *bbolt.Tx) error {
		out = nil
		b := tx.Bucket([]byte(format.BucketRecords))
		for _, n := range sequences {
			if text := b.Get(Number(n)); text != nil {
				out = append(out, record.Record{Sequence: n, Line: bytes.Clone(text)})
			}
		}
		return nil
	})
	return out, err
}

// lines reads records with content of one segment in a span, the first ones or the
// last ones, a few of them. None means that there are none.
func (r *Reader) Lines(s *File, low, high uint64, newest bool, limit int) (out []record.Record, err error) {
	err = r.View(s, func(tx *bbolt.Tx) error {
		out = nil
		c := tx.Bucket([]byte(format.BucketRecords)).Cursor()
		k, text := c.Seek(Number(low))
		step := c.Next
		if newest {
			k, text, step = before(c, high)
		}
		for size := 0; k != nil && len(out) < limit && size < readBytes; k, text = step() {
			sequence, ok := ReadNumber(k)
			if !ok || sequence < low || sequence >= high {
				break
			}
			out, size = append(out, record.Record{Sequence: sequence, Line: bytes.Clone(text)}), size+len(text)
		}
		return nil
	})
	return out, err
}
