package link

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/semaphore"

	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/upstream"
)

// absent is a server that cannot be reached.
type absent struct{ upstream.Upstream }

func (absent) Open(context.Context, upstream.Client) (upstream.Session, error) {
	return nil, &upstream.Error{NotSent: true, Detail: "away"}
}

// counting is a context that counts the functions that wait for its end.
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

// Listening to an absent server again and again leaves nothing behind.
func TestListeningToNobodyLeavesNothing(t *testing.T) {
	l := bare(absent{})
	ctx := &counting{Context: t.Context()}
	l.of.doors.Context = ctx
	for range 20 {
		e := l.startEvents(anybody)
		select {
		case <-e.over:
		case <-time.After(time.Minute):
			t.Fatal("nothing says that the server is away")
		}
	}
	l.of.doors.Close()
	if n := ctx.hang.Load(); n > 0 {
		t.Errorf("%d are left", n)
	}
}

// mad is a session whose stream panics when it is read.
type mad struct {
	upstream.Session
	closed atomic.Bool
}

var errMad = errors.New("mad")

func (m *mad) Era() era.Era { return era.Legacy }

func (m *mad) Next() (rpc.Message, error) { panic(errMad) }

func (m *mad) Close() { m.closed.Store(true) }

func (m *mad) Listen(context.Context) (upstream.Stream, error) { return m, nil }

// opens returns one session for all clients.
type opens struct {
	upstream.Upstream
	upstream.Session
}

func (o opens) Open(context.Context, upstream.Client) (upstream.Session, error) {
	return o.Session, nil
}
func (o opens) Close() error { return nil }

// refusing is a server of the modern era that refuses every subscription, after a delay.
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

// A client leaves at the moment in which the server refuses its subscription. The race detector checks this test.
func TestListenerLeavesAtTheAnswer(t *testing.T) {
	for range 50 {
		slow := make(chan struct{})
		ctx, leave := context.WithCancel(t.Context())
		l := bare(opens{Session: refusing{slow: slow}})
		go func() {
			leave()
			close(slow)
		}()
		one := l.Listener(anybody, anybody, Wants{tools: true}, false)
		_, _ = one.Join(ctx)
		one.End()
		l.close()
		l.of.doors.Close()
	}
}

// A panic in a background task ends that task, as a panic in a request does. The gateway and its other clients go on.
func TestAPanicBehindRequestsEndsThatAlone(t *testing.T) {
	l := bare(opens{Session: new(mad)})
	select {
	case <-l.startEvents(anybody).over:
	case <-time.After(time.Minute):
		t.Error("those who listen are not told")
	}
	l.of.doors.Close()
}

// A Join that begins after the client has left subscribes to nothing, even if it gets the turn.
func TestListenJoinsLate(t *testing.T) {
	l := &Listener{joining: semaphore.NewWeighted(1), stop: func() {}}
	l.End()
	if _, err := l.Join(t.Context()); err == nil || l.wanted {
		t.Errorf("it joins: %v", err)
	}
}
