package approvals_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
	"policy-service/pdp/pdptest"
)

// said is one answer: status, body, and headers as name, value, …
type said struct {
	status  int
	body    string
	headers []string
}

// hostile is a PDP with scripted answers, over HTTP: BASE and EVIL in them are itself and
// another server.
type hostile struct {
	questions []said // one after the other, the last for ever
	submitted []said
	looked    []said
	before    func(*http.Request) (a said, is bool) // the answer in place of these, if it is one

	mu   sync.Mutex
	base string
	evil string
	got  []got
	now  time.Time
	most time.Duration // the longest wait
}

type got struct {
	what, body, key, credentials string
}

const (
	requestable = `{"decision":false,"context":{"evaluation_id":"e1","evaluated_at":"2026-01-02T03:04:05.50+00:00","reason":"approval_required","access_request":{"endpoint":"BASE/access/v1/requests","template":"owner","expires_at":"2026-01-02T03:14:05.500Z","binding_token":"b.i.n"}}}`
	pendingTask = `{"task":{"id":"t1","status":"pending","status_endpoint":"BASE/tasks?id=t1","expires_at":"2026-01-02T04:04:05Z","links":{"cancel":"BASE/tasks/cancel","ticket":"EVIL/x"},"display":{"title":"approved"}}}`
	reference   = `{"id":"a1","approved_at":"2026-01-02T03:05:00Z","approved_until":"2026-01-02T04:00:00.0Z","state":{"z":[null,1.0,1e2,"\u00e9"],"a":{"__entity":{"type":"x"}}}}`
	approvedYes = `{"task":{"id":"t1","status":"approved"},"result":{"mode":"reevaluate","approval":` + reference + `}}`
)

func ok(body string) []said { return []said{{200, body, nil}} }

// fair is a PDP that does nothing wrong.
func fair() *hostile {
	return &hostile{
		questions: []said{{200, requestable, nil}, {200, `{"decision":true,"context":{"approval":{"id":"a1","approved_until":"2026-01-02T03:30:00Z","obligation":"ask","rounds":10}}}`, nil}},
		submitted: []said{{202, pendingTask, nil}},
		looked:    []said{{200, pendingTask, []string{"Retry-After", "120"}}, {200, approvedYes, nil}},
		now:       pdptest.Now,
	}
}

func (h *hostile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.before != nil {
		if a, is := h.before(r); is {
			h.write(w, a)
			return
		}
	}
	body, _ := io.ReadAll(r.Body)
	h.mu.Lock()
	defer h.mu.Unlock()
	what, answers := "look", h.looked
	switch {
	case strings.HasSuffix(r.URL.Path, "/evaluation"):
		what, answers = "ask", h.questions
	case strings.HasSuffix(r.URL.Path, "/requests"):
		what, answers = "submit", h.submitted
	}
	n := 0
	for _, g := range h.got {
		if g.what == what {
			n++
		}
	}
	h.got = append(h.got, got{what, string(body), r.Header.Get("Idempotency-Key"), r.Header.Get("Authorization")})
	h.write(w, answers[min(n, len(answers)-1)])
}

func (h *hostile) write(w http.ResponseWriter, a said) {
	w.Header().Set("Content-Type", "application/json")
	for i := 0; i+1 < len(a.headers); i += 2 {
		w.Header().Set(a.headers[i], h.text(a.headers[i+1]))
	}
	w.WriteHeader(a.status)
	_, _ = io.WriteString(w, h.text(a.body))
}

func (h *hostile) text(s string) string {
	return strings.NewReplacer("BASE", h.base, "EVIL", h.evil, "HOST", strings.TrimPrefix(h.base, "http://")).Replace(s)
}

func (h *hostile) count(what string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, g := range h.got {
		if g.what == what {
			n++
		}
	}
	return n
}

// client asks h. A request to the other server fails the test.
func (h *hostile) client(t testing.TB, options ...authzenclient.Option) *authzenclient.Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	evil := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("somebody else was asked: %s %s, credentials %q", r.Method, r.URL, r.Header.Get("Authorization"))
	}))
	t.Cleanup(evil.Close)
	h.base, h.evil = s.URL, evil.URL
	return h.again(t, options...)
}

// again is one more client of the same server.
func (h *hostile) again(t testing.TB, options ...authzenclient.Option) *authzenclient.Client {
	t.Helper()
	clock := authzenclient.WithClock(
		func() time.Time { h.mu.Lock(); defer h.mu.Unlock(); return h.now },
		func(ctx context.Context, by time.Duration) error {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.now, h.most = h.now.Add(by), max(h.most, by)
			return ctx.Err()
		})
	c, err := authzenclient.New(h.base, append([]authzenclient.Option{clock, authzenclient.WithTimeout(time.Minute), authzenclient.WithKey(secret), authzenclient.WithRetries(0), authzenclient.WithMaxBody(1 << 16)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Requests have the form of the profile: all that goes back is as it came, why is in the
// submission only, and credentials go to the PDP.
func TestWhatIsSent(t *testing.T) {
	t.Parallel()
	h := fair()
	c := h.client(t)
	q := question
	q.Context = push(map[string]any{"n": 7}).Context
	e := approvals.Enforce(t.Context(), c, q, nil, approvals.WithJustification("why"))
	if !e.Permitted() || !e.ApprovedUntil().Equal(time.Date(2026, 1, 2, 3, 30, 0, 0, time.UTC)) {
		t.Fatalf("%v, until %v", e, e.ApprovedUntil())
	}
	const asked = `{"subject":{"type":"user","id":"alice"},"action":{"name":"read"},"resource":{"type":"doc","id":"plan"},"context":{`
	want := []got{
		{"ask", asked + `"n":7,"supported_mandatory_extensions":["obligations"],"supported_obligations":[]}}`, "", "Bearer " + secret},
		{"submit", asked + `"business_justification":"why","n":7,"supported_mandatory_extensions":["obligations"],"supported_obligations":[]},"denial":{"evaluation_id":"e1","evaluated_at":"2026-01-02T03:04:05.50+00:00","expires_at":"2026-01-02T03:14:05.500Z","reason":"approval_required","binding_token":"b.i.n","template":"owner"}}`, h.got[1].key, "Bearer " + secret},
		{"look", "", "", "Bearer " + secret}, {"look", "", "", "Bearer " + secret},
		{"ask", asked + `"approval":` + strings.ReplaceAll(reference, `\u00e9`, "é") + `,"n":7,"supported_mandatory_extensions":["obligations"],"supported_obligations":[]}}`, "", "Bearer " + secret},
	}
	for n, g := range h.got {
		if n >= len(want) || g != want[n] {
			t.Errorf("%d: sent\n%+v\nwant\n%+v", n, g, want[min(n, len(want)-1)])
		}
	}
	if len(h.got[1].key) < 32 || h.most != 2*time.Minute {
		t.Errorf("key %q, waited %v", h.got[1].key, h.most)
	}
}

// schemaAt has the deny say where the schema of a submission is.
func schemaAt(url string) func(*hostile) {
	return func(h *hostile) {
		h.questions[0].body = strings.Replace(requestable, `"template"`, `"request_schema_url":`+url+`,"template"`, 1)
	}
}

// None of these permits, whatever it looks like; no other server is asked, and it ends.
func TestHostile(t *testing.T) {
	t.Parallel()
	deny := func(more string) string { return `{"decision":false,"context":{` + more + `}}` }
	for name, test := range map[string]struct {
		change func(*hostile)
		kind   authzenclient.Kind // "" is a deny that the PDP decided
		asked  int                // how often it was asked for a decision, and for an approval
		people int
	}{
		"not requestable":          {func(h *hostile) { h.questions = ok(deny(`"reason":"approval_required","next_action":"request"`)) }, "", 1, 0},
		"access_request is null":   {func(h *hostile) { h.questions = ok(deny(`"access_request":null`)) }, "", 1, 0},
		"access_request, a string": {func(h *hostile) { h.questions = ok(deny(`"access_request":"BASE/access/v1/requests"`)) }, authzenclient.Odd, 1, 0},
		"nobody can be asked": {func(h *hostile) {
			h.questions = ok(deny(`"access_request":{"refused":{"pointer":"/context/agent","detail":"d"}}`))
		}, "", 1, 0},
		"no expires_at":         {func(h *hostile) { h.questions = ok(deny(`"access_request":{"binding_token":"b"}`)) }, authzenclient.Odd, 1, 0},
		"expires_at is no time": {func(h *hostile) { h.questions = ok(deny(`"access_request":{"binding_token":"b","expires_at":"soon"}`)) }, authzenclient.Odd, 1, 0},
		"nothing binds":         {func(h *hostile) { h.questions = ok(deny(`"access_request":{"expires_at":"2026-01-02T03:14:05Z"}`)) }, authzenclient.Odd, 1, 0},
		"deny, and an error": {func(h *hostile) {
			h.questions = ok(strings.Replace(requestable, `"reason"`, `"error":{"status":400},"reason"`, 1))
		}, authzenclient.BadItem, 1, 0},
		"deny owes": {func(h *hostile) {
			h.questions = ok(strings.Replace(requestable, `"reason"`, `"obligations":[{"id":"x","type":"x","properties":{}}],"reason"`, 1))
		}, authzenclient.Obligated, 1, 0},
		"deny, 500": {func(h *hostile) { h.questions = []said{{500, requestable, nil}} }, authzenclient.Unavailable, 1, 0},

		"a schema of its own":  {schemaAt(`"BASE/schemas/finance"`), authzenclient.NotAsked, 1, 0},
		"a schema elsewhere":   {schemaAt(`"EVIL/access/v1/requests/schema"`), authzenclient.NotAsked, 1, 0},
		"a schema of a tenant": {schemaAt(`"BASE/tenants/acme/access/v1/requests/schema"`), authzenclient.NotAsked, 1, 0},
		"a schema, a number":   {schemaAt(`7`), authzenclient.Odd, 1, 0},

		"endpoint elsewhere":      {func(h *hostile) { h.questions = ok(strings.Replace(requestable, "BASE", "EVIL", 1)) }, authzenclient.NotAsked, 1, 0},
		"endpoint, user and host": {func(h *hostile) { h.questions = ok(strings.Replace(requestable, "BASE", "http://HOST@localhost", 1)) }, authzenclient.NotAsked, 1, 0},
		"endpoint, other scheme":  {func(h *hostile) { h.questions = ok(strings.Replace(requestable, "BASE", "https://HOST", 1)) }, authzenclient.NotAsked, 1, 0},
		"endpoint, relative":      {func(h *hostile) { h.questions = ok(strings.Replace(requestable, "BASE", "", 1)) }, authzenclient.NotAsked, 1, 0},
		"endpoint, no URL":        {func(h *hostile) { h.questions = ok(strings.Replace(requestable, "BASE", "::", 1)) }, authzenclient.NotAsked, 1, 0},
		"status elsewhere":        {func(h *hostile) { h.submitted = []said{{202, strings.Replace(pendingTask, "BASE", "EVIL", 1), nil}} }, authzenclient.NotAsked, 1, 1},
		"no status_endpoint":      {func(h *hostile) { h.submitted = []said{{202, `{"task":{"id":"t1","status":"pending"}}`, nil}} }, authzenclient.Odd, 1, 1},
		"submission, 200":         {func(h *hostile) { h.submitted = ok(pendingTask) }, authzenclient.Odd, 1, 1},
		"submission, moved":       {func(h *hostile) { h.submitted = []said{{307, "", []string{"Location", "EVIL/access/v1/requests"}}} }, authzenclient.Odd, 1, 1},
		"submission, refused":     {func(h *hostile) { h.submitted = []said{{409, approvedYes, nil}} }, authzenclient.Refused, 1, 1},
		"submission, no task": {func(h *hostile) {
			h.submitted = []said{{201, `{"result":{"mode":"reevaluate","approval":` + reference + `}}`, nil}}
		}, authzenclient.Odd, 1, 1},
		"submission, huge": {func(h *hostile) { h.submitted = []said{{201, `{"x":"` + strings.Repeat("x", 1<<17) + `"}`, nil}} }, authzenclient.Odd, 1, 1},
		"submission, decided": {func(h *hostile) {
			h.submitted = []said{{201, `{"decision":true,"task":{"id":"t1","status":"done","status_endpoint":"BASE/x"}}`, nil}}
		}, authzenclient.NotApproved, 1, 1},

		"pending for ever": {func(h *hostile) { h.looked = ok(pendingTask) }, authzenclient.NotApproved, 1, 1},
		"down for ever":    {func(h *hostile) { h.looked = []said{{503, approvedYes, nil}} }, authzenclient.NotApproved, 1, 1},
		"only much later":  {func(h *hostile) { h.looked = []said{{200, pendingTask, []string{"Retry-After", "86400"}}} }, authzenclient.NotApproved, 1, 1},
		"task, moved":      {func(h *hostile) { h.looked = []said{{302, "", []string{"Location", "EVIL/tasks/t1"}}} }, authzenclient.Odd, 1, 1},
		"task, gone":       {func(h *hostile) { h.looked = []said{{410, approvedYes, nil}} }, authzenclient.Refused, 1, 1},
		"task, HTML":       {func(h *hostile) { h.looked = []said{{200, approvedYes, []string{"Content-Type", "text/html"}}} }, authzenclient.Odd, 1, 1},
		"task, huge":       {func(h *hostile) { h.looked = ok(`{"x":"` + strings.Repeat("x", 1<<17) + `",` + approvedYes[1:]) }, authzenclient.Odd, 1, 1},
		"task, twice": {func(h *hostile) {
			h.looked = ok(strings.Replace(approvedYes, `"status"`, `"status":"denied","status"`, 1))
		}, authzenclient.Odd, 1, 1},
		"task, another's": {func(h *hostile) { h.looked = ok(strings.Replace(approvedYes, "t1", "t2", 1)) }, authzenclient.Odd, 1, 1},
		"task, of several": {func(h *hostile) {
			h.looked = ok(strings.Replace(approvedYes, `"status"`, `"items":[{"status":"approved"}],"status"`, 1))
		}, authzenclient.Odd, 1, 1},
		"unknown status":          {func(h *hostile) { h.looked = ok(strings.Replace(approvedYes, `"approved"`, `"granted"`, 1)) }, authzenclient.NotApproved, 1, 1},
		"status: needs-info":      {func(h *hostile) { h.looked = ok(strings.Replace(approvedYes, `"approved"`, `"needs-info"`, 1)) }, authzenclient.NotApproved, 1, 1},
		"needs-info, no result":   {func(h *hostile) { h.looked = ok(`{"task":{"id":"t1","status":"needs-info"}}`) }, authzenclient.NotApproved, 1, 1},
		"status in upper case":    {func(h *hostile) { h.looked = ok(strings.Replace(approvedYes, `"approved"`, `"Approved"`, 1)) }, authzenclient.NotApproved, 1, 1},
		"partial":                 {func(h *hostile) { h.looked = ok(strings.Replace(approvedYes, `"approved"`, `"partial"`, 1)) }, authzenclient.NotApproved, 1, 1},
		"denied, with a result":   {func(h *hostile) { h.looked = ok(strings.Replace(approvedYes, `"approved"`, `"denied"`, 1)) }, authzenclient.NotApproved, 1, 1},
		"failed":                  {func(h *hostile) { h.looked = ok(`{"task":{"id":"t1","status":"failed"}}`) }, authzenclient.NotApproved, 1, 1},
		"no result":               {func(h *hostile) { h.looked = ok(`{"task":{"id":"t1","status":"approved"}}`) }, authzenclient.NotApproved, 1, 1},
		"unknown mode":            {func(h *hostile) { h.looked = ok(strings.Replace(approvedYes, "reevaluate", "https://x/token", 1)) }, authzenclient.NotApproved, 1, 1},
		"approval without id":     {func(h *hostile) { h.looked = ok(strings.Replace(approvedYes, `"id":"a1",`, ``, 1)) }, authzenclient.Odd, 1, 1},
		"approval, a string":      {func(h *hostile) { h.looked = ok(strings.Replace(approvedYes, reference, `"a1"`, 1)) }, authzenclient.Odd, 1, 1},
		"approval without an end": {func(h *hostile) { h.looked = ok(strings.Replace(approvedYes, `approved_until`, `until`, 1)) }, authzenclient.Odd, 1, 1},
		"approval ended":          {func(h *hostile) { h.looked = ok(strings.Replace(approvedYes, `T04`, `T03`, 1)) }, authzenclient.NotApproved, 1, 1},
		"approved, and denied now": {func(h *hostile) {
			h.questions[1].body = deny(`"approval":` + reference + `,"approved":true,"status":"approved"`)
		}, "", 2, 1},
		"a decision that is text": {func(h *hostile) { h.questions[1].body = `{"decision":"true"}` }, authzenclient.Odd, 2, 1},
		"a decision in a 500":     {func(h *hostile) { h.questions[1].status = 500 }, authzenclient.Unavailable, 2, 1},
		"a decision in a 201":     {func(h *hostile) { h.questions[1].status = 201 }, authzenclient.Odd, 2, 1},
		"a decision elsewhere":    {func(h *hostile) { h.questions[1] = said{307, "", []string{"Location", "EVIL/access/v1/evaluation"}} }, authzenclient.Odd, 2, 1},
		"a decision that owes": {func(h *hostile) {
			h.questions[1].body = `{"decision":true,"context":{"obligations":[{"id":"x","type":"x","properties":{}}]}}`
		}, authzenclient.Obligated, 2, 1},
		"to be approved again": {func(h *hostile) {
			h.questions[1].body = `{"decision":true,"context":{"obligations":[{"id":"x","type":"custom","properties":{"vendor":"policy-service","type":"approval_required","properties":{}}}]}}`
		}, authzenclient.Obligated, 2, 1},
		"a decision for the past": {func(h *hostile) { h.questions[1].body = strings.Replace(h.questions[1].body, "T03:30", "T03:00", 1) }, authzenclient.NotApproved, 2, 1},
		"a decision until x": {func(h *hostile) {
			h.questions[1].body = strings.Replace(h.questions[1].body, "2026-01-02T03:30:00Z", "x", 1)
		}, authzenclient.Odd, 2, 1},
		"its approval is a list": {func(h *hostile) { h.questions[1].body = `{"decision":true,"context":{"approval":[]}}` }, authzenclient.Odd, 2, 1},

		"request, and no offer": {func(h *hostile) { h.questions[1].body = deny(`"next_action":"request"`) }, "", 2, 1},
		"expired, and no offer": {func(h *hostile) { h.questions[1].body = deny(`"reason":"approval_expired"`) }, "", 2, 1},
		"none, and an offer": {func(h *hostile) {
			h.questions[1].body = strings.Replace(requestable, `"reason"`, `"next_action":"none","reason"`, 1)
		}, "", 2, 1},
		"denied, and an offer": {func(h *hostile) {
			h.questions[1].body = strings.Replace(requestable, `approval_required`, `policy_denied`, 1)
		}, "", 2, 1},
		"requestable for ever": {func(h *hostile) { h.questions[1].body = requestable }, "", 3, 2},
		"request for ever": {func(h *hostile) {
			h.questions[1].body = strings.Replace(requestable, `"reason"`, `"next_action":"request","reason"`, 1)
		}, "", 3, 2},
		"unknown, and an offer": {func(h *hostile) {
			h.questions[1].body = strings.Replace(requestable, `"reason"`, `"next_action":"allow","reason"`, 1)
		}, "", 3, 2},
		"fresh offer, elsewhere":   {func(h *hostile) { h.questions[1].body = strings.Replace(requestable, "BASE", "EVIL", 1) }, authzenclient.NotAsked, 2, 1},
		"retry for ever":           {func(h *hostile) { h.questions[1].body = deny(`"next_action":"retry","retry_after":0`) }, authzenclient.NotApproved, -1, 1},
		"pending for ever, a word": {func(h *hostile) { h.questions[1].body = deny(`"reason":"grant_pending","retry_after":"soon"`) }, authzenclient.NotApproved, -1, 1},
		"retry tomorrow":           {func(h *hostile) { h.questions[1].body = deny(`"next_action":"retry","retry_after":60000`) }, authzenclient.NotApproved, 2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			h := fair()
			test.change(h)
			e := approvals.Enforce(t.Context(), h.client(t), question, nil)
			if test.kind != "" {
				wantNone(t, e, test.kind, "")
			} else if e.Permitted() || e.Err() != nil {
				t.Errorf("got %v", e)
			}
			if asked := h.count("ask"); asked != test.asked && (test.asked >= 0 || asked < 10 || asked > 100) {
				t.Errorf("asked %d times", asked)
			}
			if people := h.count("submit"); people != test.people {
				t.Errorf("people were asked %d times", people)
			}
		})
	}
}

// An approval that is not there yet is asked for again, when the PDP says.
func TestRetry(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"retry": `{"decision":false,"context":{"next_action":"retry","retry_after":300}}`, "pending": `{"decision":false,"context":{"reason":"grant_pending","retry_after":300}}`,
	} {
		h := fair()
		h.questions = []said{h.questions[0], {200, body, nil}, {200, `{"decision":true}`, nil}}
		if e := approvals.Enforce(t.Context(), h.client(t), question, nil); !e.Permitted() || h.most != 5*time.Minute || h.count("submit") != 1 {
			t.Errorf("%s: %v, waited %v", name, e, h.most)
		}
	}
}

// A PDP that decides at once, or has its endpoint in no answer.
func TestShortWays(t *testing.T) {
	t.Parallel()
	h := fair()
	h.submitted = []said{{201, strings.Replace(approvedYes, `"status"`, `"status_endpoint":"BASE/tasks?id=t1","status"`, 1), nil}}
	if e := approvals.Enforce(t.Context(), h.client(t), question, nil); !e.Permitted() || h.count("look") != 0 {
		t.Errorf("decided at once: %v", e)
	}
	for _, url := range []string{`"BASE/access/v1/requests/schema"`, `null`} {
		h = fair()
		schemaAt(url)(h)
		if e := approvals.Enforce(t.Context(), h.client(t), question, nil); !e.Permitted() {
			t.Errorf("the schema that requires nothing, %s: %v", url, e)
		}
	}
	h = fair()
	schemaAt(`"BASE/access/v1/requests/schema"`)(h)
	h.questions[0].body = strings.Replace(h.questions[0].body, `BASE/access/v1/requests"`, `BASE/tenants/acme/access/v1/requests"`, 1)
	if e := approvals.Enforce(t.Context(), h.client(t, authzenclient.WithTenant("acme")), question, nil); !e.Permitted() {
		t.Errorf("in a tenant: %v", e)
	}
	h = fair()
	h.questions[0].body = strings.Replace(requestable, `"endpoint":"BASE/access/v1/requests",`, "", 1)
	if e := approvals.Enforce(t.Context(), h.client(t), question, nil); !e.Permitted() {
		t.Errorf("the usual endpoint: %v", e)
	}
}

// An origin that was allowed is asked about tasks, and gets no credentials.
func TestTaskAtAllowedOrigin(t *testing.T) {
	t.Parallel()
	desk := fair()
	desk.client(t)
	h := fair()
	elsewhere := strings.NewReplacer("BASE", desk.base)
	h.questions[0].body = elsewhere.Replace(requestable)
	c := h.client(t, authzenclient.WithEndpointOrigin(desk.base))
	if e := approvals.Enforce(t.Context(), c, question, nil); !e.Permitted() || desk.count("submit") != 1 || desk.count("look") != 2 {
		t.Errorf("%v, %+v", e, desk.got)
	}
	for _, g := range desk.got {
		if g.credentials != "" {
			t.Errorf("credentials went to another origin: %+v", g)
		}
	}
}

func TestCancelHostile(t *testing.T) {
	t.Parallel()
	cancelled := `{"task":{"id":"t1","status":"cancelled"}}`
	for name, test := range map[string]struct {
		task, answer string
		status       int
		ok           bool
	}{
		"done":          {pendingTask, cancelled, 200, true},
		"not cancelled": {pendingTask, strings.Replace(cancelled, "cancelled", "pending", 1), 200, false},
		"another's":     {pendingTask, strings.Replace(cancelled, "t1", "t2", 1), 200, false},
		"refused":       {pendingTask, cancelled, 409, false},
		"elsewhere":     {strings.Replace(pendingTask, "BASE/tasks/cancel", "EVIL/cancel", 1), cancelled, 200, false},
		"not offered":   {strings.Replace(pendingTask, `"cancel":`, `"other":`, 1), cancelled, 200, false},
	} {
		h := fair()
		h.submitted, h.looked = []said{{202, test.task, nil}}, []said{{test.status, test.answer, nil}}
		c := h.client(t)
		var last approvals.Task
		approvals.Enforce(t.Context(), c, question, nil, approvals.KeepTask(func(ctx context.Context, handle approvals.Task) error {
			last = handle
			return context.Canceled
		}))
		if err := approvals.Cancel(t.Context(), c, moved(t, last)); (err == nil) != test.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The question with an approval may use it up, and so is not repeated.
func TestPresentedOnce(t *testing.T) {
	t.Parallel()
	h := fair()
	h.questions[1] = said{503, `{}`, []string{"Retry-After", "1"}}
	wantNone(t, approvals.Enforce(t.Context(), h.client(t, authzenclient.WithRetries(2)), question, nil), authzenclient.Unavailable, "")
	if n := h.count("ask"); n != 2 {
		t.Errorf("asked %d times", n)
	}
}
