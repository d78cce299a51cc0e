package server_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp/internal/server"
)

// Giving up is once, and by who asked; what comes of a task is its end.
func TestAccessRequestTasks(t *testing.T) {
	t.Parallel()
	c := openDesk(t)
	p := c.program("asker")
	asked := p.requests(wants("push", push))
	for name, other := range map[string]program{"another caller": c.program("other-asker"), "another tenant": p.in("acme")} {
		other.looks(asked.Task.ID).refused(t, name, 404, evaluation.UnknownTask)
		other.cancels(asked.Task.ID, "").refused(t, name, 404, evaluation.UnknownTask)
		if unknown := other.looks("00000000-0000-4000-8000-000000000000"); unknown.text != other.looks(asked.Task.ID).text {
			t.Errorf("%s tells it from none: %s", name, unknown.text)
		}
	}
	for _, body := range []string{`{"reason":7}`, `{"comment":7}`} {
		p.cancels(asked.Task.ID, body).refused(t, body, 400, "Bad Request")
	}
	if cancelled := p.cancels(asked.Task.ID, `{"reason":"changed","comment":"no more"}`); cancelled.status != 200 || cancelled.Task.Status != "cancelled" || cancelled.Result != nil {
		t.Errorf("got %d %s", cancelled.status, cancelled.text)
	}
	if _, text := c.do("auditor", "GET", "/v1/log/export", ""); !strings.Contains(text, `"changed: no more"`) {
		t.Error("the reason and the comment of the cancellation are not on record")
	}
	p.cancels(asked.Task.ID, "").refused(t, "twice", 409, evaluation.InvalidTaskState)
	if _, of := p.granted(wants("push", push)); p.cancels(of.Task.ID, "").status != 409 {
		t.Error("what is approved is cancelled")
	}
	denied := p.requests(wants("push", `"other":1`))
	c.says("mia", c.waiting(denied), "decision", no, 200)
	p.looks(denied.Task.ID).stands(t, "the answer", "denied")
	late := p.requests(wants("push", `"late":1`))
	c.Advance(10 * time.Minute)
	p.looks(late.Task.ID).stands(t, "the answer", "expired")
}

// What is approved already need not be waited for.
func TestAccessRequestOfWhatIsApproved(t *testing.T) {
	t.Parallel()
	c := openDesk(t)
	p := c.program("asker")
	question := wants("list", push)
	presenting, _ := p.granted(question)
	second := p.submits(question + "," + p.denied(question).denial())
	if second.status != 201 || second.Task.Status != "approved" || presents(second.Result) != presenting {
		t.Errorf("got %d %s", second.status, second.text)
	}
}

// TestValuesOutsideStateProveNothing: the PDP knows when an approval was given and until when. What the PEP says of that beside the id
// neither prolongs the approval nor ends it.
func TestValuesOutsideStateProveNothing(t *testing.T) {
	t.Parallel()
	c := openDesk(t)
	p := c.program("asker")
	presented := func(of task, between string) answer {
		t.Helper()
		id, state := of.Result.Approval.ID, ""
		if strings.Contains(between, "state") {
			state = of.Result.Approval.State
		}
		return p.evaluates(wants("push", push+`,"approval":{"id":"`+id+`",`+strings.Replace(between, "STATE", state, 1)+`}`))
	}
	_, early := p.granted(wants("push", push))
	presented(early, `"approved_at":"1999-01-01T00:00:00Z","approved_until":"2000-01-01T00:00:00Z"`).allows(t, "an end that was never")
	_, late := p.granted(wants("push", push))
	c.Advance(5 * time.Minute)
	for _, between := range []string{
		`"approved_until":"2099-01-01T00:00:00Z"`, `"approved_at":"2099-01-01T00:00:00Z","approved_until":"2100-01-01T00:00:00Z"`,
		`"approved_until":"2099-01-01T00:00:00Z","state":"STATE"`,
	} {
		presented(late, between).denies(t, between, evaluation.ApprovalExpired)
	}
}

// A task is forgotten when what it asked for ended long ago.
func TestAccessRequestsAreForgotten(t *testing.T) {
	t.Parallel()
	c := openDesk(t, func(config *server.Config) { config.Approvals.Retain = time.Hour })
	p := c.program("asker")
	id := p.requests(wants("push", push)).Task.ID
	becomes := func(status int, problem string) {
		t.Helper()
		c.comes(problem, func() bool { got := p.looks(id); return got.status == status && got.problem == problem })
	}
	c.Advance(10 * time.Minute)
	becomes(200, "")
	c.Advance(time.Hour)
	becomes(410, evaluation.TaskExpired)
	p.cancels(id, "").refused(t, "cancelling", 410, evaluation.TaskExpired)
	c.Advance(25 * time.Hour)
	becomes(404, evaluation.UnknownTask)
}

// Who brings an approval that does not count is told why, and what to do.
func TestAccessRequestRefusals(t *testing.T) {
	t.Parallel()
	c := openDesk(t)
	p := c.program("asker")
	question := wants("push", push)
	told := func(name, context string, reason evaluation.Reason, next string) {
		t.Helper()
		a := p.evaluates(wants("push", context))
		if a.Decision || a.Context.Reason != reason || a.Context.NextAction != next || (a.Context.Request != nil) != (next == "request") || (a.Context.RetryAfter > 0) != (next == "retry") {
			t.Errorf("%s: got %s", name, a.text)
		}
	}
	pending := p.requests(question)
	id := c.waiting(pending)
	told("it waits", push+`,"approval":{"id":"`+id+`"}`, evaluation.ApprovalPending, "retry")
	c.says("mia", id, "decision", no, 200)
	told("a person said no", push+`,"approval":{"id":"`+id+`"}`, evaluation.ApprovalDenied, "none")
	presenting, _ := p.granted(question)
	told("another request", `"other":1,`+presenting, evaluation.ApprovalOutOfScope, "request")
	c.Advance(5 * time.Minute)
	told("expired", push+","+presenting, evaluation.ApprovalExpired, "request")
	presenting, of := p.granted(question)
	c.says("noah", of.Result.Approval.ID, "revoke", `{"reason":"changed my mind"}`, 200)
	told("revoked", push+","+presenting, evaluation.ApprovalRevoked, "request")
	if looked := p.looks(of.Task.ID); looked.Task.Status != "approved" || !looked.Result.Approval.ApprovedUntil.Equal(c.Now()) {
		t.Errorf("of one that was revoked: %s", looked.text)
	}
	presenting, _ = p.granted(question)
	p.evaluates(wants("push", push+","+presenting)).allows(t, "the answer")
	told("used up", push+","+presenting, evaluation.ApprovalExpired, "request")
	told("forbidden", `"arguments":{"blocked":true},`+presenting, evaluation.ApprovalPolicyDenied, "none")
	told("forbidden, and unknown", `"arguments":{"blocked":true},"approval":{"id":"x"}`, evaluation.ApprovalUnverifiable, "none")
	again := p.evaluates(wants("push", push+","+presenting))
	p.submits(question+","+again.denial()).is(t, "by the denial of one that brought an approval", 202)
}

// Of an approval that is another's, nobody learns more than of one that never was.
func TestUnknownApprovalsLookAlike(t *testing.T) {
	t.Parallel()
	c := openDesk(t)
	theirs, _ := c.program("other-asker").granted(wants("push", push))
	acme, _ := c.program("asker").in("acme").granted(wants("push", push))
	p := c.program("asker")
	bytes := func(context string) string {
		a := p.evaluates(wants("push", context))
		if a.Context.Reason != evaluation.ApprovalUnverifiable {
			t.Errorf("got %s", a.text)
		}
		return strings.Replace(a.text, a.Context.EvaluationID, "", 1)
	}
	for _, context := range []string{push, `"arguments":{"blocked":true}`, `"other":1`} {
		unknown := bytes(context + `,"approval":{"id":"01900000-0000-7000-8000-000000000000"}`)
		for name, presenting := range map[string]string{"another caller's": theirs, "another tenant's": acme, "none at all": `"approval":{"id":"x","state":"y"}`} {
			if got := bytes(context + "," + presenting); got != unknown {
				t.Errorf("%s: got %s, want %s", name, got, unknown)
			}
		}
	}
}

// A tenant's requests are its own: its denials, its tasks, its approvals.
func TestAccessRequestsInTenants(t *testing.T) {
	t.Parallel()
	c := openDesk(t)
	p, root := c.program("acme-asker").in("acme"), c.program("asker")
	question := wants("push", push)
	denied := p.denied(question)
	if denied.Context.Request.Endpoint != atPublic+"/tenants/acme/access/v1/requests" {
		t.Errorf("got %s", denied.text)
	}
	asked := p.submits(question + "," + denied.denial())
	if asked.status != 202 || asked.Task.StatusEndpoint != atPublic+"/tenants/acme/access/v1/requests/"+asked.Task.ID {
		t.Fatalf("got %d %s", asked.status, asked.text)
	}
	c.says("acme-lead", c.waiting(asked), "decision", yes, http.StatusOK)
	presenting := presents(p.looks(asked.Task.ID).Result)
	root.submits(question+","+denied.denial()).refused(t, "a denial of a tenant at the root", 400, evaluation.InvalidDenialBinding)
	p.submits(question+","+root.denied(question).denial()).refused(t, "a denial of the root in a tenant", 400, evaluation.InvalidDenialBinding)
	c.program("acme-asker").looks(asked.Task.ID).refused(t, "at the root, which is not theirs", 404, "Not Found")
	p.in("other").looks(asked.Task.ID).refused(t, "in a tenant that is none", 404, "Not Found")
	p.in("default").submits(question+","+denied.denial()).refused(t, "below /tenants/default", 404, "Not Found")
	root.evaluates(wants("push", push+","+presenting)).denies(t, "at the root", "")
	p.evaluates(wants("push", push+","+presenting)).allows(t, "the answer")
}

// A pending task names its approval requests, so that its program can have their approvers asked over MCP. One that has
// ended names those that were not approved, with the reason of the person who denied them. Whoever else reads the names gets
// nothing by them.
func TestATaskNamesItsApprovals(t *testing.T) {
	t.Parallel()
	c := openDesk(t)
	p := c.program("asker")
	one := p.requests(wants("push", push))
	if len(one.Task.Approvals) != 1 || one.Task.Approvals[0].Item != nil {
		t.Fatalf("got %s", one.text)
	}
	id := one.Task.Approvals[0].ID
	has(t, c.message("asker", id, "elicitation", 200), `"id":"`+id+`"`)
	c.message("other-asker", id, "elicitation", 404)
	c.says("mia", id, "response", `{"action":"accept","content":{"approve":true}}`, 200)
	if done := p.looks(one.Task.ID); done.Task.Status != "approved" || done.Task.Approvals != nil || done.Result.Approval.ID != id {
		t.Errorf("got %s", done.text)
	}
	several := p.submits(p.several("list", "stop"))
	named := several.Task.Approvals
	if len(named) != 2 || named[0].Item == nil || *named[0].Item != 0 || *named[1].Item != 1 {
		t.Fatalf("got %s", several.text)
	}
	for n, tool := range []string{"list", "stop"} {
		if form := c.message("asker", named[n].ID, "elicitation", 200); !strings.Contains(form, `"tool":"`+tool+`"`) {
			t.Errorf("item %d: got %s", n, form)
		}
	}
	c.says("mia", named[1].ID, "decision", no, 200)
	reasons := func(name string, got task, want ...string) {
		t.Helper()
		if len(got.Task.Approvals) != 2 {
			t.Fatalf("%s: got %s", name, got.text)
		}
		for n, one := range got.Task.Approvals {
			if one.ID != named[n].ID || *one.Item != n || one.Reason != want[n] {
				t.Errorf("%s: got %s", name, got.text)
			}
		}
	}
	half := p.looks(several.Task.ID)
	if half.Task.Status != "pending" {
		t.Errorf("half of it: got %s", half.text)
	}
	reasons("half of it", half, "", "not today")
	reasons("cancelled", p.cancels(several.Task.ID, `{"reason":"never mind"}`), "", "not today")
	reasons("later", p.looks(several.Task.ID), "", "not today")
	both := p.submits(p.several("list", "stop"))
	c.says("mia", both.Task.Approvals[0].ID, "decision", yes, 200)
	c.says("mia", both.Task.Approvals[1].ID, "decision", no, 200)
	if left := p.looks(both.Task.ID).Task.Approvals; len(left) != 1 || *left[0].Item != 1 || left[0].Reason != "not today" {
		t.Errorf("one of two approved: got %+v", left)
	}
}
