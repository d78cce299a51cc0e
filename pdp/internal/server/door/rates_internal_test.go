package door

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"policy-service/pdp/internal/pace"
)

// stopwatch is a clock that is set by hand.
type stopwatch struct{ at time.Time }

func (s *stopwatch) now() time.Time { return s.at }

func TestRates(t *testing.T) {
	t.Parallel()
	clock := &stopwatch{time.Unix(1000, 0)}
	r := newRates(RateLimit{
		Rate:    Rate{PerSecond: 2},
		Callers: []CallerRate{{"key:big", Rate{PerSecond: 10, Burst: 20}}, {"jwt:https://i.example", Rate{PerSecond: 5}}},
	}, clock.now)
	for caller, want := range map[string]int{
		"key:a": 2, "key:b": 2, "": 2, "key:big": 20, "key:big#x": 2,
		"jwt:https://i.example#one": 5, "jwt:https://i.example#two": 5, "jwt:https://other.example#one": 2,
	} {
		got := 0
		for ; got < 100; got++ {
			if _, ok := r.take(caller); !ok {
				break
			}
		}
		if got != want {
			t.Errorf("%s may ask %d times at once, want %d", caller, got, want)
		}
	}
	if wait, ok := r.take("key:a"); ok || wait != 500*time.Millisecond {
		t.Errorf("got %v %v, want half a second to wait", wait, ok)
	}
	clock.at = clock.at.Add(500 * time.Millisecond)
	if _, ok := r.take("key:a"); !ok {
		t.Error("refused after the wait")
	}
	r.more("key:b", 9) // it had one, so this is a debt of eight
	if wait, ok := r.take("key:b"); ok || wait != 4500*time.Millisecond {
		t.Errorf("got %v %v, want the debt to be made good first", wait, ok)
	}
}

func TestNoRate(t *testing.T) {
	t.Parallel()
	r := newRates(RateLimit{}, time.Now)
	for n := range 100_000 {
		if _, ok := r.take(fmt.Sprint("jwt:i#", n%3)); !ok {
			t.Fatal("refused without a limit")
		}
		r.more("jwt:i#1", 1000)
	}
	if !reflect.ValueOf(r.buckets).IsZero() {
		t.Error("buckets are kept for nothing")
	}
}

// An issuer with more subjects than there is room for makes the rest share a bucket, which takes nothing from those with a
// rate of their own, be their name as empty as that of the rule for all.
func TestRatesAreBounded(t *testing.T) {
	t.Parallel()
	clock := &stopwatch{time.Unix(1000, 0)}
	r := newRates(RateLimit{Rate: Rate{PerSecond: 3}, Callers: []CallerRate{{"key:own", Rate{PerSecond: 1}}, {"", Rate{PerSecond: 1}}}}, clock.now)
	passed := 0
	if _, ok := r.take(""); ok {
		passed++
	}
	for n := range 2 * pace.Most {
		if _, ok := r.take(fmt.Sprint("jwt:i#", n)); ok {
			passed++
		}
	}
	if want := pace.Most + 3; passed != want {
		t.Errorf("%d passed, want %d", passed, want)
	}
	if _, ok := r.take("key:own"); !ok {
		t.Error("a caller with a rate of its own shares with the others")
	}
}
