package server

import (
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"

	"github.com/labstack/echo/v4"

	"policy-service/pdp/approval/broker"
	"policy-service/pdp/server/door"
	"policy-service/pdp/server/telemetry"
)

// registrar registers a route.
type registrar = func(path string, handle echo.HandlerFunc, methods ...string)

// handler has every route. A request for anything else gets a 404 in the form of every other problem.
func (s *Server) handler() http.Handler {
	e := echo.New()
	e.HTTPErrorHandler = s.door.Fail
	known := map[string]bool{}
	e.Pre(s.door.Attend, observe(s.telemetry, known), recovered(s.log), s.live.pin, s.door.Identify) // before routing, so that 404 and 405 are covered too
	others := map[string][]string{}
	route := func(path string, handle echo.HandlerFunc, methods ...string) {
		e.Match(methods, path, handle)
		known[path] = true
		// echo's own answers would allow OPTIONS, and list it in Allow.
		others[path] = append(others[path], methods...)
		e.RouteNotFound(path, otherMethod(others[path]))
	}
	decisions := &decisionRoutes{
		door:     s.door,
		pdp:      s.pdp,
		pages:    s.keys.pages,
		answered: &s.telemetry.Decisions,
	}
	decisions.register(route)
	for _, prefix := range []string{"", door.TenantPrefix} {
		route(prefix+broker.RequestsPath, s.submitRequest, http.MethodPost)
		route(prefix+broker.RequestsPath+"/:id", s.requestStatus, http.MethodGet)
		route(prefix+broker.RequestsPath+"/:id/cancel", s.cancelRequest, http.MethodPost)
	}
	s.approvalRoutes(route)
	s.audit.Routes(route)
	health := &health{door: s.door, pdp: s.pdp}
	if s.decisions != nil {
		health.log = s.decisions.readiness
	}
	route("/livez", health.livez, http.MethodGet, http.MethodHead)
	route("/readyz", health.readyz, http.MethodGet, http.MethodHead)
	route(metricsPath, metrics(s.door, s.telemetry.Scrape), http.MethodGet)
	documents := &documents{
		door:          s.door,
		keys:          s.keys.signing,
		base:          s.listeners.base(),
		takesRequests: func() bool { return s.approvals != nil && s.live.Load().credentials() },
	}
	documents.register(route, urlPath(s.config.PublicURL))
	return e
}

// approvalRoutes are for approvers, and for who asked them.
func (s *Server) approvalRoutes(route registrar) {
	route("/v1/approvals", s.approvalsPage, http.MethodGet)
	route("/v1/approvals/:id", s.approvalStatus, http.MethodGet)
	route("/v1/approvals/:id/decision", s.decideApproval, http.MethodPost)
	route("/v1/approvals/:id/elicitation", s.elicitation, http.MethodGet)
	route("/v1/approvals/:id/authorization-request", s.authorizationRequest, http.MethodGet)
	route("/v1/approvals/:id/authorization-notification", s.authorizationNotification, http.MethodGet)
	route("/v1/approvals/:id/response", s.respondApproval, http.MethodPost)
	route("/v1/approvals/:id/revoke", s.revokeApproval, http.MethodPost)
	route("/v1/approvals/:id/cancel", s.cancelApproval, http.MethodPost)
}

func otherMethod(methods []string) echo.HandlerFunc {
	allow := strings.Join(methods, ", ")
	return func(c echo.Context) error {
		c.Response().Header().Set(echo.HeaderAllow, allow)
		return door.NewProblem(http.StatusMethodNotAllowed, "this path takes "+allow+" only; see the Allow header")
	}
}

// recovered makes a 500 of a panic: one request is lost, not the service. The value of the panic may quote a request, so
// only runtime errors are logged as they are.
func recovered(log *slog.Logger) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) (err error) {
			defer func() {
				v := recover()
				if v == nil {
					return
				}
				if v == http.ErrAbortHandler { // net/http's own way to give up on a connection
					panic(v)
				}
				log.ErrorContext(telemetry.LogContext(c.Request()), "panic", "cause", describe(v), "request_id", door.RequestID(c), "stack", string(debug.Stack()))
				err = fmt.Errorf("panic: %T", v)
			}()
			return next(c)
		}
	}
}

func describe(v any) string {
	if err, ok := v.(interface{ RuntimeError() }); ok {
		return fmt.Sprint(err)
	}
	return fmt.Sprintf("%T", v)
}
