package visible_test

import (
	"testing"

	"policy-service/pdp/visible"
)

// Nothing is read that is not there, and nothing that is there is not read.
func TestNothingHides(t *testing.T) {
	for text, want := range map[string]string{
		"plain é 漢 😀":          "plain é 漢 😀",
		"a\nb\tc\rd\x1b[2J":    `a\u000ab\u0009c\u000dd\u001b[2J`,
		"\u202eexe\u2066":      `\u202eexe\u2066`,
		"\u200b\ufeff\u00ad":   `\u200b\ufeff\u00ad`,
		"\u00a0\u3000\u2028":   `\u00a0\u3000\u2028`,
		"\u3164\u2800\ufe0f":   `\u3164\u2800\ufe0f`,
		"\U000e0041\U000e0100": `\udb40\udc41\udb40\udd00`,
	} {
		if got := visible.Text(text); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
	if got := visible.Lines("a\n\tb\r"); got != "a\n\tb"+`\u000d` {
		t.Errorf("got %q", got)
	}
}
