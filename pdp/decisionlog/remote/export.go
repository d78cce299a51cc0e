package remote

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/decisionlog"
	"policy-service/pdp/httpclient"
)

// Export writes the records of the log up to its newest checkpoint. Where the
// connection breaks it goes on where it was; where that cannot be, because content
// was removed from the log meanwhile, the error is [decisionlog.ErrChanged].
func (l *Log) Export(ctx context.Context, w io.Writer, o decisionlog.ExportOptions) (decisionlog.Exported, error) {
	var done decisionlog.Exported
	d := &download{log: l, ctx: ctx, path: "/v1/log/export?" + exportQuery(o)}
	defer d.close()
	if err := d.open(); err != nil {
		return done, err
	}
	content := io.Reader(d)
	if d.gzip {
		z, err := gzip.NewReader(d)
		if err != nil {
			return done, err
		}
		content = z
	}
	if _, err := io.Copy(&lines{Writer: w, progress: o.Progress}, content); err != nil {
		return done, err
	}
	if d.summary == "" { // a proxy took it away
		return done, nil
	}
	return done, json.Unmarshal([]byte(d.summary), &done)
}

func exportQuery(o decisionlog.ExportOptions) string {
	query := filterQuery(o.Filter)
	if o.Format != "" {
		query.Set("format", o.Format)
	}
	if o.Proofs {
		query.Set("proofs", "true")
	}
	return query.Encode()
}

// download reads an export as it is sent, over as many connections as it takes.
type download struct {
	log  *Log
	ctx  context.Context
	path string

	gzip     bool
	tag      string // which export it is
	offset   int64  // of its bytes, as sent
	failures int    // in a row
	answer   *http.Response
	idle     *time.Timer
	end      context.CancelFunc
	summary  string
}

const summaryHeader = "X-Export-Summary"

// idleTimeout ends a connection on which an export says nothing. Before it goes on
// the server makes again what came before, which takes a while.
const idleTimeout = 5 * time.Minute

// Read implements [io.Reader].
func (d *download) Read(b []byte) (int, error) {
	for {
		if d.answer == nil {
			if err := d.resume(); err != nil {
				return 0, err
			}
		}
		d.idle.Reset(idleTimeout)
		n, err := d.answer.Body.Read(b)
		d.offset += int64(n)
		if n > 0 {
			d.failures = 0
		}
		if err == io.EOF { // not of a connection that was cut: net/http tells them apart
			d.summary = strings.TrimSpace(d.answer.Trailer.Get(summaryHeader) + d.answer.Header.Get(summaryHeader))
			return n, io.EOF
		}
		if err != nil {
			d.close()
			if again := d.again(err); again != nil {
				return n, again
			}
		}
		if n > 0 || err == nil {
			return n, nil
		}
	}
}

// again waits before the next attempt, or returns why there is none.
func (d *download) again(err error) error {
	if d.ctx.Err() != nil {
		return d.ctx.Err()
	}
	if d.failures++; d.failures > attempts || d.tag == "" || !httpclient.Passing(err) {
		return fmt.Errorf("the export broke off: %w", err)
	}
	return d.log.server.Wait(d.ctx, 50*time.Millisecond<<d.failures)
}

// errNoRest: all of the export has come.
var errNoRest = errors.New("the export has no more bytes")

// resume opens a connection that goes on where the last one ended.
func (d *download) resume() error {
	for {
		err := d.open()
		switch {
		case errors.Is(err, errNoRest):
			return io.EOF
		case err == nil, errors.Is(err, decisionlog.ErrChanged):
			return err
		}
		if err := d.again(err); err != nil {
			return err
		}
	}
}

// open asks for the export, or for the rest of it.
func (d *download) open() error {
	ctx, end := context.WithCancel(d.ctx)
	d.idle, d.end = time.AfterFunc(idleTimeout, end), end
	header := http.Header{"Accept-Encoding": {"gzip"}}
	want := []int{http.StatusOK}
	if d.tag != "" {
		header.Set("Range", fmt.Sprintf("bytes=%d-", d.offset))
		header.Set("If-Range", d.tag)
		want = append(want, http.StatusPartialContent, http.StatusRequestedRangeNotSatisfiable, http.StatusGone)
	}
	var err error
	if d.answer, err = d.log.server.Ask(ctx, http.MethodGet, d.path, header, nil, want...); err == nil {
		err = d.admit()
	}
	if err != nil {
		d.close()
	}
	return err
}

// admit says whether an answer is what was asked for.
func (d *download) admit() error {
	h := d.answer.Header
	switch {
	case d.tag == "":
		d.tag, d.gzip = h.Get("ETag"), h.Get("Content-Encoding") == "gzip"
		return nil
	case d.answer.StatusCode == http.StatusRequestedRangeNotSatisfiable && h.Get("Content-Range") == "bytes */"+strconv.FormatInt(d.offset, 10):
		d.summary = h.Get(summaryHeader)
		return errNoRest
	case d.answer.StatusCode == http.StatusPartialContent && h.Get("ETag") == d.tag &&
		strings.HasPrefix(h.Get("Content-Range"), fmt.Sprintf("bytes %d-", d.offset)):
		return nil
	}
	return fmt.Errorf("the export broke off and cannot go on: %w", decisionlog.ErrChanged)
}

// close lets go of the connection.
func (d *download) close() {
	if d.answer != nil {
		_ = d.answer.Body.Close()
		d.answer = nil
	}
	if d.idle != nil {
		d.idle.Stop()
		d.end()
	}
}

// lines counts what passes through, for somebody who watches.
type lines struct {
	io.Writer
	progress   func(done, size int64)
	done, said int64
}

// linesEvery is how many lines lie between two calls of progress.
const linesEvery = 1 << 12

func (l *lines) Write(b []byte) (int, error) {
	n, err := l.Writer.Write(b)
	if l.done += int64(bytes.Count(b[:n], []byte{'\n'})); l.progress != nil && l.done-l.said >= linesEvery {
		l.said = l.done
		l.progress(l.done, -1)
	}
	return n, err
}
