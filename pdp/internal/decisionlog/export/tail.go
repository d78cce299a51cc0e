package export

import (
	"context"
	"fmt"
	"time"

	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
)

// TailOptions say which records [Tail] and [Last] hand out.
type TailOptions struct {
	// After is the cursor of Tail: the sequence of the last record that was seen already, -1 for the beginning.
	After int64
	// Last is how many records Last hands out at the most.
	Last int64
	// Filter picks records. A record without content never passes.
	Filter record.Filter
	// Inherited is handed the record of a batch before the first item that inherits from it,
	// unless that record passed the filter itself. It comes without its Line if its content is
	// gone, and once for items that stand together. Inherited may be nil.
	Inherited func(id string, batch record.Record) error
	// Every is how often a followed log is looked at again. 0 does not follow.
	Every time.Duration
}

// Last hands the last records to yield, in order, and returns the cursor to go on from.
func Last(ctx context.Context, data string, o TailOptions, yield func(sequence int64, line []byte) error) (cursor int64, err error) {
	cursor, o.Last = -1, max(0, o.Last)
	err = segment.Read(data, func(s *segment.Snapshot) error {
		if o.Filter.MatchesAll() { // the last ones that pass another filter are known at the end only
			cursor = max(-1, s.Head.Size-o.Last-1)
		}
		var last []record.Record
		all := TailOptions{Filter: o.Filter}
		cursor, err = all.follow(ctx, s, cursor, nil, func(sequence int64, line []byte) error {
			last = append(last, record.Record{Sequence: uint64(sequence), Line: line})
			last = last[max(0, len(last)-int(o.Last)):]
			return nil
		})
		inherited := record.Inheritance{}
		for _, r := range last {
			if err == nil {
				err = o.handBatch(s, r.Line, &inherited)
			}
			if err == nil {
				err = yield(int64(r.Sequence), r.Line)
			}
		}
		return err
	})
	return cursor, err
}

// Tail hands records to yield in order, and returns the cursor to go on from. It
// ends at the last record, or, if it follows, when ctx ends. A log that a
// server is writing grows by whole segments here.
func Tail(ctx context.Context, data string, o TailOptions, yield func(sequence int64, line []byte) error) (cursor int64, err error) {
	inherited := record.Inheritance{}
	for cursor = o.After; ; {
		err = segment.Read(data, func(s *segment.Snapshot) error {
			cursor, err = o.follow(ctx, s, cursor, &inherited, yield)
			return err
		})
		if err != nil || o.Every == 0 {
			return cursor, err
		}
		select {
		case <-ctx.Done():
			return cursor, nil
		case <-time.After(o.Every):
		}
	}
}

func (o TailOptions) follow(
	ctx context.Context, s *segment.Snapshot, cursor int64, inherited *record.Inheritance,
	yield func(int64, []byte) error,
) (int64, error) {
	size := s.Head.Size
	if err := o.Filter.Check(); err != nil {
		return cursor, err
	}
	if cursor >= size { // the log is not the one that the cursor is of
		return cursor, fmt.Errorf("the log ends before record %d, after which to go on", cursor)
	}
	sieve := s.Sieve(o.Filter)
	for r, err := range s.Records(ctx, uint64(cursor+1), uint64(size)) {
		passes := err == nil && r.Gone == ""
		if passes {
			passes, err = sieve.Passes(r.Line)
		}
		if passes && err == nil {
			err = o.handBatch(s, r.Line, inherited)
		}
		if passes && err == nil {
			err = yield(int64(r.Sequence), r.Line)
		}
		if err != nil {
			return cursor, err
		}
		cursor = int64(r.Sequence)
	}
	return cursor, nil
}

// handBatch hands out the record that a line inherits from, if it did not come before.
func (o TailOptions) handBatch(s *segment.Snapshot, line []byte, inherited *record.Inheritance) error {
	if o.Inherited == nil {
		return nil
	}
	id, err := inherited.MissingBatch(line)
	if err != nil || id == "" {
		return err
	}
	batch, err := s.Batch(line)
	if err != nil {
		return err
	}
	return o.Inherited(id, batch)
}
