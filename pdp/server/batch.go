package server

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"policy-service/evaluation"
	"policy-service/pdp"
)

// evaluations answers POST /access/v1/evaluations and the same below
// /tenants/:tenant. A body without evaluations is one request, and is answered
// as one.
func (s *Server) evaluations(c echo.Context) error {
	body, caller, tenant, err := s.admit(c, Decide)
	if err != nil {
		return err
	}
	shift, err := s.letIn(c, caller, true)
	if err != nil {
		return err
	}
	defer shift.end()
	span := stage(c, "decode")
	batch, err := evaluation.DecodeBatch(body, tenant, s.config.Program.Limits)
	ended(span, err)
	if err != nil {
		return err
	}
	if batch.Single {
		return s.answer(c, caller, batch.Items[0].Request)
	}
	s.rates.more(caller.Name, len(batch.Items)-1)
	call := pdp.BatchCall{Batch: batch, Asker: asker(c, caller), Explain: explains(c, caller), GoOn: shift.goOn}
	ctx, cancel := s.within(c)
	defer cancel()
	answer, err := s.pdp.EvaluateBatch(ctx, call)
	if err != nil {
		return s.refusal(c, err, evaluation.AuthZEN)
	}
	text, err := evaluation.Answers(answer.Items)
	if err != nil {
		return err
	}
	s.meters.decided(c.Request().Context(), tenant, answer.Items...)
	c.Response().Header().Set("X-Decision-Id", answer.ID)
	return c.Blob(http.StatusOK, "application/json", text)
}
