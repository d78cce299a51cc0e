package approvals_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
	"policy-service/obligations"
	"policy-service/pdp"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/inside/auth"
	"policy-service/pdp/pdptest/inside/server"
)

// desk is a real server where a PEP waits for people, and people who answer over HTTP
// while it does: things happen in the PEP's waits, and these make the clock go.
type desk struct {
	t      *testing.T
	data   string
	key    map[string]string
	server *pdptest.Server

	mu    sync.Mutex
	now   time.Time
	addr  string
	waits []time.Duration
	on    []func() // called in each wait
	kept  []approvals.Task
	asked []string // the requests, by method and path
}

const deskURL = "http://pdp.test"

var deskFiles = map[string]string{
	"a.cedar": `@id("ask") @obligation("ask") permit(principal, action == Action::"push", resource);
@id("log") @obligation("log") permit(principal, action == Action::"push", resource) when { context has logged };
@id("look") permit(principal, action == Action::"look", resource);
@id("frozen") forbid(principal, action == Action::"push", resource) when { context has frozen };
@id("leads") permit(principal == user::"mia", action == Action::"approval.decide", resource is Approval);`,
	"obligations.yaml":     `ask: {type: approval_required, properties: {template: owner, message: "${principal.id} wants ${resource.id}", timeout: 10m, valid_for: 5m, rounds: 10}}`,
	"tenants/acme/a.cedar": `@id("acme") permit(principal, action == Action::"read", resource);`,
	"entities/e.json":      `[{"uid":{"type":"user","id":"mia"},"attrs":{},"parents":[]}]`,
}

func openDesk(t *testing.T) *desk {
	t.Helper()
	return openDeskOn(t, deskFiles)
}

func openDeskOn(t *testing.T, files map[string]string, options ...pdptest.Option) *desk {
	t.Helper()
	d := &desk{t: t, data: t.TempDir(), key: map[string]string{}, now: pdptest.Now}
	keys, err := auth.OpenKeys(d.data)
	d.must(err)
	for name, permissions := range map[string][]auth.Permission{"pep": {auth.Decide, auth.Request}, "other": {auth.Decide, auth.Request}, "decides": {auth.Decide}, "mia": {auth.Approve}, "agents": {auth.Decide, auth.Request, auth.Capability}} {
		spec := auth.KeySpec{Name: name, Grant: auth.Grant{Tenants: []string{"*"}, Permissions: permissions}}
		if name == "mia" {
			spec.Principal, err = auth.ParsePrincipal(`user::"mia"`)
			d.must(err)
		}
		d.key[name], err = keys.Add(spec)
		d.must(err)
	}
	d.open(pdptest.Bundle(files), options...)
	return d
}

func (d *desk) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

func (d *desk) open(source pdp.Source, options ...pdptest.Option) {
	d.t.Helper()
	d.server = pdptest.Start(d.t, source, append(options, func(c *server.Config) {
		c.Data, c.PublicURL, c.Program.PDP.Now, c.Program.PDP.NewID = d.data, deskURL, d.clock, nil
	})...)
	d.reach(d.server.Addr())
}

// close stops the server; requests find a closed port.
func (d *desk) close() {
	d.t.Helper()
	d.reach("127.0.0.1:1")
	d.must(d.server.Stop(context.Background()))
}

func (d *desk) reach(addr string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.addr = addr
}

func (d *desk) clock() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.now
}

func (d *desk) pass(by time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now = d.now.Add(by)
}

// wait is how a client waits: time goes by, and the next function of on is called.
func (d *desk) wait(ctx context.Context, by time.Duration) error {
	d.pass(by)
	d.mu.Lock()
	n := len(d.waits)
	d.waits = append(d.waits, by)
	d.mu.Unlock()
	if n < len(d.on) && d.on[n] != nil {
		d.on[n]()
	}
	return ctx.Err()
}

// RoundTrip sends a request to the present address of the PDP, by a connection of its own.
func (d *desk) RoundTrip(r *http.Request) (*http.Response, error) {
	d.mu.Lock()
	d.asked = append(d.asked, r.Method+" "+r.URL.Path)
	addr := d.addr
	d.mu.Unlock()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}}
	return transport.RoundTrip(r)
}

// pep is a program that waits; each call is another process of it.
func (d *desk) pep(options ...authzenclient.Option) *authzenclient.Client {
	d.t.Helper()
	c, err := authzenclient.New(deskURL, append([]authzenclient.Option{
		authzenclient.WithPlainHTTP(), authzenclient.WithHTTPClient(&http.Client{Transport: d}), authzenclient.WithKey(d.key["pep"]),
		authzenclient.WithClock(d.clock, d.wait), authzenclient.WithRequestIDs(nil, false), authzenclient.WithRetries(0), authzenclient.WithTimeout(time.Minute),
	}, options...)...)
	d.must(err)
	return c
}

func (d *desk) keep() approvals.Option {
	return approvals.KeepTask(func(_ context.Context, h approvals.Task) error {
		d.kept = append(d.kept, h)
		return nil
	})
}

func (d *desk) person(method, path, body string) (int, string) {
	d.t.Helper()
	answer := d.server.Do(method, path, body, "Authorization", "Bearer "+d.key["mia"], "Content-Type", "application/json")
	return answer.Status, answer.Body
}

// inbox has the requests that wait for mia.
func (d *desk) inbox() (ids []string) {
	d.t.Helper()
	_, body := d.person("GET", "/v1/approvals?status=pending", "")
	var page struct {
		Items []struct {
			ID string `json:"id"`
		} `json:"items"`
	}
	d.must(json.Unmarshal([]byte(body), &page))
	for _, i := range page.Items {
		ids = append(ids, i.ID)
	}
	return ids
}

// says is mia, about the one thing that waits for her.
func (d *desk) says(what string) func() {
	return func() {
		d.t.Helper()
		ids := d.inbox()
		if len(ids) != 1 {
			d.t.Fatalf("there wait %v", ids)
		}
		d.decides(what, ids[0])
	}
}

// decides is mia, about one thing.
func (d *desk) decides(what, id string) {
	d.t.Helper()
	if status, body := d.person("POST", "/v1/approvals/"+id+"/decision", `{"decision":"`+what+`","reason":"because"}`); status != 200 {
		d.t.Fatalf("mia says %s: %d %s", what, status, body)
	}
}

// count is how often something was asked, but for the schema of a submission.
func (d *desk) count(what string) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, asked := range d.asked {
		if strings.HasPrefix(asked, what) && !strings.HasSuffix(asked, "/schema") {
			n++
		}
	}
	return n
}

func push(context map[string]any) evaluation.Request {
	o, err := evaluation.NewObject(context)
	if err != nil {
		panic(err)
	}
	return evaluation.Request{Subject: evaluation.Entity{Type: "user", ID: "bot"}, Action: evaluation.Action{Name: "push"}, Resource: evaluation.Entity{Type: "repo", ID: "main"}, Context: o}
}

// wantNone fails unless e is a deny with an error of that kind that says something.
func wantNone(t testing.TB, e authzenclient.Enforcement, kind authzenclient.Kind, says string) {
	t.Helper()
	var err *authzenclient.Error
	if e.Permitted() || e.Decision().Permitted() || !e.ApprovedUntil().IsZero() {
		t.Fatalf("this reads as a permit: %v", e)
	}
	if !errors.As(e.Err(), &err) || err.Kind != kind || err.Op == "" || !strings.Contains(err.Error(), says) {
		t.Fatalf("got %v, want %q, %q", e.Err(), kind, says)
	}
}

func TestApproved(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	d.on = []func(){nil, d.says("approve")}
	e := approvals.Enforce(t.Context(), d.pep(), push(map[string]any{"branch": "main", "n": 7}), nil, d.keep(), approvals.WithJustification("release 1.4"))
	if !e.Permitted() || e.Err() != nil {
		t.Fatal(e)
	}
	if left := e.ApprovedUntil().Sub(d.clock()); left <= 0 || left > 5*time.Minute {
		t.Errorf("it may be used for %v", left)
	}
	if got := fmt.Sprint(d.count("POST /access/v1/evaluation"), d.count("POST /access/v1/requests"), d.count("GET /access/v1/requests/")); got != "2 1 2" {
		t.Errorf("asked %s: %v", got, d.asked)
	}
	if text := fmt.Sprintf("%+v", d.kept); strings.Contains(text, "branch") || strings.Contains(text, "eyJ") {
		t.Errorf("a log would say %s", text)
	}
	if len(d.kept) != 1 || d.kept[0].ID() == "" {
		t.Errorf("kept %v", d.kept)
	}
	for n, by := range d.waits {
		if by < 5*time.Second || by > time.Minute {
			t.Errorf("wait %d is of %v", n, by)
		}
	}
	if e := d.pep().Enforce(t.Context(), push(map[string]any{"branch": "main", "n": 7}), nil); e.Permitted() {
		t.Error("it was used, and permits once more")
	}
}

// Without a need for approval, it is as with Enforce.
func TestNoApprovalNeeded(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	look := push(nil)
	look.Action.Name = "look"
	if e := approvals.Enforce(t.Context(), d.pep(), look, nil, d.keep()); !e.Permitted() || !e.ApprovedUntil().IsZero() {
		t.Error(e)
	}
	if e := approvals.Enforce(t.Context(), d.pep(), push(map[string]any{"frozen": true}), nil, d.keep()); e.Permitted() || e.Err() != nil {
		t.Error(e)
	}
	if e := approvals.Enforce(t.Context(), d.pep(authzenclient.WithKey(d.key["decides"])), push(nil), nil, d.keep()); e.Permitted() || e.Err() != nil {
		t.Errorf("who may not ask people: %v", e)
	}
	if n := d.count("POST /access/v1/requests"); n+len(d.kept)+len(d.waits) != 0 {
		t.Errorf("people were asked: %v", d.asked)
	}
}

// Other obligations are owed when it is approved.
func TestApprovedWithObligations(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]error{"done": nil, "not done": errors.New("no")} {
		d := openDesk(t)
		d.on = []func(){d.says("approve")}
		done := 0
		handlers := obligations.Handlers{"log": func(context.Context, evaluation.Obligation) error { done++; return fails }}
		e := approvals.Enforce(t.Context(), d.pep(), push(map[string]any{"logged": true}), handlers)
		if e.Permitted() != (fails == nil) || done != 1 {
			t.Errorf("%s: %v, %d times", name, e, done)
		}
	}
}

// An approval that ends while obligations are discharged permits nothing.
func TestApprovalEndsMeanwhile(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	d.on = []func(){d.says("approve")}
	e := approvals.Enforce(t.Context(), d.pep(), push(map[string]any{"logged": true}), obligations.Handlers{
		"log": func(context.Context, evaluation.Obligation) error { d.pass(5 * time.Minute); return nil },
	})
	wantNone(t, e, authzenclient.NotApproved, "ended before")
}

func TestNotApproved(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	d.on = []func(){d.says("deny")}
	wantNone(t, approvals.Enforce(t.Context(), d.pep(), push(nil), nil, d.keep()), authzenclient.NotApproved, `"denied"`)
	wantNone(t, approvals.Resume(t.Context(), d.pep(), d.kept[0], push(nil), nil), authzenclient.NotApproved, `"denied"`)
	t.Run("by nobody in time", func(t *testing.T) {
		t.Parallel()
		d := openDesk(t)
		wantNone(t, approvals.Enforce(t.Context(), d.pep(), push(nil), nil, d.keep()), authzenclient.NotApproved, "in time")
		if n := d.count("GET /access/v1/requests/"); n < 10 || n > 25 {
			t.Errorf("looked %d times in ten minutes", n)
		}
		d.pass(10 * time.Minute)
		wantNone(t, approvals.Resume(t.Context(), d.pep(), d.kept[0], push(nil), nil), authzenclient.NotApproved, `"expired"`)
	})
	t.Run("cancelled", func(t *testing.T) {
		t.Parallel()
		d := openDesk(t)
		d.on = []func(){func() { d.must(approvals.Cancel(t.Context(), d.pep(), d.kept[0])) }}
		wantNone(t, approvals.Enforce(t.Context(), d.pep(), push(nil), nil, d.keep()), authzenclient.NotApproved, `"cancelled"`)
		if len(d.inbox()) != 0 {
			t.Error("mia is still asked")
		}
		for what, h := range map[string]approvals.Task{"again": d.kept[0], "nothing": {}} {
			if approvals.Cancel(t.Context(), d.pep(), h) == nil {
				t.Errorf("cancelled %s", what)
			}
		}
		if err := approvals.Cancel(t.Context(), d.pep(authzenclient.WithKey(d.key["other"])), d.kept[0]); err == nil {
			t.Error("another cancelled it")
		}
	})
	t.Run("given up", func(t *testing.T) {
		t.Parallel()
		d := openDesk(t)
		ctx, cancel := context.WithCancel(t.Context())
		d.on = []func(){nil, cancel}
		wantNone(t, approvals.Enforce(ctx, d.pep(), push(nil), nil, d.keep()), authzenclient.Cancelled, "given up")
		d.says("approve")()
		if e := approvals.Resume(t.Context(), d.pep(), d.kept[0], push(nil), nil); !e.Permitted() {
			t.Errorf("resumed: %v", e)
		}
	})
}

// before has something happen once, right before an approval is presented.
func (d *desk) before(what func()) authzenclient.Option {
	return authzenclient.WithHTTPClient(&http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		if looked := d.count("GET /access/v1/requests/") > 0; looked && r.Method == http.MethodPost && what != nil {
			what()
			what = nil
		}
		return d.RoundTrip(r)
	})})
}

// revoke is mia, about her approval.
func (d *desk) revoke() {
	d.t.Helper()
	_, body := d.person("GET", "/v1/approvals?status=approved", "")
	_, id, _ := strings.Cut(body, `"id":"`)
	id, _, _ = strings.Cut(id, `"`)
	if status, body := d.person("POST", "/v1/approvals/"+id+"/revoke", ""); status != 200 {
		d.t.Fatal(status, body)
	}
}

// An approval is revoked before it is used: people are asked once more, and only once.
func TestRevoked(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]string{"approve": "permit", "deny": `"denied"`} {
		d := openDesk(t)
		d.on = []func(){d.says("approve"), d.says(name)}
		e := approvals.Enforce(t.Context(), d.pep(d.before(d.revoke)), push(nil), nil, d.keep(), approvals.WithJustification("why"))
		if e.Permitted() != (name == "approve") || !strings.Contains(e.String(), last) {
			t.Errorf("%s: %v", name, e)
		}
		if n := d.count("POST /access/v1/requests"); n != 2 || len(d.kept) != 2 || d.kept[0].ID() == d.kept[1].ID() {
			t.Errorf("%s: people were asked %d times", name, n)
		}
	}
	t.Run("twice", func(t *testing.T) {
		t.Parallel()
		d := openDesk(t)
		d.on = []func(){d.says("approve"), d.says("approve")}
		again := d.before(d.revoke)
		e := approvals.Enforce(t.Context(), d.pep(again), push(nil), nil, approvals.KeepTask(func(_ context.Context, h approvals.Task) error {
			d.kept = append(d.kept, h)
			if len(d.kept) == 2 {
				return errors.New("elsewhere")
			}
			return nil
		}))
		wantNone(t, e, authzenclient.Cancelled, "elsewhere")
		d.says("approve")()
		e = approvals.Resume(t.Context(), d.pep(d.before(d.revoke)), moved(t, d.kept[1]), push(nil), nil)
		if e.Permitted() || e.Decision().Reason() != "approval_revoked" || len(d.inbox()) != 0 {
			t.Errorf("got %v, and mia is asked %d times", e, len(d.inbox()))
		}
	})
	t.Run("before it is looked at", func(t *testing.T) {
		t.Parallel()
		d := openDesk(t)
		d.on = []func(){func() { d.says("approve")(); d.revoke() }}
		wantNone(t, approvals.Enforce(t.Context(), d.pep(), push(nil), nil), authzenclient.NotApproved, "has ended")
		if n := d.count("POST /access/v1/evaluation"); n != 1 {
			t.Errorf("an approval that had ended was presented: %v", d.asked)
		}
	})
}

// A task that was used gives nothing a second time, and no person is asked because of it.
func TestReplay(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	d.on = []func(){d.says("approve")}
	if e := approvals.Enforce(t.Context(), d.pep(), push(nil), nil, d.keep()); !e.Permitted() {
		t.Fatal(e)
	}
	for _, h := range d.kept {
		wantNone(t, approvals.Resume(t.Context(), d.pep(), h, push(nil), nil), authzenclient.NotApproved, "has ended")
	}
	h := d.kept[0]
	wantNone(t, approvals.Resume(t.Context(), d.pep(authzenclient.WithKey(d.key["other"])), h, push(nil), nil), authzenclient.Refused, "no such task")
	wantNone(t, approvals.Resume(t.Context(), d.pep(authzenclient.WithTenant("acme")), h, push(nil), nil), authzenclient.NotAsked, "another PDP or tenant")
	wantNone(t, approvals.Resume(t.Context(), d.pep(), approvals.Task{}, push(nil), nil), authzenclient.NotAsked, "or of none")
	if n := len(d.inbox()); n != 0 {
		t.Errorf("mia is asked %d times", n)
	}
}

// moved is a task as another process reads it.
func moved(t testing.TB, h approvals.Task) (read approvals.Task) {
	t.Helper()
	text, err := json.Marshal(h)
	if err == nil {
		err = json.Unmarshal(text, &read)
	}
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// The program ends when it has kept its task, and the server is started anew too; mia is asked once, and her answer found.
func TestRestartInTheMiddle(t *testing.T) {
	t.Parallel()
	crash := errors.New("crash")
	for _, restarts := range []bool{false, true} {
		t.Run(fmt.Sprintf("server too %v", restarts), func(t *testing.T) {
			t.Parallel()
			d := openDesk(t)
			q := push(map[string]any{"n": int64(9007199254740993), "branch": "main"})
			var last approvals.Task
			e := approvals.Enforce(t.Context(), d.pep(), q, nil, approvals.WithJustification("why"),
				approvals.KeepTask(func(_ context.Context, task approvals.Task) error {
					last = task
					return crash
				}))
			if wantNone(t, e, authzenclient.Cancelled, "not kept: crash"); !errors.Is(e.Err(), crash) {
				t.Errorf("got %v", e.Err())
			}
			if asked := len(d.inbox()); asked != 1 {
				t.Errorf("mia was asked %d times", asked)
			}
			if restarts {
				d.close()
				d.open(pdptest.Bundle(deskFiles))
			}
			d.on = []func(){d.says("approve")}
			if e := approvals.Resume(t.Context(), d.pep(), moved(t, last), q, nil); !e.Permitted() {
				t.Error(e)
			}
		})
	}
}

// Where the answer to a submission is lost, sending it again asks no person twice.
func TestAnswerToSubmissionIsLost(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	lost := 0
	lossy := authzenclient.WithHTTPClient(&http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		answer, err := d.RoundTrip(r)
		if err == nil && strings.HasSuffix(r.URL.Path, "/requests") && lost < 2 {
			lost++
			_ = answer.Body.Close()
			return nil, errors.New("the line is cut")
		}
		return answer, err
	})})
	d.on = []func(){nil, nil, d.says("approve")}
	if e := approvals.Enforce(t.Context(), d.pep(lossy), push(nil), nil, d.keep()); !e.Permitted() || lost != 2 {
		t.Errorf("%v, lost %d", e, lost)
	}
}

// While people are waited for the PDP may be away.
func TestPDPIsDownForAWhile(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	d.on = []func(){d.close, nil, nil, nil, nil, nil, func() { d.open(pdptest.Bundle(deskFiles)) }, d.says("approve")}
	c := d.pep()
	if e := approvals.Enforce(t.Context(), c, push(nil), nil); !e.Permitted() {
		t.Error(e)
	}
	t.Run("when it is asked with the approval", func(t *testing.T) {
		t.Parallel()
		d := openDesk(t)
		d.on = []func(){d.says("approve")}
		down := authzenclient.WithHTTPClient(&http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			if d.count("GET /access/v1/requests/") > 0 && r.Method == http.MethodPost {
				d.reach("127.0.0.1:1")
			}
			return d.RoundTrip(r)
		})})
		wantNone(t, approvals.Enforce(t.Context(), d.pep(down), push(nil), nil, d.keep()), authzenclient.Unreachable, "")
		d.reach(d.server.Addr())
		if e := approvals.Resume(t.Context(), d.pep(), d.kept[0], push(nil), nil); !e.Permitted() {
			t.Errorf("resumed: %v", e)
		}
	})
}

func TestApprovalOfTenant(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	d.on = []func(){d.says("approve")}
	acme := authzenclient.WithTenant("acme")
	var last approvals.Task
	e := approvals.Enforce(t.Context(), d.pep(acme), push(nil), nil, approvals.KeepTask(func(_ context.Context, h approvals.Task) error {
		last = h
		return nil
	}))
	if !e.Permitted() {
		t.Fatal(e)
	}
	c := d.pep(acme)
	d.must(c.Discover(t.Context()))
	d.waits, d.on = nil, []func(){d.says("approve")}
	if e := approvals.Enforce(t.Context(), c, push(nil), nil); !e.Permitted() {
		t.Error(e)
	}
	wantNone(t, approvals.Resume(t.Context(), d.pep(), moved(t, last), push(nil), nil), authzenclient.NotAsked, "tenant")
}

func TestApprovalIsNotAskedFor(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	handled := obligations.Handlers{"approval_required": func(context.Context, evaluation.Obligation) error { return nil }}
	wantNone(t, approvals.Enforce(t.Context(), d.pep(), push(nil), handled), authzenclient.NotAsked, "approval_required")
	presented := push(map[string]any{"approval": map[string]any{"id": "x"}})
	wantNone(t, approvals.Enforce(t.Context(), d.pep(), presented, nil), authzenclient.NotAsked, "context.approval")
	byID := push(map[string]any{"approval_id": "x"})
	wantNone(t, approvals.Enforce(t.Context(), d.pep(), byID, nil), authzenclient.NotAsked, "context.approval_id")
	said := push(map[string]any{"business_justification": "x"})
	wantNone(t, approvals.Enforce(t.Context(), d.pep(), said, nil, approvals.WithJustification("y")), authzenclient.NotAsked, "business_justification")
	wantNone(t, approvals.Enforce(t.Context(), d.pep(), push(nil), nil, approvals.WithJustification("\xff")), authzenclient.NotAsked, "UTF-8")
	wantNone(t, approvals.Enforce(t.Context(), d.pep(), push(nil), nil, approvals.KeepTask(nil)), authzenclient.NotAsked, "KeepTask")
	wantNone(t, approvals.Enforce(t.Context(), d.pep(authzenclient.WithTenant("acme")), evaluation.Request{Tenant: "default"}, nil), authzenclient.NotAsked, "tenant")
	if len(d.asked) > 0 {
		t.Errorf("asked %v", d.asked)
	}
}
