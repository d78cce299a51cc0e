package link

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/mcp/internal/upstream"
	"policy-service/pdp/mcp/lock"
)

// Reach is the ways from one client of one principal to all servers: a link to each, which is opened when it is needed.
type Reach struct {
	Account string  // see [identity.Principal.Account]
	Links   []*Link // in the order of the servers
	// MCPx is set once the client has declared an extension of ours, or sent a message of one.
	MCPx atomic.Bool
}

func (g *Servers) Reach(who *identity.Principal, c Client) *Reach {
	r := &Reach{Account: who.Account()}
	for _, s := range g.o.All {
		r.Links = append(r.Links, g.newLink(s, who, c))
	}
	r.MCPx.Store(c.Knows(era.Authorizations) || c.Knows(era.ToolRequests))
	return r
}

// Only is the link to the one server there is, nil if there are several.
func (r *Reach) Only() *Link {
	if len(r.Links) == 1 {
		return r.Links[0]
	}
	return nil
}

// To is the link to a server, nil if there is none of that name.
func (r *Reach) To(server string) *Link {
	for _, l := range r.Links {
		if l.Server.Name == server {
			return l
		}
	}
	return nil
}

// Stale is the server, if there is one, of which a client of the legacy era hears less than it asked for.
func (r *Reach) Stale() *Server {
	for _, l := range r.Links {
		l.mu.Lock()
		stale := l.resumed.stale
		l.mu.Unlock()
		if stale {
			return l.Server
		}
	}
	return nil
}

// Close ends all links. One server that takes its time to hear that it is over is in no other's way.
func (r *Reach) Close() {
	if l := r.Only(); l != nil {
		l.close()
		return
	}
	var all sync.WaitGroup
	for _, l := range r.Links {
		all.Go(l.close)
	}
	all.Wait()
}

func (r *Reach) Silence() {
	for _, l := range r.Links {
		l.Silence()
	}
}

// lateness is how often a server was waited for in vain, one time after the other, by what it was asked.
type lateness struct {
	mu sync.Mutex
	of map[string]late
}

type late struct {
	times uint
	last  time.Time
}

func (t *lateness) patience(of string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one := t.of[of]; time.Since(one.last) < time.Minute {
		return max(patience>>min(one.times, 8), Glance)
	}
	return patience
}

func (t *lateness) note(of string, inVain bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !inVain {
		delete(t.of, of)
		return
	}
	if t.of == nil {
		t.of = map[string]late{}
	}
	t.of[of] = late{t.of[of].times + 1, time.Now()}
}

// toOpen is what a server is asked first, whatever a client wants.
const toOpen = "opening"

// waits is what a server is waited for.
func (l *Link) waits(method string) string {
	if s, _ := l.Current(); s == nil {
		return toOpen
	}
	return method
}

// HeardFrom notes whether a server has answered what all were asked, or came late.
func (l *Link) HeardFrom(method string, err error) {
	if err == nil {
		l.answered(method)
		return
	}
	l.Server.late.note(l.waits(method), err == ErrLate)
	l.Owe(method)
	l.Server.tried(context.Background(), err)
	if err != ErrForbidden {
		l.of.o.Logger.Warn("a server is left out", "server", l.Server.Name, "method", method, "why", err)
	}
	if l.came(method, l.of.o.Now(), l.of.o.Lock.current()) { // just when nobody waited for it any longer, and before anything was owed
		l.announce(changes[method])
	}
}

// Owe notes that the client is to hear when the server, which has not answered a method, is there.
func (l *Link) Owe(method string) { l.account.owed.add(changes[method]) }

// Patience is for how long the server is waited for that has not answered a method while others have.
func (l *Link) Patience(method string) time.Duration { return l.Server.late.patience(l.waits(method)) }

// came reports whether what the server was asked is there meanwhile.
func (l *Link) came(method string, now time.Time, locked *lock.File) bool {
	switch method {
	case "initialize", "server/discover":
		s, _ := l.Current()
		return s != nil
	case "tools/list":
		listed, _, _ := l.tools.fresh(now, locked)
		return listed != nil
	}
	return false
}

// answered notes that the server has answered, and tells whoever was not shown what it has.
func (l *Link) answered(method string) {
	l.Server.late.note(method, false)
	l.announce(changes[method])
}

// owed are the notifications that are due, because the server was away when a client was shown what servers have: the client
// is told when the server is back.
type owed struct {
	mu  sync.Mutex
	all map[string]bool
}

func (o *owed) add(changes []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all == nil {
		o.all = map[string]bool{}
	}
	for _, change := range changes {
		o.all[change] = true
	}
}

// take are those of the changes that are due. They are due no longer.
func (o *owed) take(changes []string) (due []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, change := range changes {
		if o.all[change] {
			due = append(due, change)
			delete(o.all, change)
		}
	}
	return due
}

// changes are the notifications that say that what a method said is no longer so.
var changes = map[string][]string{
	"initialize":               {toolsChanged, promptsChanged, resourcesChanged, resourceUpdated},
	"server/discover":          {toolsChanged, promptsChanged, resourcesChanged, resourceUpdated},
	"tools/list":               {toolsChanged},
	"prompts/list":             {promptsChanged},
	"resources/list":           {resourcesChanged},
	"resources/templates/list": {resourcesChanged},
}

const (
	toolsChanged     = "notifications/tools/list_changed"
	promptsChanged   = "notifications/prompts/list_changed"
	resourcesChanged = "notifications/resources/list_changed"
	resourceUpdated  = "notifications/resources/updated"
)

// How long a client waits for a server that has not answered while others have. It is half of that each time that somebody
// has waited in vain, until the server answers or a minute has gone, but not less than a glance.
const (
	patience = 5 * time.Second
	Glance   = 500 * time.Millisecond
)

var (
	ErrLate   = &upstream.Error{Detail: "others have answered, and the server takes too long"}
	ErrBroken = &upstream.Error{Detail: "what the server says cannot be worked on"}
)
