package decisionlog

import (
	"context"
	"fmt"
	"time"
)

// TailOptions say where following starts and what it lets through.
type TailOptions struct {
	// After is the cursor: the sequence of the last record already seen, -1 for
	// the beginning. Last, where it is not 0, starts that many records from the
	// end instead.
	After int64
	Last  int64
	// Filter picks records; those without content never pass.
	Filter Filter
	// Inherited, where it is set, is handed the record that one of a batch inherits from,
	// before that one, if it did not come as a record of its own: without a Line where it
	// is gone. Of items that stand together it is handed once.
	Inherited func(id string, batch Record) error
	// Every is how often a followed log is looked at again; 0 does not follow.
	Every time.Duration
}

// Tail hands records to yield in order, and returns the cursor to go on from. It
// ends when there is nothing more, or, following, when ctx does. A log that a
// server is writing grows by whole segments here.
func Tail(ctx context.Context, data string, o TailOptions, yield func(sequence int64, line []byte) error) (cursor int64, err error) {
	if err := o.Filter.Check(); err != nil {
		return o.After, err
	}
	inherited := Inheritance{}
	for cursor = o.After; ; o.Last = 0 {
		err = Read(data, func(s *Snapshot) error {
			if o.Last > 0 {
				cursor = max(-1, s.Head.Size-o.Last-1)
			}
			cursor, err = s.follow(ctx, cursor, o, &inherited, yield)
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

func (s *Snapshot) follow(ctx context.Context, cursor int64, o TailOptions, inherited *Inheritance, yield func(int64, []byte) error) (int64, error) {
	size := s.Head.Size
	if cursor >= size { // the log is not the one that the cursor is of
		return cursor, fmt.Errorf("the log ends before record %d, after which to go on", cursor)
	}
	for l, err := range s.Records(ctx, uint64(cursor+1), uint64(size)) {
		if err != nil {
			return cursor, err
		}
		if l.Gone == "" {
			passes, err := o.Filter.Matches(l.Line)
			if err == nil && passes {
				err = s.inherited(l.Line, o, inherited)
				if err == nil {
					err = yield(int64(l.Sequence), l.Line)
				}
			}
			if err != nil {
				return cursor, err
			}
		}
		cursor = int64(l.Sequence)
	}
	return cursor, nil
}

func (s *Snapshot) inherited(line []byte, o TailOptions, inherited *Inheritance) error {
	if o.Inherited == nil {
		return nil
	}
	id, err := inherited.Lacks(line)
	if err != nil || id == "" {
		return err
	}
	batch, err := s.Batch(line)
	if err != nil {
		return err
	}
	return o.Inherited(id, batch)
}
