package decisionlog

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"golang.org/x/mod/sumdb/tlog"
)

// Prove writes a record with the proof that it is in the log, which verify
// accepts alone; where it inherits from the record of its batch that as well.
func (s *Snapshot) Prove(_ context.Context, w io.Writer, id string) error {
	l, err := s.find(id)
	if err != nil {
		return err
	}
	records, _, err := s.WithBatches([]Record{l}, math.MaxInt) // what is gone verify cannot tell, nor need it
	if err != nil {
		return err
	}
	return s.WriteProofs(w, records)
}

// WriteProofs writes records alone, each with its proof, in order of sequence: an export of
// the form "proof".
func (s *Snapshot) WriteProofs(w io.Writer, records []Record) error {
	buffered := bufio.NewWriter(w)
	n := &ndjson{
		exportLines: newExportLines(buffered, 0),
		hashes:      &cachedHashes{from: s},
		proofs:      true,
		form:        FormProof,
	}
	if err := n.begin(s.Head); err != nil {
		return err
	}
	for _, l := range records {
		if err := n.record(l); err != nil {
			return err
		}
	}
	if err := n.end(&Exported{Records: int64(len(records))}); err != nil {
		return err
	}
	return buffered.Flush()
}

// WithBatches are records, with those of the batches that they inherit from, each once, in
// order of sequence. gone are, by sequence, the members that a record lacks because they
// stood in the record of a batch whose content is gone. The error is [ErrTooLarge] if the
// records of the batches have more bytes than most.
func (s *Snapshot) WithBatches(records []Record, most int) (all []Record, gone map[uint64][]string, err error) {
	all, gone = slices.Clone(records), map[uint64][]string{}
	held, found := 0, map[string]bool{} // by id
	for _, l := range records {
		item, err := Parse(l.Line)
		if err != nil {
			return nil, nil, err
		}
		id := item.BatchID()
		if _, known := found[id]; id != "" && !known {
			batch, err := s.Batch(l.Line)
			if err != nil {
				return nil, nil, err
			}
			if held += len(batch.Line); held > most {
				return nil, nil, ErrTooLarge
			}
			if found[id] = batch.Line != nil; batch.Line != nil {
				all = append(all, batch)
			}
		}
		if id != "" && !found[id] {
			gone[l.Sequence] = item.Inherits
		}
	}
	slices.SortFunc(all, func(a, b Record) int { return cmp.Compare(a.Sequence, b.Sequence) })
	return all, gone, nil
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
	line := exportConsistency{Export: ExportConsistency, Format: ExportFormat, Origin: s.Head.Origin,
		Old: string(old), New: string(s.Head.Checkpoint)}
	// No proof is needed from nothing, and tlog has none.
	if then.Size > 0 {
		proof, err := tlog.ProveTree(s.Head.Size, int64(then.Size), s)
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
	switch now := s.Head; {
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
func (s *Snapshot) find(id string) (Record, error) {
	l, err := s.ByID(id)
	if (err == nil || errors.Is(err, ErrGone)) && !s.sees(l.Line) {
		return Record{}, fmt.Errorf("%w: %q", ErrNotFound, id)
	}
	if errors.Is(err, ErrGone) {
		if l.Gone, err = s.why(l.Sequence); err == nil {
			err = fmt.Errorf("%w: record %d was %s", ErrGone, l.Sequence, l.Gone)
		}
	}
	if err == nil && !s.Covers(l.Sequence) {
		err = fmt.Errorf("%w that a checkpoint covers: record %d stands after the newest one", ErrNotFound, l.Sequence)
	}
	return l, err
}
