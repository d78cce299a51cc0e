package obligations_test

import (
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/obligations"
)

// The form of an obligation is one of two, and an obligation with another has no terms: it asks no person.
func TestTermsOfAForm(t *testing.T) {
	t.Parallel()
	for form, want := range map[string]struct{ ok, review bool }{
		``:                  {true, false},
		`,"form":"approve"`: {true, false},
		`,"form":"review"`:  {true, true},
		`,"form":"choose"`:  {false, false},
		`,"form":"Review"`:  {false, true},
	} {
		properties, err := evaluation.ParseObject([]byte(`{"template":"t"`+form+`}`), evaluation.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		terms, ok := obligations.TermsOf(evaluation.Obligation{Type: obligations.ApprovalRequired, Properties: properties})
		if ok != want.ok || ok && terms.Review != want.review {
			t.Errorf("%s: got %+v, %t", form, terms, ok)
		}
	}
}

// Without rounds there are no follow-up questions, whatever else is written, and what is no number of them has no terms.
func TestNoRoundsUnlessSaid(t *testing.T) {
	t.Parallel()
	for terms, want := range map[string]struct {
		ok     bool
		rounds int
		within time.Duration
	}{
		``:                                     {true, 0, 0},
		`,"rounds":0`:                          {true, 0, 0},
		`,"rounds_within":"1h"`:                {true, 0, 0},
		`,"rounds":3`:                          {true, 3, 15 * time.Minute},
		`,"rounds":10,"rounds_within":"90s"`:   {true, 10, 90 * time.Second},
		`,"rounds":11`:                         {},
		`,"rounds":-1`:                         {},
		`,"rounds":1.5`:                        {},
		`,"rounds":"3"`:                        {},
		`,"rounds":3,"rounds_within":"0s"`:     {},
		`,"rounds":3,"rounds_within":"15"`:     {},
		`,"rounds":3,"rounds_within":"99999h"`: {},
	} {
		properties, err := evaluation.ParseObject([]byte(`{"template":"t"`+terms+`}`), evaluation.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		got, ok := obligations.TermsOf(evaluation.Obligation{Type: obligations.ApprovalRequired, Properties: properties})
		if ok != want.ok || ok && (got.Rounds != want.rounds || got.RoundsWithin != want.within) {
			t.Errorf("%s: got %+v, %t", terms, got, ok)
		}
	}
}
