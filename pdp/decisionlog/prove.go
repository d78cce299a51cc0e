package decisionlog

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"golang.org/x/mod/sumdb/tlog"
)

// Prove writes a record with the proof that it is in the log, which verify
// accepts alone.
func (s *Snapshot) Prove(_ context.Context, w io.Writer, id string) error {
	l, err := s.find(id)
	if err != nil {
		return err
	}
	buffered := bufio.NewWriter(w)
	head := s.head
	out := &ndjson{w: buffered, digest: sha256.New(), hashes: s, proofs: true, form: FormProof}
	if err := out.begin(head); err != nil {
		return err
	}
	if err := out.record(l); err != nil {
		return err
	}
	if err := out.end(Exported{Records: 1}); err != nil {
		return err
	}
	return buffered.Flush()
}

// ErrForked is returned for a checkpoint that was signed for another history.
var ErrForked = errors.New("the old checkpoint is not of this log's history")

// Consistency writes the proof that the log of today continues the one that an
// older checkpoint was signed for.
func (s *Snapshot) Consistency(_ context.Context, w io.Writer, old []byte) error {
	then, err := ParseCheckpoint(old, nil)
	if err != nil {
		return err
	}
	if err := s.continues(then); err != nil {
		return err
	}
	line := exportConsistency{Export: ExportConsistency, Format: ExportFormat, Origin: s.head.Origin,
		Old: string(old), New: string(s.head.Checkpoint)}
	// No proof is needed from nothing, and tlog has none.
	if then.Size > 0 {
		proof, err := tlog.ProveTree(s.head.Size, int64(then.Size), s)
		if err != nil {
			return err
		}
		line.Hashes = hashList(proof)
	}
	b, err := json.Marshal(line)
	if err == nil {
		_, err = w.Write(append(b, '\n'))
	}
	return err
}

// continues says why no proof from a checkpoint could hold.
func (s *Snapshot) continues(then Checkpoint) error {
	switch now := s.head; {
	case then.Origin != now.Origin:
		return fmt.Errorf("%w: it is of %s, and this log is %s", ErrForked, then.Origin, now.Origin)
	case int64(then.Size) > now.Size:
		return fmt.Errorf("the old checkpoint covers %d records and the newest here %d: a running server has the rest, or the log was cut", then.Size, now.Size)
	}
	root, err := tlog.TreeHash(int64(then.Size), s)
	if err == nil && root != then.Root {
		err = fmt.Errorf("%w: its first %d records are others", ErrForked, then.Size)
	}
	return err
}

// find looks for a record by its id.
func (s *Snapshot) find(id string) (leaf, error) {
	record, err := s.ByID(id)
	l := leaf{Sequence: int64(record.Sequence), Hash: record.Leaf, Line: record.Line}
	if (err == nil || errors.Is(err, ErrGone)) && !s.sees(l.Line) {
		return leaf{}, fmt.Errorf("%w: %q", ErrNotFound, id)
	}
	if errors.Is(err, ErrGone) {
		if l.Gone, err = s.why(record.Sequence); err == nil {
			err = fmt.Errorf("%w: record %d was %s", ErrGone, l.Sequence, l.Gone)
		}
	}
	if err == nil && l.Sequence >= s.head.Size {
		err = fmt.Errorf("%w that a checkpoint covers: record %d stands after the newest one", ErrNotFound, l.Sequence)
	}
	return l, err
}
