package gate

import (
	"context"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/era"
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
	if !s.listen(true) {
		g.refuse(w, http.StatusConflict, rpc.ID{}, rpc.InvalidRequest, "this session has a stream already")
		return
	}
	defer s.listen(false)
	ctx, cancel := who.Context(r.Context())
	defer cancel()
	ctx, done := g.until(ctx)
	defer done()
	// It is opened by whoever may begin a session.
	params := rpc.Object{}.With("protocolVersion", rpc.String(s.client.version))
	x := &exchange{g: g, who: who, client: s.client, link: s.link, session: s, params: params, header: r.Header, reply: &httpReply{w: w, retry: true}}
	x.request = rpc.Message{Method: "initialize", Params: params.Value()}
	release, after, ok := g.o.Rates.Admit(who.Key, "")
	if !ok {
		g.tooMany(w, after)
		return
	}
	release() // it is a request like others, and then it lasts
	if refused := x.ask(ctx); refused != nil {
		m, status := x.refused(refused)
		writeJSON(w, max(status, http.StatusForbidden), m)
		return
	}
	defer func() { x.permit.Done(context.WithoutCancel(ctx)) }()
	_ = x.reply.Alive()
	defer keepAlive(x.reply)()
	x.hearAll(ctx)
}

// listen notes that the session has a stream, or has none any longer. It is not ok if it has one.
func (s *session) listen(on bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if on && s.listening {
		return false
	}
	s.listening = on
	return true
}

// hearAll relays what the server says until the client goes. If the server ends its stream, the gateway goes on with what
// comes beside answers, until the client opens another.
func (x *exchange) hearAll(ctx context.Context) {
	beside, stop := x.link.hear()
	defer stop()
	for ctx.Err() == nil {
		_, changed := x.link.subscribed()
		listening, cancel := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			x.hearOnce(listening)
		}()
		for again := false; !again; {
			select {
			case m := <-beside:
				_ = x.reply.Interim(m)
			case <-changed:
				again = true
			case <-ctx.Done():
				again = true
			}
		}
		cancel()
		<-ended
	}
}

// hearOnce relays one stream of the server's.
func (x *exchange) hearOnce(ctx context.Context) {
	session, stream, err := x.openFor(ctx)
	if err != nil {
		x.g.o.Logger.Info("the server has no stream of its own", "server", x.link.server.Name, "why", err)
		return
	}
	defer stream.Close()
	defer context.AfterFunc(ctx, stream.Close)()
	for {
		m, err := stream.Next()
		switch {
		case err != nil:
			return
		case m.IsRequest():
			x.answerBeside(ctx, session, m)
		case m.IsResponse() || m.Method == acknowledged:
		default:
			if m.Method == "notifications/tools/list_changed" {
				x.link.tools.forget()
			}
			if isChange(m.Method) || m.Method == "notifications/message" {
				_ = x.reply.Interim(era.Notification(m, session.Era(), era.Legacy, rpc.ID{}))
			} else {
				x.link.server.Dropped("notification that nobody wants")
			}
		}
	}
}

// answerBeside has a request of the server answered that belongs to no request of the client's.
func (x *exchange) answerBeside(ctx context.Context, session upstream.Session, m rpc.Message) {
	shown, ok := x.g.shown(x.link, m, x.client.capabilities)
	var done func()
	if ok {
		done, ok = x.session.mayAsk()
	}
	if !ok {
		x.g.decline(ctx, session, m)
		return
	}
	go func() { // the stream goes on meanwhile
		defer done()
		answer := x.session.ask(ctx, x.g, shown, x.reply.Interim)
		answer.ID = m.ID
		_ = session.Notify(ctx, answer)
	}()
}

// listen answers subscriptions/listen of a client of the modern era. The response comes when the server ends the stream.
func (x *exchange) listen(ctx context.Context) (rpc.Message, int) {
	x.reply.Stream()
	ctx, done := x.g.until(ctx)
	defer done()
	s, err := x.link.open(ctx, x.who)
	if err != nil {
		return x.failed(err)
	}
	if s.Era() == era.Legacy {
		return x.listenLegacy(ctx, s)
	}
	session, stream, err := x.link.send(ctx, x.who, func(s upstream.Session) upstream.Request {
		return upstream.Request{Method: x.request.Method, Params: x.outgoing(ctx, s, x.params)}
	})
	if err != nil {
		return x.failed(err)
	}
	defer stream.Close()
	defer context.AfterFunc(ctx, stream.Close)()
	wants := wantsOf(x.params)
	for {
		m, err := stream.Next()
		switch {
		case err != nil:
			return x.result(rpc.Answer(rpc.ID{}, ended(x.request.ID)))
		case m.IsResponse() && m.Error != nil:
			return x.result(x.translated(m, session))
		case m.IsResponse():
			return x.result(rpc.Answer(rpc.ID{}, ended(x.request.ID)))
		case m.IsNotification():
			x.hear(m, wants, era.Modern)
		}
	}
}

// hear relays a notification that the client wants to hear.
func (x *exchange) hear(m rpc.Message, w wants, from era.Era) {
	if m.Method == "notifications/tools/list_changed" {
		x.link.tools.forget()
	}
	if !w.hear(m) {
		x.link.server.Dropped("notification that nobody wants")
		return
	}
	_ = x.reply.Interim(era.Notification(m, from, era.Modern, x.request.ID))
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
		if s, err := jsontext.AppendUnquote(nil, v); err == nil && v.Kind() == '"' {
			w.uris = append(w.uris, string(s))
		}
	}
	return w
}

func (w wants) hear(m rpc.Message) bool {
	switch m.Method {
	case acknowledged:
		return true
	case "notifications/tools/list_changed":
		return w.tools
	case "notifications/prompts/list_changed":
		return w.prompts
	case "notifications/resources/list_changed":
		return w.resources
	case "notifications/resources/updated":
		params, _ := rpc.ParseObject(m.Params)
		return slices.Contains(w.uris, params.GetString("uri"))
	}
	return false
}

// value is the filter in JSON, as it is acknowledged.
func (w wants) value() jsontext.Value {
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
	return o.Value()
}

// ended is the result of a listener whose stream the server has ended.
func ended(id rpc.ID) jsontext.Value {
	meta := rpc.Object{}.With(era.MetaSubscription, id.Text())
	return rpc.Object{}.With("resultType", rpc.String("complete")).With("_meta", meta.Value()).Value()
}

// listenLegacy is listen in front of a server of the legacy era: it is told of the resources, and its stream is filtered.
func (x *exchange) listenLegacy(ctx context.Context, s upstream.Session) (rpc.Message, int) {
	w := wantsOf(x.params)
	for _, uri := range w.uris {
		params := rpc.Object{}.With("uri", rpc.String(uri))
		if _, _, err := x.g.request(ctx, x.link, x.who, x.client, "resources/subscribe", params); err != nil {
			return x.failed(err)
		}
	}
	beside, stop := x.link.hear()
	defer stop()
	stream, err := s.Listen(ctx)
	if err != nil {
		return x.failed(err)
	}
	defer stream.Close()
	defer context.AfterFunc(ctx, stream.Close)()
	heard := make(chan rpc.Message)
	go func() {
		defer close(heard)
		for {
			m, err := stream.Next()
			if err != nil {
				return
			}
			select {
			case heard <- m:
			case <-ctx.Done():
				return
			}
		}
	}()
	ack := rpc.Message{Method: acknowledged, Params: rpc.Object{}.With("notifications", w.value()).Value()}
	x.hear(ack, w, era.Legacy)
	for {
		select {
		case m, ok := <-heard:
			switch {
			case !ok: // what comes beside answers goes on
				heard = nil
			case m.IsRequest():
				x.g.decline(ctx, s, m)
			case m.IsNotification():
				x.hear(m, w, era.Legacy)
			}
		case m := <-beside:
			x.hear(m, w, era.Legacy)
		case <-ctx.Done():
			return x.result(rpc.Answer(rpc.ID{}, ended(x.request.ID)))
		}
	}
}
