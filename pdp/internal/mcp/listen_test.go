package mcp_test

import (
	"bufio"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/mcp"
	pdpserver "policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest/mcptest"
)

// heardMessage is a message that somebody who listens has heard.
type heardMessage struct {
	Method string `json:"method"`
	Params struct {
		ID        string         `json:"id"`
		Arguments jsontext.Value `json:"arguments"`
	} `json:"params"`
	text string
}

// ear hears what somebody who listens is told.
type ear struct {
	t     testing.TB
	era   string
	heard chan heardMessage // closed when the stream has ended
	end   func()
	asked bool // to be welcomed
}

const listensToUs = `{"notifications":{"io.policy-service/authorization":true}}`

// listens has a client listen to the gateway, and to nothing else where it can say so.
func (v *visitor) listens() *ear {
	v.s.t.Helper()
	return v.listensTo(listensToUs)
}

func (v *visitor) listensTo(params string) *ear {
	v.s.t.Helper()
	s := v.stream(params)
	e := &ear{v.s.t, v.era, make(chan heardMessage, 64), s.end, v.era == "modern" || strings.Contains(v.capabilities, "io.policy-service/")}
	go e.read(s.lines, "data: ")
	return e
}

// read reads lines until they end, and takes those for messages that begin with a prefix.
func (e *ear) read(lines *bufio.Scanner, prefix string) {
	defer close(e.heard)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		text, ok := strings.CutPrefix(lines.Text(), prefix)
		m := heardMessage{text: text}
		if ok && json.Unmarshal([]byte(text), &m) == nil && m.Method != "" {
			e.heard <- m
		}
	}
}

// next is what it is told next, which must be by a method.
func (e *ear) next(method string) heardMessage {
	e.t.Helper()
	select {
	case m, ok := <-e.heard:
		if !ok || m.Method != method {
			e.t.Fatalf("%s: heard %q, want %s", e.era, m.text, method)
		}
		return m
	case <-time.After(time.Minute):
		e.t.Fatalf("%s: nobody hears %s", e.era, method)
	}
	return heardMessage{}
}

// welcomed hears what it is told first, behind what acknowledges it, if its client has asked for that.
func (e *ear) welcomed() {
	e.t.Helper()
	if e.era == "modern" {
		e.next("notifications/subscriptions/acknowledged")
	}
	if e.asked {
		e.next("notifications/welcome")
	}
}

// nothing fails if it was told something, or has ended.
func (e *ear) nothing() {
	e.t.Helper()
	select {
	case m, ok := <-e.heard:
		e.t.Errorf("%s: heard %s, or its end: %t", e.era, m.text, !ok)
	default:
	}
}

// ended waits until the stream has ended, perhaps before its client was welcomed, and fails if anything else was told before.
func (e *ear) ended() {
	e.t.Helper()
	for patience := time.After(time.Minute); ; {
		select {
		case m, ok := <-e.heard:
			if !ok {
				return
			}
			if m.Method != "notifications/subscriptions/acknowledged" && m.Method != "notifications/welcome" {
				e.t.Errorf("%s: heard %s", e.era, m.text)
			}
		case <-patience:
			e.t.Errorf("%s: it does not end", e.era)
			return
		}
	}
}

// filesBy has a client call a tool that people must agree to, and gives the id of what they are asked.
func (w *world) filesBy(v *visitor, tool, arguments string) string {
	w.t.Helper()
	before := len(w.pending(tool))
	w.t.Cleanup(v.waits(tool, arguments).leave)
	var ids []string
	mcptest.Until(w.t, "people are asked about "+tool, func() bool {
		ids = w.pending(tool)
		return len(ids) > before
	})
	return ids[before]
}

// Who listens for another tenant hears what waits there, and nothing else, whatever they are called.
func TestListenInTenants(t *testing.T) {
	t.Parallel()
	acme := mcptest.NewIssuer(t, siegeResource, time.Now)
	keys := acme.KeysFile(t)
	w := newPeople(t, land{
		files: map[string]string{"tenants/acme/none.cedar": `@id("none") forbid (principal, action == Action::"none", resource);`},
		serve: func(c *pdpserver.Config) {
			too := c.Auth.JWT[0]
			too.Issuer, too.JWKSFile, too.Grant = acme.URL, keys, auth.Grant{Tenants: []string{"acme"}, Permissions: []auth.Permission{auth.Approve}}
			c.Auth.JWT = append(c.Auth.JWT, too)
		},
		change: func(c *mcp.Config) {
			c.Identity.Issuers = append(c.Identity.Issuers, mcp.IssuerConfig{Issuer: acme.URL, Tenant: "acme", Algorithms: []string{"ES256"}, JWKSFile: keys})
		},
	})
	abroad := func(era string, claims mcptest.Claims) *visitor {
		v := w.stranger(era, acme.Token(t, claims))
		v.begin()
		return v
	}
	for _, era := range eras {
		here, there := w.visitor(era, mcptest.Claims{"sub": "mia"}).listens(), abroad(era, mcptest.Claims{"sub": "mia"}).listens()
		here.welcomed()
		there.welcomed()
		one, other := w.plain(era).waits("pair", `{"n":"`+era+`"}`), abroad(era, nil).waits("pair", `{"n":"`+era+` of acme"}`)
		for _, e := range []struct {
			*ear
			arguments string
		}{{here, `{"n":"` + era + `"}`}, {there, `{"n":"` + era + ` of acme"}`}} {
			for {
				got := e.next("notifications/authorization/request")
				if !strings.Contains(string(got.Params.Arguments), era) { // of the era before
					continue
				}
				if string(got.Params.Arguments) != e.arguments {
					t.Errorf("%s: heard %s", era, got.text)
				}
				break
			}
		}
		here.nothing()
		there.nothing()
		one.leave()
		other.leave()
	}
}

// Who may approve a call hears the tool by its name, also if its server has the same name, and the binding asks.
func TestListenToolOfTheSameName(t *testing.T) {
	t.Parallel()
	w := newPeople(t, land{
		answers: mcptest.Answers{Tools: definitions("rec")},
		change:  func(c *mcp.Config) { c.Ask = "coaz" },
		files:   map[string]string{"same.cedar": `@id("same") @obligation("pair") permit (principal, action == Action::"tools/call", resource == tool::"rec");`},
	})
	hears := w.visitor("modern", mcptest.Claims{"sub": "mia"}).listens()
	hears.welcomed()
	defer w.visitor("modern", nil).waits("rec", `{"n":1}`).leave()
	if got := hears.next("notifications/authorization/request"); !strings.Contains(got.text, `"tool":"rec","arguments"`) {
		t.Errorf("heard %s", got.text)
	}
}

// inFront is a land with something in front of its PDP.
func inFront(t *testing.T, serve func(pdp http.Handler, rw http.ResponseWriter, r *http.Request)) land {
	tap := newWiretap(t)
	tap.answers(func(rw http.ResponseWriter, r *http.Request, _ []byte) bool {
		serve(tap.proxy, rw, r)
		return true
	})
	return land{serve: tap.serve, before: tap.before}
}

// readsNotifications reports whether a gateway reads for a person what waits.
func readsNotifications(r *http.Request) bool {
	return strings.HasSuffix(r.URL.Path, "/access/v1/requests/notifications")
}

// Who opens stream after stream hears what waits on each. It is on record as offered once, and the PDP is read a few times at once.
func TestListenFloods(t *testing.T) {
	t.Parallel()
	var asked, open, most atomic.Int64
	w := newPeople(t, inFront(t, func(pdp http.Handler, rw http.ResponseWriter, r *http.Request) {
		if readsNotifications(r) {
			asked.Add(1)
			now := open.Add(1)
			defer open.Add(-1)
			for before := most.Load(); now > before && !most.CompareAndSwap(before, now); before = most.Load() {
			}
		}
		pdp.ServeHTTP(rw, r)
	}))
	alice := w.plain("modern")
	const waiting, streams, principals = 3, 3, 20
	var ids []string
	for n := range waiting {
		ids = append(ids, w.filesBy(alice, "confirm", `{"n":`+strconv.Itoa(n)+`}`))
	}
	var all sync.WaitGroup
	for n := range principals {
		who := w.visitor("modern", mcptest.Claims{"sub": "eve", "client_id": "flood-" + strconv.Itoa(n)})
		all.Go(func() {
			for range streams {
				e := who.listens()
				e.welcomed()
				e.end()
			}
		})
	}
	all.Wait()
	again := w.visitor("modern", mcptest.Claims{"client_id": "another"}) // the one that called hears when it has waited for long enough
	for range streams {
		e := again.listens()
		e.welcomed()
		for range waiting {
			e.next("notifications/authorization/request")
		}
		e.end()
	}
	if got := asked.Load(); got > (principals+1)*streams || most.Load() > 16 {
		t.Errorf("read %d times, %d at once", got, most.Load())
	}
	for _, id := range ids {
		if got := w.steps(id); len(got) != 2 {
			t.Errorf("on record is %q", got)
		}
	}
}

// While the PDP does not say what waits for a listener, however long that takes, it is asked again; a listener hears meanwhile what
// else there is.
func TestListenWhilePDPIsAway(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	w := newPeople(t, inFront(t, func(pdp http.Handler, rw http.ResponseWriter, r *http.Request) {
		if readsNotifications(r) && asked.Add(1) < 5 {
			rw.Header().Set("WWW-Authenticate", `Bearer error="invalid_token"`) // of the gateway's own key
			rw.WriteHeader([]int{http.StatusServiceUnavailable, http.StatusUnauthorized}[asked.Load()%2])
			return
		}
		pdp.ServeHTTP(rw, r)
	}))
	listener := w.visitor("modern", mcptest.Claims{"client_id": "another"}) // the one that calls hears when it has waited for long enough
	e := listener.listens()
	e.welcomed()
	id := w.filesBy(w.plain("modern"), "confirm", `{"n":1}`)
	listener.call("never", `{}`).refused(t, -32001, "tool_call_blocked", "")
	e.next("notifications/tool_call_blocked")
	if got := e.next("notifications/authorization/request"); got.Params.ID != id {
		t.Errorf("heard %s", got.text)
	}
	e.nothing()
}

// heardAnswers counts the answers to a gateway that reads for a person what waits, each once it was read.
type heardAnswers struct {
	http.RoundTripper
	n atomic.Int64
}

func (h *heardAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := h.RoundTripper.RoundTrip(r)
	if err == nil && readsNotifications(r) {
		answer.Body = mcptest.Body{ReadCloser: answer.Body, Closed: sync.OnceFunc(func() { h.n.Add(1) })}
	}
	return answer, err
}

// A token that the PDP does not take is shown to it once in a while, however much waits and however many streams there are.
func TestListenStrangers(t *testing.T) {
	t.Parallel()
	var shown atomic.Int64
	of := inFront(t, func(pdp http.Handler, rw http.ResponseWriter, r *http.Request) {
		pdp.ServeHTTP(rw, r)
		if readsNotifications(r) {
			shown.Add(1)
		}
	})
	public := of.serve
	of.serve = func(c *pdpserver.Config) {
		public(c)
		c.Auth.JWT[0].Audience = "https://elsewhere.example.com"
	}
	heard := &heardAnswers{RoundTripper: longReceipts(t)}
	of.deps.Transport = heard
	w := newPeople(t, of)
	alice := w.plain("modern")
	for n := range 4 {
		w.filesBy(alice, "confirm", `{"n":`+strconv.Itoa(n)+`}`)
	}
	stranger := w.as("modern", "eva") // who does not hear when a call of alice has waited for long enough
	blocked := func(got echo) {       // as unknown, or as denied by its name if no tools of the server are known yet
		t.Helper()
		if got.kind() != "tool_call_blocked" {
			t.Error(got)
		}
	}
	asked := func(times int64) {
		t.Helper()
		var all []*ear // a stream that ends takes a question along whose answer is not there yet
		for range 3 {
			e := stranger.listens()
			all = append(all, e)
			e.welcomed()
			blocked(stranger.call("none", `{}`))
			e.next("notifications/tool_call_blocked")
			mcptest.Until(t, "the PDP is asked", func() bool { return shown.Load() >= times })
			e.nothing()
			// The clock may move once the gateway knows the answer. It has taken another call since.
			mcptest.Until(t, "the PDP is heard", func() bool { return heard.n.Load() >= times })
			blocked(stranger.call("none", `{}`))
			e.next("notifications/tool_call_blocked")
		}
		if got := shown.Load(); got != times {
			t.Errorf("it is shown %d times", got)
		}
		for _, e := range all {
			e.end()
		}
	}
	asked(1)
	w.advance(time.Minute)
	asked(2)
}

// Nor does anybody decide there by a form that a gateway which asks by forms has shown.
func TestListenFormsOfOthers(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		w := newPeople(t, land{})
		v := w.client(era)
		d := v.dialogue("confirm", `{}`)
		id := w.asks("confirm")
		w.siege.config.Approvals.Channels = []string{"url", "wait"}
		d.answer(v.at(w.replica()), saysYes)
		if era == "modern" {
			if got := d.ends(isInvalid); !strings.Contains(got.text, "decide in the console") {
				t.Errorf("%s", got)
			}
		}
		if votes := w.votes(id); len(votes) > 0 || len(w.forwarded("confirm")) > 0 {
			t.Errorf("%s: they say %q", era, votes)
		}
		w.approve("alice", id)
		if era == "legacy" {
			d.ends(itRuns)
		}
	}
}

// A client of the legacy era is told of the resources that the gateway knows it wants, so it has as many as the gateway keeps.
func TestSubscriptionsAreBounded(t *testing.T) {
	t.Parallel()
	s := newSiege(t, camp{answers: mcptest.Answers{Eras: []string{"legacy"}, Handle: func(c *mcptest.Call) bool {
		refuses := c.Method == "resources/subscribe" && strings.Contains(string(c.Params), "mem://none")
		if refuses {
			c.Error(`{"code":-32002,"message":"there is no such resource"}`)
		}
		return refuses
	}}})
	v := s.visitor("legacy", nil)
	subscribe := func(uri string) echo { return v.ask("resources/subscribe", `{"uri":"mem://`+uri+`"}`) }
	for n := range 70 {
		if got := subscribe("none/" + strconv.Itoa(n)); got.fault == nil || got.fault.Code != -32002 {
			t.Fatal(got)
		}
	}
	for n := range 64 {
		if got := subscribe(strconv.Itoa(n)); !got.ran() {
			t.Fatal(got)
		}
	}
	if got := subscribe("more"); got.fault == nil || got.fault.Code != -32602 || !strings.Contains(got.text, "too many resources") {
		t.Error(got)
	}
	if got := v.ask("resources/unsubscribe", `{"uri":"mem://0"}`); !got.ran() {
		t.Error(got)
	}
	if got := subscribe("more"); !got.ran() {
		t.Error(got)
	}
}
