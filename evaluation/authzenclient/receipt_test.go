package authzenclient_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/obligations"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/inside/format"
	"policy-service/pdp/pdptest/inside/record"
	"policy-service/pdp/pdptest/inside/segment"
	"policy-service/pdp/pdptest/inside/server"
)

// A real server, every way to enforce, and what is on its record afterwards.
func TestReceiptsAreOnRecord(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	s := pdptest.Start(t, pdptest.Bundle(map[string]string{
		"a.cedar": `@id("read") @obligation("tell, log") permit(principal, action == Action::"read", resource);
@id("push") @obligation("ask-first") permit(principal, action == Action::"push", resource);
@id("look") permit(principal, action == Action::"look", resource);
@id("never") @obligation("alarm") forbid(principal, action == Action::"delete", resource);`,
		"obligations.yaml": "tell: {type: notification, on: allow, properties: {to: ops, body: read}}\nask-first: {type: approval_required}\nalarm: {type: notification, on: deny, properties: {to: security, body: deleted}}\n",
	}), func(c *server.Config) { c.Data = data })
	c := newClient(t, s.URL)
	var p pep
	handlers := p.handlers()
	handlers["approval_required"] = func(context.Context, evaluation.Obligation) error { return errors.New("hunter2") }
	without := obligations.Handlers{"log": handlers["log"]}
	batch := c.EnforceBatch(t.Context(), "", handlers, ask("u", "read", "d"), ask("u", "look", "d"), ask("u", "delete", "d"))
	all := append(batch, c.Enforce(t.Context(), ask("u", "read", "d"), handlers), c.Enforce(t.Context(), ask("u", "push", "d"), handlers),
		c.Enforce(t.Context(), ask("u", "delete", "d"), without), c.Enforce(t.Context(), ask("u", "look", "d"), handlers))
	want := map[string]string{}
	for n, receipt := range []string{
		"log:discharged: tell:discharged:", "", "alarm:discharged:", "log:discharged: tell:discharged:",
		"ask-first:failed:its handler failed", "", "",
	} {
		if err := all[n].ReceiptErr(); err != nil {
			t.Errorf("%d: %v", n, err)
		}
		if receipt != "" {
			want[all[n].Decision().ID()] = receipt
		}
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := recordedReceipts(t, data); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got\n%v\nwant\n%v", got, want)
	}
}

// recordedReceipts are the receipts in a data directory by decision, as id:status:detail.
func recordedReceipts(t *testing.T, data string) map[string]string {
	t.Helper()
	r, err := segment.OpenReader(data)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	got := map[string]string{}
	for rec, err := range r.Records(t.Context(), 0, r.Size()) {
		var l struct {
			Kind    string
			Details record.Receipt
		}
		if err != nil || json.Unmarshal(rec.Line, &l) != nil || l.Kind != format.KindReceipt {
			continue // details of another kind are something else
		}
		var parts []string
		for _, o := range l.Details.Obligations {
			parts = append(parts, fmt.Sprintf("%s:%s:%s", o.ID, o.Status, o.Detail))
		}
		slices.Sort(parts)
		got[l.Details.Decision] = strings.Join(parts, " ")
	}
	return got
}

// receiving is a PDP that obliges to one thing, does as it is told with receipts, and
// keeps them.
type receiving struct {
	id      string // X-Decision-Id
	receipt step

	mu    sync.Mutex
	asked []string // path and body of each receipt
}

func (r *receiving) RoundTrip(q *http.Request) (*http.Response, error) {
	if !strings.Contains(q.URL.Path, "/v1/decisions/") {
		return answer(200, `{"decision":true,"context":{"obligations":[{"id":"a","type":"custom","properties":{"vendor":"policy-service","type":"log","properties":{}}}]}}`, "X-Decision-Id", r.id)(q)
	}
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.asked = append(r.asked, q.URL.EscapedPath()+" "+string(body))
	r.mu.Unlock()
	return r.receipt(q)
}

func (r *receiving) client(t *testing.T, options ...authzenclient.Option) *authzenclient.Client {
	t.Helper()
	c, err := authzenclient.New("http://localhost", append([]authzenclient.Option{nap, authzenclient.WithHTTPClient(&http.Client{Transport: r})}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// receiptKind is why a receipt was not sent, "" where that is no error. The outcome is
// a permit, whatever became of it.
func receiptKind(t *testing.T, e authzenclient.Enforcement) authzenclient.Kind {
	t.Helper()
	if !e.Permitted() || e.Err() != nil || e.String() != "permit" {
		t.Errorf("the receipt changed the outcome: %v", e)
	}
	if e.ReceiptErr() == nil {
		return ""
	}
	var err *authzenclient.Error
	if !errors.As(e.ReceiptErr(), &err) || err.Op != "report" {
		t.Fatalf("got %#v", e.ReceiptErr())
	}
	return err.Kind
}

func TestReceiptAnswers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		receipt step
		kind    authzenclient.Kind
		silent  bool
	}{
		"taken":                   {answer(204, ""), "", false},
		"an answer that is none":  {answer(200, "{}"), authzenclient.Odd, false},
		"another's X-Request-ID":  {answer(204, "", "X-Request-ID", "other"), authzenclient.Odd, false},
		"malformed":               {answer(400, "{}"), authzenclient.Refused, false},
		"not permitted":           {answer(403, "{}"), authzenclient.Refused, false},
		"reported before":         {answer(409, "{}"), authzenclient.Refused, false},
		"moved":                   {answer(302, "", "Location", "http://localhost/v1/decisions/x"), authzenclient.Odd, false},
		"fails":                   {answer(500, ""), authzenclient.Unavailable, false},
		"cannot be recorded":      {answer(503, "{}"), authzenclient.Unavailable, false},
		"no connection":           {fails(errors.New("none")), authzenclient.Unreachable, false},
		"no answer":               {hangs, authzenclient.TimedOut, false},
		"does not know it":        {answer(404, ""), "", true},
		"does not know POST":      {answer(405, ""), "", true},
		"does not know it at all": {answer(501, ""), "", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var p pep
				clock, start := time.Now(), time.Now()
				pdp := &receiving{id: "d-1", receipt: test.receipt}
				c := pdp.client(t, reads(&clock), authzenclient.WithBreaker(100, time.Minute))
				for range 3 {
					if got := receiptKind(t, c.Enforce(t.Context(), question, p.handlers())); got != test.kind {
						t.Errorf("got %q, want %q", got, test.kind)
					}
				}
				if took := time.Since(start); took > 3*2*time.Second {
					t.Errorf("it took %v", took)
				}
				if asked := len(pdp.asked); asked != 3 && !test.silent || asked != 1 && test.silent {
					t.Errorf("%d receipts", asked)
				}
				clock = clock.Add(time.Minute)
				c.Enforce(t.Context(), question, p.handlers())
				if asked := len(pdp.asked); asked != 4 && !test.silent || asked != 2 && test.silent {
					t.Errorf("%d receipts after a while", asked)
				}
				if want := `/v1/decisions/d-1/obligations {"obligations":[{"id":"a","status":"discharged"}]}`; pdp.asked[0] != want {
					t.Errorf("got %s", pdp.asked[0])
				}
			})
		})
	}
}

// A PDP that took a receipt knows the path: that it does not know a decision is an error,
// and does not keep others from being reported.
func TestReceiptOfADecisionThatIsNotKnown(t *testing.T) {
	t.Parallel()
	var p pep
	pdp := &receiving{id: "d", receipt: answer(204, "")}
	c := pdp.client(t)
	for n, status := range []int{204, 404, 404, 204} {
		pdp.receipt = answer(status, "")
		want := authzenclient.Kind("")
		if status == 404 {
			want = authzenclient.Refused
		}
		if got := receiptKind(t, c.Enforce(t.Context(), question, p.handlers())); got != want || len(pdp.asked) != n+1 {
			t.Errorf("%d: got %q after %d receipts", n, got, len(pdp.asked))
		}
	}
}

func TestNothingToReport(t *testing.T) {
	t.Parallel()
	var p pep
	pdp := &receiving{id: "d", receipt: answer(204, "")}
	silent := pdp.client(t, authzenclient.WithoutReceipts())
	silent.Enforce(t.Context(), question, p.handlers())
	silent.EnforceBatch(t.Context(), "", p.handlers(), question)
	unnamed := &receiving{receipt: answer(204, "")}
	unnamed.client(t).Enforce(t.Context(), question, p.handlers())
	pdp.client(t).Evaluate(t.Context(), question)
	if len(pdp.asked)+len(unnamed.asked) > 0 {
		t.Errorf("got %v, %v", pdp.asked, unnamed.asked)
	}
	for id, want := range map[string]string{"a/b?c#d e%2e": "/v1/decisions/a%2Fb%3Fc%23d%20e%252e/obligations", "..": "", ".": ""} {
		pdp := &receiving{id: id, receipt: answer(204, "")}
		kind := receiptKind(t, pdp.client(t).Enforce(t.Context(), question, p.handlers()))
		if path, _, _ := strings.Cut(strings.Join(pdp.asked, ""), " "); path != want || (kind == authzenclient.NotAsked) != (want == "") {
			t.Errorf("%s: got %s, %s", id, path, kind)
		}
	}
}

// A caller who goes away gets no permit, and what was done is reported all the same.
func TestReceiptAfterTheContextEnds(t *testing.T) {
	t.Parallel()
	pdp := &receiving{id: "d", receipt: answer(204, "")}
	ctx, cancel := context.WithCancel(t.Context())
	e := pdp.client(t).Enforce(ctx, question, obligations.Handlers{"log": func(context.Context, evaluation.Obligation) error { cancel(); return nil }})
	if e.Permitted() || e.ReceiptErr() != nil || len(pdp.asked) != 1 || !strings.Contains(pdp.asked[0], `"status":"failed","detail":"the decision was no longer waited for"`) {
		t.Errorf("%v, %v, %v", e, e.ReceiptErr(), pdp.asked)
	}
}

// A PDP that fails at receipts is not sent more of them, and still asked.
func TestReceiptsHaveABreakerOfTheirOwn(t *testing.T) {
	t.Parallel()
	var p pep
	pdp := &receiving{id: "d", receipt: answer(500, "")}
	c := pdp.client(t, authzenclient.WithBreaker(2, time.Minute))
	for n, want := range []authzenclient.Kind{authzenclient.Unavailable, authzenclient.Unavailable, authzenclient.Open, authzenclient.Open} {
		if got := receiptKind(t, c.Enforce(t.Context(), question, p.handlers())); got != want {
			t.Errorf("%d: got %q, want %q", n, got, want)
		}
	}
	if len(pdp.asked) != 2 {
		t.Errorf("%d receipts", len(pdp.asked))
	}
}

// All receipts of a batch together take no longer than one may.
func TestReceiptsOfABatchAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p pep
		items := strings.TrimSuffix(strings.Repeat(`{"decision":true,"context":{"obligations":[{"id":"a","type":"custom","properties":{"vendor":"policy-service","type":"log","properties":{}}}]}},`, 100), ",")
		c, _ := scripted(t, []step{func(r *http.Request) (*http.Response, error) {
			if strings.Contains(r.URL.Path, "/v1/decisions/") {
				return hangs(r)
			}
			return answer(200, `{"evaluations":[`+items+`]}`, "X-Decision-Id", "b")(r)
		}}, authzenclient.WithBreaker(0, 0))
		start := time.Now()
		all := c.EnforceBatch(t.Context(), "", p.handlers(), slices.Repeat([]evaluation.Request{question}, 100)...)
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("it took %v", took)
		}
		for n, e := range all {
			if got := receiptKind(t, e); got != authzenclient.TimedOut {
				t.Errorf("%d: got %q", n, got)
			}
		}
	})
}
