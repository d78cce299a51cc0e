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

// Snapshot is the log up to its newest checkpoint that can be read, for one
// reader: exports, proofs and counts read it. It is not for concurrent use.
type Snapshot struct {
	*Reader
	Head    Head
	Tenants []string // whose records are there for the reader; nil is all

	retired map[uint64]bool // by segment, as far as it was asked for
	since   *removalsSince  // nil if later removals do not matter
}

// Head is the end of a snapshot.
type Head struct {
	Origin     string
	Size       int64 // the records that Checkpoint covers
	Time       time.Time
	Checkpoint []byte
	Keys       []string
	Unread
}

// Unread are the records that are not in a snapshot.
type Unread struct {
	// Live is true if a server is running on the log: its records since the last segment was sealed are not there.
	Live bool `json:"live,omitzero"`
	// Uncovered records stand after the checkpoint: a crash left them, and the next start signs for them.
	Uncovered int64 `json:"uncovered,omitzero"`
	// Unfilled stands in the journal only: see [Reader.Unfilled].
	Unfilled *Unfilled `json:"journal_only,omitzero"`
}

// Read hands the log of a data directory to f: up to its last checkpoint, or,
// beside a running server, the last one that covers only sealed segments.
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

// For is the same snapshot for a reader that may see the records of some tenants only. Of the records
// of others there are the hashes, and nothing else about them.
func (s *Snapshot) For(tenants []string) *Snapshot {
	cut := *s
	cut.Tenants = tenants
	return &cut
}

// Checkpoint is the signed checkpoint that the snapshot ends with.
func (s *Snapshot) Checkpoint(context.Context) ([]byte, error) { return s.Head.Checkpoint, nil }

// Covers reports whether a record stands before the snapshot's checkpoint.
func (s *Snapshot) Covers(sequence uint64) bool { return sequence < uint64(s.Head.Size) }

// Records yields the records in [from, to), in order, each as the reader may see it: without
// its Line, and with the reason in Gone, if its content is gone or is not for the reader.
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

// ByID finds a record by its id, as the reader may see it.
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

// Find is [Snapshot.ByID], which also finds the record that has the question of an id.
func (s *Snapshot) Find(id string) (record.Record, error) { return FindRecord(id, s.ByID) }

// sees reports whether a record is there for the reader. Of one without content
// its tenant is unknown.
func (s *Snapshot) isVisible(line []byte) bool {
	if s.Tenants == nil {
		return true
	}
	passes, err := (record.Filter{Tenants: s.Tenants}).Matches(line)
	return err == nil && passes
}

// why is the reason for which a record has no content.
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
	// Record is the record as it is stored, with its inherited parts.
	Record   record.Recorded
	LeafHash string
	// OfBatch is set if Record is a question of the record of a batch, of which Line is.
	OfBatch bool
	// Files are the policies, by path. They are nil if the record names no bundle, or one
	// that is not kept.
	Files map[string][]byte
}

// Show finds a record by its id.
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

// Ask leaves of the record of a batch the question of an id, if it is that of one.
func (s *Shown) SelectQuestion(id string) error {
	if s.Record.Items == nil || s.Record.ID == id {
		return nil
	}
	q, err := s.Record.Question(id)
	if errors.Is(err, record.ErrNoQuestion) { // the record itself is all there is
		return nil
	}
	s.Record, s.OfBatch = q, true
	return err
}

// Bundle returns the files of a bundle, nil if they were never kept: a record stays
// readable without its policies.
func (s *Snapshot) Bundle(digest string) (map[string][]byte, error) {
	files, err := (&Bundles{dir: BundlesPath(s.data)}).Files(digest)
	if errors.Is(err, ErrNoSuchBundle) {
		return nil, nil
	}
	return files, err
}

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

// Moment is the name by which [decisionlog.Log.At] finds the snapshot.
func (s *Snapshot) Moment() Moment { return Moment{uint64(s.Head.Size), s.Head.Time} }
