package gate

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/events"
	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/mcp/internal/people"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/turn"
)

// A tenant's PDP is watched while the tenant has a listener, and once for all of them.
func TestListenRests(t *testing.T) {
	pdp, err := authzenclient.New("http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	asker, err := ask.New(ask.Options{PDP: map[string]*authzenclient.Client{evaluation.DefaultTenant: pdp}, Resource: "x"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	g := &Gateway{o: Options{Asker: asker, Settings: Settings{Approvals: Approvals{Channels: []string{ByForm}}}}, desk: people.New(people.Options{Logger: slog.New(slog.DiscardHandler), Now: time.Now})}
	g.events = events.New(events.Options{Dropped: func(string) {}, Background: g.background, Context: ctx})
	g.listeners.g = g
	defer g.desk.Close()
	defer g.doors.running.Wait()
	defer end()
	listen := func(tenant string) *events.Listener {
		return g.listeners.join(&identity.Principal{Key: "k", Tenant: tenant})
	}
	topics := func(tenant string, want int) {
		t.Helper()
		got := 0
		if a := g.listeners.audiences[tenant]; a != nil {
			got = len(a.topics)
		}
		if got != want {
			t.Errorf("%s has %d topics, want %d", tenant, got, want)
		}
	}
	one, two, nowhere := listen(evaluation.DefaultTenant), listen(evaluation.DefaultTenant), listen("nowhere")
	topics(evaluation.DefaultTenant, 2)
	topics("nowhere", 1) // no PDP is asked there
	one.Leave()
	g.listeners.rest()
	topics(evaluation.DefaultTenant, 2)
	two.Leave()
	nowhere.Leave()
	g.listeners.rest()
	if n := len(g.listeners.audiences); n != 0 {
		t.Errorf("%d tenants are watched still", n)
	}
	again := listen(evaluation.DefaultTenant)
	topics(evaluation.DefaultTenant, 2)
	again.Leave()
	g.listeners.rest()
	g.o.Approvals.Channels = []string{ByURL, ByWait} // nobody decides here
	again = listen(evaluation.DefaultTenant)
	topics(evaluation.DefaultTenant, 1)
	again.Leave()
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
