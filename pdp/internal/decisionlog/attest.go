package decisionlog

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
)

// Attest returns the record with an id if the log vouches for it: its line is what its
// leaf was made of, and its leaf is in the tree of the newest checkpoint. If that does not
// cover it yet, one is made. Where the content is gone the error is [segment.ErrGone].
func (l *Log) Attest(ctx context.Context, id string) (record.Record, error) {
	rec, err := l.ByID(id)
	if err != nil {
		return record.Record{}, err
	}
	if tlog.RecordHash(rec.Line) != rec.Leaf {
		return record.Record{}, fmt.Errorf("%w: record %d is not the one that was hashed", record.ErrDamaged, rec.Sequence)
	}
	signed, err := l.checkpointCovering(ctx, rec.Sequence)
	if err != nil {
		return record.Record{}, err
	}
	proof, err := tlog.ProveRecord(int64(signed.Size), int64(rec.Sequence), l)
	if err == nil {
		err = tlog.CheckRecord(proof, int64(signed.Size), signed.Root, int64(rec.Sequence), rec.Leaf)
	}
	if err != nil {
		return record.Record{}, fmt.Errorf("%w: record %d is not in the tree that was signed: %w", record.ErrDamaged, rec.Sequence, err)
	}
	return rec, nil
}

// checkpointCovering returns a checkpoint that covers a record: the newest one, or a new one.
func (l *Log) checkpointCovering(ctx context.Context, sequence uint64) (segment.Checkpoint, error) {
	signed, err := l.writer.newestCheckpoint(ctx, func(t *tail) bool { return t.Note != nil && t.Checkpointed > sequence })
	if err != nil {
		return segment.Checkpoint{}, err
	}
	return segment.ParseCheckpoint(signed, nil)
}

// Naming visits the records from a sequence on that name one of some approval requests or capabilities: their steps, and
// decisions that relied on them. What it says was signed: it makes the tree again of all records from there on, so
// that no record can be hidden. It therefore asks no index. A record whose content is gone comes without its Line,
// because it may have named any of them: a program that can write to the files can also write, past the last
// checkpoint, that it was redacted.
func (l *Log) Naming(ctx context.Context, from uint64, ids map[string]bool, visit func(record.Record) error) error {
	return l.walkSigned(ctx, from, &segment.Walker{IDs: ids, Visit: visit})
}

// Events visits the administrative records of some events, from the newest segment on in which an event named
// first occurs. It asks no index. If the log is not the one that was signed, the error is [record.ErrDamaged], after
// everything present was visited.
func (l *Log) Events(ctx context.Context, visit func(*record.Recorded) error, first string, others ...string) error {
	if err := l.waitUntilFilled(ctx); err != nil {
		return err
	}
	from, err := l.Reader.VisitEventsFrom(ctx, visit, first, others)
	if err != nil {
		return err
	}
	return l.walkSigned(ctx, from, &segment.Walker{Visit: func(record.Record) error { return nil }})
}

// walkSigned walks the records from a sequence on, and fails if they are not the records that were signed.
func (l *Log) walkSigned(ctx context.Context, from uint64, w *segment.Walker) error {
	end, err := l.writer.treeEdge(ctx)
	if err != nil {
		return err
	}
	return l.CheckWalk(ctx, min(from, end.Size), end, l, w)
}

// treeEdge returns the edge of the tree as the writer has it.
func (w *writer) treeEdge(ctx context.Context) (e segment.Edge, err error) {
	err = w.runHeld(ctx, func() error { e = w.tail.Edge.Clone(); return nil })
	return e, err
}

// Vouched visits the administrative records of some events: the newest record of the first event for which the tree
// vouches, and all later ones. It tells visit of each whether it is vouched for. If records may be hidden, only the first is.
func (l *Log) Vouched(ctx context.Context, visit func(r *record.Recorded, vouched bool) error, first string, others ...string) (v segment.Vouched, err error) {
	if err := l.waitUntilFilled(ctx); err != nil {
		return v, err
	}
	var t segment.TrustedEnd
	w := l.writer
	err = w.runHeld(ctx, func() error {
		t = segment.TrustedEnd{Edge: w.tail.Edge.Clone(), Tails: slices.Clone(w.tails), Keys: w.tail.keys}
		return nil
	})
	if err != nil {
		return v, err
	}
	return l.VisitVouched(ctx, t, visit, first, others)
}
