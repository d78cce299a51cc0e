package decisionlog

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/segment"
)

// tail is the end of the log as the writer knows it: all that the writer needs to append.
type tail struct {
	segment.CheckedEnd
	// journal names the journal that may have records which the segment does not have.
	journal segment.JournalMark
	// keys is the number of the API keys that the newest record of them came with.
	keys uint64
	// doubt is why nothing says that the records behind the last checkpoint are the writer's, "" if something does.
	doubt string

	checkpointedAt time.Time
	appended       time.Time
}

// transaction says what a transaction writes.
type transaction struct {
	frames []*frame // of the journal, to be written first
	calls  []*call
	now    time.Time // of the calls and the checkpoint; zero is when they are written

	checkpoint bool
	journal    *segment.JournalMark // what counts from now on
	clean      bool                 // the log is being closed
	nextKey    *segment.Key         // to be signed in
	begin      *active
}

// isEmpty reports whether there is nothing to write.
func (o *transaction) isEmpty() bool { return len(o.frames) == 0 && len(o.calls) == 0 && !o.checkpoint }

// transact writes frames and calls into the active segment, all or nothing, and returns
// when they are durable. After an error they may be in the file or not:
// the file must be closed and read again.
func (w *writer) transact(o transaction) error {
	start, s, next := time.Now(), w.active, w.tail
	next.Edge = next.Edge.Clone()
	if o.begin != nil {
		s = o.begin
		s.charged = newCharges()
	}
	var calls []*call
	for _, one := range o.frames {
		calls = append(calls, one.calls...)
	}
	calls = append(calls, o.calls...)
	commit := Commit{Calls: len(o.calls)}
	err := segment.Guard(func() error {
		tx, err := s.WriterDB().Begin(true)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // has no effect after a commit
		if err := w.writeInto(tx, s, &next, o, &commit); err != nil {
			return err
		}
		before, after := StepCommit, StepCommitted
		if len(o.frames) > 0 {
			before, after = StepFill, StepFilled
		}
		w.options.On.Step(before)
		if err := tx.Commit(); err != nil {
			return err
		}
		w.options.On.Step(after)
		return s.WriterDB().View(func(tx *bbolt.Tx) error { s.Size = tx.Size(); return nil })
	})
	if err != nil {
		return fmt.Errorf("segment %s: %w", s.Path, err)
	}
	for _, c := range calls {
		for i := range c.entries {
			w.told.index.Feed(c.first+uint64(i), c.entries[i].terms)
		}
	}
	made := !bytes.Equal(next.Note, w.tail.Note)
	w.tail = next
	if o.begin != nil && w.active != nil {
		w.accounts.sealStretch(w.active.charged, next.Time)
		w.active.charged = nil
	}
	w.accounts.countWritten(calls, contentBytes(s.Size, next.Edge.Size-s.First))
	if o.begin == nil { // else the segment is not yet among the segments that readers see
		w.frames.forgetFilled(o.frames, func() { w.makeVisible(next.Edge.Size) })
	}
	commit.Took = time.Since(start)
	if len(o.calls) > 0 || o.checkpoint || o.clean { // else it wrote only what the journal has
		w.options.On.Commit(commit)
	}
	if len(o.frames) > 0 {
		w.options.On.Fill(commit.Took)
	}
	if made {
		if c, err := segment.ParseCheckpoint(next.Note, nil); err == nil { // for Log.Signed; the writer has just signed it
			w.told.signed.Store(&c)
		}
		keepCheckpoint(w.data, next.Note)
		w.options.On.Checkpoint(next.Note)
	}
	return nil
}

// writeInto writes a transaction into tx, and brings next up to date.
func (w *writer) writeInto(tx *bbolt.Tx, s *active, next *tail, o transaction, commit *Commit) (err error) {
	if o.begin != nil {
		if err := putBeginning(tx, s.File, next.Edge, w.key.Public); err != nil {
			return err
		}
	}
	f := filling{newBuckets(tx), s, next, &Commit{}} // frames were counted when the journal had them
	for _, one := range o.frames {
		for _, c := range one.calls {
			if err := f.putCall(c, one.time); err != nil {
				return err
			}
		}
	}
	f.commit = commit
	now := func() time.Time {
		if o.now.IsZero() {
			return w.options.Now()
		}
		return o.now
	}
	for _, c := range o.calls {
		if err := f.putCall(c, now()); err != nil { // read here: callers overtake each other on the way
			return err
		}
	}
	if n := len(o.frames); n > 0 {
		next.journal.Number = o.frames[n-1].number
	}
	if o.journal != nil {
		next.journal = *o.journal
	}
	if len(o.frames) > 0 || o.journal != nil {
		if err := next.journal.Put(f.meta); err != nil {
			return err
		}
	}
	if (o.checkpoint || w.checkpointDue(next) || o.clean) && next.doubt == "" {
		if err := errors.Join(w.signCheckpoint(f.buckets, next, now(), o.nextKey), s.charged.putChanged(tx)); err != nil {
			return err
		}
	}
	if o.clean {
		err = f.meta.Put([]byte(format.MetaClean), segment.EncodeNumber(next.Edge.Size))
	}
	if next.keys > 0 && (o.begin != nil || next.keys != w.tail.keys) {
		err = errors.Join(err, f.meta.Put([]byte(format.MetaKeys), segment.EncodeNumber(next.keys)))
	}
	return errors.Join(err, w.putHead(f.meta, s, next, o))
}

// filling is a transaction while calls are written into it.
type filling struct {
	buckets
	segment *active
	next    *tail
	commit  *Commit
}

// putCall writes the records of a call, with their hashes and ids.
func (f *filling) putCall(c *call, now time.Time) error {
	c.first = f.next.Edge.Size
	at, behind := f.next.nextTime(now)
	for i := range c.entries {
		p := &c.entries[i]
		p.finish(f.next.Edge.Size, at, behind)
		f.next.keys = max(p.keys, f.next.keys) // the files of an older change may be back
		key := segment.EncodeNumber(f.next.Edge.Size)
		stored := f.next.Edge.AddLeaf(make([]byte, 0, 2*tlog.HashSize), tlog.RecordHash(p.line)) // two hashes on average
		if err := f.records.Put(key, p.line); err != nil {
			return err
		}
		if err := f.hashes.Put(key, stored); err != nil {
			return err
		}
		if id := []byte(p.id); len(id) <= bbolt.MaxKeySize && f.ids.Get(id) == nil {
			if err := f.ids.Put(id, key); err != nil {
				return err
			}
		}
		f.commit.Bytes += len(p.line)
		f.next.UnsignedBytes += int64(len(p.line))
	}
	f.segment.charged.addRecords(c.payer, c.first, c.weight)
	f.commit.Records += len(c.entries)
	f.next.appended = time.Now()
	return nil
}

// nextTime returns the time of the record that is written now, which is never before that of the last record. behind reports
// whether the clock was.
func (t *tail) nextTime(now time.Time) (at time.Time, behind bool) {
	if now = now.Round(0).UTC(); now.Before(t.Time) {
		return t.Time, true
	}
	t.Time = now
	return now, false
}

// buckets are the buckets of a segment that is written to. All but ids are written in
// the order of their keys, so that their pages can be filled completely.
type buckets struct {
	meta, records, hashes, ids, checkpoints *bbolt.Bucket
}

func newBuckets(tx *bbolt.Tx) buckets {
	b := buckets{
		meta:        tx.Bucket([]byte(format.BucketMeta)),
		records:     tx.Bucket([]byte(format.BucketRecords)),
		hashes:      tx.Bucket([]byte(format.BucketHashes)),
		ids:         tx.Bucket([]byte(format.BucketIDs)),
		checkpoints: tx.Bucket([]byte(format.BucketCheckpoints)),
	}
	b.records.FillPercent, b.hashes.FillPercent, b.ids.FillPercent = 1, 1, 0.9
	return b
}

// putBeginning writes into a new segment where in the log it stands.
func putBeginning(tx *bbolt.Tx, s *segment.File, e segment.Edge, public string) error {
	meta := tx.Bucket([]byte(format.BucketMeta))
	for name, value := range map[string][]byte{
		format.MetaFormat:  strconv.AppendInt(nil, format.Version, 10),
		format.MetaSegment: segment.EncodeNumber(s.Number),
		format.MetaFirst:   segment.EncodeNumber(e.Size),
		format.MetaEdge:    segment.JoinHashes(e.Hashes),
		format.MetaKey:     []byte(public),
	} {
		if err := meta.Put([]byte(name), value); err != nil {
			return err
		}
	}
	s.First = e.Size
	return nil
}
