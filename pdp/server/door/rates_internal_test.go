package door

import (
	"fmt"
	"testing"
	"time"
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
	if len(r.buckets) != 0 {
		t.Errorf("%d buckets are kept for nothing", len(r.buckets))
	}
}

// An issuer with more subjects than there is room for makes the rest share a bucket,
// which takes nothing from the others, and room comes back with time.
func TestRatesAreBounded(t *testing.T) {
	t.Parallel()
	clock := &stopwatch{time.Unix(1000, 0)}
	r := newRates(RateLimit{Rate: Rate{PerSecond: 3}, Callers: []CallerRate{{"key:own", Rate{PerSecond: 1}}}}, clock.now)
	passed := 0
	for n := range 100_000 {
		if _, ok := r.take(fmt.Sprint("jwt:i#", n)); ok {
			passed++
		}
	}
	if len(r.buckets) != mostRates || len(r.shared) != 1 || passed != mostRates+3 {
		t.Errorf("%d buckets, %d shared, %d passed; want %d, 1, %d", len(r.buckets), len(r.shared), passed, mostRates, mostRates+3)
	}
	if _, ok := r.take("key:own"); !ok {
		t.Error("a caller with a rate of its own shares with the others")
	}
	clock.at = clock.at.Add(2 * time.Second)
	if _, ok := r.take("jwt:i#late"); !ok || len(r.buckets) != 1 {
		t.Errorf("%d buckets when all were full again", len(r.buckets))
	}
}
