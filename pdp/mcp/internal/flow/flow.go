// Package flow is the way of a request: find what it is for, ask the PDP, send it to the server, and filter what comes back.
//
// Begin with [Flow.Visit] and read call.go first. A [Call] is what came. The stages are route and find, which give its [Target],
// fits, bring and decide, which give the permit, then do, which sends and filters. Each may end the call by an answer. A call about
// which people decide, or that another caller is to make, waits in package people meanwhile.
package flow

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"go.opentelemetry.io/otel/trace"

	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/doors"
	"policy-service/pdp/mcp/internal/link"
	"policy-service/pdp/mcp/internal/people"
	"policy-service/pdp/mcp/internal/rates"
	"policy-service/pdp/seal"
)

// Flow is the way of all requests.
type Flow struct {
	*doors.Doors
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
	Meters *Meters
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

func New(s *link.Servers, p *people.People, o Options) *Flow {
	return &Flow{Doors: s.Doors, o: o, servers: s, people: p}
}

// ofOne reports whether the gateway is one person's: then there is nobody to share with, and all servers are theirs.
func (g *Flow) ofOne() bool { return g.o.People == nil }

// several reports whether there are several servers.
func (g *Flow) several() bool { return g.servers.Several() }

// Sweep gives up what waits for too long.
func (g *Flow) Sweep(now time.Time) { g.held.end(func(h *held) bool { return now.After(h.until) }) }

// Close gives up all that waits.
func (g *Flow) Close() { g.held.end(func(*held) bool { return true }) }
