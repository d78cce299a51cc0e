package approvals_test

import (
	"context"
	"testing"
	"time"

	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
)

// An approval has rounds, each of which the real PDP takes once, and only for the request that was approved.
func TestContinueAtRealServer(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	c := d.pep()
	q := push(map[string]any{"arguments": map[string]any{"branch": "main", "force": nil}})
	s, err := approvals.Ask(t.Context(), c, denies(t, c, q))
	d.must(err)
	d.says("approve")()
	s = stands(t, c, s.Task())
	e := approvals.Use(t.Context(), c, s, q, nil).Discharge(t.Context(), nil)
	if !e.Permitted() {
		t.Fatal(e)
	}
	other := push(map[string]any{"arguments": map[string]any{"branch": "other"}})
	first := continued(t, e)
	if e := c.Continue(t.Context(), first, other, nil).Discharge(t.Context(), nil); e.Permitted() {
		t.Error("another request goes on")
	}
	if e := d.pep(authzenclient.WithKey(d.key["other"])).Continue(t.Context(), first, q, nil).Discharge(t.Context(), nil); e.Permitted() {
		t.Error("another caller goes on")
	}
	answers := make(chan bool, 8)
	for range cap(answers) {
		go func() {
			answers <- d.pep().Continue(context.WithoutCancel(t.Context()), first, q, nil).Discharge(t.Context(), nil).Permitted()
		}()
	}
	permits := 0
	for range cap(answers) {
		if <-answers {
			permits++
		}
	}
	if permits != 1 {
		t.Errorf("round 1 is permitted %d times", permits)
	}
	if e := c.Enforce(t.Context(), q, nil); e.Permitted() {
		t.Error("the use that was spent permits once more")
	}
	d.pass(20 * time.Minute)
	if e := c.Continue(t.Context(), first, q, nil).Discharge(t.Context(), nil); e.Permitted() {
		t.Error("much later")
	}
}

// Round follows on round, to the last that the PDP takes.
func TestContinueToTheEnd(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	c := d.pep()
	s, err := approvals.Ask(t.Context(), c, denies(t, c, push(nil)))
	d.must(err)
	d.says("approve")()
	e := approvals.Use(t.Context(), c, stands(t, c, s.Task()), push(nil), nil).Discharge(t.Context(), nil)
	rounds := 0
	for ; e.Permitted() && rounds < 10; rounds++ {
		e = d.pep().Continue(t.Context(), continued(t, e), push(nil), nil).Discharge(t.Context(), nil)
	}
	if obligation, is := e.LastRound(); !is || obligation != "ask" {
		t.Errorf("%d rounds, then %v", rounds, e)
	}
}
