package gate

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/reply"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/upstream"
)

// What a server says by itself reaches clients of the legacy era by a stream that they open (GET), and clients of the modern
// era by a request that stays open and names what it wants to hear (subscriptions/listen).

const acknowledged = "notifications/subscriptions/acknowledged"

// get opens the stream of a session.
func (g *Gateway) get(w http.ResponseWriter, r *http.Request) {
	if !acceptOf(r.Header).stream {
		g.refuse(w, http.StatusNotAcceptable, rpc.ID{}, rpc.InvalidRequest, "Accept must name text/event-stream")
		return
	}
	who, ok := g.authenticate(w, r)
	if !ok {
		return
	}
	s, ok := g.sessionOf(w, r, who)
	if !ok {
		return
	}
	if !s.listen() {
		g.refuse(w, http.StatusConflict, rpc.ID{}, rpc.InvalidRequest, "this session has a stream already")
		return
	}
	defer func() { s.leave(g.o.Now()) }()
	ctx, leave, ok := g.enter(r.Context())
	if !ok {
		g.refuse(w, http.StatusServiceUnavailable, rpc.ID{}, rpc.InternalError, errLinkClosed.Detail)
		return
	}
	defer leave()
	ctx, cancel := who.Context(ctx)
	defer cancel()
	ctx, done := g.until(ctx)
	defer done()
	back := reply.Over(w, false, true)
	defer back.Leave() // the server may be asking something just now
	// It is opened by whoever may begin a session.
	params := rpc.Object{}.With("protocolVersion", rpc.String(s.client.version))
	holds := &holds{}
	defer holds.end()
	request := rpc.Message{Method: "initialize", Params: params.Value()}
	c := &Call{g: g, who: who, client: s.client, reach: s.reach, session: s, request: request, params: params, header: r.Header, reply: back, holds: holds}
	x := exchange{Target: Target{Call: c, link: s.reach.only()}}
	release, limit, after := g.admit(who, "", false)
	if limit != "" {
		g.tooMany(w, after)
		return
	}
	release() // it is a request like others, and then it lasts
	end, ok := g.lasting(who.Key)
	if !ok {
		g.tooMany(w, time.Second)
		return
	}
	defer end()
	x, refused := x.ask(ctx, ask.Answered{})
	if refused != nil {
		x.note(refused)
		reply.JSON(w, max(refused.Status, http.StatusForbidden), refused.Message)
		return
	}
	heard, stop := x.heard() // before the client knows of its stream: what is said from then on is not missed
	defer stop()
	_ = x.reply.Alive()
	defer reply.KeepAlive(x.reply)()
	defer g.listeners.begin(ctx, x, rpc.ID{})()
	x.hearAll(ctx, heard)
}

// lasting notes that somebody listens, until end is called. It is not ok if that principal listens to as many streams as it
// may: whoever listens is in nobody's way but of those who want to listen, too.
func (g *Gateway) lasting(principal string) (end func(), ok bool) {
	return g.o.Rates.Hold(principal, Streams)
}

// listen notes that the session has a stream. It is not ok if it has one already.
func (s *session) listen() (ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ok = !s.listening
	s.listening, s.left = true, false
	return ok
}

// leave notes that the session's stream is closed.
func (s *session) leave(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listening, s.left, s.used = false, true, now
}

// heard is what each server says by itself from now on, until stop is called.
func (x exchange) heard() (all map[*link]<-chan said, stop func()) {
	all = map[*link]<-chan said{}
	var stops []func()
	for _, l := range x.reach.links {
		heard, stop := l.hear(x.at(l).answerBeside)
		all[l], stops = heard, append(stops, stop)
	}
	return all, func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// hearAll relays what all servers say until the client goes.
func (x exchange) hearAll(ctx context.Context, heard map[*link]<-chan said) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(x.g.ctx, cancel)()
	x.beside(func(l *link) { x.at(l).hear(ctx, heard[l]) })
}

// hear relays what one server says until the client goes.
func (x exchange) hear(ctx context.Context, heard <-chan said) {
	e, wait := x.link.attend(x), firstPause
	var pause <-chan time.Time
	var arrives <-chan struct{}
	for {
		select {
		case m := <-heard:
			_ = x.reply.Interim(era.Notification(m.Message, m.from, era.Legacy, rpc.ID{}))
		case <-e.over:
			if errors.Is(e.err, errLinkClosed) { // the session is over
				return
			}
			x.g.o.Logger.Info("the server has no stream of its own", "server", x.link.server.Name, "why", e.err)
			if e.settled >= 0 {
				wait = firstPause
			}
			was := e.err
			e, pause, wait = &ear{}, time.After(wait), min(2*wait, lastPause) // what comes beside answers goes on
			arrives = x.link.arrives()
			if s, _ := x.link.current(); s != nil && was == errClosed { // opened meanwhile
				e = x.link.attend(x)
			}
		case <-pause:
			e, arrives = x.link.attend(x), nil
		case <-arrives:
			e, arrives = x.link.attend(x), nil
		case <-ctx.Done():
			return
		}
	}
}

// answerBeside has a request of the server answered that belongs to no request of the client's.
func (x Target) answerBeside(ctx context.Context, session upstream.Session, m rpc.Message) {
	shown, no := shown(x.link.server, m, x.client.capabilities)
	var done func()
	if no == nil {
		var ok bool
		if done, ok = x.link.mayAsk(); !ok {
			no = &unasked{why: "the client is asked too much already"}
		}
	}
	if no != nil {
		x.g.notPassed(ctx, x.link, session, m, x.client.era, no)
		return
	}
	x.g.background(func() { // the stream goes on meanwhile
		defer done()
		answer := x.session.ask(ctx, x.g, shown, x.reply.Interim)
		answer.ID = m.ID
		_ = session.Notify(ctx, answer)
	})
}

// listen answers subscriptions/listen of a client of the modern era. The response comes when the server ends the stream; of
// several servers none ends it for the others.
func (x exchange) listen(ctx context.Context) *Answer {
	x.reply.Stream()
	ctx, done := x.g.until(ctx)
	defer done()
	w, ours := wantsOf(x.params), wantsAuthorizations(x.params)
	all := map[*link]*listener{}
	if !ours || !w.none() { // no server is asked for what is ours
		for _, l := range x.reach.links {
			all[l] = newListener(x.at(l), w)
			all[l].stays = ours || x.g.several()
			defer all[l].end()
		}
	}
	joining, enough := context.WithCancel(ctx)
	defer enough()
	agreed, err := x.join(joining, all, w, ours)
	if err != nil {
		return x.failed(err)
	}
	acknowledge(x, agreed, ours)
	if ours {
		defer x.g.listeners.begin(ctx, x, x.request.ID)()
	}
	if len(all) > 0 {
		x.beside(func(l *link) { all[l].relay(ctx, agreed) })
	}
	if ours {
		<-ctx.Done()
	}
	return x.result(rpc.Answer(rpc.ID{}, ended(x.request.ID)))
}

// join has servers tell what is wanted, and says of what they do.
func (x exchange) join(ctx context.Context, all map[*link]*listener, w wants, ours bool) (agreed wants, err error) {
	if x.link == nil && len(all) > 0 { // lists change also if a server is back
		agreed = w.lists()
	}
	if ours {
		came, err := x.g.listeners.joinBeside(ctx, all, w.lists())
		return agreed.or(came), err
	}
	came, err := there(each(ctx, x, func(ctx context.Context, x exchange) (wants, error) { return all[x.link].join(ctx) }))
	for _, p := range came {
		agreed = agreed.or(p.value)
	}
	return agreed, err
}

// beside does something for each link, for all of them at once, and waits for it.
func (x Target) beside(do func(*link)) {
	if x.link != nil {
		do(x.link)
		return
	}
	var all sync.WaitGroup
	for _, l := range x.reach.links {
		all.Add(1)
		if !x.g.background(func() { defer all.Done(); do(l) }) {
			all.Done()
		}
	}
	all.Wait()
}

// unwant has the server tell no longer of what nobody wants to hear of.
func (x Target) unwant(uris []string) {
	_, last, _, _ := x.link.want(uris, false)
	if len(last) == 0 {
		return
	}
	x.g.background(func() { // for its client has gone
		ctx, cancel := context.WithTimeout(x.g.ctx, listTimeout)
		defer cancel()
		if s, err := x.link.open(ctx, x.who); err == nil && s.Era() == era.Legacy {
			_ = x.tellOf(ctx, "resources/unsubscribe", last)
		}
	})
}

// tellOf subscribes to resources of a server of the legacy era, or unsubscribes from them.
func (x Target) tellOf(ctx context.Context, method string, uris []string) error {
	for _, uri := range uris {
		params := rpc.Object{}.With("uri", rpc.String(uri))
		if _, _, err := x.g.request(ctx, x.link, x.who, x.client, method, params); err != nil {
			return err
		}
	}
	return nil
}

// ended is the result of a listener whose stream the server has ended.
func ended(id rpc.ID) jsontext.Value {
	meta := rpc.Object{}.With(era.MetaSubscription, id.Text())
	return rpc.Object{}.With("resultType", rpc.String("complete")).With("_meta", meta.Value()).Value()
}

// wants is what a listener wants to hear.
type wants struct {
	tools, prompts, resources bool
	uris                      []string
}

func wantsOf(params rpc.Object) (w wants) {
	o, _ := rpc.ParseObject(params.Get("notifications"))
	yes := func(name string) bool { return o.Get(name).Kind() == 't' }
	w.tools, w.prompts, w.resources = yes("toolsListChanged"), yes("promptsListChanged"), yes("resourcesListChanged")
	uris, _ := rpc.Elements(o.Get("resourceSubscriptions"))
	for _, v := range uris {
		if len(w.uris) > mostSubscriptions {
			break // they are too many
		}
		if s, err := jsontext.AppendUnquote(nil, v); err == nil && v.Kind() == '"' && !slices.Contains(w.uris, string(s)) {
			w.uris = append(w.uris, string(s))
		}
	}
	return w
}

// told are w as far as a server of the legacy era says that it tells of such things.
func (w wants) told(s upstream.Session) wants {
	server, _ := rpc.ParseObject(s.Server())
	can := server.GetObject("capabilities")
	yes := func(of, name string) bool { return can.GetObject(of).Get(name).Kind() == 't' }
	w.tools = w.tools && yes("tools", "listChanged")
	w.prompts = w.prompts && yes("prompts", "listChanged")
	w.resources = w.resources && yes("resources", "listChanged")
	if !yes("resources", "subscribe") {
		w.uris = nil
	}
	return w
}

// withoutWords is what says that something has changed, and no more than what. It is not ok for anything else.
func withoutWords(m rpc.Message) (rpc.Message, bool) {
	var params jsontext.Value
	switch m.Method {
	case toolsChanged, promptsChanged, resourcesChanged:
	case resourceUpdated:
		said, err := rpc.ParseObject(m.Params)
		if err != nil {
			return m, false
		}
		params = rpc.Object{}.With("uri", rpc.String(said.GetString("uri"))).Value()
	default:
		return m, false
	}
	return rpc.Message{Method: m.Method, Params: params}, true
}

func (w wants) hear(m rpc.Message) bool {
	switch m.Method {
	case toolsChanged:
		return w.tools
	case promptsChanged:
		return w.prompts
	case resourcesChanged:
		return w.resources
	case resourceUpdated:
		params, _ := rpc.ParseObject(m.Params)
		return slices.Contains(w.uris, params.GetString("uri"))
	}
	return false
}

// none reports whether nothing is wanted.
func (w wants) none() bool { return !w.tools && !w.prompts && !w.resources && len(w.uris) == 0 }

// lists are w without single resources.
func (w wants) lists() wants {
	return wants{tools: w.tools, prompts: w.prompts, resources: w.resources}
}

// value is the filter in JSON.
func (w wants) value() jsontext.Value { return w.object().Value() }

func (w wants) object() rpc.Object {
	o := rpc.Object{}
	for _, v := range []struct {
		name string
		on   bool
	}{{"toolsListChanged", w.tools}, {"promptsListChanged", w.prompts}, {"resourcesListChanged", w.resources}} {
		if v.on {
			o = o.With(v.name, jsontext.Value("true"))
		}
	}
	if len(w.uris) > 0 {
		o = o.With("resourceSubscriptions", texts(w.uris))
	}
	return o
}

// and is what both want.
func (w wants) and(v wants) wants {
	uris := slices.DeleteFunc(slices.Clone(w.uris), func(uri string) bool { return !slices.Contains(v.uris, uri) })
	return wants{w.tools && v.tools, w.prompts && v.prompts, w.resources && v.resources, uris}
}

// or is what one or the other wants.
func (w wants) or(v wants) wants {
	uris := slices.Clone(w.uris)
	for _, uri := range v.uris {
		if !slices.Contains(uris, uri) {
			uris = append(uris, uri)
		}
	}
	return wants{w.tools || v.tools, w.prompts || v.prompts, w.resources || v.resources, uris}
}
