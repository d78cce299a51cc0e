package ask

import "testing"

// A question without a request has no answer, which is a deny.
func TestNothingAskedIsDenied(t *testing.T) {
	t.Parallel()
	if all := (question{}).ask(t.Context(), nil, nil, Answered{}); len(all) != 1 || !all[0].Denied() {
		t.Errorf("%v", all)
	}
}
