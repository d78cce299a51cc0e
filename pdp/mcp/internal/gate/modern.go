package gate

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/upstream"
)

// The front of the modern era: each request says of itself all that there is to know.

func (g *Gateway) postModern(w http.ResponseWriter, r *http.Request, in incoming) {
	m := in.message
	if m.IsResponse() {
		g.refuse(w, http.StatusBadRequest, rpc.ID{}, rpc.InvalidRequest, "this revision has no requests to clients that one could answer")
		return
	}
	if m.IsNotification() { // there is none that means something here
		w.WriteHeader(http.StatusAccepted)
		return
	}
	meta, fault := era.CheckHeaders(in.header, m, in.params)
	if fault != nil {
		writeJSON(w, http.StatusBadRequest, rpc.Failure(m.ID, *fault))
		return
	}
	ctx, cancel := in.who.Context(r.Context())
	defer cancel()
	c := client{era: era.Modern, version: meta.Version, info: meta.Client, capabilities: meta.Capabilities, logLevel: meta.LogLevel}
	l, done, ok := g.links.of(g, in.who, c)
	if !ok {
		g.tooMany(w, time.Second)
		return
	}
	defer done()
	x := &exchange{g: g, who: in.who, client: c, link: l, request: m, params: in.params, header: in.header}
	x.reply = &httpReply{w: w, stream: in.streamFirst}
	x.serve(ctx)
}

// links are the ways to the upstream of clients of the modern era: requests of one principal that say the same of their
// client share one, for as long as some come.
type links struct {
	mu  sync.Mutex
	all map[linkKey]*link
}

// linkKey is who asks, and what its client says of itself.
type linkKey struct{ principal, info, capabilities string }

const (
	linkIdle = 20 * time.Minute // longer than stateLife: an answer may be held
	// mostLinks is how many there are, and mostLinksEach how many of one principal: its client may say of itself what it likes.
	mostLinks     = 10000
	mostLinksEach = 32
)

// of is the link of a client, until done is called. It is not ok if its principal has too many that are in use.
func (t *links) of(g *Gateway, who principal, c client) (l *link, done func(), ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l = t.all[linkKey{who.Key, string(c.info), string(c.capabilities)}]; l == nil { // looked up without a copy
		if t.all == nil {
			t.all = map[linkKey]*link{}
		}
		if !t.makeRoom(who.Key) {
			return nil, nil, false
		}
		key := linkKey{who.Key, string(c.info), string(c.capabilities)}
		l = newLink(g.o.Server, who.Key, c)
		t.all[key] = l
	}
	l.use.by++
	l.use.last = g.o.Now()
	return l, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		l.use.by--
		l.use.last = g.o.Now()
	}, true
}

// makeRoom closes the link that nobody has used for longest, if its principal has too many, or all together have. It is not
// ok if all of those are in use.
func (t *links) makeRoom(principal string) bool {
	own := func(l *link) bool { return l.client.Principal == principal }
	unused := func(l *link) (time.Time, bool) { return l.use.last, l.use.by == 0 }
	key, l, full := leastUsed(t.all, mostLinksEach, own, unused)
	if !full {
		key, l, full = leastUsed(t.all, mostLinks, everybody, unused)
	}
	if !full || l == nil {
		return !full
	}
	delete(t.all, key)
	go l.close()
	return true
}

// idle are those that nobody uses any longer. They do not count any more.
func (t *links) idle(now time.Time) (idle []closer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, l := range t.all {
		if l.use.by == 0 && now.Sub(l.use.last) > linkIdle {
			idle = append(idle, l)
			delete(t.all, k)
		}
	}
	return idle
}

// discover says what the server says of itself, and what the gateway speaks.
func (x *exchange) discover(ctx context.Context) (rpc.Message, int) {
	s, err := x.link.open(ctx, x.who)
	if err != nil {
		return x.failed(err)
	}
	result, err := era.Discovered(x.g.introduces(x.link, s), s.Era())
	if err != nil {
		return x.refused(ambiguous("what the server says of itself cannot be read"))
	}
	return x.result(rpc.Answer(rpc.ID{}, result))
}

// logs has a server of the legacy era, which is told once, say what the client wants of its log with this request. It says
// it with others', too: see wantsLog.
func (x *exchange) logs(ctx context.Context) error {
	if x.client.era == era.Legacy || x.client.logLevel == "" {
		return nil
	}
	s, err := x.link.open(ctx, x.who)
	if err != nil || s.Era() == era.Modern || !x.link.saysLess(s, x.client.logLevel) {
		return err
	}
	params := rpc.Object{}.With("level", rpc.String(x.client.logLevel))
	if _, _, err = x.g.request(ctx, x.link, x.who, x.client, "logging/setLevel", params); err == nil {
		x.link.says(s, x.client.logLevel)
	}
	return err
}

// saysLess reports whether a server has a log, and has not been told to say as much of it.
func (l *link) saysLess(s upstream.Session, level string) bool {
	server, _ := rpc.ParseObject(s.Server())
	l.mu.Lock()
	defer l.mu.Unlock()
	told := slices.Index(logLevels, l.log.level)
	return server.GetObject("capabilities").Get("logging") != nil && (l.log.told != s || told < 0 || told > slices.Index(logLevels, level))
}

func (l *link) says(s upstream.Session, level string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.log.told, l.log.level = s, level
}

// wantsLog reports whether the client wants a message of the server's log.
func (x *exchange) wantsLog(m rpc.Message) bool {
	if x.client.era == era.Legacy {
		return true
	}
	params, _ := rpc.ParseObject(m.Params)
	wanted := slices.Index(logLevels, x.client.logLevel)
	return wanted >= 0 && slices.Index(logLevels, params.GetString("level")) >= wanted
}
