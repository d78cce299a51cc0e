package audit

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"policy-service/pdp/decisionlog"
	"policy-service/pdp/decisionlog/export"
	"policy-service/pdp/server/door"
)

// An export is never kept: the server makes it from the log for each request. If the connection breaks, the reader
// exports anew.

// summaryHeader is a trailer: what the whole export holds.
const summaryHeader = "X-Export-Summary"

// exportAsked is the export that a request asks for.
type exportAsked struct {
	auditor
	options export.Options
	gzip    bool
}

// logExport answers GET /v1/log/export.
func (a *Audit) logExport(c echo.Context, who auditor) error {
	want, err := who.export(c)
	if err != nil {
		return err
	}
	w, leave, err := a.readsAll(c, who)
	if err != nil {
		return err
	}
	defer leave()
	a.sign(w.ctx)
	snapshot, err := a.Log.Settled()
	if err != nil {
		return checkpointProblem(err)
	}
	header := c.Response().Header()
	header.Set("Trailer", summaryHeader)
	header.Set("Accept-Ranges", "none")
	header.Set(echo.HeaderVary, echo.HeaderAcceptEncoding)
	header.Set(echo.HeaderContentType, want.contentType())
	if want.gzip {
		header.Set(echo.HeaderContentEncoding, "gzip")
	}
	done, err := want.write(w.ctx, w, snapshot.For(want.tenants))
	if err != nil {
		return a.cutOff(c, err)
	}
	header.Set(summaryHeader, summary(done))
	return nil
}

// cutOff gives up an export. Before the first byte, the answer becomes a problem. Later, or if the reader has gone away,
// the connection breaks, so that no reader takes the answer for whole.
func (a *Audit) cutOff(c echo.Context, err error) error {
	gone := a.Door.Context(c).Err() != nil
	if answer := c.Response(); !answer.Committed && !gone && !errors.Is(err, errStopping) {
		for _, name := range []string{"Trailer", echo.HeaderContentType, echo.HeaderContentEncoding} {
			answer.Header().Del(name)
		}
		if errors.Is(err, decisionlog.ErrChanged) {
			return door.NewProblem(http.StatusServiceUnavailable,
				"content was removed from the log while it was exported; export anew")
		}
		return logProblem(err)
	}
	if !errors.Is(err, context.Canceled) && !errors.Is(err, errStopping) {
		a.Door.Options.Log.WarnContext(a.Door.Options.LogContext(c.Request()), "an export was cut off",
			"request_id", door.RequestID(c),
			"changed", errors.Is(err, decisionlog.ErrChanged),
			"cause", fmt.Sprintf("%T", err))
	}
	panic(http.ErrAbortHandler)
}

// write makes the export.
func (want exportAsked) write(
	ctx context.Context, w io.Writer, snapshot *decisionlog.Snapshot,
) (done export.Result, err error) {
	log := export.Log{Snapshot: snapshot}
	if !want.gzip {
		return log.Export(ctx, w, want.options)
	}
	pieces := bufio.NewWriterSize(w, ExportPiece) // gzip writes a few hundred bytes at a time
	z, err := gzip.NewWriterLevel(pieces, gzip.BestSpeed)
	if err != nil {
		return done, err
	}
	done, err = log.Export(ctx, z, want.options)
	if err == nil {
		err = z.Close()
	}
	if err == nil {
		err = pieces.Flush()
	}
	return done, err
}

func summary(done export.Result) string {
	done.Uncovered = 0 // the server signs for them in a moment
	text, err := door.Marshal(done)
	if err != nil {
		panic(err) // numbers, a boolean and a digest
	}
	return string(text)
}

var exportParameters = slices.Concat(filterNames, []string{"format", "proofs"})

// export reads what is asked for. An export does not go on at a byte, and no client may append what does not belong there:
//
//   - Range alone gets 410. After a 200, wget -c appends the end of the new export to the
//     part that it has; after a 416, wget -c and curl -C - take the part for the whole.
//   - Range with If-Range gets 200 and the whole export. No export has an ETag, so If-Range
//     never matches, and a client that sends it begins its file anew after a 200.
func (who auditor) export(c echo.Context) (want exportAsked, err error) {
	want.auditor = who
	h := c.Request().Header
	if h.Get("Range") != "" && h.Get("Range") != "bytes=0-" && h.Get("If-Range") == "" {
		return want, door.NewProblem(http.StatusGone,
			"an export does not go on at a byte: ask without Range, and begin the file anew")
	}
	if want.options.Filter, err = want.filter(); err != nil {
		return want, err
	}
	switch want.options.Format = who.Given["format"]; want.options.Format {
	case "":
		want.options.Format = "ndjson"
	case "ndjson", "csv":
	default:
		return want, door.BadParameter("format", "is neither ndjson nor csv; give one of them")
	}
	switch who.Given["proofs"] {
	case "", "false":
	case "true":
		want.options.Proofs = true
	default:
		return want, door.BadParameter("proofs", "is neither true nor false; give one of them")
	}
	if want.options.Proofs && want.options.Format == "csv" {
		return want, door.BadParameter("proofs", "is for ndjson: a csv holds none; leave one of the two out")
	}
	want.gzip = acceptsGzip(h)
	return want, nil
}

func (want exportAsked) contentType() string {
	if want.options.Format == "csv" {
		return "text/csv; charset=utf-8"
	}
	return ndjsonType
}

// acceptsGzip reports whether the client takes gzip, by name and with any weight but 0.
func acceptsGzip(h http.Header) bool {
	for _, list := range h.Values(echo.HeaderAcceptEncoding) {
		for coding := range strings.SplitSeq(list, ",") {
			name, weight, _ := strings.Cut(strings.ReplaceAll(coding, " ", ""), ";")
			if strings.EqualFold(name, "gzip") {
				return strings.Trim(strings.TrimPrefix(strings.ToLower(weight), "q="), "0.") != "" || weight == ""
			}
		}
	}
	return false
}
