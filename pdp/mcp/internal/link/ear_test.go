package link

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/turn"
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

// Listening to a server that is away, again and again, leaves nothing behind.
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

// A panic in the background ends that, as one of a request does, and not the gateway with all its clients.
func TestAPanicBehindRequestsEndsThatAlone(t *testing.T) {
	l := bare(opens{Session: new(mad)})
	select {
	case <-l.startEvents(anybody).over:
	case <-time.After(time.Minute):
		t.Error("those who listen are not told")
	}
	l.of.doors.Close()
}

// Who begins to join once the client has gone wants nothing, though the turn is theirs.
func TestListenJoinsLate(t *testing.T) {
	l := &Listener{joining: turn.New(), stop: func() {}}
	l.End()
	if _, err := l.Join(t.Context()); err == nil || l.wanted {
		t.Errorf("it joins: %v", err)
	}
}
