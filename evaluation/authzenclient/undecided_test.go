package authzenclient_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
)

// What is counted is that no decision came, and neither that the PDP denies nor that the caller gave up.
func TestUndecidedIsToldOf(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	fails := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }
	const obliges = `{"decision":true,"context":{"obligations":[{"id":"a","type":"log"}]}}`
	for name, test := range map[string]struct {
		answers http.HandlerFunc
		ctx     context.Context
		batch   bool
		want    string
	}{
		"an allow":          {says(`{"decision":true}`), t.Context(), false, "[]"},
		"a deny":            {says(`{"decision":false}`), t.Context(), false, "[]"},
		"an obligation":     {says(obliges), t.Context(), false, "[]"},
		"a failure":         {fails, t.Context(), false, "[unavailable]"},
		"garbage":           {says(`{"decision":"true"}`), t.Context(), false, "[not an answer]"},
		"a caller gave up":  {says(`{"decision":true}`), ended, false, "[]"},
		"a batch":           {fails, t.Context(), true, "[unavailable unavailable]"},
		"an item":           {says(`{"evaluations":[{"decision":true},{"decision":1}]}`), t.Context(), true, "[not an answer]"},
		"a batch that ends": {says(`{"evaluations":[{"decision":false}]}`), t.Context(), true, "[]"},
	} {
		told := []authzenclient.Kind{}
		c := newClient(t, stub(t, test.answers), july, authzenclient.WithUndecided(func(_ context.Context, err *authzenclient.Error) { told = append(told, err.Kind) }))
		if test.batch {
			c.EvaluateBatch(test.ctx, evaluation.DenyOnFirstDeny, question, question)
		} else {
			c.Enforce(test.ctx, question, nil)
		}
		if got := fmt.Sprint(told); got != test.want {
			t.Errorf("%s: told of %s, want %s", name, got, test.want)
		}
	}
}

// A question that presents an approval is counted as any other.
func TestUndecidedWithAnApproval(t *testing.T) {
	t.Parallel()
	const approval = `{"id":"a","approved_until":"2999-01-01T00:00:00Z"}`
	for name, test := range map[string]struct{ approval, want string }{
		"a failure":                           {approval, "[unavailable]"},
		"no approval":                         {`{}`, "[not asked]"},
		"one that is over, which was decided": {`{"id":"a","approved_until":"1999-01-01T00:00:00Z"}`, "[]"},
	} {
		told := []authzenclient.Kind{}
		c := newClient(t, stub(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }),
			authzenclient.WithUndecided(func(_ context.Context, err *authzenclient.Error) { told = append(told, err.Kind) }))
		c.Present(t.Context(), question, nil, []byte(test.approval))
		if got := fmt.Sprint(told); got != test.want {
			t.Errorf("%s: told of %s, want %s", name, got, test.want)
		}
	}
}

// An answer that is lost is lost with the use of each question that presents an approval, and of no other.
func TestSpentOfABatch(t *testing.T) {
	t.Parallel()
	c := newClient(t, stub(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	id, err := evaluation.Text("a")
	if err != nil {
		t.Fatal(err)
	}
	presents := question
	presents.Context = presents.Context.With("approval_id", id)
	for n, d := range c.EvaluateBatch(t.Context(), "", question, presents) {
		var e *authzenclient.Error
		if !errors.As(d.Err(), &e) || e.Spent != (n == 1) {
			t.Errorf("%d: %v", n, d.Err())
		}
	}
}

// The error that is told of is a copy: whatever is done with it, the decision keeps its own.
func TestUndecidedIsACopy(t *testing.T) {
	t.Parallel()
	c := newClient(t, "http://127.0.0.1:1", authzenclient.WithUndecided(func(_ context.Context, err *authzenclient.Error) { err.Kind = "" }))
	var e *authzenclient.Error
	if d := c.Evaluate(t.Context(), question); !errors.As(d.Err(), &e) || e.Kind != authzenclient.Unreachable {
		t.Errorf("got %v", d.Err())
	}
}
