package server

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/labstack/echo/v4"

	"policy-service/evaluation"
	"policy-service/pdp/decisionlog"
	"policy-service/pdp/server/auth"
	"policy-service/pdp/server/door"
)

// ndjsonType is what proofs, consistency proofs and exports are.
const ndjsonType = "application/x-ndjson"

// asked is a record that a path names, and who asks for it.
type asked struct {
	auditor
	id     string
	record decisionlog.Record
}

// recordOfPath finds the record for who may have it.
func (s *Server) recordOfPath(c echo.Context, a auditor) (asked, error) {
	id, err := door.PathValue(c, "id")
	if err != nil {
		return asked{}, err
	}
	record, err := s.record(a, id)
	return asked{a, id, record}, err
}

// readsRecord lets an auditor in who reads of the record that a path names.
func (s *Server) readsRecord(c echo.Context) (ctx context.Context, a asked, done func(), err error) {
	who, err := s.auditor(c, door.Need{Permission: auth.LogRead, Parameters: door.NoParameters})
	if err != nil {
		return nil, a, nil, err
	}
	if ctx, done, err = s.reads(c, who); err != nil {
		return nil, a, nil, err
	}
	if a, err = s.recordOfPath(c, who); err != nil {
		done()
	}
	return ctx, a, done, err
}

// decisionRecord answers GET /v1/decisions/:id.
func (s *Server) decisionRecord(c echo.Context) error {
	ctx, a, done, err := s.readsRecord(c)
	if err != nil {
		return err
	}
	defer done()
	receipts, err := s.page(ctx, decisionlog.Query{
		Filter: decisionlog.Filter{Tenants: a.tenants, Kind: decisionlog.KindReceipt, Of: a.id}, Cursor: a.record.Sequence, Limit: pageMost,
	})
	s.door.ChargeExamined(a.Caller, receipts.Examined)
	if err != nil {
		return logProblem(err)
	}
	inherited, err := s.inherited(a.record.Line)
	if err != nil {
		return logProblem(err)
	}
	body := append([]byte(`{`), proved(a.record)...)
	body = append(append(body, inherited...), `,"receipts":`...)
	return c.Blob(http.StatusOK, echo.MIMEApplicationJSON, append(append(body, list(receipts.Lines)...), '}'))
}

// proved are the members that say what a record is and where it stands.
func proved(r decisionlog.Record) []byte {
	members := append([]byte(`"record":`), r.Line...)
	return fmt.Appendf(members, `,"sequence":%d,"leaf_hash":%q`, r.Sequence, r.Leaf.String())
}

// inherited are the members of an answer, each with the comma before it, that say what a
// record inherits; none where that is nothing.
func (s *Server) inherited(line []byte) (members []byte, err error) {
	r, err := s.decisions.Recorded(line)
	if err != nil || len(r.Inherits) == 0 {
		return nil, err
	}
	if r.Batch.Line != nil {
		members = append(append(append(members, `,"batch":{`...), proved(r.Batch)...), '}')
	}
	members = append(append(members, `,"request":`...), r.Asked...)
	if len(r.Gone) > 0 {
		gone, err := marshal(r.Gone)
		if err != nil {
			return nil, err
		}
		members = append(append(members, `,"inherited_gone":`...), gone...)
	}
	return members, nil
}

// decisionProof answers GET /v1/decisions/:id/proof. A record that no checkpoint
// covers yet gets one.
func (s *Server) decisionProof(c echo.Context) error {
	ctx, a, done, err := s.readsRecord(c)
	if err != nil {
		return err
	}
	defer done()
	snapshot, err := s.signed(ctx)
	if err != nil {
		return err
	}
	if !snapshot.Covers(a.record.Sequence) {
		return door.NewProblem(http.StatusServiceUnavailable, "no checkpoint covers this record yet, and none can be made at the moment; ask again later")
	}
	var proof bytes.Buffer
	if err := snapshot.For(a.tenants).Prove(ctx, &proof, a.id); err != nil {
		return logProblem(err)
	}
	return c.Blob(http.StatusOK, ndjsonType, proof.Bytes())
}

// maxReason bounds what is written into the log for good.
const maxReason = 1000

// redaction answers POST /v1/decisions/:id/redaction.
func (s *Server) redaction(c echo.Context) error {
	who, err := s.auditor(c, door.Need{
		Permission: auth.LogAdmin,
		Parameters: door.NoParameters,
		Body:       door.JSON,
	})
	if err != nil {
		return err
	}
	a, err := s.recordOfPath(c, who)
	if err != nil {
		return err
	}
	reason, err := reasonOf(who.Body)
	if err != nil {
		return err
	}
	recorded, err := s.decisions.Recorded(a.record.Line)
	if err != nil {
		return logProblem(err)
	}
	reason = s.pinned(c.Request().Context()).mask.After(reason, recorded.Line, recorded.Batch.Line)
	// Who asked may go away: half a redaction is on record, and its content still there.
	if err := s.decisions.RedactAs(context.WithoutCancel(c.Request().Context()), a.Caller.Name, a.id, reason); err != nil {
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
	if strings.TrimSpace(asked.Reason) == "" || len(asked.Reason) > maxReason {
		return "", &evaluation.Error{
			Pointer: "/reason", Detail: fmt.Sprintf("missing, or of more than %d bytes", maxReason),
			Try: "say why: it stays on record in the content's place, and must not repeat it",
		}
	}
	return asked.Reason, nil
}
