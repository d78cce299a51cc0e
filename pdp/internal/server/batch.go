package server

import (
	"github.com/labstack/echo/v4"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/door"
)

// answerBatch asks the PDP about all items of a batch. A body without evaluations is one request, and is answered as
// one.
func (d *decisionRoutes) answerBatch(c echo.Context, a door.Admitted, batch evaluation.Batch) error {
	if batch.Single {
		return d.answer(c, a, batch.Items[0].Request)
	}
	for _, item := range batch.Items {
		if err := mayAskPossible(&a.Caller, &item.Request); err != nil {
			return err
		}
	}
	d.door.Charge(a.Caller, len(batch.Items)-1)
	ctx, cancel := d.door.Within(c)
	defer cancel()
	call := pdp.Call{Request: evaluation.Request{Shape: evaluation.AuthZEN}, Explain: explains(c, &a.Caller)}
	answer, err := d.policies.EvaluateBatch(ctx, pdp.BatchCall{
		Batch:     batch,
		Asker:     d.asker(c, &a.Caller),
		Explain:   call.Explain,
		Approvals: pdp.ApprovalsFor(&call, false, a.Caller.May(auth.Request)),
		GoOn:      a.Shift.GoOn,
		Waits:     func() { a.Shift.End() },
	})
	if err != nil {
		return d.door.Refuse(c, err, evaluation.AuthZEN)
	}
	for n := range answer.Items {
		if a.Caller.May(auth.Relay) {
			answer.Items[n].PointOut()
		}
	}
	text, err := evaluation.Answers(answer.Items)
	if err != nil {
		return err
	}
	bundle := ""
	for n := range answer.Items {
		bundle = answer.Items[n].Bundle
		if batch.Items[n].Request.Unknown == nil { // what is possible is no decision about a call, as the results of a search are none
			d.count(c, a.Tenant, &answer.Items[n])
		}
	}
	return d.answerJSON(c, answer.ID, bundle, text)
}
