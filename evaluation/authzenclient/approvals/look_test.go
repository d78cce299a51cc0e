package approvals_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
	"policy-service/obligations"
)

// denies asks about a request that people must approve.
func denies(t *testing.T, c *authzenclient.Client, q evaluation.Request) authzenclient.Enforcement {
	t.Helper()
	e := c.Decide(t.Context(), q, nil).Discharge(t.Context(), nil)
	if next, after := approvals.Next(e); e.Permitted() || next != evaluation.NextRequest || after != 0 {
		t.Fatalf("%v, and then %q", e, next)
	}
	return e
}

// stands looks, and fails on an error.
func stands(t *testing.T, c *authzenclient.Client, task approvals.Task) approvals.Standing {
	t.Helper()
	s, err := approvals.Look(t.Context(), c, task)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A gateway: it asks, looks, goes on from the task alone, and uses
// the approval with the request that its client sends again.
func TestAskLookUse(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	c := d.pep()
	q := push(map[string]any{"branch": "main", "n": 7})
	s, err := approvals.Ask(t.Context(), c, denies(t, c, q), d.keep(), approvals.WithJustification("release"))
	d.must(err)
	if !s.Pending() || s.Approved() || s.Err() != nil || s.Status() != "pending" || s.Ends().Before(d.clock()) {
		t.Fatalf("asked: %v, %v, until %v", s, s.Err(), s.Ends())
	}
	if len(d.kept) != 1 || d.kept[0] != s.Task() {
		t.Errorf("kept %v", d.kept)
	}
	if ids := d.inbox(); !slices.Equal(s.Approvals(), ids) || len(ids) != 1 {
		t.Errorf("waits for %v, and mia for %v", s.Approvals(), ids)
	}
	if e := approvals.Use(t.Context(), c, s, q, nil).Discharge(t.Context(), nil); e.Permitted() {
		t.Error("nobody has approved")
	}
	if s := stands(t, c, s.Task()); !s.Pending() || !slices.Equal(s.Approvals(), d.inbox()) {
		t.Errorf("looked at once: %v", s)
	}
	text, err := json.Marshal(s.Task())
	d.must(err)
	if strings.Contains(string(text), "branch") || len(text) > 500 {
		t.Errorf("a task is %d bytes: %s", len(text), text)
	}

	c = d.pep() // another process
	var task approvals.Task
	d.must(json.Unmarshal(text, &task))
	d.says("approve")()
	if s = stands(t, c, task); !s.Approved() || len(d.waits) > 0 {
		t.Fatalf("%v, waited %v", s, d.waits)
	}

	other := push(map[string]any{"branch": "main", "n": 8})
	if e := approvals.Use(t.Context(), c, s, other, nil).Discharge(t.Context(), nil); e.Permitted() || e.Err() != nil {
		t.Errorf("another request: %v", e)
	}
	u := approvals.Use(t.Context(), c, s, q, nil)
	e := u.Discharge(t.Context(), nil)
	if u.Denied() || !e.Permitted() || e.ApprovedUntil().IsZero() || e.ApprovedUntil().After(s.ApprovedUntil()) {
		t.Fatalf("used: %v", e)
	}
	if again := approvals.Use(t.Context(), c, s, q, nil).Discharge(t.Context(), nil); again.Permitted() {
		t.Error("one use permits twice")
	}
}

// saysWhenWaited calls a function while a look with a wait is on its way.
func saysWhenWaited(d *desk, what func()) authzenclient.Option {
	var once sync.Once
	return authzenclient.WithHTTPClient(&http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.URL.Query().Has("wait") {
			once.Do(func() { go what() })
		}
		return d.RoundTrip(r)
	})})
}

// A service does with these parts as Resume does with the same task.
func TestTaskIsResumed(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	c := d.pep()
	q := push(map[string]any{"logged": true})
	done := 0
	handlers := obligations.Handlers{"log": func(context.Context, evaluation.Obligation) error { done++; return nil }}
	denied := c.Decide(t.Context(), q, handlers.Types()).Discharge(t.Context(), handlers)
	s, err := approvals.Ask(t.Context(), c, denied)
	d.must(err)
	d.on = []func(){d.says("approve")}
	if e := approvals.Resume(t.Context(), d.pep(), moved(t, s.Task()), q, handlers); !e.Permitted() || done != 1 {
		t.Errorf("%v, done %d", e, done)
	}
}

// Asking for the same deny is the same approval request; of equal requests the PDP knows that
// they are one, if it is left to it.
func TestAskIsIdempotent(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	c := d.pep()
	tasks := map[string]bool{}
	ask := func(e authzenclient.Enforcement, options ...approvals.Option) {
		s, err := approvals.Ask(t.Context(), d.pep(), e, options...)
		d.must(err)
		tasks[s.Task().ID()] = true
	}
	e := denies(t, c, push(nil))
	for range 3 {
		ask(e)
	}
	if len(tasks) != 1 || len(d.inbox()) != 1 {
		t.Errorf("%d tasks, mia is asked %d times", len(tasks), len(d.inbox()))
	}
	clear(tasks)
	for range 3 {
		ask(denies(t, c, push(nil)), approvals.JoinEqual())
	}
	if len(tasks) != 1 || len(d.inbox()) != 1 {
		t.Errorf("joined: %d tasks, mia is asked %d times", len(tasks), len(d.inbox()))
	}
	ask(denies(t, c, push(nil)))
	if len(tasks) != 2 || len(d.inbox()) != 1 {
		t.Errorf("another deny: %d tasks, mia is asked %d times", len(tasks), len(d.inbox()))
	}
}

// Where the answer to Ask is lost, a second Ask for the same deny finds the one task.
func TestAskIsLost(t *testing.T) {
	t.Parallel()
	for _, option := range []approvals.Option{approvals.WithJustification("x"), approvals.JoinEqual()} {
		d := openDesk(t)
		lossy := authzenclient.WithHTTPClient(&http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			answer, err := d.RoundTrip(r)
			if err == nil && strings.HasSuffix(r.URL.Path, "/requests") {
				_ = answer.Body.Close()
				return nil, errors.New("the line is cut")
			}
			return answer, err
		})})
		c := d.pep(lossy)
		denied := denies(t, c, push(nil))
		s, err := approvals.Ask(t.Context(), c, denied, option)
		var failure *authzenclient.Error
		if !errors.As(err, &failure) || failure.Kind != authzenclient.Unreachable || failure.Op != "request" || s.Pending() {
			t.Fatalf("%v, %v", s, err)
		}
		first, err := approvals.Ask(t.Context(), d.pep(), denied, option)
		d.must(err)
		second, err := approvals.Ask(t.Context(), d.pep(), denied, option)
		d.must(err)
		if !first.Pending() || first.Task().ID() != second.Task().ID() || len(d.inbox()) != 1 {
			t.Errorf("%v, %v, mia is asked %d times", first, second, len(d.inbox()))
		}
		d.says("deny")()
		last := stands(t, d.pep(), first.Task())
		if last.Pending() || last.Approved() || last.Err() == nil || last.Status() != "denied" || !slices.Equal(last.Approvals(), first.Approvals()) || last.Reason() != "because" {
			t.Errorf("denied: %v, %v", last, last.Err())
		}
		if e := approvals.Use(t.Context(), d.pep(), last, push(nil), nil).Discharge(t.Context(), nil); e.Permitted() || e.Err() == nil {
			t.Errorf("used: %v", e)
		}
	}
}

// No person is asked, unless it is a deny that an approval can be asked for.
func TestAskRefuses(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	c := d.pep()
	look := push(nil)
	look.Action.Name = "look"
	owes := answering(t, strings.Replace(requestable, `"reason"`, `"obligations":[{"id":"x","type":"x","properties":{}}],"reason"`, 1))
	handled := []approvals.Option{approvals.KeepTask(nil)}
	for name, test := range map[string]struct {
		e       authzenclient.Enforcement
		options []approvals.Option
		says    string
	}{
		"zero":               {authzenclient.Enforcement{}, nil, "no deny"},
		"permitted":          {c.Enforce(t.Context(), look, nil), nil, "no deny"},
		"denied for good":    {c.Enforce(t.Context(), push(map[string]any{"frozen": true}), nil), nil, "no deny"},
		"not discharged":     {owes.Enforce(t.Context(), question, nil), nil, "no handler"},
		"no function":        {denies(t, c, push(nil)), handled, "KeepTask"},
		"no UTF-8":           {denies(t, c, push(nil)), []approvals.Option{approvals.WithJustification("\xff")}, "UTF-8"},
		"two reasons":        {denies(t, c, push(map[string]any{"business_justification": "x"})), []approvals.Option{approvals.WithJustification("x")}, "business_justification"},
		"of a batch, denied": {c.EnforceBatch(t.Context(), "", nil, push(map[string]any{"frozen": true}))[0], nil, "no deny"},
	} {
		s, err := approvals.Ask(t.Context(), c, test.e, test.options...)
		var failure *authzenclient.Error
		if !errors.As(err, &failure) || failure.Kind != authzenclient.NotAsked || !strings.Contains(err.Error(), test.says) || s.Pending() {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
	if n := d.count("POST /access/v1/requests") + len(d.inbox()); n > 0 {
		t.Errorf("mia was asked: %v", d.asked)
	}
	if s, err := approvals.Look(t.Context(), c, approvals.Task{}); err == nil {
		t.Errorf("a look at nothing: %v", s)
	}
	if !approvals.Use(t.Context(), c, approvals.Standing{}, push(nil), nil).Denied() {
		t.Error("nothing was used")
	}
}

// Looks end with their context, and say nothing then of people's decision.
func TestLookIsGivenUp(t *testing.T) {
	t.Parallel()
	h := fair()
	c := h.client(t)
	s, err := approvals.Ask(t.Context(), c, c.Enforce(t.Context(), question, nil))
	if err != nil {
		t.Fatal(err)
	}
	if s := stands(t, c, s.Task()); !s.Pending() || s.RetryAfter() != 2*time.Minute {
		t.Errorf("%v, to be looked at after %v", s, s.RetryAfter())
	}
	h.looked = ok(pendingTask)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var failure *authzenclient.Error
	if s, err := approvals.Look(ctx, c, s.Task()); !errors.As(err, &failure) || failure.Kind != authzenclient.Cancelled || failure.Op != "await" || s.Pending() {
		t.Errorf("%v, %v", s, err)
	}
	h.looked = []said{{500, `{}`, nil}}
	if _, err := approvals.Look(t.Context(), c, s.Task()); !errors.As(err, &failure) || failure.Kind != authzenclient.Unavailable {
		t.Errorf("down: %v", err)
	}
	h.looked = ok(strings.Replace(approvedYes, "t1", "t2", 1))
	if _, err := approvals.Look(t.Context(), c, s.Task()); !errors.As(err, &failure) || failure.Kind != authzenclient.Odd {
		t.Errorf("another's: %v", err)
	}
	for _, named := range []string{`{}`, `"a1"`, `["a1"]`, `[{}]`, `[{"id":7}]`, `[null]`} {
		h.looked = ok(strings.Replace(pendingTask, `"display"`, `"approvals":`+named+`,"display"`, 1))
		if s, err := approvals.Look(t.Context(), c, s.Task()); err == nil {
			t.Errorf("approvals %s: %v", named, s.Approvals())
		}
	}
	h.looked = ok(strings.Replace(pendingTask, `"display"`, `"approvals":[{"id":"a1","item":0,"more":1},{"id":"a2"}],"display"`, 1))
	if s := stands(t, c, s.Task()); fmt.Sprint(s.Approvals()) != "[a1 a2]" {
		t.Errorf("waits for %v", s.Approvals())
	}
	for said, want := range map[string]string{
		`"not on\na\u0007 Sunday"`: "not on a  Sunday", `7`: "", `null`: "", `{"a":"b"}`: "",
		`"` + strings.Repeat("é", 5000) + `"`: strings.Repeat("é", 256) + "…",
	} {
		for status, is := range map[string]string{"denied": want, "pending": "", "cancelled": "", "other": ""} {
			h.looked = ok(`{"task":{"id":"t1","status":"` + status + `","status_endpoint":"BASE/tasks?id=t1","approvals":[{"id":"a1","reason":` + said + `}]}}`)
			if s := stands(t, c, s.Task()); s.Reason() != is || fmt.Sprint(s.Approvals()) != "[a1]" {
				t.Errorf("%s, for %.30s: %q", status, said, s.Reason())
			}
		}
	}
}

// A task is read whole, or not at all, and is of one PDP.
func TestTaskRefuses(t *testing.T) {
	t.Parallel()
	h := fair()
	c := h.client(t)
	s, err := approvals.Ask(t.Context(), c, c.Enforce(t.Context(), question, nil))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(s.Task())
	if err != nil || strings.Contains(string(text), secret) || strings.Contains(string(text), "alice") {
		t.Fatalf("%s, %v", text, err)
	}
	if moved(t, s.Task()) != s.Task() {
		t.Errorf("%s is read as %v", text, moved(t, s.Task()))
	}
	var task approvals.Task
	for old, changed := range map[string]string{
		string(text): `{}`, `{"version":1`: `null`, `"version":1`: `"version":2`, `"version":1,`: ``, `{"version"`: `{"more":1,"version"`, `"id":"t1"`: `"id":""`,
		`"pdp":`: `"PDP":`, `"pdp":"`: `"pdp":"","x":"`, `"status_endpoint":`: `"status":`, `"expires_at":"2026-01-02T04`: `"expires_at":"later`,
	} {
		damaged := strings.Replace(string(text), old, changed, 1)
		if damaged == string(text) {
			t.Errorf("%s is not in %s", old, text)
		}
		if err := json.Unmarshal([]byte(damaged), &task); err == nil || task.ID() != "" {
			t.Errorf("%s for %s was read: %s", changed, old, damaged)
		}
	}
	if _, err := json.Marshal(approvals.Task{}); err == nil {
		t.Error("no task was written")
	}
	elsewhere := fair().client(t)
	if _, err := approvals.Look(t.Context(), elsewhere, s.Task()); err == nil {
		t.Error("another PDP was asked")
	}
	h.looked = ok(approvedYes)
	if !approvals.Use(t.Context(), elsewhere, stands(t, c, s.Task()), question, nil).Denied() {
		t.Error("another PDP was asked to permit")
	}
}

// An approval is used for a request, and the service says whether people approved that one.
func TestUseComparesRequests(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	c := d.pep()
	s, err := approvals.Ask(t.Context(), c, denies(t, c, push(nil)))
	d.must(err)
	d.says("approve")()
	s = stands(t, c, s.Task())
	if len(s.Approvals()) != 1 || s.Reason() != "" {
		t.Errorf("approved: %v, %q", s.Approvals(), s.Reason())
	}
	if e := approvals.Use(t.Context(), c, s, push(map[string]any{"other": 1}), nil).Discharge(t.Context(), nil); e.Permitted() || e.Decision().Reason() != "out_of_scope" {
		t.Errorf("another request: %v", e)
	}
	presents := push(map[string]any{"approval_id": "x"})
	wantNone(t, approvals.Use(t.Context(), c, s, presents, nil).Discharge(t.Context(), nil), authzenclient.NotAsked, "presents")
	if e := approvals.Use(t.Context(), c, s, push(nil), nil).Discharge(t.Context(), nil); !e.Permitted() {
		t.Errorf("what was approved: %v", e)
	}
}
