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
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"policy-service/pdp/internal/decisionlog/export"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/server/door"
)

// An export is never kept: the server makes it from the log for each request. The header
// X-Export-Checkpoint names the checkpoint that it ends with. If the connection breaks,
// the reader asks again with that name as checkpoint, and as after the sequence of the
// last record of which it has all lines. The answer is the lines that follow. The first
// lines and these are the export in one piece: the server makes the first lines again,
// for the digest at the end, and does not send them.
//
// The lines are the same as long as the log has the content of then. If content was
// removed since, the answer is 410. If something else differs, such as another filter or
// another credential, the digest in the last line is not that of the lines the reader
// has, and verify refuses them.

const (
	// checkpointHeader names the checkpoint that an export ends with.
	checkpointHeader = "X-Export-Checkpoint"
	// summaryHeader is a trailer: what the whole export holds.
	summaryHeader = "X-Export-Summary"
)

// exportAsked is the export that a request asks for.
type exportAsked struct {
	auditor
	options    export.Options
	gzip       bool
	checkpoint segment.Moment // the zero Moment is the newest checkpoint
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
	snapshot, err := a.exported(w.ctx, want)
	if err != nil {
		return err
	}
	header := c.Response().Header()
	header.Set("Trailer", summaryHeader)
	header.Set("Accept-Ranges", "none")
	header.Set(checkpointHeader, want.named(snapshot.Moment().String()))
	header.Set(echo.HeaderVary, echo.HeaderAcceptEncoding)
	header.Set(echo.HeaderContentType, want.contentType())
	if want.gzip {
		header.Set(echo.HeaderContentEncoding, "gzip")
	}
	done, err := want.write(w.ctx, w, snapshot)
	if err != nil {
		return a.cutOff(c, err)
	}
	header.Set(summaryHeader, summary(done))
	return nil
}

// exported is the state of the log that is to be exported.
func (a *Audit) exported(ctx context.Context, want exportAsked) (*segment.Snapshot, error) {
	if want.checkpoint == (segment.Moment{}) {
		a.sign(ctx)
		snapshot, err := a.Log.Settled()
		if err != nil {
			return nil, checkpointProblem(err)
		}
		return snapshot.For(want.tenants), nil
	}
	if want.options.From > want.checkpoint.Size {
		return nil, door.BadParameter("after",
			"is no record that the checkpoint covers; give the sequence of the last record you have")
	}
	snapshot, err := a.Log.At(want.checkpoint)
	if errors.Is(err, segment.ErrNotFound) || errors.Is(err, segment.ErrGone) {
		return nil, door.NewProblem(http.StatusNotFound,
			"this log has no such checkpoint: it is of another log, or an older copy of the log was put back; "+
				"export anew, without checkpoint and after")
	}
	if err != nil {
		return nil, logProblem(err)
	}
	return snapshot.For(want.tenants), nil
}

// cutOff gives up an export. Before the first byte, the answer becomes a problem: so a
// reader who goes on after removed content is told. Later, or if the reader has gone away,
// it breaks the connection, so that no reader takes the answer for whole.
func (a *Audit) cutOff(c echo.Context, err error) error {
	gone := c.Request().Context().Err() != nil
	if answer := c.Response(); !answer.Committed && !gone && !errors.Is(err, errStopping) {
		for _, name := range []string{"Trailer", echo.HeaderContentType, echo.HeaderContentEncoding} {
			answer.Header().Del(name)
		}
		if errors.Is(err, segment.ErrChanged) {
			return door.NewProblem(http.StatusGone,
				"content was removed from the log since, and the rest of this export cannot be had any more; "+
					"export anew, without checkpoint and after")
		}
		return logProblem(err)
	}
	if !errors.Is(err, context.Canceled) && !errors.Is(err, errStopping) {
		a.Door.Options.Log.WarnContext(a.Door.Options.LogContext(c.Request()), "an export was cut off",
			"request_id", door.RequestID(c),
			"changed", errors.Is(err, segment.ErrChanged),
			"cause", fmt.Sprintf("%T", err))
	}
	panic(http.ErrAbortHandler)
}

// write makes the export.
func (want exportAsked) write(
	ctx context.Context, w io.Writer, snapshot *segment.Snapshot,
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

var exportParameters = slices.Concat(filterNames, []string{"format", "proofs", "bundles", "bom", "checkpoint", "after"})

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
			"an export goes on after a record, and not at a byte: ask without Range, "+
				"give as checkpoint what "+checkpointHeader+" said, "+
				"and as after the sequence of the last record you have; "+
				"begin anew if you have no "+checkpointHeader)
	}
	if err = want.goOn(); err != nil {
		return want, err
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
	for n, name := range []string{"proofs", "bundles", "bom"} {
		into := []*bool{&want.options.Proofs, &want.options.Bundles, &want.options.BOM}[n]
		switch *into = who.Given[name] == "true"; who.Given[name] {
		case "", "false", "true":
		default:
			return want, door.BadParameter(name, "is neither true nor false; give one of them")
		}
	}
	if want.options.BOM && want.options.Format != "csv" {
		return want, door.BadParameter("bom", "is for csv: other formats have none; leave it out, or give format=csv")
	}
	if want.options.Proofs && want.options.Format == "csv" {
		return want, door.BadParameter("proofs", "is for ndjson: a csv holds none; leave one of the two out")
	}
	if want.options.Bundles && want.options.Format == "csv" {
		return want, door.BadParameter("bundles", "is for ndjson: a csv holds none; leave one of the two out")
	}
	if want.options.Bundles && want.tenants != nil {
		return want, door.NewProblem(http.StatusForbidden, export.ErrBundlesOfAll.Error())
	}
	want.gzip = acceptsGzip(h)
	return want, nil
}

// goOn reads which export is to go on, and after which record.
func (want *exportAsked) goOn() error {
	checkpoint, after := want.Given["checkpoint"], want.Given["after"]
	if checkpoint != "" {
		name, ok := checkpoint, true
		if strings.Count(name, "-") == 2 {
			last := strings.LastIndexByte(name, '-')
			name, ok = name[:last], want.goesOn(name[last+1:])
		}
		if ok {
			want.checkpoint, ok = segment.ParseMoment(name)
		}
		if !ok {
			return door.BadParameter("checkpoint", "is no name of a checkpoint; give what "+checkpointHeader+" said")
		}
	}
	if after == "" {
		return nil
	}
	if checkpoint == "" {
		return door.BadParameter("after",
			"is a record of one export; give as checkpoint what "+checkpointHeader+" said of it")
	}
	sequence, err := strconv.ParseUint(after, 10, 63)
	if err != nil {
		return door.BadParameter("after", "is no sequence of a record; give that of the last record you have")
	}
	want.options.From = sequence + 1
	return nil
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
