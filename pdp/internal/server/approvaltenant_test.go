package server_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"policy-service/pdp"
)

// tenantFiles is the bundle with a tenant that lets its own man, eve, decide about
// everything, and demands approvals of its own.
func tenantFiles(more ...string) map[string]string {
	return approvalFiles(append([]string{
		"tenants/acme/own.cedar", `
@id("acme-man") permit(principal == user::"eve", action == Action::"approval.decide", resource is Approval);
@id("acme-own") @obligation("theirs") permit(principal, action == Action::"tool.invoke", resource == tool::"own");
@id("acme-roots") @obligation("ask") permit(principal, action == Action::"tool.invoke", resource) when { [tool::"roots", tool::"equal"].contains(resource) };
@id("acme-equal") @obligation("a-equal") permit(principal, action == Action::"tool.invoke", resource) when { [tool::"push", tool::"equal"].contains(resource) };
`,
		"tenants/acme/obligations.yaml", strings.Replace(strings.Replace(approvalObligations[:strings.Index(approvalObligations, "\ntwo")], "ask:", "a-equal:", 1), "\n", "", 1) + `
theirs: {type: approval_required, properties: {template: nobody, delegable: true}}
`}, more...)...)
}

func inAcme(body string) string { return strings.Replace(body, `"default"`, `"acme"`, 1) }

// A tenant's permit does not make its man one of those whom the root would have asked:
// neither where a policy of the root demands the approval, nor where an obligation of the
// root does, whatever equal words the tenant has for it, and in no form.
func TestATenantsManDoesNotDecideWhatTheRootDemands(t *testing.T) {
	t.Parallel()
	c := openDeskOn(t, tenantFiles())
	for _, id := range []string{"push", "roots", "equal", "list", "stop"} {
		asked := c.asks("pep", inAcme(tool(id, push))).Approval
		if asked == nil {
			t.Fatalf("%s: nobody is asked", id)
		}
		c.refusesTheMan(asked.ID)
		if c.asks("pep", inAcme(tool(id, again))).may() {
			t.Errorf("%s goes through", id)
		}
	}
	// By the profile.
	p := c.program("acme-asker").in("acme")
	question := wants("push", push+`,"n":1`)
	asked := p.submits(question + "," + p.denied(question).denial())
	c.refusesTheMan(c.waiting(asked))
	c.says("acme-lead", c.waiting(asked), "decision", yes, http.StatusOK)
	p.evaluates(wants("push", push+`,"n":1,`+presents(p.looks(asked.Task.ID).Result))).allows(t, "by the root's people")
	// In the place of somebody whom the root lets decide the man may, as anybody.
	id := c.asks("pep", inAcme(tool("push", push+`,"n":2`))).Approval.ID
	c.says("mia", id, "decision", `{"decision":"delegate","reason":"away","to":"user::\"eve\""}`, 200)
	c.says("eve", id, "decision", yes, 200)
}

func (c *counter) refusesTheMan(id string) {
	c.t.Helper()
	for _, what := range []string{"", "/elicitation", "/authorization-request", "/authorization-notification"} {
		if status, text := c.do("eve", "GET", "/v1/approvals/"+id+what, ""); status != 404 {
			c.t.Errorf("%s: got %d %s", what, status, text)
		}
	}
	c.says("eve", id, "decision", yes, 404)
	c.says("eve", id, "decision", `{"decision":"delegate","reason":"away","to":"user::\"zoe\""}`, 404)
	c.says("eve", id, "response", `{"action":"accept","content":{"approve":true}}`, 404)
	c.says("eve", id, "revoke", "", 404)
	if items, _ := c.inbox("eve", ""); len(items) != 0 {
		c.t.Errorf("eve sees %+v", items)
	}
}

// What the tenant alone demands its own permits decide about, and whom they let name
// another; the root's forbids count.
func TestATenantsOwnDemandIsItsOwn(t *testing.T) {
	t.Parallel()
	c := openDeskOn(t, tenantFiles())
	asked := func(n string) string {
		return c.asks("pep", inAcme(tool("own", `"n":`+n))).Approval.ID
	}
	goes := func(n string) bool {
		return c.asks("pep", inAcme(tool("own", `"justification":"approved","n":`+n))).may()
	}
	c.says("mia", asked("1"), "decision", yes, 404) // no policy of the root lets her
	c.says("eve", asked("1"), "decision", yes, 200)
	if !goes("1") {
		t.Error("what the tenant's man approved does not go through")
	}
	c.says("eve", asked("2"), "decision", `{"decision":"delegate","reason":"away","to":"user::\"zoe\""}`, 200)
	c.says("zoe", asked("2"), "decision", yes, 200)
	if !goes("2") {
		t.Error("what their delegate approved does not go through")
	}
	p := c.program("acme-asker").in("acme")
	question := wants("own", push)
	submitted := p.submits(question + "," + p.denied(question).denial())
	items, _ := c.inbox("eve", "")
	c.says("eve", items[0].ID, "decision", yes, 200)
	p.evaluates(wants("own", push+","+presents(p.looks(submitted.Task.ID).Result))).allows(t, "by the profile")

	forbidden := openDeskOn(t, tenantFiles("a.cedar", `forbid(principal == user::"eve", action == Action::"approval.decide", resource);`))
	forbidden.says("eve", forbidden.asks("pep", inAcme(tool("own", push))).Approval.ID, "decision", yes, 404)
}

// A tenant's forbid keeps people from deciding about what the root demands.
func TestATenantsForbidCountsForTheRootsDemand(t *testing.T) {
	t.Parallel()
	c := openDeskOn(t, tenantFiles("tenants/acme/own.cedar", `forbid(principal == user::"mia", action == Action::"approval.decide", resource);`))
	id := c.asks("pep", inAcme(tool("push", push))).Approval.ID
	c.says("mia", id, "decision", yes, 404)
	c.says("zoe", id, "decision", yes, 200)
}

// Whose demand it is was settled when it was asked for: no later edit makes the root's the
// tenant's, and what a tenant's man approved is nothing to the root that demands the same
// since, or once it is approved.
func TestNoEditMakesTheRootsDemandATenants(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeAll(t, dir, tenantFiles())
	c := openCounterOn(t, pdp.Dir(dir))
	roots := func(text string) {
		t.Helper()
		must(t, os.WriteFile(filepath.Join(dir, "a.cedar"), []byte(text), 0o600))
		must(t, c.Reload(t.Context()))
	}
	without := strings.Replace(approvalPolicies, `in group::"guarded"`, `== tool::"other"`, 1)
	filed := c.asks("pep", inAcme(tool("push", push))).Approval.ID
	roots(without)
	c.says("eve", filed, "decision", yes, 404)
	theirs := c.asks("pep", inAcme(tool("push", push))).Approval.ID
	if theirs == filed {
		t.Fatal("what the tenant alone demands is what the root did")
	}
	c.says("eve", theirs, "decision", yes, 200)
	for name, text := range map[string]string{
		"at once":       approvalPolicies,
		"once approved": strings.Replace(approvalPolicies, `resource in group::"guarded")`, `resource in group::"guarded") when { context.pdp.approved }`, 1),
	} {
		roots(text)
		for _, claim := range []string{again, again + `,"approval_id":"` + theirs + `"`, push + `,"approval":{"id":"` + theirs + `"}`} {
			c.asks("pep", inAcme(tool("push", claim)), "X-Approval", "none").isStopped(t, name+": "+claim)
		}
	}
	roots(without)
	c.asks("pep", inAcme(tool("push", again))).passes(t, "as it was approved, it does not go through")
}

// What the PDP says of an approval nobody says otherwise: an entity that a tenant writes
// for an approval request whose id it knows makes it none of another template.
func TestATenantDoesNotRewriteARequestForApproval(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeAll(t, dir, tenantFiles("a.cedar", `
permit(principal == user::"eve", action == Action::"approval.decide", resource is Approval) when { resource.template == "theirs" };
permit(principal == user::"eve", action == Action::"approval.decide", resource) when { resource has vip && resource.vip };
`))
	c := openCounterOn(t, pdp.Dir(dir))
	id := c.asks("pep", inAcme(tool("push", push))).Approval.ID
	c.says("eve", id, "decision", yes, 404)
	entity := `[{"uid":{"type":"Approval","id":"` + id + `"},"attrs":{"template":"theirs","vip":true},"parents":[]}]`
	must(t, os.MkdirAll(filepath.Join(dir, "tenants", "acme", "entities"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "tenants", "acme", "entities", "e.json"), []byte(entity), 0o600))
	must(t, c.Reload(t.Context()))
	c.says("eve", id, "decision", yes, 404)
	c.says("mia", id, "decision", yes, 200)
}
