package console_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/auth/keys"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/browsertest"
	"policy-service/pdp/pdptest/clock"
)

// flowBundle: agents push after one lead has agreed, and terminate after two have. Alice, frank and mia are leads.
const flowBundle = `
-- tools.cedar --
@id("push-needs-a-lead") @obligation("ask-team-lead")
permit (principal, action == Action::"tool.invoke", resource == Tool::"github.push_code");

@id("terminate-needs-two") @obligation("ask-two-people")
permit (principal, action == Action::"tool.invoke", resource == Tool::"aws.terminate_instance");

@id("restore-needs-a-lead") @obligation("ask-slowly")
permit (principal, action == Action::"tool.invoke", resource == Tool::"backup.restore");

@id("leads-decide")
permit (principal in Team::"leads", action == Action::"approval.decide", resource is Approval);
-- obligations.yaml --
ask-team-lead: {type: approval_required, properties: {template: team-lead,
  message: "${principal.id} wants to use ${resource.id}.", timeout: 4h, valid_for: 15m, delegable: true}}
ask-two-people: {type: approval_required, properties: {template: production, quorum: 2,
  message: "${principal.id} wants to use ${resource.id} in production.", timeout: 1h, valid_for: 10m}}
ask-slowly: {type: approval_required, properties: {template: team-lead,
  message: "${principal.id} wants to use ${resource.id}.", timeout: 72h, valid_for: 72h}}
-- bundle.yaml --
types: {user: User, agent: Agent, tool: Tool}
-- entities/entities.json --
[{"uid": {"type": "Team", "id": "leads"}, "attrs": {}, "parents": []},
 {"uid": {"type": "Tool", "id": "github.push_code"}, "attrs": {}, "parents": []},
 {"uid": {"type": "Tool", "id": "aws.terminate_instance"}, "attrs": {}, "parents": []},
 {"uid": {"type": "User", "id": "alice"}, "attrs": {}, "parents": [{"type": "Team", "id": "leads"}]},
 {"uid": {"type": "User", "id": "frank"}, "attrs": {}, "parents": [{"type": "Team", "id": "leads"}]},
 {"uid": {"type": "User", "id": "mia"}, "attrs": {}, "parents": [{"type": "Team", "id": "leads"}]}]
`

// flow is a server with its console. Agents ask it by the gateway's key, and people log in with keys of their own.
type flow struct {
	*pdptest.Server
	*clock.Clock
	t    testing.TB
	keys *keys.Keys
	// secret is an API key, by its name.
	secret map[string]string
}

func openFlow(t testing.TB, options ...pdptest.Option) *flow {
	t.Helper()
	f := &flow{t: t, secret: map[string]string{}, Clock: clock.At(pdptest.Now)}
	data := t.TempDir()
	var err error
	f.keys, err = keys.Open(data)
	flowMust(t, err)
	f.key("gateway", "", auth.Decide)
	f.key("auditor", "", auth.LogRead)
	for _, lead := range []string{"alice", "frank", "mia"} {
		f.key(lead, lead, auth.Approve)
	}
	own := func(c *server.Config) {
		c.Data, c.Program.PDP.Now = data, f.Now
		c.Console = &server.ConsoleConfig{Session: server.SessionConfig{Max: 8 * time.Hour, Idle: 30 * time.Minute}}
	}
	f.Server = pdptest.Start(t, pdptest.Txtar(flowBundle), append([]pdptest.Option{own}, options...)...)
	return f
}

func flowMust(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// key makes an API key.
func (f *flow) key(name, principal string, permissions ...auth.Permission) {
	f.t.Helper()
	spec := keys.Spec{Name: name, Grant: auth.Grant{Tenants: []string{"default"}, Permissions: permissions}}
	if principal != "" {
		spec.Principal = auth.Principal{Type: "User", ID: principal}
	}
	secret, err := f.keys.Add(spec)
	flowMust(f.t, err)
	f.secret[name] = secret
}

// api asks the API with somebody's key, and reads the answer, which must be 200.
func (f *flow) api(who, method, path, body string, into any) {
	f.t.Helper()
	got := f.Do(method, path, body, "Authorization", "Bearer "+f.secret[who], "Content-Type", "application/json")
	if got.Status != http.StatusOK {
		f.t.Fatalf("%s %s as %s: %d %s", method, path, who, got.Status, got.Body)
	}
	flowMust(f.t, json.Unmarshal([]byte(got.Body), into, json.MatchCaseInsensitiveNames(true)))
}

// asks has an agent ask for a tool, and returns the id of the approval request that waits then.
func (f *flow) asks(agent, tool, arguments string) string {
	f.t.Helper()
	return f.asksIn(agent, tool, `{"arguments":`+arguments+`,"purpose":"Release 1.4"}`)
}

// asksIn is asks with the whole context.
func (f *flow) asksIn(agent, tool, context string) string {
	f.t.Helper()
	var told struct {
		Approval struct{ ID, Status string }
	}
	f.api("gateway", http.MethodPost, "/v1/authorize", fmt.Sprintf(`{"tenant_id":"default",
		"actor":{"actor_id":%q,"actor_type":"agent"},"action":"tool.invoke","resource":{"type":"tool","id":%q},
		"context":%s}`, agent, tool, context), &told)
	if told.Approval.Status != "pending" {
		f.t.Fatalf("%s asks for %s: %+v", agent, tool, told)
	}
	return told.Approval.ID
}

// push has an agent ask to push.
func (f *flow) push(agent string) string {
	f.t.Helper()
	return f.asks(agent, "github.push_code", `{"branch":"main","repository":"shop"}`)
}

// flowVote is what somebody said, as the API tells it.
type flowVote struct{ By, Decision, To, Reason, Via string }

// said is the status of an approval request, and what people said about it.
func (f *flow) said(id string) (status string, said []flowVote) {
	f.t.Helper()
	var view struct {
		Status string
		Said   []flowVote
	}
	f.api("gateway", http.MethodGet, "/v1/approvals/"+id, "", &view)
	return view.Status, view.Said
}

// onRecord are the steps of an approval request in the decision log, in order: "approve by User::\"alice\" via console".
func (f *flow) onRecord(id string) []string {
	f.t.Helper()
	var page struct {
		Items []struct {
			Event   string
			Details struct{ By, Via, Reason, To string }
		}
	}
	f.api("auditor", http.MethodGet, "/v1/decisions?kind=approval&order=oldest&limit=1000&approval="+id, "", &page)
	var steps []string
	for _, item := range page.Items {
		step := item.Event
		if d := item.Details; d.By != "" && d.Via != "" {
			step = strings.TrimSpace(fmt.Sprintf("%s by %s via %s: %s %s", step, d.By, d.Via, d.Reason, d.To))
		}
		steps = append(steps, step)
	}
	return steps
}

// untouched fails the test if anybody has said anything about an approval request.
func (f *flow) untouched(id string) {
	f.t.Helper()
	status, said := f.said(id)
	if steps := f.onRecord(id); status != "pending" || len(said) > 0 || len(steps) != 1 || steps[0] != "filed" {
		f.t.Errorf("%s is %s, %v; on record %q", id, status, said, steps)
	}
}

// open opens a browser in which somebody has logged in with an API key.
func (f *flow) open(who string, options ...browsertest.Option) *browsertest.Page {
	f.t.Helper()
	p := browsertest.Open(f.t, f.URL, options...)
	p.Goto("/console/")
	f.logIn(p, who)
	if p.Path() != "/console/approvals" {
		f.t.Fatalf("after the login at %s\n%s", p.Path(), p.Text())
	}
	return p
}

// logIn types somebody's API key into the page of the login, where the page shown is that.
func (f *flow) logIn(p *browsertest.Page, who string) {
	f.t.Helper()
	if at := p.Focus(); at.Name != "API key" {
		f.t.Fatalf("the focus is at %v\n%s", at, p.Tree())
	}
	p.Type(f.secret[who])
	p.Loads(func() { p.Press("Enter") })
}
