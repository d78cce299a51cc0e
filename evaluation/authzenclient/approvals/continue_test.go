package approvals_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
)

// used is a permit of a fair PDP by an approval, as decision d1.
func used(t *testing.T, c *authzenclient.Client) authzenclient.Enforcement {
	t.Helper()
	e := uses(t, c)
	if !e.Permitted() || e.Decision().ID() != "d1" {
		t.Fatal(e)
	}
	return e
}

// uses asks for an approval, waits for it, and uses it.
func uses(t *testing.T, c *authzenclient.Client) authzenclient.Enforcement {
	t.Helper()
	s, err := approvals.Ask(t.Context(), c, c.Enforce(t.Context(), question, nil))
	if err != nil {
		t.Fatal(err)
	}
	for s.Pending() {
		s = stands(t, c, s.Task())
	}
	return approvals.Use(t.Context(), c, s, question, nil).Discharge(t.Context(), nil)
}

func continued(t *testing.T, e authzenclient.Enforcement) (k authzenclient.Continuation) {
	t.Helper()
	was, ok := e.Continuation()
	if !ok {
		t.Fatalf("nothing goes on from %v", e)
	}
	text, err := json.Marshal(was)
	if err == nil {
		err = json.Unmarshal(text, &k)
	}
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Each round says which it is of the decision that used the approval, whatever that of the
// round before was.
func TestContinue(t *testing.T) {
	t.Parallel()
	h := fair()
	h.questions[1].headers = []string{"X-Decision-Id", "d1"}
	for n := range 3 {
		h.questions = append(h.questions, said{200, `{"decision":true,"context":{"approval":{"id":"a1","rounds":3}}}`, []string{"X-Decision-Id", fmt.Sprint("round ", n+1)}})
	}
	h.questions = append(h.questions, said{200, `{"decision":true,"context":{"approval":{"id":"a1","approved_until":"2026-01-02T03:30:00Z","rounds":1}}}`, nil}, said{200, `{"decision":false,"context":{"reason":"approval_expired"}}`, nil})
	c := h.client(t)
	e := used(t, c)
	for n := range 4 {
		k := continued(t, e)
		e = h.again(t).Continue(t.Context(), k, question, []string{"log"}).Discharge(t.Context(), nil)
		want := fmt.Sprintf(`"context":{"approval":{"id":"a1","continues":{"decision":"d1","round":%d}},"supported_mandatory_extensions":["obligations"],"supported_obligations":["custom"]}`, n+1)
		if sent := h.got[len(h.got)-1].body; !e.Permitted() || !strings.Contains(sent, want) {
			t.Fatalf("round %d: %v, sent %s", n+1, e, sent)
		}
		if until := e.ApprovedUntil(); until.IsZero() == (n == 3) {
			t.Errorf("round %d: until %v", n+1, until)
		}
	}
	k := continued(t, e)
	e = c.Continue(t.Context(), k, question, nil).Discharge(t.Context(), nil)
	if _, ok := e.Continuation(); e.Permitted() || ok || e.Err() != nil {
		t.Errorf("the PDP denies: %v", e)
	}
	h.now = h.now.Add(24 * time.Hour)
	h.questions = []said{{200, `{"decision":true,"context":{"approval":{"approved_until":"2026-01-02T03:30:00Z"}}}`, nil}}
	wantNone(t, c.Continue(t.Context(), k, question, nil).Discharge(t.Context(), nil), authzenclient.NotApproved, "ended")
}

// Only a permit by an approval has more rounds, and each is sent once.
func TestContinueRefuses(t *testing.T) {
	t.Parallel()
	h := fair()
	h.questions[1].headers = []string{"X-Decision-Id", "d1"}
	h.questions = append(h.questions, said{503, `{}`, []string{"Retry-After", "1"}})
	c := h.client(t, authzenclient.WithRetries(2))
	k := continued(t, used(t, c))
	denied := fair().client(t).Enforce(t.Context(), question, nil)
	plain := answering(t, `{"decision":true}`).Enforce(t.Context(), question, nil)
	for name, e := range map[string]authzenclient.Enforcement{"nothing": {}, "a deny": denied, "no approval": plain} {
		if k, ok := e.Continuation(); ok {
			t.Errorf("%s: %v", name, k)
		}
	}
	asked := h.count("ask")
	wantNone(t, c.Continue(t.Context(), authzenclient.Continuation{}, question, nil).Discharge(t.Context(), nil), authzenclient.NotAsked, "none")
	wantNone(t, fair().client(t).Continue(t.Context(), k, question, nil).Discharge(t.Context(), nil), authzenclient.NotAsked, "another PDP")
	presents := push(map[string]any{"approval_id": "x"})
	wantNone(t, c.Continue(t.Context(), k, presents, nil).Discharge(t.Context(), nil), authzenclient.NotAsked, "presents")
	if n := h.count("ask"); n != asked {
		t.Errorf("asked %d times", n-asked)
	}
	wantNone(t, c.Continue(t.Context(), k, question, nil).Discharge(t.Context(), nil), authzenclient.Unavailable, "")
	if n := h.count("ask"); n != asked+1 {
		t.Errorf("one round was sent %d times", n-asked)
	}
	text, err := json.Marshal(k)
	if err != nil || strings.Contains(string(text), "alice") {
		t.Errorf("%s, %v", text, err)
	}
	for old, changed := range map[string]string{`"version":1`: `"version":2`, `"decision":"d1"`: `"decision":""`, `"round":0`: `"round":-1`, `{`: `{"x":1,`, `"approval":"a1",`: ``, `"pdp":"`: `"pdp":"","y":"`} {
		damaged := strings.Replace(string(text), old, changed, 1)
		if err := json.Unmarshal([]byte(damaged), &k); damaged == string(text) || err == nil {
			t.Errorf("%s was read", damaged)
		}
	}
	if _, err := json.Marshal(authzenclient.Continuation{}); err == nil {
		t.Error("nothing was written")
	}
}

// Nothing goes on from a permit that says of no round: neither from one of a PDP of before, nor from one of which no round is
// left. A permit that rests on no approval is another thing: it is asked for anew.
func TestNoRoundThatThePDPDoesNotPromise(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		approval   string
		more, last bool
		obligation string
	}{
		"one is left":   {`{"id":"a1","obligation":"ask","rounds":1}`, true, false, "ask"},
		"none is left":  {`{"id":"a1","obligation":"ask"}`, false, true, "ask"},
		"zero":          {`{"id":"a1","obligation":"ask","rounds":0}`, false, true, "ask"},
		"fewer":         {`{"id":"a1","obligation":"ask","rounds":-1}`, false, true, "ask"},
		"of before":     {`{"id":"a1"}`, false, true, ""},
		"of none":       {`{}`, false, false, ""},
		"of no integer": {`{"id":"a1","rounds":"10"}`, false, false, ""},
	} {
		h := fair()
		h.questions[1] = said{200, `{"decision":true,"context":{"approval":` + test.approval + `}}`, []string{"X-Decision-Id", "d1"}}
		e := uses(t, h.client(t))
		_, more := e.Continuation()
		obligation, last := e.LastRound()
		if more != test.more || last != test.last || obligation != test.obligation || e.Permitted() != (name != "of no integer") {
			t.Errorf("%s: more %t, last %t, of %q: %v", name, more, last, obligation, e)
		}
	}
}
