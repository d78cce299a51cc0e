package gate

import (
	"log/slog"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/crowd"
	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/mcp/internal/people"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/turn"
)

// What waits is heard of while somebody of the tenant listens, and once for all of them.
func TestListenRests(t *testing.T) {
	pdp, err := authzenclient.New("http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	asker, err := ask.New(ask.Options{PDP: map[string]*authzenclient.Client{evaluation.DefaultTenant: pdp}, Resource: "x"})
	if err != nil {
		t.Fatal(err)
	}
	g := &Gateway{o: Options{Asker: asker, Settings: Settings{Approvals: Approvals{Channels: []string{ByForm}}}}, desk: people.New(people.Options{Logger: slog.New(slog.DiscardHandler), Now: time.Now}), crowd: crowd.New(crowd.Options{Dropped: func(string) {}, Now: time.Now})}
	defer g.desk.Close()
	g.listeners.g = g
	var seats []*crowd.Seat
	for _, tenant := range []string{evaluation.DefaultTenant, evaluation.DefaultTenant, "nowhere"} {
		who := &identity.Principal{Key: "k", Tenant: tenant}
		seats = append(seats, g.crowd.Join(who))
		g.listeners.hear(who)
	}
	for _, s := range seats {
		g.listeners.rest()
		if n := len(g.listeners.hearing); n != 1 && s != seats[2] {
			t.Errorf("%d are heard", n)
		}
		s.Leave()
	}
	g.listeners.rest()
	if n := len(g.listeners.hearing); n != 0 {
		t.Errorf("%d are heard still", n)
	}
	seats[0] = g.crowd.Join(&identity.Principal{Key: "k", Tenant: evaluation.DefaultTenant})
	g.listeners.hear(&identity.Principal{Key: "k", Tenant: evaluation.DefaultTenant})
	if n := len(g.listeners.hearing); n != 1 {
		t.Errorf("%d are heard again", n)
	}
	seats[0].Leave()
	g.listeners.rest()
	seats[0] = g.crowd.Join(&identity.Principal{Key: "k", Tenant: evaluation.DefaultTenant})
	g.o.Approvals.Channels = []string{ByURL, ByWait} // nobody decides here
	g.listeners.hear(&identity.Principal{Key: "k", Tenant: evaluation.DefaultTenant})
	if n := len(g.listeners.hearing); n != 0 {
		t.Errorf("%d are heard where nobody decides", n)
	}
}

// The bare id of a requester is that of the question, whatever has a slash in it; a name of no such form stays whole.
func TestListenRequester(t *testing.T) {
	for _, test := range []struct{ params, want string }{
		{`{"requester":"agent/coder","request":{"subject":{"type":"user","id":"alice"},"context":{"agent":{"type":"agent","id":"coder"}}}}`, "coder"},
		{`{"requester":"user/alice","request":{"subject":{"type":"user","id":"alice"}}}`, "alice"},
		{`{"requester":"user/https://evil/alice","request":{"subject":{"type":"user","id":"https://evil/alice"}}}`, "https://evil/alice"},
		{`{"requester":"https://evil/alice","request":{"subject":{"id":"https://evil/alice"}}}`, "https://evil/alice"},
		{`{"requester":"coder","request":{"context":{"agent":{"id":"coder"}}}}`, "coder"},
		{`{"requester":"coder"}`, "coder"},
	} {
		params, err := rpc.ParseObject(jsontext.Value(test.params))
		if err != nil {
			t.Fatal(err)
		}
		if got := bareRequester(params); got != test.want {
			t.Errorf("%s: %q", test.params, got)
		}
	}
}

// Who begins to join once the client has gone wants nothing, though the turn is theirs.
func TestListenJoinsLate(t *testing.T) {
	l := &listener{joining: turn.New(), stop: func() {}}
	l.end()
	if _, err := l.join(t.Context()); err == nil || l.wanted {
		t.Errorf("it joins: %v", err)
	}
}
