package index

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// What is taken from the feed is what was told, in its order, whatever is told meanwhile, and however much.
func TestFeedHandsOverWhatItWasTold(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	termsOf := func(n uint64) Terms { return Terms(nil).Add('a', fmt.Sprintf("%d of %d", n, n*n%1009)) }
	var x Index
	x.fed.begin()
	told, taken := uint64(0), uint64(0)
	for round := range 200 {
		for range r.IntN(50 << (round % 9)) {
			x.Feed(told, termsOf(told))
			told++
		}
		for range r.IntN(70 << (round % 9)) {
			sequence, terms, ok := x.fed.first()
			if !ok {
				if taken != told {
					t.Fatalf("%d of %d were handed over", taken, told)
				}
				break
			}
			if r.IntN(3) == 0 { // while they hold
				x.Feed(told, termsOf(told))
				told++
			}
			if want := termsOf(taken); sequence != taken || string(terms) != string(want) {
				t.Fatalf("got %d with %q, want %d with %q", sequence, terms, taken, want)
			}
			x.fed.pass()
			taken++
		}
	}
	if told < 50_000 {
		t.Errorf("only %d were told", told)
	}
}
