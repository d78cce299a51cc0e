package export

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/c2sp"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
)

// Prove writes a record with the proof that it is in the log, which verify accepts
// alone. If the record inherits from the record of its batch, it writes that as well. The proofs end in the checkpoint
// that witnesses cosigned, if that covers the record.
func (l Log) Prove(_ context.Context, w io.Writer, id string) error {
	r, err := l.Find(id)
	if err != nil {
		return err
	}
	// If the content of the batch's record is gone, the record is proved without it.
	records, _, err := l.WithBatches([]record.Record{r}, math.MaxInt)
	if err != nil {
		return err
	}
	return l.witnessed(r.Sequence).WriteProofs(w, records)
}

// Proof is the same proof as text, for the tools of others. It is of a leaf: a record whose content is gone has one, too.
// Its extra is the id of the record, which was found by the id given. The error is [segment.ErrNotFound] if no
// checkpoint covers the record yet.
func (l Log) Proof(r record.Record, id string) (p c2sp.Proof, err error) {
	if !l.Covers(r.Sequence) {
		return p, fmt.Errorf("record %d: %w that a checkpoint covers", r.Sequence, segment.ErrNotFound)
	}
	if r.Line != nil { // the id may be that of a question in it
		record, err := record.Parse(r.Line)
		if err != nil {
			return p, err
		}
		id = record.ID
	}
	l = l.witnessed(r.Sequence)
	p = c2sp.Proof{Index: int64(r.Sequence), Checkpoint: l.Head.Checkpoint, Extra: []byte(id)}
	p.Hashes, err = pathOf(l.Head.Size, r.Sequence, l)
	return p, err
}

// witnessed is the log up to the checkpoint that witnesses cosigned, if that covers a record, and else up to the newest.
func (l Log) witnessed(sequence uint64) Log {
	c, err := l.Witnessed()
	if err != nil || sequence >= c.Size {
		return l
	}
	cut := *l.Snapshot
	cut.Head.Size, cut.Head.Time, cut.Head.Checkpoint = int64(c.Size), c.Time, c.Note
	return Log{&cut}
}

// pathOf is the path of a record through the tree of a size, for every form of a proof.
func pathOf(size int64, sequence uint64, hashes tlog.HashReader) (tlog.RecordProof, error) {
	path, err := tlog.ProveRecord(size, int64(sequence), hashes)
	if err != nil {
		err = fmt.Errorf("record %d: %w", sequence, err)
	}
	return path, err
}

// Proved is a record of an export, with its proof.
type Proved struct {
	ID    string
	Line  []byte
	Proof c2sp.Proof
}

// Proofs reads the output of [Log.Prove]. It checks nothing: package verify does.
func Proofs(in io.Reader) (all []Proved, err error) {
	var e struct {
		Export     string      `json:"export"`
		Checkpoint string      `json:"checkpoint"`
		Sequence   int64       `json:"sequence"`
		Hashes     []tlog.Hash `json:"hashes"`
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, format.MaxLine+len("\r\n")+1)
	for lines.Scan() {
		line := lines.Bytes()
		if !bytes.HasPrefix(line, []byte(format.ExportPrefix)) {
			r, err := record.Parse(line)
			if err != nil {
				return nil, err
			}
			all = append(all, Proved{ID: r.ID, Line: bytes.Clone(line)})
			continue
		}
		e.Hashes = nil
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, err
		}
		if e.Export == format.LineProof && len(all) > 0 {
			one := &all[len(all)-1]
			one.Proof = c2sp.Proof{Index: e.Sequence, Hashes: e.Hashes, Checkpoint: []byte(e.Checkpoint), Extra: []byte(one.ID)}
		}
	}
	if len(all) == 0 && lines.Err() == nil {
		return nil, errors.New("there is no record in the proof")
	}
	return all, lines.Err()
}

// WriteProofs writes records alone, each with its proof, in order of sequence: an export of
// the form "proof".
func (l Log) WriteProofs(w io.Writer, records []record.Record) error {
	buffered := bufio.NewWriter(w)
	n := &ndjson{
		lines:  newLines(buffered, 0),
		hashes: &cachedHashes{from: l},
		proofs: true,
		form:   format.FormProof,

		witnessed: l.Witnessed,
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
	records []record.Record, most int,
) (all []record.Record, gone map[uint64][]string, err error) {
	all, gone = slices.Clone(records), map[uint64][]string{}
	held, found := 0, map[string]bool{} // by id
	for _, r := range records {
		item, err := record.Parse(r.Line)
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
	slices.SortFunc(all, func(a, b record.Record) int { return cmp.Compare(a.Sequence, b.Sequence) })
	return all, gone, nil
}

// Consistency writes the proof that the log of today continues the one that an
// older checkpoint was signed for.
func (l Log) Consistency(_ context.Context, w io.Writer, old []byte) error {
	then, err := segment.ParseCheckpoint(old, nil)
	if err != nil {
		return err
	}
	if err := l.continues(then); err != nil {
		return err
	}
	line := consistencyLine{
		Export: format.LineConsistency,
		Format: format.ExportVersion,
		Origin: l.Head.Origin,
		Old:    string(old),
		New:    string(l.Head.Checkpoint),
	}
	proof, err := treeProof(l.Head.Size, int64(then.Size), l)
	if err != nil {
		return err
	}
	line.Hashes = hashList(proof)
	b, err := json.Marshal(line)
	if err == nil {
		_, err = w.Write(append(b, '\n'))
	}
	return err
}

// continues returns the reason if the log does not continue a checkpoint.
func (l Log) continues(then segment.Checkpoint) error {
	switch now := l.Head; {
	case then.Origin != now.Origin:
		return fmt.Errorf("%w: it is of %s, and this log is %s", segment.ErrForked, then.Origin, now.Origin)
	case int64(then.Size) > now.Size:
		return fmt.Errorf("the old checkpoint covers %d records and the newest here %d: "+
			"a running server has the rest, or the log was cut", then.Size, now.Size)
	}
	return l.Reader.CheckContinues(then)
}
