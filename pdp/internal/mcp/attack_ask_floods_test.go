package mcp_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/internal/mcp"
	pdpserver "policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest/mcptest"
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
	var over []<-chan echo
	for n := range 8 {
		arguments, claims := fmt.Sprintf(`{"n":%d}`, n), mcptest.Claims{"sub": "mallory", "client_id": fmt.Sprintf("agent-%d", n)}
		caller, requester := w.visitor("modern", claims), a.visitor("modern", claims)
		if n < each {
			over = append(over, caller.waits("second-person", arguments).ended)
			mcptest.Until(t, "it waits", func() bool { return len(w.pending("second-person")) == n+1 })
			mcptest.Until(t, "a call that waits leaves its client a place to ask from", func() bool { return caller.call("free", `{}`).ran() })
			requester.requests("free", arguments)
			continue
		}
		for _, got := range []echo{caller.call("second-person", arguments), requester.ask("tools/request", `{"name":"free","arguments":`+arguments+`}`)} {
			if !got.limited() {
				t.Errorf("%d: %s", n, got)
			}
		}
	}
	over = append(over, w.visitor("modern", mcptest.Claims{"sub": "bob"}).waits("second-person", `{}`).ended)
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
			if n < 5 && owed(got) == "" || n >= 5 && !got.limited() {
				t.Errorf("call %d: %s", n, got)
			}
		}
		w.askedFor("second-person", 5)
		// Who is asked already is asked still: the same call again is none more.
		if got := alice.call("second-person", `{"n":1}`); owed(got) == "" {
			t.Errorf("the same again: %s", got)
		}
		if got := w.visitor(era, mcptest.Claims{"client_id": "agent-2"}).call("second-person", `{"n":61}`); !got.limited() {
			t.Errorf("another agent of hers: %s", got)
		}
		if got := w.visitor(era, mcptest.Claims{"sub": "bob"}).call("second-person", `{"n":1}`); owed(got) == "" {
			t.Errorf("another person: %s", got)
		}
		alice.call("free", `{}`).runs(t, "what needs nobody:")
	})
}
