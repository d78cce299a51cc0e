package decisionlog

import (
	"bytes"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"time"

	"github.com/go-json-experiment/json"
	"go.etcd.io/bbolt"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/boltfile"
)

// openTail opens what is there for writing, and checks the end of it: the rest
// was checked when it was the end, and verify checks all of it.
func (l *Log) openTail() (crashed bool, err error) {
	if err := l.removePrepared(); err != nil {
		return false, err
	}
	if err := l.scan(); err != nil {
		return false, err
	}
	all := l.all()
	if l.partial.Load() {
		return false, ErrLocked
	}
	if len(all) == 0 {
		return false, l.create()
	}
	s := all[len(all)-1]
	if l.w.key, err = openKey(l.data, l.options.Origin, s.key); err != nil {
		return false, err
	}
	if err := os.Chmod(s.path, 0o600); err != nil { // it may have been sealed before a crash
		return false, err
	}
	db, err := openFile(s.path, boltfile.ToWrite, l.writing())
	if err != nil {
		return false, err
	}
	db.AllocSize = allocSize
	s.mu.Lock()
	s.db, s.active = db, true
	s.mu.Unlock()
	l.w.active, l.w.opened = s, l.options.Now()
	clean := uint64(0)
	var undigested []uint64
	var doubt error
	err = s.view(func(tx *bbolt.Tx) (err error) {
		clean, _ = readNumber(tx.Bucket([]byte(BucketMeta)).Get([]byte(MetaClean)))
		if at, ok := timeOf(tx.Bucket([]byte(BucketRecords)).Get(number(s.first))); ok {
			l.w.opened = at
		}
		if l.w.tail, err = checkTail(tx, s, l.Size()); err != nil {
			return err
		}
		var sealed []uint64
		for _, other := range all[:len(all)-1] {
			sealed = append(sealed, other.number)
		}
		undigested, doubt = readUndigested(tx, s.first, l.w.tail.edge, sealed)
		l.w.charged = activeCharges(tx, s.first, l.w.tail.checkpointed, l.Size())
		s.size = tx.Size()
		l.accounts.reopen(l.w.charged, contentOf(s.size, l.Size()-s.first))
		return nil
	})
	if err == nil && doubt != nil && len(undigested) > 0 {
		l.digests.doubt(undigested, doubt)
	} else if err == nil {
		l.digests.set(undigested)
	}
	return clean != l.Size(), err
}

// checkEdge holds the edge of a segment that has no checkpoint yet against the last one
// of the segment before it, if that is here: it was sealed with one.
func (l *Log) checkEdge() error {
	s := l.w.active
	if l.w.tail.note != nil || len(l.all()) < 2 {
		return nil
	}
	last, err := l.LastCheckpoint()
	if err != nil {
		return err
	}
	verifier, err := note.NewVerifier(l.w.key.public)
	if err == nil {
		last, err = ParseCheckpoint(last.Note, note.VerifierList(verifier))
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	root, err := tlog.TreeHash(int64(last.Size), l)
	if err != nil || last.Size != s.first || root != last.Root {
		return errors.Join(fmt.Errorf("%w: segment %d does not continue what was signed of the one before it", ErrDamaged, s.number), err)
	}
	var before edge
	err = s.view(func(tx *bbolt.Tx) error {
		r, err := segmentHashes(tx, s.first)
		if err == nil {
			before, err = edgeAt(s.first, r)
		}
		return err
	})
	if err != nil {
		return err
	}
	if root, err = before.root(); err != nil || root != last.Root {
		return errors.Join(fmt.Errorf("%w: the edge of segment %d is not what was signed", ErrDamaged, s.number), err)
	}
	return nil
}

// create begins a log.
func (l *Log) create() (err error) {
	if l.w.key, err = openKey(l.data, l.options.Origin, ""); err != nil {
		return err
	}
	next := l.prepareSegment(1)
	if next.err != nil {
		return next.err
	}
	l.w.tail = tail{}
	return l.begin(next.segment, EventCreated, map[string]any{"format": FormatVersion, "origin": l.w.key.Name(), "key": l.w.key.public})
}

// checkTail reads the end of the active segment, as far as it is not below the
// last checkpoint, and computes again what the tree says of it.
func checkTail(tx *bbolt.Tx, s *segment, size uint64) (t tail, err error) {
	r, err := segmentHashes(tx, s.first)
	if err != nil {
		return t, err
	}
	from := s.first
	var c Checkpoint
	if _, v := tx.Bucket([]byte(BucketCheckpoints)).Cursor().Last(); v != nil {
		verifier, err := note.NewVerifier(s.key)
		if err != nil {
			return t, fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		if c, err = ParseCheckpoint(bytes.Clone(v), note.VerifierList(verifier)); err != nil {
			return t, fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		if c.Size > size || c.Size < s.first {
			return t, fmt.Errorf("%w: it has %d records and a checkpoint of %d", ErrDamaged, size, c.Size)
		}
		if root, err := tlog.TreeHash(int64(c.Size), r); err != nil || root != c.Root {
			return t, errors.Join(fmt.Errorf("%w: the tree of %d is not the one that was signed", ErrDamaged, c.Size), err)
		}
		from = max(s.first, min(c.Size, size-1)) // the last record in any case
	}
	t = tail{note: c.Note, checkpointed: c.Size, checkpointedAt: time.Now(), time: c.Time, appended: time.Now()}
	if t.edge, err = edgeAt(from, r); err != nil {
		return t, err
	}
	return t, t.replay(tx, size)
}

// replay goes over the last records again, as when they were written.
func (t *tail) replay(tx *bbolt.Tx, size uint64) error {
	records, hashes := tx.Bucket([]byte(BucketRecords)), tx.Bucket([]byte(BucketHashes))
	for t.edge.size < size {
		key := number(t.edge.size)
		line, stored := records.Get(key), hashes.Get(key)
		if len(stored) < tlog.HashSize {
			return fmt.Errorf("%w: it has no hash of record %d", ErrDamaged, t.edge.size)
		}
		leaf := tlog.Hash(stored[:tlog.HashSize])
		if line != nil && tlog.RecordHash(line) != leaf {
			return fmt.Errorf("%w: record %d is not the one that was hashed", ErrDamaged, t.edge.size)
		}
		again, err := t.edge.add(leaf)
		if err != nil || !bytes.Equal(joinHashes(again), stored) {
			return errors.Join(fmt.Errorf("%w: the tree does not hold record %d", ErrDamaged, t.edge.size-1), err)
		}
		if at, ok := timeOf(line); ok && at.After(t.time) {
			t.time = at
		}
	}
	return nil
}

// timeOf reads the time of a line.
func timeOf(line []byte) (time.Time, bool) {
	var stamp struct {
		Time string `json:"time"`
	}
	if json.Unmarshal(line, &stamp) != nil {
		return time.Time{}, false
	}
	at, err := time.Parse(TimeLayout, stamp.Time)
	return at, err == nil
}

// edgeBefore reads the edge that a segment begins with.
func edgeBefore(tx *bbolt.Tx, first uint64) (edge, error) {
	hashes, err := splitHashes(tx.Bucket([]byte(BucketMeta)).Get([]byte(MetaEdge)))
	if err == nil && len(hashes) != bits.OnesCount64(first) {
		err = fmt.Errorf("%w: its edge has %d hashes, and it begins with record %d", ErrDamaged, len(hashes), first)
	}
	return edge{first, hashes}, err
}

// segmentHashes reads hashes from one segment alone, what stands before it from
// its edge.
func segmentHashes(tx *bbolt.Tx, first uint64) (tlog.HashReader, error) {
	edge, err := edgeBefore(tx, first)
	if err != nil {
		return nil, err
	}
	return tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		out := make([]tlog.Hash, len(indexes))
		for i, index := range indexes {
			sequence, level := completes(index)
			if sequence >= first {
				if out[i], err = storedHash(tx, sequence, level); err != nil {
					return nil, err
				}
				continue
			}
			one, err := edge.ReadHashes([]int64{index})
			if err != nil {
				return nil, err
			}
			out[i] = one[0]
		}
		return out, nil
	}), nil
}
