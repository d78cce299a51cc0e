package ask_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
	"policy-service/pdp/internal/mcp/internal/ask"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/auth/keys"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/clock"
	"policy-service/pdp/pdptest/mcptest"
)

func TestMain(m *testing.M) { mcptest.Main(m) }

// office is a stage where people approve: mia approves calls of the tool a by alice's agent.
type office struct {
	*stage
	*clock.Clock
	a   *ask.Tool
	mia string // her key
	// between gets each request to the PDP, and may answer in its place.
	between atomic.Pointer[func(r *http.Request, send func() (*http.Response, error)) (*http.Response, error)]
}

const officePolicies = `@id("ask") @obligation("ask") permit(principal, action == Action::"tool.invoke", resource == tool::"jira-server-1:a") unless { context.arguments has free };
@id("twice") @obligation("twice") permit(principal, action == Action::"tool.invoke", resource == tool::"jira-server-1:b");
@id("free") permit(principal, action, resource) when { context has arguments && context.arguments has free };
@id("frozen") @reason_user("frozen") forbid(principal, action, resource) when { context has arguments && context.arguments has frozen };
@id("any") permit(principal, action in [Action::"read", Action::"never"], resource);
@id("no") @reason_user("that one never") forbid(principal, action == Action::"never", resource);
@id("wants") @obligation("ask") permit(principal, action == Action::"asks", resource);
@id("coaz") @obligation("ask") permit(principal, action == Action::"tools/call", resource == tool::"shown__a");
@id("own") @obligation("ask") permit(principal, action == Action::"own", resource);
@id("masked") @obligation("mask") permit(principal, action == Action::"tool.invoke", resource == tool::"jira-server-1:a") when { context.arguments has masked };
@id("requests") permit(principal, action in [Action::"tool.request", Action::"tool.fulfil"], resource) unless { context.arguments has of && context.arguments.of != "tool.invoke" };
@id("asked-request") @obligation("ask") permit(principal, action == Action::"tool.request", resource) when { context.arguments has of && context.arguments.of == "tool.request" };
@id("asked-fulfil") @obligation("ask") permit(principal, action == Action::"tool.fulfil", resource) when { context.arguments has of && context.arguments.of == "tool.fulfil" };
@id("mia") permit(principal == user::"mia", action == Action::"approval.decide", resource is Approval);
`

// people opens an office. Options change the Asker, and more policies stand beside those of all.
func people(t testing.TB, set ...func(*ask.Options)) *office {
	t.Helper()
	o := &office{stage: &stage{t: t, data: mcptest.QuickDir(t)}, Clock: clock.At(pdptest.Now)}
	apiKeys, err := keys.Open(o.data)
	o.must(err)
	gateway, err := apiKeys.Add(keys.Spec{Name: "gw", Grant: auth.Grant{Tenants: []string{"*"}, Permissions: []auth.Permission{auth.Decide, auth.Search, auth.Request, auth.Relay}}})
	o.must(err)
	mia := keys.Spec{Name: "mia", Grant: auth.Grant{Tenants: []string{"*"}, Permissions: []auth.Permission{auth.Approve}}}
	mia.Principal, err = auth.ParsePrincipal(`user::"mia"`)
	o.must(err)
	o.mia, err = apiKeys.Add(mia)
	o.must(err)
	o.pdp = pdptest.Start(t, pdptest.Bundle(map[string]string{
		"a.cedar": officePolicies, "bundle.yaml": "allow_trivial: true\n",
		"obligations.yaml": `ask: {type: approval_required, properties: {template: owner, message: "${principal.id} wants ${resource.id}", timeout: 10m, valid_for: 5m, rounds: 10}}
twice: {type: approval_required, properties: {template: owner, uses: 2, timeout: 10m, valid_for: 5m, rounds: 10}}
mask: {type: redact, properties: {fields: [/ssn]}}
`,
	}), func(c *server.Config) {
		c.Data, c.Program.PDP.Now, c.Program.PDP.NewID = o.data, o.Now, nil
		c.Approvals.NewPerMinutePerSubject, c.Approvals.MaxPendingPerSubject, c.Approvals.MaxPendingPerCaller = 100_000, 100_000, 100_000
	})
	client := o.client(gateway)
	o.before(o.pdp.URL, append([]func(*ask.Options){func(options *ask.Options) { options.PDP["default"] = client }}, set...)...)
	o.a = o.tool(plainTool, nil)
	return o
}

// client is one of the PDP as a gateway makes it.
func (o *office) client(key string, options ...authzenclient.Option) *authzenclient.Client {
	o.t.Helper()
	c, err := authzenclient.New(o.pdp.URL, append([]authzenclient.Option{
		authzenclient.WithKey(key), authzenclient.WithHTTPClient(&http.Client{Transport: o}), authzenclient.WithRetries(0),
		authzenclient.WithBreaker(1000, time.Second), authzenclient.WithClock(o.Now, nil), authzenclient.WithTimeout(time.Minute),
	}, options...)...)
	o.must(err)
	return c
}

// RoundTrip keeps the questions to the PDP, and lets between answer.
func (o *office) RoundTrip(r *http.Request) (*http.Response, error) {
	if between := o.between.Load(); between != nil {
		return (*between)(r, func() (*http.Response, error) { return o.stage.RoundTrip(r) })
	}
	return o.stage.RoundTrip(r)
}

// meanwhile puts f between the gateway and the PDP, until over is called.
func (o *office) meanwhile(f func(r *http.Request, send func() (*http.Response, error)) (*http.Response, error)) (over func()) {
	o.between.Store(&f)
	return func() { o.between.Store(nil) }
}

var errCut = errors.New("the line is cut")

// says is a body in the place of the PDP's answer.
func says(r *http.Request, body string) *http.Response {
	header := http.Header{"Content-Type": {"application/json"}, "X-Request-Id": r.Header.Values("X-Request-Id")}
	return &http.Response{StatusCode: http.StatusOK, Header: header, Body: io.NopCloser(strings.NewReader(body)), Request: r}
}

// decides asks whether a request is a question, and not about people or obligations.
func decides(r *http.Request) bool { return strings.Contains(r.URL.Path, "/access/v1/evaluation") }

// read is the body of an answer, which can be read once more.
func read(t testing.TB, answer *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Error(err)
	}
	_ = answer.Body.Close()
	answer.Body = io.NopCloser(bytes.NewReader(body))
	return string(body)
}

// asks asks plainly about a call that people have to approve, and fails if they cannot be asked.
func (o *office) asks(op ask.Operation) *ask.Wanted {
	o.t.Helper()
	got, refusal := o.outcome(op)
	if refusal == nil || refusal.Wanted == nil {
		o.t.Fatalf("nobody can be asked: %s", got)
	}
	return refusal.Wanted
}

// files asks, and has people asked.
func (o *office) files(op ask.Operation) (*ask.Wanted, approvals.Standing) {
	o.t.Helper()
	w := o.asks(op)
	s, refusal := w.Ask(o.t.Context())
	if refusal != nil {
		o.t.Fatalf("people are not asked: %+v", refusal)
	}
	return w, s
}

// approved is a call that mia has approved, as it is to be asked about again.
func (o *office) approved(op ask.Operation) ask.Operation {
	o.t.Helper()
	w, s := o.files(op)
	o.says("approve", s)
	return o.brings(w, s, op)
}

// brings is op with the state of its request for approval.
func (o *office) brings(w *ask.Wanted, s approvals.Standing, op ask.Operation) ask.Operation {
	o.t.Helper()
	s = o.look(w, s)
	op.Answered = ask.Answered{Standing: &s}
	return op
}

func (o *office) look(w *ask.Wanted, s approvals.Standing) approvals.Standing {
	o.t.Helper()
	s, err := approvals.Look(o.t.Context(), w.PDP(), s.Task())
	o.must(err)
	return s
}

// goesOn is op as the next round of a permitted call.
func goesOn(t testing.TB, p *ask.Permit, op ask.Operation) ask.Operation {
	t.Helper()
	k, ok := p.Continuation()
	if !ok {
		t.Fatal("it rests on no approval")
	}
	op.Answered = ask.Answered{Continues: &k}
	return op
}

// says makes a decision as mia.
func (o *office) says(what string, s approvals.Standing) {
	o.t.Helper()
	o.does("decision", `{"decision":"`+what+`","reason":"not on a\n Sunday\u202e"}`, s)
}

func (o *office) does(what, body string, s approvals.Standing) {
	o.t.Helper()
	r, err := http.NewRequestWithContext(o.t.Context(), http.MethodPost, o.pdp.URL+"/v1/approvals/"+s.Approvals()[0]+"/"+what, strings.NewReader(body))
	o.must(err)
	r.Header = http.Header{"Authorization": {"Bearer " + o.mia}, "Content-Type": {"application/json"}}
	got, err := http.DefaultClient.Do(r)
	o.must(err)
	if said := read(o.t, got); got.StatusCode != http.StatusOK {
		o.t.Fatalf("mia, %s: %d %s", what, got.StatusCode, said)
	}
}

// forwards asks, and reports whether the call would be forwarded.
func (o *office) forwards(op ask.Operation) bool {
	o.t.Helper()
	got, refusal := o.outcome(op)
	if refusal != nil && refusal.Wanted != nil && (op.Answered.Standing != nil || op.Answered.Continues != nil) {
		o.t.Errorf("people would be asked once more: %s", got)
	}
	return got == "permit"
}

// told are the members of a refusal's data.
func told(t testing.TB, r *ask.Refusal) (d struct {
	Type, AuthorizationID, Reason, Suggestion string
	RetryAfter                                int `json:"retry_after"`
	AuthorizationRequest                      map[string]any
}) {
	t.Helper()
	if r == nil {
		t.Fatal("it is permitted")
	}
	must(t, json.Unmarshal(r.Data, &d))
	return d
}
