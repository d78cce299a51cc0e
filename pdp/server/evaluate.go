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

// authzen answers POST /access/v1/evaluation and the same below /tenants/:tenant.
func (s *Server) authzen(c echo.Context) error {
	a, err := s.door.Admit(c, door.Need{
		Permission: auth.Decide,
		Tenant:     true,
		Body:       door.JSON,
		Records:    true,
		Work:       door.WorkBySize,
	})
	if err != nil {
		return err
	}
	defer a.Shift.End()
	span := telemetry.Stage(c.Request().Context(), "decode")
	request, err := evaluation.DecodeAuthZEN(a.Body, a.Tenant, s.config.Program.Limits)
	telemetry.EndStage(span, err)
	if err != nil {
		return err
	}
	return s.answer(c, a.Caller, request)
}

// native answers POST /v1/authorize. Its tenant is in the body, and so is checked last.
func (s *Server) native(c echo.Context) error {
	a, err := s.door.Admit(c, door.Need{
		Permission: auth.Decide,
		Body:       door.JSON,
		Records:    true,
		Work:       door.WorkBySize,
	})
	if err != nil {
		return err
	}
	defer a.Shift.End()
	span := telemetry.Stage(c.Request().Context(), "decode")
	request, err := evaluation.DecodeNative(a.Body, s.config.Program.Limits)
	telemetry.EndStage(span, err)
	if err != nil {
		return err
	}
	if err := s.door.CheckTenant(request.Tenant, a.Caller, evaluation.Native); err != nil {
		return err
	}
	return s.answer(c, a.Caller, request)
}

// answer asks the PDP. Nothing is written before it has answered without an
// error: that is all that keeps a failure from looking like an allow.
func (s *Server) answer(c echo.Context, caller auth.Caller, request evaluation.Request) error {
	call := pdp.Call{Request: request, Asker: asker(c, caller), Explain: explains(c, caller)}
	call.Approvals = pdp.ApprovalsFor(&call, c.Request().Header.Get("X-Approval") != "none", caller.May(auth.Request))
	ctx, cancel := s.door.Within(c)
	defer cancel()
	decision, err := s.pdp.Evaluate(ctx, call)
	if err != nil {
		return s.door.Refuse(c, err, request.Shape)
	}
	body, err := request.Shape.Answer(decision)
	if err != nil {
		return err
	}
	s.telemetry.Decisions.Answered(c.Request().Context(), request.Tenant, decision)
	c.Response().Header().Set("X-Decision-Id", decision.ID)
	return c.Blob(http.StatusOK, "application/json", body)
}

// asker is the caller of a request, with what others know the request by.
func asker(c echo.Context, caller auth.Caller) evaluation.Asker {
	return evaluation.Asker{
		Name:        caller.Name,
		Registered:  caller.Registered,
		Obligations: caller.Obligations,
		RequestID:   door.RequestID(c),
		TraceID:     telemetry.TraceID(c.Request()),
	}
}

// explains reports whether an explanation was asked for by somebody who may have it.
func explains(c echo.Context, caller auth.Caller) bool {
	return caller.May(auth.Explain) && c.Request().Header.Get("X-Explain") == "true"
}
