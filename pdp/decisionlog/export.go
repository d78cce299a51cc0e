package decisionlog

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"strings"
)

// ExportOptions say what an export holds, and who watches it.
type ExportOptions struct {
	// Format is "ndjson", which verify reads, or "csv", which tables read; the
	// default is ndjson.
	Format string
	Filter Filter
	// Proofs adds an inclusion proof to every record of an NDJSON export.
	Proofs bool
	// From leaves out what a reader has already: the beginning, and each line that begins
	// with an earlier record. 0 writes all. The digest at the end, and what [Exported] says,
	// are those of the whole export, so that pieces put together equal the export in one piece.
	From uint64
	// Progress, where it is set, is told now and then how far the export is.
	Progress func(done, size int64)
}

// Exported says what an export holds.
type Exported struct {
	// Records were written, of the Size leaves that the checkpoint covers.
	Records int64 `json:"records"`
	Size    int64 `json:"size"`
	// Skipped records did not pass the filter; of Retired and Redacted ones only
	// the hashes are left.
	Skipped  int64 `json:"skipped,omitempty"`
	Retired  int64 `json:"retired,omitempty"`
	Redacted int64 `json:"redacted,omitempty"`
	// Live is set where a server is running on the log: what it wrote since the
	// last segment was sealed is not here.
	Live bool `json:"live,omitempty"`
	// Uncovered records stand after the last checkpoint and are not here: a
	// crash left them, and the next start signs for them.
	Uncovered int64 `json:"uncovered,omitempty"`
	// Digest is the SHA-256, in hexadecimal, of every byte of the export; of NDJSON, of
	// every byte before the last line, which holds it too.
	Digest string `json:"digest,omitempty"`
}

// progressEvery is how many leaves lie between two calls of Progress.
const progressEvery = 1 << 12

// Export writes the records of the log. It holds a few records at a time.
func (s *Snapshot) Export(ctx context.Context, w io.Writer, o ExportOptions) (Exported, error) {
	o.Filter.Tenants = s.Tenants
	if err := o.Filter.Check(); err != nil {
		return Exported{}, err
	}
	buffered := bufio.NewWriterSize(w, 1<<16)
	out, err := newExportWriter(newExportLines(buffered, o.From), s, o)
	if err != nil {
		return Exported{}, err
	}
	head := s.Head
	done := Exported{Size: head.Size, Live: head.Live, Uncovered: head.Uncovered}
	if err := out.begin(head); err != nil {
		return done, err
	}
	for l, err := range s.Records(ctx, 0, uint64(head.Size)) {
		if err == nil {
			err = s.exportLeaf(ctx, out, l, o.Filter, &done)
		}
		if err != nil {
			return done, err
		}
		if o.Progress != nil && (l.Sequence+1)%progressEvery == 0 {
			o.Progress(int64(l.Sequence+1), head.Size)
		}
	}
	if err := out.end(&done); err != nil {
		return done, err
	}
	if o.Progress != nil {
		o.Progress(head.Size, head.Size)
	}
	return done, buffered.Flush()
}

// exportLeaf writes one leaf as what it is in this export.
func (s *Snapshot) exportLeaf(ctx context.Context, out exportWriter, l Record, f Filter, done *Exported) error {
	switch l.Gone {
	case WhyFiltered:
		done.Skipped++
		return out.without(l, l.Gone)
	case WhyRetired:
		done.Retired++
		return out.without(l, l.Gone)
	case WhyRedacted:
		done.Redacted++
		return out.without(l, l.Gone)
	}
	passes, err := f.Matches(l.Line)
	if err == nil && !passes && out.whole() {
		passes, err = s.passedOn(ctx, l, f)
	}
	if err != nil {
		return fmt.Errorf("record %d: %w", l.Sequence, err)
	}
	if !passes {
		done.Skipped++
		return out.without(l, WhyFiltered)
	}
	done.Records++
	return out.record(l)
}

// batchSpan is how many records may stand behind that of a batch which are items of it:
// as many as a batch may have.
const batchSpan = 1000

// passedOn reports whether a record is that of a batch an item of which passes and
// inherits from it: without the one nobody could read the other whole. It looks ahead,
// and holds nothing.
func (s *Snapshot) passedOn(ctx context.Context, l Record, f Filter) (bool, error) {
	if !bytes.Contains(l.Line, []byte(`"kind":"`+KindBatch+`"`)) { // most are read once
		return false, nil
	}
	batch, err := Parse(l.Line)
	if err != nil || batch.Kind != KindBatch {
		return false, err
	}
	for next, err := range s.Records(ctx, l.Sequence+1, min(l.Sequence+1+batchSpan, uint64(s.Head.Size))) {
		if err != nil {
			return false, err
		}
		if next.Gone != "" { // perhaps an item that was redacted: others follow
			continue
		}
		item, err := Parse(next.Line)
		if err != nil || !strings.HasPrefix(item.ID, batch.ID+".") {
			return false, err
		}
		if item.BatchID() != batch.ID {
			continue
		}
		if passes, err := f.Matches(next.Line); err != nil || passes {
			return passes, err
		}
	}
	return false, nil
}

// exportWriter is one form of export.
type exportWriter interface {
	begin(Head) error
	// whole says that records are written whole, so that what they inherit must be, too.
	whole() bool
	record(Record) error
	without(l Record, why string) error
	// end sets the digest.
	end(*Exported) error
}

func newExportWriter(lines exportLines, s *Snapshot, o ExportOptions) (exportWriter, error) {
	switch o.Format {
	case "", "ndjson":
		return &ndjson{
			exportLines: lines,
			hashes:      &cachedHashes{from: s},
			filter:      o.Filter,
			proofs:      o.Proofs,
			form:        FormLog,
		}, nil
	case "csv":
		return newTable(lines), nil
	}
	return nil, fmt.Errorf("%q is no format of an export; take ndjson or csv", o.Format)
}

// exportLines takes the lines of an export. Every line counts in the digest; only those
// that a reader does not have yet are written.
type exportLines struct {
	w      *bufio.Writer
	digest hash.Hash
	from   uint64 // the first record to be written
}

func newExportLines(w *bufio.Writer, from uint64) exportLines {
	return exportLines{w: w, digest: sha256.New(), from: from}
}

// write takes a line, in parts. first is the first record that the line is about, and 0
// for the line that the export begins with.
func (e *exportLines) write(first uint64, parts ...[]byte) (err error) {
	for _, part := range parts {
		e.digest.Write(part)
		if first >= e.from {
			_, err = e.w.Write(part) // the writer keeps its first error
		}
	}
	return err
}

func (e *exportLines) sum() string { return hex.EncodeToString(e.digest.Sum(nil)) }
