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
	// Live and Uncovered say what is not in the snapshot: see [Exported].
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
	removed  *removed        // since; nil where nobody asks
}

// Read hands the log of a data directory to f: up to its last checkpoint, or,
// beside a running server, the last one that covers only sealed segments.
func Read(data string, f func(*Snapshot) error) error {
	r, err := OpenReader(data)
	if err != nil {
		return err
	}
	keys, err := VerifierKeys(data)
	if err == nil {
		var s *Snapshot
		if s, err = r.snapshot(keys); err == nil {
			err = f(s)
		}
	}
	return errors.Join(err, r.Close())
}

// Snapshot is the log as of its newest checkpoint.
func (l *Log) Snapshot() (*Snapshot, error) {
	last, err := l.checkpointTo(l.Size())
	if err != nil {
		return nil, err
	}
	keys, err := VerifierKeys(l.data)
	if err != nil {
		return nil, err
	}
	return l.snapshotTo(last, keys), nil
}

// For is the same for a reader who may see the records of some tenants only. Of
// others there are their hashes, and nothing says what became of them.
func (s *Snapshot) For(tenants []string) *Snapshot {
	cut := *s
	cut.Tenants = tenants
	return &cut
}

// Checkpoint is the signed checkpoint that the snapshot ends with.
func (s *Snapshot) Checkpoint(context.Context) ([]byte, error) { return s.Head.Checkpoint, nil }

func (r *Reader) snapshot(keys []string) (*Snapshot, error) {
	last, err := r.LastCheckpoint()
	if err != nil {
		return nil, fmt.Errorf("no checkpoint can be read: %w", err)
	}
	return r.snapshotTo(last, keys), nil
}

func (r *Reader) snapshotTo(c Checkpoint, keys []string) *Snapshot {
	h := Head{Origin: c.Origin, Size: int64(c.Size), Time: c.Time, Checkpoint: c.Note, Keys: keys, Live: r.Partial()}
	if !h.Live {
		h.Uncovered = int64(r.Size()) - h.Size
	}
	return &Snapshot{Reader: r, Head: h, segments: r.Segments(), retired: map[uint64]bool{}}
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
