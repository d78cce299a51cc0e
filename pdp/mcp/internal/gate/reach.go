package gate

import (
	"context"
	"errors"
	"sync"
	"time"

	"policy-service/pdp/mcp/internal/upstream"
)

// reach is the ways from one client of one principal to all servers: a link to each, which is opened when it is needed.
type reach struct {
	principal string
	links     []*link // in the order of the servers
	use       use
}

// use is by how many requests a reach is used, and when it was last.
type use struct {
	by   int
	last time.Time
}

func newReach(servers []*Server, principal string, c client) *reach {
	r := &reach{principal: principal, links: make([]*link, len(servers))}
	for i, s := range servers {
		r.links[i] = newLink(s, principal, c)
	}
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

// owner is the link to the server whose resource it is, nil if it is nobody's.
func (r *reach) owner(uri string) *link {
	for _, l := range r.links {
		if l.server.owns(uri) {
			return l
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

func (g *Gateway) several() bool { return len(g.o.Servers) > 1 }

// at is the exchange as far as one of several servers has to do with it. None of them says how far all are.
func (x *exchange) at(l *link) *exchange {
	y := *x
	y.link = l
	if meta := y.params.GetObject("_meta"); meta.Get("progressToken") != nil {
		y.params = withMeta(y.params, meta.Without(func(name string) bool { return name == "progressToken" }))
	}
	return &y
}

// none is all that comes of what is told, and not asked.
type none struct{}

// part is what came of asking one server.
type part[T any] struct {
	*exchange
	value T
	err   error
}

// How long a client waits for a server that has not answered while others have. It is half of that each time that it was in
// vain, but not less than a glance.
const (
	patience = 5 * time.Second
	glance   = 150 * time.Millisecond
)

var (
	errLate   = &upstream.Error{Detail: "others have answered, and the server takes too long"}
	errBroken = &upstream.Error{Detail: "what the server says cannot be worked on"}
)

// each asks all servers at once, and gives what came of each, in their order. A server that is away, or late, leaves the
// others as they are: its part is an error.
func each[T any](ctx context.Context, x *exchange, ask func(context.Context, *exchange) (T, error)) []part[T] {
	if x.link != nil {
		v, err := ask(ctx, x)
		return []part[T]{{x, v, err}}
	}
	all := make([]part[T], len(x.reach.links))
	came := make(chan func(), len(all)) // each puts one part into its place
	asking, enough := context.WithCancel(ctx)
	defer enough()
	left := map[*link]bool{}
	for i, l := range x.reach.links {
		y := x.at(l)
		all[i] = part[T]{exchange: y, err: errLate}
		left[l] = true
		run := func() {
			p := part[T]{exchange: y, err: errBroken}
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
		case <-ctx.Done():
			return all
		}
		for _, p := range all {
			if p.err != errLate {
				delete(left, p.link)
			}
			if p.err == nil && first.IsZero() {
				first = time.Now()
			}
		}
		if !first.IsZero() {
			over = time.After(longest(left, x.request.Method) - time.Since(first))
		}
	}
	for _, p := range all {
		x.g.heardFrom(p.link, x.request.Method, p.err)
	}
	return all
}

// longest is how long whoever is left may be waited for.
func longest(left map[*link]bool, method string) (wait time.Duration) {
	for l := range left {
		wait = max(wait, l.missing.patience(method))
	}
	return wait
}

// heardFrom notes whether a server has answered what all were asked.
func (g *Gateway) heardFrom(l *link, method string, err error) {
	if err == nil {
		l.announce(l.missing.answered(method))
		return
	}
	l.missing.left(method)
	if e := (*upstream.Error)(nil); errors.As(err, &e) && e.Answer == nil {
		l.server.sent(err)
	}
	g.o.Logger.Warn("a server is left out", "server", l.server.Name, "method", method, "why", err)
}

// missing is in which lists a client was not shown what a server has, because the server was away: it is told when the
// server is back.
type missing struct {
	mu sync.Mutex
	// times is how often a server was waited for in vain, one time after the other, by method.
	times map[string]uint
	owed  map[string]bool // the notifications that are due
}

// changes are the notifications that say that what a method said is no longer so.
var changes = map[string][]string{
	"initialize":               {toolsChanged, promptsChanged, resourcesChanged},
	"server/discover":          {toolsChanged, promptsChanged, resourcesChanged},
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

func (m *missing) patience(method string) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return max(patience>>min(m.times[method], 8), glance)
}

// answered notes that the server has answered, and gives the notifications that are due.
func (m *missing) answered(method string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.times, method)
	return m.due(changes[method])
}

// back are the notifications that are due when a server is there again. It may not answer everything.
func (m *missing) back() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.due(changes["initialize"])
}

func (m *missing) due(changes []string) (due []string) {
	for _, change := range changes {
		if m.owed[change] {
			due = append(due, change)
			delete(m.owed, change)
		}
	}
	return due
}

func (m *missing) left(method string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.times == nil {
		m.times, m.owed = map[string]uint{}, map[string]bool{}
	}
	m.times[method]++
	for _, change := range changes[method] {
		m.owed[change] = true
	}
}
