package upstream

import (
	"fmt"
	"testing"
	"time"
)

func TestBackoff(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	b := backoff{now: func() time.Time { return now }}
	for n, want := range []time.Duration{0, 100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000} {
		if got := b.left("alice"); got != want*time.Millisecond {
			t.Errorf("after %d failures: %v", n, got)
		}
		b.failed("alice")
	}
	now = now.Add(10 * time.Second)
	if got := b.left("alice"); got != 20*time.Second {
		t.Errorf("ten seconds later: %v", got)
	}
	now = now.Add(forgetFailures)
	if got := b.left("alice"); got != 0 {
		t.Errorf("after all that time: %v", got)
	}
	b.failed("alice")
	if got := b.left("alice"); got != firstBackoff {
		t.Errorf("a first failure again: %v", got)
	}
	for n := range 3 * mostFailures {
		b.failed(fmt.Sprint(n))
	}
	if len(b.failures) > mostFailures {
		t.Errorf("%d principals are remembered", len(b.failures))
	}
}
