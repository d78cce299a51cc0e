package pace

import (
	"fmt"
	"testing"
	"time"
)

// More than there is memory for share one bucket, and after a while each has its own again.
func TestBucketsAreBounded(t *testing.T) {
	t.Parallel()
	var b Buckets[string]
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	take := func(shared string, n int) (time.Duration, bool) {
		bucket := b.Of(fmt.Sprint(n), shared, now, 1./60, 1)
		return Wait(bucket, now), bucket.AllowN(now, 1)
	}
	for n := range Most {
		if wait, ok := take("shared", n); !ok || wait != 0 {
			t.Fatalf("the first of %d is refused", n)
		}
	}
	for n, want := range []bool{true, false, false} {
		if wait, ok := take("shared", Most+n); ok != want || !ok && wait != time.Minute {
			t.Errorf("without room %d gets %v, and is to wait %v", n, ok, wait)
		}
	}
	if _, ok := take("another", Most); !ok {
		t.Error("those that share with others share with these")
	}
	if len(b.of) != Most+2 {
		t.Errorf("%d are remembered", len(b.of))
	}
	now = now.Add(time.Minute)
	for n := range 5 {
		if _, ok := take("shared", Most+n); !ok {
			t.Errorf("after a minute %d is refused", n)
		}
	}
	if len(b.of) != 5 {
		t.Errorf("%d are remembered after a minute", len(b.of))
	}
}
