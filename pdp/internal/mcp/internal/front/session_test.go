package front

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/mcp/internal/doors"
	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/mcp/internal/link"
	"policy-service/pdp/internal/mcp/internal/upstream"
	"policy-service/pdp/internal/mcp/internal/upstream/upstreamtest"
	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/internal/seal"
	"policy-service/pdp/pdptest/mcptest"
)

// bare is a front with what sessions need.
func bare(u upstream.Upstream) *Front {
	log := slog.New(slog.DiscardHandler)
	d := doors.New(log)
	servers := link.New(d, link.Options{All: []*link.Server{{Upstream: u, Dropped: func(string) {}, URIs: []string{""}}}, Logger: log, Now: time.Now})
	return New(d, nil, nil, servers, Options{SessionsEach: 64, Ring: seal.Fresh(seal.Options{Resource: "r"}), Now: time.Now, Logger: log})
}

// Requests that come at once with the id of a session that this process has not seen all find the same one: of another,
// nobody would ever end what it holds.
func TestOneSessionOfOneID(t *testing.T) {
	g, who := bare(upstreamtest.One{}), &identity.Principal{Key: "k"}
	for range 2000 {
		made, err := g.sessions.make(who, link.Client{Era: era.Legacy})
		mcptest.Must(t, err)
		var all sync.WaitGroup
		var mu sync.Mutex
		found := map[*session]bool{}
		begin := make(chan struct{})
		for range 8 {
			all.Go(func() {
				<-begin
				s := g.sessions.find(made.ID, who)
				mu.Lock()
				defer mu.Unlock()
				found[s] = true
			})
		}
		close(begin)
		all.Wait()
		if len(found) != 1 || found[nil] {
			t.Fatalf("%d sessions of one id", len(found))
		}
	}
}

// together are sessions of a server that does not let one go before several want to.
type together struct {
	t *testing.T
	upstreamtest.Modern
	leaving *sync.WaitGroup
	gone    chan struct{}
}

func (s together) Close() {
	s.leaving.Done()
	select {
	case <-s.gone:
	case <-time.After(time.Minute):
		s.t.Error("one waits for the other")
	}
}

// Sessions that nobody uses are not ended one after the other: a server may take its time to answer that they are over, and
// meanwhile nothing else is looked after, and nobody can stop the gateway.
func TestIdleSessionsEndTogether(t *testing.T) {
	var leaving sync.WaitGroup
	gone := make(chan struct{})
	g, who := bare(upstreamtest.One{Session: together{t: t, leaving: &leaving, gone: gone}}), &identity.Principal{Key: "k"}
	open := func(r *link.Reach) {
		if _, err := r.Only().Open(t.Context(), who); err != nil {
			t.Fatal(err)
		}
	}
	for range 8 {
		leaving.Add(2)
		s, err := g.sessions.make(who, link.Client{Era: era.Legacy})
		mcptest.Must(t, err)
		open(s.reach)
		g.sessions.add(s)
		r, done, _ := g.reaches.take(who, link.Client{Era: era.Modern, Info: rpc.String(s.ID)})
		open(r)
		done()
	}
	go func() {
		leaving.Wait()
		close(gone)
	}()
	g.Sweep(t.Context(), time.Now().Add(time.Hour))
}

// toolless is a session with a server without tools, and the stream of each of its answers.
type toolless struct{ upstreamtest.Modern }

func (s toolless) Send(context.Context, upstream.Request) (upstream.Stream, error) { return s, nil }

func (toolless) Next() (rpc.Message, error) {
	return rpc.Answer(rpc.ID{}, jsontext.Value(`{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[]}`)), nil
}

// Old lists of tools are dropped, of clients of both eras, also while the client stays.
func TestOldListsGo(t *testing.T) {
	g, who := bare(upstreamtest.One{Session: toolless{}}), &identity.Principal{Key: "k"}
	list := func(r *link.Reach) weak.Pointer[link.Listing] {
		listed, err := r.Only().Listed(t.Context(), who, link.Client{Era: era.Modern})
		mcptest.Must(t, err)
		return weak.Make(listed)
	}
	s, err := g.sessions.make(who, link.Client{Era: era.Legacy})
	mcptest.Must(t, err)
	g.sessions.add(s)
	s.flights.Begin(rpc.StringID("1"), func() {})
	r, done, _ := g.reaches.take(who, link.Client{Era: era.Modern})
	defer done()
	legacy, modern := list(s.reach), list(r)
	g.Sweep(t.Context(), time.Now().Add(time.Second))
	runtime.GC()
	if legacy.Value() != nil || modern.Value() != nil {
		t.Error("an old list is kept")
	}
	if len(g.sessions.all) != 1 || len(g.reaches.all) != 1 {
		t.Error("a client that is there is forgotten")
	}
}

// What one person has begun, by all clients, leaves room for others; and no session that is busy makes place for another.
func TestSessionsAreSharedByPerson(t *testing.T) {
	t.Parallel()
	g := bare(upstreamtest.One{})
	who := func(person string, n int) *identity.Principal {
		return &identity.Principal{Key: fmt.Sprint(person, n), Person: person}
	}
	begin := func(person string, n int) *session {
		t.Helper()
		s, err := g.sessions.make(who(person, n), link.Client{Era: era.Legacy})
		mcptest.Must(t, err)
		return g.sessions.add(s)
	}
	var all []*session
	for n := range g.o.SessionsEach {
		if !g.sessions.hasRoom(who("mallory", n)) {
			t.Fatalf("there is no room for session %d", n)
		}
		s := begin("mallory", n)
		s.flights.Begin(rpc.StringID("1"), func() {})
		all = append(all, s)
	}
	if g.sessions.hasRoom(who("mallory", 1000)) || !g.sessions.hasRoom(who("alice", 1)) {
		t.Error("one person has more than a share, or another has no room")
	}
	begin("alice", 1)
	if begin("mallory", 1001) != nil {
		t.Error("one more began than there is room for")
	}
	all[7].flights.End(rpc.StringID("1"))
	if !g.sessions.hasRoom(who("mallory", 1000)) {
		t.Error("one is not busy, and there is no room")
	}
	begin("mallory", 1000)
	for n, s := range all {
		if _, there := g.sessions.all[s.ID]; there != (n != 7) {
			t.Errorf("session %d: there %t", n, there)
		}
	}
}
