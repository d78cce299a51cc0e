package flow

import (
	"cmp"
	"net/http"
	"slices"

	"policy-service/pdp/mcp/internal/answer"
	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/rpc"
)

// readable is the answer as its client reads it: where the operator wants that, the refusal of a call is a result, for models.
func (x *Call) readable(a *answer.Answer) *answer.Answer {
	if r := a.Refusal; r != nil && !a.Readable && x.g.o.DenialsAsResults && x.Request.Method == "tools/call" && slices.Contains(readables, r.Kind) {
		return &answer.Answer{
			Message: x.Client.Says(x.Request.Method, answer.ToolError(cmp.Or(r.Words, r.Message)).Value()),
			Status:  http.StatusOK, Outcome: a.Outcome, Refusal: r, Readable: true,
		}
	}
	return a
}

// readables are the refusals of a call that a model can read as its result. All others are errors of the protocol, or of a server.
var readables = []ask.Kind{ask.Denied, ask.RateLimited, ask.Unavailable, ask.Withheld}

// usualAnswer is the size of a result of which one person may leave any number unread.
const usualAnswer = 64 << 10

// eachOfLarge is how much of a result counts as one more request of its person.
const eachOfLarge = 256 << 10

// unreadResults is in place of a result for which there is no room. The server did what it was asked.
func unreadResults() *answer.Answer {
	const message = "the server did what it was asked, and its result is not kept: too many large results of this person are not read; read those first, and call again only if it may be done twice"
	return answer.New(answer.ResultNotKept, rpc.InternalError, message, message)
}

// What is bounded of one principal, the streams to which it listens, and of one person, large answers that are not read.
const (
	Streams      = "stream"
	LargeAnswers = "large answer"
)
