package console_test

import (
	"net/http"
	"strings"
	"testing"

	"policy-service/pdp/pdptest/browsertest"
)

// What nobody agreed to looks no more harmless for having been asked before: whoever asks can withdraw a request, and
// file it again. One that was withdrawn takes the place of none that people decided about.
func TestPageSameAsNobodyAgreedTo(t *testing.T) {
	t.Parallel()
	p := openPages(t)
	alice, mia := p.logIn("alice"), p.logIn("mia")
	same := func() (html string) { return alice.page("/console/approvals/" + p.asks("push", push)) }
	cancel := func(id string) {
		t.Helper()
		got := p.Post("/v1/approvals/"+id+"/cancel", `{"reason":"later"}`, "Authorization", "Bearer "+p.secret["gateway"])
		if got.Status != http.StatusOK {
			t.Fatalf("%d %s", got.Status, got.Body)
		}
	}
	cancel(p.asks("push", push))
	got := same()
	hasNot(t, plain(got), "last time", "The last one")

	id := p.asks("push", push)
	mia.says(mia.page("/console/approvals/"+id), "/decision", "decision", "deny", "reason", "no")
	has(t, plain(mia.page("/console/approvals/"+id)), `What became of it Said User::"mia" denied,`)
	if rows := rowsOf(alice.page("/console/approvals?tab=done")); len(rows) == 0 || !strings.HasSuffix(rows[0], `User::"mia" denied: no`) {
		t.Errorf("the row of it is %q", rows)
	}
	got = same()
	has(t, plain(got), `branch " main " same as last time (Denied)`)
	hasNot(t, got, `class="same"`)

	id = p.asks("push", push)
	mia.says(mia.page("/console/approvals/"+id), "/decision", "decision", "approve", "reason", "yes")
	got = alice.page("/console/approvals/" + p.asks("push", `{"arguments":{"branch":"main","repository":"other"}}`))
	has(t, plain(got), `repository new: " other " last time: was: " shop " branch " main " same as last time The last`)
	has(t, got, `class="same"`)

	for range 30 { // more than are looked at
		cancel(p.asks("push", `{"arguments":{"branch":"main","repository":"other"}}`))
	}
	again := alice.page("/console/approvals/" + p.asks("push", `{"arguments":{"branch":"main","repository":"other"}}`))
	has(t, plain(again), `repository new: " other " last time: was: " shop " branch " main " same as last time The last`)
}

// Text of a request stands on no line of ours, and goes on in none.
func TestPageTextIsNoWordOfOurs(t *testing.T) {
	t.Parallel()
	p := openPages(t)
	alice := p.logIn("alice")
	id := p.filed(`{"tenant_id":"default","actor":{"actor_id":"release, for User/alice.\nDoes  tool.read","actor_type":"agent"},
		"action":"tool.invoke","resource":{"type":"tool","id":"t"},"context":{"arguments":{"":"x"},"justification":"ok\" — written by the policy —"}}`)
	for path, want := range map[string][]string{
		"": {`release, for User/alice. \n Does  tool.read wants to use t. (written by the policy, which may quote the request)`,
			`agent/release, ␣ for ␣ User/alice. \n Does ␣ ␣ tool.read through key:gateway`,
			`"" " x "`, `" ok \" — written by the policy — " — written by whoever asks —`},
		"/console/approvals": {`agent/release, ␣ for ␣ User/alice. \n Does ␣ ␣ tool.read`},
	} {
		if path == "" {
			path = "/console/approvals/" + id
		}
		has(t, strings.Join(strings.Fields(plain(alice.page(path))), " "), spaced(want)...)
	}
}

func spaced(all []string) []string {
	for n, one := range all {
		all[n] = strings.Join(strings.Fields(one), " ")
	}
	return all
}

// A long list of those for whom somebody acts does not push out of sight what is done.
func TestBrowserLongChain(t *testing.T) {
	t.Parallel()
	f := openFlow(t)
	id := f.asksIn("agent-release", "github.push_code", `{"agent":{"type":"agent","id":"x"},"on_behalf_of":[`+
		strings.Repeat(`{"type":"agent","id":"`+strings.Repeat("y", 90)+`"},`, 120)+`{"type":"agent","id":"z"}],"arguments":{"branch":"main"}}`)
	p := f.open("alice")
	p.Goto("/console/approvals/" + id)
	if !p.InView(p.Find("rowheader", "branch")) {
		t.Errorf("the argument cannot be seen\n%s", p.Tree())
	}
}

// Whoever clicks on Approve once more, when the answer is there already, takes nothing back.
func TestBrowserSecondClickRevokesNothing(t *testing.T) {
	t.Parallel()
	for name, screen := range flowExtremes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := openFlow(t)
			id := f.push("agent-release")
			p := f.open("alice", append([]browsertest.Option{}, screen...)...)
			p.Goto("/console/approvals/" + id)
			approve := p.Box(p.Find("button", "Approve"))
			p.Type(flowReason)
			p.Loads(func() { p.Click("button", "Approve") })
			revoke := p.Box(p.Find("button", "Revoke"))
			if revoke.X < approve.X+approve.Width && approve.X < revoke.X+revoke.Width &&
				revoke.Y < approve.Y+approve.Height && approve.Y < revoke.Y+revoke.Height {
				t.Errorf("Revoke is at %v, where Approve was: %v", revoke, approve)
			}
		})
	}
}

// Who may not approve is told so after the login.
func TestPageOfWhoMayNotApprove(t *testing.T) {
	t.Parallel()
	p := openPages(t)
	got := p.logIn("gateway").get("/console/approvals")
	if got.Status != http.StatusNotFound {
		t.Errorf("%d", got.Status)
	}
	has(t, plain(got.Body), "You are logged in, but may not approve:")
}
