package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/labstack/echo/v4"

	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/c2sp"
	"policy-service/pdp/internal/decisionlog/export"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/server/door"
)

// ndjsonType is the type of proofs, consistency proofs and exports.
const ndjsonType = "application/x-ndjson"

// asked is a record that a path names, and the auditor who asks for it.
type asked struct {
	auditor
	id     string
	record record.Record
}

// recordOfPath finds the record that the path names, if the auditor sees it.
func (a *Audit) recordOfPath(c echo.Context, who auditor) (asked, error) {
	id, err := door.PathValue(c, "id")
	if err != nil {
		return asked{}, err
	}
	record, err := a.record(who, id)
	return asked{who, id, record}, err
}

// ofRecord gives a handler the record that the path names, and a turn to read the log.
func (a *Audit) ofRecord(handle func(context.Context, echo.Context, asked) error) handler {
	return func(c echo.Context, who auditor) error {
		ctx, done, err := a.reads(c, who)
		if err != nil {
			return err
		}
		defer done()
		want, err := a.recordOfPath(c, who)
		if err != nil {
			return err
		}
		return handle(ctx, c, want)
	}
}

// decisionRecord answers GET /v1/decisions/:id.
func (a *Audit) decisionRecord(ctx context.Context, c echo.Context, want asked) error {
	receipts, err := a.page(ctx, decisionlog.Query{
		Filter: record.Filter{
			Tenants: want.tenants,
			Kind:    format.KindReceipt,
			Of:      want.id,
		},
		Cursor: want.record.Sequence,
		Limit:  pageMost,
	})
	a.Door.ChargeExamined(want.Caller, receipts.Examined)
	if err != nil {
		return logProblem(err)
	}
	inherited, err := a.inherited(want.record.Line, want.id)
	if err != nil {
		return logProblem(err)
	}
	body := append([]byte(`{`), placed(want.record)...)
	body = append(append(body, inherited...), `,"receipts":`...)
	return c.Blob(http.StatusOK, echo.MIMEApplicationJSON, append(append(body, list(receipts.Lines)...), '}'))
}

// placed are the members with a record and its place in the log.
func placed(r record.Record) []byte {
	members := append([]byte(`"record":`), r.Line...)
	return fmt.Appendf(members, `,"sequence":%d,"leaf_hash":%q`, r.Sequence, r.Leaf.String())
}

// inherited are the members of an answer that say what was asked with an id, each with a comma before it, if the record
// does not say so by itself: it inherits, or is the record of a batch of questions. Else they are empty.
func (a *Audit) inherited(line []byte, id string) (members []byte, err error) {
	var one segment.Shown
	if one.Record, err = a.Log.Recorded(line); err == nil {
		err = one.SelectQuestion(id)
	}
	r := one.Record
	if err != nil || len(r.Inherits) == 0 && !one.OfBatch {
		return nil, err
	}
	if r.Batch.Line != nil {
		members = append(append(append(members, `,"batch":{`...), placed(r.Batch)...), '}')
	}
	members = append(append(members, `,"request":`...), r.Asked...)
	if len(r.Gone) > 0 {
		gone, err := door.Marshal(r.Gone)
		if err != nil {
			return nil, err
		}
		members = append(append(members, `,"inherited_gone":`...), gone...)
	}
	return members, nil
}

// decisionProof answers GET /v1/decisions/:id/proof. A record that no checkpoint
// covers yet gets one.
func (a *Audit) decisionProof(ctx context.Context, c echo.Context, want asked) error {
	snapshot, err := a.signed(ctx)
	if err != nil {
		return err
	}
	if !snapshot.Covers(want.record.Sequence) {
		return door.NewProblem(http.StatusServiceUnavailable,
			"no checkpoint covers this record yet, and none can be made at the moment; ask again later")
	}
	var proof bytes.Buffer
	if err := (export.Log{Snapshot: snapshot.For(want.tenants)}).Prove(ctx, &proof, want.id); err != nil {
		return logProblem(err)
	}
	return c.Blob(http.StatusOK, ndjsonType, proof.Bytes())
}

// recordProof answers GET /v1/log/records/:id/proof. It signs nothing: a record waits until a checkpoint covers it. The proof
// is of a hash, so a record whose content is gone has one as well.
func (a *Audit) recordProof(c echo.Context, who auditor) error {
	_, done, err := a.reads(c, who)
	if err != nil {
		return err
	}
	defer done()
	want, err := a.recordOfPath(c, who)
	if gone := (*door.Problem)(nil); err != nil && !(errors.As(err, &gone) && gone.Status == http.StatusGone) {
		return err
	}
	snapshot, err := a.Log.Snapshot()
	var proof c2sp.Proof
	if err == nil {
		proof, err = export.Log{Snapshot: snapshot}.Proof(want.record, want.id)
	}
	if errors.Is(err, segment.ErrNotFound) {
		c.Response().Header().Set(echo.HeaderRetryAfter, "1")
		return door.NewProblem(http.StatusNotFound, "no checkpoint covers this record yet; ask again after Retry-After seconds")
	}
	if err != nil {
		return logProblem(err)
	}
	return c.Blob(http.StatusOK, echo.MIMETextPlainCharsetUTF8, proof.Text())
}

// redaction answers POST /v1/decisions/:id/redaction.
func (a *Audit) redaction(c echo.Context, who auditor) error {
	want, err := a.recordOfPath(c, who)
	if err != nil {
		return err
	}
	reason, err := reasonOf(who.Body)
	if err != nil {
		return err
	}
	recorded, err := a.Log.Recorded(want.record.Line)
	if err != nil {
		return logProblem(err)
	}
	reason = a.Mask(c.Request().Context()).After(reason, recorded.Line, recorded.Batch.Line)
	// The client may go away: half a redaction would be on record, with the content still there.
	ctx := context.WithoutCancel(c.Request().Context())
	if err := a.Log.Redact(ctx, want.Caller.Name, recorded.ID, reason); err != nil {
		return logProblem(err)
	}
	return c.NoContent(http.StatusNoContent)
}

func reasonOf(body []byte) (string, error) {
	var asked struct {
		Reason string `json:"reason"`
	}
	if err := json.Unmarshal(body, &asked); err != nil {
		return "", door.NewProblem(http.StatusBadRequest, `the body cannot be read; send {"reason": "…"}`)
	}
	return asked.Reason, door.CheckReason(asked.Reason)
}
