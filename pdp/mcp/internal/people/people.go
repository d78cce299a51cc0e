// Package people asks people about calls, has others fulfil requests for tools, and lets both hear of what waits for them.
//
// [NewApproval] is a call about which people decide, [ReadRequest] a request for a tool, [People.Vote] a decision by a message. The
// package decides nothing and sends nothing to a server.
package people

import (
	"log/slog"
	"time"

	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/desk"
	"policy-service/pdp/mcp/internal/doors"
	"policy-service/pdp/mcp/internal/events"
	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/mcp/internal/link"
	"policy-service/pdp/mcp/internal/rates"
	"policy-service/pdp/mcp/internal/reply"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/seal"
)

// People are asked about calls, and hear of what waits for them.
type People struct {
	doors       *doors.Doors
	o           Options
	desk        *desk.Desk
	events      *events.Broadcaster
	Listeners   listeners
	requests    *board
	fulfilments fulfilments
}

// Options are how people are asked.
type Options struct {
	Approvals Approvals
	Requests  Requests
	Asker     *ask.Asker
	Rates     *rates.Limiter
	Ring      *seal.Ring
	// Servers are the names of those behind the gateway, and ToolName how clients call a tool of one.
	Servers  []string
	ToolName func(server, tool string) string
	// Dropped counts messages for listeners that went nowhere.
	Dropped func(reason string)
	Logger  *slog.Logger
	Now     func() time.Time
}

// New makes the part of the gateway that asks people.
func New(d *doors.Doors, o Options) *People {
	p := &People{doors: d, o: o, desk: desk.New(desk.Options{Logger: o.Logger, Now: o.Now})}
	p.events = events.New(events.Options{Dropped: o.Dropped, Background: d.Background, Context: d.Context})
	p.Listeners.g = p
	p.requests = newBoard(o)
	return p
}

// Close ends the watches of PDPs.
func (g *People) Close() { g.desk.Close() }

// Sweep ends what nobody uses any longer.
func (g *People) Sweep() {
	g.requests.Sweep()
	g.Listeners.sweep()
}

// Waits are how many calls wait for people, and how many requests for tools for whoever fulfils them.
func (g *People) Waits() (calls, requests int) { return g.desk.Waiting(), g.requests.Open() }

// Case is a call as people are asked about it.
type Case struct {
	*People
	Who       *identity.Principal
	Client    link.Client
	Session   *Conversation
	Reply     reply.Reply
	Method    string
	Params    rpc.Object
	Tool      *ask.Tool
	Operation ask.Operation
	// Binding is what states and keys of the call are bound to.
	Binding func() []byte
	// Answers are what the client answers, if the call is sent again.
	Answers rpc.Object
}
