package gate

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/upstream"
	"policy-service/pdp/mcp/wire"
)

// Answer is the response to a request. Each refusal and each failure is one, from the stage that finds it on. As an error
// without a refusal it is the server's response, which no permit has filtered yet.
type Answer struct {
	Message rpc.Message
	// Status is that of HTTP, if nothing was sent before the response.
	Status int
	// Outcome counts the request.
	Outcome string
	refusal *ask.Refusal // nil if the request is not refused
	// read is set if the refusal is a result already, to which more may have been added.
	read bool
}

func (a *Answer) Error() string {
	if a.refusal == nil {
		return "the server answered with an error"
	}
	return a.refusal.Why
}

// is reports whether the answer is a refusal of that kind.
func (a *Answer) is(kind ask.Kind) bool {
	return a != nil && a.refusal != nil && a.refusal.Kind == kind
}

// answered is the answer with a response.
func answered(m rpc.Message) *Answer {
	return &Answer{Message: m, Status: http.StatusOK, Outcome: outcomeAnswered}
}

// refuse is the answer with a refusal, nil without one.
func refuse(r *ask.Refusal) *Answer {
	if r == nil {
		return nil
	}
	a := &Answer{Message: r.Failure(rpc.ID{}), Status: cmp.Or(r.Status, http.StatusOK), Outcome: outcomeRefused, refusal: r}
	if r.Kind == ask.Unknown {
		a.Outcome = outcomeInvalid
	}
	return a
}

// says is a result of the gateway's own as the client's era has it.
func (x *Call) says(result jsontext.Value) rpc.Message {
	return era.Response(x.request.Method, rpc.Answer(rpc.ID{}, result), era.Legacy, x.client.era)
}

// readable is the answer as its client reads it: where the operator wants that, the refusal of a call is a result, for models.
func (x *Call) readable(a *Answer) *Answer {
	if r := a.refusal; r != nil && !a.read && x.g.o.DenialsAsResults && x.request.Method == "tools/call" && slices.Contains(readables, r.Kind) {
		return &Answer{x.says(toolError(cmp.Or(r.Words, r.Message)).Value()), http.StatusOK, a.Outcome, r, true}
	}
	return a
}

// readables are the refusals of a call that a model can read as its result. All others are errors of the protocol, or of a server.
var readables = []ask.Kind{ask.Denied, ask.RateLimited, ask.Unavailable, ask.Withheld}

// Refusals of the gateway's own, without a question to anybody. Package ask writes those of decisions.

const (
	ambiguousUpstream ask.Kind = era.Ambiguous
	absentUpstream    ask.Kind = "upstream_unavailable"
	resultTooLarge    ask.Kind = "result_too_large"
	invalidParams     ask.Kind = "invalid_params"
	internalError     ask.Kind = "internal_error"
)

func refusal(kind ask.Kind, code int, message, why string) *Answer {
	return refusalWith(kind, code, message, why, rpc.Object{})
}

// refusalWith has further members of the error's data.
func refusalWith(kind ask.Kind, code int, message, why string, more rpc.Object) *Answer {
	data := rpc.Object{}.With("type", rpc.String(string(kind)))
	for name, v := range more.Members {
		data = data.With(name, v)
	}
	return refuse(&ask.Refusal{Kind: kind, Code: code, Message: message, Data: data.Value(), Why: why})
}

// invalid refuses params that cannot be meant.
func invalid(what string) *Answer {
	return refusal(invalidParams, rpc.InvalidParams, what, what)
}

// ambiguous refuses what a server has sent.
func ambiguous(why string) *Answer {
	return refusal(ambiguousUpstream, rpc.InternalError, "upstream answered ambiguously", why)
}

// unsealed refuses if this machine has no randomness.
func unsealed(err error) *Answer {
	return refusal(internalError, rpc.InternalError, "internal error", err.Error())
}

// usualAnswer is the size of a result of which one person may leave any number unread.
const usualAnswer = 64 << 10

// eachOfLarge is how much of a result counts as one more request of its person.
const eachOfLarge = 256 << 10

// unreadResults is in place of a result for which there is no room. The server did what it was asked.
func unreadResults() *Answer {
	const message = "the server did what it was asked, and its result is not kept: too many large results of this person are not read; read those first, and call again only if it may be done twice"
	return refusal(resultNotKept, rpc.InternalError, message, message)
}

// limited refuses who asks too often.
func limited(after time.Duration) *Answer { return limitedBy("", after) }

// limitedBy is limited, with the key of the limit.
func limitedBy(limit string, after time.Duration) *Answer {
	return refusalWith(ask.RateLimited, coazDenied, "too many requests", "too many requests", comeAgain(limit, after))
}

// comeAgain are data of a refusal of a request that can be sent again after a while.
func comeAgain(limit string, after time.Duration) (data rpc.Object) {
	if limit != "" {
		data = data.With("limit", rpc.String(limit))
	}
	return data.With("suggestion", rpc.String("retry after")).With("retry_after", jsontext.Value(strconv.FormatInt(seconds(after), 10)))
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
func unavailable(err error) *Answer {
	var e *upstream.Error
	if errors.As(err, &e) && e.Answer != nil {
		if said, err := rpc.ReadError(e.Answer); err == nil && mayLeave(said.Code) {
			return refuse(&ask.Refusal{Kind: absentUpstream, Code: said.Code, Message: said.Message, Data: said.Data, Why: e.Error()})
		}
	}
	return silent(err)
}

// silent is the refusal if the server does not answer, or if what it answers is not for the client.
func silent(err error) *Answer {
	if errors.Is(err, upstream.ErrAmbiguous) {
		return ambiguous(err.Error())
	}
	if large := (*upstream.TooLarge)(nil); errors.As(err, &large) {
		message := fmt.Sprintf("what the server answered has %d bytes or more, and %d are taken; ask for less", large.Size, large.Limit)
		sizes := rpc.Object{}.With("size", jsontext.Value(strconv.Itoa(large.Size))).With("limit", jsontext.Value(strconv.Itoa(large.Limit)))
		return refusalWith(resultTooLarge, rpc.InternalError, message, err.Error(), sizes)
	}
	if errors.Is(err, upstream.ErrManyOfPerson) {
		return limitedBy("processes.per_person", time.Second)
	}
	return refusal(absentUpstream, rpc.InternalError, "upstream unavailable", err.Error())
}
