// Package people asks people about calls, lets participants fulfil requests for tools, and notifies both of the calls and
// requests that wait for them.
//
// [NewApproval] makes a call wait for an approval, [ReadRequest] reads a request for a tool, and [People.Vote] sends a
// decision to the PDP. The package decides nothing and sends nothing to a server.
package people

import (
	"log/slog"
	"strconv"
	"time"

	"policy-service/evaluation"
	"policy-service/evaluation/recent"
	"policy-service/pdp/internal/mcp/internal/ask"
	"policy-service/pdp/internal/mcp/internal/desk"
	"policy-service/pdp/internal/mcp/internal/doors"
	"policy-service/pdp/internal/mcp/internal/events"
	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/mcp/internal/link"
	"policy-service/pdp/internal/mcp/internal/rates"
	"policy-service/pdp/internal/mcp/internal/reply"
	"policy-service/pdp/internal/mcp/internal/requests"
	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/internal/seal"
)

// People asks people about calls, and keeps the requests for tools.
type People struct {
	doors     *doors.Doors
	o         Options
	desk      *desk.Desk
	events    *events.Broadcaster
	Listeners listeners
	requests  *requests.Table[toolRequest, Result]
	// fulfilments keeps the PDP's last answers, because each new stream reads all requests from the beginning. They only select
	// the listeners of a request: the PDP decides again when the request is fulfilled.
	fulfilments recent.Texts[fulfilment]
}

// again is the pause after which a refused client may come again, if the PDP names no other.
const again = 5 * time.Second

// Options configure how people are asked.
type Options struct {
	Approvals Approvals
	// Alone is set if the only person who reaches the PDP is the one behind the clients of the gateway.
	Alone    bool
	Requests Requests
	Asker    *ask.Asker
	Rates    *rates.Limiter
	Ring     *seal.Ring
	// Store keeps the requests for tools for other gateways, too; nil if they are kept in memory. Again reads a principal that
	// another gateway has kept.
	Store Store
	Again func(identity.Kept) (*identity.Principal, error)
	// Servers are the names of the servers behind the gateway, and ToolName returns the name for clients of a tool.
	Servers  []string
	ToolName func(server, tool string) string
	// Dropped counts a message that a listener misses.
	Dropped func(reason string)
	Logger  *slog.Logger
	Now     func() time.Time
}

// New returns the part of the gateway that asks people.
func New(d *doors.Doors, o Options) *People {
	p := &People{doors: d, o: o, desk: desk.New(desk.Options{Logger: o.Logger, Now: o.Now})}
	p.events = events.New(events.Options{Dropped: o.Dropped, Background: d.Background, Context: d.Context})
	p.Listeners.g, p.Listeners.audiences = p, map[string]*audience{}
	p.requests = requests.New[toolRequest, Result](requests.Options{
		TTL: o.Requests.TTL, Most: o.Requests.Most, Each: o.Requests.Each, Bytes: mostKept, Now: o.Now,
	})
	if o.Store != nil {
		d.Background(p.follow)
	}
	return p
}

// Close ends the watches of PDPs.
func (g *People) Close() { g.desk.Close() }

// Sweep drops expired requests, and ends watches without listeners.
func (g *People) Sweep() {
	g.requests.Sweep()
	g.Listeners.sweep()
}

// Waits returns the number of calls that wait for people, and of requests for tools that wait to be fulfilled.
func (g *People) Waits() (calls, requests int) { return g.desk.Waiting(), g.requests.Open() }

// Case is a call with everything needed to ask people about it.
type Case struct {
	*People
	Who     *identity.Principal
	Client  link.Client
	Session *Conversation
	Reply   reply.Reply
	Method  string
	Params  rpc.Object
	Tool    *ask.Tool
	// LooksLikeAnother reports whether a person could take the tool for another one of its server.
	LooksLikeAnother func() bool
	Operation        func() ask.Operation
	// Shows is the capability that a request for a tool shows.
	Shows evaluation.CapabilityShown
	// Binding returns the text that states and keys of the call are bound to.
	Binding func() []byte
	// Answers are the client's answers, if the call is sent again.
	Answers rpc.Object
	reports int // of its progress that were sent
}

// report sends the progress of a call that no server has yet, to a client that wants progress. The value grows with each report
// in small steps, which leaves room for the server's own progress.
func (c *Case) report(message string) {
	token := c.Params.GetObject("_meta").Get("progressToken")
	if token == nil {
		return
	}
	progress := strconv.AppendFloat(nil, float64(c.reports)/1000, 'f', -1, 64)
	params := rpc.Object{}.With("progressToken", token).With("progress", progress).With("message", rpc.String(message))
	_ = c.Reply.Interim(rpc.Message{Method: "notifications/progress", Params: params.Value()})
	c.reports++
}
