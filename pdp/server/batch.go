package server

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/server/auth"
	"policy-service/pdp/server/door"
	"policy-service/pdp/server/telemetry"
)

// evaluations answers POST /access/v1/evaluations and the same below
// /tenants/:tenant. A body without evaluations is one request, and is answered
// as one.
func (s *Server) evaluations(c echo.Context) error {
	a, err := s.door.Admit(c, door.Need{
		Permission: auth.Decide,
		Tenant:     true,
		Body:       door.JSON,
		Records:    true,
		Work:       door.LongWork,
	})
	if err != nil {
		return err
	}
	defer a.Shift.End()
	span := telemetry.Stage(c.Request().Context(), "decode")
	batch, err := evaluation.DecodeBatch(a.Body, a.Tenant, s.config.Program.Limits)
	telemetry.EndStage(span, err)
	if err != nil {
		return err
	}
	if batch.Single {
		return s.answer(c, a.Caller, batch.Items[0].Request)
	}
	s.door.Charge(a.Caller, len(batch.Items)-1)
	call := pdp.BatchCall{
		Batch:   batch,
		Asker:   asker(c, a.Caller),
		Explain: explains(c, a.Caller),
		GoOn:    a.Shift.GoOn,
	}
	ctx, cancel := s.door.Within(c)
	defer cancel()
	answer, err := s.pdp.EvaluateBatch(ctx, call)
	if err != nil {
		return s.door.Refuse(c, err, evaluation.AuthZEN)
	}
	text, err := evaluation.Answers(answer.Items)
	if err != nil {
		return err
	}
	s.telemetry.Decisions.Answered(c.Request().Context(), a.Tenant, answer.Items...)
	c.Response().Header().Set("X-Decision-Id", answer.ID)
	return c.Blob(http.StatusOK, "application/json", text)
}
