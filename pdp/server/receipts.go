package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"policy-service/evaluation"
	"policy-service/pdp/decisionlog"
	"policy-service/pdp/server/door"
)

// errReceipt is the error of a receipt that may not be on record.
var errReceipt = errors.New("the receipt could not be recorded")

// receipts answers POST /v1/decisions/:id/obligations: a PEP says what became of
// what its decision obliged it to. It goes on record and changes nothing.
//
// From reading the decision to the end of writing the receipt nobody else reports on
// that decision. The reading comes after the turn was taken: where a write failed
// before, it succeeds only once the log has been opened again, and then all that is
// durable is seen. For the same reason the writing does not end with the request.
func (s *Server) receipts(c echo.Context) error {
	need := door.Need{
		Body:    door.AnyBody, // what is wrong with the decision is said first, and then what with the body
		Records: true,
		Work:    door.ShortWork,
	}
	if s.decisions == nil {
		need.Absent = door.NewProblem(http.StatusNotFound, "decisions are not recorded here, and neither is what becomes of their obligations; the operator can give the service a data directory")
	}
	a, err := s.door.Admit(c, need)
	if err != nil {
		return err
	}
	ctx, cancel := s.door.Within(c)
	defer cancel()
	id := c.Param("id")
	done, err := s.reporting.Lock(ctx, id)
	if err != nil {
		return fmt.Errorf("%w: %w", errReceipt, err)
	}
	defer done()
	decision, err := s.decisionOf(ctx, id, a.Caller)
	if err != nil {
		return err
	}
	if err := door.WantJSON(c.Request().Header); err != nil {
		return err
	}
	receipts, err := evaluation.DecodeReceipts(a.Body, s.config.Program.Limits)
	if err != nil {
		return err
	}
	receipt, err := s.receipt(ctx, decision, receipts)
	if err != nil {
		return err
	}
	if err := s.unreported(ctx, decision, receipt); err != nil {
		return err
	}
	if err := s.file(c, decision, receipt); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

// unreported finds the first obligation of which there is a receipt already. There is
// none from before the decision, and never more of them than obligations.
func (s *Server) unreported(ctx context.Context, d decisionlog.Recorded, r decisionlog.Receipt) error {
	page, err := s.decisions.Query(ctx, decisionlog.Query{
		Filter: decisionlog.Filter{Kind: decisionlog.KindReceipt, Of: d.ID}, Cursor: d.Sequence + 1, Limit: len(d.Obligations),
	})
	if err != nil {
		return fmt.Errorf("%w: %w", errReceipt, err)
	}
	reported := map[string]bool{}
	for _, line := range page.Lines {
		record, err := decisionlog.Parse(line)
		if err != nil {
			return fmt.Errorf("%w: an earlier receipt cannot be read", errReceipt)
		}
		for _, o := range record.Receipt().Obligations {
			reported[o.ID] = true
		}
	}
	for n, o := range r.Obligations {
		if reported[o.ID] {
			p := door.NewProblem(http.StatusConflict, "this obligation was reported before, and each is reported once; nothing of this request was recorded")
			p.Pointer = "/obligations/" + strconv.Itoa(n)
			return p
		}
	}
	return nil
}

// file puts a receipt on record. It waits in best effort as well: nobody goes on
// before it, and nobody can tell later that it was dropped.
func (s *Server) file(c echo.Context, d decisionlog.Recorded, r decisionlog.Receipt) error {
	ctx, entry := c.Request().Context(), r.Entry(d.Tenant, d.Caller)
	entry.RequestID, entry.TraceID = known(c)
	if _, err := s.decisions.Append(context.WithoutCancel(ctx), []decisionlog.Entry{entry}); err != nil {
		return fmt.Errorf("%w: %w", errReceipt, err)
	}
	for _, o := range r.Obligations {
		s.telemetry.Decisions.Reported(ctx, obligationType(d.Obligations, o.ID), o.Status)
	}
	return nil
}
