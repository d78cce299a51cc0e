package audit

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/server/door"
)

const (
	// pageLimit is how many records a page has if the request does not say; pageMost is how many it may ask for.
	pageLimit = 100
	pageMost  = 1000
	// PageBytes ends a page early: records of a megabyte each are possible.
	PageBytes = 4 << 20
	// pageStep is how many records are read at a time, so that a page ends before memory does.
	pageStep = 32
)

// decisionsPage answers GET /v1/decisions.
func (a *Audit) decisionsPage(c echo.Context, who auditor) error {
	query, err := who.query()
	if err != nil {
		return err
	}
	ctx, done, err := a.reads(c, who)
	if err != nil {
		return err
	}
	defer done()
	page, err := a.page(ctx, query)
	a.Door.ChargeExamined(who.Caller, page.Examined)
	if err != nil {
		return noTimeFor(err,
			"there was no time to find a page of these records; give from and to, or a filter that picks fewer")
	}
	body := append([]byte(`{"items":`), list(page.Lines)...)
	if len(page.batches) > 0 {
		body = append(append(body, `,"batches":`...), list(page.batches)...)
	}
	if len(page.gone) > 0 {
		gone, err := door.Marshal(page.gone)
		if err != nil {
			return err
		}
		body = append(append(body, `,"batches_gone":`...), gone...)
	}
	if span, err := who.span(); err == nil && who.boundsText(span) {
		body = fmt.Appendf(body, `,"since":%q`, query.Filter.From.Format(time.RFC3339Nano))
	}
	next := who.named(strconv.FormatUint(page.Next, 10))
	body = fmt.Appendf(body, `,"next":%q,"more":%t}`, next, page.More)
	return c.Blob(http.StatusOK, echo.MIMEApplicationJSON, body)
}

// recordPage is a page with what its records inherit.
type recordPage struct {
	decisionlog.Page
	// batches are the records of kind batch that records of the page inherit from, each once. gone are the ids of
	// the batches whose content was removed.
	batches [][]byte
	gone    []string
}

var pageParameters = slices.Concat(filterNames, []string{"order", "cursor", "limit"})

func (who *auditor) query() (q decisionlog.Query, err error) {
	cursor, nanos, later := strings.Cut(who.Given["cursor"], "-")
	if later && !who.goesOn(nanos) {
		return q, noCursor()
	}
	if q.Filter, err = who.filter(); err != nil {
		return q, err
	}
	switch who.Given["order"] {
	case "", "newest":
		q.Newest, q.Cursor = true, decisionlog.End
	case "oldest":
	default:
		return q, door.BadParameter("order", "is neither oldest nor newest; give one of them")
	}
	if cursor != "" || later {
		if q.Cursor, err = strconv.ParseUint(cursor, 10, 63); err != nil {
			return q, noCursor()
		}
	}
	q.Limit = pageLimit
	if text := who.Given["limit"]; text != "" {
		limit, err := strconv.ParseUint(text, 10, 31)
		if err != nil || limit == 0 {
			return q, door.BadParameter("limit",
				fmt.Sprintf("is no number of records; give one from 1 to %d", pageMost))
		}
		q.Limit = int(min(limit, pageMost))
	}
	return q, nil
}

func noCursor() *door.Problem {
	return door.BadParameter("cursor", "is no cursor; give the member next of the page before, or leave it out")
}

// page fills a page up to its limit. If a record, with the batch it inherits from, makes the page too large, the page
// ends before that record; but a page has at least one record. If few records pass, the page ends after a quarter of the
// time of a request, with those that were found until then, be it none.
func (a *Audit) page(ctx context.Context, q decisionlog.Query) (page recordPage, err error) {
	limit, size, inherited := q.Limit, 0, map[string]bool{}
	late := time.Now().Add(a.Door.Options.Load.RequestTime / 4)
	q.Enough = func() bool { return !time.Now().Before(late) }
	for page.More = true; page.More && len(page.Lines) < limit; q.Cursor = page.Next {
		if page.Examined > 0 && q.Enough() {
			return page, nil
		}
		q.Limit = min(limit-len(page.Lines), pageStep)
		some, err := a.Log.Query(ctx, q)
		page.Examined += some.Examined
		if err != nil {
			return page, err
		}
		page.Next, page.More = some.Next, some.More
		for _, line := range some.Lines {
			r, err := record.Parse(line)
			id, batch := r.BatchID(), record.Record{}
			if err == nil && id != "" && !inherited[id] {
				batch, err = a.Log.Batch(line)
			}
			if err != nil {
				return page, err
			}
			if size += len(line) + len(batch.Line); size > PageBytes && len(page.Lines) > 0 {
				page.More = true
				page.Next = r.Sequence
				if q.Newest {
					page.Next++
				}
				return page, nil
			}
			page.Lines = append(page.Lines, line)
			switch {
			case batch.Line != nil:
				page.batches = append(page.batches, batch.Line)
			case id != "" && !inherited[id]:
				page.gone = append(page.gone, id)
			}
			inherited[id] = true
		}
	}
	return page, nil
}

// list is a JSON array of records, each as it is stored.
func list(lines [][]byte) []byte {
	return append(append([]byte{'['}, bytes.Join(lines, []byte{','})...), ']')
}
