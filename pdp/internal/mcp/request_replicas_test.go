package mcp_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"sort"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/pdptest/mcptest"
)

// atPDP is the name of a variable. Where it is set the PDP keeps all requests for tools.
const atPDP = "TOOL_REQUESTS_AT_PDP"

// TestRequestsAtPDP runs the other tests and stories of requests with requests that the PDP keeps, but those about the memory of one process.
func TestRequestsAtPDP(t *testing.T) {
	t.Parallel()
	again := exec.CommandContext(t.Context(), os.Args[0], "-test.short", "-test.timeout=30m", "-test.run=^TestRequest|^TestStories$/^(request|opened-as-it-is-now)",
		"-test.skip=^(TestRequestsAtPDP|TestRequestReplicas.*|TestRequestKilled.*)$|^TestStories$/^(request-bounds|request-kept)$")
	again.Env = append(os.Environ(), atPDP+"=1")
	if said, err := again.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
}

// keepsAtPDP reports whether a request keeps a request for a tool.
func keepsAtPDP(r *http.Request, _ []byte) bool {
	return r.Method == http.MethodPost && strings.Contains(r.URL.Path, "/v1/tools/requests/")
}

func newSharedAgora(t *testing.T, of land) *world {
	t.Helper()
	of.replicas = 3
	change := of.change
	of.change = func(c *mcp.Config) {
		c.ToolRequests.Keep = mcp.KeepAtPDP
		if change != nil {
			change(c)
		}
	}
	return newAgora(t, of)
}

// A request that was made at one gateway is heard of at another, fulfilled there, and its result fetched at a third. It is there
// for no other.
func TestRequestReplicas(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		a := newSharedAgora(t, land{})
		const arguments = `{"n":1}`
		requester, mia := a.restricted(era, "alice"), a.user(era, "mia").at(a.replicas[1])
		hears := mia.listens()
		hears.welcomed()
		id := requester.requests("free", arguments)
		if told := hears.nextRequest(); told.Params.Tool != "free" || told.Params.Requester != "restricted" || string(told.Params.Arguments) != arguments {
			t.Errorf("%s: told %+v", era, told)
		} else {
			id = told.Params.RequestID
		}
		third := requester.at(a.replicas[2])
		if got := pendingID(third.fetches(id, "free", arguments)); got == "" {
			t.Errorf("%s: it does not wait elsewhere", era)
		}
		for name, other := range map[string]*visitor{"another person": a.restricted(era, "bob"), "another agent": a.user(era, "alice")} {
			other.at(a.replicas[2]).fetches(id, "free", arguments).refused(t, -32602, "", noRequest, era, name)
		}
		third.fetches(id, "free", `{"n":2}`).refused(t, -32602, "", "has other arguments", era)
		mia.fulfils(id, "restricted", "free", `{"n":2}`).refused(t, -32602, "", "has other arguments", era)
		requester.at(a.replicas[1]).fulfils(id, "restricted", "free", arguments).refused(t, -32001, "tool_call_blocked", "a request of their own", era)
		a.untouched(t)
		names(t, era, mia.fulfils(id, "restricted", "free", arguments), "user/mia", "agent/restricted")
		for n, r := range a.replicas {
			names(t, era, requester.at(r).fetches(id, "free", arguments), "user/mia", "agent/restricted")
			if got := a.user(era, "noah").at(r).fulfils(id, "restricted", "free", arguments); !got.says(-32602, "fulfilled already") {
				t.Errorf("%s, gateway %d: %s", era, n, got)
			}
		}
		if sent := a.forwarded("free"); !slices.Equal(sent, []string{arguments}) {
			t.Errorf("%s: the server got %q", era, sent)
		}
	}
}

// Of several callers that would fulfil a request at several gateways at once one does, also when the gateway that took the request is gone.
func TestRequestReplicasOnce(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		a := newSharedAgora(t, land{})
		arguments := `{"of":"` + era + `"}`
		requester := a.restricted(era, "alice")
		id := requester.requests("free", arguments)
		var all []*visitor
		for n := range 16 {
			all = append(all, a.user(era, []string{"mia", "noah", "zoe", "alice"}[n%4]).at(a.replicas[1+n%2]))
		}
		orFail(t, a.gateway.Close())
		a.fulfilledOnce(id, arguments, all)
		if got := requester.at(a.replicas[2]).fetches(id, "free", arguments); !got.ran() {
			t.Errorf("%s: %s", era, got)
		}
	}
}

// A requester that waits at one gateway has the result of a call at another.
func TestRequestReplicasWait(t *testing.T) {
	t.Parallel()
	a := newSharedAgora(t, land{change: func(c *mcp.Config) { c.Approvals.Wait = 20 * time.Second }})
	requester, mia := a.restricted("modern", "alice"), a.user("modern", "mia").at(a.replicas[1])
	hears := mia.listens()
	hears.welcomed()
	waits := requester.waitsFor("tools/request", `{"name":"free","arguments":{"n":1}}`)
	id := hears.nextRequest().Params.RequestID
	names(t, "the call", mia.fulfils(id, "restricted", "free", `{"n":1}`), "user/mia", "agent/restricted")
	if got := <-waits.ended; !got.ran() || !strings.Contains(got.text, "user/mia") {
		t.Errorf("the requester: %s", got)
	}
}

// While the PDP does not answer nothing is requested, fulfilled or fetched, and nothing is sent. A result that the PDP did not take
// is there at no other gateway: in time that is said, and nothing is done twice.
func TestRequestReplicasPDPAway(t *testing.T) {
	t.Parallel()
	tap := newWiretap(t)
	a := newSharedAgora(t, land{before: tap.before, serve: tap.serve})
	const arguments = `{"n":1}`
	requester, mia := a.restricted("modern", "alice"), a.user("modern", "mia").at(a.replicas[1])
	third := requester.at(a.replicas[2])
	id := requester.requests("free", arguments)
	const away = "authorization service unavailable"
	tap.silent(func(r *http.Request, _ []byte) bool { return keepsAtPDP(r, nil) })
	mia.fulfils(id, "restricted", "free", arguments).refused(t, -32001, "", away)
	requester.ask("tools/request", `{"name":"free","arguments":{"n":2}}`).refused(t, -32001, "", away)
	tap.silent(func(r *http.Request, _ []byte) bool { return strings.Contains(r.URL.Path, "/v1/tools/requests") })
	for _, who := range []*visitor{requester, third} {
		who.fetches(id, "free", arguments).refused(t, -32001, "", away)
	}
	mia.fulfils(id, "restricted", "free", arguments).refused(t, -32001, "", away)
	a.untouched(t)

	var claimed atomic.Bool
	tap.silent(func(r *http.Request, _ []byte) bool { return keepsAtPDP(r, nil) && claimed.Swap(true) })
	names(t, "the call", mia.fulfils(id, "restricted", "free", arguments), "user/mia", "agent/restricted")
	tap.answers(nil)
	if got := third.fetches(id, "free", arguments); pendingID(got) == "" {
		t.Errorf("the result is not known: %s", got)
	}
	a.user("modern", "noah").fulfils(id, "restricted", "free", arguments).refused(t, -32602, "", "fulfilled already")
	a.advance(15 * time.Minute)
	for _, who := range []*visitor{requester, third} {
		who.fetches(id, "free", arguments).refused(t, -32603, "", "no answer came")
	}
	if sent := a.forwarded("free"); !slices.Equal(sent, []string{arguments}) {
		t.Errorf("the server got %q", sent)
	}
}

// A request that is too large to be kept is refused, and needs no second try. One that is kept can be fulfilled, however large;
// where its result does not fit beside it, that is said elsewhere.
func TestRequestReplicasLarge(t *testing.T) {
	t.Parallel()
	result := `{"content":[{"type":"text","text":"` + strings.Repeat("r", 100<<10) + `"}]}`
	a := newSharedAgora(t, land{answers: mcptest.Answers{Results: map[string]string{"tools/call": result}}})
	requester, mia := a.restricted("modern", "alice"), a.user("modern", "mia").at(a.replicas[1])
	arguments := func(size int) string { return `{"n":"` + strings.Repeat("x", size) + `"}` }
	id := requester.requests("free", arguments(70<<10))
	largest := ""
	size := sort.Search(256<<10, func(size int) bool {
		got := requester.ask("tools/request", `{"name":"free","arguments":`+arguments(size)+`}`)
		if id := pendingID(got); id != "" {
			largest = id
			return false
		}
		if got.refused(t, -32602, "invalid_params", "too large to be kept"); strings.Contains(got.text, "retry") {
			t.Errorf("%d bytes: %s", size, got)
		}
		return true
	}) - 1
	if size < 185<<10 {
		t.Errorf("the largest request has arguments of %d bytes", size)
	}
	mia.fulfils(id, "restricted", "free", arguments(70<<10)).runs(t, "70 KiB:")
	mia.fulfils(largest, "restricted", "free", arguments(size)).runs(t, "the largest:")
	for _, r := range a.replicas[1:] {
		requester.at(r).fetches(id, "free", arguments(70<<10)).runs(t, "what came of 70 KiB:")
	}
	requester.at(a.replicas[1]).fetches(largest, "free", arguments(size)).runs(t, "where it was fulfilled:")
	for _, r := range []*siege{a.siege, a.replicas[2]} {
		requester.at(r).fetches(largest, "free", arguments(size)).refused(t, -32603, "result_not_kept", "was fulfilled")
	}
}

// Where the PDP keeps no more requests, one that it keeps can be fulfilled. Where its result does not fit, that is said elsewhere.
func TestRequestReplicasFull(t *testing.T) {
	t.Parallel()
	const arguments = `{"n":1}`
	result := `{"content":[{"type":"text","text":"` + strings.Repeat("r", 10<<10) + `"}]}`
	a := newSharedAgora(t, land{answers: mcptest.Answers{Results: map[string]string{"tools/call": result}}})
	requester, mia := a.restricted("modern", "alice"), a.user("modern", "mia").at(a.replicas[1])
	id := requester.requests("free", arguments)
	for n, size := 0, evaluation.ToolRequestText; size > 16; n++ {
		text := inText(strings.Repeat("x", size))
		switch got := a.api("gateway", "POST", fmt.Sprint("/v1/tools/requests/", n), `{"open":true,"seconds":900,"text":`+text+`}`); got.Status {
		case http.StatusOK:
		case http.StatusTooManyRequests:
			size /= 2
		default:
			t.Fatalf("%d %s", got.Status, got.Body)
		}
	}
	if got := requester.ask("tools/request", `{"name":"free","arguments":{"n":2}}`); !got.limited() {
		t.Errorf("one more: %s", got)
	}
	mia.fulfils(id, "restricted", "free", arguments).runs(t, "the call:")
	requester.at(a.replicas[1]).fetches(id, "free", arguments).runs(t, "where it was fulfilled:")
	requester.at(a.replicas[2]).fetches(id, "free", arguments).refused(t, -32603, "result_not_kept", "was fulfilled")
}

// The gateway reads what it kept in the place of the request alone, and nothing of a text says anything to a reader of the PDP.
func TestRequestReplicasSwapped(t *testing.T) {
	t.Parallel()
	a := newSharedAgora(t, land{})
	type stored struct {
		Revision string `json:"revision"`
		Open     bool   `json:"open"`
		Seconds  int    `json:"seconds"`
		Text     string `json:"text"`
	}
	const path = "/v1/tools/requests"
	var all struct {
		Open []string `json:"open"`
	}
	requester := a.restricted("modern", "alice")
	ids := []string{requester.requests("free", `{"n":"first"}`), requester.requests("free", `{"n":"other"}`)}
	orFail(t, json.Unmarshal([]byte(a.api("gateway", "GET", path, "").Body), &all))
	var values []stored
	for _, id := range all.Open {
		var one stored
		orFail(t, json.Unmarshal([]byte(a.api("gateway", "GET", path+"/"+id, "").Body), &one))
		for _, secret := range []string{"alice", "restricted", "first", "other", requester.token} {
			if strings.Contains(one.Text, secret) {
				t.Errorf("the PDP can read %q", secret)
			}
		}
		values = append(values, one)
	}
	if len(values) != 2 {
		t.Fatalf("there are %d", len(values))
	}
	for n, id := range all.Open {
		put, err := json.Marshal(stored{values[n].Revision, true, 900, values[1-n].Text})
		orFail(t, err)
		if got := a.api("gateway", "POST", path+"/"+id, string(put)); got.Status != http.StatusOK {
			t.Fatalf("%d %s", got.Status, got.Body)
		}
	}
	mia := a.user("modern", "mia").at(a.replicas[1])
	for n, id := range ids {
		for _, arguments := range []string{`{"n":"first"}`, `{"n":"other"}`} {
			mia.fulfils(id, "restricted", "free", arguments).refused(t, -32602, "", noRequest, n, arguments)
			requester.at(a.replicas[2]).fetches(id, "free", arguments).refused(t, -32602, "", noRequest, n, arguments)
		}
	}
	a.untouched(t)
}
