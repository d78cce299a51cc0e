package mcp_test

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"policy-service/pdp/pdptest/mcptest"
)

// killedRequestPolicies: whoever has an agent requests, and people call "once" themselves.
const killedRequestPolicies = `@id("plain") permit(principal, action, resource) unless { action == Action::"tool.invoke" || action == Action::"tool.fulfil" };
@id("fulfil") permit(principal is user, action == Action::"tool.fulfil", resource);
@id("call") permit(principal is user, action == Action::"tool.invoke", resource == tool::"rec:once");`

// killedRequests are a PDP and a server, and a gateway before them that is a process.
type killedRequests struct {
	*setting
	gateway *mortal
	world   *siege
	era     string
}

// newKilledRequests has the gateway keep requests for tools somewhere.
func newKilledRequests(t *testing.T, era, keep string) *killedRequests {
	t.Helper()
	s := newSetting(t, "127.0.0.1:0", "modern")
	s.write("policies/all.cedar", killedRequestPolicies)
	orFail(t, os.Remove(s.file("policies/obligations.yaml")))
	s.write("policies/bundle.yaml", "allow_trivial: true\n")
	s.pdpHere()
	at := heldAddress(t)
	file := s.gatewayFile("gateway.yaml", at, "wait: 100ms", "tool_requests: {keep: "+keep+"}")
	return &killedRequests{s, newMortal(t, at, gatewayChild+"="+file), &siege{t: t, url: "http://" + at + "/mcp", rec: s.rec, issuer: s.issuer}, era}
}

// anew are a requester and mia after a start: connections of before are gone.
func (s *killedRequests) anew() (requester, mia *visitor) {
	return s.world.visitor(s.era, nil), s.world.visitor(s.era, mcptest.Claims{"sub": "mia", "client_id": nil})
}

// killsAt has the gateway killed at a point at which mia fulfils a request, and started again. It gives the id of the request.
func (s *killedRequests) killsAt(at *doorway, by func(*http.Request, []byte) bool, answer bool, arguments string) (id string) {
	requester, mia := s.anew()
	id = requester.requests("once", arguments)
	trap := at.hold(answer, by)
	call := mia.waitsFor("tools/call", fulfilling(id, "agent-release", "once", arguments))
	<-trap.held
	s.gateway.kill()
	call.lost(s.t)
	s.gateway.start()
	return id
}

// A gateway that is killed and started again with the same keys knows nothing of what was requested: it is refused, also to who was
// just fulfilling it, and no call is made twice.
// It takes some seconds: gateways and PDPs are processes, and are started again.
func TestRequestKilled(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		s := newKilledRequests(t, era, "memory")
		refused := func(name, id, arguments string, seen int) {
			t.Helper()
			requester, mia := s.anew()
			mia.fulfils(id, "agent-release", "once", arguments).refused(t, -32602, "", noRequest, era, name)
			requester.fetches(id, "once", arguments).refused(t, -32602, "", noRequest, era, name, "the requester")
			if got := s.seen(markerOf([]byte(arguments))); got != seen {
				t.Errorf("%s, %s: the server has seen it %d times, and it should be %d", era, name, got, seen)
			}
		}
		requester, mia := s.anew()
		waits := requester.requests("once", `{"marker":"waits"}`)
		names(t, era, mia.fulfils(requester.requests("once", `{"marker":"goes"}`), "agent-release", "once", `{"marker":"goes"}`), "user/mia", "agent/agent-release")
		s.gateway.kill()
		s.gateway.start()
		refused("while it waits", waits, `{"marker":"waits"}`, 0)
		for name, point := range map[string]struct {
			at     *doorway
			by     func(*http.Request, []byte) bool
			answer bool
			seen   int
		}{
			"before it is claimed":       {s.pdp, asksAbout("tool.fulfil"), true, 0},
			"when it is claimed":         {s.pdp, asksAbout("tool.request"), true, 0},
			"as it forwards":             {s.server, aCall, false, 0},
			"before the server's answer": {s.server, aCall, true, 1},
		} {
			arguments := `{"marker":"` + name + `"}`
			id := s.killsAt(point.at, point.by, point.answer, arguments)
			refused(name, id, arguments, point.seen)
		}
	}
}

func asksAbout(action string) func(*http.Request, []byte) bool {
	return func(r *http.Request, body []byte) bool {
		return strings.HasSuffix(r.URL.Path, "/evaluation") && strings.Contains(string(body), `"name":"`+action+`"`)
	}
}

// What the PDP keeps is there after a gateway was killed: what waited waits, and can be fulfilled once. What was claimed is
// claimed, no call is made twice, and in time its requester is refused because there is no answer.
func TestRequestKilledAtPDP(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		s := newKilledRequests(t, era, "pdp")
		for _, point := range []struct {
			name   string
			at     *doorway
			by     func(*http.Request, []byte) bool
			answer bool
			seen   int // by the server, before the kill
			open   bool
		}{
			{"before it is claimed", s.pdp, asksAbout("tool.fulfil"), true, 0, true},
			{"as it asks for the requester", s.pdp, asksAbout("tool.request"), true, 0, true},
			{"before the claim is answered", s.pdp, keepsAtPDP, true, 0, false},
			{"as it forwards", s.server, aCall, false, 0, false},
			{"before the server's answer", s.server, aCall, true, 1, false},
		} {
			arguments := `{"marker":"` + point.name + `"}`
			id := s.killsAt(point.at, point.by, point.answer, arguments)
			requester, mia := s.anew()
			if got := pendingID(requester.fetches(id, "once", arguments)); got == "" {
				t.Errorf("%s, %s: it does not wait", era, point.name)
			}
			got, want := mia.fulfils(id, "agent-release", "once", arguments), point.seen
			if point.open {
				want++
				names(t, point.name, got, "user/mia", "agent/agent-release")
				names(t, point.name, requester.fetches(id, "once", arguments), "user/mia", "agent/agent-release")
			} else if !got.says(-32602, "fulfilled already") {
				t.Errorf("%s, %s: %s", era, point.name, got)
			}
			if got := s.seen(markerOf([]byte(arguments))); got != want {
				t.Errorf("%s, %s: the server has seen it %d times, and it should be %d", era, point.name, got, want)
			}
		}
	}
}
