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
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"go.etcd.io/bbolt"
	"golang.org/x/mod/sumdb/note"
)

// Moment names a state of the log: by the size and the time of the checkpoint that it
// ends with. The checkpoint is stored under these two.
type Moment struct {
	Size uint64
	Time time.Time
}

// String is the moment as a name, SIZE-TIME, with the time in nanoseconds since 1970.
func (m Moment) String() string { return fmt.Sprintf("%d-%d", m.Size, m.Time.UnixNano()) }

// ParseMoment reads the name of a moment.
func ParseMoment(name string) (m Moment, ok bool) {
	size, at, _ := strings.Cut(name, "-")
	n, sizeErr := strconv.ParseUint(size, 10, 63)
	nanos, timeErr := strconv.ParseInt(at, 10, 64)
	m = Moment{Size: n, Time: time.Unix(0, nanos)}
	return m, sizeErr == nil && timeErr == nil && m.String() == name
}

// ErrChanged means that a moment cannot be read any more, because content that was in
// the log then has been removed since.
var ErrChanged = errors.New("content that was in the log then has been removed since")

// Settled is a snapshot that [Log.At] can give again, the very same, until some of its
// content is removed. It ends before every removal that is under way, because a record
// that is being removed can be there in one read and gone in the next.
func (l *Log) Settled() (*Snapshot, error) {
	last, err := l.checkpointTo(l.Size())
	if err != nil {
		return nil, err
	}
	// In this order: if a removal began before the checkpoint was read, its new file is
	// still here, or the removal is done.
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

// At is the log as it was at a moment. It returns [ErrNotFound] if there was no such
// moment. If content was removed since, reading the snapshot fails with [ErrChanged].
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
	s, err := l.snapshotTo(c)
	if err != nil {
		return nil, err
	}
	s.Head.Keys = keysUntil(c, s.Head.Keys)
	s.since = &since{log: l, next: c.Size}
	return s, nil
}

// keysUntil are the keys up to the one that signed a checkpoint, and the one that the
// checkpoint signs in. An export names its keys. With a key that came later, it would be
// another export than the one that a reader has the first part of.
func keysUntil(c Checkpoint, keys []string) []string {
	for i, key := range keys {
		v, err := note.NewVerifier(key)
		if err == nil {
			_, err = note.Open(c.Note, note.VerifierList(v))
		}
		if err != nil {
			continue
		}
		if keys = keys[:i+1]; c.NextKey != "" {
			keys = append(keys, c.NextKey) // the file of keys gets it a moment later
		}
		break
	}
	return keys
}

// Moment is what [Log.At] finds the snapshot by.
func (s *Snapshot) Moment() Moment { return Moment{uint64(s.Head.Size), s.Head.Time} }

// Covers reports whether a record stands before the snapshot's checkpoint.
func (s *Snapshot) Covers(sequence uint64) bool { return sequence < uint64(s.Head.Size) }

// wasGone returns [ErrChanged] for a record without content if the record had content at
// the snapshot's moment. Without this, one export would mix the log of two moments.
func (s *Snapshot) wasGone(ctx context.Context, sequence uint64) error {
	if s.since == nil {
		return nil
	}
	if err := s.since.look(ctx); err != nil {
		return err
	}
	tenant, redacted := s.since.redacted[sequence]
	if sequence < s.since.below || redacted && (s.Tenants == nil || slices.Contains(s.Tenants, tenant)) {
		return ErrChanged
	}
	return nil
}

// since is what was removed after a snapshot.
type since struct {
	removed
	log  *Log
	next uint64 // the next record to read; all before it were read
}

// look reads the sealed records that came since the last look. It need not read the
// active segment, which cannot be read while writing fails: the record of a removal is
// sealed before the content is removed.
func (r *since) look(ctx context.Context) error {
	all := r.log.all()
	end := all[len(all)-1].first
	for record, err := range r.log.Records(ctx, r.next, end) {
		removal := bytes.Contains(record.Line, []byte(EventRedacted)) || bytes.Contains(record.Line, []byte(EventRetired))
		if err == nil && removal {
			err = r.take(record.Line)
		}
		if err != nil {
			return err
		}
	}
	r.next = max(r.next, end)
	return nil
}

// removed is what records say was removed.
type removed struct {
	below    uint64            // no record before this one has content any more
	redacted map[uint64]string // sequence to tenant
}

// take reads what a line says. The name of an event may stand in it in some other text.
func (r *removed) take(line []byte) error {
	s, err := Parse(line)
	if err != nil || s.Kind != KindAdmin || s.Event != EventRedacted && s.Event != EventRetired {
		return err
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
		return nil
	}
	if r.redacted == nil {
		r.redacted = map[uint64]string{}
	}
	r.redacted[d.Sequence] = s.Tenant
	return nil
}

// removalsBegan is how many records there were when the earliest unfinished removal
// began. The name of a removal's new file says so.
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
