package server

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"policy-service/pdp/decisionlog"
	"policy-service/pdp/server/door"
	"policy-service/pdp/server/telemetry"
)

// An export is never kept: it is made of the log each time it is asked for. Its ETag
// names the checkpoint it ends with and all else its bytes depend on, so that who was
// cut off gets the rest of the very same bytes: Range: bytes=N- and If-Range with the
// tag, or the parameter snapshot in place of If-Range. Where content was removed from
// the log since, those bytes cannot be had again: If-Range then gets a new export from
// its beginning (200), snapshot a 410. Range alone does not say of which export, and is
// passed over.

// summaryHeader says what an export holds; after one that began at its beginning it is
// a trailer.
const summaryHeader = "X-Export-Summary"

// exportAsked is what somebody wants exported.
type exportAsked struct {
	auditor
	options decisionlog.ExportOptions
	gzip    bool
	// tag names the export to have again, "" for a new one; insist is set where no other
	// will do.
	tag    string
	insist bool
	// from is the first byte wanted; partial is set where somebody wants it so.
	from    int64
	partial bool
}

// logExport answers GET /v1/log/export.
func (s *Server) logExport(c echo.Context) error {
	a, err := s.auditor(c, door.Need{Permission: LogRead, Parameters: exportParameters})
	if err != nil {
		return err
	}
	want, err := a.export(c)
	if err != nil {
		return err
	}
	w, leave, err := s.readsAll(c, a)
	if err != nil {
		return err
	}
	defer leave()
	snapshot, tag, again, err := s.exported(w.ctx, want)
	if err != nil {
		return err
	}
	if again && want.partial {
		return s.exportRest(c, w, want, snapshot, tag)
	}
	header := c.Response().Header()
	header.Set("Trailer", summaryHeader)
	want.begin(c, http.StatusOK, tag)
	w.makes()
	done, err := want.write(w.ctx, w, snapshot)
	if err != nil {
		s.abort(c, err)
	}
	header.Set(summaryHeader, summary(done))
	return nil
}

// begin writes the header.
func (want exportAsked) begin(c echo.Context, status int, tag string) {
	header := c.Response().Header()
	header.Set("ETag", tag)
	header.Set("Accept-Ranges", "bytes")
	header.Set(echo.HeaderVary, echo.HeaderAcceptEncoding)
	header.Set(echo.HeaderContentType, want.contentType())
	if want.gzip {
		header.Set(echo.HeaderContentEncoding, "gzip")
	}
	c.Response().WriteHeader(status)
}

// exportRest sends the bytes from some on. A 206 says how many there are, so they are
// made twice: once to be counted.
func (s *Server) exportRest(c echo.Context, w *patient, want exportAsked, snapshot *decisionlog.Snapshot, tag string) error {
	header := c.Response().Header()
	var total counter
	done, err := want.write(w.ctx, &total, snapshot)
	if err != nil {
		return exportProblem(err)
	}
	header.Set(summaryHeader, summary(done))
	if want.from >= int64(total) {
		header.Set("Content-Range", fmt.Sprintf("bytes */%d", total))
		return door.NewProblem(http.StatusRequestedRangeNotSatisfiable, "the export has no more bytes than you have; see Content-Range")
	}
	header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", want.from, total-1, total))
	header.Set(echo.HeaderContentLength, strconv.FormatInt(int64(total)-want.from, 10))
	want.begin(c, http.StatusPartialContent, tag)
	w.makes()
	if _, err := want.write(w.ctx, &rest{to: w, skip: want.from}, snapshot); err != nil {
		s.abort(c, err)
	}
	return nil
}

// abort gives up on an answer that has begun, so that nobody takes it for whole.
func (s *Server) abort(c echo.Context, err error) {
	if !errors.Is(err, context.Canceled) && !errors.Is(err, errStopping) {
		s.log.WarnContext(telemetry.LogContext(c.Request()), "an export was cut off", "request_id", door.RequestID(c), "changed", errors.Is(err, decisionlog.ErrChanged), "cause", fmt.Sprintf("%T", err))
	}
	panic(http.ErrAbortHandler)
}

func exportProblem(err error) error {
	if errors.Is(err, decisionlog.ErrChanged) {
		return door.NewProblem(http.StatusGone, "content was removed from the log since, and these bytes cannot be had again; export anew, without Range and snapshot")
	}
	return logProblem(err)
}

// write makes the export.
func (want exportAsked) write(ctx context.Context, w io.Writer, snapshot *decisionlog.Snapshot) (decisionlog.Exported, error) {
	if !want.gzip {
		return snapshot.Export(ctx, w, want.options)
	}
	// Nothing is flushed on the way: where would depend on the moment, and the bytes on that.
	pieces := bufio.NewWriterSize(w, exportPiece) // what gzip writes are a few hundred bytes
	z, err := gzip.NewWriterLevel(pieces, gzip.BestSpeed)
	if err != nil {
		return decisionlog.Exported{}, err
	}
	done, err := snapshot.Export(ctx, z, want.options)
	if err == nil {
		err = z.Close()
	}
	if err == nil {
		err = pieces.Flush()
	}
	return done, err
}

func summary(done decisionlog.Exported) string {
	done.Uncovered = 0 // the server signs for them in a moment
	text, err := marshal(done)
	if err != nil {
		panic(err) // numbers and a boolean
	}
	return string(text)
}

// counter counts what is written to it.
type counter int64

func (n *counter) Write(b []byte) (int, error) {
	*n += counter(len(b))
	return len(b), nil
}

// rest passes on what comes after the first bytes.
type rest struct {
	to   io.Writer
	skip int64
}

func (r *rest) Write(b []byte) (int, error) {
	skipped := min(r.skip, int64(len(b)))
	r.skip -= skipped
	if skipped == int64(len(b)) {
		return len(b), nil
	}
	n, err := r.to.Write(b[skipped:])
	return n + int(skipped), err
}

var exportParameters = slices.Concat(filterNames, []string{"format", "proofs", "snapshot"})

// export reads what is asked for.
func (a auditor) export(c echo.Context) (want exportAsked, err error) {
	want.auditor = a
	if want.options.Filter, err = a.filter(); err != nil {
		return want, err
	}
	switch want.options.Format = a.Given["format"]; want.options.Format {
	case "":
		want.options.Format = "ndjson"
	case "ndjson", "csv":
	default:
		return want, door.BadParameter("format", "is neither ndjson nor csv; give one of them")
	}
	switch a.Given["proofs"] {
	case "", "false":
	case "true":
		want.options.Proofs = true
	default:
		return want, door.BadParameter("proofs", "is neither true nor false; give one of them")
	}
	if want.options.Proofs && want.options.Format == "csv" {
		return want, door.BadParameter("proofs", "is for ndjson: a csv holds none; leave one of the two out")
	}
	h := c.Request().Header
	want.gzip = acceptsGzip(h)
	want.from, want.partial = rangeFrom(h)
	if want.tag, want.insist = a.Given["snapshot"], a.Given["snapshot"] != ""; !want.insist {
		want.tag = strings.TrimSuffix(strings.TrimPrefix(h.Get("If-Range"), `"`), `"`)
	}
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

// rangeFrom reads "bytes=N-". Whoever asks for any other range gets all, as RFC 9110
// allows.
func rangeFrom(h http.Header) (from int64, ok bool) {
	ranges := h.Values("Range")
	if len(ranges) != 1 {
		return 0, false
	}
	text, isBytes := strings.CutPrefix(ranges[0], "bytes=")
	text, isOpen := strings.CutSuffix(text, "-")
	n, err := strconv.ParseUint(text, 10, 63)
	return int64(n), isBytes && isOpen && err == nil
}
