package obligations_test

import (
	"testing"

	"policy-service/evaluation"
	"policy-service/obligations"
)

// The form of an obligation is one of two, and an obligation with another has no terms: it asks nobody.
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
