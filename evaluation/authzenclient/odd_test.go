package authzenclient_test

import (
	"strings"
	"testing"

	"policy-service/evaluation/authzenclient"
	"policy-service/pdp/pdptest/lies"
)

func TestOddBodies(t *testing.T) {
	t.Parallel()
	for name, body := range lies.Bodies {
		t.Run(name, func(t *testing.T) {
			small := authzenclient.WithMaxBody(lies.MaxBody)
			c := newClient(t, stub(t, says(lies.InShape(body, "decision", "allow"))), small)
			decided := strings.HasPrefix(name, "deny")
			wantNo(t, c.Evaluate(t.Context(), question), decided)
			for _, d := range c.EvaluateBatch(t.Context(), "", question, question) {
				wantNo(t, d, false)
			}
			c = newClient(t, stub(t, says(`{"evaluations":[`+lies.InShape(body, "decision", "allow")+`]}`)), small)
			wantNo(t, c.EvaluateBatch(t.Context(), "", question)[0], decided)
		})
	}
}

// wantNo fails on a permit, and on a deny without an error that the PDP did not decide.
func wantNo(t *testing.T, d authzenclient.Decision, decided bool) {
	t.Helper()
	if d.Permitted() || d.String() == "permit" {
		t.Fatal("this reads as a permit")
	}
	if d.Err() == nil && !decided {
		t.Error("a deny without an error, which the PDP did not decide")
	}
}

// Everything but the body is odd: these say yes, each in its own wrong way.
func TestOddEnvelopes(t *testing.T) {
	t.Parallel()
	kinds := map[lies.Kind]authzenclient.Kind{lies.Odd: authzenclient.Odd, lies.Refused: authzenclient.Refused,
		lies.Unavailable: authzenclient.Unavailable, lies.Broken: authzenclient.Unreachable}
	for name, test := range lies.Envelopes() {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, stub(t, test.Handle))
			wantDeny(t, c.Evaluate(t.Context(), question), kinds[test.Kind])
			wantDeny(t, c.EvaluateBatch(t.Context(), "", question)[0], kinds[test.Kind])
			var p pep
			if e := c.Enforce(t.Context(), question, p.handlers()); outcome(t, e) != "E" || len(p.done) > 0 {
				t.Errorf("enforced: %v, done %v", e, p.done)
			}
			for r, err := range c.SearchSubjects(t.Context(), question) {
				if err == nil {
					t.Errorf("a search found %v", r)
				}
			}
		})
	}
}
