package flow

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/mcp/internal/answer"
	"policy-service/pdp/internal/mcp/internal/ask"
	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/link"
	"policy-service/pdp/internal/mcp/internal/rates"
	"policy-service/pdp/internal/mcp/internal/reply"
	"policy-service/pdp/internal/mcp/internal/upstream"
	"policy-service/pdp/internal/rpc"
)

// Messages that a server sends outside of requests reach clients of the legacy era on a stream that the client opens (GET), and
// clients of the modern era on a request that stays open and names the kinds of message (subscriptions/listen).

// Stream sends the client the messages of servers and of the gateway, until ctx ends, if the PDP permits that.
func (g *Flow) Stream(ctx context.Context, c Call) (refused *answer.Answer) {
	c.g, c.cleanups = g, &cleanups{}
	defer c.cleanups.run()
	ctx = g.billed(ctx, c.Who)
	x, refused := exchange{Target: Target{Call: &c, link: c.Reach.Only()}}.ask(ctx, ask.Answered{})
	if refused != nil {
		x.noteRefusal(refused)
		return refused
	}
	x.relayStream(ctx)
	return nil
}

// Relay sends the client the messages of servers and of the gateway, until ctx ends. The caller must have made sure that the
// client may listen.
func (g *Flow) Relay(ctx context.Context, c Call) {
	c.g, c.cleanups = g, &cleanups{}
	defer c.cleanups.run()
	exchange{Target: Target{Call: &c, link: c.Reach.Only()}}.relayStream(ctx)
}

func (x exchange) relayStream(ctx context.Context) {
	said := map[*link.Link]<-chan link.Notification{}
	for _, l := range x.Reach.Links { // before the client knows of its stream, so that it misses no message from then on
		var stop func()
		said[l], stop = l.Receive(x.forLink(l).answerServer)
		x.cleanups.add(stop)
	}
	defer x.g.people.Listeners.Listen(ctx, x.Who, x.Client, rpc.ID{}, x.Reply)()
	_ = x.Reply.Alive()
	defer reply.KeepAlive(x.Reply)()
	ctx, end := x.g.doors.Within(ctx)
	defer end()
	x.forEachLink(func(l *link.Link) {
		l.RelayNotifications(ctx, x.forLink(l).listening(), said[l], func(m link.Notification) {
			_ = x.Reply.Interim(era.Notification(m.Message, m.From, era.Legacy, rpc.ID{}))
		})
	})
}

// listening is the client as a listener to the server, apart from any request: its rights are decided anew.
func (x exchange) listening() link.Listening {
	y := exchange{Target: Target{Call: &Call{g: x.g, Who: x.Who, Client: x.Client.Kept(), Reach: x.Reach, Session: x.Session}, link: x.link}}
	return link.Listening{Who: x.Who, Client: y.Client, MayOpen: y.mayOpen}
}

// answerServer answers a request of the server that belongs to no request of the client.
func (x Target) answerServer(ctx context.Context, session upstream.Session, m rpc.Message) {
	shown, no := link.Shown(x.link.Server, m, x.Client.Capabilities)
	var done func()
	if no == nil {
		var ok bool
		if done, ok = x.link.MayAsk(); !ok {
			no = &link.Unasked{Why: "the client is asked too much already"}
		}
	}
	if no != nil {
		x.link.NotPassed(ctx, session, m, x.Client.Era, no)
		return
	}
	x.g.doors.Background(func() { // the stream goes on meanwhile
		defer done()
		answer := x.askClient(ctx, shown)
		answer.ID = m.ID
		_ = session.Notify(ctx, answer)
	})
}

// listen answers subscriptions/listen of a client of the modern era. The response comes when the server ends the stream. With
// several servers, none of them ends the stream for the others.
func (x exchange) listen(ctx context.Context) *answer.Answer {
	x.Reply.Stream()
	ctx, done := x.g.doors.Until(ctx)
	defer done()
	w, authz := link.WantsOf(x.Params), wantsAuthorizations(x.Params)
	all := map[*link.Link]*link.Listener{}
	if !authz || !w.None() { // authorizations come from the gateway, so no server is asked for them
		for _, l := range x.Reach.Links {
			y := x.forLink(l)
			all[l] = l.Listener(link.Listening{Who: x.Who, Client: x.Client, MayOpen: y.mayOpen}, y.listening(), w, authz || x.g.servers.Several())
			defer all[l].End()
		}
	}
	joining, enough := context.WithCancel(ctx)
	defer enough()
	agreed, err := x.join(joining, all, w, authz)
	if err != nil {
		return x.failed(err)
	}
	filter := agreed.Object()
	if authz {
		filter = filter.With(era.Authorizations, jsontext.Value("true"))
	}
	ack := rpc.Message{Method: link.Acknowledged, Params: rpc.Object{}.With("notifications", filter.Value()).Value()}
	_ = x.Reply.Interim(era.Notification(ack, era.Modern, era.Modern, x.Request.ID))
	if authz {
		defer x.g.people.Listeners.Listen(ctx, x.Who, x.Client, x.Request.ID, x.Reply)()
	}
	if len(all) > 0 {
		x.forEachLink(func(l *link.Link) {
			all[l].Relay(ctx, agreed, func(m link.Notification) {
				_ = x.Reply.Interim(era.Notification(m.Message, m.From, era.Modern, x.Request.ID))
			})
		})
	}
	if authz {
		<-ctx.Done()
	}
	ended := rpc.Object{}.With("resultType", rpc.String("complete")).
		With("_meta", rpc.Object{}.With(era.MetaSubscription, x.Request.ID.Text()).Value())
	return x.result(rpc.Answer(rpc.ID{}, ended.Value()))
}

// join subscribes to the wanted messages at the servers, and returns the kinds of message that they agree to.
func (x exchange) join(ctx context.Context, all map[*link.Link]*link.Listener, w link.Wants, authz bool) (agreed link.Wants, err error) {
	if x.link == nil && len(all) > 0 { // a list also changes when a server comes back
		agreed = w.Lists()
	}
	if authz {
		came, err := x.joinBriefly(ctx, all, w.Lists())
		return agreed.Or(came), err
	}
	came, err := succeeded(each(ctx, x, func(ctx context.Context, x exchange) (link.Wants, error) { return all[x.link].Join(ctx) }))
	for _, p := range came {
		agreed = agreed.Or(p.value)
	}
	return agreed, err
}

// forEachLink calls a function for each link, for all of them at once, and waits for all of them.
func (x Target) forEachLink(do func(*link.Link)) {
	if x.link != nil {
		do(x.link)
		return
	}
	var all sync.WaitGroup
	for _, l := range x.Reach.Links {
		all.Add(1)
		if !x.g.doors.Background(func() { defer all.Done(); do(l) }) {
			all.Done()
		}
	}
	all.Wait()
}

// wantsAuthorizations reports whether the filter of a client has the member named like the extension.
func wantsAuthorizations(params rpc.Object) bool {
	filter, _ := rpc.ParseObject(params.Get("notifications"))
	return filter.Get(era.Authorizations).Kind() == 't'
}

// joinBriefly subscribes at the servers for a client that listens to the gateway in any case, and waits only a moment. A server
// that is away, or that has no such messages, is asked again later. Its lists are agreed to already, because it may announce
// them then.
func (x exchange) joinBriefly(ctx context.Context, all map[*link.Link]*link.Listener, lists link.Wants) (agreed link.Wants, err error) {
	came := make(chan part[link.Wants], len(all))
	for _, one := range all {
		if !x.g.doors.Background(func() {
			agreed, err := one.Rejoin(ctx)
			came <- part[link.Wants]{value: agreed, err: err}
		}) {
			came <- part[link.Wants]{err: link.ErrClosed}
		}
	}
	late := time.NewTimer(link.Glance)
	defer late.Stop()
	for range all {
		select {
		case p := <-came:
			if no, ok := p.err.(*answer.Answer); ok && no.OfKind(answer.InvalidParams) {
				return agreed, no
			}
			if agreed = agreed.Or(p.value); p.err != nil {
				agreed = agreed.Or(lists)
			}
		case <-late.C:
			return agreed.Or(lists), nil
		case <-ctx.Done():
			return agreed, nil
		}
	}
	return agreed, nil
}

// remember takes a setting that a client of the legacy era sends once, and that a server of the modern era needs with each
// request.
func (x exchange) remember(ctx context.Context) *answer.Answer {
	switch err := x.mayOpen(ctx); err {
	case nil:
	case link.ErrForbidden:
		x.link.SetLevel(x.Params.GetString("level"))
		return x.result(rpc.Answer(rpc.ID{}, jsontext.Value(`{}`)))
	default:
		return x.failed(err)
	}
	s, err := x.link.Opened(ctx, x.Who)
	if err != nil {
		return x.failed(err)
	}
	uri, on := x.Params.GetString("uri"), x.Request.Method == "resources/subscribe"
	changes := x.link.Wanted(uri) != on
	if s.Era() == era.Legacy {
		begins := on && changes
		if begins { // before the server knows of it, because it may report a change before it answers
			if _, _, _, ok := x.link.Want([]string{uri}, true); !ok {
				return tooManyResources()
			}
		}
		answer := x.call(ctx)
		switch {
		case answer.Message.Error == nil:
			x.link.Note(x.Request.Method, x.Params)
		case begins:
			x.link.Want([]string{uri}, false)
		}
		return answer
	}
	switch {
	case x.Request.Method == "logging/setLevel":
		x.link.SetLevel(x.Params.GetString("level"))
	case uri == "":
		return answer.Invalid("uri is missing")
	case changes:
		_, _, version, ok := x.link.Want([]string{uri}, on)
		if !ok {
			return tooManyResources()
		}
		if err := x.link.Agrees(ctx, x.listening(), version); err != nil {
			if on {
				x.link.Want([]string{uri}, false)
			}
			return x.failed(err)
		}
	}
	return x.result(rpc.Answer(rpc.ID{}, jsontext.Value(`{}`)))
}

func tooManyResources() *answer.Answer {
	return answer.Invalid("too many resources; unsubscribe from some")
}

func (x exchange) setLevel(ctx context.Context) *answer.Answer {
	level := x.Params.GetString("level")
	if !slices.Contains(era.LogLevels, level) {
		return answer.Invalid("level is none of " + strings.Join(era.LogLevels, ", "))
	}
	if x.link != nil {
		return x.remember(ctx)
	}
	_, err := succeeded(each(ctx, x, func(ctx context.Context, x exchange) (none, error) {
		defer x.link.SetLevel(level) // a session that opens later gets the level
		if err := x.mayOpen(ctx); err != nil {
			return none{}, err
		}
		s, err := x.link.Opened(ctx, x.Who)
		if err != nil || s.Era() == era.Modern || !link.Offers(s, "logging") {
			return none{}, err
		}
		response, err := x.forward(ctx, x.Params, nil)
		if err == nil && response.Error != nil {
			err = answer.Of(response.Message)
		}
		return none{}, err
	}))
	if err != nil {
		return x.failed(err)
	}
	return x.result(rpc.Answer(rpc.ID{}, jsontext.Value(`{}`)))
}

// setServerLog sets the log level that the client wants for this request, at a server of the legacy era, which takes the level
// once for a whole session. The server then logs at that level for other requests, too: see wantsLog.
func (x Target) setServerLog(ctx context.Context) error {
	if x.Client.Era == era.Legacy || x.Client.LogLevel == "" {
		return nil
	}
	s, err := x.link.Open(ctx, x.Who)
	if err != nil || s.Era() == era.Modern || !x.link.NeedsLevel(s, x.Client.LogLevel) {
		return err
	}
	params := rpc.Object{}.With("level", rpc.String(x.Client.LogLevel))
	op := ask.Operation{Principal: x.Who, Era: era.Legacy, Method: "logging/setLevel", Params: params, Server: x.link.Server.Name}
	permit, refused := x.g.o.Asker.Ask(ctx, op)
	if refused != nil { // the request goes on: it was decided about separately
		x.link.Server.Dropped("level of the log that is denied")
		return nil
	}
	defer permit.Done(context.WithoutCancel(ctx))
	if _, _, err = x.link.Request(ctx, x.Who, x.Client, "logging/setLevel", params); err == nil {
		x.link.SetSessionLevel(s, x.Client.LogLevel)
	}
	return err
}

func (x *Call) wantsLog(m rpc.Message) bool {
	if x.Client.Era == era.Legacy {
		return true
	}
	params, _ := rpc.ParseObject(m.Params)
	wanted := slices.Index(era.LogLevels, x.Client.LogLevel)
	return wanted >= 0 && slices.Index(era.LogLevels, params.GetString("level")) >= wanted
}

// Notified forwards a notification of a client.
func (g *Flow) Notified(ctx context.Context, c Call) {
	c.g, c.cleanups = g, &cleanups{}
	defer c.cleanups.run()
	ctx = g.billed(ctx, c.Who)
	x := exchange{Target: Target{Call: &c, link: c.Reach.Only()}}
	switch {
	case x.Request.Method == rootsChanged:
		each(ctx, x, func(ctx context.Context, x exchange) (none, error) {
			if !x.link.Server.Asks.May["roots"] {
				return none{}, nil
			}
			if session := x.notifySession(); session != nil {
				x.sendNotification(ctx, session, rootsChanged, rpc.Object{})
			}
			return none{}, nil
		})
	case g.o.Asker.Maps(x.Request.Method):
		x.passMapped(ctx)
	default:
		g.o.Meters.Drop("notification of a client")
	}
}

// passMapped forwards a notification that the operator has a mapping for, if the PDP permits it.
func (x exchange) passMapped(ctx context.Context) {
	if x.link == nil {
		x.g.o.Meters.Drop("notification for one of several servers")
		return
	}
	session := x.notifySession()
	if session == nil { // no server takes the notification, so the PDP is not asked
		return
	}
	if _, refused := x.ask(ctx, ask.Answered{}); refused != nil {
		x.noteRefusal(refused)
		x.link.Server.Dropped("notification that is denied")
		return
	}
	x.sendNotification(ctx, session, x.Request.Method, x.Params)
}

// notifySession is the session that takes a notification of the client. It opens no session: the PDP was not asked whether the
// client may have one.
func (x Target) notifySession() upstream.Session {
	session, _ := x.link.Current()
	if session == nil || session.Era() != era.Legacy {
		x.link.Server.Dropped("notification of a client")
		return nil
	}
	return session
}

func (x Target) sendNotification(ctx context.Context, session upstream.Session, method string, params rpc.Object) {
	rates.BillOf(ctx).Relay()
	if err := session.Notify(ctx, rpc.Message{Method: method, Params: x.outgoing(ctx, session, params).Params()}); err != nil {
		x.g.o.Logger.Warn("a notification did not reach the server", slog.Group("", "server", x.link.Server.Name), "why", err)
	}
}

const rootsChanged = "notifications/roots/list_changed"
