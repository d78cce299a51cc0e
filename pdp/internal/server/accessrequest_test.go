package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/door"
	"policy-service/pdp/pdptest"
)

// atPublic is where a server says that it is. The tokens of one that is started again
// are the same only by an address that stays.
const atPublic = "https://pdp.example.com"

// openDesk is a counter at which programs ask by AuthZEN's profile for access requests.
func openDesk(t testing.TB, options ...pdptest.Option) *counter {
	t.Helper()
	return openDeskOn(t, approvalFiles(), options...)
}

func openDeskOn(t testing.TB, files map[string]string, options ...pdptest.Option) *counter {
	t.Helper()
	return openCounterOn(t, pdptest.Bundle(files), append([]pdptest.Option{public}, options...)...)
}

func public(config *server.Config) { config.PublicURL = atPublic }

// program asks by the profile, in the tenant that below names.
type program struct {
	*counter
	name, below string
}

func (c *counter) program(name string) program { return program{c, name, ""} }

func (p program) in(tenant string) program {
	p.below = "/tenants/" + tenant
	return p
}

// answer is an answer of the AuthZEN evaluation.
type answer struct {
	Decision bool `json:"decision"`
	Context  struct {
		evaluation.Access `json:",inline"`
		Required          []string `json:"required_obligations"`
	} `json:"context"`
	text string
}

// wants is an AuthZEN question about a tool, without its braces.
func wants(id, context string) string {
	return fmt.Sprintf(`"subject":{"type":"agent","id":"bot"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":%q},"context":{%s}`, id, context)
}

func (p program) evaluates(question string, header ...string) (a answer) {
	p.t.Helper()
	status, text := p.do(p.name, "POST", p.below+evaluationPath, "{"+question+"}", header...)
	if status != http.StatusOK {
		p.t.Fatalf("%s\ngot %d %s", question, status, text)
	}
	must(p.t, json.Unmarshal([]byte(text), &a))
	a.text = text
	return a
}

// allows checks that the answer is a yes.
func (a answer) allows(t *testing.T, name string) {
	t.Helper()
	if !a.Decision {
		t.Errorf("%s: got %s", name, a.text)
	}
}

// denies checks that the answer is a no: for a reason, if one is given, and with the next action, if one is given. An
// approval is offered if that is to request one.
func (a answer) denies(t *testing.T, name string, reason evaluation.Reason, next ...string) {
	t.Helper()
	wrong := a.Decision || reason != "" && a.Context.Reason != reason
	for _, action := range next {
		wrong = wrong || a.Context.NextAction != action || (a.Context.Request != nil) != (action == evaluation.NextRequest)
	}
	if wrong {
		t.Errorf("%s: got %s, want %s %v", name, a.text, reason, next)
	}
}

// denied has a question denied that can be asked an approval for.
func (p program) denied(question string) answer {
	p.t.Helper()
	a := p.evaluates(question)
	if a.Decision || a.Context.Request == nil {
		p.t.Fatalf("%s\ngot %s", question, a.text)
	}
	return a
}

// denial is what a submission says of an answer.
func (a answer) denial() string {
	r := a.Context.Request
	return fmt.Sprintf(`"denial":{"evaluation_id":%q,"evaluated_at":%q,"expires_at":%q,"reason":%q,"binding_token":%q,"template":%q}`,
		a.Context.EvaluationID, a.Context.EvaluatedAt.Format(time.RFC3339), r.ExpiresAt.Format(time.RFC3339), a.Context.Reason, r.BindingToken, r.Template)
}

// task is what a program is told of what it asked for.
type task struct {
	evaluation.TaskAnswer
	status int
	text   string
	// problem is the name of the profile's problem, or the status's title.
	problem string
}

func (p program) told(status int, text string) (t task) {
	p.t.Helper()
	t = task{status: status, text: text}
	if status < 300 {
		must(p.t, json.Unmarshal([]byte(text), &t.TaskAnswer))
		return t
	}
	var problem door.Problem
	must(p.t, json.Unmarshal([]byte(text), &problem))
	name, ours := strings.CutPrefix(problem.Type, evaluation.AccessRequestProblem)
	if t.problem = name; !ours {
		t.problem = problem.Title
	}
	return t
}

func (p program) submits(members string, header ...string) task {
	p.t.Helper()
	return p.told(p.do(p.name, "POST", p.below+"/access/v1/requests", "{"+members+"}", header...))
}

// requests has a question denied and an approval asked for.
func (p program) requests(question string) task {
	p.t.Helper()
	t := p.submits(question + "," + p.denied(question).denial())
	if t.status != http.StatusAccepted || t.Task.Status != "pending" {
		p.t.Fatalf("%s\ngot %d %s", question, t.status, t.text)
	}
	return t
}

func (p program) looks(id string) task {
	p.t.Helper()
	return p.told(p.do(p.name, "GET", p.below+"/access/v1/requests/"+id, ""))
}

func (p program) cancels(id, body string) task {
	p.t.Helper()
	return p.told(p.do(p.name, "POST", p.below+"/access/v1/requests/"+id+"/cancel", body))
}

// granted has an approval asked for and given: the question is asked again with what it
// returns in its context.
func (p program) granted(question string) (presenting string, of task) {
	p.t.Helper()
	t := p.requests(question)
	p.says("mia", p.waiting(t), "decision", yes, http.StatusOK)
	if t = p.looks(t.Task.ID); t.Task.Status != "approved" || t.Result == nil {
		p.t.Fatalf("got %s", t.text)
	}
	return presents(t.Result), t
}

// waiting is the one approval request that a person sees and that waits.
func (c *counter) waiting(t task) (id string) {
	c.t.Helper()
	items, _ := c.inbox("mia", "?limit=200")
	if len(items) == 0 {
		c.t.Fatalf("nobody is asked: %s", t.text)
	}
	return items[len(items)-1].ID
}

// presents is a result as it is sent back.
func presents(r *evaluation.TaskResult) string {
	text, err := json.Marshal(r.Approval)
	if err != nil {
		panic(err)
	}
	return `"approval":` + string(text)
}

// is checks the status of a submission, a look or a cancellation.
func (t task) is(test *testing.T, name string, status int) {
	test.Helper()
	if t.status != status {
		test.Errorf("%s: got %d %s, want %d", name, t.status, t.text, status)
	}
}

// stands checks the status of a task. One that is not approved has no result.
func (t task) stands(test *testing.T, name, status string) {
	test.Helper()
	if t.Task.Status != status || status != "approved" && t.Result != nil {
		test.Errorf("%s: got %s, want %s", name, t.text, status)
	}
}

// nobodyIsAsked checks that no approval request waits.
func (c *counter) nobodyIsAsked(t *testing.T) {
	t.Helper()
	if items, _ := c.inbox("mia", ""); len(items) > 0 {
		t.Errorf("somebody was asked: %+v", items)
	}
}

// refused checks the problem of a submission, a look or a cancellation.
func (t task) refused(test *testing.T, name string, status int, problem string) {
	test.Helper()
	if t.status != status || t.problem != problem {
		test.Errorf("%s: got %d %s, want %d %s", name, t.status, t.text, status, problem)
	}
}

// A denial that says how an approval is asked for; asking; a person; and the same
// question once more, which goes through once.
func TestAccessRequest(t *testing.T) {
	t.Parallel()
	c := openDesk(t)
	p := c.program("asker")
	question := wants("push", push)
	denied := p.denied(question)
	r := denied.Context.Request
	if denied.Context.Reason != evaluation.ApprovalRequired || r.Endpoint != atPublic+"/access/v1/requests" || r.Template != "owner" ||
		!r.ExpiresAt.Equal(pdptest.Now.Add(10*time.Minute)) || r.RequestSchemaURL != atPublic+"/access/v1/requests/schema" || !denied.Context.EvaluatedAt.Equal(pdptest.Now) {
		t.Errorf("got %s", denied.text)
	}
	c.reply("auditor", "GET", "/v1/decisions/"+denied.Context.EvaluationID, "").is(t, "the evaluation is on no record", 200)
	asked := p.submits(question + "," + denied.denial())
	endpoint := atPublic + "/access/v1/requests/" + asked.Task.ID
	if asked.status != 202 || asked.Task.Status != "pending" || asked.Task.StatusEndpoint != endpoint || asked.Task.Links["cancel"] != endpoint+"/cancel" ||
		!asked.Task.ExpiresAt.Equal(pdptest.Now.Add(10*time.Minute)) || asked.Result != nil {
		t.Fatalf("got %d %s", asked.status, asked.text)
	}
	if looked := p.looks(asked.Task.ID); looked.status != 200 || looked.text != asked.text {
		t.Errorf("got %d %s", looked.status, looked.text)
	}
	id := c.waiting(asked)
	c.says("mia", id, "decision", yes, 200)
	done := p.looks(asked.Task.ID)
	approval := done.Result.Approval
	if done.Task.Status != "approved" || done.Result.Mode != "reevaluate" || approval.ID != id || !approval.ApprovedAt.Equal(pdptest.Now) ||
		!approval.ApprovedUntil.Equal(pdptest.Now.Add(5*time.Minute)) || approval.State == "" || done.Task.Links != nil {
		t.Fatalf("got %s", done.text)
	}
	p.evaluates(question).denies(t, "who does not present it", "")
	presenting := wants("push", push+","+presents(done.Result))
	if a := p.evaluates(presenting); a.text != fmt.Sprintf(`{"decision":true,"context":{"approval":{"id":%q,"approved_until":"2026-01-02T03:09:05Z","obligation":"ask"}}}`, id) {
		t.Errorf("got %s", a.text)
	}
	again := p.evaluates(presenting)
	if again.Decision || again.Context.Reason != evaluation.ApprovalExpired || again.Context.NextAction != "request" || again.Context.Request == nil {
		t.Errorf("once is once: %s", again.text)
	}
	p.looks(asked.Task.ID).stands(t, "a task ends once", "approved")
	if steps, spent := c.log(); strings.Join(steps, " ") != "filed approve approved used used_up" || spent != 1 {
		t.Errorf("on record: %d %v", spent, steps)
	}
	if _, text := c.do("auditor", "GET", "/v1/log/report", ""); !strings.Contains(text, `"approvals":{"authzen":{"filed":1,"approved":1,"denied":0,"expired":0,"cancelled":0,"used":1,"median_seconds":0,"longest_seconds":0}}`) {
		t.Errorf("got %s", text)
	}
}

// Who may not ask for approvals is answered as if there was nothing to ask.
func TestAccessRequestNeedsItsPermission(t *testing.T) {
	t.Parallel()
	c := openDesk(t)
	presenting, of := c.program("asker").granted(wants("push", push))
	p := c.program("pep")
	for name, context := range map[string]string{"alone": push, "with an approval of another's": push + "," + presenting, "with one that is none": push + `,"approval":{"id":"x"}`} {
		if a := p.evaluates(wants("push", context)); a.text != `{"decision":false,"context":{"reason":"approval_required","required_obligations":["approval_required"]}}` {
			t.Errorf("%s: got %s", name, a.text)
		}
	}
	if a := p.evaluates(wants("push", `"arguments":{"blocked":true},"approval":{"id":"x"}`)); a.text != `{"decision":false}` {
		t.Errorf("got %s", a.text)
	}
	denied := c.program("asker").denied(wants("push", `"other":1`))
	p.submits(wants("push", `"other":1`)+","+denied.denial()).refused(t, "submitting", 403, "Forbidden")
	p.looks(of.Task.ID).refused(t, "looking", 403, "Forbidden")
	p.cancels(of.Task.ID, "").refused(t, "cancelling", 403, "Forbidden")
	nobody := c.program("nobody")
	nobody.submits(wants("push", push)).refused(t, "without a credential", 401, "Unauthorized")
	nobody.looks(of.Task.ID).refused(t, "without a credential", 401, "Unauthorized")
	nobody.cancels(of.Task.ID, "").refused(t, "without a credential", 401, "Unauthorized")
}

func saysWhereToAsk(metadata string) bool {
	for _, member := range []string{"access_request", "capability:access-request", "capability_endpoint"} {
		if strings.Contains(metadata, member) {
			return true
		}
	}
	return false
}

// What the server says of itself says where to ask, and that it can be done.
func TestAccessRequestMetadata(t *testing.T) {
	t.Parallel()
	c := openDesk(t)
	for point, at := range map[string]string{"": atPublic, "/tenants/acme": atPublic + "/tenants/acme"} {
		_, text := c.do("", "GET", metadataPath+point, "")
		if !strings.Contains(text, `"access_request_endpoint":"`+at+`/access/v1/requests"`) || !strings.Contains(text, `"capabilities":["urn:openid:authzen:capability:obligations","urn:openid:authzen:capability:access-request",`) {
			t.Errorf("%s: got %s", point, text)
		}
	}
	without := pdptest.Start(t, bundle(t), public, func(c *server.Config) { c.Program.Authenticator = asCaller{} })
	if got := without.Get(metadataPath); got.Status != 200 || saysWhereToAsk(got.Body) {
		t.Errorf("where nobody is asked: %s", got.Body)
	}
	keyless := pdptest.Start(t, bundle(t), withData(t.TempDir())) // with people's decisions to keep, and nobody who may ask
	if got := keyless.Get(metadataPath); got.Status != 200 || saysWhereToAsk(got.Body) {
		t.Errorf("without credentials: %s", got.Body)
	}
	c.reply("", "GET", "/access/v1/requests/schema", "").is(t, "the answer", 200, "business_justification")
}
