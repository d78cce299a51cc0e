package capability

import (
	"fmt"
	"testing"
)

// TestAttestedIsBounded: capabilities that another replica forgets are not remembered for good.
func TestAttestedIsBounded(t *testing.T) {
	t.Parallel()
	var a attested
	for n := range attestedMost + 1000 {
		a.add(&Capability{ID: fmt.Sprint(n), Granted: "one"})
	}
	count := 0
	a.records.Range(func(any, any) bool { count++; return true })
	if count > attestedMost {
		t.Errorf("%d are remembered", count)
	}
	last := &Capability{ID: fmt.Sprint(attestedMost + 999), Granted: "one"}
	if !a.has(last) {
		t.Error("the last one is not remembered")
	}
	if last.Granted = "another"; a.has(last) {
		t.Error("another grant counts as attested")
	}
}
