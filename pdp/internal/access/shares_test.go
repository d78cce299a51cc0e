package access

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestSharesTools holds the walk through two sorted lists against a look at each pair.
func TestSharesTools(t *testing.T) {
	names := []string{"", "a", "ab", "abc", "b", "ba", "a*", "c"}
	counts := map[bool]int{}
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 1))
		tools := func() (all []Tool) {
			for range 1 + random.IntN(4) {
				all = append(all, Tool{Name: names[random.IntN(len(names))], Prefix: random.IntN(4) == 0})
			}
			return all
		}
		mine, theirs := tools(), tools()
		want := slices.ContainsFunc(mine, func(a Tool) bool {
			return slices.ContainsFunc(theirs, func(b Tool) bool { return a.covers(b) || b.covers(a) })
		})
		a, b := &Rule{least: least(mine)}, &Rule{least: least(theirs)}
		if a.SharesTools(b) != want || b.SharesTools(a) != want {
			t.Errorf("%v and %v: want %t", mine, theirs, want)
		}
		counts[want]++
	}
	if counts[true] < 100 || counts[false] < 100 {
		t.Errorf("too much of one kind: %v", counts)
	}
}
