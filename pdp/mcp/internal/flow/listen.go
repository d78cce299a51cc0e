package flow

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/answer"
	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/link"
	"policy-service/pdp/mcp/internal/reply"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/upstream"
)

// What a server says by itself reaches clients of the legacy era by a stream that they open (GET), and clients of the modern
// era by a request that stays open and names what it wants to hear (subscriptions/listen).

// Stream sends the client what servers and the gateway say, until ctx ends, if the PDP permits that.
func (g *Flow) Stream(ctx context.Context, c Call) (refused *answer.Answer) {
	c.g, c.holds = g, &holds{}
	defer c.holds.end()
	x, refused := exchange{Target: Target{Call: &c, link: c.Reach.Only()}}.ask(ctx, ask.Answered{})
	if refused != nil {
		x.note(refused)
		return refused
	}
	x.relays(ctx)
	return nil
}

// Relay sends the client what servers and the gateway say, until ctx ends. The caller has made sure that the client may listen.
func (g *Flow) Relay(ctx context.Context, c Call) {
	c.g = g
	exchange{Target: Target{Call: &c, link: c.Reach.Only()}}.relays(ctx)
}

func (x exchange) relays(ctx context.Context) {
	heard, stop := x.heard() // before the client knows of its stream: what is said from then on is not missed
	defer stop()
	_ = x.Reply.Alive()
	defer reply.KeepAlive(x.Reply)()
	defer x.g.people.Listeners.Listen(ctx, x.Who, x.Client, rpc.ID{}, x.Reply)()
	x.hearAll(ctx, heard)
}

// heard is what each server says by itself from now on, until stop is called.
func (x exchange) heard() (all map[*link.Link]<-chan link.Said, stop func()) {
	all = map[*link.Link]<-chan link.Said{}
	var stops []func()
	for _, l := range x.Reach.Links {
		heard, stop := l.Hear(x.at(l).answerBeside)
		all[l], stops = heard, append(stops, stop)
	}
	return all, func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// hearAll relays what all servers say until the client goes.
func (x exchange) hearAll(ctx context.Context, heard map[*link.Link]<-chan link.Said) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(x.g.doors.Context, cancel)()
	x.beside(func(l *link.Link) {
		l.RelayHeard(ctx, x.at(l).listening(), heard[l], func(m link.Said) {
			_ = x.Reply.Interim(era.Notification(m.Message, m.From, era.Legacy, rpc.ID{}))
		})
	})
}

// listening is the client as it listens to the server, by no request: what it may then is decided anew.
func (x exchange) listening() link.Listening {
	y := exchange{Target: Target{Call: &Call{g: x.g, Who: x.Who, Client: x.Client.Kept(), Reach: x.Reach, Session: x.Session}, link: x.link}}
	return link.Listening{Who: x.Who, Client: y.Client, MayOpen: y.mayOpen}
}

// answerBeside has a request of the server answered that belongs to no request of the client's.
func (x Target) answerBeside(ctx context.Context, session upstream.Session, m rpc.Message) {
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
		answer := x.asks(ctx, shown)
		answer.ID = m.ID
		_ = session.Notify(ctx, answer)
	})
}

// listen answers subscriptions/listen of a client of the modern era. The response comes when the server ends the stream; of
// several servers none ends it for the others.
func (x exchange) listen(ctx context.Context) *answer.Answer {
	x.Reply.Stream()
	ctx, done := x.g.doors.Until(ctx)
	defer done()
	w, ours := link.WantsOf(x.Params), wantsAuthorizations(x.Params)
	all := map[*link.Link]*link.Listener{}
	if !ours || !w.None() { // no server is asked for what is ours
		for _, l := range x.Reach.Links {
			y := x.at(l)
			all[l] = l.Listener(link.Listening{Who: x.Who, Client: x.Client, MayOpen: y.mayOpen}, y.listening(), w, ours || x.g.several())
			defer all[l].End()
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
		defer x.g.people.Listeners.Listen(ctx, x.Who, x.Client, x.Request.ID, x.Reply)()
	}
	if len(all) > 0 {
		x.beside(func(l *link.Link) {
			all[l].Relay(ctx, agreed, func(m link.Said) {
				_ = x.Reply.Interim(era.Notification(m.Message, m.From, era.Modern, x.Request.ID))
			})
		})
	}
	if ours {
		<-ctx.Done()
	}
	return x.result(rpc.Answer(rpc.ID{}, ended(x.Request.ID)))
}

// join has servers tell what is wanted, and says of what they do.
func (x exchange) join(ctx context.Context, all map[*link.Link]*link.Listener, w link.Wants, ours bool) (agreed link.Wants, err error) {
	if x.link == nil && len(all) > 0 { // lists change also if a server is back
		agreed = w.Lists()
	}
	if ours {
		came, err := x.joinBeside(ctx, all, w.Lists())
		return agreed.Or(came), err
	}
	came, err := there(each(ctx, x, func(ctx context.Context, x exchange) (link.Wants, error) { return all[x.link].Join(ctx) }))
	for _, p := range came {
		agreed = agreed.Or(p.value)
	}
	return agreed, err
}

// beside does something for each link, for all of them at once, and waits for it.
func (x Target) beside(do func(*link.Link)) {
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

// ended is the result of a listener whose stream the server has ended.
func ended(id rpc.ID) jsontext.Value {
	meta := rpc.Object{}.With(era.MetaSubscription, id.Text())
	return rpc.Object{}.With("resultType", rpc.String("complete")).With("_meta", meta.Value()).Value()
}

// wantsAuthorizations reports whether the filter of a client has that member, which is called as the extension is.
func wantsAuthorizations(params rpc.Object) bool {
	filter, _ := rpc.ParseObject(params.Get("notifications"))
	return filter.Get(era.Authorizations).Kind() == 't'
}

// acknowledge tells a client of the modern era what it is told from now on.
func acknowledge(x exchange, agreed link.Wants, ours bool) {
	filter := agreed.Object()
	if ours {
		filter = filter.With(era.Authorizations, jsontext.Value("true"))
	}
	ack := rpc.Message{Method: link.Acknowledged, Params: rpc.Object{}.With("notifications", filter.Value()).Value()}
	_ = x.Reply.Interim(era.Notification(ack, era.Modern, era.Modern, x.Request.ID))
}

// joinBeside has servers tell a client that listens to the gateway in any case, and waits but a moment for those that take their
// time: one that is away, or has nothing to tell of, is asked again later. Lists it may tell of then.
func (x exchange) joinBeside(ctx context.Context, all map[*link.Link]*link.Listener, lists link.Wants) (agreed link.Wants, err error) {
	type part struct {
		agreed link.Wants
		err    error
	}
	came := make(chan part, len(all))
	for _, one := range all {
		if !x.g.doors.Background(func() {
			agreed, err := one.Again(ctx)
			came <- part{agreed, err}
		}) {
			came <- part{err: link.ErrClosed}
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
			if agreed = agreed.Or(p.agreed); p.err != nil {
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

// remember takes what a client of the legacy era says once, and a server of the modern era wants said with each request.
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
	if s.Era() == era.Legacy {
		answer := x.call(ctx)
		if answer.Message.Error == nil {
			x.link.Note(x.Request.Method, x.Params)
		}
		return answer
	}
	switch x.Request.Method {
	case "logging/setLevel":
		x.link.SetLevel(x.Params.GetString("level"))
	default:
		uri := x.Params.GetString("uri")
		if uri == "" {
			return answer.Invalid("uri is missing")
		}
		on := x.Request.Method == "resources/subscribe"
		if x.link.Wanted(uri) == on {
			break
		}
		_, _, version, ok := x.link.Want([]string{uri}, on)
		if !ok {
			return answer.Invalid("too many resources; unsubscribe from some")
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

// setLevel tells all servers how much of their logs the client wants.
func (x exchange) setLevel(ctx context.Context) *answer.Answer {
	level := x.Params.GetString("level")
	if !slices.Contains(link.LogLevels, level) {
		return answer.Invalid("level is none of " + strings.Join(link.LogLevels, ", "))
	}
	if x.link != nil {
		return x.remember(ctx)
	}
	_, err := there(each(ctx, x, func(ctx context.Context, x exchange) (none, error) {
		defer x.link.SetLevel(level) // which a session that is opened later is told
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

// logs has a server of the legacy era, which is told once, say what the client wants of its log with this request. It says
// it with others', too: see wantsLog.
func (x Target) logs(ctx context.Context) error {
	if x.Client.Era == era.Legacy || x.Client.LogLevel == "" {
		return nil
	}
	s, err := x.link.Open(ctx, x.Who)
	if err != nil || s.Era() == era.Modern || !x.link.SaysLess(s, x.Client.LogLevel) {
		return err
	}
	params := rpc.Object{}.With("level", rpc.String(x.Client.LogLevel))
	op := ask.Operation{Principal: x.Who, Era: era.Legacy, Method: "logging/setLevel", Params: params, Server: x.link.Server.Name}
	permit, refused := x.g.o.Asker.Ask(ctx, op)
	if refused != nil { // the request goes on without: it was decided about by itself
		x.link.Server.Dropped("level of the log that is denied")
		return nil
	}
	defer permit.Done(context.WithoutCancel(ctx))
	if _, _, err = x.link.Request(ctx, x.Who, x.Client, "logging/setLevel", params); err == nil {
		x.link.Says(s, x.Client.LogLevel)
	}
	return err
}

// wantsLog reports whether the client wants a message of the server's log.
func (x *Call) wantsLog(m rpc.Message) bool {
	if x.Client.Era == era.Legacy {
		return true
	}
	params, _ := rpc.ParseObject(m.Params)
	wanted := slices.Index(link.LogLevels, x.Client.LogLevel)
	return wanted >= 0 && slices.Index(link.LogLevels, params.GetString("level")) >= wanted
}

// Notified hands on a notification of a client.
func (g *Flow) Notified(ctx context.Context, c Call) {
	c.g, c.holds = g, &holds{}
	defer c.holds.end()
	x := exchange{Target: Target{Call: &c, link: c.Reach.Only()}}
	switch {
	case x.Request.Method == rootsChanged:
		each(ctx, x, func(ctx context.Context, x exchange) (none, error) {
			if !x.link.Server.Asks.Roots {
				return none{}, nil
			}
			if session := x.notifiable(); session != nil {
				x.pass(ctx, session, rootsChanged, rpc.Object{})
			}
			return none{}, nil
		})
	case g.o.Asker.Maps(x.Request.Method):
		x.passMapped(ctx)
	default:
		g.o.Meters.Drop("notification of a client")
	}
}

// passMapped hands on a notification that the operator has a mapping for, if the PDP permits it.
func (x exchange) passMapped(ctx context.Context) {
	if x.link == nil {
		x.g.o.Meters.Drop("notification for one of several servers")
		return
	}
	session := x.notifiable()
	if session == nil { // a notification that no server takes is not asked about
		return
	}
	if _, refused := x.ask(ctx, ask.Answered{}); refused != nil {
		x.note(refused)
		x.link.Server.Dropped("notification that is denied")
		return
	}
	x.pass(ctx, session, x.Request.Method, x.Params)
}

// notifiable is the session that takes a notification of the client. None is begun for it: the PDP was not asked whether the
// client may have one.
func (x Target) notifiable() upstream.Session {
	session, _ := x.link.Current()
	if session == nil || session.Era() != era.Legacy {
		x.link.Server.Dropped("notification of a client")
		return nil
	}
	return session
}

// pass hands on a notification.
func (x Target) pass(ctx context.Context, session upstream.Session, method string, params rpc.Object) {
	if err := session.Notify(ctx, rpc.Message{Method: method, Params: x.outgoing(ctx, session, params).Params()}); err != nil {
		x.g.o.Logger.Warn("a notification did not reach the server", "server", x.link.Server.Name, "why", err)
	}
}

const rootsChanged = "notifications/roots/list_changed"
