package server

import (
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"policy-service/evaluation"
	"policy-service/pdp"
)

// authzen answers POST /access/v1/evaluation and the same below /tenants/:tenant.
func (s *Server) authzen(c echo.Context) error {
	body, caller, tenant, err := s.admit(c, Decide)
	if err != nil {
		return err
	}
	shift, err := s.letIn(c, caller, len(body) > smallBody)
	if err != nil {
		return err
	}
	defer shift.end()
	span := stage(c, "decode")
	request, err := evaluation.DecodeAuthZEN(body, tenant, s.config.Program.Limits)
	ended(span, err)
	if err != nil {
		return err
	}
	return s.answer(c, caller, request)
}

// admit does what comes before the body is read as anything. The order of its
// steps is part of the contract: a caller learns nothing about what comes after
// the first that fails. (The method was checked by the router.)
func (s *Server) admit(c echo.Context, p Permission) (body []byte, caller Caller, tenant string, err error) {
	body, caller, err = s.body(c, func() (Caller, error) {
		caller, err := s.authenticate(c)
		if err != nil {
			return caller, err
		}
		if tenant, err = s.pathTenant(c, caller); err != nil {
			return caller, err
		}
		return caller, s.maySend(c, caller, p)
	})
	return body, caller, tenant, err
}

// letIn lets a request in that may go on. One that may keep a processor for long is bounded
// by its turns alone: a place kept between two of them would be another's. The shift of a
// short one has nothing to end.
func (s *Server) letIn(c echo.Context, caller Caller, long bool) (*shift, error) {
	if long {
		return s.shift(c, caller)
	}
	return new(shift), s.enter(c, caller)
}

// maySend says by the header alone why a caller may not ask.
func (s *Server) maySend(c echo.Context, caller Caller, p Permission) error {
	if err := need(caller, p); err != nil {
		return err
	}
	if err := wantJSON(c.Request().Header); err != nil {
		return err
	}
	return s.paceToRecord(c, caller)
}

// native answers POST /v1/authorize. Its tenant is in the body, and so comes last.
func (s *Server) native(c echo.Context) error {
	body, caller, err := s.body(c, func() (Caller, error) {
		caller, err := s.authenticate(c)
		if err != nil {
			return caller, err
		}
		return caller, s.maySend(c, caller, Decide)
	})
	if err != nil {
		return err
	}
	shift, err := s.letIn(c, caller, len(body) > smallBody)
	if err != nil {
		return err
	}
	defer shift.end()
	span := stage(c, "decode")
	request, err := evaluation.DecodeNative(body, s.config.Program.Limits)
	ended(span, err)
	if err != nil {
		return err
	}
	if err := s.tenant(request.Tenant, caller, evaluation.Native); err != nil {
		return err
	}
	return s.answer(c, caller, request)
}

// answer asks the PDP. Nothing is written before it has answered without an
// error: that is all that keeps a failure from looking like an allow.
func (s *Server) answer(c echo.Context, caller Caller, request evaluation.Request) error {
	call := pdp.Call{Request: request, Asker: asker(c, caller), Explain: explains(c, caller)}
	call.Approvals = pdp.ApprovalsFor(&call, c.Request().Header.Get("X-Approval") != "none", caller.May(Request))
	ctx, cancel := s.within(c)
	defer cancel()
	decision, err := s.pdp.Evaluate(ctx, call)
	if err != nil {
		return s.refusal(c, err, request.Shape)
	}
	body, err := request.Shape.Answer(decision)
	if err != nil {
		return err
	}
	s.meters.decided(c.Request().Context(), request.Tenant, decision)
	c.Response().Header().Set("X-Decision-Id", decision.ID)
	return c.Blob(http.StatusOK, "application/json", body)
}

// asker is the caller of a request, with what others know the request by.
func asker(c echo.Context, caller Caller) evaluation.Asker {
	a := evaluation.Asker{Name: caller.Name, Registered: caller.Registered, Obligations: caller.Obligations}
	a.RequestID, a.TraceID = known(c)
	return a
}

// explains reports whether an explanation was asked for by somebody who may have it.
func explains(c echo.Context, caller Caller) bool {
	return caller.May(Explain) && c.Request().Header.Get("X-Explain") == "true"
}

// refusal turns an error of the PDP's into a Problem, its pointer into one
// into the body that was sent.
func (s *Server) refusal(c echo.Context, err error, shape evaluation.Shape) error {
	p := s.problemOf(c, err, shape)
	p.Pointer = shape.Pointer(p.Pointer)
	if p.Status >= http.StatusInternalServerError {
		s.logFailure(c, p, err)
	}
	return s.write(c, p)
}

// pathTenant is the tenant of an AuthZEN path: default at the root, which has
// no other path, and otherwise the one the path names.
func (s *Server) pathTenant(c echo.Context, caller Caller) (string, error) {
	tenant := evaluation.DefaultTenant
	if strings.HasPrefix(c.Path(), tenantPrefix) {
		if tenant = c.Param("tenant"); tenant == evaluation.DefaultTenant {
			return "", unknownTenant(evaluation.AuthZEN)
		}
	}
	return tenant, s.tenant(tenant, caller, evaluation.AuthZEN)
}

// tenant checks the name before anything else sees it: the empty one, above
// all, must not come to mean default.
func (s *Server) tenant(name string, caller Caller, shape evaluation.Shape) error {
	bundle := s.pdp.Bundle()
	if bundle == nil {
		return noBundle()
	}
	if !evaluation.IsTenantName(name) || !caller.Serves(name) || !bundle.HasTenant(name) {
		return unknownTenant(shape)
	}
	return nil
}
