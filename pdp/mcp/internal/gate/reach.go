package gate

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"policy-service/pdp/mcp/internal/upstream"
	"policy-service/pdp/mcp/lock"
)

// reach is the ways from one client of one principal to all servers: a link to each, which is opened when it is needed.
type reach struct {
	principal string
	person    string  // see [personOf]
	links     []*link // in the order of the servers
	use       use
	// mcpx is set once the client has declared an extension of ours, or sent a message of one.
	mcpx atomic.Bool
}

// use is by how many requests a reach is used, and when it was last.
type use struct {
	by   int
	last time.Time
}

func newReach(servers []*Server, who principal, c client) *reach {
	r := &reach{principal: who.Key, person: personOf(who), links: make([]*link, len(servers))}
	for i, s := range servers {
		r.links[i] = newLink(s, who.Key, c)
		r.links[i].client.Person = r.person
	}
	r.mcpx.Store(c.knows(authorizations) || c.knows(toolRequests))
	return r
}

// only is the link to the one server there is, nil if there are several.
func (r *reach) only() *link {
	if len(r.links) == 1 {
		return r.links[0]
	}
	return nil
}

// to is the link to a server, nil if there is none of that name.
func (r *reach) to(server string) *link {
	for _, l := range r.links {
		if l.server.Name == server {
			return l
		}
	}
	return nil
}

// stale is the server, if there is one, of which a client of the legacy era hears less than it asked for.
func (r *reach) stale() *Server {
	for _, l := range r.links {
		l.mu.Lock()
		stale := l.resumed.stale
		l.mu.Unlock()
		if stale {
			return l.server
		}
	}
	return nil
}

// close ends all links. One server that takes its time to hear that it is over is in no other's way.
func (r *reach) close() {
	if l := r.only(); l != nil {
		l.close()
		return
	}
	var all sync.WaitGroup
	for _, l := range r.links {
		all.Go(l.close)
	}
	all.Wait()
}

func (r *reach) silence() {
	for _, l := range r.links {
		l.silence()
	}
}

func (g *servers) several() bool { return len(g.o.Servers) > 1 }

// at is the exchange as far as one of several servers has to do with it. None of them says how far all are.
func (x exchange) at(l *link) exchange {
	x.link = l
	if meta := x.params.GetObject("_meta"); meta.Get("progressToken") != nil {
		c := *x.Call
		c.params = withMeta(c.params, meta.Without(func(name string) bool { return name == "progressToken" }))
		x.Call = &c
	}
	return x
}

// none is all that comes of what is told, and not asked.
type none struct{}

// part is what came of asking one server.
type part[T any] struct {
	of    exchange
	value T
	err   error
}

// How long a client waits for a server that has not answered while others have. It is half of that each time that somebody
// has waited in vain, until the server answers or a minute has gone, but not less than a glance.
const (
	patience = 5 * time.Second
	glance   = 500 * time.Millisecond
)

var (
	errLate   = &upstream.Error{Detail: "others have answered, and the server takes too long"}
	errBroken = &upstream.Error{Detail: "what the server says cannot be worked on"}
)

// each asks all servers at once, and gives what came of each, in their order. A server that is away, or late, leaves the
// others as they are: its part is an error.
func each[T any](ctx context.Context, x exchange, ask func(context.Context, exchange) (T, error)) []part[T] {
	if x.link != nil {
		v, err := ask(ctx, x)
		if err == errClosed {
			x.link.account.owed.add(changes[x.request.Method])
		}
		return []part[T]{{x, v, err}}
	}
	all := make([]part[T], len(x.reach.links))
	came := make(chan func(), len(all)) // each puts one part into its place
	asking, enough := context.WithCancel(ctx)
	defer enough()
	defer context.AfterFunc(x.g.ctx, enough)()
	left := map[*link]time.Duration{} // how long each may take that has not answered
	for i, l := range x.reach.links {
		y := x.at(l)
		all[i] = part[T]{of: y, err: errLate}
		left[l] = l.server.late.patience(l.waits(x.request.Method))
		run := func() {
			p := part[T]{of: y, err: errBroken}
			defer func() { came <- func() { all[i] = p } }() // also if somebody panics
			p.value, p.err = ask(asking, y)
		}
		if !x.g.background(run) {
			came <- func() { all[i].err = errLinkClosed }
		}
	}
	var first time.Time // when somebody has answered
	var over <-chan time.Time
	for n := 0; n < len(all); n++ {
		select {
		case put := <-came:
			put()
		case <-over:
			n = len(all)
		case <-ctx.Done(): // what some have said is no answer for all
			for i := range all {
				all[i].err = &upstream.Error{Detail: "the client has gone", Err: ctx.Err()}
			}
			return all
		}
		for _, p := range all {
			if p.err != errLate {
				delete(left, p.of.link)
			}
			if p.err == nil && first.IsZero() {
				first = time.Now()
			}
		}
		if !first.IsZero() {
			over = time.After(longest(left) - time.Since(first))
		}
	}
	for _, p := range all {
		x.heardFrom(p.of.link, p.err)
	}
	return all
}

// longest is how long whoever is left may take.
func longest(left map[*link]time.Duration) (wait time.Duration) {
	for _, one := range left {
		wait = max(wait, one)
	}
	return wait
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
		return max(patience>>min(one.times, 8), glance)
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
func (l *link) waits(method string) string {
	if s, _ := l.current(); s == nil {
		return toOpen
	}
	return method
}

// heardFrom notes whether a server has answered what all were asked.
func (x *Call) heardFrom(l *link, err error) {
	method := x.request.Method
	if err == nil {
		l.answered(method)
		return
	}
	l.server.late.note(l.waits(method), err == errLate)
	l.account.owed.add(changes[method])
	l.server.tried(context.Background(), err)
	if err != errClosed {
		x.g.o.Logger.Warn("a server is left out", "server", l.server.Name, "method", method, "why", err)
	}
	if l.came(method, x.g.o.Now(), x.g.o.Lock.current()) { // just when nobody waited for it any longer, and before anything was owed
		l.announce(changes[method])
	}
}

// came reports whether what the server was asked is there meanwhile.
func (l *link) came(method string, now time.Time, locked *lock.File) bool {
	switch method {
	case "initialize", "server/discover":
		s, _ := l.current()
		return s != nil
	case "tools/list":
		listed, _, _ := l.tools.fresh(now, locked)
		return listed != nil
	}
	return false
}

// answered notes that the server has answered, and tells whoever was not shown what it has.
func (l *link) answered(method string) {
	l.server.late.note(method, false)
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
