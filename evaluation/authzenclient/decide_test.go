package authzenclient_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/obligations"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/inside/server"
)

// The three steps are those of Enforce, whatever the answer obliges to; before the second
// nothing is done, and what is denied stays denied.
func TestDecide(t *testing.T) {
	t.Parallel()
	for name, test := range obliging {
		t.Run(name, func(t *testing.T) {
			var p pep
			c := newClient(t, stub(t, says(strings.ReplaceAll(test.body, `"V"`, `"decision"`))), july)
			u := c.Decide(t.Context(), question, p.handlers().Types())
			if denied := test.want != "P" && (test.want != "O" || strings.Contains(test.body, `"V":false`)); u.Denied() != denied || len(p.done) > 0 {
				t.Errorf("denied %v, done %v", u.Denied(), p.done)
			}
			if u.String() == "permit" || u.Denied() && strings.HasPrefix(u.String(), "allow") {
				t.Errorf("%s reads as a permit", u)
			}
			answered := test.want == "P" || test.want == "D" || test.want == "O"
			if (u.Err() == nil) != answered {
				t.Errorf("the error is %v", u.Err())
			}
			if e := authzenclient.DischargeAll(t.Context(), p.handlers(), u); e.Permitted() != (test.want == "P") || outcome(t, e.First()) != test.want {
				t.Errorf("%v", e.First())
			}
			p.done = nil
			e := u.Discharge(t.Context(), p.handlers())
			if got, done := outcome(t, e), strings.Join(p.done, " "); got != test.want || done != test.done {
				t.Errorf("%s, done %s: %v", got, done, e)
			}
		})
	}
}

// The zero values are denies.
func TestZero(t *testing.T) {
	t.Parallel()
	var d authzenclient.Decision
	if d.Permitted() || d.Err() != nil || d.String() != "deny" {
		t.Errorf("the zero Decision is %v, %v", d, d.Err())
	}
	var zero authzenclient.Enforcement
	if outcome(t, zero) != "D" || zero.String() != "deny" {
		t.Errorf("the zero Enforcement is %v", zero)
	}
	var u authzenclient.Undischarged
	e := u.Discharge(t.Context(), nil)
	if !u.Denied() || u.Err() != nil || u.String() != "deny" || e.Permitted() {
		t.Errorf("the zero Undischarged is %v, discharged %v", u, e)
	}
	if none := authzenclient.DischargeAll(t.Context(), nil); none.Permitted() || none.First().Permitted() || len(none.All()) != 0 {
		t.Error("no decisions are a permit")
	}
	if (authzenclient.Enforcements{}).Permitted() {
		t.Error("the zero Enforcements permit")
	}
}

// What is declared are the types that were given, each once.
func TestDecideDeclares(t *testing.T) {
	t.Parallel()
	var asked []string
	c := newClient(t, stub(t, says(`{"decision":true,"evaluations":[{"decision":true}]}`)),
		authzenclient.WithHTTPClient(&http.Client{Transport: bodies(&asked)}))
	types := []string{"redact", "", "log", "redact"}
	c.Decide(t.Context(), question, types)
	c.Decide(t.Context(), question, nil)
	c.DecideBatch(t.Context(), "", types, question)
	for n, want := range []string{`["custom"]`, `[]`, `["custom"]`} {
		if !strings.Contains(asked[n], `"context":{"supported_mandatory_extensions":["obligations"],"supported_obligations":`+want+`}`) {
			t.Errorf("%d: asked %s", n, asked[n])
		}
	}
	if types[0] != "redact" || types[1] != "" {
		t.Errorf("the caller's types are %v now", types)
	}
	for _, u := range append(c.DecideBatch(t.Context(), "", []string{"\xff"}, question), c.Decide(t.Context(), question, []string{"\xff"})) {
		if !u.Denied() || u.Err() == nil || len(asked) != 3 {
			t.Errorf("%v, asked %v", u, asked)
		}
	}
}

// bodies is a transport that keeps what was sent.
func bodies(asked *[]string) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		body, err := r.GetBody()
		if err != nil {
			return nil, err
		}
		text := make([]byte, r.ContentLength)
		if _, err := body.Read(text); err != nil && len(text) > 0 {
			return nil, err
		}
		*asked = append(*asked, string(text))
		return http.DefaultTransport.RoundTrip(r)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Several questions are one permit only if each is answered, and with yes.
func TestDischargeAll(t *testing.T) {
	t.Parallel()
	const (
		yes   = `{"decision":true}`
		no    = `{"decision":false}`
		logs  = `{"decision":true,"context":{"obligations":[{"id":"l","type":"log"}]}}`
		tells = `{"decision":false,"context":{"obligations":[{"id":"t","type":"notification"}]}}`
		fails = `{"decision":true,"context":{"obligations":[{"id":"s","type":"step-up"}]}}`
	)
	for name, test := range map[string]struct {
		items  string
		permit bool
		done   string
	}{
		"all":                          {yes + "," + logs + "," + yes, true, "l:log{}"},
		"all, in another order":        {logs + "," + yes + "," + yes, true, "l:log{}"},
		"the last denies":              {logs + "," + yes + "," + no, false, ""},
		"the first denies":             {no + "," + logs + "," + yes, false, ""},
		"in another order, one denies": {yes + "," + no + "," + logs, false, ""},
		"a deny obliges":               {logs + "," + yes + "," + tells, false, "t:notification{}"},
		"stops at the deny":            {logs + "," + no, false, ""},
		"stops at once":                {tells, false, "t:notification{}"},
		"fewer":                        {yes + "," + yes, false, ""},
		"one":                          {yes, false, ""},
		"none":                         {``, false, ""},
		"more":                         {yes + "," + yes + "," + yes + "," + yes, false, ""},
		"more, and a deny":             {logs + "," + yes + "," + yes + "," + no, false, ""},
		"one that cannot be read":      {logs + `,{"decision":"true"},` + yes, false, ""},
		"one that is null":             {logs + `,null,` + yes, false, ""},
		"one with an error":            {logs + `,{"decision":true,"context":{"error":{"status":400}}},` + yes, false, ""},
		"one that is not done":         {fails + "," + logs + "," + yes, false, "s:step-up{} l:log{}"},
		"of nobody's type":             {`{"decision":true,"context":{"obligations":[{"id":"x","type":"x"}]}},` + logs + "," + yes, false, "l:log{}"},
	} {
		t.Run(name, func(t *testing.T) {
			var p pep
			c := newClient(t, stub(t, says(`{"decision":true,"evaluations":[`+test.items+`]}`)), july)
			all := c.DecideBatch(t.Context(), evaluation.DenyOnFirstDeny, p.handlers().Types(), question, question, question)
			e := authzenclient.DischargeAll(t.Context(), p.handlers(), all...)
			if done := strings.Join(p.done, " "); e.Permitted() != test.permit || done != test.done || len(all) != 3 {
				t.Errorf("permitted %v, done %s", e.Permitted(), done)
			}
			first := e.First()
			if first.Permitted() != test.permit || strings.Contains(first.String(), "another decision") {
				t.Errorf("the reason is %v", first)
			}
			for _, one := range e.All() {
				outcome(t, one)
			}
		})
	}
}

// One answer that several discharge at once is to each of them what it is to one, and Break is of one copy.
func TestDischargeAtOnce(t *testing.T) {
	t.Parallel()
	c := newClient(t, stub(t, says(`{"decision":true,"context":{"obligations":[{"id":"l","type":"log"}]}}`)), july)
	var done atomic.Int64
	handlers := obligations.Handlers{"log": func(context.Context, evaluation.Obligation) error { done.Add(1); return nil }}
	u := c.Decide(t.Context(), question, handlers.Types())
	both := authzenclient.DischargeAll(t.Context(), handlers, u, u)
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			e, all := u.Discharge(t.Context(), handlers), both
			if !e.Permitted() || !all.Permitted() {
				t.Error(e, all.First())
			}
			e.Break(evaluation.Obligation{ID: "l", Type: "log"}, errors.New("x"))
			all.Break(evaluation.Obligation{ID: "l", Type: "log"}, errors.New("x"))
			c.ReportAll(t.Context(), &all)
			if e.Permitted() || all.Permitted() {
				t.Error(e, all.First())
			}
		})
	}
	group.Wait()
	if !both.Permitted() || done.Load() != 18 {
		t.Errorf("%v, done %d times", both.First(), done.Load())
	}
}

// A promise that was not kept denies, and is on record as it is; so is what was not tried.
func TestReportLater(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	s := pdptest.Start(t, pdptest.Bundle(map[string]string{
		"a.cedar": `@id("read") @obligation("mask, log") permit(principal, action == Action::"read", resource);
@id("look") @obligation("mask") permit(principal, action == Action::"look", resource);`,
		"obligations.yaml": "mask: {type: redact, properties: {fields: [/ssn]}}\n",
	}), func(c *server.Config) { c.Data = data })
	c := newClient(t, s.URL)
	promise := obligations.Handlers{
		"log":    func(context.Context, evaluation.Obligation) error { return nil },
		"redact": func(context.Context, evaluation.Obligation) error { return nil },
	}
	mask := evaluation.Obligation{ID: "mask", Type: "redact"}
	want := map[string]string{}

	kept := c.Decide(t.Context(), ask("u", "read", "d"), promise.Types()).Discharge(t.Context(), promise)
	broken := c.Decide(t.Context(), ask("u", "read", "d"), promise.Types()).Discharge(t.Context(), promise)
	before := broken
	broken.Break(mask, errors.New("hunter2"))
	if !kept.Permitted() || !before.Permitted() || broken.Permitted() || !strings.Contains(broken.Err().Error(), "hunter2") {
		t.Errorf("kept %v, before %v, broken %v", kept, before, broken)
	}
	for _, e := range []*authzenclient.Enforcement{&kept, &broken} {
		for range 2 { // what was reported is not reported again
			if c.Report(t.Context(), e); e.ReceiptErr() != nil {
				t.Error(e.ReceiptErr())
			}
		}
	}
	const failed = "mask:failed:its handler promised it, and it was not done"
	want[kept.Decision().ID()] = "log:discharged: mask:discharged:"
	want[broken.Decision().ID()] = "log:discharged: " + failed

	types := promise.Types()
	both := authzenclient.DischargeAll(t.Context(), promise, c.Decide(t.Context(), ask("u", "read", "d"), types), c.Decide(t.Context(), ask("u", "look", "d"), types))
	permitted := both.Permitted()
	both.Break(mask, errors.New("no"))
	none := authzenclient.DischargeAll(t.Context(), promise, c.Decide(t.Context(), ask("u", "read", "d"), types), c.Decide(t.Context(), ask("u", "delete", "d"), types))
	if !permitted || both.Permitted() || none.Permitted() || none.First().Err() != nil {
		t.Errorf("permitted %v, broken %v, denied %v", permitted, both.First(), none.First())
	}
	c.ReportAll(t.Context(), &both)
	c.ReportAll(t.Context(), &none)
	c.ReportAll(t.Context(), &none)
	want[both.All()[0].Decision().ID()], want[both.All()[1].Decision().ID()] = "log:discharged: "+failed, failed
	const forgone = ":failed:it was not tried, because the act was denied for another reason"
	want[none.All()[0].Decision().ID()] = "log" + forgone + " mask" + forgone
	for _, e := range append(both.All(), none.All()...) {
		if e.ReceiptErr() != nil {
			t.Error(e.ReceiptErr())
		}
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := recordedReceipts(t, data); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got\n%v\nwant\n%v", got, want)
	}
}

// Who breaks a promise that nobody gave has mistaken one that somebody did.
func TestBreakOfAnother(t *testing.T) {
	t.Parallel()
	for _, body := range []string{`{"decision":true}`, `{"decision":true,"context":{"obligations":[{"id":"a","type":"log"}]}}`} {
		var p pep
		c := newClient(t, stub(t, says(body)), july)
		u := c.Decide(t.Context(), question, p.handlers().Types())
		e, all := u.Discharge(t.Context(), p.handlers()), authzenclient.DischargeAll(t.Context(), p.handlers(), u, u)
		if !e.Permitted() || !all.Permitted() {
			t.Fatal(e, all.First())
		}
		copied := all
		e.Break(evaluation.Obligation{ID: "a", Type: "redact"}, errors.New("x"))
		all.Break(evaluation.Obligation{ID: "a", Type: "redact"}, errors.New("x"))
		if outcome(t, e) != "O" || outcome(t, all.First()) != "O" || all.Permitted() || !copied.Permitted() {
			t.Errorf("%v, %v, the copy %v", e, all.First(), copied.First())
		}
	}
}

// A question that presents an approval may use it up, and is not sent again after it may have arrived.
func TestPresentedIsNotRepeated(t *testing.T) {
	t.Parallel()
	for _, member := range []string{"approval", "approval_id"} {
		q := question
		v, err := evaluation.Text("x")
		if err != nil {
			t.Fatal(err)
		}
		q.Context = q.Context.With(member, v)
		c, s := scripted(t, []step{reset, reset, yes})
		wantDeny(t, c.Evaluate(t.Context(), q), authzenclient.Unreachable)
		wantDeny(t, c.EvaluateBatch(t.Context(), "", question, q)[0], authzenclient.Unreachable)
		if n := s.asked.Load(); n != 2 {
			t.Errorf("%s: asked %d times", member, n)
		}
	}
}
