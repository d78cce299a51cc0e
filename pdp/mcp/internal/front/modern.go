package front

import (
	"context"
	"net/http"
	"sync"
	"time"

	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/flow"
	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/mcp/internal/link"
	"policy-service/pdp/mcp/internal/reply"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/wire"
)

// The front of the modern era: each request says of itself all that there is to know.

func (g *Front) postModern(w http.ResponseWriter, r *http.Request, in *incoming) (ctx context.Context, v *flow.Visit) {
	switch {
	case in.message.IsResponse():
		g.refuse(w, http.StatusBadRequest, rpc.ID{}, rpc.InvalidRequest, "this revision has no requests to clients that one could answer")
	case in.message.Method == wire.MethodAccess:
		g.refuseAccess(w, in.who)
	case in.message.IsNotification() && in.message.Method != rpc.Respond: // there is none that means something here
		w.WriteHeader(http.StatusAccepted)
	default:
		if v = g.visitModern(w, in); v != nil {
			var cancel context.CancelFunc
			ctx, cancel = in.who.Context(r.Context())
			v.Lasts(cancel)
		}
	}
	return ctx, v
}

// visitModern is the visit of a request, nil if it is refused.
func (g *Front) visitModern(w http.ResponseWriter, in *incoming) *flow.Visit {
	meta, fault := era.CheckHeaders(in.header, in.message, in.params)
	if fault != nil {
		reply.JSON(w, http.StatusBadRequest, rpc.Failure(in.message.ID, *fault))
		return nil
	}
	c := link.Client{Era: era.Modern, Version: meta.Version, Info: meta.Client, Capabilities: meta.Capabilities, LogLevel: meta.LogLevel}
	way, done, ok := g.reaches.of(in.who, c)
	if !ok {
		g.tooMany(w, time.Second)
		return nil
	}
	v := g.flow.Visit(flow.Call{Who: in.who, Client: c, Reach: way, Request: in.message, Params: in.params, Header: in.header}, done)
	if v.Reply = reply.Over(w, in.streamFirst, false); in.message.IsNotification() {
		v.Reply = unheard{w}
	}
	return v
}

// reaches are the ways to the servers of clients of the modern era: requests of one principal that say the same of their
// client share one, for as long as some come.
type reaches struct {
	o       *Options
	servers *link.Servers
	mu      sync.Mutex
	all     map[reachKey]*used
}

// used is a reach with by how many requests it is used, and when it was last.
type used struct {
	*link.Reach
	by   int
	last time.Time
}

// reachKey is who asks, and what its client says of itself.
type reachKey struct{ principal, info, capabilities string }

const (
	reachIdle = 20 * time.Minute // longer than people.StateLife: an answer may be held
	// mostReaches is how many there are: a client may say of itself what it likes.
	mostReaches = 10000
)

// of is the reach of a client, until done is called. It is not ok if its person has too many that are in use.
func (t *reaches) of(who *identity.Principal, c link.Client) (_ *link.Reach, done func(), ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.all[reachKey{who.Key, string(c.Info), string(c.Capabilities)}]
	if r == nil { // looked up without a copy
		if t.all == nil {
			t.all = map[reachKey]*used{}
		}
		if !t.makeRoom(who.Account()) {
			return nil, nil, false
		}
		key := reachKey{who.Key, string(c.Info), string(c.Capabilities)}
		r = &used{Reach: t.servers.Reach(who, c)}
		t.all[key] = r
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

// makeRoom closes the reach that nobody has used for longest, if its person has too many, or all together have. It is not
// ok if all of those are in use.
func (t *reaches) makeRoom(person string) bool {
	own := func(r *used) bool { return r.Account == person }
	unused := func(r *used) (time.Time, bool) { return r.last, r.by == 0 }
	key, r, full := leastUsed(t.all, t.o.SessionsEach, own, unused)
	if !full {
		key, r, full = leastUsed(t.all, mostReaches, everybody, unused)
	}
	if !full || r == nil {
		return !full
	}
	delete(t.all, key)
	go r.Close()
	return true
}

// idle are those that nobody uses any longer. They do not count any more.
func (t *reaches) idle(now time.Time) (idle []closing) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, r := range t.all {
		if r.by == 0 && now.Sub(r.last) > reachIdle {
			idle = append(idle, r.Close)
			delete(t.all, k)
		}
	}
	return idle
}
