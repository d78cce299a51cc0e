package server_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/server"
)

// The same asking, by the caller's own name of it, is one task; and that name is nobody
// else's.
func TestIdempotencyKeys(t *testing.T) {
	t.Parallel()
	c := openDesk(t)
	p, other := c.program("asker"), c.program("other-asker")
	question := wants("push", push)
	denied := p.denied(question)
	body := question + "," + denied.denial()
	first := p.submits(body, "Idempotency-Key", "one")
	if first.status != 202 {
		t.Fatalf("got %d %s", first.status, first.text)
	}
	reordered := denied.denial() + " , " + strings.NewReplacer(`"n":7`, `"n" : 7.0`, `"main"`, `"\u006dain"`).Replace(question)
	if again := p.submits(reordered, "Idempotency-Key", "one"); again.text != first.text {
		t.Errorf("written otherwise: %d %s", again.status, again.text)
	}
	p.submits(body+`,"requested_access":{"emergency":true}`, "Idempotency-Key", "one").refused(t, "another body", 409, evaluation.DuplicateRequest)
	if second := p.submits(body, "Idempotency-Key", "two"); second.status != 202 || second.Task.ID == first.Task.ID {
		t.Errorf("by another name: %d %s", second.status, second.text)
	}
	if theirs := other.submits(question+","+other.denied(question).denial(), "Idempotency-Key", "one"); theirs.status != 202 || theirs.Task.ID == first.Task.ID {
		t.Errorf("by another caller: %d %s", theirs.status, theirs.text)
	}
	acme := p.in("acme")
	if theirs := acme.submits(question+","+acme.denied(question).denial(), "Idempotency-Key", "one"); theirs.status != 202 || theirs.Task.ID == first.Task.ID {
		t.Errorf("in another tenant: %d %s", theirs.status, theirs.text)
	}
	for name, key := range map[string]string{"empty": "", "too long": strings.Repeat("x", 257)} {
		p.submits(body, "Idempotency-Key", key).refused(t, name, 400, "Bad Request")
	}
	c.Advance(time.Hour)
	if late := p.submits(body, "Idempotency-Key", "one"); late.Task.ID != first.Task.ID || late.Task.Status != "expired" {
		t.Errorf("who comes late finds what came of it: %d %s", late.status, late.text)
	}
	p.submits(body, "Idempotency-Key", "three").refused(t, "a new one", 410, evaluation.ExpiredDenial)
}

// Who gives their asking no name is given the task of the same asking.
func TestTasksWithoutKeys(t *testing.T) {
	t.Parallel()
	c := openDesk(t)
	p := c.program("asker")
	question := wants("push", push)
	denied := p.denied(question)
	body := question + "," + denied.denial()
	first, again := p.submits(body), p.submits(denied.denial()+" , "+question)
	if first.status != 202 || again.text != first.text {
		t.Errorf("got %d %s\nand then %d %s", first.status, first.text, again.status, again.text)
	}
	bulk := p.several("push")
	if several, again := p.submits(bulk), p.submits(bulk); several.status != 202 || several.Task.ID == first.Task.ID || again.Task.ID != several.Task.ID {
		t.Errorf("as one of several: %d %s\nand then %d %s", several.status, several.text, again.status, again.text)
	}
	if other := p.submits(body + `,"requested_access":{"emergency":true}`); other.status != 202 || other.Task.ID != first.Task.ID {
		t.Errorf("with other words for the same: %d %s", other.status, other.text)
	}
	c.says("mia", c.waiting(first), "decision", no, 200)
	if anew := p.submits(body); anew.status != 202 || anew.Task.ID == first.Task.ID {
		t.Errorf("once that ended: %d %s", anew.status, anew.text)
	}
}

func TestOneKeyAtOnceIsOneTask(t *testing.T) {
	t.Parallel()
	c := openDesk(t)
	p := c.program("asker")
	question := wants("push", push)
	body := question + "," + p.denied(question).denial()
	c.Client = ownClient() // the other looks at one exchange at a time
	var all sync.WaitGroup
	tasks := make([]string, 10)
	for n := range tasks {
		all.Go(func() { tasks[n] = p.submits(body, "Idempotency-Key", "one").Task.ID })
	}
	all.Wait()
	for _, id := range tasks {
		if id == "" || id != tasks[0] {
			t.Fatalf("got %v", tasks)
		}
	}
	if items, _ := c.inbox("mia", ""); len(items) != 1 {
		t.Errorf("filed: %+v", items)
	}
}

// several is a submission of several questions about tools, each with its denial.
func (p program) several(ids ...string) string {
	p.t.Helper()
	items := make([]string, len(ids))
	for n, id := range ids {
		items[n] = fmt.Sprintf(`{"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":%q},%s}`, id, p.denied(wants(id, push)).denial())
	}
	return `"subject":{"type":"agent","id":"bot"},"context":{` + push + `},"items":[` + strings.Join(items, ",") + `]`
}

// Several questions are one task, and each has an end of its own.
func TestBulkAccessRequest(t *testing.T) {
	t.Parallel()
	c := openDesk(t)
	p := c.program("asker")
	asked := p.submits(p.several("push", "list"))
	if asked.status != 202 || len(asked.Task.Items) != 2 || asked.Task.Items[0].Status != "pending" || string(asked.Task.Items[1].Resource) != `{"type":"tool","id":"list"}` {
		t.Fatalf("got %d %s", asked.status, asked.text)
	}
	items, _ := c.inbox("mia", "")
	c.says("mia", items[0].ID, "decision", yes, 200)
	half := p.looks(asked.Task.ID)
	if half.Task.Status != "pending" || half.Task.Items[0].Result == nil || half.Task.Items[1].Result != nil || half.Result != nil {
		t.Errorf("got %s", half.text)
	}
	c.says("mia", items[1].ID, "decision", yes, 200)
	done := p.looks(asked.Task.ID)
	if done.Task.Status != "approved" || done.Result != nil {
		t.Errorf("got %s", done.text)
	}
	p.evaluates(wants("push", push+","+presents(done.Task.Items[1].Result))).denies(t, "by the result of another item", evaluation.ApprovalOutOfScope)
	for n, id := range []string{"push", "list"} {
		p.evaluates(wants(id, push+","+presents(done.Task.Items[n].Result))).allows(t, id)
	}
	// One is denied, and the whole is partly approved.
	asked = p.submits(p.several("push", "stop"))
	items, _ = c.inbox("mia", "")
	c.says("mia", items[1].ID, "decision", no, 200)
	if cancelled := p.cancels(asked.Task.ID, ""); cancelled.Task.Status != "partial" || cancelled.Task.Items[0].Status != "cancelled" || cancelled.Task.Items[1].Status != "denied" || cancelled.Task.Items[1].Result != nil {
		t.Errorf("got %d %s", cancelled.status, cancelled.text)
	}
	p.cancels(asked.Task.ID, "").refused(t, "once more", 409, evaluation.InvalidTaskState)
	one := p.submits(p.several("push"))
	if one.status != 202 || len(one.Task.Items) != 1 {
		t.Errorf("one item: %d %s", one.status, one.text)
	}
}

func TestBulkAccessRequestIsAllOrNothing(t *testing.T) {
	t.Parallel()
	c := openDesk(t)
	p := c.program("asker")
	whole := p.several("push", "list")
	denials := strings.Split(whole, `"denial":`)
	swapped := denials[0] + `"denial":` + strings.Replace(denials[2], "]", ",", 1)
	swapped = strings.TrimSuffix(swapped, ",") + `,{"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"list"},"denial":` + strings.Split(denials[1], "},{")[0] + `}]`
	top := p.denied(wants("push", push)).denial()
	items := `{"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"push"}},{"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"list"}}`
	subject := `"subject":{"type":"agent","id":"bot"},"context":{` + push + `}`
	for name, body := range map[string]string{
		"swapped denials":           swapped,
		"a token of one for both":   subject + `,"items":[` + items + `],` + top,
		"an item without a denial":  strings.Replace(whole, `"denial":`, `"other":`, 1),
		"another item than denied":  strings.Replace(whole, `"id":"list"`, `"id":"stop"`, 1),
		"another subject than then": strings.Replace(whole, `"bot"`, `"bat"`, 1),
	} {
		got := p.submits(body)
		got.refused(t, name, 400, evaluation.InvalidDenialBinding)
		if shared := strings.Contains(got.text, "one denial for several items is not supported; send each item's own"); shared != (name == "a token of one for both") {
			t.Errorf("%s: got %s", name, got.text)
		}
	}
	for name, body := range map[string]string{
		"no items": subject + `,"items":[]`, "items that are none": subject + `,"items":[7]`, "too many": subject + `,"items":[` + strings.Repeat("{},", 50) + `{}]`,
		"a resource besides": whole + `,"resource":{"type":"tool","id":"push"}`, "an action besides": whole + `,"action":{"name":"tool.invoke"}`,
	} {
		p.submits(body).refused(t, name, 400, "Bad Request")
	}
	c.nobodyIsAsked(t)
}

// What makes a submission none of a fresh denial for want of an approval.
func TestAccessRequestProblems(t *testing.T) {
	t.Parallel()
	c := openDesk(t)
	p := c.program("asker")
	question := wants("push", push)
	denied := p.denied(question)
	denial := denied.denial()
	expires := denied.Context.Request.ExpiresAt.Format(time.RFC3339)
	for name, body := range map[string]string{
		"no denial":              question,
		"a denial by its id":     question + `,"denial":{"evaluation_id":"` + denied.Context.EvaluationID + `","expires_at":"` + expires + `"}`,
		"fresh for longer":       question + "," + strings.Replace(denial, expires, "2026-01-02T04:14:05Z", 1),
		"of another evaluation":  question + "," + strings.Replace(denial, denied.Context.EvaluationID, "x", 1),
		"another argument":       strings.Replace(question, `"main"`, `"master"`, 1) + "," + denial,
		"a member taken away":    wants("push", "") + "," + denial,
		"another subject":        strings.Replace(question, `"bot"`, `"bat"`, 1) + "," + denial,
		"a property of it":       strings.Replace(question, `"id":"bot"`, `"id":"bot","properties":{"a":1}`, 1) + "," + denial,
		"another resource":       strings.Replace(question, `"push"`, `"list"`, 1) + "," + denial,
		"a property of that too": strings.Replace(question, `"id":"push"`, `"id":"push","properties":{"a":1}`, 1) + "," + denial,
		"a property of the act":  strings.Replace(question, `"name":"tool.invoke"`, `"name":"tool.invoke","properties":{"a":1}`, 1) + "," + denial,
	} {
		p.submits(body).refused(t, name, 400, evaluation.InvalidDenialBinding)
	}
	p.submits(strings.Replace(question, `"tool.invoke"`, `"other"`, 1)+","+denial).refused(t, "what is denied altogether", 400, evaluation.NotRequestable)
	p.submits(wants("push", push+`,"supported_obligations":["approval_required"]`)+","+denial).refused(t, "what is allowed", 400, evaluation.NotRequestable)
	for name, body := range map[string]string{
		"no subject": `"resource":{"type":"tool","id":"push"},"action":{"name":"tool.invoke"},` + denial, "nothing": "", "a denial that is none": question + `,"denial":7`,
		"no time": question + "," + strings.Replace(denial, expires, "soon", 1), "a time that is none": question + `,"requested_access":{"requested_until":"soon"},` + denial,
		"no emergency": question + `,"requested_access":{"emergency":"yes"},` + denial, "an actor without an id": question + `,"client":{"actor":{}},` + denial,
		"a chain": question + `,"client":{"actor":{"id":"bot","act":{"sub":"x","iss":"y"}}},` + denial, "a member twice": question + "," + denial + "," + denial,
		"a callback of nobody's": question + "," + denial + `,"callback":{"endpoint":"https://169.254.169.254/"}`,
	} {
		p.submits(body).refused(t, name, 400, "Bad Request")
	}
	p.submits(question+`,"client":{"actor":{"id":"eve"}},`+denial).refused(t, "somebody who was not named", 403, "Forbidden")
	p.submits(question+`,"client":{"id":"app","actor":{"id":"bot"}},`+denial).is(t, "who asked", 202)
	c.Advance(10*time.Minute - time.Nanosecond)
	other := wants("push", `"other":1`)
	p.submits(question+","+denial).is(t, "to the last moment", 202)
	fresh := p.denied(other).denial()
	c.Advance(time.Nanosecond)
	p.submits(question+","+denial).refused(t, "at its end", 410, evaluation.ExpiredDenial)
	p.submits(other+","+fresh).is(t, "a later denial", 202)
}

// What is said for it people see, without secrets, and it is no part of what they
// approve; what was denied stays as it was.
func TestWhatIsSaidForIt(t *testing.T) {
	t.Parallel()
	c := openDesk(t)
	p := c.program("asker")
	question := wants("push", push+`,"password":"correct horse"`)
	denied := p.denied(question)
	said := strings.Replace(question, `"context":{`, `"context":{"business_justification":"it burns; the word is correct horse","nothing":null,"trace":"abc","api_key":"hidden battery",`, 1)
	asked := p.submits(said + `,"requested_access":{"emergency":true,"note":"the key is hidden battery"},"client":{"id":"app","source":{"session_id":"s-1"}},` + denied.denial())
	if asked.status != 202 {
		t.Fatalf("got %d %s", asked.status, asked.text)
	}
	id := c.waiting(asked)
	_, shown := c.do("mia", "GET", "/v1/approvals/"+id, "")
	for _, part := range []string{`"asked":"authzen"`, `"business_justification":"it burns; the word is `, `"emergency":true`, `"session_id":"s-1"`, `"client":{"id":"app"`} {
		if !strings.Contains(shown, part) {
			t.Errorf("%s is not in %s", part, shown)
		}
	}
	_, log := c.do("auditor", "GET", "/v1/log/export", "")
	file, err := os.ReadFile(filepath.Join(c.data, "approvals.db"))
	must(t, err)
	for _, secret := range []string{"correct horse", "hidden battery"} {
		if strings.Contains(shown, secret) || strings.Contains(log, secret) || strings.Contains(string(file), secret) {
			t.Errorf("%s is told, or kept", secret)
		}
	}
	c.says("mia", id, "decision", yes, 200)
	presenting := presents(p.looks(asked.Task.ID).Result)
	p.evaluates(wants("push", push+`,"password":"correct horse","business_justification":"it burns",`+presenting)).denies(t, "what was said became part of it", "")
	p.evaluates(wants("push", push+`,"password":"correct horse","trace":"another",`+presenting)).allows(t, "the answer")
	long := p.submits(question + `,"requested_access":{"note":"` + strings.Repeat("x", 70<<10) + `"},` + denied.denial())
	long.refused(t, "more than anybody reads", 400, evaluation.NotRequestable)
}

// What a program declares says which obligations it lacks: it is the same when it asks
// for the approval.
func TestAccessRequestWithDeclaredObligations(t *testing.T) {
	t.Parallel()
	c := openDeskOn(t, approvalFiles("a.cedar", `@id("logged") @obligation("log") permit(principal, action == Action::"tool.invoke", resource in group::"guarded");`))
	p := c.program("asker")
	if a := p.evaluates(wants("push", push)); a.Context.Request != nil || len(a.Context.Required) != 2 {
		t.Errorf("two are missing: %s", a.text)
	}
	question := wants("push", push+`,"supported_obligations":["log"]`)
	_, of := p.granted(question)
	p.evaluates(wants("push", push+`,"supported_obligations":["log"],`+presents(of.Result))).allows(t, "the answer")
	_, of = p.granted(question)
	// The reason is that of the decision: no approval makes up for the other obligation.
	if a := p.evaluates(wants("push", push+","+presents(of.Result))); a.Decision || a.Context.Reason == "" || a.Context.Request != nil {
		t.Errorf("got %s", a.text)
	}
}

// Of two sets of policies the later counts: what they no longer ask about, or ask about
// otherwise, is not what was denied.
func TestAccessRequestUnderOtherPolicies(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeAll(t, dir, approvalFiles())
	c := openCounterOn(t, pdp.Dir(dir), public)
	p := c.program("asker")
	question := wants("push", push)
	denied := p.denied(question)
	under := func(policies string) {
		t.Helper()
		must(t, os.WriteFile(filepath.Join(dir, "a.cedar"), []byte(policies), 0o600))
		must(t, c.Reload(t.Context()))
	}
	under(strings.Replace(approvalPolicies, `@obligation("ask")`, `@obligation("two")`, 1))
	p.submits(question+","+denied.denial()).refused(t, "two must approve now", 400, evaluation.InvalidDenialBinding)
	under(approvalPolicies + `forbid(principal, action, resource in group::"guarded");`)
	p.submits(question+","+denied.denial()).refused(t, "it is forbidden now", 400, evaluation.NotRequestable)
	under(strings.Replace(approvalPolicies, `@obligation("ask")`, ``, 1))
	p.submits(question+","+denied.denial()).refused(t, "it is allowed now", 400, evaluation.NotRequestable)
	under(approvalPolicies)
	presenting, _ := p.granted(question)
	under(approvalPolicies + `forbid(principal, action, resource in group::"guarded");`)
	p.evaluates(wants("push", push+","+presenting)).denies(t, "a forbid does not win", evaluation.ApprovalPolicyDenied, "none")
	under(approvalPolicies + `forbid(principal, action, resource) when { context.pdp.approved };`)
	p.evaluates(wants("push", push+","+presenting)).denies(t, "a forbid of what is approved does not win", evaluation.ApprovalPolicyDenied, "none")
	under(strings.Replace(approvalPolicies, `@obligation("ask")`, `@obligation("two")`, 1))
	p.evaluates(wants("push", push+","+presenting)).denies(t, "one approved, two must", evaluation.ApprovalOutOfScope, "request")
	under(approvalPolicies)
	p.evaluates(wants("push", push+","+presenting)).allows(t, "as it was approved, it does not go through")
}

func TestAccessRequestLimits(t *testing.T) {
	t.Parallel()
	c := openDesk(t, func(config *server.Config) {
		config.Approvals = server.ApprovalsConfig{MaxPendingPerSubject: 2, MaxPendingPerTenant: 2, MaxPendingPerCaller: 2, NewPerMinutePerSubject: 10}
	})
	p := c.program("asker")
	for n := range 2 {
		p.requests(wants("push", fmt.Sprintf(`"n":%d`, n)))
	}
	over := wants("push", `"n":2`)
	body := over + "," + p.denied(over).denial()
	p.submits(body, "Idempotency-Key", "one").refused(t, "one more", 429, "Too Many Requests")
	p.requests(wants("push", `"n":1`)) // who joins is not limited
	items, _ := c.inbox("mia", "")
	c.says("mia", items[0].ID, "decision", no, 200)
	p.submits(body, "Idempotency-Key", "one").is(t, "when there is room", 202)
}
