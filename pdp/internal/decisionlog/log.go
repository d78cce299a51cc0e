// Package decisionlog keeps every decision on record, so that every record that is altered,
// removed, moved or added later can be found. Call [Open], then [Log.Append]. To read alone,
// call [segment.OpenReader], or [segment.Read] for a log as of a checkpoint.
//
// A record is a line of JSON. Its bytes are the leaf of a Merkle tree, whose root is signed at
// intervals: a checkpoint. Lines, tree and checkpoints are stored together in bbolt files, the
// segments. Only the last segment, the active one, is written to.
//
// Package format specifies the files, record says what a record is, and segment reads the files.
// This package runs the log, in this order:
//
//   - [Log.Append] in log.go encodes entries (prepare.go) and charges their caller's account
//     (accounts.go, and charges.go for what a segment stores of it).
//   - Small calls join a frame of the journal, which makes them durable: frames.go. Large calls, events,
//     calls that nobody waits for, and orders such as a rotation wait in the queue of the writer: queue.go.
//   - The writer's goroutine, writer.go, takes durable frames and queued calls, and commits them to
//     the active segment, many in one transaction: commit.go.
//   - A commit that makes a checkpoint has it signed in checkpoint.go, and so is a new key.
//   - A segment is sealed, and the next one begun, in rotate.go.
//   - A log is opened, checked at its end, and closed in open.go.
//   - After a crash, frames that only the journal has are replayed in recover.go; [journal.Read] leaves
//     out an unfinished frame at the end. recover.go also reopens a log whose writing failed.
//   - Content is removed in removal.go, for redactions (redact.go) and for retention (retain.go).
//
// The rest reads: read.go (ids, snapshots, tiles), query.go with terms.go (the index), attest.go
// (records for which the signed tree vouches), copy.go (backups) and status.go. options.go has what a
// log can be told. Exports and reports are packages of their own.
//
// The package never changes a record: it masks nothing, which package recorder does before, and never
// serialises a line a second time.
package decisionlog

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/index"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
)

// Log is an open log: one writer, and all the reading of [segment.Reader].
//
// If writing fails, the active segment is closed, and nothing is answered until [writer.resumeWriting]
// has opened and checked it again.
type Log struct {
	*segment.Reader
	data          string
	writer        *writer
	index         *index.Index
	removals      removals
	tiles         tiles
	lock          *os.File
	foundUnsigned []record.UnsignedTail
	origin        string
	lastTime      time.Time
}

// Origin returns the name of the log, which all its checkpoints and keys have.
func (l *Log) Origin() string { return l.origin }

// Before returns the time of the last record at the time the log was opened. No earlier record has a later time.
func (l *Log) Before() time.Time { return l.lastTime }

// Unsigned returns the records that had neither a checkpoint nor a MAC when the log was opened. A record names them now.
func (l *Log) Unsigned() []record.UnsignedTail { return l.foundUnsigned }

// Append puts entries on record, together or not at all. When it returns nil in strict mode they are
// durable, and [Log.ByID], [Log.Query] and the other reads of a Log wait until they find them. If ctx ends first, or the error
// is [segment.ErrUnavailable], they
// may be on record or not: nothing may be answered that depends on it. All entries have the same caller.
// If the caller is at a bound, the error is a [*RoomError]; see [Log.Limit].
func (l *Log) Append(ctx context.Context, entries []record.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	w := l.writer
	c := &call{at: w.options.Now(), caller: entries[0].Caller}
	wait, mayRefuse, framed := w.options.Mode == Strict, true, true
	c.entries = make([]prepared, 0, len(entries))
	for i := range entries {
		e := &entries[i]
		id := e.ID
		if id == "" {
			id = w.options.NewID()
		}
		p, err := prepare(e, id, w.options.Kinds)
		if err != nil {
			return err
		}
		c.entries = append(c.entries, p)
		c.size += int64(len(p.body) + len(p.id))
		wait, mayRefuse, framed = wait || waits(e), mayRefuse && refusable(e), framed && e.Event == ""
	}
	if c.size > format.MaxAppend {
		return fmt.Errorf("%d records of together %d bytes: %w", len(entries), c.size, ErrTooLarge)
	}
	var err error
	if mayRefuse {
		err = w.options.Refuse(c.at)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", segment.ErrUnavailable, err)
	}
	c.weight = weightOf(c.entries)
	c.payer, err = w.accounts.countComing(cmp.Or(entries[0].Payer, entries[0].Caller), c.weight, mayRefuse)
	if err != nil {
		return err
	}
	c.taken = true
	switch {
	case !wait:
		return w.offerCall(c)
	case framed && c.size < callBytes:
		c.waits = true
		if err := w.admitCall(ctx, c); err != nil {
			return err
		}
		return w.frames.joinFrame(ctx, c)
	}
	return w.submitCall(ctx, c)
}

// Withdraw puts on record that a decision was never answered, at most once for each decision. The record counts toward the
// account of caller.
func (l *Log) Withdraw(ctx context.Context, tenant, caller string, w record.Withdrawn) error {
	e := record.Entry{ID: "withdrawn-" + w.Decision, Kind: format.KindAdmin, Tenant: tenant, Payer: caller, Event: format.EventWithdrawn}
	if known, err := l.Has(e.ID); known || err != nil {
		return err
	}
	w.Reason = "its use was given back before it was settled, so nobody was answered"
	e.Details = record.Details(w)
	return l.Append(ctx, []record.Entry{e})
}

// Flush returns when all that was answered before is on record, including records that no caller waits for in best effort.
// A call that is still under way, or that its caller gave up, may come later.
func (l *Log) Flush(ctx context.Context) error {
	return l.writer.runHeld(ctx, func() error { return nil })
}
