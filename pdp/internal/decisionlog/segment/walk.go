package segment

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"go.etcd.io/bbolt"
	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/internal/decisionlog/record"
)

// CheckWalk visits the records from a sequence on and returns [record.ErrDamaged] if they do not end in the tree of end. hashes
// reads the hashes of that tree.
func (r *Reader) CheckWalk(ctx context.Context, from uint64, end Edge, hashes tlog.HashReader, w *Walker) (err error) {
	if w.Edge, err = readEdge(from, hashes); err != nil {
		return err
	}
	if err := r.walkTo(ctx, end.Size, w); err != nil {
		return err
	}
	if !slices.Equal(w.Edge.Hashes, end.Hashes) {
		return fmt.Errorf("%w: its records from %d on are not those that were signed: run log verify", record.ErrDamaged, from)
	}
	return nil
}

// walkTo continues from the edge of a walker.
func (r *Reader) walkTo(ctx context.Context, to uint64, w *Walker) (err error) {
	for err == nil && w.Edge.Size < to {
		var s *File
		if s, err = r.FindFile(w.Edge.Size); err == nil {
			err = r.View(s, func(tx *bbolt.Tx) error { return w.ReadOn(ctx, tx, to) })
		}
	}
	if err != nil {
		return err
	}
	return w.CheckGone()
}

// Walker visits records and builds their tree again.
type Walker struct {
	IDs   map[string]bool
	Visit func(record.Record) error
	Edge  Edge
	// Gone are the records without content. Removed collects the reasons that the log gives.
	Gone    []uint64
	Removed Removals
}

// maxWalked is the number of records read in one transaction. Longer ones would keep the writer from closing the file.
const maxWalked = 4096

// ReadOn continues within one segment.
func (w *Walker) ReadOn(ctx context.Context, tx *bbolt.Tx, to uint64) error {
	for r, err := range scanStored(tx, w.Edge.Size, min(to, w.Edge.Size+maxWalked)) {
		if err != nil {
			return err
		}
		if r.Line != nil {
			err = w.readRecord(r.Record)
		} else {
			w.Gone = append(w.Gone, r.Sequence)
			err = w.Visit(r.Record)
		}
		if err != nil {
			return err
		}
		if !w.Edge.addAndCompare(r.Leaf, r.hashes) {
			return fmt.Errorf("%w: the tree does not hold record %d", record.ErrDamaged, r.Sequence)
		}
	}
	return ctx.Err()
}

// readRecord compares a line with its leaf hash, collects removals, and visits the record if it names an item.
func (w *Walker) readRecord(r record.Record) error {
	if tlog.RecordHash(r.Line) != r.Leaf {
		return fmt.Errorf("%w: record %d is not the one that was hashed", record.ErrDamaged, r.Sequence)
	}
	if mayRemoveContent(r.Line) {
		if err := w.Removed.AddRecord(r.Line); err != nil {
			return fmt.Errorf("record %d: %w", r.Sequence, err)
		}
	}
	if !w.NamesItem(r.Line) {
		return nil
	}
	r.Line = bytes.Clone(r.Line)
	return w.Visit(r)
}

// idPrefixes are the texts before the ID of an approval request or a capability.
var idPrefixes = [][]byte{[]byte(`"approval":`), []byte(`"capability":`), []byte(`"capability":{"id":`)}

// NamesItem reports whether a line names one of the items in IDs, anywhere. The log writes each line in only one way, so a
// name cannot be spelled differently.
func (w *Walker) NamesItem(line []byte) bool {
	for _, before := range idPrefixes {
		for rest, found := line, true; found; {
			_, rest, found = bytes.Cut(rest, before)
			text, isText := bytes.CutPrefix(rest, []byte{'"'})
			if id, _, ended := bytes.Cut(text, []byte{'"'}); found && isText && ended && w.IDs[string(id)] {
				return true
			}
		}
	}
	for rest, found := line, true; found; {
		_, rest, found = bytes.Cut(rest, []byte(record.AncestorsMember))
		list, _, ended := bytes.Cut(rest, []byte{']'})
		for id := range bytes.SplitSeq(list, []byte{','}) {
			if found && ended && len(id) > 1 && w.IDs[string(id[1:len(id)-1])] {
				return true
			}
		}
	}
	return false
}

// CheckGone returns [record.ErrDamaged] if content is gone and no record says why.
func (w *Walker) CheckGone() error {
	for _, sequence := range w.Gone {
		if _, redacted := w.Removed.redacted[sequence]; sequence >= w.Removed.below && !redacted {
			return fmt.Errorf("%w: record %d is missing, and no record says why: run log verify", record.ErrDamaged, sequence)
		}
	}
	return nil
}
