package authzenclient_test

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
	"policy-service/obligations"
)

// denies asks about what people must approve.
func denies(t *testing.T, c *authzenclient.Client, q evaluation.Request) authzenclient.Enforcement {
	t.Helper()
	e := c.Decide(t.Context(), q, nil).Discharge(t.Context(), nil)
	if next, after := e.Next(); e.Permitted() || next != evaluation.NextRequest || after != 0 {
		t.Fatalf("%v, and then %q", e, next)
	}
	return e
}

// stands looks, and fails on an error.
func stands(t *testing.T, c *authzenclient.Client, h authzenclient.Handle, wait time.Duration) authzenclient.Standing {
	t.Helper()
	s, err := c.Look(t.Context(), h, wait)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A gateway: it asks, looks with the PDP's long poll, goes on from the task alone, and uses
// what people approved with the request that its client sends again.
func TestAskLookUse(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	c := d.pep()
	q := push(map[string]any{"branch": "main", "n": 7})
	s, err := c.Ask(t.Context(), denies(t, c, q), d.keep(), authzenclient.WithJustification("release"))
	d.must(err)
	if !s.Pending() || s.Approved() || s.Err() != nil || s.Status() != "pending" || s.Ends().Before(d.clock()) {
		t.Fatalf("asked: %v, %v, until %v", s, s.Err(), s.Ends())
	}
	if len(d.kept) != 2 || d.kept[0].TaskID() != "" || d.kept[1].TaskID() != s.Handle().TaskID() {
		t.Errorf("kept %v", d.kept)
	}
	if ids := d.inbox(); !slices.Equal(s.Approvals(), ids) || len(ids) != 1 {
		t.Errorf("waits for %v, and mia for %v", s.Approvals(), ids)
	}
	if e := c.Use(t.Context(), s, nil).Discharge(t.Context(), nil); e.Permitted() {
		t.Error("nobody has approved")
	}
	if s := stands(t, c, s.Handle(), 0); !s.Pending() || !slices.Equal(s.Approvals(), d.inbox()) {
		t.Errorf("looked at once: %v", s)
	}
	text, err := json.Marshal(taskOf(t, s))
	d.must(err)
	if strings.Contains(string(text), "branch") || len(text) > 500 {
		t.Errorf("a task is %d bytes: %s", len(text), text)
	}

	asked := d.count("GET /access/v1/requests/")
	c = d.pep(saysWhenWaited(d, d.says("approve"))) // another process
	var task authzenclient.Task
	d.must(json.Unmarshal(text, &task))
	h, err := task.Handle(q)
	d.must(err)
	s = stands(t, c, h, 30*time.Second)
	if n := d.count("GET /access/v1/requests/") - asked; !s.Approved() || n != 1 || len(d.waits) > 0 {
		t.Fatalf("%v after %d looks, waited %v", s, n, d.waits)
	}

	other, err := task.Handle(push(map[string]any{"branch": "main", "n": 8}))
	d.must(err)
	if e := c.Use(t.Context(), stands(t, c, other, 0), nil).Discharge(t.Context(), nil); e.Permitted() || e.Err() != nil {
		t.Errorf("another request: %v", e)
	}
	u := c.Use(t.Context(), s, nil)
	e := u.Discharge(t.Context(), nil)
	if u.Denied() || !e.Permitted() || e.ApprovedUntil().IsZero() || e.ApprovedUntil().After(s.ApprovedUntil()) {
		t.Fatalf("used: %v", e)
	}
	if again := c.Use(t.Context(), s, nil).Discharge(t.Context(), nil); again.Permitted() {
		t.Error("one use permits twice")
	}
}

func taskOf(t *testing.T, s authzenclient.Standing) authzenclient.Task {
	t.Helper()
	task, ok := s.Handle().Task()
	if !ok {
		t.Fatal("no task")
	}
	return task
}

// saysWhenWaited has somebody speak while a look with a wait is on its way.
func saysWhenWaited(d *desk, what func()) authzenclient.Option {
	var once sync.Once
	return authzenclient.WithHTTPClient(&http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.URL.Query().Has("wait") {
			once.Do(func() { go what() })
		}
		return d.RoundTrip(r)
	})})
}

// What a service of its own does with these parts is what Resume does with the same handle.
func TestHandleOfTaskIsResumed(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	c := d.pep()
	q := push(map[string]any{"logged": true})
	done := 0
	handlers := obligations.Handlers{"log": func(context.Context, evaluation.Obligation) error { done++; return nil }}
	denied := c.Decide(t.Context(), q, handlers.Types()).Discharge(t.Context(), handlers)
	s, err := c.Ask(t.Context(), denied)
	d.must(err)
	h, err := taskOf(t, s).Handle(q)
	d.must(err)
	d.on = []func(){d.says("approve")}
	if e := d.pep().Resume(t.Context(), moved(t, h), handlers); !e.Permitted() || done != 1 {
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
	ask := func(e authzenclient.Enforcement, options ...authzenclient.ApprovalOption) {
		s, err := d.pep().Ask(t.Context(), e, options...)
		d.must(err)
		tasks[s.Handle().TaskID()] = true
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
		ask(denies(t, c, push(nil)), authzenclient.JoinEqual())
	}
	if len(tasks) != 1 || len(d.inbox()) != 1 {
		t.Errorf("joined: %d tasks, mia is asked %d times", len(tasks), len(d.inbox()))
	}
	ask(denies(t, c, push(nil)))
	if len(tasks) != 2 || len(d.inbox()) != 1 {
		t.Errorf("another deny: %d tasks, mia is asked %d times", len(tasks), len(d.inbox()))
	}
}

// Where the answer to Ask is lost, a look at the handle that was kept finds the one task.
func TestAskIsLost(t *testing.T) {
	t.Parallel()
	for _, option := range []authzenclient.ApprovalOption{authzenclient.WithJustification("x"), authzenclient.JoinEqual()} {
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
		s, err := c.Ask(t.Context(), denies(t, c, push(nil)), option, d.keep())
		var failure *authzenclient.Error
		if !errors.As(err, &failure) || failure.Kind != authzenclient.Unreachable || failure.Op != "request" || s.Pending() || len(d.kept) != 1 {
			t.Fatalf("%v, %v, kept %v", s, err, d.kept)
		}
		first := stands(t, d.pep(), moved(t, d.kept[0]), 0)
		second := stands(t, d.pep(), d.kept[0], 0)
		if !first.Pending() || first.Handle().TaskID() != second.Handle().TaskID() || len(d.inbox()) != 1 {
			t.Errorf("%v, %v, mia is asked %d times", first, second, len(d.inbox()))
		}
		d.says("deny")()
		last := stands(t, d.pep(), first.Handle(), 30*time.Second)
		if last.Pending() || last.Approved() || last.Err() == nil || last.Status() != "denied" || !slices.Equal(last.Approvals(), first.Approvals()) || last.Reason() != "because" {
			t.Errorf("denied: %v, %v", last, last.Err())
		}
		if e := d.pep().Use(t.Context(), last, nil).Discharge(t.Context(), nil); e.Permitted() || e.Err() == nil {
			t.Errorf("used: %v", e)
		}
	}
}

// Nobody is asked about what is no deny that an approval can be asked for.
func TestAskRefuses(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	c := d.pep()
	look := push(nil)
	look.Action.Name = "look"
	owes := newClient(t, stub(t, says(strings.Replace(requestable, `"reason"`, `"obligations":[{"id":"x","type":"x"}],"reason"`, 1))))
	written := newClient(t, stub(t, says(requestable))).DecideBody(t.Context(), []byte(`{}`), nil).Discharge(t.Context(), nil)
	handled := []authzenclient.ApprovalOption{authzenclient.KeepHandle(nil)}
	for name, test := range map[string]struct {
		e       authzenclient.Enforcement
		options []authzenclient.ApprovalOption
		says    string
	}{
		"zero":               {authzenclient.Enforcement{}, nil, "no deny"},
		"permitted":          {c.Enforce(t.Context(), look, nil), nil, "no deny"},
		"denied for good":    {c.Enforce(t.Context(), push(map[string]any{"frozen": true}), nil), nil, "no deny"},
		"native":             {c.EnforceNative(t.Context(), push(nil), nil), nil, "tenant"},
		"not discharged":     {owes.Enforce(t.Context(), question, nil), nil, "no handler"},
		"a written body":     {written, nil, "no deny"},
		"no function":        {denies(t, c, push(nil)), handled, "KeepHandle"},
		"no UTF-8":           {denies(t, c, push(nil)), []authzenclient.ApprovalOption{authzenclient.WithJustification("\xff")}, "UTF-8"},
		"two reasons":        {denies(t, c, push(map[string]any{"business_justification": "x"})), []authzenclient.ApprovalOption{authzenclient.WithJustification("x")}, "business_justification"},
		"of a batch, denied": {c.EnforceBatch(t.Context(), "", nil, push(map[string]any{"frozen": true}))[0], nil, "no deny"},
	} {
		s, err := c.Ask(t.Context(), test.e, test.options...)
		var failure *authzenclient.Error
		if !errors.As(err, &failure) || failure.Kind != authzenclient.NotAsked || !strings.Contains(err.Error(), test.says) || s.Pending() {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
	if n := d.count("POST /access/v1/requests") + len(d.inbox()); n > 0 {
		t.Errorf("mia was asked: %v", d.asked)
	}
	if s, err := c.Look(t.Context(), authzenclient.Handle{}, 0); err == nil {
		t.Errorf("a look at nothing: %v", s)
	}
	if !c.Use(t.Context(), authzenclient.Standing{}, nil).Denied() {
		t.Error("nothing was used")
	}
}

// holding is a PDP that is asked to hold its answer back.
type holding struct {
	*hostile
	waited []string // the waits of all looks, "" for none
}

// patient is a PDP that does as refuse says with looks that have a wait, and forgets its
// answers where refuse is nil.
func patient(refuse http.HandlerFunc) *holding {
	h := &holding{hostile: fair()}
	h.before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet {
			return false
		}
		wait := r.URL.Query().Get("wait")
		if r.URL.Query().Get("id") != "t1" {
			http.Error(w, "this is not the URL that was given", http.StatusTeapot)
			return true
		}
		h.mu.Lock()
		h.waited = append(h.waited, wait)
		h.mu.Unlock()
		if wait != "" && refuse != nil {
			refuse(w, r)
			return true
		}
		return false
	}
	return h
}

// brokenOff begins an answer, and hangs up.
func brokenOff(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", "100")
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// A PDP that takes no wait, or a proxy that breaks it off, is looked at plainly, with pauses,
// and for a while it is not asked to wait again.
func TestPlainLooks(t *testing.T) {
	t.Parallel()
	status := func(status int, headers ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			for n := 0; n+1 < len(headers); n += 2 {
				w.Header().Set(headers[n], headers[n+1])
			}
			w.WriteHeader(status)
		}
	}
	for name, test := range map[string]struct {
		refuse http.HandlerFunc
		want   string // the waits of a minute of looks, and of one after that
	}{
		"refused":      {status(400), "30s | 30s"},
		"unknown":      {status(404), "30s | 30s"},
		"too long":     {status(414), "30s | 30s"},
		"too many":     {status(503, "Retry-After", "1"), "30s | 30s"},
		"through":      {status(504), "30s | 30s"},
		"broken off":   {brokenOff, "30s | 30s"},
		"not followed": {nil, "30s 30s | 30s"}, // every look asks anew: it may hold the next one back
	} {
		t.Run(name, func(t *testing.T) {
			h := patient(test.refuse)
			h.looked = []said{{200, pendingTask, []string{"Retry-After", "12"}}}
			c := h.client(t)
			s, err := c.Ask(t.Context(), c.Enforce(t.Context(), question, nil))
			if err != nil {
				t.Fatal(err)
			}
			for n, look := range []string{"first", "second", "after a minute"} {
				if n == 2 {
					h.waited = append(h.waited, "|")
					h.now = h.now.Add(time.Minute)
				}
				before, plain := h.now, len(h.waited)
				if s = stands(t, c, s.Handle(), time.Hour); !s.Pending() {
					t.Errorf("%s: %v", look, s)
				}
				if took := h.now.Sub(before); took != 30*time.Second || h.most > 12*time.Second {
					t.Errorf("%s: took %v, with pauses of up to %v", look, took, h.most)
				}
				if looks := len(h.waited) - plain; looks < 3 || looks > 4 {
					t.Errorf("%s: %d looks", look, looks)
				}
			}
			waits := slices.DeleteFunc(slices.Clone(h.waited), func(s string) bool { return s == "" })
			if got := strings.Join(waits, " "); got != test.want {
				t.Errorf("waits %s, want %s", got, test.want)
			}
			h.looked = ok(approvedYes)
			if s = stands(t, c, s.Handle(), 30*time.Second); !s.Approved() {
				t.Errorf("then %v", s)
			}
		})
	}
}

// What is asked of the PDP is what there is time for.
func TestWaits(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		wait    time.Duration
		options []authzenclient.Option
		want    string
	}{
		"at once":         {0, nil, ""},
		"negative":        {-time.Hour, nil, ""},
		"a moment":        {time.Second - 1, nil, ""},
		"a second":        {1900 * time.Millisecond, nil, "1s"},
		"the longest":     {time.Hour, nil, "30s"},
		"the HTTP client": {time.Hour, []authzenclient.Option{authzenclient.WithTimeout(5 * time.Second), authzenclient.WithHTTPClient(&http.Client{Timeout: 20 * time.Second})}, "15s"},
		"its short time":  {time.Hour, []authzenclient.Option{authzenclient.WithTimeout(5 * time.Second), authzenclient.WithHTTPClient(&http.Client{Timeout: 5 * time.Second})}, ""},
	} {
		h := patient(nil)
		h.looked = ok(approvedYes)
		c := h.client(t, test.options...)
		s, err := c.Ask(t.Context(), c.Enforce(t.Context(), question, nil))
		if err != nil {
			t.Fatal(name, err)
		}
		if s := stands(t, c, s.Handle(), test.wait); !s.Approved() || len(h.waited) != 1 || h.waited[0] != test.want {
			t.Errorf("%s: %v, waits %q", name, s, h.waited)
		}
	}
}

// Looks end with their context, and say nothing then of what people said.
func TestLookIsGivenUp(t *testing.T) {
	t.Parallel()
	h := patient(nil)
	h.looked = ok(pendingTask)
	c := h.client(t)
	s, err := c.Ask(t.Context(), c.Enforce(t.Context(), question, nil))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := authzenclient.WithClock(func() time.Time { return h.now }, func(ctx context.Context, _ time.Duration) error { cancel(); return ctx.Err() })
	gone := h.again(t, ended)
	var failure *authzenclient.Error
	if s, err := gone.Look(ctx, s.Handle(), 30*time.Second); !errors.As(err, &failure) || failure.Kind != authzenclient.Cancelled || failure.Op != "await" || s.Pending() {
		t.Errorf("%v, %v", s, err)
	}
	h.looked = []said{{500, `{}`, nil}}
	if _, err := c.Look(t.Context(), s.Handle(), 30*time.Second); !errors.As(err, &failure) || failure.Kind != authzenclient.Unavailable {
		t.Errorf("down: %v", err)
	}
	h.looked = ok(strings.Replace(approvedYes, "t1", "t2", 1))
	if _, err := c.Look(t.Context(), s.Handle(), 30*time.Second); !errors.As(err, &failure) || failure.Kind != authzenclient.Odd {
		t.Errorf("another's: %v", err)
	}
	for _, approvals := range []string{`{}`, `"a1"`, `["a1"]`, `[{}]`, `[{"id":7}]`, `[null]`} {
		h.looked = ok(strings.Replace(pendingTask, `"display"`, `"approvals":`+approvals+`,"display"`, 1))
		if s, err := c.Look(t.Context(), s.Handle(), 0); err == nil {
			t.Errorf("approvals %s: %v", approvals, s.Approvals())
		}
	}
	h.looked = ok(strings.Replace(pendingTask, `"display"`, `"approvals":[{"id":"a1","item":0,"more":1},{"id":"a2"}],"display"`, 1))
	if s := stands(t, c, s.Handle(), 0); fmt.Sprint(s.Approvals()) != "[a1 a2]" {
		t.Errorf("waits for %v", s.Approvals())
	}
	for said, want := range map[string]string{
		`"not on\na\u0007 Sunday"`: "not on a  Sunday", `7`: "", `null`: "", `{"a":"b"}`: "",
		`"` + strings.Repeat("é", 5000) + `"`: strings.Repeat("é", 256) + "…",
	} {
		for status, is := range map[string]string{"denied": want, "pending": "", "cancelled": "", "other": ""} {
			h.looked = ok(`{"task":{"id":"t1","status":"` + status + `","status_endpoint":"BASE/tasks?id=t1","approvals":[{"id":"a1","reason":` + said + `}]}}`)
			if s := stands(t, c, s.Handle(), 0); s.Reason() != is || fmt.Sprint(s.Approvals()) != "[a1]" {
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
	s, err := c.Ask(t.Context(), c.Enforce(t.Context(), question, nil))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(taskOf(t, s))
	if err != nil {
		t.Fatal(err)
	}
	handle, err := json.Marshal(s.Handle())
	if err != nil {
		t.Fatal(err)
	}
	var task authzenclient.Task
	for _, damaged := range []string{
		`{}`, `null`, string(handle), strings.Replace(string(text), `"version":1`, `"version":2`, 1), strings.Replace(string(text), `"id":"t1"`, `"id":""`, 1),
		strings.Replace(string(text), `{"version"`, `{"x":1,"version"`, 1), strings.Replace(string(text), `"task":`, `"key":"x","task":`, 1),
		strings.Replace(string(text), `"task":`, `"request":{},"task":`, 1), strings.Replace(string(text), `"pdp":"`, `"pdp":"","x":"`, 1),
	} {
		if err := json.Unmarshal([]byte(damaged), &task); err == nil {
			t.Errorf("%s was read", damaged)
		}
	}
	if _, err := task.Handle(question); err == nil {
		t.Error("a handle of no task")
	}
	if _, err := json.Marshal(task); err == nil {
		t.Error("no task was written")
	}
	if err := json.Unmarshal(text, &task); err != nil {
		t.Fatal(err)
	}
	if _, err := task.Handle(push(map[string]any{"approval_id": "x"})); err == nil {
		t.Error("the request presents an approval")
	}
	made, err := task.Handle(question)
	if err != nil {
		t.Fatal(err)
	}
	if made := moved(t, made); made.TaskID() != "t1" || made.Request().Subject.ID != "alice" {
		t.Errorf("made %v", made)
	}
	elsewhere := fair().client(t)
	if _, err := elsewhere.Look(t.Context(), made, 0); err == nil {
		t.Error("another PDP was asked")
	}
	if !elsewhere.Use(t.Context(), stands(t, c, made, 0), nil).Denied() {
		t.Error("another PDP was asked to permit")
	}
	if _, ok := (authzenclient.Handle{}).Task(); ok {
		t.Error("nothing has a task")
	}
}

// What stands with a request is presented with that one, and the service says whether people approved it.
func TestStandingWith(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	c := d.pep()
	s, err := c.Ask(t.Context(), denies(t, c, push(nil)))
	if err != nil {
		t.Fatal(err)
	}
	d.says("approve")()
	s = stands(t, c, s.Handle(), 0)
	if len(s.Approvals()) != 1 || s.Reason() != "" {
		t.Errorf("approved: %v, %q", s.Approvals(), s.Reason())
	}
	other, err := s.With(push(map[string]any{"other": 1}))
	if err != nil {
		t.Fatal(err)
	}
	if e := c.Use(t.Context(), other, nil).Discharge(t.Context(), nil); e.Permitted() || e.Decision().Reason() != "out_of_scope" {
		t.Errorf("another request: %v", e)
	}
	if _, err := s.With(push(map[string]any{"approval_id": "x"})); err == nil {
		t.Error("it presents an approval already")
	}
	if _, err := (authzenclient.Standing{}).With(push(nil)); err == nil {
		t.Error("the zero Standing is of something")
	}
	same, err := other.With(push(nil))
	if err != nil {
		t.Fatal(err)
	}
	if e := c.Use(t.Context(), same, nil).Discharge(t.Context(), nil); !e.Permitted() {
		t.Errorf("what was approved: %v", e)
	}
}
