package mcp_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/mcptest"
)

// Whoever may fulfil a request is told of it, also who comes later, and nobody else; once somebody has it, nobody is told any more.
func TestRequestTold(t *testing.T) {
	t.Parallel()
	a := newAgora(t, land{})
	for _, era := range eras {
		requester, mia, eve := a.restricted(era, "alice"), a.user(era, "mia").listens(), a.user(era, "eve").listens()
		own, other := requester.listens(), a.restricted(era, "zoe").listens()
		for _, e := range []*ear{mia, eve, own, other} {
			e.welcomed()
		}
		id := requester.requests("free", `{ "a":"1"}`)
		told := mia.nextRequest().Params
		if told.Type != "tool_request_pending" || told.Requester != "restricted" || told.Target != "rec" || told.Tool != "free" || string(told.Arguments) != `{ "a":"1"}` || told.RequestID != id || told.Reason != "for maintenance" ||
			string(told.Meta["io.policy-service/requester"]) != `"agent/restricted"` || string(told.Meta["io.policy-service/tool"]) != `"rec:free"` {
			t.Errorf("%s: %+v", era, told)
		}
		late := a.user(era, "zoe").listens()
		late.welcomed()
		if late.nextRequest().Params.RequestID != id {
			t.Errorf("%s: who comes later hears of another", era)
		}
		names(t, era, a.user(era, "noah").fulfils(id, "restricted", "free", `{"a":"1"}`), "user/noah", "agent/restricted")
		after := a.user(era, "mia").listens()
		after.welcomed()
		for _, e := range []*ear{mia, eve, own, other, late, after} {
			e.nothing()
		}
	}
}

// A client that knows of requests sees in lists what it may request, beside what it may call.
func TestRequestLists(t *testing.T) {
	t.Parallel()
	a := newAgora(t, land{})
	for era, capabilities := range map[string]string{"legacy": `{"experimental":{"io.policy-service/tool-requests":{}}}`, "modern": `{"extensions":{"io.policy-service/tool-requests":{}}}`} {
		for _, knows := range []bool{false, true} {
			v := a.stranger(era, a.issuer.Token(t, mcptest.Claims{"client_id": "restricted"}))
			if knows {
				v.capabilities = capabilities
			}
			v.begin()
			got := v.ask("tools/list", `{}`)
			for _, tool := range peopleTools {
				if shown := strings.Contains(got.text, `"name":"`+tool+`"`); shown != (knows && tool != "never") {
					t.Errorf("%s, knows %t: %s is shown: %t", era, knows, tool, shown)
				}
			}
		}
	}
}

// People are asked about a fulfilment as about any call of the fulfiller's: he himself, who has requested it and the person behind
// that have no say.
func TestRequestApproved(t *testing.T) {
	t.Parallel()
	a := newAgora(t, land{change: func(c *mcp.Config) { c.Approvals.Wait = 25 * time.Second }})
	for n, era := range eras {
		arguments := fmt.Sprintf(`{"n":%d}`, n)
		requester, mia := a.restricted(era, "noah"), a.user(era, "mia")
		ear := mia.listens()
		ear.welcomed()
		fetched, called := make(chan echo, 1), make(chan echo, 1)
		go func() {
			fetched <- requester.ask("tools/request", `{"name":"second-person","arguments":`+arguments+`}`)
		}()
		id := ear.nextRequest().Params.RequestID
		go func() { called <- mia.fulfils(id, "restricted", "second-person", arguments) }()
		approval := a.asks("second-person")
		for _, who := range []string{"noah", "mia"} {
			if got := a.api(who, http.MethodPost, "/v1/approvals/"+approval+"/decision", `{"decision":"approve","reason":"fine"}`); got.Status == http.StatusOK {
				t.Errorf("%s: %s decides", era, who)
			}
		}
		if got := a.forwarded("second-person"); len(got) != n {
			t.Fatalf("%s: the server got %q", era, got)
		}
		a.approve("zoe", approval)
		names(t, era+", the call", <-called, "user/mia", "agent/restricted")
		names(t, era+", the request", <-fetched, "user/mia", "agent/restricted")
		if got := a.forwarded("second-person"); len(got) != n+1 || got[n] != arguments {
			t.Errorf("%s: the server got %q", era, got)
		}
	}
}

// A form is answered for the very fulfilment, and for no other call, and no other fulfilment.
func TestRequestForm(t *testing.T) {
	t.Parallel()
	a := newAgora(t, land{})
	requester, mia := a.restricted("legacy", "alice"), a.takesForms("modern", mcptest.Claims{"sub": "mia", "client_id": nil})
	one, other := requester.requests("confirm", `{}`), requester.requests("confirm", `{}`)
	asked := stateOf(t, mia.fulfils(one, "restricted", "confirm", `{}`))
	again := `,"requestState":` + inText(asked.State) + `,"inputResponses":{"` + asked.key() + `":` + saysYes + `}}`
	for name, params := range map[string]string{
		"a plain call": `{"name":"confirm","arguments":{}` + again, "another fulfilment": strings.TrimSuffix(fulfilling(other, "restricted", "confirm", `{}`), "}") + again,
	} {
		if got := mia.ask("tools/call", params); !got.says(-32602, "requestState") {
			t.Errorf("%s: %s", name, got)
		}
	}
	a.untouched(t)
	yes := strings.TrimSuffix(fulfilling(one, "restricted", "confirm", `{}`), "}") + again
	names(t, "the call", mia.ask("tools/call", yes), "user/mia", "agent/restricted")
	names(t, "the request", requester.fetches(one, "confirm", `{}`), "user/mia", "agent/restricted")
	if got := mia.ask("tools/call", yes); !got.says(-32602, "fulfilled already") {
		t.Errorf("again: %s", got)
	}
	if got := a.forwarded("confirm"); len(got) != 1 {
		t.Errorf("the server got %q", got)
	}
}

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

// answers answers one call.
func (o oddServer) answers(what func(*mcptest.Call)) {
	what(<-o.calls)
	o.over <- struct{}{}
}

// Errors of the server are for both. A server that wants to know more, or says nothing that can be read, ends the request: nothing is
// sent again.
func TestRequestOddServers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		era    string
		answer func(*mcptest.Call)
		code   int
		says   string
		other  string // what who has requested it is told, if it is something else
	}{
		"an error": {"", func(c *mcptest.Call) { c.Error(`{"code":-31000,"message":"no such ticket"}`) }, -31000, "no such ticket", ""},
		"asks for more": {"modern", func(c *mcptest.Call) {
			c.Result(`{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{"message":"who?","requestedSchema":{"type":"object","properties":{}}}}}}`)
		}, -32603, "ambiguously", ""},
		"wants a page": {"legacy", func(c *mcptest.Call) {
			c.Error(`{"code":-32042,"message":"open it","data":{"elicitations":[{"mode":"url","url":"https://good.example/","message":"m","elicitationId":"e"}]}}`)
		}, -32603, "ambiguously", ""},
		"twice":      {"", func(c *mcptest.Call) { c.Result(`{"content":[],"content":[]}`) }, -32603, "ambiguously", "no answer came"},
		"not at all": {"", func(c *mcptest.Call) { c.Raw(http.StatusServiceUnavailable, "text/plain", "away") }, -32603, "unavailable", "no answer came"},
		"no session": {"legacy", func(c *mcptest.Call) { c.Raw(http.StatusNotFound, "text/plain", "who?") }, -32603, "unavailable", "no answer came"},
	} {
		var eras []string
		if test.era != "" {
			eras = []string{test.era}
		}
		o, answers := newOdd(eras...)
		a := newAgora(t, land{answers: answers, change: func(c *mcp.Config) {
			u := c.Upstreams["rec"]
			u.ServerRequests = mcp.ServerRequests{Elicitation: mcp.RelayOn, Hosts: []string{"good.example"}}
			c.Upstreams["rec"] = u
		}})
		for _, era := range []string{"modern", "legacy"} {
			if test.era == "legacy" && name == "wants a page" && era == "modern" {
				continue // which is told otherwise
			}
			requester, mia := a.restricted(era, "alice"), a.takesForms(era, mcptest.Claims{"sub": "mia", "client_id": nil})
			id := requester.requests("free", `{}`)
			before := len(a.forwarded("free"))
			over := make(chan echo, 1)
			go func() { over <- mia.fulfils(id, "restricted", "free", `{}`) }()
			o.answers(test.answer)
			if got := <-over; !got.says(test.code, test.says) {
				t.Errorf("%s, %s: %s", name, era, got)
			}
			says := test.says
			if test.other != "" {
				says = test.other
			}
			if got := requester.fetches(id, "free", `{}`); !got.says(test.code, says) {
				t.Errorf("%s, %s: who has requested it hears %s", name, era, got)
			}
			if got := mia.fulfils(id, "restricted", "free", `{}`); !got.says(-32602, "fulfilled already") {
				t.Errorf("%s, %s, again: %s", name, era, got)
			}
			if got := len(a.forwarded("free")); got != before+1 {
				t.Errorf("%s, %s: it was sent %d times", name, era, got-before)
			}
		}
	}
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
		call := strings.TrimSuffix(fulfilling(id, "restricted", "free", `{}`), "}") + `,"besides":{"a":1},"capability":"c"}`
		tap.silent(func(_ *http.Request, body []byte) bool { return strings.Contains(string(body), `"tool.request"`) })
		if got := mia.ask("tools/call", call); got.code() != -32603 || len(a.forwarded("free")) != n {
			t.Errorf("%s, while the PDP does not answer: %s, and the server got %q", era, got, a.forwarded("free"))
		}
		tap.answers(nil)
		names(t, era, mia.ask("tools/call", call), "user/mia", "agent/restricted")
		names(t, era, requester.fetches(id, "free", `{}`), "user/mia", "agent/restricted")
	}
	calls := 0
	for _, g := range a.rec.Got() {
		if g.Method != "tools/call" {
			continue
		}
		if calls++; strings.Contains(string(g.Params), "besides") || strings.Contains(string(g.Params), "capability\"") {
			t.Errorf("the server got %s", g.Params)
		}
	}
	if calls != len(eras) {
		t.Errorf("the server got %d calls", calls)
	}
}

// Who fulfils a request is asked nothing by the server: what they answer would come back to somebody else.
func TestRequestServerAsks(t *testing.T) {
	t.Parallel()
	answered := make(chan string, 1)
	answers := mcptest.Answers{Eras: []string{"legacy"}, Handle: func(c *mcptest.Call) bool {
		if c.Method != "tools/call" {
			return false
		}
		c.Message(`{"jsonrpc":"2.0","id":"who","method":"elicitation/create","params":{"message":"who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}}`)
		c.Result(`{"content":[{"type":"text","text":` + inText(<-answered) + `}]}`)
		return true
	}, Heard: func(g mcptest.Got) {
		if string(g.ID) == `"who"` {
			answered <- string(g.Body)
		}
	}}
	a := newAgora(t, land{answers: answers, change: func(c *mcp.Config) {
		u := c.Upstreams["rec"]
		u.ServerRequests.Elicitation = mcp.RelayOn
		c.Upstreams["rec"] = u
	}})
	for n, era := range eras {
		requester := a.restricted(era, "alice")
		id := requester.requests("free", `{}`)
		mia := a.takesForms(era, mcptest.Claims{"sub": "mia", "client_id": nil})
		if got := mia.fulfils(id, "restricted", "free", `{}`); !got.ran() || !strings.Contains(got.text, "nothing is asked while a request of somebody else is fulfilled") {
			t.Errorf("%s: %s", era, got)
		}
		names(t, era, requester.fetches(id, "free", `{}`), "user/mia", "agent/restricted")
		if got := a.forwarded("free"); len(got) != n+1 {
			t.Errorf("%s: the server got %q", era, got)
		}
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
		ctx, leave := context.WithCancel(t.Context())
		over := make(chan struct{})
		params := fulfilling(id, "restricted", "free", `{}`)
		go func() {
			defer close(over)
			_, _ = mia.try(ctx, http.MethodPost, mia.text("tools/call", params), mia.headers("tools/call", params)...)
		}()
		c := <-o.calls
		if got := a.user(era, "zoe").fulfils(id, "restricted", "free", `{}`); !got.says(-32602, "is just being fulfilled") {
			t.Errorf("%s, meanwhile: %s", era, got)
		}
		if pendingID(requester.fetches(id, "free", `{}`)) != id {
			t.Errorf("%s: who has requested it is told an end", era)
		}
		leave()
		<-over
		<-c.Context.Done()
		o.over <- struct{}{}
		mcptest.Until(t, "the request is over", func() bool { return requester.fetches(id, "free", `{}`).says(-32603, "no answer came") })
		if got := a.user(era, "zoe").fulfils(id, "restricted", "free", `{}`); !got.says(-32602, "fulfilled already") {
			t.Errorf("%s, then: %s", era, got)
		}
		if got := len(a.forwarded("free")); got != before+1 {
			t.Errorf("%s: it was sent %d times", era, got-before)
		}
	}
}

// What waits is bounded, for each and for all, and so is who waits for it.
func TestRequestBounds(t *testing.T) {
	t.Parallel()
	a := newAgora(t, land{change: func(c *mcp.Config) { c.ToolRequests.PerPrincipal, c.ToolRequests.Pending = 2, 3 }})
	alice, zoe := a.restricted("modern", "alice"), a.restricted("legacy", "zoe")
	first := alice.requests("free", `{"n":1}`)
	alice.requests("free", `{"n":2}`)
	limited := func(v *visitor, n int) {
		t.Helper()
		if got := v.ask("tools/request", fmt.Sprintf(`{"name":"free","arguments":{"n":%d}}`, n)); got.kind() != "rate_limited" {
			t.Errorf("%s", got)
		}
	}
	limited(alice, 3)
	zoe.requests("free", `{"n":4}`)
	limited(zoe, 5)
	names(t, "the first", a.user("legacy", "mia").fulfils(first, "restricted", "free", `{"n":1}`), "user/mia", "agent/restricted")
	alice.requests("free", `{"n":6}`)
	limited(zoe, 7)
	a.advance(15 * time.Minute)
	zoe.requests("free", `{"n":8}`)

	b := newAgora(t, land{change: func(c *mcp.Config) { c.Approvals.PerPrincipal, c.Approvals.Wait = 1, 25*time.Second }})
	v, ear := b.restricted("modern", "alice"), b.user("modern", "mia").listens()
	ear.welcomed()
	over := make(chan echo, 1)
	go func() { over <- v.ask("tools/request", `{"name":"free","arguments":{}}`) }()
	id := ear.nextRequest().Params.RequestID
	if got := v.ask("tools/request", `{"name":"free","arguments":{"n":1}}`); got.kind() != "rate_limited" {
		t.Errorf("another waits: %s", got)
	}
	ear.nothing()
	names(t, "the call", b.user("modern", "zoe").fulfils(id, "restricted", "free", `{}`), "user/zoe", "agent/restricted")
	names(t, "the request", <-over, "user/zoe", "agent/restricted")
}

// Whoever comes for what is kept no longer is told that it was fulfilled, until its time is up: it is not as if nobody had done it.
// For others there is no such request.
func TestRequestNotKept(t *testing.T) {
	t.Parallel()
	a := newAgora(t, land{change: func(c *mcp.Config) { c.ToolRequests.PerPrincipal = 1 }})
	for n, era := range eras {
		requester, mia := a.restricted(era, "alice"), a.user(era, "mia")
		var first, second string // of which one makes room for the other
		for _, one := range []struct {
			id        *string
			arguments string
		}{{&first, `{"n":1}`}, {&second, `{"n":2}`}} {
			*one.id = requester.requests("free", one.arguments)
			names(t, era, mia.fulfils(*one.id, "restricted", "free", one.arguments), "user/mia", "agent/restricted")
		}
		names(t, era+", what is kept", requester.fetches(second, "free", `{"n":2}`), "user/mia", "agent/restricted")
		got := requester.fetches(first, "free", `{"n":1}`)
		if !got.says(-32603, "the request was fulfilled") || !got.says(-32603, "is not kept") || got.kind() != "result_not_kept" {
			t.Errorf("%s: %s", era, got)
		}
		if got := mia.fulfils(first, "restricted", "free", `{"n":1}`); !got.says(-32602, "fulfilled already") {
			t.Errorf("%s, a second time: %s", era, got)
		}
		for name, got := range map[string]echo{
			"another": a.restricted(era, "zoe").fetches(first, "free", `{"n":1}`), "a forged id": requester.fetches(forged(first), "free", `{"n":1}`),
		} {
			if !got.says(-32602, noRequest) {
				t.Errorf("%s, %s: %s", era, name, got)
			}
		}
		if sent := a.forwarded("free"); len(sent) != 2*n+2 {
			t.Errorf("%s: the server got %q", era, sent)
		}
		a.advance(15 * time.Minute)
		if got := requester.fetches(first, "free", `{"n":1}`); !got.says(-32602, noRequest) {
			t.Errorf("%s, later: %s", era, got)
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
	if got := stranger.fulfils(id, "restricted", "free", `{}`); !got.says(-32602, noRequest) {
		t.Errorf("%s", got)
	}
	same := a.stranger("modern", there.Token(t, mcptest.Claims{"sub": "alice", "client_id": "restricted"}))
	if got := same.fetches(id, "free", `{}`); !got.says(-32602, noRequest) {
		t.Errorf("%s", got)
	}
	a.untouched(t)
	if pendingID(requester.fetches(id, "free", `{}`)) != id {
		t.Error("it does not wait any longer")
	}
}

// With several servers a request is of one of them, by the names that clients use, and of a locked tool it has to fit.
func TestRequestSeveralServers(t *testing.T) {
	t.Parallel()
	a := newAgora(t, land{
		files: map[string]string{"several.cedar": `@id("several") permit (principal is user, action == Action::"tool.invoke", resource == tool::"two:free");`},
		change: func(c *mcp.Config) {
			c.Upstreams["two"] = c.Upstreams["rec"]
		},
	})
	for _, era := range eras {
		requester, ear := a.restricted(era, "alice"), a.user(era, "mia").listens()
		ear.welcomed()
		id := requester.requests("two__free", `{}`)
		if told := ear.nextRequest().Params; told.Target != "two" || told.Tool != "two__free" || string(told.Meta["io.policy-service/tool"]) != `"two:free"` {
			t.Errorf("%s: %+v", era, told)
		}
		if got := a.user(era, "zoe").fulfils(id, "restricted", "rec__free", `{}`); !got.says(-32602, "for another tool") {
			t.Errorf("%s: %s", era, got)
		}
		names(t, era, a.user(era, "zoe").fulfils(id, "restricted", "two__free", `{}`), "user/zoe", "agent/restricted")
		names(t, era, requester.fetches(id, "two__free", `{}`), "user/zoe", "agent/restricted")
	}
	if got := a.forwarded("free"); !slices.Equal(got, []string{`{}`, `{}`}) {
		t.Errorf("the server got %q", got)
	}
}

// What was requested and fulfilled is on record: who has requested it, who has called it and what each was let.
func TestRequestOnRecord(t *testing.T) {
	t.Parallel()
	a := newAgora(t, land{})
	id := a.restricted("modern", "alice").requests("free", `{}`)
	names(t, "the call", a.user("legacy", "mia").fulfils(id, "restricted", "free", `{}`), "user/mia", "agent/restricted")
	var asked []string
	for line := range strings.Lines(a.api("auditor", http.MethodGet, "/v1/log/export", "").Body) {
		var r struct {
			Kind    string `json:"kind"`
			Request struct {
				Subject, Resource struct{ ID string }
				Action            struct{ Name string }
				Context           struct{ Requester jsontext.Value }
			} `json:"request"`
		}
		if json.Unmarshal([]byte(line), &r, json.MatchCaseInsensitiveNames(true)) == nil && r.Kind == "decision" && r.Request.Resource.ID == "rec:free" {
			asked = append(asked, r.Request.Subject.ID+" "+r.Request.Action.Name+" "+string(r.Request.Context.Requester))
		}
	}
	want := []string{"restricted tool.request ", `mia tool.fulfil {"id":"restricted","type":"agent"}`, `mia tool.invoke {"id":"restricted","type":"agent"}`, "restricted tool.request "}
	if !slices.Equal(asked, want) {
		t.Errorf("on record is %q", asked)
	}
	for _, says := range []string{`"msg":"a tool is requested"`, `"msg":"a request for a tool is over"`} {
		if !strings.Contains(a.logs.String(), says) {
			t.Errorf("the log does not have it that %s", says)
		}
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
	counts := sdkmetric.NewManualReader()
	a := newAgora(t, land{deps: mcp.Deps{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(counts))}})
	counted := func(name, outcome string) int64 {
		var all metricdata.ResourceMetrics
		orFail(t, counts.Collect(t.Context(), &all))
		for _, m := range all.ScopeMetrics[0].Metrics {
			switch data := m.Data.(type) {
			case metricdata.Gauge[int64]:
				if m.Name == name {
					return data.DataPoints[0].Value
				}
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					if got, _ := p.Attributes.Value("outcome"); m.Name == name && got.AsString() == outcome {
						return p.Value
					}
				}
			}
		}
		return 0
	}
	requester := a.restricted("modern", "alice")
	requester.requests("free", `{"n":1}`)
	id := requester.requests("free", `{"n":2}`)
	if got := counted("policy_service.mcp.requested", ""); got != 2 {
		t.Errorf("%d wait", got)
	}
	names(t, "the call", a.user("legacy", "mia").fulfils(id, "restricted", "free", `{"n":2}`), "user/mia", "agent/restricted")
	if waits, over := counted("policy_service.mcp.requested", ""), counted("policy_service.mcp.fulfilments", "answered"); waits != 1 || over != 1 {
		t.Errorf("%d wait, %d are fulfilled", waits, over)
	}
}

// Over the standard streams a tool can be requested, too; its one client fulfils nothing of its own.
func TestRequestOverStdio(t *testing.T) {
	t.Parallel()
	s := newSiege(t, camp{change: func(c *mcp.Config) {
		c.Identity = mcp.IdentityConfig{Static: &mcp.StaticConfig{Sub: "alice"}}
		c.Approvals.Wait = 100 * time.Millisecond
	}})
	in, says := io.Pipe()
	heard, out := io.Pipe()
	served := make(chan error, 1)
	go func() { served <- s.gateway.ServeStdio(context.Background(), in, out) }()
	lines := bufio.NewScanner(heard)
	v := &visitor{s: s, era: "modern", capabilities: "{}"}
	next := func(method, params string) echo {
		t.Helper()
		_, err := io.WriteString(says, v.text(method, params)+"\n")
		orFail(t, err)
		if !lines.Scan() {
			t.Fatal(lines.Err())
		}
		return readAnswer(&http.Response{StatusCode: http.StatusOK}, lines.Bytes())
	}
	id := pendingID(next("tools/request", `{"name":"look","arguments":{}}`))
	if got := next("tools/call", fulfilling(id, "alice", "look", `{}`)); !got.says(-32001, "nobody fulfils a request of their own") {
		t.Errorf("%s", got)
	}
	orFail(t, says.Close())
	orFail(t, <-served)
	s.untouched(t)
}
