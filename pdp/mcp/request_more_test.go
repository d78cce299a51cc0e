package mcp_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/mcptest"
)

// oddServer is a server that does something else with each call.
type oddServer struct {
	calls chan *mcptest.Call
	over  chan struct{}
}

// newOdd has a test answer each call.
func newOdd(eras ...string) (o oddServer, answers mcptest.Answers) {
	o = oddServer{calls: make(chan *mcptest.Call), over: make(chan struct{})}
	return o, mcptest.Answers{Eras: eras, Handle: func(c *mcptest.Call) bool {
		if c.Method != "tools/call" {
			return false
		}
		o.calls <- c
		<-o.over
		return true
	}}
}

// Nobody has requested what else stands in the call of who fulfils a request: the server gets none of it. If the PDP does not say
// whether the requester may still request it, nothing is sent, and the request waits on.
func TestRequestNothingElse(t *testing.T) {
	t.Parallel()
	tap := newWiretap(t)
	a := newAgora(t, land{before: tap.before, serve: tap.serve})
	for n, era := range eras {
		requester, mia := a.restricted(era, "alice"), a.user(era, "mia")
		id := requester.requests("free", `{}`)
		call := strings.TrimSuffix(fulfilling(id, "restricted", "free", `{}`), "}") + `,"besides":{"a":1}}`
		tap.silent(func(_ *http.Request, body []byte) bool { return strings.Contains(string(body), `"tool.request"`) })
		if got := mia.ask("tools/call", call); got.code() != -32603 || len(a.forwarded("free")) != n {
			t.Errorf("%s, while the PDP does not answer: %s, and the server got %q", era, got, a.forwarded("free"))
		}
		tap.answers(nil)
		names(t, era, mia.ask("tools/call", call), "user/mia", "agent/restricted")
		names(t, era, requester.fetches(id, "free", `{}`), "user/mia", "agent/restricted")
	}
	for _, g := range a.rec.Executed() {
		for _, ours := range []string{"besides", `capability"`, "onBehalfOf", "requestId", "maintenance", "io.policy-service"} {
			if strings.Contains(string(g.Body), ours) {
				t.Errorf("the server got %s", g.Body)
			}
		}
	}
	if calls := len(a.rec.Executed()); calls != len(eras) {
		t.Errorf("the server got %d calls", calls)
	}
}

// If whoever fulfils a request goes away in the middle of it, or the gateway ends, the request is over.
func TestRequestLeft(t *testing.T) {
	t.Parallel()
	o, answers := newOdd()
	a := newAgora(t, land{answers: answers})
	for _, era := range eras {
		requester, mia := a.restricted(era, "alice"), a.user(era, "mia")
		id := requester.requests("free", `{}`)
		before := len(a.forwarded("free"))
		call := mia.waitsFor("tools/call", fulfilling(id, "restricted", "free", `{}`))
		c := <-o.calls
		a.user(era, "zoe").fulfils(id, "restricted", "free", `{}`).refused(t, -32602, "", "is just being fulfilled", era)
		if pendingID(requester.fetches(id, "free", `{}`)) != id {
			t.Errorf("%s: who has requested it is told an end", era)
		}
		call.goes(t)
		<-c.Context.Done()
		o.over <- struct{}{}
		mcptest.Until(t, "the request is over", func() bool { return requester.fetches(id, "free", `{}`).says(-32603, "no answer came") })
		a.user(era, "zoe").fulfils(id, "restricted", "free", `{}`).refused(t, -32602, "", "fulfilled already", era, "then")
		if got := len(a.forwarded("free")); got != before+1 {
			t.Errorf("%s: it was sent %d times", era, got-before)
		}
	}
}

// The id of a request is of its tenant: in another there is none.
func TestRequestTenants(t *testing.T) {
	t.Parallel()
	var there *mcptest.Issuer
	a := newAgora(t, land{change: func(c *mcp.Config) {
		there = mcptest.NewIssuer(t, siegeResource, time.Now)
		one := c.Identity.Issuers[0]
		one.Tenant = "default"
		other := mcp.IssuerConfig{Issuer: there.URL, Algorithms: []string{"ES256"}, JWKSFile: there.KeysFile(t), Tenant: "elsewhere"}
		c.Identity.Issuers = []mcp.IssuerConfig{one, other}
	}})
	requester := a.restricted("modern", "alice")
	id := requester.requests("free", `{}`)
	stranger := a.stranger("modern", there.Token(t, mcptest.Claims{"sub": "mia", "client_id": nil}))
	stranger.fulfils(id, "restricted", "free", `{}`).refused(t, -32602, "", noRequest)
	same := a.stranger("modern", there.Token(t, mcptest.Claims{"sub": "alice", "client_id": "restricted"}))
	same.fetches(id, "free", `{}`).refused(t, -32602, "", noRequest)
	a.untouched(t)
	if pendingID(requester.fetches(id, "free", `{}`)) != id {
		t.Error("it does not wait any longer")
	}
}

// Of a locked tool a request has to fit, as a call has: nobody is told of one that does not.
func TestRequestMisfit(t *testing.T) {
	t.Parallel()
	s := misfitSiege(t, func(c *mcp.Config) { c.Approvals.Wait = 100 * time.Millisecond })
	for _, era := range eras {
		v := s.visitor(era, nil)
		got := v.ask("tools/request", `{"name":"closed","arguments":{"amount":"MARKED"}}`)
		if text := misfitText(t, era, got); !strings.Contains(text, "/amount: is of type string") {
			t.Errorf("%s: %s", era, got)
		}
		if pendingID(v.ask("tools/request", `{"name":"closed","arguments":{"amount":1}}`)) == "" {
			t.Errorf("%s: what fits does not wait", era)
		}
	}
	for _, line := range s.records() {
		if strings.Contains(line.line, "MARKED") {
			t.Errorf("the PDP got %s", line.line)
		}
	}
}

// With the bundle mcp a job requests what it may not do, and a person does it by their own rights: of a write they have to be
// sure, as of any of theirs. No agent does it for them.
func TestRequestWithTheBundle(t *testing.T) {
	t.Parallel()
	s := filesystem(t, nil)
	orFail(t, s.gateway.Close())
	s.config.Approvals.Wait = 100 * time.Millisecond
	s.gateway, s.url = s.beside()
	const arguments = `{"path":"drafts/a.md","content":"x"}`
	for _, era := range eras {
		job := s.speaker(era, mcptest.Claims{"client_id": "ci", "sub": "ci"})
		if got := job.call("write_file", arguments); got.code() != -32001 || !strings.Contains(got.text, `"suggestion":"call tools/request"`) {
			t.Errorf("%s: %s", era, got)
		}
		if got := job.ask("tools/request", `{"name":"read_text_file","arguments":{"path":".env"}}`); got.code() != -32001 {
			t.Errorf("%s, what reads: %s", era, got)
		}
		bob, agent := s.visitor(era, mcptest.Claims{"sub": "bob", "client_id": nil}), s.visitor(era, mcptest.Claims{"sub": "bob", "client_id": "desktop"})
		ear, deaf := bob.listens(), agent.listens()
		ear.welcomed()
		deaf.welcomed()
		id := job.requests("write_file", arguments)
		for ear.nextRequest().Params.RequestID != id { // that of the other era waits, too
		}
		deaf.nothing()
		if got := agent.fulfils(id, "ci", "write_file", arguments); got.code() != -32001 || strings.Contains(got.text, bundleAsks) {
			t.Errorf("%s, an agent: %s", era, got)
		}
		if got := bob.fulfils(id, "ci", "write_file", arguments); !got.says(-32001, bundleAsks) {
			t.Errorf("%s, a person: %s", era, got)
		}
	}
	s.untouched(t)
}

// What waits is counted, and how it ends.
func TestRequestCounted(t *testing.T) {
	t.Parallel()
	counts, deps := metered()
	a := newAgora(t, land{deps: deps})
	requester := a.restricted("modern", "alice")
	requester.requests("free", `{"n":1}`)
	id := requester.requests("free", `{"n":2}`)
	if got := gaugeIn(counts, "policy_service.mcp.requested"); got != 2 {
		t.Errorf("%d wait", got)
	}
	names(t, "the call", a.user("legacy", "mia").fulfils(id, "restricted", "free", `{"n":2}`), "user/mia", "agent/restricted")
	if got := gaugeIn(counts, "policy_service.mcp.requested"); got != 1 {
		t.Errorf("%d wait in the end", got)
	}
	if got := countedBy(counts, "policy_service.mcp.fulfilments", "outcome"); fmt.Sprint(got) != "map[answered:1]" {
		t.Errorf("fulfilled are %v", got)
	}
}

// An id with one character changed is none, whether the request waits or was fulfilled.
func TestRequestForged(t *testing.T) {
	t.Parallel()
	a := newAgora(t, land{})
	for _, era := range eras {
		requester, mia := a.restricted(era, "alice"), a.user(era, "mia")
		id := requester.requests("free", `{}`)
		other := "A"
		if id[20] == 'A' {
			other = "B"
		}
		forged := id[:20] + other + id[21:]
		for _, when := range []string{"it waits", "it is fulfilled"} {
			for who, got := range map[string]echo{"the fulfiller": mia.fulfils(forged, "restricted", "free", `{}`), "the requester": requester.fetches(forged, "free", `{}`)} {
				if got.code() != -32602 || !strings.Contains(got.text, noRequest) {
					t.Errorf("%s, %s, while %s: %s", era, who, when, got)
				}
			}
			if when == "it waits" {
				names(t, era, mia.fulfils(id, "restricted", "free", `{}`), "user/mia", "agent/restricted")
			}
		}
	}
	a.ran("free", `{}`, `{}`)
}
