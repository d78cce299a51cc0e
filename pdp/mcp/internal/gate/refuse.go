package gate

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/upstream"
	"policy-service/pdp/mcp/wire"
)

// refusedError is a refusal, and answeredError a response that is an error of the server's, on the way to where it is
// answered.
type (
	refusedError  struct{ refusal *ask.Refusal }
	answeredError struct{ response rpc.Message }
)

func (e refusedError) Error() string { return e.refusal.Why }
func (answeredError) Error() string  { return "the server answered with an error" }

// Refusals of the gateway's own, about which nobody is asked. Those of decisions are written by package ask.

const (
	ambiguousUpstream ask.Kind = era.Ambiguous
	absentUpstream    ask.Kind = "upstream_unavailable"
	resultTooLarge    ask.Kind = "result_too_large"
	invalidParams     ask.Kind = "invalid_params"
	internalError     ask.Kind = "internal_error"
)

func refusal(kind ask.Kind, code int, message, why string) *ask.Refusal {
	return &ask.Refusal{Kind: kind, Status: http.StatusOK, Code: code, Message: message, Data: typed(kind), Why: why}
}

func typed(kind ask.Kind) jsontext.Value {
	return rpc.Object{}.With("type", rpc.String(string(kind))).Value()
}

// invalid refuses params that cannot be meant.
func invalid(what string) *ask.Refusal {
	return refusal(invalidParams, rpc.InvalidParams, what, what)
}

// ambiguous refuses what a server has sent.
func ambiguous(why string) *ask.Refusal {
	return refusal(ambiguousUpstream, rpc.InternalError, "upstream answered ambiguously", why)
}

// unsealed refuses if this machine has no randomness.
func unsealed(err error) *ask.Refusal {
	return refusal(internalError, rpc.InternalError, "internal error", err.Error())
}

// usualAnswer is the size of a result of which one person may leave any number unread.
const usualAnswer = 64 << 10

// eachOfLarge is how much of a result counts as one more request of its person.
const eachOfLarge = 256 << 10

// unreadResults is in place of a result for which there is no room. The server did what it was asked.
func unreadResults() *ask.Refusal {
	const message = "the server did what it was asked, and its result is not kept: too many large results of this person are not read; read those first, and call again only if it may be done twice"
	return refusal(resultNotKept, rpc.InternalError, message, message)
}

// limited refuses who asks too often.
func limited(after time.Duration) *ask.Refusal { return limitedBy("", after) }

// limitedBy is limited, with the key of the limit.
func limitedBy(limit string, after time.Duration) *ask.Refusal {
	r := refusal(ask.RateLimited, coazDenied, "too many requests", "too many requests")
	r.Data = comeAgain(ask.RateLimited, limit, after)
	return r
}

// comeAgain are the data of a refusal of something that can be sent again after a while.
func comeAgain(kind ask.Kind, limit string, after time.Duration) jsontext.Value {
	data := rpc.Object{}.With("type", rpc.String(string(kind)))
	if limit != "" {
		data = data.With("limit", rpc.String(limit))
	}
	return data.With("suggestion", rpc.String("retry after")).
		With("retry_after", jsontext.Value(strconv.FormatInt(seconds(after), 10))).Value()
}

// seconds are a time in whole seconds, at least one.
func seconds(d time.Duration) int64 { return max(1, int64((d+time.Second-1)/time.Second)) }

// noAccess is what somebody is told who sends a tool_access_policy. It stays the word of a participant until who operates the PDP
// makes policy of it.
const noAccess = "the gateway takes no access policies, and nothing has changed; ask who operates it to run: policy-service access import FILE --policies DIR"

// refuseAccess refuses an access policy over HTTP. A notification has no answer, but its status may have an error in its body.
func (g *Gateway) refuseAccess(w http.ResponseWriter, who principal) {
	release, limit, after := g.admit(who, "", false)
	if limit != "" {
		g.tooMany(w, after)
		return
	}
	defer release()
	g.noteAccess(who)
	g.refuse(w, http.StatusBadRequest, rpc.ID{}, rpc.InvalidRequest, noAccess)
}

// noteAccess notes that an access policy was refused: over the standard streams nobody is told so.
func (g *Gateway) noteAccess(who principal) {
	g.o.Logger.Info("refused", "method", wire.MethodAccess, "code", rpc.InvalidRequest, "why", noAccess, "principal", who.Key)
}

// coazDenied is the code of a denial.
const coazDenied = -32001

// mayLeave reports whether a server's code means the same to a client. MCP's own are of one message and one revision.
// Pages are shown with the answers of calls alone.
func mayLeave(code int) bool {
	return (code >= rpc.InternalError || code < rpc.ParseError) && code != era.URLRequired
}

// unavailable is the refusal if the server does not answer, or not clearly, or answers with an error where the gateway
// wanted to know something: that is the answer then.
func unavailable(err error) *ask.Refusal {
	var e *upstream.Error
	if errors.As(err, &e) && e.Answer != nil {
		if said, err := rpc.ReadError(e.Answer); err == nil && mayLeave(said.Code) {
			return &ask.Refusal{Kind: absentUpstream, Status: http.StatusOK, Code: said.Code, Message: said.Message, Data: said.Data, Why: e.Error()}
		}
	}
	return silent(err)
}

// silent is the refusal if the server does not answer, or if what it answers is not for the client.
func silent(err error) *ask.Refusal {
	if errors.Is(err, upstream.ErrAmbiguous) {
		return ambiguous(err.Error())
	}
	if large := (*upstream.TooLarge)(nil); errors.As(err, &large) {
		r := refusal(resultTooLarge, rpc.InternalError, fmt.Sprintf("what the server answered has %d bytes or more, and %d are taken; ask for less", large.Size, large.Limit), err.Error())
		r.Data = rpc.Object{}.With("type", rpc.String(string(resultTooLarge))).With("size", jsontext.Value(strconv.Itoa(large.Size))).With("limit", jsontext.Value(strconv.Itoa(large.Limit))).Value()
		return r
	}
	if errors.Is(err, upstream.ErrManyOfPerson) {
		return limitedBy("processes.per_person", time.Second)
	}
	return refusal(absentUpstream, rpc.InternalError, "upstream unavailable", err.Error())
}
