// Package answer is what goes back for a request. Each refusal and each failure is an [Answer], from the stage that finds it on.
package answer

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/mcp/internal/ask"
	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/upstream"
	"policy-service/pdp/internal/rpc"
)

// Answer is the response to a request. As an error without a refusal it is the server's response, which no permit has filtered yet.
type Answer struct {
	Message rpc.Message
	// Status is that of HTTP, if nothing was sent before the response.
	Status int
	// Outcome counts the request.
	Outcome Outcome
	// Refusal is nil if the request is not refused.
	Refusal *ask.Refusal
	// Readable is set if the refusal is a result already, to which more may have been added.
	Readable bool
}

// Outcome is how a request of a client ended.
type Outcome string

// The outcomes.
const (
	Answered Outcome = "answered" // by the server, also if with an error of its own
	Refused  Outcome = "refused"  // by a decision, or because it could not be decided
	Failed   Outcome = "failed"   // the server did not answer
	Unusable Outcome = "invalid"  // it was no request that could be decided about
	Asked    Outcome = "asked"    // the client was told to ask its person, and to send it again, or to do that while others are asked
)

func (a *Answer) Error() string {
	if a.Refusal == nil {
		return "the server answered with an error"
	}
	return a.Refusal.Why
}

// OfKind reports whether the answer is a refusal of that kind.
func (a *Answer) OfKind(kind ask.Kind) bool {
	return a != nil && a.Refusal != nil && a.Refusal.Kind == kind
}

// Of is the answer with a response.
func Of(m rpc.Message) *Answer {
	return &Answer{Message: m, Status: http.StatusOK, Outcome: Answered}
}

// Refuse is the answer with a refusal, nil without one.
func Refuse(r *ask.Refusal) *Answer {
	if r == nil {
		return nil
	}
	a := &Answer{Message: r.Failure(rpc.ID{}), Status: cmp.Or(r.Status, http.StatusOK), Outcome: Refused, Refusal: r}
	if r.Kind == ask.Unknown {
		a.Outcome = Unusable
	}
	return a
}

// Refusals of the gateway's own, without a question to the PDP. Package ask writes those of decisions.
const (
	ambiguousUpstream ask.Kind = era.Ambiguous
	AbsentUpstream    ask.Kind = "upstream_unavailable"
	resultTooLarge    ask.Kind = "result_too_large"
	ResultNotKept     ask.Kind = "result_not_kept"
	RequestRefused    ask.Kind = "server_request_refused"
	InvalidParams     ask.Kind = "invalid_params"
	internalError     ask.Kind = "internal_error"
)

// New is a refusal.
func New(kind ask.Kind, code int, message, why string) *Answer {
	return With(kind, code, message, why, rpc.Object{})
}

// With is a refusal with further members of the error's data, none of which is type.
func With(kind ask.Kind, code int, message, why string, more rpc.Object) *Answer {
	data := rpc.Object{}.With("type", rpc.String(string(kind))).And(more)
	return Refuse(&ask.Refusal{Kind: kind, Code: code, Message: message, Data: data.Value(), Why: why})
}

// Invalid refuses params that cannot be meant.
func Invalid(what string) *Answer {
	return New(InvalidParams, rpc.InvalidParams, what, what)
}

// Ambiguous refuses what a server has sent.
func Ambiguous(why string) *Answer {
	return New(ambiguousUpstream, rpc.InternalError, "upstream answered ambiguously", why)
}

// Internal refuses if this machine has no randomness.
func Internal(err error) *Answer {
	return New(internalError, rpc.InternalError, "internal error", err.Error())
}

// Denied is the code of a denial.
const Denied = -32001

// Limited refuses a principal that asks too often. Limit is the key of the limit, or "".
func Limited(limit string, after time.Duration) *Answer {
	return With(ask.RateLimited, Denied, "too many requests", "too many requests", ComeAgain(limit, after))
}

// ComeAgain are data of a refusal of a request that can be sent again after a while.
func ComeAgain(limit string, after time.Duration) rpc.Object {
	return rpc.Object{}.WithText("limit", limit).WithText("suggestion", "retry after").With("retry_after", jsontext.Value(strconv.FormatInt(Seconds(after), 10)))
}

// Seconds are a time in whole seconds, at least one.
func Seconds(d time.Duration) int64 { return max(1, int64((d+time.Second-1)/time.Second)) }

// mayLeave reports whether a server's code means the same to a client. MCP's own are of one message and one revision.
// Pages are shown with the answers of calls alone.
func mayLeave(code int) bool {
	return (code >= rpc.InternalError || code < rpc.ParseError) && code != era.URLRequired
}

// Unavailable is the refusal if the server does not answer, or not clearly, or answers with an error where the gateway
// wanted to know something: that is the answer then.
func Unavailable(err error) *Answer {
	var e *upstream.Error
	if errors.As(err, &e) && e.Answer != nil {
		if said, err := rpc.ReadError(e.Answer); err == nil && mayLeave(said.Code) {
			return Refuse(&ask.Refusal{Kind: AbsentUpstream, Code: said.Code, Message: said.Message, Data: said.Data, Why: e.Error()})
		}
	}
	return Silent(err)
}

// Silent is the refusal if the server does not answer, or if what it answers is not for the client.
func Silent(err error) *Answer {
	if errors.Is(err, upstream.ErrAmbiguous) {
		return Ambiguous(err.Error())
	}
	if large := (*upstream.TooLarge)(nil); errors.As(err, &large) {
		message := fmt.Sprintf("what the server answered has %d bytes or more, and %d are taken; ask for less", large.Size, large.Limit)
		sizes := rpc.Object{}.With("size", jsontext.Value(strconv.Itoa(large.Size))).With("limit", jsontext.Value(strconv.Itoa(large.Limit)))
		return With(resultTooLarge, rpc.InternalError, message, err.Error(), sizes)
	}
	if errors.Is(err, upstream.ErrManyOfPerson) {
		return Limited("processes.per_person", time.Second)
	}
	if errors.Is(err, upstream.ErrOwes) {
		return Limited("limits.rate", time.Second)
	}
	return New(AbsentUpstream, rpc.InternalError, "upstream unavailable", err.Error())
}

// StatusOf is the status that the modern era has for an error.
func StatusOf(code int) int {
	switch code {
	case rpc.MethodNotFound:
		return http.StatusNotFound
	case rpc.InvalidParams, era.UnsupportedVersion, era.MissingCapability, era.HeaderMismatch:
		return http.StatusBadRequest
	}
	return http.StatusOK
}

// ToolError is the result of a tool for a failed call.
func ToolError(text string) rpc.Object {
	content := rpc.Object{}.With("type", rpc.String("text")).With("text", rpc.String(text))
	return rpc.Object{}.With("content", rpc.Array([]jsontext.Value{content.Value()})).With("isError", jsontext.Value("true"))
}
