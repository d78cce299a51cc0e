package console_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"policy-service/pdp/internal/console/oidctest"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/browsertest"
)

// flowPeople are the claims of those who have an account at the provider.
var flowPeople = map[string]map[string]any{
	"alice": {"sub": "4711", "login": "alice", "name": "Alice <b>A\u202e", "groups": []string{"staff", "approvers"}},
	"guest": {"sub": "4712", "login": "guest", "name": strings.Repeat("g", 201), "groups": []string{"guests"}},
}

// flowProvider is an OpenID provider of another site than the console: its name is localhost, and the console's is
// 127.0.0.1, so that a browser sends the cookies of neither to the other.
func flowProvider(t *testing.T) *oidctest.Provider {
	t.Helper()
	p := oidctest.Start(t, func() time.Time { return pdptest.Now })
	p.URL = strings.Replace(p.URL, "127.0.0.1", "localhost", 1)
	p.Person = flowPeople["alice"]
	return p
}

// flowBounce is what the browser remarks of a provider that asks nothing: people went through it and never saw it.
const flowBounce = "BounceTrackingIssue"

// flowLogins has people log in at a provider. Its approvers may approve.
func flowLogins(p *oidctest.Provider) pdptest.Option {
	return func(c *server.Config) {
		c.Console.OIDC = &auth.OIDC{Issuer: p.URL, ClientID: oidctest.Client,
			Principal: &auth.PrincipalClaim{Type: "User", Claim: "login"},
			Grants: []auth.ClaimGrant{{Claim: "groups", Value: "approvers",
				Permissions: []auth.Permission{auth.Approve}, Tenants: []string{"default"}}},
		}
	}
}

func TestBrowserLoginByProvider(t *testing.T) {
	t.Parallel()
	for name, screen := range flowExtremes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			provider := flowProvider(t)
			f := openFlow(t, flowLogins(provider))
			id := f.push("agent-release")
			p := browsertest.Open(t, f.URL, append(screen, browsertest.Origins(provider.URL))...)
			p.Expect(flowBounce)
			p.Goto("/console/approvals/" + id)
			p.Loads(func() { p.Click("link", "Log in") })
			if got := p.Path(); got != "/console/approvals/"+id {
				t.Fatalf("after the login at %s\n%s", got, p.Text())
			}
			if !strings.Contains(p.Text(), `Alice <b>A\u202e`) {
				t.Errorf("the page does not name the person as the provider does\n%s", p.Text())
			}
			readyToDecide(t, p)
			p.Type(flowReason)
			p.Loads(func() { p.Click("button", "Approve") })
			if p.Clicks() != 2 {
				t.Errorf("%d clicks with the login", p.Clicks())
			}
			f.decided(id, "approved", byConsole("approve", "alice", flowReason))

			provider.Change(func(p *oidctest.Provider) { p.Person = flowPeople["guest"] })
			guest := browsertest.Open(t, f.URL, append(screen, browsertest.Origins(provider.URL))...)
			guest.Expect(flowBounce)
			guest.Goto("/console/approvals/" + id)
			guest.Answers(http.StatusNotFound, func() { guest.Click("link", "Log in") })
			if text := guest.Text(); !strings.Contains(text, "guest") || strings.Contains(text, "ggg") {
				t.Errorf("a name that is too long is one\n%s", text)
			}
			if strings.Contains(guest.Tree(), "agent-release") {
				t.Errorf("a guest reads\n%s", guest.Text())
			}
		})
	}
}
