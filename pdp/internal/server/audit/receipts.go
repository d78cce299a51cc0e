package audit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/labstack/echo/v4"

	"policy-service/evaluation"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/door"
	"policy-service/pdp/internal/server/telemetry"
)

// ErrReceipt is the error of a receipt that may not be on record.
var ErrReceipt = errors.New("the receipt could not be recorded")

// receipts answers POST /v1/decisions/:id/obligations: a PEP says what became of the obligations of its decision. The
// receipt goes on record and changes nothing.
//
// From reading the decision to the end of writing the receipt, no other request reports on that decision. The handler
// takes the lock first and reads then: if an earlier write failed, the read succeeds only after the log was opened
// again, and then it sees every durable record. For the same reason the write does not end with the request.
func (a *Audit) receipts(c echo.Context) error {
	need := door.Need{
		Body:    door.AnyBody, // a problem of the decision comes before a problem of the body
		Records: true,
		Work:    door.ShortWork,
	}
	if a.Log == nil {
		need.Absent = door.NewProblem(http.StatusNotFound,
			"decisions are not recorded here, and neither is what becomes of their obligations; the operator can "+
				"give the service a data directory")
	}
	who, err := a.Door.Admit(c, need)
	if err != nil {
		return err
	}
	ctx, cancel := a.Door.Within(c)
	defer cancel()
	id := c.Param("id")
	done, err := a.reporting.Lock(ctx, id)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrReceipt, err)
	}
	defer done()
	decision, err := a.decisionOf(ctx, id, who.Caller)
	if err != nil {
		return err
	}
	if err := door.WantJSON(c.Request().Header); err != nil {
		return err
	}
	receipts, err := evaluation.DecodeReceipts(who.Body, a.Door.Options.Limits)
	if err != nil {
		return err
	}
	receipt, err := a.receipt(ctx, decision, receipts)
	if err != nil {
		return err
	}
	if err := a.unreported(ctx, decision, receipt); err != nil {
		return err
	}
	if err := a.file(c, &who.Caller, decision, receipt); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

// unreported refuses a receipt for an obligation that has a receipt already. Receipts come after their decision, and
// are never more than its obligations.
func (a *Audit) unreported(ctx context.Context, d record.Recorded, r record.Receipt) error {
	page, err := a.Log.Query(ctx, decisionlog.Query{
		Filter: record.Filter{Kind: format.KindReceipt, Of: d.ID},
		Cursor: d.Sequence + 1,
		Limit:  len(d.Obligations),
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrReceipt, err)
	}
	reported := map[string]bool{}
	for _, line := range page.Lines {
		record, err := record.Parse(line)
		if err != nil {
			return fmt.Errorf("%w: an earlier receipt cannot be read", ErrReceipt)
		}
		receipt := record.Receipt()
		if receipt.Decision != d.ID {
			return fmt.Errorf("%w: an earlier receipt is not the one that was looked for", ErrReceipt)
		}
		for _, o := range receipt.Obligations {
			reported[o.ID] = true
		}
	}
	for n, o := range r.Obligations {
		if reported[o.ID] {
			p := door.NewProblem(http.StatusConflict,
				"this obligation was reported before, and each is reported once; nothing of this request was "+
					"recorded")
			p.Pointer = "/obligations/" + strconv.Itoa(n)
			return p
		}
	}
	return nil
}

// file puts a receipt on record. It waits for the write in best effort as well: no decision waits for it, and no record
// would tell later that it was dropped.
func (a *Audit) file(c echo.Context, caller *auth.Caller, d record.Recorded, r record.Receipt) error {
	ctx, entry := c.Request().Context(), r.Entry(d.Tenant, d.Caller)
	if caller.May(auth.Relay) { // a receipt does not say for whom; each decision has as many as obligations
		entry.Payer = decisionlog.ForPerson(d.Caller, decisionlog.Anyone)
	}
	entry.RequestID, entry.TraceID = door.RequestID(c), telemetry.TraceID(ctx, c.Request().Header)
	if err := a.Log.Append(context.WithoutCancel(ctx), []record.Entry{entry}); err != nil {
		return fmt.Errorf("%w: %w", ErrReceipt, err)
	}
	for _, o := range r.Obligations {
		is := func(owed record.RecordedObligation) bool { return owed.ID == o.ID }
		a.Reported(d.Obligations[slices.IndexFunc(d.Obligations, is)].Type, o.Status) // [Audit.receipt] found it
	}
	return nil
}
