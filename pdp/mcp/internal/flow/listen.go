package flow

import (
	"context"
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

// Stream relays what servers and the gateway say until the client goes, if the PDP permits it.
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

// Relay relays what servers and the gateway say until the client goes, which may listen.
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

// Lasting notes that somebody listens, until end is called. It is not ok if that principal listens to as many streams as it
// may: whoever listens is in nobody's way but of those who want to listen, too.
func (g *Flow) Lasting(principal string) (end func(), ok bool) {
	return g.o.Rates.Hold(principal, Streams)
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
	defer context.AfterFunc(x.g.Context, cancel)()
	x.beside(func(l *link.Link) {
		l.RelayHeard(ctx, x.at(l).listening(), heard[l], func(m link.Said) {
			_ = x.Reply.Interim(era.Notification(m.Message, m.From, era.Legacy, rpc.ID{}))
		})
	})
}

// listening is the client as it listens to the server, by no request: what it may then is decided anew.
func (x exchange) listening() link.Listening {
	y := exchange{Target: Target{Call: &Call{g: x.g, Who: x.Who, Client: x.Client.Kept(), Reach: x.Reach, Session: x.Session}, link: x.link}}
	return link.Listening{Who: x.Who, Client: x.Client, MayOpen: y.mayOpen}
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
	x.g.Background(func() { // the stream goes on meanwhile
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
	ctx, done := x.g.Until(ctx)
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
		if !x.g.Background(func() { defer all.Done(); do(l) }) {
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
		if !x.g.Background(func() {
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
			if no, ok := p.err.(*answer.Answer); ok && no.Is(answer.InvalidParams) {
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
