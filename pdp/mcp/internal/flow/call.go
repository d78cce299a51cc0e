// Package flow is the way of a request: find what it is for, ask the PDP, send it to the server, and filter what comes back.
//
// Begin with [Flow.Visit] and read call.go first. A [Call] is what came. The stages are route and find, which give its [Target],
// fits, bring and decide, which give the permit, then do, which sends and filters. Each may end the call by an answer. A call about
// which people decide, or that another caller is to make, waits in package people meanwhile.
package flow

import (
	"cmp"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"go.opentelemetry.io/otel/trace"

	"policy-service/pdp/mcp/internal/answer"
	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/doors"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/mcp/internal/link"
	"policy-service/pdp/mcp/internal/meters"
	"policy-service/pdp/mcp/internal/people"
	"policy-service/pdp/mcp/internal/rates"
	"policy-service/pdp/mcp/internal/reply"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/upstream"
	"policy-service/pdp/seal"
)

// Call is a request of a client, of either era, as it came. It stays as it is. There is one way through the gateway: what the
// client wants is looked up, the PDP is asked, and only then is anything sent. What is for all of several servers goes to [each].
type Call struct {
	g       *Flow
	Who     *identity.Principal
	Client  link.Client
	Reach   *link.Reach
	Session *people.Conversation // of a client of the legacy era, nil for others
	Request rpc.Message
	Params  rpc.Object
	Header  http.Header
	Reply   reply.Reply
	holds   *holds
}

// Target is a call at what it is for.
type Target struct {
	*Call
	link *link.Link // to the server, nil if the call is for several
	tool *link.Tool
	// unsettled is set if the tool is as others were shown it: see [exchange.settle].
	unsettled bool
}

// exchange is a call with what the stages have found of it. Each stage takes it by value, and returns what it adds.
type exchange struct {
	Target
	brought *brought // nil if the client brings nothing
	fulfils *fulfils // nil if the call fulfils no request
	permit  *ask.Permit
}

// holds is what a call holds until it is over. It may be added to by several at once.
type holds struct {
	mu  sync.Mutex
	all []func()
}

// lasts has end be called when the call is over, before what was there before it.
func (h *holds) lasts(end func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, end)
}

// end gives back all, also if something panics.
func (h *holds) end() {
	h.mu.Lock()
	all := h.all
	h.all = nil // an answer that waits for its client may have the call for longer
	h.mu.Unlock()
	for _, end := range all {
		defer end()
	}
}

// note has the log, and those who listen, hear of a refusal.
func (x exchange) note(a *answer.Answer) {
	if r := a.Refusal; r != nil {
		x.g.o.Logger.Info("refused", "method", x.Request.Method, "code", r.Code, "why", r.Why, "principal", x.Who.Key)
		x.g.people.Listeners.Refused(x.Who, x.Request.Method, x.asked(), r)
	}
}

// asked is the tool of the call as the PDP is asked about it, nil if there is none.
func (x Target) asked() *ask.Tool {
	if x.tool == nil {
		return nil
	}
	return x.tool.Tool
}

func (x exchange) operation() ask.Operation {
	op := ask.Operation{Principal: x.Who, Era: x.Client.Era, Method: x.Request.Method, Params: x.Params, MCPx: x.Reach.MCPx.Load()}
	if x.link != nil {
		op.Server = x.link.Server.Name
	}
	op.Tool = x.asked()
	if x.fulfils != nil {
		op.Requester = x.fulfils.entry.Asked.Who
	}
	return op
}

// result is the response as it leaves.
func (x exchange) result(response rpc.Message) *answer.Answer {
	if e, err := rpc.ReadError(response.Error); err == nil && response.Error != nil && e.Code == era.URLRequired {
		var refused *answer.Answer
		if response.Error, refused = x.pages(response.Error); refused != nil {
			return refused
		}
	}
	leaves, withheld := x.permit.Result(response)
	if withheld != nil {
		return answer.Refuse(withheld)
	}
	a := answer.Of(leaves)
	if e, err := rpc.ReadError(leaves.Error); err == nil && leaves.Error != nil && x.Client.Era == era.Modern {
		a.Status = answer.StatusOf(e.Code)
	}
	return a
}

// failed is the response if the server does not answer, or answers with an error where the gateway wanted to know something.
func (x exchange) failed(err error) *answer.Answer {
	if a, ok := err.(*answer.Answer); ok {
		if a.Refusal == nil {
			return x.result(a.Message)
		}
		return a
	}
	a := answer.Unavailable(err)
	a.Outcome = answer.Failed
	var e *upstream.Error
	if errors.As(err, &e) && e.Answer != nil && x.permit != nil {
		var withheld *ask.Refusal
		if a.Message, withheld = x.permit.Result(a.Message); withheld != nil {
			return answer.Refuse(withheld)
		}
	}
	return a
}

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

// Flow is the way of all requests.
type Flow struct {
	doors   *doors.Doors
	o       Options
	servers *link.Servers
	people  *people.People
	held    holding
	tokens  atomic.Uint64
}

// Options are what requests are answered by.
type Options struct {
	Asker *ask.Asker
	Rates *rates.Limiter
	// People bounds how often one person asks, by whatever clients. Nil is any number.
	People *rates.Limiter
	Ring   *seal.Ring
	Meters *meters.Meters
	Tracer trace.Tracer
	Logger *slog.Logger
	Now    func() time.Time
	// Self is what the gateway is, as clients of several servers are told: an implementation of MCP.
	Self jsontext.Value
	// Arguments is how large those of a call may be, in bytes.
	Arguments int
	// TTL is how long clients may keep a list.
	TTL time.Duration
	// DenialsAsResults makes the refusal of a call a result, which models read, instead of an error.
	DenialsAsResults bool
	// Meta are the members of a client's _meta that are for the server, besides those of MCP.
	Meta []string
}

// New is the way of requests to the servers.
func New(d *doors.Doors, s *link.Servers, p *people.People, o Options) *Flow {
	return &Flow{doors: d, o: o, servers: s, people: p}
}

// ofOne reports whether the gateway is one person's: then there is nobody to share with, and all servers are theirs.
func (g *Flow) ofOne() bool { return g.o.People == nil }

// several reports whether there are several servers.
func (g *Flow) several() bool { return g.servers.Several() }

// Sweep gives up what waits for too long.
func (g *Flow) Sweep(now time.Time) { g.held.end(func(h *held) bool { return now.After(h.until) }) }

// Close gives up all that waits.
func (g *Flow) Close() { g.held.end(func(*held) bool { return true }) }

// Admit takes one more message of a principal, with a tool if there is one, until release is called. Where it may not, limit
// is the key of the limit. One that is always taken of a person is counted for them.
func (g *Flow) Admit(who *identity.Principal, tool string, always bool) (release func(), limit string, after time.Duration) {
	if after, ok := g.PersonMay(who); !ok && !always {
		return nil, "limits.rate", after
	}
	release, after, ok := g.o.Rates.Admit(who.Key, tool)
	if !ok {
		return nil, "limits.per_principal", after
	}
	return release, "", 0
}

// PersonMay counts a message of a person, and says whether one more may be taken of them, or when.
func (g *Flow) PersonMay(who *identity.Principal) (after time.Duration, ok bool) {
	if g.ofOne() {
		return 0, true
	}
	release, after, ok := g.o.People.Admit(who.Account(), "")
	release()
	return after, ok
}

// Lasting takes a place among the streams of a principal, until end is called. It is not ok if all places are taken. A stream
// takes no place of ordinary requests.
func (g *Flow) Lasting(principal string) (end func(), ok bool) {
	return g.o.Rates.Hold(principal, Streams)
}

// What is bounded of one principal, the streams to which it listens, and of one person, large answers that are not read.
const (
	Streams      = "stream"
	LargeAnswers = "large answer"
)

// usualAnswer is the size of a result of which one person may leave any number unread.
const usualAnswer = 64 << 10

// eachOfLarge is how much of a result counts as one more request of its person.
const eachOfLarge = 256 << 10
