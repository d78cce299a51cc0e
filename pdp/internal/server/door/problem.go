package door

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"policy-service/evaluation"
	"policy-service/pdp/internal/server/auth"
)

// Problem is an answer that is not a decision, as application/problem+json (RFC 9457). It quotes nothing that was sent
// and says nothing about internals, so the same mistake always gets the same bytes.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// Pointer is the JSON Pointer of the fault in the body.
	Pointer string `json:"pointer,omitempty"`

	// Bound says that the request exceeds a bound. It is counted apart.
	Bound bool `json:"-"`
	// Limit is the limit that was in the way if there were too many requests; "" if not. Such a problem says nothing
	// about its request, so it is counted and not logged: a flood would fill the log.
	Limit string `json:"-"`
	// Undecided says in a word why no decision came of a question, if that is none of its caller's making. "" is failed.
	Undecided string `json:"-"`
	// Cause is the text of the operator's log about a failure, instead of the type of its error alone. It must not quote
	// a request.
	Cause string `json:"-"`

	// OAuth is the error of RFC 6749, in whose form the problem is answered then; "" if the problem is none of OAuth.
	OAuth string `json:"-"`

	challenge string // WWW-Authenticate
	retry     string // Retry-After
}

// Error makes a Problem an error, for handlers to return.
func (p *Problem) Error() string { return fmt.Sprintf("%d %s: %s", p.Status, p.Title, p.Detail) }

// NewProblem has the type about:blank: the status says which kind of problem it is, and the detail gives advice.
func NewProblem(status int, detail string) *Problem {
	p := &Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail}
	if status == http.StatusServiceUnavailable {
		p.retry = "1" // each of them may be over in a moment
	}
	return p
}

// maxReason bounds a text that is written into the log for good.
const maxReason = 1000

// CheckReason refuses the reason of a redaction that cannot stay on record.
func CheckReason(reason string) error {
	if strings.TrimSpace(reason) != "" && len(reason) <= maxReason {
		return nil
	}
	return &evaluation.Error{
		Pointer: "/reason", Detail: fmt.Sprintf("missing, or of more than %d bytes", maxReason),
		Try: "say why: it stays on record in the content's place, and must not repeat it",
	}
}

// Beyond is the problem of something that exceeds a bound.
func Beyond(status int, detail string) *Problem {
	p := NewProblem(status, detail)
	p.Bound = true
	return p
}

// TooMany is the problem of a request that is one too many for a limit, and that may come again after a wait.
func TooMany(limit string, wait time.Duration, status int, detail string) *Problem {
	p := NewProblem(status, detail)
	p.Limit = limit
	p.retry = strconv.Itoa(max(1, int(math.Ceil(wait.Seconds()))))
	return p
}

// UnknownTenant is the one answer for a tenant that does not exist, has no legal name, or is not the caller's: no
// caller may learn which.
func UnknownTenant(shape evaluation.Shape) *Problem {
	if shape == evaluation.Native {
		return NewProblem(http.StatusForbidden, "no such tenant, or not one of yours; check tenant_id")
	}
	return NewProblem(http.StatusNotFound,
		"no such tenant, or not one of yours; check the path, and use /access/v1/… for the tenant default")
}

// noTurn is the problem of a request that got no turn at long work, at its beginning or in its middle.
func noTurn() *Problem {
	return TooMany("work", time.Second, http.StatusServiceUnavailable,
		"more is asked at once than can be worked on in time; ask again after Retry-After seconds, with fewer "+
			"batches, searches and large bodies at once")
}

// problemOf is the answer to an error. The door knows its own errors and those of decoding; [Options.Explain] knows the
// others.
func (d *Door) problemOf(err error, shape evaluation.Shape) *Problem {
	var p *Problem
	var bad *evaluation.Error
	var refusal *auth.Refusal
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(err, ErrBusy):
		return noTurn()
	case errors.As(err, &refusal):
		return unauthenticated(refusal)
	case errors.As(err, &bad):
		return malformed(bad)
	}
	if p := d.Options.Explain(err, shape); p != nil {
		return p
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		p := NewProblem(http.StatusServiceUnavailable, "there was no time to decide; ask again later")
		p.Undecided = "time"
		return p
	}
	return NewProblem(http.StatusInternalServerError,
		"the service failed, and nothing was decided; the operator finds the cause in its log by X-Request-ID")
}

func unauthenticated(r *auth.Refusal) *Problem {
	if errors.Is(r, auth.ErrForbidden) {
		return NewProblem(http.StatusForbidden, r.Detail)
	}
	if errors.Is(r, auth.ErrUnavailable) {
		p := NewProblem(http.StatusServiceUnavailable, r.Detail)
		p.Undecided, p.Cause = "keys", "the API keys in etcd were not read for longer than cluster.keys_stale"
		return p
	}
	p := NewProblem(http.StatusUnauthorized, r.Detail)
	p.challenge = r.Challenge
	return p
}

func malformed(bad *evaluation.Error) *Problem {
	status := http.StatusBadRequest
	if bad.TooLarge {
		status = http.StatusRequestEntityTooLarge
	}
	detail := bad.Detail
	if bad.Try != "" {
		detail += "; " + bad.Try
	}
	p := NewProblem(status, detail)
	p.Pointer, p.Bound = bad.Pointer, bad.Limit
	return p
}

// Fail is echo's error handler: the last stop of every request that was not answered.
func (d *Door) Fail(err error, c echo.Context) {
	if c.Response().Committed {
		return // the client went away while the answer was written
	}
	_ = d.answer(c, d.problemOf(err, evaluation.AuthZEN), err) // a client that went away gets no answer
}

// Refuse answers with an error of deciding about a body of this shape. A pointer in the error is into the request that
// the body became; that of the answer is into the body as it was sent.
func (d *Door) Refuse(c echo.Context, err error, shape evaluation.Shape) error {
	p := d.problemOf(err, shape)
	p.Pointer = shape.Pointer(p.Pointer)
	return d.answer(c, p, err)
}

// answer writes a problem, and counts it.
func (d *Door) answer(c echo.Context, p *Problem, err error) error {
	gone := errors.Is(c.Request().Context().Err(), context.Canceled)
	switch {
	case p.Limit != "":
		d.Refused(p.Limit)
		d.undecided(c, "limit")
	case p.Status >= http.StatusInternalServerError && !gone: // clients that go away could fill a log
		reason := cmp.Or(p.Undecided, "failed")
		d.undecided(c, reason)
		d.logFailure(c, p, reason, err)
	}
	d.Options.Meters.Problem(p.Status, p.Bound)
	media, content := "application/problem+json", any(p)
	if p.OAuth != "" {
		media, content = echo.MIMEApplicationJSON, p.oauth()
	}
	body, err := json.Marshal(content, jsontext.AllowInvalidUTF8(true))
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
	return c.Blob(p.Status, media, body)
}

// logFailure logs a failure for an operator, and no value of the request: the text of an error may quote one, so the type
// of the error must do unless the problem has a cause. A state of the service, such as a full disk, refuses all requests,
// and its lines are counted. Of a failure, each is found by its request's id.
func (d *Door) logFailure(c echo.Context, p *Problem, reason string, err error) {
	cause := cmp.Or(p.Cause, fmt.Sprintf("%T", err))
	event := []any{"status", p.Status, "route", c.Path(), "reason", reason, "cause", cause}
	if p.Status != http.StatusInternalServerError {
		event = []any{slog.Group("", event...)}
	}
	d.Options.Log.WarnContext(d.Options.LogContext(c.Request()), "not answered", append(event, "request_id", RequestID(c))...)
}

// undecided counts a question of which no decision came.
func (d *Door) undecided(c echo.Context, reason string) {
	if d.visitOf(c).decides {
		d.Options.Meters.Undecided(reason)
	}
}

// Refused counts a request or connection that was refused because of a limit, which is one of a few words.
func (d *Door) Refused(limit string) { d.Options.Meters.Limit(limit) }

// Marshal writes an answer, or a record of an act, with members in a fixed order. Names of files may
// hold bytes that are not UTF-8; they become U+FFFD.
func Marshal(v any) ([]byte, error) {
	return json.Marshal(v, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
}

// WriteJSON answers with a value, as [Marshal] writes it.
func WriteJSON(c echo.Context, status int, v any) error {
	body, err := Marshal(v)
	if err != nil {
		return err
	}
	return c.Blob(status, echo.MIMEApplicationJSON, body)
}

// PanicCause is the text of the operator's log about a panic. Its value may quote a request, so only the text of a
// runtime error is logged.
func PanicCause(v any) string {
	if err, ok := v.(interface{ RuntimeError() }); ok {
		return fmt.Sprint(err)
	}
	return fmt.Sprintf("%T", v)
}
