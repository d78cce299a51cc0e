package server_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"policy-service/pdp"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest"
)

// boundTo is a bundle in which the tool some waits for an approval on other terms.
func boundTo(terms string, more ...string) map[string]string {
	return approvalFiles(append([]string{
		"a.cedar", `@id("some") @obligation("some") permit(principal, action == Action::"tool.invoke", resource in group::"some");`,
		"obligations.yaml", "some: {type: approval_required, properties: {template: owner, " + terms + "}}\n",
		"entities/f.json", `[{"uid":{"type":"tool","id":"some"},"attrs":{},"parents":[{"type":"group","id":"some"}]}]`,
	}, more...)...)
}

// However little an approval is bound to, those who act are the ones of whom it was held
// that they do not decide: nobody steps into what they approved for others.
func TestNobodyJoinsWhatTheyApproved(t *testing.T) {
	t.Parallel()
	volatile := boundTo("uses: 2")
	volatile["bundle.yaml"] = "volatile: [agent, on_behalf_of]\n"
	for name, files := range map[string]map[string]string{"no context": boundTo("material: [resource]"), "volatile": volatile} {
		t.Run(name, func(t *testing.T) {
			c := openCounterOn(t, pdptest.Bundle(files))
			id := c.asks("pep", tool("some", push+`,"agent":"helper"`)).Approval.ID
			c.says("mia", id, "decision", yes, 200)
			for _, who := range []string{`"agent":"mia"`, `"agent":{"type":"agent","id":"helper"}`, `"agent":"helper","on_behalf_of":[{"type":"user","id":"mia"}]`, `"trace":"x"`} {
				c.asks("pep", tool("some", again+","+who), "X-Approval", "none").isStopped(t, who)
			}
			c.asks("pep", tool("some", again+`,"agent":"helper"`)).passes(t, "as it was approved, it does not go through")
		})
	}
}

// A tenant that was moved away has nobody decide about what waits in it, and keeps nobody
// from deciding about the rest.
func TestInboxWithoutATenant(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeAll(t, dir, approvalFiles())
	c := openCounterOn(t, pdp.Dir(dir))
	gone := c.asks("pep", strings.Replace(tool("push", push), `"default"`, `"acme"`, 1)).Approval.ID
	id := c.asks("pep", tool("push", push)).Approval.ID
	must(t, os.RemoveAll(filepath.Join(dir, "tenants")))
	must(t, c.Reload(t.Context()))
	if items, _ := c.inbox("mia", ""); len(items) != 1 || items[0].ID != id {
		t.Errorf("got %+v", items)
	}
	c.says("mia", gone, "decision", yes, 404)
	c.says("pep", gone, "cancel", "", 200)
	c.says("mia", id, "decision", yes, 200)
}

// Asking for the same by another name costs a program nothing, so it does not fill the disk.
func TestTasksOfOneApprovalAreBounded(t *testing.T) {
	t.Parallel()
	c := openDesk(t)
	p := c.program("asker")
	question := wants("push", push)
	asking := question + "," + p.denied(question).denial()
	first := p.submits(asking, "Idempotency-Key", "first")
	for n := range 99 {
		if got := p.submits(asking, "Idempotency-Key", fmt.Sprint(n)); got.status != 202 {
			t.Fatalf("got %d %s", got.status, got.text)
		}
	}
	p.submits(asking, "Idempotency-Key", "last").refused(t, "one too many", 429, "Too Many Requests")
	if got := p.submits(asking, "Idempotency-Key", "first"); got.status != 202 || got.Task.ID != first.Task.ID {
		t.Errorf("what is known: %d %s", got.status, got.text)
	}
	c.says("mia", c.waiting(first), "decision", no, 200)
	p.submits(asking, "Idempotency-Key", "last").is(t, "another approval request", 202)
}

// Who only looks is held to the rate of everybody who asks.
func TestLookingIsPaced(t *testing.T) {
	t.Parallel()
	c := openCounter(t, func(config *server.Config) { config.Load.RateLimit.PerSecond = 5 })
	id := c.asks("other-pep", tool("push", push)).Approval.ID
	for n, path := range []string{"", "/" + id, "/" + id + "/elicitation", "/" + id + "/authorization-request", "/" + id + "/authorization-notification", "", "/" + id, "/" + id + "/elicitation"} {
		want := 200
		if n >= 5 {
			want = 429
		}
		if status, text := c.do("mia", "GET", "/v1/approvals"+path, ""); status != want {
			t.Errorf("request %d, %s: got %d %s, want %d", n+1, path, status, text, want)
		}
	}
}

// Whatever can be filed can be shown, and decided about, in each form.
func TestDeepRequestsAreShown(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	deep := strings.Repeat(`{"a":`, 13) + "1" + strings.Repeat("}", 13)
	for _, body := range []string{
		strings.Replace(tool("push", push), `"id":"push"`, `"id":"push","labels":{"x":`+deep+`}`, 1),
		strings.Replace(tool("push", push), `"actor_id"`, `"x":{"y":`+deep+`},"actor_id"`, 1),
	} {
		id := c.asks("pep", body).Approval.ID
		for _, what := range []string{"elicitation", "authorization-request", "authorization-notification"} {
			c.reply("mia", "GET", "/v1/approvals/"+id+"/"+what, "").is(t, what, 200)
		}
		c.says("mia", id, "response", `{"action":"accept","content":{"approve":true}}`, 200)
	}
}

// While approvals cannot be read nothing goes through by one, and nobody is told that
// there is none: that would be final.
func TestApprovalsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	c := openDesk(t)
	id := c.approved()
	p := c.program("asker")
	denied := p.denied(wants("push", push))
	presenting, of := p.granted(wants("push", push))
	must(t, c.CloseApprovals())
	for _, test := range []struct{ who, method, path, body string }{
		{"pep", "POST", "/v1/authorize", tool("push", again)},
		{"pep", "POST", "/v1/authorize", tool("push", again+`,"approval_id":"`+id+`"`)},
		{"asker", "POST", evaluationPath, "{" + wants("push", push+","+presenting) + "}"},
		{"asker", "POST", "/access/v1/requests", "{" + wants("push", push) + "," + denied.denial() + "}"},
		{"asker", "GET", "/access/v1/requests/" + of.Task.ID, ""},
		{"asker", "POST", "/access/v1/requests/" + of.Task.ID + "/cancel", ""},
		{"mia", "GET", "/v1/approvals", ""},
		{"mia", "GET", "/v1/approvals/" + id, ""},
		{"mia", "GET", "/v1/approvals/" + id + "/elicitation", ""},
		{"mia", "POST", "/v1/approvals/" + id + "/decision", yes},
		{"mia", "POST", "/v1/approvals/" + id + "/revoke", ""},
		{"pep", "POST", "/v1/approvals/" + id + "/cancel", ""},
	} {
		c.reply(test.who, test.method, test.path, test.body).is(t, fmt.Sprintf("%s %s", test.method, test.path), http.StatusServiceUnavailable)
	}
}
