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
// when they are durable. After an error nobody knows whether they are there:
// the file must be closed and looked at.
func (l *Log) transact(calls []*call, o order) error {
	start, s, next := time.Now(), l.w.active, l.w.tail
	next.edge = next.edge.clone()
	charged := l.w.charged
	if o.begin != nil {
		s, l.w.charged = o.begin, newCharges()
	}
	commit := Commit{Calls: len(calls)}
	err := guard(func() error {
		tx, err := s.db.Begin(true)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // nothing where it was committed
		if err := l.fill(tx, &next, calls, o, &commit); err != nil {
			return err
		}
		if err := tx.Commit(); err != nil {
			return err
		}
		return s.db.View(func(tx *bbolt.Tx) error { s.size = tx.Size(); return nil })
	})
	if err != nil {
		l.w.charged = charged // what is there is read again before anything is written
		return fmt.Errorf("segment %s: %w", s.path, err)
	}
	made := !bytes.Equal(next.note, l.w.tail.note)
	l.w.tail = next
	if o.begin != nil {
		l.accounts.seal(charged, next.time)
	}
	l.accounts.wrote(calls, contentOf(s.size, next.edge.size-s.first))
	if o.begin == nil { // else the segment is not yet among those that are read
		l.grow(next.edge.size)
	}
	commit.Took = time.Since(start)
	l.state.committed(commit)
	l.options.On.Commit(commit)
	if made {
		l.options.On.Checkpoint(next.note)
	}
	return nil
}

// fill does the writing of a transaction.
func (l *Log) fill(tx *bbolt.Tx, next *tail, calls []*call, o order, commit *Commit) error {
	if o.begin != nil {
		if err := beginSegment(tx, o.begin, next.edge, l.w.key.public); err != nil {
			return err
		}
	}
	w := newBuckets(tx)
	for _, c := range calls {
		c.first = next.edge.size
		at, behind := next.at(l.options.Now()) // read here: callers overtake each other on the way
		for i := range c.entries {
			p := &c.entries[i]
			p.finish(next.edge.size, at, behind)
			if err := w.put(p, &next.edge); err != nil {
				return err
			}
			commit.Bytes += len(p.line)
			p.body, p.line = nil, nil
		}
		l.w.charged.add(c.payer, c.first, c.weight)
		commit.Records += len(c.entries)
		next.appended = time.Now()
	}
	due := next.edge.size-next.checkpointed >= uint64(l.options.CheckpointRecords)
	if o.checkpoint || due || o.clean {
		if err := errors.Join(l.checkpoint(w, next, o.nextKey), l.w.charged.put(tx)); err != nil {
			return err
		}
	}
	if o.clean {
		return w.meta.Put([]byte(MetaClean), number(next.edge.size))
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
func (l *Log) checkpoint(w buckets, next *tail, nextKey *key) (err error) {
	c := Checkpoint{Origin: l.w.key.Name(), Size: next.edge.size}
	c.Time, _ = next.at(l.options.Now())
	if c.Root, err = next.edge.root(); err != nil {
		return err
	}
	signers := []note.Signer{l.w.key.Signer}
	if nextKey != nil {
		c.NextKey = nextKey.public
		signers = append(signers, nextKey.Signer)
		if err := w.meta.Put([]byte(MetaKey), []byte(nextKey.public)); err != nil {
			return err
		}
	}
	if err := c.sign(signers...); err != nil {
		return err
	}
	next.note, next.checkpointed, next.checkpointedAt = c.Note, c.Size, time.Now()
	return w.checkpoints.Put(c.key(), c.Note)
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
