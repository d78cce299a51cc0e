package remote

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
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/internal/decisionlog/export"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/httpclient"
)

// ErrOtherExport means that the server cannot go on with the export that has begun: it
// would send the rest of another one.
var ErrOtherExport = errors.New(
	"the server's log, its program or what the credential may read changed since the export began")

// Export writes the records of the log up to its newest checkpoint. If the connection
// breaks, Export goes on after the last record that came whole. The error is
// [segment.ErrChanged] if content was removed from the log meanwhile, and
// [ErrOtherExport] if the rest would be that of another export.
func (l *Log) Export(ctx context.Context, w io.Writer, o export.Options) (export.Result, error) {
	d := &download{
		server:  l.server,
		query:   exportQuery(o),
		options: o,
		to:      bufio.NewWriterSize(w, 64<<10),
		digest:  sha256.New(),
		last:    -1,
		rows:    rows{of: -1},
	}
	for failures := 0; ; {
		last := d.last
		done, err := d.piece(ctx)
		var broke broken
		switch {
		case err == nil:
			return done, nil
		case ctx.Err() == nil && !errors.As(err, &broke):
			return done, err
		case d.last > last:
			failures = 0
		}
		if failures++; ctx.Err() == nil && (failures > attempts || d.checkpoint == "") {
			return done, fmt.Errorf("the export broke off: %w", err)
		}
		if err := l.server.Again(ctx, failures, err); err != nil {
			return done, err
		}
	}
}

func exportQuery(o export.Options) url.Values {
	query := filterQuery(o.Filter)
	if o.Format != "" {
		query.Set("format", o.Format)
	}
	if o.Proofs {
		query.Set("proofs", "true")
	}
	if o.Bundles {
		query.Set("bundles", "true")
	}
	if o.BOM {
		query.Set("bom", "true")
	}
	return query
}

// download is an export on its way, over as many connections as it takes.
type download struct {
	server  *httpclient.Server
	query   url.Values
	options export.Options

	checkpoint string // names the export, "" before the first answer
	to         *bufio.Writer
	digest     hash.Hash // of all that was written
	last       int64     // the last record that was written whole
	rows       rows      // of CSV
	resumed    bool      // another connection went on with it
	held       []byte    // lines that came, and are not written yet
	end        string    // the digest in the last line, "" before that line has come
}

// rows are those of the record that rows came of last. One of a batch has a row for each question, and is whole when
// the next record begins.
type rows struct {
	of      int64
	written int
	came    int // over this connection
}

// broken marks an error after which another connection may go on.
type broken struct{ error }

func (b broken) Unwrap() error { return b.error }

const (
	checkpointHeader = "X-Export-Checkpoint"
	summaryHeader    = "X-Export-Summary"

	// idleTimeout ends a connection on which nothing comes. A server that goes on with an
	// export first makes the earlier lines again, which takes a while.
	idleTimeout = 5 * time.Minute
	// maxHeld bounds the lines that are held: a record and its proof; or a row, in which the request stands with what
	// it inherits, its names once more, and every quote twice.
	maxHeld = 6 * format.MaxLine
)

// piece reads one connection.
func (d *download) piece(ctx context.Context) (done export.Result, err error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	idle := time.AfterFunc(idleTimeout, end)
	defer idle.Stop()
	answer, err := d.open(ctx)
	if err != nil {
		return done, err
	}
	defer func() { _ = answer.Body.Close() }()
	d.held, d.end, d.rows.came = d.held[:0], "", 0
	content := bufio.NewReaderSize(&awake{answer.Body, idle}, 64<<10)
	for err == nil {
		err = d.line(content)
	}
	if err != io.EOF {
		return done, err
	}
	// A proxy may have taken the summary away.
	if summary := answer.Trailer.Get(summaryHeader); summary != "" {
		if err := json.Unmarshal([]byte(summary), &done); err != nil {
			return done, fmt.Errorf("the server's summary of the export is none: %w", err)
		}
	}
	return done, d.finish(done)
}

// awake puts off the end of an idle connection with each read.
type awake struct {
	io.Reader
	idle *time.Timer
}

func (a *awake) Read(b []byte) (int, error) {
	a.idle.Reset(idleTimeout)
	return a.Reader.Read(b)
}

// open asks for the export, or for the rest of it.
func (d *download) open(ctx context.Context) (*http.Response, error) {
	if d.checkpoint != "" {
		d.query.Set("checkpoint", d.checkpoint)
	}
	d.resumed = d.last >= 0 || d.rows.written > 0
	if d.last >= 0 {
		d.query.Set("after", strconv.FormatInt(d.last, 10))
	}
	answer, err := d.server.Ask(ctx, http.MethodGet, "/v1/log/export?"+d.query.Encode(), nil, nil, http.StatusOK)
	if d.checkpoint == "" {
		if err == nil {
			d.checkpoint = answer.Header.Get(checkpointHeader)
		}
		return answer, err
	}
	switch status := httpclient.StatusOf(err); {
	case status == http.StatusGone:
		err = fmt.Errorf("the export broke off and cannot go on: %w", segment.ErrChanged)
	case status == http.StatusNotFound:
		err = cannotGoOn()
	case err != nil && httpclient.Passing(err):
		err = broken{err}
	case err == nil && answer.Header.Get(checkpointHeader) != d.checkpoint:
		_ = answer.Body.Close()
		err = cannotGoOn()
	}
	return answer, err
}

func cannotGoOn() error {
	return fmt.Errorf("the export broke off and cannot go on: %w", ErrOtherExport)
}

// line reads a line. If the line is the last one of its record, line writes the held lines.
// A line of CSV does not end within quotes. The error is [io.EOF] at the end of the
// answer.
func (d *download) line(content *bufio.Reader) error {
	begun, quotes, table := len(d.held), 0, d.options.Format == "csv"
	for {
		part, err := content.ReadSlice('\n')
		d.held = append(d.held, part...)
		if table {
			quotes += bytes.Count(part, []byte{'"'})
		}
		switch {
		case len(d.held) > maxHeld:
			return errors.New("the export has a line that is longer than any record")
		case err == io.EOF && len(d.held) == begun:
			return io.EOF
		case err == io.EOF:
			return broken{io.ErrUnexpectedEOF}
		case err == bufio.ErrBufferFull, err == nil && quotes%2 != 0:
			continue
		case err != nil:
			return broken{err}
		}
		break
	}
	last, err := d.place(d.held[begun:])
	switch {
	case err != nil || last < 0:
		return err
	case last <= d.last: // the server began anew
		return cannotGoOn()
	case table:
		return d.row(last)
	}
	d.last = last
	return d.write()
}

// row writes a row of a record. After a break the server sends all rows of the record, and those that are written are
// passed over.
func (d *download) row(of int64) error {
	r := &d.rows
	if of != r.of {
		d.last, *r = r.of, rows{of: of}
	}
	if r.came++; r.came <= r.written {
		d.held = d.held[:0]
		return nil
	}
	r.written++
	return d.write()
}

// place returns the sequence of the record that ends with this line, and -1 if no record
// ends here. For a line of hashes it returns the first sequence: the server goes on after
// the whole line.
func (d *download) place(line []byte) (int64, error) {
	if d.options.Format == "csv" {
		cell, _, _ := bytes.Cut(line, []byte{','})
		if last, err := strconv.ParseInt(string(cell), 10, 64); err == nil {
			return last, nil
		}
		return -1, nil // the header
	}
	var of struct {
		Export   string `json:"export"`
		Sequence int64  `json:"sequence"`
		First    int64  `json:"first"`
		Digest   string `json:"digest"`
	}
	if err := json.Unmarshal(line, &of); err != nil {
		return -1, fmt.Errorf("the server's answer is no export: %w", err)
	}
	switch of.Export {
	case "":
		if d.options.Proofs {
			return -1, nil
		}
		return of.Sequence, nil
	case format.LineProof:
		return of.Sequence, nil
	case format.LineLeaves:
		return of.First, nil
	case format.LineEnd:
		d.end = of.Digest
	}
	return -1, nil
}

// write writes the held lines.
func (d *download) write() error {
	d.digest.Write(d.held)
	_, err := d.to.Write(d.held)
	d.held = d.held[:0]
	return err
}

// finish writes the last line, if the digest of everything before it is the server's.
func (d *download) finish(done export.Result) error {
	want := d.end
	switch {
	case d.options.Format == "csv":
		if err := d.write(); err != nil { // the header, where there are no records
			return err
		}
		want = done.Digest
		if want == "" && d.resumed {
			// A proxy took the summary away. Nothing else says that the pieces are of one export.
			return fmt.Errorf("the summary of the export is missing, which would show that its pieces fit: %w; "+
				"ask the server without a proxy that drops trailers", ErrOtherExport)
		}
	case want == "":
		return broken{io.ErrUnexpectedEOF}
	}
	if want != "" && hex.EncodeToString(d.digest.Sum(nil)) != want {
		return fmt.Errorf("the export is not in one piece: %w", ErrOtherExport)
	}
	_, err := d.to.Write(d.held)
	return errors.Join(err, d.to.Flush())
}
