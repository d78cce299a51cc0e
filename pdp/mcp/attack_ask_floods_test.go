package mcp_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/mcptest"
	"policy-service/pdp/pdptest/night"
	pdpserver "policy-service/pdp/server"
)

// retryAfter is for how long a refusal has its client wait, 0 if it does not say.
func retryAfter(got echo) (seconds float64) {
	var data struct {
		RetryAfter float64 `json:"retry_after"`
	}
	if got.fault != nil {
		_ = json.Unmarshal(got.fault.Data, &data)
	}
	return data.RetryAfter
}

// D29: of a flood of calls that want people, as many wait as may, of one person and of all; the others are refused at once,
// with when to come back, and nobody is asked about them.
func TestAskAttackD29Waiting(t *testing.T) {
	t.Parallel()
	calls := night.Cases(10_000)
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			const each, inAll, people = 4, 10, 8
			w := newPeople(t, land{change: func(c *mcp.Config) {
				c.Approvals.Channels, c.Approvals.Wait, c.Approvals.PerPrincipal, c.Approvals.Waiting = []string{"wait"}, 25*time.Second, each, inAll
				c.Limits.PerPrincipal.Concurrent = 64
			}})
			var visitors []*visitor
			for n := range people {
				visitors = append(visitors, w.takesForms(era, mcptest.Claims{"sub": fmt.Sprintf("person-%d", n)}))
			}
			var all sync.WaitGroup
			var refused atomic.Int64
			ends := make(chan struct{})
			for worker := range 32 {
				all.Go(func() {
					for n := worker; n < calls/2; n += 32 {
						select {
						case <-ends:
							return
						default:
						}
						got := visitors[n%people].call("second-person", fmt.Sprintf(`{"n":%d}`, n))
						switch {
						case got.ran():
							t.Errorf("call %d: %s", n, got)
						case got.kind() == "rate_limited":
							if refused.Add(1); retryAfter(got) < 1 {
								t.Errorf("call %d: it does not say when to come back: %s", n, got)
							}
						case owed(got) == "" && !strings.Contains(got.text, "authorization_denied"):
							t.Errorf("call %d: %s", n, got)
						}
					}
				})
			}
			mcptest.Until(t, "as many wait as may", func() bool { return len(w.pending("second-person")) >= inAll })
			close(ends)                 // a wait ends after 25 s: the flood is not to last until then
			for n := range 2 * people { // each is refused, by whichever bound
				if got := visitors[n%people].call("second-person", fmt.Sprintf(`{"m":%d}`, n)); got.kind() != "rate_limited" || retryAfter(got) < 1 {
					t.Errorf("call %d: %s", n, got)
				}
				if got := visitors[n%people].call("free", `{}`); !got.ran() { // who waits for people is in nobody's way
					t.Errorf("free call %d: %s", n, got)
				}
			}
			if n := len(w.pending("second-person")); n > inAll {
				t.Errorf("people are asked about %d calls", n)
			}
			for _, id := range w.pending("second-person") { // who waits need not wait on
				w.deny("mia", id, "no")
			}
			all.Wait()
			if len(w.forwarded("second-person")) != 0 || refused.Load() == 0 {
				t.Errorf("%d are refused, and the server got %q", refused.Load(), w.forwarded("second-person"))
			}
		})
	}
}

// D29: one person who comes by ever more clients takes no more of the places of those who wait, for people or for whoever
// does what they request, than by one.
func TestAskAttackD29OnePersonByManyClients(t *testing.T) {
	t.Parallel()
	const each, inAll = 2, 3
	w := newPeople(t, land{change: func(c *mcp.Config) {
		c.Approvals.Channels, c.Approvals.Wait, c.Approvals.PerPrincipal, c.Approvals.Waiting = []string{"wait"}, 25*time.Second, each, inAll
		c.Limits.PerPrincipal.Concurrent = 1
	}})
	a := newAgora(t, land{
		files:  map[string]string{"more.cedar": `@id("any-agent") permit (principal is agent, action == Action::"tool.request", resource);`},
		change: func(c *mcp.Config) { c.ToolRequests.PerPrincipal, c.ToolRequests.Pending = each, inAll },
	})
	tooMany := func(what string, got echo) {
		t.Helper()
		if got.kind() != "rate_limited" || retryAfter(got) < 1 {
			t.Errorf("%s: %s", what, got)
		}
	}
	var over []<-chan echo
	for n := range 8 {
		arguments, claims := fmt.Sprintf(`{"n":%d}`, n), mcptest.Claims{"sub": "mallory", "client_id": fmt.Sprintf("agent-%d", n)}
		caller, requester := w.visitor("modern", claims), a.visitor("modern", claims)
		if n < each {
			over = append(over, caller.ahead("second-person", arguments))
			mcptest.Until(t, "it waits", func() bool { return len(w.pending("second-person")) == n+1 })
			mcptest.Until(t, "a call that waits leaves its client a place to ask from", func() bool { return caller.call("free", `{}`).ran() })
			requester.requests("free", arguments)
			continue
		}
		tooMany("a call", caller.call("second-person", arguments))
		tooMany("a request", requester.ask("tools/request", `{"name":"free","arguments":`+arguments+`}`))
	}
	over = append(over, w.visitor("modern", mcptest.Claims{"sub": "bob"}).ahead("second-person", `{}`))
	mcptest.Until(t, "another person waits, too", func() bool { return len(w.pending("second-person")) == inAll })
	a.visitor("modern", mcptest.Claims{"sub": "bob"}).requests("free", `{}`)
	for _, id := range w.pending("second-person") {
		w.deny("mia", id, "no")
	}
	for _, one := range over {
		if got := <-one; got.ran() || got.kind() == "rate_limited" {
			t.Errorf("%s", got)
		}
	}
}

// D29: what the PDP bounds of what one person has people asked, the gateway refuses with when to come back; nobody is asked
// beyond, and others go on.
func TestAskAttackD29Filed(t *testing.T) {
	inEras(t, func(t *testing.T, era string) {
		w := newPeople(t, land{change: hasten, serve: func(c *pdpserver.Config) { c.Approvals.MaxPendingPerSubject = 5 }})
		alice := w.plain(era)
		for n := range 60 {
			got := alice.call("second-person", fmt.Sprintf(`{"n":%d}`, n))
			if n < 5 && owed(got) == "" || n >= 5 && (got.result != nil || owed(got) != "") {
				t.Errorf("call %d: %s", n, got)
			}
			if n >= 5 && retryAfter(got) < 1 {
				t.Errorf("call %d: it does not say when to come back: %s", n, got)
			}
		}
		if all := w.approvals("second-person"); len(all) != 5 {
			t.Errorf("people are asked about %d calls", len(all))
		}
		// Who is asked already is asked still: the same call again is none more.
		if got := alice.call("second-person", `{"n":1}`); owed(got) == "" {
			t.Errorf("the same again: %s", got)
		}
		if got := w.visitor(era, mcptest.Claims{"client_id": "agent-2"}).call("second-person", `{"n":61}`); got.kind() != "rate_limited" || got.code() != -32001 || retryAfter(got) < 1 {
			t.Errorf("another agent of hers: %s", got)
		}
		if got := w.visitor(era, mcptest.Claims{"sub": "bob"}).call("second-person", `{"n":1}`); owed(got) == "" {
			t.Errorf("another person: %s", got)
		}
		alice.call("free", `{}`).runs(t, "what needs nobody:")
	})
}

// D29: one who has the same call sent again and again has people asked once.
func TestAskAttackD29Repeated(t *testing.T) {
	t.Parallel()
	w := newPeople(t, land{replicas: 2, change: hasten})
	const times = 5
	var all sync.WaitGroup
	for n := range 16 {
		v := w.replicas[n%2].takesForms("modern", nil)
		all.Go(func() {
			for range times {
				if got := v.call("confirm", `{"n":1}`); got.ran() && !strings.Contains(got.text, "input_required") {
					t.Errorf("%s", got)
				}
			}
		})
	}
	all.Wait()
	if got := w.approvals("confirm"); len(got) != 1 || len(got[0].Said) > 0 {
		t.Errorf("people are asked %d times", len(got))
	}
}
