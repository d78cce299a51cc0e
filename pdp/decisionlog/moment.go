package decisionlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"go.etcd.io/bbolt"
)

// Moment names a state of the log by the checkpoint that it ends with, under
// which that is stored.
type Moment struct {
	Size uint64
	Time time.Time
}

// ErrChanged is returned for a moment that cannot be had any more: content that was
// there then has been removed since.
var ErrChanged = errors.New("content that was in the log then has been removed since")

// Settled is a snapshot that [Log.At] gives again, the very same, until content it
// has is removed. It ends before every removal that is under way: a record that is
// on its way out is there in one look and gone in the next.
func (l *Log) Settled() (*Snapshot, error) {
	last, err := l.LastCheckpoint()
	if err != nil {
		return nil, err
	}
	// In this order: a removal that began before the checkpoint has its file here
	// still, or is done.
	before, err := l.removalsBegan()
	if err != nil {
		return nil, err
	}
	if before < last.Size {
		if last, err = l.checkpointTo(before); err != nil {
			return nil, err
		}
	}
	return l.watched(last)
}

// At is the log as it was at a moment: [ErrNotFound] where there was no such
// moment, and see [Snapshot.Intact].
func (l *Log) At(m Moment) (*Snapshot, error) {
	if m.Size == 0 {
		return nil, ErrNotFound
	}
	s, err := l.find(m.Size - 1)
	if err != nil {
		return nil, err
	}
	var found Checkpoint
	err = l.view(s, func(tx *bbolt.Tx) (err error) {
		stored := tx.Bucket([]byte(BucketCheckpoints)).Get(Checkpoint{Size: m.Size, Time: m.Time}.key())
		if stored == nil {
			return fmt.Errorf("%w: no checkpoint of that size and time", ErrNotFound)
		}
		found, err = ParseCheckpoint(bytes.Clone(stored), nil)
		return err
	})
	if err != nil {
		return nil, err
	}
	return l.watched(found)
}

func (l *Log) watched(c Checkpoint) (*Snapshot, error) {
	keys, err := VerifierKeys(l.data)
	if err != nil {
		return nil, err
	}
	s := l.snapshotTo(c, keys)
	s.removed = &removed{log: l, next: c.Size, redacted: map[uint64]string{}}
	return s, nil
}

// Moment is what [Log.At] finds the snapshot by.
func (s *Snapshot) Moment() Moment { return Moment{uint64(s.Head.Size), s.Head.Time} }

// Keys are the public keys the snapshot is exported with, oldest first.
func (s *Snapshot) Keys() []string { return s.Head.Keys }

// Covers reports whether a record stands before the snapshot's checkpoint.
func (s *Snapshot) Covers(sequence uint64) bool { return sequence < uint64(s.Head.Size) }

// Intact returns [ErrChanged] where content that the reader could see in the
// snapshot has been removed since, or may have been. Only one from [Log.Settled]
// or [Log.At] knows.
func (s *Snapshot) Intact(ctx context.Context) error {
	if err := s.removed.look(ctx); err != nil {
		return err
	}
	for _, tenant := range s.removed.redacted {
		if s.seesTenant(tenant) {
			return ErrChanged
		}
	}
	if s.removed.below > 0 {
		return ErrChanged // of whom those records were nobody knows any more
	}
	return nil
}

// wasGone returns [ErrChanged] for a record without content that had it at the
// snapshot's moment: an export would tell two stories.
func (s *Snapshot) wasGone(ctx context.Context, sequence uint64) error {
	if s.removed == nil {
		return nil
	}
	if err := s.removed.look(ctx); err != nil {
		return err
	}
	tenant, redacted := s.removed.redacted[sequence]
	if sequence < s.removed.below || redacted && s.seesTenant(tenant) {
		return ErrChanged
	}
	return nil
}

func (s *Snapshot) seesTenant(tenant string) bool {
	return s.Tenants == nil || slices.Contains(s.Tenants, tenant)
}

// removed is what the records after a snapshot say was removed.
type removed struct {
	log      *Log
	next     uint64            // the records before it were looked at
	below    uint64            // no record before it has content any more
	redacted map[uint64]string // sequence to tenant
}

// look takes in the sealed records that came since it last looked. A removal's record
// is sealed before its content goes, so that the active segment need not be read, which
// it cannot be while writing fails.
func (r *removed) look(ctx context.Context) error {
	all := r.log.all()
	end := all[len(all)-1].first
	for record, err := range r.log.Records(ctx, r.next, end) {
		if err == nil && (bytes.Contains(record.Line, []byte(EventRedacted)) || bytes.Contains(record.Line, []byte(EventRetired))) {
			err = r.take(record.Line)
		}
		if err != nil {
			return err
		}
	}
	r.next = max(r.next, end)
	return nil
}

func (r *removed) take(line []byte) error {
	s, err := Parse(line)
	if err != nil {
		return err
	}
	if s.Kind != KindAdmin || s.Event != EventRedacted && s.Event != EventRetired {
		return nil // somebody's text
	}
	var d struct {
		Sequence uint64 `json:"sequence"`
		Below    uint64 `json:"below"`
	}
	if err := json.Unmarshal(s.Details, &d); err != nil {
		return err
	}
	if s.Event == EventRetired {
		r.below = max(r.below, d.Below)
	} else {
		r.redacted[d.Sequence] = s.Tenant
	}
	return nil
}

// removalsBegan is how many records there were when the first of the removals began
// that are not done: their new files say so.
func (r *Reader) removalsBegan() (uint64, error) {
	first := uint64(math.MaxUint64)
	entries, err := os.ReadDir(filepath.Join(r.data, LogDir))
	for _, entry := range entries {
		if _, size, ok := isNext(entry.Name()); ok {
			first = min(first, size)
		}
	}
	return first, err
}
