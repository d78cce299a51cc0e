// Package link is the way to the servers: sessions with them, the tools that they list, how those differ from the lock, and what
// servers say and ask by themselves.
//
// [Servers] are all of them, [Reach] is the way of one client to them, and a [Link] that to one. The package decides nothing: it is
// given the permit, or a function that says whether a session may be opened.
package link

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"policy-service/pdp/mcp/internal/answer"
	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/doors"
	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/mcp/internal/rates"
	"policy-service/pdp/mcp/internal/turn"
	"policy-service/pdp/mcp/internal/upstream"
)

// Servers are those behind the gateway: what they list, what of it is locked, and what is said to them that no client sends.
type Servers struct {
	*doors.Doors
	o      Options
	drifts drifts
}

// Options are what servers are reached by.
type Options struct {
	All   []*Server
	Lock  Lock
	Asker *ask.Asker
	Rates *rates.Limiter
	// People bounds how often one person asks, by whatever clients. Nil is any number.
	People *rates.Limiter
	// Cache is how long a server's list of tools is kept.
	Cache  time.Duration
	Logger *slog.Logger
	Now    func() time.Time
}

func New(d *doors.Doors, o Options) *Servers {
	o.Lock.schemas = &schemas{members: o.Lock.Arguments, logger: o.Logger}
	return &Servers{Doors: d, o: o, drifts: drifts{now: o.Now}}
}

func (g *Servers) Several() bool { return len(g.o.All) > 1 }

// All are the servers, sorted by their names.
func (g *Servers) All() []*Server { return g.o.All }

// Names are those of all servers.
func (g *Servers) Names() (all []string) {
	for _, s := range g.o.All {
		all = append(all, s.Name)
	}
	return all
}

// Ready reports what did not answer the last requests, and which servers are not as they are locked.
func (g *Servers) Ready() error {
	var errs []error
	if g.o.Asker.Away() {
		errs = append(errs, ask.ErrAway)
	}
	for _, s := range g.o.All {
		if !s.Answers() {
			errs = append(errs, fmt.Errorf("the MCP server %s did not answer the last request", s.Name))
		}
	}
	if g.o.Lock.File != nil {
		errs = append(errs, g.o.Lock.File.Err(), g.drifts.err())
	}
	return errors.Join(errs...)
}

// Close ends the ways to all servers. Each takes its time.
func (g *Servers) Close() error {
	errs := make([]error, len(g.o.All))
	var all sync.WaitGroup
	for i, s := range g.o.All {
		all.Go(func() { errs[i] = s.Upstream.Close() })
	}
	all.Wait()
	return errors.Join(errs...)
}

// Errands are what requests of a principal have sent off: they count also if nobody waits for them any longer.
const Errands = "errands"

// sendOff has an errand done on the account of a principal, and waits for what it brings.
func sendOff[T any](ctx context.Context, g *Servers, who *identity.Principal, e *turn.Errand[T], what func(context.Context) (T, error)) (value T, joined bool, err error) {
	value, joined, err = e.Do(ctx, turn.Sender{
		Hold: func() (func(), bool) { return g.o.Rates.Hold(who.Key, Errands) },
		Context: func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, expire := who.Context(ctx)
			stop := context.AfterFunc(g.Context, expire)
			return ctx, func() {
				stop()
				expire()
			}
		},
		Background: g.Background,
	}, what)
	switch {
	case errors.Is(err, turn.ErrMany):
		err = answer.Limited("", time.Second)
	case errors.Is(err, turn.ErrOver):
		err = ErrClosed
	case errors.Is(err, turn.ErrBroken):
		err = ErrBroken
	case errors.Is(err, turn.ErrAlone):
		err = &upstream.Error{Detail: "nobody waits for the server any longer", Err: ctx.Err()}
	}
	return value, joined, err
}

// Server is the MCP server as the gateway knows it.
type Server struct {
	Name     string
	Upstream upstream.Upstream
	// Key is what the server is called in the configuration.
	Key string
	// Labels are the operator's, of tools by their own names.
	Labels map[string]map[string]string
	// Hidden are tools that the gateway does not have.
	Hidden map[string]bool
	// Asks says what the server may ask of clients.
	Asks Relays
	// Dropped counts what came from the server and went nowhere.
	Dropped func(reason string)
	// URIs are how the resources begin that are the server's; "" begins all.
	URIs []string
	// Idle is how long its program runs on for a session whose client closed its stream; 0 is for as long as the session.
	Idle time.Duration
	// Program is set if each session has a process of its own.
	Program bool

	away    atomic.Bool // it did not answer when it was last asked
	late    lateness
	catalog catalog
	noted   noted
}

// Answers reports whether the server answered when it was last asked.
func (s *Server) Answers() bool { return !s.away.Load() }

// Sent notes how a request to the server ended.
func (s *Server) Sent(err error) { s.away.Store(err != nil) }

// tried notes how something ended that the gateway wanted of the server, unless it was given up. What the server answers with
// an error, it has answered.
func (s *Server) tried(ctx context.Context, err error) {
	e := (*upstream.Error)(nil)
	if ctx.Err() == nil {
		s.away.Store(errors.As(err, &e) && e.Answer == nil)
	}
}

// Relays says which requests of a server reach its clients.
type Relays struct {
	Elicitation, Sampling, Roots bool
	// Hosts are those that a URL may lead to which a server has a person open.
	Hosts []string
}
