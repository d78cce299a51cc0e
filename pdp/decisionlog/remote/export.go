package remote

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/decisionlog/export"
)

// ErrNotWhole means that an export broke off, because the connection did or because content was removed from the log
// meanwhile, or that it is not the one that its last line is of.
var ErrNotWhole = errors.New("the export is not whole")

const (
	summaryHeader = "X-Export-Summary"

	// idleTimeout ends a connection on which nothing comes.
	idleTimeout = 5 * time.Minute
)

// Export writes the records of the log up to its newest checkpoint. If the error is [ErrNotWhole], a part of the export
// was written, and another export begins anew.
func (l *Log) Export(ctx context.Context, w io.Writer, o export.Options) (done export.Result, err error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	idle := time.AfterFunc(idleTimeout, end)
	defer idle.Stop()
	answer, err := l.server.Ask(ctx, http.MethodGet, "/v1/log/export?"+exportQuery(o).Encode(), nil, nil, http.StatusOK)
	if err != nil {
		return done, err
	}
	defer func() { _ = answer.Body.Close() }()
	table := o.Format == "csv"
	digest, last, err := copyExport(w, &awake{answer.Body, idle}, !table)
	if err != nil {
		return done, err
	}
	// A proxy may have taken the summary away.
	if summary := answer.Trailer.Get(summaryHeader); summary != "" {
		if err := json.Unmarshal([]byte(summary), &done); err != nil {
			return done, fmt.Errorf("the server's summary of the export is none: %w", err)
		}
	}
	want := struct {
		Digest string `json:"digest"`
	}{done.Digest}
	if !table {
		err = json.Unmarshal(last, &want)
	}
	if err != nil || want.Digest != digest && !(table && want.Digest == "") {
		return done, fmt.Errorf("%w: its end does not fit", ErrNotWhole)
	}
	return done, nil
}

func exportQuery(o export.Options) url.Values {
	query := filterQuery(o.Filter)
	if o.Format != "" {
		query.Set("format", o.Format)
	}
	if o.Proofs {
		query.Set("proofs", "true")
	}
	return query
}

// copyExport copies an export, and returns the digest of its lines. If the export has a last line that holds the
// digest, that line is not in the digest and is returned besides.
func copyExport(w io.Writer, from io.Reader, hasLast bool) (digest string, last []byte, err error) {
	lines, to, sum := bufio.NewReaderSize(from, 64<<10), bufio.NewWriterSize(w, 64<<10), sha256.New()
	for begins := true; ; {
		part, err := lines.ReadSlice('\n')
		if hasLast && begins && bytes.HasPrefix(part, []byte(export.Prefix+`"`+export.LineEnd+`"`)) {
			last = bytes.Clone(part)
		} else {
			_, _ = sum.Write(part)
		}
		if _, err := to.Write(part); err != nil {
			return "", nil, err
		}
		begins = bytes.HasSuffix(part, []byte{'\n'})
		switch {
		case err == io.EOF:
			return hex.EncodeToString(sum.Sum(nil)), last, to.Flush()
		case err != nil && err != bufio.ErrBufferFull:
			return "", nil, fmt.Errorf("%w: %w", ErrNotWhole, err)
		}
	}
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
