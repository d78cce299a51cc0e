package mcp_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"policy-service/pdp/mcp"
)

// atPDP is the name of a variable. Where it is set the PDP keeps all requests for tools.
const atPDP = "TOOL_REQUESTS_AT_PDP"

// TestRequestsAtPDP runs the other tests of requests with requests that the PDP keeps, but those about the memory of one process.
func TestRequestsAtPDP(t *testing.T) {
	t.Parallel()
	again := exec.CommandContext(t.Context(), os.Args[0], "-test.short", "-test.timeout=5m", "-test.run=^TestRequest",
		"-test.skip=^(TestRequestsAtPDP|TestRequestReplicas.*|TestRequestKilled)$")
	again.Env = append(os.Environ(), atPDP+"=1")
	if said, err := again.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
}

func newSharedAgora(t *testing.T, of land) agora {
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
// for nobody else.
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

// Of all who would fulfil a request at several gateways at once one does, also when the gateway that took the request is gone.
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
		came, begin := make(chan echo, len(all)), make(chan struct{})
		for _, v := range all {
			go func() {
				<-begin
				came <- v.fulfils(id, "restricted", "free", arguments)
			}()
		}
		close(begin)
		ran := 0
		for range all {
			switch got := <-came; {
			case got.ran():
				ran++
			case !got.says(-32602, "fulfilled already"):
				t.Errorf("%s: %s", era, got)
			}
		}
		if sent := a.forwarded("free"); ran != 1 || !slices.Equal(sent, []string{arguments}) {
			t.Errorf("%s: %d fulfilled it, and the server got %q", era, ran, sent)
		}
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
