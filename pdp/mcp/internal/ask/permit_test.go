package ask

import (
	"testing"

	"policy-service/evaluation"
)

// A question without a request has no answer, which is a deny.
func TestNothingAskedIsDenied(t *testing.T) {
	t.Parallel()
	if all := (question{}).ask(t.Context(), nil, nil, Answered{}); len(all) != 1 || !all[0].Denied() {
		t.Errorf("%v", all)
	}
}

// A text that is not UTF-8 leaves a member in a question, never none.
func TestTextStandsInTheQuestion(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{"alice": `{"person":"alice"}`, "al\xffce": `{"person":"al` + "\uFFFD" + `ce"}`, "": `{"person":""}`} {
		if got := string((evaluation.Object{}).With(personMember, text(given)).AppendJSON(nil)); got != want {
			t.Errorf("%q: %s", given, got)
		}
	}
}
