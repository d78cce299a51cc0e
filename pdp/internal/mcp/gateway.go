package mcp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"policy-service/pdp/internal/mcp/internal/doors"
	"policy-service/pdp/internal/mcp/internal/flow"
	"policy-service/pdp/internal/mcp/internal/front"
	"policy-service/pdp/internal/mcp/internal/link"
	"policy-service/pdp/internal/mcp/internal/meters"
	"policy-service/pdp/internal/mcp/internal/people"
)

// Gateway stands in front of MCP servers, and has a PDP decide about each request: it comes in by package front, goes the way of
// package flow, which asks the PDP and has package people ask people, and goes out by package link.
type Gateway struct {
	doors   *doors.Doors
	servers *link.Servers
	people  *people.People
	flow    *flow.Flow
	front   *front.Front
	// network carries questions to the PDP, nil if something else does.
	network *http.Transport
}

// New makes a gateway. It sends nothing yet: a PDP, an issuer or a server that is away now may come back.
func New(ctx context.Context, c Config, d Deps) (*Gateway, error) {
	Form.SetDefaults(&c)
	if err := c.Check(); err != nil {
		return nil, err
	}
	d = d.withDefaults()
	g := &Gateway{doors: doors.New(d.Logger)}
	if d.Transport == nil && c.PDP.Embedded == nil {
		g.network = NewTransport()
		d.Transport = g.network
	}
	of := link.Options{Cache: c.List.Cache, Logger: d.Logger, Now: d.Now}
	by := front.Options{
		Name: c.Name, Hosts: newHosts(c), Known: d.Known, Body: int(c.Limits.MaxBody), SessionIdle: c.Sessions.Idle, SessionsEach: int(c.Sessions.PerPerson),
		Logger: d.Logger, Now: d.Now,
	}
	var errs [6]error // all that is wrong is said at once
	by.Identity, errs[0] = newIdentity(c, d)
	by.Ring, errs[1] = newRing(c, d)
	by.Arrivals, errs[2] = newPeople(c, d, 2)
	of.People, errs[3] = newPeople(c, d, 1)
	of.Rates, errs[4] = newRates(c, d)
	of.Lock, errs[5] = newLock(c, d)
	asks, err := newCapabilities(c, d)
	counts, err2 := meters.New(d.MeterProvider.Meter(meters.ScopeName))
	handlers, err3 := newHandlers(c.Obligations, d.Logger, d.Now)
	asker, clients, err4 := c.asker(d, handlers, counts.LetPass)
	if err := errors.Join(append(errs[:], err, err2, err3, err4)...); err != nil {
		return nil, err
	}
	of.Asker, of.Lock.Record = asker, newDriftRecord(clients[c.PDP.Tenant])
	var store people.Store // nil keeps the requests for tools in memory
	if c.ToolRequests.Keep == KeepAtPDP {
		store = requestStore(clients)
	}
	if of.All, err = newServers(c, d, counts); err != nil { // the last that can fail: they must be closed
		return nil, err
	}
	g.servers = link.New(g.doors, of)
	g.people = people.New(g.doors, people.Options{
		Approvals: c.Approvals.settings(), Alone: c.PDP.Embedded != nil && c.Identity.Static != nil, Requests: people.Requests{TTL: c.ToolRequests.TTL, Most: int(c.ToolRequests.Pending), Each: int(c.ToolRequests.PerPrincipal)},
		Asker: of.Asker, Rates: of.Rates, Ring: by.Ring, Store: store, Again: by.Identity.Again,
		Servers: g.servers.Names(), ToolName: g.servers.ToolName, Dropped: counts.Drop, Logger: d.Logger, Now: d.Now,
	})
	g.flow = flow.New(g.doors, g.servers, g.people, flow.Options{
		Asker: of.Asker, Rates: of.Rates, People: of.People, Ring: by.Ring, Meters: counts, Tracer: d.TracerProvider.Tracer(meters.ScopeName),
		Logger: d.Logger, Now: d.Now, Self: newSelf(d.Version), Arguments: int(c.Limits.MaxArguments), TTL: c.List.TTL,
		DenialsAsResults: c.Denials == DenialsResult, Meta: c.Meta, Capabilities: asks, HolderKeys: c.Capabilities.HolderKey == HolderKeyGateway,
	})
	by.Rates, by.Meters = of.Rates, counts
	g.front = front.New(g.doors, g.flow, g.people, g.servers, by)
	g.doors.Background(func() { g.sweep(d.Now) })
	context.AfterFunc(g.doors.Context, counts.Watch(of.Asker, g.servers, g.people))
	return g, nil
}

// Endpoint is the path of the MCP endpoint.
const Endpoint = front.Endpoint

// Handler is the gateway over HTTP: the MCP endpoint, and the document that names its authorization servers.
func (g *Gateway) Handler() http.Handler { return g.front.Handler() }

// ServeStdio serves the one client at the other end of in and out until in ends. Its identity is the fixed one.
func (g *Gateway) ServeStdio(ctx context.Context, in io.Reader, out io.Writer) error {
	return g.front.ServeStdio(ctx, in, out)
}

// Ready reports the present failures of the gateway. It asks no other service: the last requests have shown them.
func (g *Gateway) Ready() error { return g.servers.Ready() }

// Drain ends streams of clients that only listen, which would last as long as the gateway, and waits for people no longer.
// Requests go on.
func (g *Gateway) Drain() { g.doors.Drain() }

// Close ends all sessions and requests, and waits for what they hold, and for what is put on record of them.
func (g *Gateway) Close() error {
	g.doors.Close()
	g.flow.Close()
	err := g.servers.Close()
	g.doors.Served(5 * time.Second) // the records of requests that are given up take two at the most
	g.people.Close()
	if g.network != nil {
		g.network.CloseIdleConnections()
	}
	return err
}

// sweep ends, now and then, what is not used any longer.
func (g *Gateway) sweep(now func() time.Time) {
	each := time.Minute
	for _, s := range g.servers.All() {
		if s.Idle > 0 { // no program runs for much longer than it need
			each = min(each, s.Idle/5)
		}
	}
	ticker := time.NewTicker(each)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			g.doors.Alone(func() {
				g.flow.Sweep(now())
				g.people.Sweep()
				g.front.Sweep(g.doors.Context, now())
			})
		case <-g.doors.Context.Done():
			return
		}
	}
}
