package mask_test

import (
	"bytes"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp/decisionlog/mask"
)

// A later text is without the words that a record holds masked.
func TestWords(t *testing.T) {
	m, err := mask.New(bytes.Repeat([]byte{1}, mask.KeySize), nil)
	if err != nil {
		t.Fatal(err)
	}
	context, err := evaluation.NewObject(map[string]any{"password": "hunter-0001=/zebra", "token": "kingdom-of-keys", "pin_token": "1234", "note": "northern-lights"})
	if err != nil {
		t.Fatal(err)
	}
	line, err := m.Of(evaluation.Request{Context: context}).Request().Context.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	recorded := func(digest string) bool { return bytes.Contains(line, []byte(digest)) }
	for text, want := range map[string]string{
		"":                                   "",
		"short":                              "short",
		"hunter-0001=/zebra":                 "D",
		"it said hunter-0001=/zebra, twice":  "it said D, twice",
		`{"password": "hunter-0001=/zebra"}`: `{"password": "D"}`,
		"token=kingdom-of-keys!  401":        "token=D!  401",
		"https://x/y?a=kingdom-of-keys&b=1":  "https://x/y?a=D&b=1",
		"northern-lights are no secret":      "northern-lights are no secret",
		"the pin is 1234":                    "the pin is 1234",
		" kingdom-of-keys ":                  " D ",
		"kingdom-of-key":                     "kingdom-of-key",
	} {
		got := m.Words(text, recorded)
		for rest := got; ; { // the two digests are D
			_, after, found := strings.Cut(rest, mask.Prefix)
			if !found {
				break
			}
			got = strings.Replace(got, mask.Prefix+after[:22], "D", 1)
			rest = after[22:]
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
