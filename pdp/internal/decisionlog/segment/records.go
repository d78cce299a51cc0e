package segment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"go.etcd.io/bbolt"
	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
)

// Limits of one read transaction. Longer ones would keep the writer from closing the file.
const (
	MaxRecords = 512
	maxBytes   = 1 << 20
)

type turnKey struct{}

// WithTurns returns a context with which a reader of many records calls goOn before each part of a few hundred records, so
// that several readers take turns. Reading ends with the error of goOn.
func WithTurns(ctx context.Context, goOn func(context.Context) error) context.Context {
	return context.WithValue(ctx, turnKey{}, goOn)
}

// AwaitTurn waits until a reader may read its next part: see [WithTurns]. Call it while no transaction is open.
func AwaitTurn(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if goOn, ok := ctx.Value(turnKey{}).(func(context.Context) error); ok {
		return goOn(ctx)
	}
	return nil
}

// Records yields the records in [from, to). A record whose content is gone has no Line. The first error ends the sequence.
// No transaction is open between two records.
func (r *Reader) Records(ctx context.Context, from, to uint64) iter.Seq2[record.Record, error] {
	return func(yield func(record.Record, error) bool) {
		to := min(to, r.Size())
		for from < to {
			some, err := r.ReadSome(from, to)
			if err = errors.Join(err, AwaitTurn(ctx)); err != nil {
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

// ReadSome reads the first records of [from, to), at least one, all from one segment.
func (r *Reader) ReadSome(from, to uint64) (out []record.Record, err error) {
	s, err := r.FindFile(from)
	if err != nil {
		return nil, err
	}
	err = r.View(s, func(tx *bbolt.Tx) (err error) {
		out, err = readSome(tx, from, to)
		return err
	})
	return out, err
}

// readSome does as [Reader.ReadSome], in a transaction.
func readSome(tx *bbolt.Tx, from, to uint64) (out []record.Record, err error) {
	size := 0
	for r, err := range scanStored(tx, from, to) {
		if err != nil {
			return out, err
		}
		r.Line = bytes.Clone(r.Line)
		if out, size = append(out, r.Record), size+len(r.Line); len(out) == MaxRecords || size >= maxBytes {
			break
		}
	}
	return out, nil
}

// ReadSpan reads records with content from [low, high) of one segment: the first of them, or the last ones if newest is
// set, in the order of reading. It returns no records only if there are none.
func (r *Reader) ReadSpan(s *File, low, high uint64, newest bool, limit int) (out []record.Record, err error) {
	err = r.View(s, func(tx *bbolt.Tx) error {
		out = nil
		c := tx.Bucket([]byte(format.BucketRecords)).Cursor()
		k, text := c.Seek(EncodeNumber(low))
		step := c.Next
		if newest {
			step = c.Prev
			if k, _ = c.Seek(EncodeNumber(high)); k == nil {
				k, text = c.Last()
			} else {
				k, text = c.Prev()
			}
		}
		for size := 0; k != nil && len(out) < limit && size < maxBytes; k, text = step() {
			sequence, ok := DecodeNumber(k)
			if !ok || sequence < low || sequence >= high {
				break
			}
			out, size = append(out, record.Record{Sequence: sequence, Line: bytes.Clone(text)}), size+len(text)
		}
		return nil
	})
	return out, err
}

// ReadListed reads the listed records of a segment. It skips those without content.
func (r *Reader) ReadListed(s *File, sequences []uint64) (out []record.Record, err error) {
	err = r.View(s, func(tx *bbolt.Tx) error {
		out = nil
		b := tx.Bucket([]byte(format.BucketRecords))
		for _, n := range sequences {
			if text := b.Get(EncodeNumber(n)); text != nil {
				out = append(out, record.Record{Sequence: n, Line: bytes.Clone(text)})
			}
		}
		return nil
	})
	return out, err
}

// storedRecord is a record in a transaction, with the hashes that were stored with it. Copy what must outlive the transaction.
type storedRecord struct {
	record.Record
	hashes []byte
}

// scanStored yields the records in [from, to) of a segment, at least one or an error. The first error ends the sequence.
func scanStored(tx *bbolt.Tx, from, to uint64) iter.Seq2[storedRecord, error] {
	return func(yield func(storedRecord, error) bool) {
		hashes, lines := tx.Bucket([]byte(format.BucketHashes)).Cursor(), tx.Bucket([]byte(format.BucketRecords)).Cursor()
		key, stored := hashes.Seek(EncodeNumber(from))
		lineKey, line := lines.Seek(EncodeNumber(from))
		if key == nil {
			yield(storedRecord{}, fmt.Errorf("%w: record %d is not in it", record.ErrDamaged, from))
		}
		for ; key != nil && from < to; from++ {
			if !bytes.Equal(key, EncodeNumber(from)) || len(stored) < tlog.HashSize {
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

// Get returns one record. The error is [ErrGone] if its content is gone.
func (r *Reader) Get(sequence uint64) (record.Record, error) {
	some, err := r.ReadSome(sequence, sequence+1)
	if err != nil {
		return record.Record{Sequence: sequence}, err
	}
	return some[0], checkContent(some[0])
}

// checkContent returns [ErrGone] for a record without content.
func checkContent(r record.Record) error {
	if r.Line == nil {
		return fmt.Errorf("record %d: %w", r.Sequence, ErrGone)
	}
	return nil
}

// ByID returns the record with an ID. It looks up the ID and reads the record in one transaction, because the segment may
// be retired afterwards.
func (r *Reader) ByID(id string) (record.Record, error) {
	var some []record.Record
	none := fmt.Errorf("%w: %q", ErrNotFound, id)
	err := r.searchNewestFirst(none, false, func(tx *bbolt.Tx) (found bool, err error) {
		sequence, found := DecodeNumber(tx.Bucket([]byte(format.BucketIDs)).Get([]byte(id)))
		if found {
			some, err = readSome(tx, sequence, sequence+1)
		}
		return found, err
	})
	if err != nil {
		return record.Record{}, err
	}
	return some[0], checkContent(some[0])
}

// searchNewestFirst calls look for each segment, newest first, until one returns true. If none does, it returns the error
// none. While writing fails, the active segment cannot be read; the search then goes on with the others, unless all is set.
func (r *Reader) searchNewestFirst(none error, all bool, look func(*bbolt.Tx) (found bool, err error)) error {
	for _, s := range slices.Backward(r.SegmentFiles()) {
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

// FindRecord returns the record with an ID, or the record of a batch that contains the question with that ID.
func FindRecord(id string, byID func(string) (record.Record, error)) (record.Record, error) {
	found, err := byID(id)
	if !errors.Is(err, ErrNotFound) {
		return found, err
	}
	for _, of := range record.PossibleIDsOf(id) {
		r, none := byID(of)
		if none != nil {
			continue
		}
		if parsed, wrong := record.Parse(r.Line); wrong == nil && parsed.Kind == format.KindPossible && parsed.Asks(id) {
			return r, nil
		}
	}
	return found, err
}

// Find is [FindRecord] with [Reader.ByID].
func (r *Reader) Find(id string) (record.Record, error) { return FindRecord(id, r.ByID) }

// Batch returns the record of the batch from which an item inherits. The result has no Line if the record inherits nothing
// or the content of the batch is gone. An item and its batch are in the same segment.
func (r *Reader) Batch(line []byte) (batch record.Record, err error) {
	item, err := record.Parse(line)
	if err != nil || item.BatchID() == "" {
		return record.Record{}, err
	}
	s, err := r.FindFile(item.Sequence)
	if errors.Is(err, ErrGone) { // its segment was moved away after the line was read
		return record.Record{}, nil
	}
	if err != nil {
		return record.Record{}, err
	}
	err = r.View(s, func(tx *bbolt.Tx) error {
		batch = record.Record{}
		sequence, found := DecodeNumber(tx.Bucket([]byte(format.BucketIDs)).Get([]byte(item.BatchID())))
		if !found || sequence >= item.Sequence {
			return nil
		}
		some, err := readSome(tx, sequence, sequence+1)
		if err == nil {
			batch = some[0]
		}
		return err
	})
	if err != nil || batch.Line == nil {
		return record.Record{}, err
	}
	return batch, item.CheckBatch(batch.Line)
}

// Recorded parses a record of this log and adds what it inherits.
func (r *Reader) Recorded(line []byte) (record.Recorded, error) {
	batch, err := r.Batch(line)
	if err != nil {
		return record.Recorded{}, err
	}
	return record.Resolve(line, batch)
}

// Sieve returns a Sieve for lines of this log.
func (r *Reader) Sieve(f record.Filter) *record.Sieve { return record.NewSieve(f, r.Recorded) }
