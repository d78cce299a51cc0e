package bundle

import "testing"

func TestExpectation(t *testing.T) {
	for text, want := range map[string]string{
		`exact got x want (`:                       ": expected (",
		`expected '}' to close namespace`:          ": expected '}' to close namespace",
		`exact got expected want (`:                ": expected (",
		`exact got x want expected (`:              ": expected (",
		`expected declaration, got identifier "x"`: "",
	} {
		if got := expectation(text); got != want {
			t.Errorf("%s: %q", text, got)
		}
	}
}
