package gate

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/upstream"
	"policy-service/pdp/seal"
)

// bareGateway has what sessions and links need.
func bareGateway(u upstream.Upstream) *Gateway {
	g := &Gateway{doors: doors{ctx: context.Background(), logger: slog.New(slog.DiscardHandler)}, o: Options{
		Settings: Settings{SessionsEach: 64},
		Ring:     seal.Fresh(seal.Options{Resource: "r"}), Now: time.Now, Logger: slog.New(slog.DiscardHandler),
		Servers: []*Server{{Upstream: u, Dropped: func(string) {}, URIs: []string{""}}},
	}}
	g.sessions.o, g.reaches.o, g.servers = &g.o, &g.o, servers{doors: &g.doors, o: &g.o}
	return g
}

// Requests that come at once with the id of a session that this process has not seen all find the same one: of another,
// nobody would ever end what it holds.
func TestOneSessionOfOneID(t *testing.T) {
	g, who := bareGateway(nil), &identity.Principal{Key: "k"}
	for range 2000 {
		made, err := g.sessions.make(who, client{era: era.Legacy})
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		var mu sync.Mutex
		found := map[*session]bool{}
		begin := make(chan struct{})
		for range 8 {
			all.Go(func() {
				<-begin
				s := g.sessions.find(made.id, who)
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
	upstream.Session
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
	g, who := bareGateway(nil), &identity.Principal{Key: "k"}
	var leaving sync.WaitGroup
	gone := make(chan struct{})
	for range 8 {
		leaving.Add(2)
		s, err := g.sessions.make(who, client{era: era.Legacy})
		if err != nil {
			t.Fatal(err)
		}
		s.reach.only().session = together{t: t, leaving: &leaving, gone: gone}
		g.sessions.add(s)
		r, done, _ := g.reaches.of(who, client{era: era.Modern, info: rpc.String(s.id)})
		r.only().session = together{t: t, leaving: &leaving, gone: gone}
		done()
	}
	go func() {
		leaving.Wait()
		close(gone)
	}()
	g.sweepOnce(t.Context(), time.Now().Add(time.Hour))
}

// What one person has begun, by all clients, leaves room for others; and no session that is busy makes place for another.
func TestSessionsAreSharedByPerson(t *testing.T) {
	t.Parallel()
	g := bareGateway(nil)
	who := func(person string, n int) *identity.Principal {
		return &identity.Principal{Key: fmt.Sprint(person, n), Person: person}
	}
	begin := func(person string, n int) *session {
		t.Helper()
		s, err := g.sessions.make(who(person, n), client{era: era.Legacy})
		if err != nil {
			t.Fatal(err)
		}
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
		if _, there := g.sessions.all[s.id]; there != (n != 7) {
			t.Errorf("session %d: there %t", n, there)
		}
	}
}
