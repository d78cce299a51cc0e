// Package gate is the way of a message through the gateway: in from a client, past the PDP, out to a server, and back.
//
// Begin with [New] and [Gateway.Handler], and read exchange.go first: it is the one way that every request goes, of either
// era. The front of each era (legacy.go, modern.go, stdio.go) makes a [Call] of a request. The stages are route and find, which
// give its [Target], fits, bring and decide, which gives the permit, then do, which sends and filters; each may end the call by an
// [Answer]. reach.go is the client's ways to all servers, and link.go its way to one; relay.go is what comes back. approve.go is a
// call while people decide about it.
//
// The package asks nobody by itself and knows no configuration: who asks, who decides and who answers, it is given.
package gate

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/events"
	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/mcp/internal/people"
	"policy-service/pdp/mcp/internal/rates"
	"policy-service/pdp/mcp/internal/turn"
	"policy-service/pdp/mcp/internal/upstream"
	"policy-service/pdp/seal"
	"policy-service/pdp/server/auth"
)

// Options are what a gateway is made of. All are needed but People, Arrivals and Lock.
type Options struct {
	Settings
	Identity *identity.Identity
	Asker    *ask.Asker
	Rates    *rates.Limiter
	// People bounds how often one person asks, by whatever clients. Nil is any number.
	People *rates.Limiter
	// Arrivals bounds how often one person is answered at once, whatever the answer. Nil is any number.
	Arrivals *rates.Limiter
	Ring     *seal.Ring
	// Servers are those behind the gateway, sorted by their names.
	Servers []*Server
	Meters  *Meters
	Tracer  trace.Tracer
	Logger  *slog.Logger
	Now     func() time.Time
	Front   Front
	// Lock is what servers are compared with.
	Lock Lock
}

// Settings are the part of the configuration that counts for each request.
type Settings struct {
	Most  Sizes
	Lists Lists
	// Approvals say how people are asked.
	Approvals Approvals
	// DenialsAsResults makes the refusal of a call a result, which models read, instead of an error.
	DenialsAsResults bool
	// Meta are the members of a client's _meta that are for the server, besides those of MCP.
	Meta []string
	// SessionIdle is how long a session of the legacy era is kept that nobody uses.
	SessionIdle time.Duration
	// SessionsEach is how many sessions one person may have, and how many clients of the modern era.
	SessionsEach int
}

// Sizes bound bodies and arguments, in bytes, and the requests for tools that wait.
type Sizes struct {
	Body, Arguments int
	Requests        Requests
}

// Lists say how old lists may become.
type Lists struct {
	// Cache is how long a server's list of tools is kept here, TTL how long clients may keep a list.
	Cache, TTL time.Duration
}

// Gateway stands in front of MCP servers, and has the PDP decide what reaches them.
type Gateway struct {
	o      Options
	health health

	sessions sessions
	reaches  reaches
	held     holding
	servers
	tokens atomic.Uint64

	desk      *people.Desk
	events    *events.Broadcaster
	listeners listeners
	requests  *board

	fulfilments fulfilments
	doors
}

// servers are those behind the gateway: what they list, what of it is locked, and what is said to them that no client sends.
type servers struct {
	*doors
	o      *Options
	drifts drifts
}

// doors let requests in, and work behind them, until the gateway is closed.
type doors struct {
	logger *slog.Logger
	ctx    context.Context // ends with Close
	stop   func()
	drain  draining

	mu      sync.Mutex // guards closed
	closed  bool
	running sync.WaitGroup // goroutines for which only Close waits
	serving sync.WaitGroup // requests of clients
}

// draining ends with Drain, and with Close.
type draining struct {
	ctx context.Context
	end func()
}

// New makes a gateway. It runs until it is closed.
func New(o Options) *Gateway {
	ctx, cancel := context.WithCancel(context.Background())
	o.Lock.schemas = &schemas{members: o.Lock.Arguments, logger: o.Logger}
	g := &Gateway{o: o, doors: doors{logger: o.Logger, ctx: ctx, stop: cancel}}
	g.servers = servers{doors: &g.doors, o: &g.o, drifts: drifts{now: o.Now}}
	g.sessions.o, g.reaches.o = &g.o, &g.o
	g.desk = people.New(people.Options{Logger: o.Logger, Now: o.Now})
	g.events = events.New(events.Options{Dropped: o.Meters.Drop, Background: g.background, Context: ctx})
	g.listeners.g = g
	g.requests = newBoard(o)
	for _, s := range o.Servers {
		if s.Program && !g.ofOne() { // clients that come and go have programs come and go
			s.starting = func(who *identity.Principal) { o.People.Charge(personOf(who), startCosts) }
		}
	}
	g.drain.ctx, g.drain.end = context.WithCancel(ctx)
	g.running.Go(func() { g.sweep(ctx) })
	context.AfterFunc(ctx, o.Meters.watch(g))
	return g
}

// startCosts is how many messages the start of a program counts as, besides the one that wants it.
const startCosts = 20

// Endpoint is the path of the MCP endpoint.
const Endpoint = "/mcp"

// Handler serves the MCP endpoint, and says by which authorization servers it is entered.
func (g *Gateway) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(Endpoint, g.serve)
	for _, path := range g.o.Identity.MetadataPaths() {
		mux.HandleFunc("GET "+path, g.metadata)
	}
	return mux
}

func (g *Gateway) metadata(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "max-age=3600")
	w.Header().Set("Access-Control-Allow-Origin", "*")
	_, _ = w.Write(g.o.Identity.Metadata())
}

// ofOne reports whether the gateway is one person's: then there is nobody to share with, and all servers are theirs.
func (g *Gateway) ofOne() bool { return g.o.People == nil }

// Drain ends the streams of clients that only listen, which would last as long as the gateway, and has nobody wait for people
// any longer. Requests go on.
func (g *Gateway) Drain() { g.drain.end() }

// until is ctx, and ends at Drain.
func (d *doors) until(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(d.drain.ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// enter has Close wait for a request of a client until leave is called. Its context ends with Close. It is not ok after
// Close.
func (d *doors) enter(ctx context.Context) (_ context.Context, leave func(), ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ctx, nil, false
	}
	d.serving.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(d.ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
		d.serving.Done()
	}, true
}

// Close ends all sessions and requests, and waits for what they hold, and for what is put on record of them.
func (g *Gateway) Close() error {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.stop()
	g.running.Wait()
	g.held.end(func(*held) bool { return true })
	errs := make([]error, len(g.o.Servers))
	var all sync.WaitGroup
	for i, s := range g.o.Servers { // each takes its time
		all.Go(func() { errs[i] = s.Upstream.Close() })
	}
	all.Wait()
	served := make(chan struct{})
	go func() {
		defer close(served)
		g.serving.Wait()
	}()
	select {
	case <-served:
	case <-time.After(lastWords): // a client does not read what it is answered
	}
	g.desk.Close()
	return errors.Join(errs...)
}

// lastWords is how long Close waits for requests that are given up. To put on record what became of them takes two seconds
// at the most.
const lastWords = 5 * time.Second

// background runs a function for which only Close waits. After Close it runs nothing, and is not ok. A panic ends it
// alone, as net/http has it for requests: what it works on is what servers say.
func (d *doors) background(what func()) (ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.running.Go(func() { d.alone(what) })
	}
	return !d.closed
}

// alone does something that nothing else ends with if it panics.
func (d *doors) alone(what func()) {
	defer func() {
		if why := recover(); why != nil {
			d.logger.Error("a panic behind requests", "panic", why, "stack", string(debug.Stack()))
		}
	}()
	what()
}

// Errands are what requests of a principal have sent off: they count also if nobody waits for them any longer.
const Errands = "errands"

// sendOff has an errand done on the account of whoever asks x, and waits for what it brings.
func sendOff[T any](ctx context.Context, x *Call, e *turn.Errand[T], what func(context.Context) (T, error)) (value T, joined bool, err error) {
	value, joined, err = e.Do(ctx, turn.Sender{
		Hold: func() (func(), bool) { return x.g.o.Rates.Hold(x.who.Key, Errands) },
		Context: func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, expire := x.who.Context(ctx)
			stop := context.AfterFunc(x.g.ctx, expire)
			return ctx, func() {
				stop()
				expire()
			}
		},
		Background: x.g.background,
	}, what)
	switch {
	case errors.Is(err, turn.ErrMany):
		err = limited(time.Second)
	case errors.Is(err, turn.ErrOver):
		err = errLinkClosed
	case errors.Is(err, turn.ErrBroken):
		err = errBroken
	case errors.Is(err, turn.ErrAlone):
		err = &upstream.Error{Detail: "nobody waits for the server any longer", Err: ctx.Err()}
	}
	return value, joined, err
}

// sweep ends, now and then, what nobody uses any longer.
func (g *Gateway) sweep(ctx context.Context) {
	each := time.Minute
	for _, s := range g.o.Servers {
		if s.Idle > 0 { // no program runs for much longer than it need
			each = min(each, s.Idle/5)
		}
	}
	ticker := time.NewTicker(each)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			g.requests.Sweep()
			g.sweepOnce(ctx, g.o.Now())
		case <-ctx.Done():
			return
		}
	}
}

// closing ends a session of a client's, or a reach, or one of its sessions. A server may take its time to hear that it is over.
type closing func()

// mostClosing is how many are closed at a time.
const mostClosing = 64

func (g *Gateway) sweepOnce(ctx context.Context, now time.Time) {
	g.held.end(func(h *held) bool { return now.After(h.until) })
	g.listeners.rest()
	var all sync.WaitGroup
	defer all.Wait()
	atOnce := make(chan struct{}, mostClosing)
	for _, end := range append(g.sessions.idle(now, g.o.SessionIdle), g.reaches.idle(now)...) {
		select {
		case atOnce <- struct{}{}:
		case <-ctx.Done(): // the server ends the rest with all others
			return
		}
		all.Go(func() {
			end()
			<-atOnce
		})
	}
}

// Hostname is a host without its port, in lower case.
func Hostname(hostport string) string {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	return strings.ToLower(strings.Trim(host, "[]"))
}

func isLoopback(host string) bool { return auth.IsLoopbackName(host) }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func joined(all []string) string { return strings.Join(all, ", ") }
