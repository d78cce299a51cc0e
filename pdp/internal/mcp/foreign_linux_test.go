package mcp_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/pdptest/mcptest"
)

// named is one more gateway with the same configuration and another name.
func (s *siege) named(name string) *siege {
	s.t.Helper()
	other := *s
	other.config.Name = name
	other.gateway, other.url = other.beside()
	return &other
}

// streams opens the stream of a session, and returns the status.
func (v *visitor) streams() int {
	v.s.t.Helper()
	answer := v.opens(v.s.t.Context(), http.MethodGet, "", "{}")
	orFail(v.s.t, answer.Body.Close())
	return answer.StatusCode
}

// gone fails unless a session is unknown, for a client that is to begin anew.
func (v *visitor) gone(what string) {
	v.s.t.Helper()
	if got := v.call("look", `{}`); got.status != http.StatusNotFound || !strings.Contains(got.text, "begin with initialize") {
		v.s.t.Errorf("%s: a call: %s", what, got)
	}
	if got := v.streams(); got != http.StatusNotFound {
		v.s.t.Errorf("%s: a stream: %d", what, got)
	}
}

// tellServer are requests that say what comes on the stream of a session.
var tellServer = map[string]string{"resources/subscribe": `{"uri":"mem://notes"}`, "resources/unsubscribe": `{"uri":"mem://notes"}`, "logging/setLevel": `{"level":"debug"}`}

// An id of a session begins with the name of its gateway. Another gateway answers what it can answer without that one, and for the rest
// its client begins anew.
func TestSessionOfAnotherGateway(t *testing.T) {
	inEras(t, func(t *testing.T, era string) {
		listen := func(c *mcptest.Call) { <-c.Context.Done() }
		s := newSiege(t, camp{answers: mcptest.Answers{Eras: []string{era}, Listen: listen}, change: sealed(t)})
		second, none := s.named("gateway-1"), s.named("")
		v := s.visitor("legacy", nil)
		if name, seal, dotted := strings.Cut(v.session, "."); !dotted || name != "gateway-0" || strings.Contains(seal, ".") {
			t.Fatalf("its id is %s", v.session)
		}
		if unnamed := none.visitor("legacy", nil); strings.Contains(unnamed.session, ".") {
			t.Errorf("without a name the id is %s", unnamed.session)
		} else {
			unnamed.call("look", `{}`).runs(t)
			unnamed.at(s).call("look", `{}`).runs(t) // a gateway gets its name while sessions go on
			if got := unnamed.at(s).streams(); got != http.StatusNotFound {
				t.Errorf("the stream of a session of before is %d", got)
			}
		}
		for method, params := range tellServer {
			v.ask(method, params).has(t, http.StatusOK)
		}
		for _, other := range []*siege{second, none} {
			there := v.at(other)
			there.call("look", `{}`).runs(t)
			there.ask("tools/list", `{}`).has(t, http.StatusOK)
			for method, params := range tellServer {
				if got := there.ask(method, params); got.status != http.StatusNotFound || string(got.id) != "null" {
					t.Errorf("%s: %s", method, got)
				}
			}
			if got := there.streams(); got != http.StatusNotFound {
				t.Errorf("there the stream is %d", got)
			}
			there.call("change", `{}`).runs(t)
			if got, err := there.try(t.Context(), http.MethodDelete, "", there.headers("", "")...); err != nil || got.status != http.StatusNoContent {
				t.Errorf("there its end is %s, %v", got, err)
			}
			there.gone("after its end there")
		}
		if got := v.at(s.named("gateway-0")).streams(); got != http.StatusOK {
			t.Errorf("the stream at a gateway that was started again is %d", got)
		}
		if got := v.streams(); got != http.StatusOK {
			t.Errorf("its stream is %d", got)
		}
		begun := second.visitor("legacy", nil)
		if begun.call("look", `{}`).runs(t); !strings.HasPrefix(begun.session, "gateway-1.") || begun.streams() != http.StatusOK {
			t.Errorf("the session that is begun anew is %s", begun.session)
		}
	})
}

// What stands before the seal names no other gateway than the seal, nor a second session of the same.
func TestSessionNamesOneGateway(t *testing.T) {
	t.Parallel()
	s := newSiege(t, camp{change: sealed(t)})
	second, none := s.named("gateway-1"), s.named("")
	v, unnamed := s.visitor("legacy", nil), none.visitor("legacy", nil)
	for _, at := range []*siege{s, second, none} {
		for _, of := range []*visitor{v, unnamed} {
			sealed := of.session[strings.LastIndexByte(of.session, '.')+1:]
			for _, before := range []string{"", ".", "gateway-0.", "gateway-1.", "Gateway-0.", "gateway-0..", "gateway-1.gateway-0.", ".gateway-0.", " gateway-0."} {
				if before+sealed == of.session || strings.TrimSpace(before)+sealed == of.session {
					continue
				}
				other := of.at(at)
				other.session = before + sealed
				other.gone(before)
			}
			thief := of.at(at)
			thief.token = s.issuer.Token(t, mcptest.Claims{"sub": "bob"})
			thief.gone("another person")
		}
	}
	s.untouched(t)
	if got, err := v.try(t.Context(), http.MethodDelete, "", v.headers("", "")...); err != nil || got.status != http.StatusNoContent {
		t.Fatalf("%v %s", err, got)
	}
	for _, before := range []string{"", ".", "gateway-0.", "gateway-1."} {
		other := v.at(s)
		other.session = before + strings.TrimPrefix(v.session, "gateway-0.")
		other.gone("after its end, " + before)
	}
}

// A program runs for a session at one gateway. At another gateway, where none of it is, the session is not.
func TestSessionOfAnotherGatewayWithPrograms(t *testing.T) {
	t.Parallel()
	s := newSiege(t, camp{program: true, change: sealed(t)})
	v := s.visitor("legacy", nil)
	v.call("look", `{}`).runs(t)
	second := s.named("gateway-1")
	there := v.at(second)
	there.gone("at another gateway")
	for method, params := range tellServer {
		there.ask(method, params).has(t, http.StatusNotFound)
	}
	if running, _ := programs(s.rec); len(running) != 1 {
		t.Errorf("%d programs run", len(running))
	}
	there.session = ""
	there.begin()
	there.call("look", `{}`).runs(t)
	v.call("look", `{}`).runs(t)
	v.at(s.named("gateway-0")).call("look", `{}`).runs(t) // which was started again
}

// The answer to what a server asked belongs to its call, which waits at one gateway. The answer to a form counts at each.
func TestAnswersAtAnotherGateway(t *testing.T) {
	inEras(t, func(t *testing.T, era string) {
		s := newSiege(t, camp{answers: new(asker).answers(era), change: func(c *mcp.Config) { relays(c); sealed(t)(c) }})
		v := s.listener(nil)
		asked := v.asked("look", `{}`)
		v.at(s.named("gateway-1")).reply(asked.id, accepted).has(t, http.StatusNotFound)
		v.reply(asked.id, accepted).has(t, http.StatusAccepted)
		if said := asked.rest(t); !strings.Contains(said, "x-answer") {
			t.Errorf("the call ends with %s", said)
		}
		v.reply(asked.id, accepted).has(t, http.StatusBadRequest)
	})
	w := newPeople(t, land{change: func(c *mcp.Config) { c.Name = "gateway-0" }})
	v := w.client("legacy")
	d := v.dialogue("confirm", `{"n":1}`)
	d.answer(v.at(w.named("gateway-1")), saysYes)
	d.ends(itRuns)
	w.ran("confirm", `{"n":1}`)
}

// A client of the SDK understands that its session is over when the balancer brings it to another gateway, and begins anew there.
func TestClientBeginsAnewAtAnotherGateway(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		program bool
		sends   func(context.Context, *sdk.ClientSession) error
	}{
		"a call of a program": {true, func(ctx context.Context, s *sdk.ClientSession) error {
			_, err := s.CallTool(ctx, &sdk.CallToolParams{Name: "look", Arguments: map[string]any{}})
			return err
		}},
		"a subscription": {false, func(ctx context.Context, s *sdk.ClientSession) error {
			return s.Subscribe(ctx, &sdk.SubscribeParams{URI: "mem://notes"})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSiege(t, camp{program: test.program, change: sealed(t)})
			gateways := []*mcp.Gateway{s.gateway, s.named("gateway-1").gateway}
			var at atomic.Int64
			balancer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { gateways[at.Load()].Handler().ServeHTTP(w, r) }))
			t.Cleanup(balancer.Close)
			begin := func() *sdk.ClientSession {
				transport := &sdk.StreamableClientTransport{
					Endpoint: balancer.URL + mcp.Endpoint, HTTPClient: &http.Client{Transport: withToken(s.issuer.Token(t, nil))}, DisableStandaloneSSE: true,
				}
				session, err := sdk.NewClient(&sdk.Implementation{Name: "client", Version: "1"}, nil).Connect(t.Context(), transport, &sdk.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
				orFail(t, err)
				t.Cleanup(func() { _ = session.Close() })
				orFail(t, test.sends(t.Context(), session))
				return session
			}
			first := begin()
			at.Store(1)
			if err := test.sends(t.Context(), first); !errors.Is(err, sdk.ErrSessionMissing) {
				t.Errorf("at another gateway its client is told %v", err)
			}
			if again := begin(); !strings.HasPrefix(first.ID(), "gateway-0.") || !strings.HasPrefix(again.ID(), "gateway-1.") {
				t.Errorf("the sessions are %s and %s", first.ID(), again.ID())
			}
		})
	}
}
