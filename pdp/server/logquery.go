package server

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/labstack/echo/v4"

	"policy-service/pdp/decisionlog"
)

const (
	// pageLimit is how many records a page has unless told, pageMost the most it may.
	pageLimit = 100
	pageMost  = 1000
	// pageBytes ends a page early: records of a megabyte each are possible.
	pageBytes = 4 << 20
	// pageStep is how many records are read at a time, so that a page is ended before
	// memory is.
	pageStep = 32
)

// decisionsPage answers GET /v1/decisions.
func (s *Server) decisionsPage(c echo.Context) error {
	a, err := s.auditor(c, LogRead)
	if err != nil {
		return err
	}
	query, err := a.query(c)
	if err != nil {
		return err
	}
	ctx, done, err := s.reads(c, a)
	if err != nil {
		return err
	}
	defer done()
	page, err := s.page(ctx, query)
	s.charge(a.caller, page.Examined)
	if err != nil {
		return noTimeFor(err, "there was no time to find a page of these records; give from and to, or a filter that picks fewer")
	}
	body := append([]byte(`{"items":`), list(page.Lines)...)
	body = fmt.Appendf(body, `,"next":"%d","more":%t}`, page.Next, page.More)
	return c.Blob(http.StatusOK, echo.MIMEApplicationJSON, body)
}

func (a auditor) query(c echo.Context) (q decisionlog.Query, err error) {
	given, err := parameters(c, append(filterNames[:len(filterNames):len(filterNames)], "order", "cursor", "limit"))
	if err != nil {
		return q, err
	}
	if q.Filter, err = a.filter(given); err != nil {
		return q, err
	}
	switch given["order"] {
	case "", "newest":
		q.Newest, q.Cursor = true, decisionlog.End
	case "oldest":
	default:
		return q, badParameter("order", "is neither oldest nor newest; give one of them")
	}
	if text := given["cursor"]; text != "" {
		if q.Cursor, err = strconv.ParseUint(text, 10, 63); err != nil {
			return q, badParameter("cursor", "is no cursor; give the member next of the page before, or leave it out")
		}
	}
	q.Limit = pageLimit
	if text := given["limit"]; text != "" {
		limit, err := strconv.ParseUint(text, 10, 31)
		if err != nil || limit == 0 {
			return q, badParameter("limit", fmt.Sprintf("is no number of records; give one from 1 to %d", pageMost))
		}
		q.Limit = int(min(limit, pageMost))
	}
	return q, nil
}

// page fills a page up to its limit, or until it is too large: then it ends before the
// record that made it so, but never without one.
func (s *Server) page(ctx context.Context, q decisionlog.Query) (page decisionlog.Page, err error) {
	limit, size := q.Limit, 0
	for page.More = true; page.More && len(page.Lines) < limit; q.Cursor = page.Next {
		q.Limit = min(limit-len(page.Lines), pageStep)
		some, err := s.decisions.Query(ctx, q)
		page.Examined += some.Examined
		if err != nil {
			return page, err
		}
		page.Next, page.More = some.Next, some.More
		for _, line := range some.Lines {
			if size += len(line); size > pageBytes && len(page.Lines) > 0 {
				page.More = true
				page.Next, err = cursorAt(line, q.Newest)
				return page, err
			}
			page.Lines = append(page.Lines, line)
		}
	}
	return page, nil
}

// cursorAt is where a page begins whose first record is this one.
func cursorAt(line []byte, newest bool) (uint64, error) {
	var record struct {
		Sequence uint64 `json:"sequence"`
	}
	if err := json.Unmarshal(line, &record); err != nil {
		return 0, err
	}
	if newest {
		record.Sequence++
	}
	return record.Sequence, nil
}

// list is a JSON array of records, each as it is stored.
func list(lines [][]byte) []byte {
	return append(append([]byte{'['}, bytes.Join(lines, []byte{','})...), ']')
}
