package server

import (
	"log/slog"
	"net/http"

	"github.com/labstack/echo/v4"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/door"
	"policy-service/pdp/internal/server/telemetry"
)

// decisionRoutes are the routes by which a PEP asks. Each request to them goes the same way: it is let in, its body is
// decoded, the PDP is asked, and the answer is written; see [decided].
type decisionRoutes struct {
	*base
	policies *policies
	keys     *ownKeys
	// receipts is the origin of the log that has a record of each answer; "" if no such log is kept.
	receipts func() string
}

// Routes registers the routes. Where a tenant is in the path, it is not the default one.
func (d *decisionRoutes) Routes(route registrar) {
	one := door.Need{Permission: auth.Decide, Tenant: true, Handed: true, Work: door.WorkBySize}
	many := door.Need{Permission: auth.Decide, Tenant: true, Work: door.LongWork}
	search := door.Need{Permission: auth.Search, Tenant: true, Work: door.LongWork}
	for _, prefix := range []string{"", door.TenantPrefix} {
		route(prefix+"/access/v1/evaluation", decided(d, one, decodeAuthZEN, (*decisionRoutes).answer), http.MethodPost)
		decode := func(a *door.Admitted, limits evaluation.Limits) (evaluation.Batch, error) {
			return evaluation.DecodeBatch(a.Body, a.Tenant, limits)
		}
		route(prefix+"/access/v1/evaluations", decided(d, many, decode, (*decisionRoutes).answerBatch), http.MethodPost)
		for _, kind := range []evaluation.SearchKind{evaluation.SubjectSearch, evaluation.ResourceSearch, evaluation.ActionSearch} {
			decode := func(a *door.Admitted, limits evaluation.Limits) (evaluation.Search, error) {
				return evaluation.DecodeSearch(kind, a.Body, a.Tenant, limits)
			}
			route(prefix+"/access/v1/search/"+string(kind), decided(d, search, decode, (*decisionRoutes).answerSearch), http.MethodPost)
		}
	}
	decode := func(a *door.Admitted, limits evaluation.Limits) (evaluation.Request, error) {
		return evaluation.DecodeNative(a.Body, limits)
	}
	one.Tenant, one.Handed = false, false // the tenant is in the body
	route("/v1/authorize", decided(d, one, decode, (*decisionRoutes).answerNative), http.MethodPost)
}

// decoder decodes the body of a request that was let in.
type decoder[T any] func(a *door.Admitted, limits evaluation.Limits) (T, error)

func decodeAuthZEN(a *door.Admitted, limits evaluation.Limits) (evaluation.Request, error) {
	if a.Handed != nil {
		return a.Handed.Decode(a.Tenant, limits)
	}
	return evaluation.DecodeAuthZEN(a.Body, a.Tenant, limits)
}

// decided is a route of requests that become decisions, and so records.
func decided[T any](
	d *decisionRoutes,
	need door.Need,
	decode decoder[T],
	answer func(*decisionRoutes, echo.Context, door.Admitted, T) error,
) echo.HandlerFunc {
	need.Body, need.Records = door.JSON, true
	return func(c echo.Context) error {
		a, err := d.door.Admit(c, need)
		if err != nil {
			return err
		}
		defer a.Shift.End()
		span := telemetry.Stage(c.Request().Context(), "decode")
		asked, err := decode(&a, d.door.Options.Limits)
		telemetry.EndStage(span, err)
		if err != nil {
			return err
		}
		return answer(d, c, a, asked)
	}
}

// answerNative is [decisionRoutes.answer] of a request in the native form. Its tenant is in the body, and so is checked
// last.
func (d *decisionRoutes) answerNative(c echo.Context, a door.Admitted, request evaluation.Request) error {
	if err := d.door.CheckTenant(request.Tenant, a.Caller, evaluation.Native); err != nil {
		return err
	}
	if a.Caller = a.Caller.In(request.Tenant); !a.Caller.May(auth.Decide) { // it may be of another tenant
		return door.Lacks(auth.Decide)
	}
	return d.answer(c, a, request)
}

// answer asks the PDP. Nothing is written before the PDP has answered without an error: that alone keeps a failure from
// looking like an allow.
func (d *decisionRoutes) answer(c echo.Context, a door.Admitted, request evaluation.Request) error {
	if err := mayAskPossible(&a.Caller, &request); err != nil {
		return err
	}
	call := pdp.Call{Request: request, Explain: explains(c, &a.Caller)}
	call.Asker = d.asker(c, &a.Caller)
	call.Approvals = pdp.ApprovalsFor(&call, c.Request().Header.Get("X-Approval") != "none", a.Caller.May(auth.Request))
	ctx, cancel := d.door.Within(c)
	defer cancel()
	decision, err := d.policies.Evaluate(ctx, call)
	if err != nil {
		return d.door.Refuse(c, err, request.Shape)
	}
	if request.PassesOver {
		c.Response().Header().Set("Warning", `299 - "the member evaluations was ignored; send it to /access/v1/evaluations"`)
		if decision.Explain != nil {
			decision.Explain.Ignored = "/evaluations"
		}
	}
	if a.Caller.May(auth.Relay) {
		decision.PointOut()
	}
	body, err := request.Shape.Answer(decision)
	if err != nil {
		return err
	}
	if request.Unknown == nil { // as the results of a search, what is possible is no decision about a call
		d.count(c, request.Tenant, &decision)
	}
	return d.answerJSON(c, decision.ID, decision.Bundle, body)
}

// count counts a decision that is about to be answered.
func (d *decisionRoutes) count(c echo.Context, tenant string, one *evaluation.Decision) {
	d.telemetry.Decisions.Answered(tenant, one)
	for _, id := range one.Determining {
		if one.Allow && pdp.Observes(id) {
			d.telemetry.Decisions.Observed(tenant)
			d.door.Options.Log.InfoContext(d.door.Options.LogContext(c.Request()), "a call needs no capability yet: capability is observe, and required would refuse it",
				slog.Group("", "tenant", tenant, "policy", id), "decision", one.ID)
		}
	}
}

// mayAskPossible refuses a caller that asks what is possible, and may not search: many such questions are a search.
func mayAskPossible(caller *auth.Caller, request *evaluation.Request) error {
	if request.Unknown != nil && !caller.May(auth.Search) {
		return door.Lacks(auth.Search)
	}
	return nil
}

// asJSON is shared, and not to be changed.
var asJSON = []string{echo.MIMEApplicationJSON}

// answerJSON writes an answer with the name that it has on record, the digest of the policies that decided, "" for none, and a
// receipt if one is wanted. The record is on disk then, and a receipt says of which log.
func (d *decisionRoutes) answerJSON(c echo.Context, id, bundle string, body []byte) error {
	header := c.Response().Header()
	if bundle != "" {
		header["X-Bundle"] = []string{bundle}
	}
	header["X-Decision-Id"], header["Content-Type"] = []string{id}, asJSON
	if c.Request().Header.Get("X-Receipt") == "want" {
		if origin := d.receipts(); origin != "" {
			header["X-Receipt"] = []string{origin + " " + id}
		}
	}
	return c.Blob(http.StatusOK, echo.MIMEApplicationJSON, body)
}

// asker is the caller of a request, with what others know the request by.
func (d *decisionRoutes) asker(c echo.Context, caller *auth.Caller) evaluation.Asker {
	asker := caller.Asker()
	asker.RequestID, asker.TraceID = door.RequestID(c), telemetry.TraceID(c.Request().Context(), c.Request().Header)
	return asker
}

// explains reports whether a caller asked for an explanation, and may have one.
func explains(c echo.Context, caller *auth.Caller) bool {
	return c.Request().Header.Get("X-Explain") == "true" && caller.May(auth.Explain)
}
