package spelling

import "testing"

func TestDistance(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "abc", 0}, {"abc", "abd", 1}, {"kitten", "sitting", 3}, {"aproval", "approval", 1}} {
		if Distance(test.a, test.b) != test.want || Distance(test.b, test.a) != test.want {
			t.Errorf("%q and %q: got %d, want %d", test.a, test.b, Distance(test.a, test.b), test.want)
		}
	}
}
