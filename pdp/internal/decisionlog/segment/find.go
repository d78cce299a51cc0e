package segment

import (
	"errors"

	"go.etcd.io/bbolt"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
)

// Batch is the record that a record inherits from. It has no Line if the record inherits
// nothing and if the content of the other is gone. Both stand in the same segment.
func (r *Reader) Batch(line []byte) (batch record.Record, err error) {
	item, err := record.Parse(line)
	if err != nil || item.BatchID() == "" {
		return record.Record{}, err
	}
	s, err := r.FileOf(item.Sequence)
	if errors.Is(err, ErrGone) { // dropped since the line was read
		return record.Record{}, nil
	}
	if err != nil {
		return record.Record{}, err
	}
	err = r.View(s, func(tx *bbolt.Tx) error {
		batch = record.Record{}
		sequence, found := ReadNumber(tx.Bucket([]byte(format.BucketIDs)).Get([]byte(item.BatchID())))
		if !found || sequence >= item.Sequence {
			return nil
		}
		some, err := someOf(tx, sequence, sequence+1)
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

// Recorded reads a record of this log with what it inherits.
func (r *Reader) Recorded(line []byte) (record.Recorded, error) {
	batch, err := r.Batch(line)
	if err != nil {
		return record.Recorded{}, err
	}
	return record.Resolve(line, batch)
}

// find finds the record of an id, or the one that has the question of that id.
func FindQuestion(id string, byID func(string) (record.Record, error)) (record.Record, error) {
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

// Find is [Reader.ByID], which also finds the record that has the question of an id.
func (r *Reader) Find(id string) (record.Record, error) { return FindQuestion(id, r.ByID) }

// Find is [Snapshot.ByID], which also finds the record that has the question of an id.
func (s *Snapshot) Find(id string) (record.Record, error) { return FindQuestion(id, s.ByID) }

// Sieve makes a Sieve for lines of this log.
func (r *Reader) Sieve(f record.Filter) *record.Sieve { return record.NewSieve(f, r.Recorded) }
