package decisionlog

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// tail is the end of the log as the writer knows it: all that it needs to go on.
type tail struct {
	edge edge
	time time.Time // of the last record or checkpoint
	note []byte    // the last checkpoint

	checkpointed   uint64 // its size
	checkpointedAt time.Time
	appended       time.Time
}

// order says what a transaction has to do besides.
type order struct {
	checkpoint bool
	clean      bool // the log is being closed
	nextKey    *key // to be signed in
	begin      *segment
}

// transact writes calls into the active segment, all or nothing, and returns
// when they are durable. After an error they may be there or not:
// the file must be closed and looked at.
func (w *writer) transact(calls []*call, o order) error {
	start, s, next := time.Now(), w.active, w.tail
	next.edge = next.edge.clone()
	if o.begin != nil {
		s = o.begin
		s.charged = newCharges()
	}
	commit := Commit{Calls: len(calls)}
	err := guard(func() error {
		tx, err := s.db.Begin(true)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // nothing after a commit
		if err := w.fill(tx, s, &next, calls, o, &commit); err != nil {
			return err
		}
		if err := tx.Commit(); err != nil {
			return err
		}
		return s.db.View(func(tx *bbolt.Tx) error { s.size = tx.Size(); return nil })
	})
	if err != nil {
		return fmt.Errorf("segment %s: %w", s.path, err)
	}
	made := !bytes.Equal(next.note, w.tail.note)
	w.tail = next
	if o.begin != nil && w.active != nil {
		w.accounts.seal(w.active.charged, next.time)
		w.active.charged = nil
	}
	w.accounts.wrote(calls, contentOf(s.size, next.edge.size-s.first))
	if o.begin == nil { // else the segment is not yet among those that are read
		w.grow(next.edge.size)
	}
	commit.Took = time.Since(start)
	w.state.committed(commit)
	w.options.On.Commit(commit)
	if made {
		w.options.On.Checkpoint(next.note)
	}
	return nil
}

// fill does the writing of a transaction.
func (w *writer) fill(tx *bbolt.Tx, s *segment, next *tail, calls []*call, o order, commit *Commit) error {
	if o.begin != nil {
		if err := beginSegment(tx, s, next.edge, w.key.public); err != nil {
			return err
		}
	}
	b := newBuckets(tx)
	for _, c := range calls {
		c.first = next.edge.size
		at, behind := next.at(w.options.Now()) // read here: callers overtake each other on the way
		for i := range c.entries {
			p := &c.entries[i]
			p.finish(next.edge.size, at, behind)
			if err := b.put(p, &next.edge); err != nil {
				return err
			}
			commit.Bytes += len(p.line)
			p.body, p.line = nil, nil
		}
		s.charged.add(c.payer, c.first, c.weight)
		commit.Records += len(c.entries)
		next.appended = time.Now()
	}
	due := next.edge.size-next.checkpointed >= uint64(w.options.CheckpointRecords)
	if o.checkpoint || due || o.clean {
		if err := errors.Join(w.checkpoint(b, next, o.nextKey), s.charged.put(tx)); err != nil {
			return err
		}
	}
	if o.clean {
		return b.meta.Put([]byte(MetaClean), number(next.edge.size))
	}
	return nil
}

// at is the time of what is written now: never before what was written last.
func (t *tail) at(now time.Time) (at time.Time, behind bool) {
	if now = now.Round(0).UTC(); now.Before(t.time) {
		return t.time, true
	}
	t.time = now
	return now, false
}

// checkpoint signs the tree as it will be after this transaction.
func (w *writer) checkpoint(b buckets, next *tail, nextKey *key) (err error) {
	c := Checkpoint{Origin: w.key.Name(), Size: next.edge.size}
	c.Time, _ = next.at(w.options.Now())
	if c.Root, err = next.edge.root(); err != nil {
		return err
	}
	signers := []note.Signer{w.key.Signer}
	if nextKey != nil {
		c.NextKey = nextKey.public
		signers = append(signers, nextKey.Signer)
		if err := b.meta.Put([]byte(MetaKey), []byte(nextKey.public)); err != nil {
			return err
		}
	}
	if err := c.sign(signers...); err != nil {
		return err
	}
	next.note, next.checkpointed, next.checkpointedAt = c.Note, c.Size, time.Now()
	return b.checkpoints.Put(c.key(), c.Note)
}

// buckets are those of a segment that is written to. All but ids are written in
// the order of their keys, so that their pages can be filled to the brim.
type buckets struct{ meta, records, hashes, ids, checkpoints *bbolt.Bucket }

func newBuckets(tx *bbolt.Tx) buckets {
	b := buckets{
		meta:        tx.Bucket([]byte(BucketMeta)),
		records:     tx.Bucket([]byte(BucketRecords)),
		hashes:      tx.Bucket([]byte(BucketHashes)),
		ids:         tx.Bucket([]byte(BucketIDs)),
		checkpoints: tx.Bucket([]byte(BucketCheckpoints)),
	}
	b.records.FillPercent, b.hashes.FillPercent, b.ids.FillPercent = 1, 1, 0.9
	return b
}

func (b buckets) put(p *prepared, e *edge) error {
	key := number(e.size)
	stored, err := e.add(tlog.RecordHash(p.line))
	if err != nil {
		return err
	}
	if err := b.records.Put(key, p.line); err != nil {
		return err
	}
	if err := b.hashes.Put(key, joinHashes(stored)); err != nil {
		return err
	}
	if id := []byte(p.id); len(id) <= bbolt.MaxKeySize && b.ids.Get(id) == nil {
		return b.ids.Put(id, key)
	}
	return nil
}

// beginSegment says in a new segment where in the log it stands.
func beginSegment(tx *bbolt.Tx, s *segment, e edge, public string) error {
	meta := tx.Bucket([]byte(BucketMeta))
	for name, value := range map[string][]byte{
		MetaFormat:  strconv.AppendInt(nil, FormatVersion, 10),
		MetaSegment: number(s.number),
		MetaFirst:   number(e.size),
		MetaEdge:    joinHashes(e.hashes),
		MetaKey:     []byte(public),
	} {
		if err := meta.Put([]byte(name), value); err != nil {
			return err
		}
	}
	s.first = e.size
	return nil
}
