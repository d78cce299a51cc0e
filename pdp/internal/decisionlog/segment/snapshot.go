package segment

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
)

// Snapshot is the log up to a checkpoint, as one reader may see it. Exports, proofs and reports read it. It is not safe for
// concurrent use.
type Snapshot struct {
	*Reader
	Head    Head
	Tenants []string // tenants whose records the reader may see; nil means all

	retired map[uint64]bool // results of IsRetired, by segment number
	since   *removalsSince  // nil if later removals do not matter
}

// Head describes the end of a snapshot.
type Head struct {
	Origin     string
	Size       int64 // number of records that Checkpoint covers
	Time       time.Time
	Checkpoint []byte
	Keys       []string
	Unread
}

// Unread describes records that are in the log but not in a snapshot.
type Unread struct {
	// Live is set if a server is running on the log: the records since it last sealed a segment are missing.
	Live bool `json:"live,omitzero"`
	// Uncovered is the number of records after the checkpoint. A crash left them, and the next start signs them.
	Uncovered int64 `json:"uncovered,omitzero"`
	// Unfilled describes records that are only in the journal: see [Reader.Unfilled].
	Unfilled *Unfilled `json:"journal_only,omitzero"`
}

// Read calls f with the log of a data directory up to its last checkpoint or, beside a running server, up to the last
// checkpoint that covers only sealed segments.
func Read(data string, f func(*Snapshot) error) error {
	r, err := OpenReader(data)
	if err != nil {
		return err
	}
	last, err := r.LastCheckpoint()
	if err != nil {
		return errors.Join(fmt.Errorf("no checkpoint can be read: %w", err), r.Close())
	}
	s, err := r.SnapshotTo(last)
	if err == nil {
		err = f(s)
	}
	return errors.Join(err, r.Close())
}

// SnapshotTo returns the log up to a checkpoint.
func (r *Reader) SnapshotTo(c Checkpoint) (*Snapshot, error) {
	keys, err := VerifierKeys(r.data)
	if err != nil {
		return nil, err
	}
	h := Head{
		Origin:     c.Origin,
		Size:       int64(c.Size),
		Time:       c.Time,
		Checkpoint: c.Note,
		Keys:       keys,
		Unread:     Unread{Live: r.Partial(), Unfilled: r.Unfilled()},
	}
	if !h.Live {
		h.Uncovered = int64(r.Size()) - h.Size
	}
	return &Snapshot{Reader: r, Head: h, retired: map[uint64]bool{}}, nil
}

// For returns the snapshot for a reader who may see only the records of some tenants. Of other records it has only the
// hashes.
func (s *Snapshot) For(tenants []string) *Snapshot {
	cut := *s
	cut.Tenants = tenants
	return &cut
}

// Checkpoint returns the signed checkpoint that the snapshot ends with.
func (s *Snapshot) Checkpoint(context.Context) ([]byte, error) { return s.Head.Checkpoint, nil }

// Covers reports whether the snapshot's checkpoint covers a record.
func (s *Snapshot) Covers(sequence uint64) bool { return sequence < uint64(s.Head.Size) }

// Records yields the records in [from, to), in order. A record has no Line, and the reason in Gone, if its content is gone or
// the reader may not see it.
func (s *Snapshot) Records(ctx context.Context, from, to uint64) iter.Seq2[record.Record, error] {
	return func(yield func(record.Record, error) bool) {
		for r, err := range s.Reader.Records(ctx, from, to) {
			if err == nil && r.Line == nil {
				err = s.checkWasGone(ctx, r.Sequence)
			}
			switch {
			case err != nil:
			case !s.isVisible(r.Line):
				r.Line, r.Gone = nil, format.WhyFiltered
			case r.Line == nil:
				r.Gone, err = s.whyGone(r.Sequence)
			}
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// ByID returns the record with an ID. The error is [ErrNotFound] if the reader may not see it.
func (s *Snapshot) ByID(id string) (record.Record, error) {
	r, err := s.Reader.ByID(id)
	if (err == nil || errors.Is(err, ErrGone)) && !s.isVisible(r.Line) {
		return record.Record{}, fmt.Errorf("%w: %q", ErrNotFound, id)
	}
	if errors.Is(err, ErrGone) {
		if r.Gone, err = s.whyGone(r.Sequence); err == nil {
			err = fmt.Errorf("%w: record %d was %s", ErrGone, r.Sequence, r.Gone)
		}
	}
	if err == nil && !s.Covers(r.Sequence) {
		err = fmt.Errorf("%w that a checkpoint covers: record %d stands after the newest one", ErrNotFound, r.Sequence)
	}
	return r, err
}

// Find is [FindRecord] with [Snapshot.ByID].
func (s *Snapshot) Find(id string) (record.Record, error) { return FindRecord(id, s.ByID) }

// isVisible reports whether the reader may see a record. The tenant of a record without content is unknown.
func (s *Snapshot) isVisible(line []byte) bool {
	if s.Tenants == nil {
		return true
	}
	passes, err := (record.Filter{Tenants: s.Tenants}).Matches(line)
	return err == nil && passes
}

// whyGone returns the reason why a record has no content.
func (s *Snapshot) whyGone(sequence uint64) (string, error) {
	segment, err := s.FindFile(sequence)
	if err != nil {
		return "", err
	}
	retired, known := s.retired[segment.Number]
	if !known {
		if retired, err = s.IsRetired(segment.First); err != nil {
			return "", err
		}
		s.retired[segment.Number] = retired
	}
	if retired {
		return format.WhyRetired, nil
	}
	return format.WhyRedacted, nil
}

// Shown is a record with the policies that decided it, as they were then.
type Shown struct {
	// Record is the record as it is stored, with what it inherits.
	Record   record.Recorded
	LeafHash string
	// OfBatch is set if Record is a question of a batch. Its Line is that of the batch.
	OfBatch bool
	// Files are the policies, by path. Files is nil if the record names no bundle, or one
	// that is not kept.
	Files map[string][]byte
}

// Show returns the record with an ID, or of a batch the question with that ID.
func (s *Snapshot) Show(_ context.Context, id string) (Shown, error) {
	r, err := s.Find(id)
	if err != nil {
		return Shown{}, err
	}
	shown := Shown{LeafHash: r.Leaf.String()}
	if shown.Record, err = s.Recorded(r.Line); err != nil || shown.Record.Bundle == "" {
		return shown, err
	}
	if err := shown.SelectQuestion(id); err != nil {
		return shown, err
	}
	shown.Files, err = s.Bundle(shown.Record.Bundle)
	return shown, err
}

// SelectQuestion replaces the record of a batch by its question with an ID. It does nothing if the ID is that of the record.
func (s *Shown) SelectQuestion(id string) error {
	if s.Record.Items == nil || s.Record.ID == id {
		return nil
	}
	q, err := s.Record.Question(id)
	if errors.Is(err, record.ErrNoQuestion) { // the ID is of no question: show the record itself
		return nil
	}
	s.Record, s.OfBatch = q, true
	return err
}

// Bundle returns the files of a bundle, or nil if they were never kept: a record can be read without its policies.
func (s *Snapshot) Bundle(digest string) (map[string][]byte, error) {
	files, err := (&Bundles{dir: BundlesPath(s.data)}).Files(digest)
	if errors.Is(err, ErrNoSuchBundle) {
		return nil, nil
	}
	return files, err
}

// Moment identifies a state of the log by the size and time of the checkpoint that it ends with. Checkpoints are stored under
// these two.
type Moment struct {
	Size uint64
	Time time.Time
}

// String returns the moment as SIZE-TIME, with the time in nanoseconds since 1970.
func (m Moment) String() string { return fmt.Sprintf("%d-%d", m.Size, m.Time.UnixNano()) }

// ParseMoment parses the result of [Moment.String].
func ParseMoment(name string) (m Moment, ok bool) {
	size, at, _ := strings.Cut(name, "-")
	n, sizeErr := strconv.ParseUint(size, 10, 63)
	nanos, timeErr := strconv.ParseInt(at, 10, 64)
	m = Moment{Size: n, Time: time.Unix(0, nanos)}
	return m, sizeErr == nil && timeErr == nil && m.String() == name
}

// Moment returns the moment with which [decisionlog.Log.At] finds the snapshot.
func (s *Snapshot) Moment() Moment { return Moment{uint64(s.Head.Size), s.Head.Time} }
