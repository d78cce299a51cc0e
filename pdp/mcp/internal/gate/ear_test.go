package gate

import (
	"context"
	"errors"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/mcp/internal/reply"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/upstream"
)

// absent is a server that cannot be reached.
type absent struct{ upstream.Upstream }

func (absent) Open(context.Context, upstream.Client) (upstream.Session, error) {
	return nil, &upstream.Error{NotSent: true, Detail: "away"}
}

// counting is a context that counts what hangs on it.
type counting struct {
	context.Context
	hang atomic.Int64
}

func (c *counting) Value(any) any { return nil }

func (c *counting) AfterFunc(f func()) (stop func() bool) {
	c.hang.Add(1)
	off := context.AfterFunc(c.Context, f)
	return func() bool {
		c.hang.Add(-1)
		return off()
	}
}

// Who listens to a server that is away, again and again, leaves nothing behind.
func TestListeningToNobodyLeavesNothing(t *testing.T) {
	g := bareGateway(absent{})
	ctx := &counting{Context: t.Context()}
	g.ctx = ctx
	x := exchange{Target: Target{Call: &Call{g: g, who: &identity.Principal{Key: "k"}}, link: newLink(g.o.Servers[0], "k", client{})}}
	for range 20 {
		e := x.link.attend(x)
		select {
		case <-e.over:
		case <-time.After(time.Minute):
			t.Fatal("nobody says that the server is away")
		}
	}
	g.running.Wait()
	if n := ctx.hang.Load(); n > 0 {
		t.Errorf("%d are left", n)
	}
}

// mad is a server's session whose stream nobody can read without a panic.
type mad struct {
	upstream.Session
	closed atomic.Bool
}

var errMad = errors.New("mad")

func (m *mad) Era() era.Era { return era.Legacy }

func (m *mad) Next() (rpc.Message, error) { panic(errMad) }

func (m *mad) Close() { m.closed.Store(true) }

func (m *mad) Listen(context.Context) (upstream.Stream, error) { return m, nil }

// A request that panics gives up what it waits for.
func TestAPanicGivesUpTheStream(t *testing.T) {
	m := &mad{}
	r := &relay{exchange: exchange{}, session: m, stream: m, cancel: func() {}}
	func() {
		defer func() {
			if recover() != errMad {
				t.Error("nobody has panicked")
			}
		}()
		_, _ = r.run(t.Context())
	}()
	if !m.closed.Load() {
		t.Error("the stream is open")
	}
}

// opens has one session.
type opens struct {
	upstream.Upstream
	upstream.Session
}

func (o opens) Open(context.Context, upstream.Client) (upstream.Session, error) {
	return o.Session, nil
}
func (o opens) Close() error { return nil }

// refusing is a server of the modern era that tells nobody of anything, and takes its time to say so.
type refusing struct {
	upstream.Session
	slow chan struct{}
}

func (r refusing) Close()                 {}
func (r refusing) Era() era.Era           { return era.Modern }
func (r refusing) Server() jsontext.Value { return jsontext.Value(`{}`) }

func (r refusing) Send(context.Context, upstream.Request) (upstream.Stream, error) { return r, nil }

func (r refusing) Next() (rpc.Message, error) {
	<-r.slow
	return rpc.Failure(rpc.ID{}, rpc.Error{Code: -32000, Message: "no"}), nil
}

// A client goes in the moment in which the server refuses to tell it anything. (What goes wrong, the race detector tells.)
func TestListenerLeavesAtTheAnswer(t *testing.T) {
	for range 50 {
		slow := make(chan struct{})
		g := bareGateway(opens{Session: refusing{slow: slow}})
		g.drain.ctx = t.Context()
		ctx, leave := context.WithCancel(t.Context())
		l := newLink(g.o.Servers[0], "k", client{})
		c := &Call{g: g, who: &identity.Principal{Key: "k"}, reach: &reach{links: []*link{l}}, reply: reply.Over(httptest.NewRecorder(), false, false)}
		c.client.era, c.request.Method = era.Modern, "subscriptions/listen"
		x := exchange{Target: Target{Call: c, link: l}, permit: &ask.Permit{}}
		go func() {
			leave()
			close(slow)
		}()
		x.listen(ctx)
		x.link.close()
		g.running.Wait()
	}
}

// A panic of what nobody waits for ends that, as one of a request does, and not the gateway with all its clients.
func TestAPanicBehindRequestsEndsThatAlone(t *testing.T) {
	g := bareGateway(opens{Session: new(mad)})
	x := exchange{Target: Target{Call: &Call{g: g, who: &identity.Principal{Key: "k"}}, link: newLink(g.o.Servers[0], "k", client{})}}
	select {
	case <-x.link.attend(x).over:
	case <-time.After(time.Minute):
		t.Error("those who listen are not told")
	}
	g.running.Wait()
}

// Who gives up an unsubscription takes no subscription away that came after it.
func TestAnUnsubscriptionThatFailsTakesNothingMore(t *testing.T) {
	g := bareGateway(nil)
	l := newLink(g.o.Servers[0], "k", client{})
	l.session = refusing{}
	l.ear = &ear{link: l, over: make(chan struct{}), step: make(chan struct{}), settled: -1} // of a server that takes its time
	const uri = "file:///a"
	l.want([]string{uri}, true)
	_, _, changed := l.subscribed()
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	over := make(chan rpc.Message, 1)
	go func() {
		c := &Call{g: g, who: &identity.Principal{Key: "k"}, params: rpc.Object{}.With("uri", rpc.String(uri))}
		c.request.Method = "resources/unsubscribe"
		x := exchange{Target: Target{Call: c, link: l}}
		m := x.remember(ctx).Message
		over <- m
	}()
	<-changed
	l.want([]string{uri}, true) // the client subscribes again, and then gives up
	giveUp()
	if m := <-over; m.Error == nil {
		t.Error("what was given up went well")
	}
	if !l.wanted(uri) {
		t.Error("the subscription is gone")
	}
}
