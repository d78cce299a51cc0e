// Package export writes the decision log out: its records, each as a line that [Log.Export] and [Log.Prove] make
// verifiable without the log, or as a row of a table; and the proof that the log continues what it was
// ([Log.Consistency]). [Tail] hands out records as they come. Start with format.go: it says what an export holds.
//
// The package reads through [segment.Snapshot], so an export never has what its reader may not see. It refuses to
// change what it writes out: a record is exported byte for byte as it is stored, or as its hash.
package export

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
)

// Log is a snapshot of the decision log that can be written out.
type Log struct{ *segment.Snapshot }

// Options say what an export holds.
type Options struct {
	// Format is "ndjson", which verify reads, or "csv", which tables read. The default is ndjson.
	Format string
	Filter record.Filter
	// Proofs adds an inclusion proof to every record of an NDJSON export.
	Proofs bool
	// Bundles adds the files of each bundle that a record names, before the first record that names it. A reader of some tenants
	// only may not see them.
	Bundles bool
	// BOM begins a CSV export with a byte order mark, by which spreadsheets know that it is UTF-8.
	BOM bool
	// From leaves out what a reader has already: the beginning, and each line that begins
	// with an earlier record. 0 writes all. The digest at the end, and the [Result], are those
	// of the whole export, so that pieces put together equal the export in one piece.
	From uint64
}

// Result says what an export holds.
type Result struct {
	// Records were written, of the Size leaves that the checkpoint covers.
	Records int64 `json:"records"`
	Size    int64 `json:"size"`
	// Skipped records did not pass the filter. Of Retired and Redacted records only
	// the hashes are left.
	Skipped  int64 `json:"skipped,omitempty"`
	Retired  int64 `json:"retired,omitempty"`
	Redacted int64 `json:"redacted,omitempty"`
	segment.Unread
	// Digest is the SHA-256, in hexadecimal, of every byte of the export. In NDJSON it is that of
	// every byte before the last line, which holds it too.
	Digest string `json:"digest,omitempty"`
}

// ErrBundlesOfAll: the files of a bundle have the policies of all tenants.
var ErrBundlesOfAll = errors.New("the bundles are for readers who may see all tenants; leave them out")

// Export writes the records of the log. It holds a few records at a time.
func (l Log) Export(ctx context.Context, w io.Writer, o Options) (Result, error) {
	o.Filter.Tenants = l.Tenants
	if err := o.Filter.Check(); err != nil {
		return Result{}, err
	}
	buffered := bufio.NewWriterSize(w, 1<<16)
	out, err := l.writer(newLines(buffered, o.From), o)
	if err != nil {
		return Result{}, err
	}
	head := l.Head
	done := Result{Size: head.Size, Unread: head.Unread}
	if err := out.begin(head); err != nil {
		return done, err
	}
	sieve := l.Sieve(o.Filter)
	for r, err := range l.Records(ctx, 0, uint64(head.Size)) {
		if err == nil {
			err = l.exportLeaf(ctx, out, r, sieve, &done)
		}
		if err != nil {
			return done, err
		}
	}
	if err := out.end(&done); err != nil {
		return done, err
	}
	return done, buffered.Flush()
}

// exportLeaf writes one leaf: the record, or its hash if this export does not have the record.
func (l Log) exportLeaf(
	ctx context.Context, out writer, r record.Record, sieve *record.Sieve, done *Result,
) error {
	if r.Gone == "" {
		passes, err := sieve.Passes(r.Line)
		if err == nil && !passes && out.whole() {
			passes, err = l.neededByItem(ctx, r, sieve)
		}
		if err != nil {
			return fmt.Errorf("record %d: %w", r.Sequence, err)
		}
		if passes {
			done.Records++
			return out.record(r)
		}
		r.Gone = format.WhyFiltered
	}
	switch r.Gone {
	case format.WhyFiltered:
		done.Skipped++
	case format.WhyRetired:
		done.Retired++
	case format.WhyRedacted:
		done.Redacted++
	}
	return out.without(r)
}

// batchSpan is how many records after that of a batch can be its items:
// as many as a batch may have.
const batchSpan = 1000

// neededByItem reports whether a record is that of a batch, and an item of the batch passes the
// filter and inherits from it. Without the batch's record no reader has the whole item. It looks
// ahead, and keeps nothing.
func (l Log) neededByItem(ctx context.Context, r record.Record, sieve *record.Sieve) (bool, error) {
	batch, err := batchOf(r)
	if err != nil || batch == nil {
		return false, err
	}
	for next, err := range l.Records(ctx, r.Sequence+1, min(r.Sequence+1+batchSpan, uint64(l.Head.Size))) {
		if err != nil {
			return false, err
		}
		if next.Gone != "" { // perhaps an item that was redacted: others follow
			continue
		}
		item, err := record.Parse(next.Line)
		if err != nil || !strings.HasPrefix(item.ID, batch.ID+".") {
			return false, err
		}
		if item.BatchID() != batch.ID { // an item that inherits nothing
			continue
		}
		if passes, err := sieve.Passes(next.Line); err != nil || passes {
			return passes, err
		}
	}
	return false, nil
}

// batchOf is a record of kind batch, and nil for all others.
func batchOf(r record.Record) (*record.Recorded, error) {
	if !bytes.Contains(r.Line, []byte(`"kind":"`+format.KindBatch+`"`)) { // so most records are parsed once
		return nil, nil
	}
	batch, err := record.Parse(r.Line)
	if err != nil || batch.Kind != format.KindBatch {
		return nil, err
	}
	return batch, nil
}

// writer writes one format.
type writer interface {
	begin(segment.Head) error
	// whole reports whether the format has records as they are stored. Then it needs those that they inherit from.
	whole() bool
	record(record.Record) error
	// without writes a record that is not in the export, for the reason in its Gone.
	without(record.Record) error
	// end sets the digest.
	end(*Result) error
}

func (l Log) writer(lines lines, o Options) (writer, error) {
	switch o.Format {
	case "", "ndjson":
		made := &ndjson{
			lines:  lines,
			hashes: &cachedHashes{from: l},
			filter: o.Filter,
			proofs: o.Proofs,
			form:   format.FormLog,

			witnessed: l.Witnessed,
		}
		if o.Bundles && l.Tenants != nil {
			return nil, ErrBundlesOfAll
		}
		if o.Bundles {
			made.bundles = &bundles{of: l.Bundle, written: map[string]bool{}}
		}
		return made, nil
	case "csv":
		t := newTable(lines)
		t.bom = o.BOM
		return t, nil
	}
	return nil, fmt.Errorf("%q is no format of an export; take ndjson or csv", o.Format)
}

// lines takes the lines of an export. Every line counts in the digest. Only the lines
// that a reader does not have yet are written.
type lines struct {
	w      *bufio.Writer
	digest hash.Hash
	from   uint64 // the first record to be written
}

func newLines(w *bufio.Writer, from uint64) lines {
	return lines{w: w, digest: sha256.New(), from: from}
}

// write takes a line, in parts. first is the first record that the line is about, and 0
// for the line that the export begins with.
func (l *lines) write(first uint64, parts ...[]byte) (err error) {
	for _, part := range parts {
		l.digest.Write(part)
		if first >= l.from {
			_, err = l.w.Write(part) // the writer keeps its first error
		}
	}
	return err
}

func (l *lines) sum() string { return hex.EncodeToString(l.digest.Sum(nil)) }
