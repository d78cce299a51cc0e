package recent

import "testing"

func TestTexts(t *testing.T) {
	t.Parallel()
	const most = 10
	var r Texts[int]
	for n := range 5 * most {
		r.Put(Digest{byte(n)}, n, most)
		if held := len(r.now) + len(r.old); held > 2*most {
			t.Fatalf("%d are kept", held)
		}
		for before := max(0, n-most+1); before <= n; before++ {
			if got, ok := r.Get(Digest{byte(before)}); !ok || got != before {
				t.Fatalf("after %d: %d is %d, %v", n, before, got, ok)
			}
		}
	}
	if _, ok := r.Get(Digest{0}); ok {
		t.Error("the first is kept")
	}
}
