package people

import (
	"log/slog"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/pdp/internal/mcp/internal/ask"
	"policy-service/pdp/internal/mcp/internal/doors"
	"policy-service/pdp/internal/mcp/internal/events"
	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/pdptest/mcptest"
)

// A tenant's PDP is watched while the tenant has a listener, and once for all of them.
func TestListenRests(t *testing.T) {
	pdp, err := authzenclient.New("http://127.0.0.1:1")
	mcptest.Must(t, err)
	asker, err := ask.New(ask.Options{PDP: map[string]*authzenclient.Client{evaluation.DefaultTenant: pdp}, Resource: "x"})
	mcptest.Must(t, err)
	log := slog.New(slog.DiscardHandler)
	d := doors.New(log)
	g := New(d, Options{Asker: asker, Approvals: Approvals{Channels: []string{ByForm}}, Dropped: func(string) {}, Logger: log, Now: time.Now})
	defer g.Close()
	defer d.Close()
	listen := func(tenant string) *events.Listener {
		return g.Listeners.join(&identity.Principal{Key: "k", Tenant: tenant})
	}
	topics := func(tenant string, want int) {
		t.Helper()
		got := 0
		if a := g.Listeners.audiences[tenant]; a != nil {
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
	g.Listeners.sweep()
	topics(evaluation.DefaultTenant, 2)
	two.Leave()
	nowhere.Leave()
	g.Listeners.sweep()
	if n := len(g.Listeners.audiences); n != 0 {
		t.Errorf("%d tenants are watched still", n)
	}
	again := listen(evaluation.DefaultTenant)
	topics(evaluation.DefaultTenant, 2)
	again.Leave()
	g.Listeners.sweep()
	g.o.Approvals.Channels = []string{ByURL, ByWait} // people do not decide here
	again = listen(evaluation.DefaultTenant)
	topics(evaluation.DefaultTenant, 1)
	again.Leave()
}

// The bare id of a requester comes from the question, whatever has a slash in it. A name of another form stays whole.
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
		mcptest.Must(t, err)
		if got := bareRequester(params); got != test.want {
			t.Errorf("%s: %q", test.params, got)
		}
	}
}
