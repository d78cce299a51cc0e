package record

import (
	"fmt"
	"testing"

	"policy-service/pdp/internal/decisionlog/format"
)

// A sieve keeps no more than a few answers, however many batches a log has.
func TestFewAnswersAreKept(t *testing.T) {
	t.Parallel()
	s := NewSieve(Filter{Text: "nowhere to be found"}, func(line []byte) (Recorded, error) {
		return Recorded{Asked: []byte(`{"subject":{"id":"alice"}}`)}, nil
	})
	for n := range 3 * maxInherited {
		line := fmt.Sprintf(`{"id":"batch-%d.0","kind":%q,"inherits":["subject"]}`, n, format.KindDecision)
		if has, err := s.Passes([]byte(line)); has || err != nil || len(s.inherited) == 0 || len(s.inherited) > maxInherited {
			t.Fatalf("%d: %t, %v; %d answers are kept", n, has, err, len(s.inherited))
		}
	}
}
