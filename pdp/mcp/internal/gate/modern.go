package gate

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/reply"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/upstream"
	"policy-service/pdp/mcp/wire"
)

// The front of the modern era: each request says of itself all that there is to know.

func (g *Gateway) postModern(w http.ResponseWriter, r *http.Request, in *incoming) (ctx context.Context, v *visit) {
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
			v.holds.lasts(cancel)
		}
	}
	return ctx, v
}

// visitModern is the visit of a request, nil if it is refused.
func (g *Gateway) visitModern(w http.ResponseWriter, in *incoming) *visit {
	meta, fault := era.CheckHeaders(in.header, in.message, in.params)
	if fault != nil {
		reply.JSON(w, http.StatusBadRequest, rpc.Failure(in.message.ID, *fault))
		return nil
	}
	c := client{era: era.Modern, version: meta.Version, info: meta.Client, capabilities: meta.Capabilities, logLevel: meta.LogLevel}
	way, done, ok := g.reaches.of(in.who, c)
	if !ok {
		g.tooMany(w, time.Second)
		return nil
	}
	v := newVisit(Call{g: g, who: in.who, client: c, reach: way, request: in.message, params: in.params, header: in.header}, done)
	if v.reply = reply.Over(w, in.streamFirst, false); in.message.IsNotification() {
		v.reply = unheard{w}
	}
	return v
}

// reaches are the ways to the servers of clients of the modern era: requests of one principal that say the same of their
// client share one, for as long as some come.
type reaches struct {
	o   *Options
	mu  sync.Mutex
	all map[reachKey]*reach
}

// reachKey is who asks, and what its client says of itself.
type reachKey struct{ principal, info, capabilities string }

const (
	reachIdle = 20 * time.Minute // longer than stateLife: an answer may be held
	// mostReaches is how many there are: a client may say of itself what it likes.
	mostReaches = 10000
)

// of is the reach of a client, until done is called. It is not ok if its person has too many that are in use.
func (t *reaches) of(who principal, c client) (r *reach, done func(), ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r = t.all[reachKey{who.Key, string(c.info), string(c.capabilities)}]; r == nil { // looked up without a copy
		if t.all == nil {
			t.all = map[reachKey]*reach{}
		}
		if !t.makeRoom(personOf(who)) {
			return nil, nil, false
		}
		key := reachKey{who.Key, string(c.info), string(c.capabilities)}
		r = newReach(t.o.Servers, who, c)
		t.all[key] = r
	}
	r.use.by++
	r.use.last = t.o.Now()
	return r, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		r.use.by--
		r.use.last = t.o.Now()
	}, true
}

// makeRoom closes the reach that nobody has used for longest, if its person has too many, or all together have. It is not
// ok if all of those are in use.
func (t *reaches) makeRoom(person string) bool {
	own := func(r *reach) bool { return r.person == person }
	unused := func(r *reach) (time.Time, bool) { return r.use.last, r.use.by == 0 }
	key, r, full := leastUsed(t.all, t.o.SessionsEach, own, unused)
	if !full {
		key, r, full = leastUsed(t.all, mostReaches, everybody, unused)
	}
	if !full || r == nil {
		return !full
	}
	delete(t.all, key)
	go r.close()
	return true
}

// idle are those that nobody uses any longer. They do not count any more.
func (t *reaches) idle(now time.Time) (idle []closing) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, r := range t.all {
		if r.use.by == 0 && now.Sub(r.use.last) > reachIdle {
			idle = append(idle, r.close)
			delete(t.all, k)
		}
	}
	return idle
}

// discover says what the servers say of themselves, and what the gateway speaks.
func (x exchange) discover(ctx context.Context) *Answer {
	said, err := x.introduction(ctx)
	if err != nil {
		return x.failed(err)
	}
	result, err := era.Discovered(said.server, said.era, x.g.extensions())
	if err != nil {
		return ambiguous("what the server says of itself cannot be read")
	}
	return x.result(rpc.Answer(rpc.ID{}, result))
}

// logs has a server of the legacy era, which is told once, say what the client wants of its log with this request. It says
// it with others', too: see wantsLog.
func (x Target) logs(ctx context.Context) error {
	if x.client.era == era.Legacy || x.client.logLevel == "" {
		return nil
	}
	s, err := x.link.open(ctx, x.who)
	if err != nil || s.Era() == era.Modern || !x.link.saysLess(s, x.client.logLevel) {
		return err
	}
	params := rpc.Object{}.With("level", rpc.String(x.client.logLevel))
	op := ask.Operation{Principal: x.who, Era: era.Legacy, Method: "logging/setLevel", Params: params, Server: x.link.server.Name}
	permit, refused := x.g.o.Asker.Ask(ctx, op)
	if refused != nil { // the request goes on without: it was decided about by itself
		x.link.server.Dropped("level of the log that is denied")
		return nil
	}
	defer permit.Done(context.WithoutCancel(ctx))
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
func (x *Call) wantsLog(m rpc.Message) bool {
	if x.client.era == era.Legacy {
		return true
	}
	params, _ := rpc.ParseObject(m.Params)
	wanted := slices.Index(logLevels, x.client.logLevel)
	return wanted >= 0 && slices.Index(logLevels, params.GetString("level")) >= wanted
}
