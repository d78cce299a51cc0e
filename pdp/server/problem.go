package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/decisionlog"
	"policy-service/pdp/server/auth"
)

// Problem is an answer that is no decision, as application/problem+json
// (RFC 9457). It quotes nothing that was sent and says nothing of internals, so
// that the same mistake always gives the same bytes.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// Pointer is the JSON Pointer of what is wrong in the body.
	Pointer string `json:"pointer,omitempty"`

	challenge string // WWW-Authenticate
	limit     bool   // a bound was exceeded
	retry     string // Retry-After
	counted   bool   // and so not logged
}

// Error makes the facts an error, for handlers to return.
func (p *Problem) Error() string { return fmt.Sprintf("%d %s: %s", p.Status, p.Title, p.Detail) }

// newProblem has type about:blank: the status says which kind it is, and the
// detail what to do.
func newProblem(status int, detail string) *Problem {
	p := &Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail}
	if status == http.StatusServiceUnavailable {
		p.retry = "1" // each of them may be over in a moment
	}
	return p
}

// unknownTenant is the one answer for a tenant that does not exist, has no legal
// name, or is not the caller's: nobody may learn which.
func unknownTenant(shape evaluation.Shape) *Problem {
	if shape == evaluation.Native {
		return newProblem(http.StatusForbidden, "no such tenant, or not one of yours; check tenant_id")
	}
	return newProblem(http.StatusNotFound, "no such tenant, or not one of yours; check the path, and use /access/v1/… for the tenant default")
}

// beyond is a problem of something that exceeds a bound.
func beyond(status int, detail string) *Problem {
	p := newProblem(status, detail)
	p.limit = true
	return p
}

func noBundle() *Problem {
	return newProblem(http.StatusServiceUnavailable, "no bundle is loaded; see /readyz")
}

// problemOf is an error of the decision path to the outside; that there is no room on
// record, or no turn, is counted.
func (s *Server) problemOf(c echo.Context, err error, shape evaluation.Shape) *Problem {
	var none *decisionlog.RoomError
	if errors.As(err, &none) {
		return s.noRoom(c, none)
	}
	if errors.Is(err, errBusy) {
		return s.noTurn(c)
	}
	return problemOf(err, shape)
}

// problemOf says what an error of the decision path is to the outside.
func problemOf(err error, shape evaluation.Shape) *Problem {
	var bad *evaluation.Error
	var refusal *auth.Refusal
	switch {
	case errors.As(err, &refusal):
		return refused(refusal)
	case errors.As(err, &bad):
		return malformed(bad, bad.Pointer)
	case errors.Is(err, pdp.ErrUnknownTenant):
		return unknownTenant(shape)
	case errors.Is(err, pdp.ErrNoBundle):
		return noBundle()
	case errors.Is(err, pdp.ErrNotRecorded):
		return newProblem(http.StatusServiceUnavailable, "the decision could not be recorded, so there is none; ask again later")
	case errors.Is(err, errReceipt):
		return newProblem(http.StatusServiceUnavailable, "the receipt may not be on record; send it again later, and 409 says that it was")
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return newProblem(http.StatusServiceUnavailable, "there was no time to decide; ask again later")
	}
	return newProblem(http.StatusInternalServerError, "the service failed, and nothing was decided; the operator finds the cause in its log by X-Request-ID")
}

func malformed(bad *evaluation.Error, pointer string) *Problem {
	status := http.StatusBadRequest
	if bad.TooLarge {
		status = http.StatusRequestEntityTooLarge
	}
	detail := bad.Detail
	if bad.Try != "" {
		detail += "; " + bad.Try
	}
	p := newProblem(status, detail)
	p.Pointer, p.limit = pointer, bad.Limit
	return p
}

// fail is echo's error handler: the last stop of every request not answered.
func (s *Server) fail(err error, c echo.Context) {
	if c.Response().Committed {
		return // the client went away while the answer was written
	}
	var p *Problem
	var routing *echo.HTTPError
	switch {
	case errors.As(err, &p):
	case errors.As(err, &routing) && routing.Code == http.StatusNotFound:
		p = newProblem(http.StatusNotFound, "nothing is served here; try POST /access/v1/evaluation, POST /v1/authorize, GET /readyz or GET /livez")
	default:
		p = s.problemOf(c, err, evaluation.AuthZEN)
	}
	if p.Status >= http.StatusInternalServerError {
		s.logFailure(c, p, err)
	}
	_ = s.write(c, p) // a client that went away cannot be told anything
}

// logFailure says what an operator needs and no value of the request's: a text
// that comes from below may quote one, so only that of a failed record is kept.
func (s *Server) logFailure(c echo.Context, p *Problem, err error) {
	if p.counted || errors.Is(c.Request().Context().Err(), context.Canceled) {
		return // counted; or nobody waits any more, and whoever goes away could fill a log
	}
	cause := fmt.Sprintf("%T", err)
	if errors.Is(err, pdp.ErrNotRecorded) || errors.Is(err, errReceipt) {
		cause = err.Error()
	}
	s.log.WarnContext(logContext(c), "not answered", "status", p.Status, "route", c.Path(), "request_id", requestID(c), "cause", cause)
}

// write answers with a problem, and counts it.
func (s *Server) write(c echo.Context, p *Problem) error {
	s.meters.problem(c.Request().Context(), p)
	body, err := marshal(p)
	if err != nil {
		return err
	}
	header := c.Response().Header()
	if p.challenge != "" {
		header.Set(echo.HeaderWWWAuthenticate, p.challenge)
	}
	if p.retry != "" {
		header.Set(echo.HeaderRetryAfter, p.retry)
	}
	return c.Blob(p.Status, "application/problem+json", body)
}

// marshal writes v with members in a fixed order. Names of files may hold bytes
// that are not UTF-8; they become U+FFFD.
func marshal(v any) ([]byte, error) {
	return json.Marshal(v, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
}
