package link

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/semaphore"

	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/mcp/internal/upstream"
	"policy-service/pdp/internal/mcp/internal/upstream/upstreamtest"
	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/pdptest/mcptest"
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

// A client leaves at the moment in which the server refuses its subscription. The race detector checks this test.
func TestListenerLeavesAtTheAnswer(t *testing.T) {
	for range 50 {
		slow := make(chan struct{})
		ctx, leave := context.WithCancel(t.Context())
		l := bare(upstreamtest.One{Session: upstreamtest.Refusing{Slow: slow}})
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
	l := bare(upstreamtest.One{Session: new(upstreamtest.Mad)})
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

// noting is a server of the modern era that notes what it gets, and by whose token. Its subscriptions last until they are ended.
type noting struct {
	upstreamtest.Modern
	got chan string
}

func (n noting) Send(ctx context.Context, r upstream.Request) (upstream.Stream, error) {
	n.got <- r.Method + " by " + r.Token
	says := make(chan rpc.Message, 1)
	if r.Method == "subscriptions/listen" {
		says <- rpc.Message{Method: Acknowledged}
	} else {
		says <- rpc.Answer(rpc.ID{}, jsontext.Value(`{"supportedVersions":["2026-07-28"],"capabilities":{},"ttlMs":0,"cacheScope":"private"}`))
	}
	return said{ctx, says}, nil
}

// said is a stream of messages that ends with a context.
type said struct {
	ctx  context.Context
	says chan rpc.Message
}

func (s said) Close() {}

func (s said) Next() (rpc.Message, error) {
	select {
	case m := <-s.says:
		return m, nil
	case <-s.ctx.Done():
		return rpc.Message{}, io.EOF
	}
}

// A stream that outlasts those who began it is opened again for whoever listens now: the token of the others may have ended, and
// what they may do is decided no more.
func TestStreamsAreOpenedForWhoListensNow(t *testing.T) {
	server := noting{got: make(chan string, 9)}
	l := bare(upstreamtest.One{Session: server})
	defer l.of.doors.Close()
	defer l.close()
	decided := make(chan string, 9)
	by := func(token string) Listening {
		return Listening{Who: &identity.Principal{Key: "k", Token: token}, Client: Client{Era: era.Modern}, MayOpen: func(context.Context) error {
			decided <- token
			return nil
		}}
	}
	mcptest.Must(t, l.Agrees(t.Context(), by("old"), 0))
	_, _, version, _ := l.Want([]string{"mem://a"}, true)
	mcptest.Must(t, l.Agrees(t.Context(), by("old"), version))
	l.startEvents(by("new"))
	_, _, version, _ = l.Want([]string{"mem://b"}, true)
	mcptest.Must(t, l.Agrees(t.Context(), by("new"), version))
	close(server.got)
	close(decided)
	const find, listen = "server/discover by ", "subscriptions/listen by "
	want := []string{listen + "old", find + "old", listen + "old", find + "new", listen + "new"}
	if got := drained(server.got); !slices.Equal(got, want) {
		t.Errorf("the server gets %q, not %q", got, want)
	}
	if got := drained(decided); !slices.Equal(got, []string{"old", "old", "new"}) {
		t.Errorf("it is decided about %q", got)
	}
}

func drained(c <-chan string) (all []string) {
	for one := range c {
		all = append(all, one)
	}
	return all
}

// opening is a server that counts its sessions.
type opening struct {
	upstreamtest.One
	times *atomic.Int64
}

func (o opening) Open(ctx context.Context, c upstream.Client) (upstream.Session, error) {
	o.times.Add(1)
	return o.One.Open(ctx, c)
}

// Nothing is opened by a token that has ended, and nothing merely to end subscriptions, which a server without a session does
// not have.
func TestNothingIsOpenedForNobody(t *testing.T) {
	times := new(atomic.Int64)
	l := bare(opening{upstreamtest.One{Session: noting{got: make(chan string, 9)}}, times})
	gone := anybody
	gone.Who = &identity.Principal{Key: "k", Expires: time.Now().Add(-time.Second)}
	if err := l.Agrees(t.Context(), gone, 0); !errors.Is(err, identity.ErrExpired) {
		t.Errorf("a token that has ended gives %v", err)
	}
	if n := times.Load(); n > 0 {
		t.Errorf("%d sessions are opened by it", n)
	}
	l.Want([]string{"mem://a"}, true)
	l.unwant(anybody, []string{"mem://a"})
	l.of.doors.Close()
	if n := times.Load(); n > 0 {
		t.Errorf("%d sessions are opened to end a subscription", n)
	}
}
