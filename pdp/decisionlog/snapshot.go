package decisionlog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sort"
	"time"
)

// Head is what a snapshot reaches up to.
type Head struct {
	Origin     string
	Size       int64 // the records that Checkpoint covers
	Time       time.Time
	Checkpoint []byte
	Keys       []string
	// Live is true if a server is running on the log: what it wrote since the last segment was
	// sealed is not in the snapshot. Uncovered records stand after the checkpoint.
	Live      bool
	Uncovered int64
}

// Snapshot is the log up to its newest checkpoint that can be read, for one
// reader: what is exported, proved and counted. It is not for concurrent use.
type Snapshot struct {
	*Reader
	Head    Head
	Tenants []string // whose records are there for the reader; nil is all

	segments []Segment
	retired  map[uint64]bool // by segment, as far as it was asked for
	since    *since          // nil if it does not matter what was removed since
}

// Read hands the log of a data directory to f: up to its last checkpoint, or,
// beside a running server, the last one that covers only sealed segments.
func Read(data string, f func(*Snapshot) error) error {
	r, err := OpenReader(data)
	if err != nil {
		return err
	}
	s, err := r.snapshot()
	if err == nil {
		err = f(s)
	}
	return errors.Join(err, r.Close())
}

// Snapshot is the log as of its newest checkpoint.
func (l *Log) Snapshot() (*Snapshot, error) {
	last, err := l.checkpointTo(l.Size())
	if err != nil {
		return nil, err
	}
	return l.snapshotTo(last)
}

// For is the same snapshot for a reader who may see the records of some tenants only. Of the records
// of others there are the hashes, and nothing says what became of them.
func (s *Snapshot) For(tenants []string) *Snapshot {
	cut := *s
	cut.Tenants = tenants
	return &cut
}

// Checkpoint is the signed checkpoint that the snapshot ends with.
func (s *Snapshot) Checkpoint(context.Context) ([]byte, error) { return s.Head.Checkpoint, nil }

func (r *Reader) snapshot() (*Snapshot, error) {
	last, err := r.LastCheckpoint()
	if err != nil {
		return nil, fmt.Errorf("no checkpoint can be read: %w", err)
	}
	return r.snapshotTo(last)
}

func (r *Reader) snapshotTo(c Checkpoint) (*Snapshot, error) {
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
		Live:       r.Partial(),
	}
	if !h.Live {
		h.Uncovered = int64(r.Size()) - h.Size
	}
	return &Snapshot{Reader: r, Head: h, segments: r.Segments(), retired: map[uint64]bool{}}, nil
}

// Records yields the records in [from, to), in order, each as the reader may see it: without
// its Line, and with the reason in Gone, if its content is gone or is not for the reader.
func (s *Snapshot) Records(ctx context.Context, from, to uint64) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for r, err := range s.Reader.Records(ctx, from, to) {
			if err == nil && r.Line == nil {
				err = s.wasGone(ctx, r.Sequence)
			}
			switch {
			case err != nil:
			case !s.sees(r.Line):
				r.Line, r.Gone = nil, WhyFiltered
			case r.Line == nil:
				r.Gone, err = s.why(r.Sequence)
			}
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// ByID finds a record by its id, as the reader may see it.
func (s *Snapshot) ByID(id string) (Record, error) {
	r, err := s.Reader.ByID(id)
	if (err == nil || errors.Is(err, ErrGone)) && !s.sees(r.Line) {
		return Record{}, fmt.Errorf("%w: %q", ErrNotFound, id)
	}
	if errors.Is(err, ErrGone) {
		if r.Gone, err = s.why(r.Sequence); err == nil {
			err = fmt.Errorf("%w: record %d was %s", ErrGone, r.Sequence, r.Gone)
		}
	}
	if err == nil && !s.Covers(r.Sequence) {
		err = fmt.Errorf("%w that a checkpoint covers: record %d stands after the newest one", ErrNotFound, r.Sequence)
	}
	return r, err
}

// sees reports whether a record is there for the reader. Of one without content
// nobody knows any more whose it was.
func (s *Snapshot) sees(line []byte) bool {
	if s.Tenants == nil {
		return true
	}
	passes, err := (Filter{Tenants: s.Tenants}).Matches(line)
	return err == nil && passes
}

// why says what became of a record that has no content.
func (s *Snapshot) why(sequence uint64) (string, error) {
	i := sort.Search(len(s.segments), func(i int) bool { return s.segments[i].First > sequence }) - 1
	if i < 0 {
		return "", fmt.Errorf("record %d: %w: its segment is not here", sequence, ErrGone)
	}
	segment := s.segments[i]
	retired, known := s.retired[segment.Number]
	if !known {
		var err error
		if retired, err = s.isRetired(segment); err != nil {
			return "", err
		}
		s.retired[segment.Number] = retired
	}
	if retired {
		return WhyRetired, nil
	}
	return WhyRedacted, nil
}

// isRetired reports whether retention emptied a segment.
func (r *Reader) isRetired(segment Segment) (bool, error) {
	switch _, err := r.Get(segment.First); {
	case err == nil:
		return false, nil
	case errors.Is(err, ErrGone):
		return true, nil
	default:
		return false, err
	}
}

// Shown is a record with the policies that decided it, as they were then.
type Shown struct {
	// Record is the record as it is stored, with what it inherits.
	Record   Recorded
	LeafHash string
	// Files are the policies, by path. They are nil if the record names no bundle, or one
	// that is not kept.
	Files map[string][]byte
}

// Show finds a record by its id.
func (s *Snapshot) Show(_ context.Context, id string) (Shown, error) {
	r, err := s.ByID(id)
	if err != nil {
		return Shown{}, err
	}
	shown := Shown{LeafHash: r.Leaf.String()}
	if shown.Record, err = s.Recorded(r.Line); err != nil || shown.Record.Bundle == "" {
		return shown, err
	}
	shown.Files, err = s.Bundle(shown.Record.Bundle)
	return shown, err
}

// Bundle returns the files of a bundle, nil if they were never kept: a record stays
// readable without its policies.
func (s *Snapshot) Bundle(digest string) (map[string][]byte, error) {
	files, err := (&Bundles{dir: bundlesDir(s.data)}).Files(digest)
	if errors.Is(err, ErrNoSuchBundle) {
		return nil, nil
	}
	return files, err
}
