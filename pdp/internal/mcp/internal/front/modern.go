package front

import (
	"context"
	"net/http"
	"sync"
	"time"

	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/flow"
	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/mcp/internal/link"
	"policy-service/pdp/internal/mcp/internal/reply"
	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/mcp/wire"
)

// The front of the modern era: each request carries all that the gateway needs to know about it.

// postModern returns the visit of a request, nil if the request is answered already.
func (g *Front) postModern(w http.ResponseWriter, r *http.Request, in *incoming) (context.Context, *flow.Visit) {
	switch {
	case in.message.IsResponse():
		g.refuse(w, http.StatusBadRequest, rpc.ID{}, rpc.InvalidRequest, "this revision has no requests to clients that one could answer")
		return nil, nil
	case in.message.Method == wire.MethodAccess:
		g.refuseAccess(w, in.who)
		return nil, nil
	case in.message.IsNotification() && in.message.Method != rpc.Respond: // no notification has a meaning in this era
		w.WriteHeader(http.StatusAccepted)
		return nil, nil
	}
	meta, fault := era.CheckHeaders(in.header, in.message, in.params)
	if fault != nil {
		g.end(w, http.StatusBadRequest, rpc.Failure(in.message.ID, *fault))
		return nil, nil
	}
	c := link.Client{Era: era.Modern, Version: meta.Version, Info: meta.Client, Capabilities: meta.Capabilities, LogLevel: meta.LogLevel}
	way, done, ok := g.reaches.take(in.who, c)
	if !ok {
		g.tooMany(w, time.Second)
		return nil, nil
	}
	ctx, cancel := in.who.Context(r.Context())
	v := g.flow.Visit(flow.Call{Who: in.who, Client: c, Reach: way, Request: in.message, Params: in.params, Header: in.header}, done, cancel)
	if v.Reply = reply.Over(w, in.streamFirst, false); in.message.IsNotification() {
		v.Reply = silentReply{w}
	}
	return ctx, v
}

// reaches are the reaches of clients of the modern era. Requests share a reach if they have the same principal and describe
// their client in the same way, for as long as such requests come.
type reaches struct {
	o       *Options
	servers *link.Servers
	mu      sync.Mutex
	all     map[reachKey]*usedReach
}

// usedReach is a reach, with the number of requests that use it and the time of its last use.
type usedReach struct {
	*link.Reach
	by   int
	last time.Time
}

type reachKey struct{ principal, info, capabilities string }

// reachIdle is longer than people.StateLife: an answer may be held.
const reachIdle = 20 * time.Minute

// take returns the reach of a client, in use until done is called. It is not ok if the person has too many reaches in use.
func (t *reaches) take(who *identity.Principal, c link.Client) (_ *link.Reach, done func(), ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.all[reachKey{who.Key, string(c.Info), string(c.Capabilities)}]
	if r == nil { // the lookup copies no text
		key, oldest, ok := room(t.all, who.Account(), t.o.SessionsEach) // a client may describe itself in any number of ways
		if !ok {
			return nil, nil, false
		}
		if oldest != nil {
			delete(t.all, key)
			go oldest.Close()
		}
		r = &usedReach{Reach: t.servers.Reach(who, c)}
		t.all[reachKey{who.Key, string(c.Info), string(c.Capabilities)}] = r
	}
	r.by++
	r.last = t.o.Now()
	return r.Reach, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		r.by--
		r.last = t.o.Now()
	}, true
}

func (r *usedReach) account() string { return r.Account }

func (r *usedReach) lastUse() (last time.Time, unused bool) { return r.last, r.by == 0 }

// idle removes the reaches that have been unused for longer than reachIdle, and returns how to close them. All drop old lists of
// tools.
func (t *reaches) idle(now time.Time) (idle []func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, r := range t.all {
		r.Sweep(now)
		if r.by == 0 && now.Sub(r.last) > reachIdle {
			idle = append(idle, r.Close)
			delete(t.all, k)
		}
	}
	return idle
}
