package export

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/decisionlog"
)

// Prove writes a record with the proof that it is in the log, which verify accepts
// alone. If the record inherits from the record of its batch, it writes that as well.
func (l Log) Prove(_ context.Context, w io.Writer, id string) error {
	r, err := l.Find(id)
	if err != nil {
		return err
	}
	// If the content of the batch's record is gone, the record is proved without it.
	records, _, err := l.WithBatches([]decisionlog.Record{r}, math.MaxInt)
	if err != nil {
		return err
	}
	return l.WriteProofs(w, records)
}

// WriteProofs writes records alone, each with its proof, in order of sequence: an export of
// the form "proof".
func (l Log) WriteProofs(w io.Writer, records []decisionlog.Record) error {
	buffered := bufio.NewWriter(w)
	n := &ndjson{
		lines:  newLines(buffered, 0),
		hashes: &cachedHashes{from: l},
		proofs: true,
		form:   FormProof,
	}
	if err := n.begin(l.Head); err != nil {
		return err
	}
	for _, r := range records {
		if err := n.record(r); err != nil {
			return err
		}
	}
	if err := n.end(&Result{Records: int64(len(records))}); err != nil {
		return err
	}
	return buffered.Flush()
}

// WithBatches returns records together with the records of the batches that they inherit from,
// each once, in order of sequence. gone has, by sequence, the members that a record lacks because
// they stood in the record of a batch whose content is gone. The error is [decisionlog.ErrTooLarge]
// if the records of the batches have more bytes than most.
func (l Log) WithBatches(
	records []decisionlog.Record, most int,
) (all []decisionlog.Record, gone map[uint64][]string, err error) {
	all, gone = slices.Clone(records), map[uint64][]string{}
	held, found := 0, map[string]bool{} // by id
	for _, r := range records {
		item, err := decisionlog.Parse(r.Line)
		if err != nil {
			return nil, nil, err
		}
		id := item.BatchID()
		if id == "" {
			continue
		}
		if _, known := found[id]; !known {
			batch, err := l.Batch(r.Line)
			if err != nil {
				return nil, nil, err
			}
			if held += len(batch.Line); held > most {
				return nil, nil, decisionlog.ErrTooLarge
			}
			if found[id] = batch.Line != nil; found[id] {
				all = append(all, batch)
			}
		}
		if !found[id] {
			gone[r.Sequence] = item.Inherits
		}
	}
	slices.SortFunc(all, func(a, b decisionlog.Record) int { return cmp.Compare(a.Sequence, b.Sequence) })
	return all, gone, nil
}

// Consistency writes the proof that the log of today continues the one that an
// older checkpoint was signed for.
func (l Log) Consistency(_ context.Context, w io.Writer, old []byte) error {
	then, err := decisionlog.ParseCheckpoint(old, nil)
	if err != nil {
		return err
	}
	if err := l.continues(then); err != nil {
		return err
	}
	line := consistencyLine{
		Export: LineConsistency,
		Format: Format,
		Origin: l.Head.Origin,
		Old:    string(old),
		New:    string(l.Head.Checkpoint),
	}
	// An empty log needs no proof that another one continues it, and tlog has none.
	if then.Size > 0 {
		proof, err := tlog.ProveTree(l.Head.Size, int64(then.Size), l)
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

// continues returns the reason if the log does not continue a checkpoint.
func (l Log) continues(then decisionlog.Checkpoint) error {
	switch now := l.Head; {
	case then.Origin != now.Origin:
		return fmt.Errorf("%w: it is of %s, and this log is %s", decisionlog.ErrForked, then.Origin, now.Origin)
	case int64(then.Size) > now.Size:
		return fmt.Errorf("the old checkpoint covers %d records and the newest here %d: "+
			"a running server has the rest, or the log was cut", then.Size, now.Size)
	}
	return l.Reader.Continues(then)
}
