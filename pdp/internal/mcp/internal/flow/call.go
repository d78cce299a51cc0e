// Package flow serves requests: it finds the server and tool of a request, asks the PDP, sends the request to the server, and
// filters the response.
//
// Begin with [Flow.Visit] and read call.go first. A [Call] is a request as it came. The stages are route and find, which give
// its [Target], checkFit, read and decide, which give the permit, then do, which sends and filters. Each stage may end the call
// with an answer. A call that waits for people to decide, or for another caller to make it, waits in package people.
package flow

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"go.opentelemetry.io/otel/trace"

	"policy-service/evaluation"
	"policy-service/pdp/internal/mcp/internal/answer"
	"policy-service/pdp/internal/mcp/internal/ask"
	"policy-service/pdp/internal/mcp/internal/doors"
	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/mcp/internal/link"
	"policy-service/pdp/internal/mcp/internal/meters"
	"policy-service/pdp/internal/mcp/internal/people"
	"policy-service/pdp/internal/mcp/internal/rates"
	"policy-service/pdp/internal/mcp/internal/reply"
	"policy-service/pdp/internal/mcp/internal/upstream"
	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/internal/seal"
)

// Call is a request of a client, of either era, as it came. It is never changed. There is one road through the gateway: the
// target is found, the PDP decides, and only then is anything sent. A request for all of several servers goes through [each].
type Call struct {
	g        *Flow
	Who      *identity.Principal
	Client   link.Client
	Reach    *link.Reach
	Session  *people.Conversation // of a client of the legacy era, nil for others
	Request  rpc.Message
	Params   rpc.Object
	Header   http.Header
	Reply    reply.Reply
	cleanups *cleanups
}

// Target is a call with its server and tool.
type Target struct {
	*Call
	link *link.Link // to the server, nil if the call is for several servers
	tool *link.Tool
	// listing is the one that the tool is from, nil if the tool is unconfirmed, or was not looked up.
	listing *link.Listing
	// unconfirmed is set if the definition of the tool comes from a listing for other principals: see [exchange.confirm].
	unconfirmed bool
}

// exchange is a call with the findings of the stages so far. Each stage takes it by value, and returns it with its additions.
type exchange struct {
	Target
	followUp followUp
	fulfils  *fulfils // nil if the call fulfils no request
	// shown is the capability that the client shows, zero if it shows none. It is not among the params any more.
	shown  evaluation.CapabilityShown
	permit *ask.Permit
}

// cleanups are the functions to call at the end of a call. Several goroutines may add to them at once.
type cleanups struct {
	mu  sync.Mutex
	all []func()
}

// add makes end run at the end of the call, before the functions that were added earlier.
func (c *cleanups) add(end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, end)
}

// run calls all functions, also if one panics.
func (c *cleanups) run() {
	c.mu.Lock()
	all := c.all
	c.all = nil // a held answer may keep the call for longer
	c.mu.Unlock()
	for _, end := range all {
		defer end()
	}
}

// noteRefusal logs a refusal, and sends it to listeners.
func (x exchange) noteRefusal(a *answer.Answer) {
	if r := a.Refusal; r != nil {
		method := meters.LabelOf(x.Request.Method)
		if r.Undecided != "" {
			x.g.o.Meters.Undecided(r.Undecided)
			x.g.o.Logger.Warn("no decision came", slog.Group("", "reason", r.Undecided, "method", method, "tool", x.toolName(), "tenant", x.Who.Tenant), "code", r.Code, "why", r.Why, "principal", x.Who.Key)
		} else {
			event, why := []any{"method", method, "code", r.Code}, slog.String("why", r.Why)
			if slices.Contains(ownWords, r.Kind) {
				event, why = append(event, why), slog.Attr{}
			} else {
				event = append(event, "type", string(r.Kind), "tool", x.toolName())
			}
			x.g.o.Logger.Info("refused", slog.Group("", append(event, "principal", x.Who.Key)...), why)
		}
		x.g.people.Listeners.NotifyBlocked(x.Who, x.Request.Method, x.policyTool(), r)
	}
}

// ownWords are the kinds of refusals whose reasons are words of policies, or of the gateway alone. Other reasons may have words of
// a client or of a server, or a port of the network, so each could be another line of the log.
var ownWords = []ask.Kind{ask.Denied, ask.Pending, ask.RateLimited, ask.Withheld, ask.Unknown}

// policyTool is the tool of the call as policies see it, nil if there is none.
func (x Target) policyTool() *ask.Tool {
	if x.tool == nil {
		return nil
	}
	return x.tool.Tool
}

// toolName is the tool of the call by the name that policies have for it, "" if there is none.
func (x Target) toolName() string {
	if x.tool == nil {
		return ""
	}
	return x.tool.Server + ":" + x.tool.Name
}

// operation returns what the PDP is asked about. A member of params that does not go on to the server is not in it, because a
// mapping could decide by it.
func (x exchange) operation() ask.Operation {
	op := ask.Operation{Principal: x.Who, Era: x.Client.Era, Method: x.Request.Method, Params: x.Params, MCPx: x.Reach.MCPx.Load()}
	if x.link != nil {
		op.Server = x.link.Server.Name
		op.Params = era.WithoutUnknown(x.Request.Method, x.Client.Version, x.Params, func(name string) bool {
			switch {
			case name == "inputResponses", name == "requestState": // the gateway has written both
				return true
			case slices.Contains(ask.GatewayParams, name), name == "task" && ask.OfTool(x.Request.Method): // a call for a task is refused
				return ask.OfTool(x.Request.Method)
			}
			return x.link.Server.TakesParam(x.Request.Method, name)
		})
	}
	op.Tool = x.policyTool()
	if x.fulfils != nil {
		op.Requester = x.fulfils.entry.Asked.Who
	}
	return op
}

// result is the response as it leaves the gateway.
func (x exchange) result(response rpc.Message) *answer.Answer {
	if e, err := rpc.ReadError(response.Error); err == nil && response.Error != nil && e.Code == era.URLRequired {
		var refused *answer.Answer
		if response.Error, refused = x.showPages(response.Error); refused != nil {
			return refused
		}
	}
	leaves, withheld := x.permit.Result(response)
	if withheld != nil {
		return answer.Refuse(withheld)
	}
	a := answer.Of(withNonce(x.permit, leaves))
	if e, err := rpc.ReadError(leaves.Error); err == nil && leaves.Error != nil && x.Client.Era == era.Modern {
		a.Status = answer.StatusOf(e.Code)
	}
	return a
}

// failed is the answer if the server does not answer, or answers a request of the gateway's own with an error.
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

// readable returns the answer in the form for its client: if the operator wants that, a refused call gets a result, which
// models read, instead of an error.
func (x *Call) readable(a *answer.Answer) *answer.Answer {
	if r := a.Refusal; r != nil && !a.Readable && x.g.o.DenialsAsResults && x.Request.Method == "tools/call" && slices.Contains(readables, r.Kind) {
		return &answer.Answer{
			Message: x.Client.Result(x.Request.Method, answer.ToolError(cmp.Or(r.Words, r.Message)).Value()),
			Status:  http.StatusOK, Outcome: a.Outcome, Refusal: r, Readable: true,
		}
	}
	return a
}

// readables are the kinds of refusal that a model can read as a result. All others are errors of the protocol, or of a server.
var readables = []ask.Kind{ask.Denied, ask.Pending, ask.RateLimited, ask.Unavailable, ask.Withheld}

// Flow serves all requests.
type Flow struct {
	doors   *doors.Doors
	o       Options
	servers *link.Servers
	people  *people.People
	held    heldAnswers
	usable  usable
	tokens  atomic.Uint64
	// named is the name by which the PDP last said that it knows this gateway, for which the gateway's own proofs are made; nil
	// if they are made for the server of the tool.
	named atomic.Pointer[string]
}

// Options configure a Flow.
type Options struct {
	Asker *ask.Asker
	Rates *rates.Limiter
	// People bounds how often one person sends requests, from all clients together. Nil is no bound.
	People *rates.Limiter
	Ring   *seal.Ring
	Meters *meters.Meters
	Tracer trace.Tracer
	Logger *slog.Logger
	Now    func() time.Time
	// Self is the gateway's description of itself for clients of several servers: an implementation of MCP.
	Self jsontext.Value
	// Arguments is the largest size of the arguments of a call, in bytes.
	Arguments int
	// TTL is how long clients may keep a list.
	TTL time.Duration
	// DenialsAsResults makes the refusal of a call a result, which models read, instead of an error.
	DenialsAsResults bool
	// Capabilities bounds how often one person asks for a capability, so that none takes the share of the PDP's limits that
	// others of the same holder, or of the gateway's, have.
	Capabilities *rates.Limiter
	// HolderKeys is set if the gateway keeps the keys of holders that have none.
	HolderKeys bool
	// Meta are the members of a client's _meta that are forwarded to servers, besides those of MCP.
	Meta []string
}

// New returns a Flow to the servers.
func New(d *doors.Doors, s *link.Servers, p *people.People, o Options) *Flow {
	return &Flow{doors: d, o: o, servers: s, people: p, held: heldAnswers{all: map[string]*heldAnswer{}}, usable: usable{all: map[use]useAnswer{}}}
}

// onePerson reports whether the gateway has only one person: then nothing is shared, and all servers belong to that person.
func (g *Flow) onePerson() bool { return g.o.People == nil }

// Sweep gives up the held answers that have waited for too long.
func (g *Flow) Sweep(now time.Time) {
	g.held.end(func(h *heldAnswer) bool { return now.After(h.until) })
}

// Close gives up all held answers.
func (g *Flow) Close() { g.held.end(func(*heldAnswer) bool { return true }) }

// Admit takes one more message of a principal, for a tool if it names one, until release is called. If a limit is reached,
// limit is its key. If always is set, the limit of the person refuses no message, but still counts it.
func (g *Flow) Admit(who *identity.Principal, tool string, always bool) (release func(), limit string, after time.Duration) {
	if after, ok := g.PersonMay(who); !ok && !always {
		return nil, "limits.rate", after
	}
	release, after, ok := g.o.Rates.Admit(who.Account(), who.Key, tool)
	if !ok {
		return nil, "limits.per_principal", after
	}
	return release, "", 0
}

// PersonMay counts a message of a person. It reports whether the person may send one more now, or after which time.
func (g *Flow) PersonMay(who *identity.Principal) (after time.Duration, ok bool) {
	if g.onePerson() {
		return 0, true
	}
	return onceMore(g.o.People, who)
}

// billed returns a context that charges a person for what a message of theirs causes.
func (g *Flow) billed(ctx context.Context, who *identity.Principal) context.Context {
	return g.o.People.WithBill(ctx, who.Account())
}

// onceMore counts something that a person does, which lasts for no time.
func onceMore(l *rates.Limiter, who *identity.Principal) (after time.Duration, ok bool) {
	release, after, ok := l.Admit(who.Account(), who.Account(), "")
	release()
	return after, ok
}

// Resources of which one person has a bounded number, by all clients: streams, which take no place of ordinary requests, and large
// answers that are not read.
const (
	Streams      = "stream"
	LargeAnswers = "large answer"
)

// usualAnswer is the size up to which results are not counted as large: a person may leave any number of them unread.
const usualAnswer = 64 << 10

// eachOfLarge is the size of a part of a large result that counts as one more request of the person.
const eachOfLarge = 256 << 10
