package visible_test

import (
	"slices"
	"strings"
	"testing"

	"policy-service/pdp/internal/visible"
	"policy-service/pdp/internal/visible/hostile"
)

// Nothing is read that is not there, and nothing that is there is not read.
func TestNothingHides(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"plain é 漢 😀":          "plain é 漢 😀",
		"a\nb\tc\rd\x1b[2J":    `a\u000ab\u0009c\u000dd\u001b[2J`,
		"\u202eexe\u2066":      `\u202eexe\u2066`,
		"\u200b\ufeff\u00ad":   `\u200b\ufeff\u00ad`,
		"\u00a0\u3000\u2028":   `\u00a0\u3000\u2028`,
		"\u3164\u2800\ufe0f":   `\u3164\u2800\ufe0f`,
		"\ufffc\U00013441":     `\ufffc\ud80d\udc41`,
		"\U000e0041\U000e0100": `\udb40\udc41\udb40\udd00`,
		"a\xffb\xef\xbf":       `a\xffb\xef\xbf`,
		`\u202e`:               `\\u202e`,
		`C:\x\`:                `C:\\x\\`,
		"e\u0301\u0302\u0303":  "e\u0301\u0302" + `\u0303`,
		" \u0301":              ` \u0301`,
	} {
		if got := visible.Text(text); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
	if got := visible.Lines("a\n\tb\\\r"); got != "a\n\tb"+`\\\u000d` {
		t.Errorf("got %q", got)
	}
}

// What is quoted already keeps its backslashes, and what is visible stays as it is.
func TestQuoted(t *testing.T) {
	t.Parallel()
	if got := visible.Quoted("{\"a\\n\":\"\u202e\\u202e\n\"}"); got != `{"a\n":"\u202e\u202e\u000a"}` {
		t.Errorf("got %s", got)
	}
	if got := visible.QuotedLines("\"\\\"\"\n\t\u200b"); got != "\"\\\"\"\n\t\\u200b" {
		t.Errorf("got %s", got)
	}
	for _, text := range hostile.Texts() {
		for _, shown := range []string{visible.Text(text), visible.Quoted(text)} {
			if again := visible.Quoted(shown); again != shown {
				t.Errorf("%.60q becomes %.60q", shown, again)
			}
		}
		if shown := visible.Lines(text); visible.QuotedLines(shown) != shown {
			t.Errorf("%.60q becomes %.60q", shown, visible.QuotedLines(shown))
		}
	}
}

// No two texts are shown as one.
func TestTextsStayDifferent(t *testing.T) {
	t.Parallel()
	shown := map[string]string{}
	for _, text := range hostile.Texts() {
		if other, ok := shown[visible.Text(text)]; ok {
			t.Errorf("%.60q is shown as %.60q is", text, other)
		}
		shown[visible.Text(text)] = text
	}
}

func TestNotes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"main":         nil,
		"\u202emain":   nil, // Text shows it
		"caf\u00e9 漢字": nil,
		"ma\u0456n":    {`"ma\u0456n" mixes Cyrillic with Latin letters`},
		"\u05e9\u05dc": {"letters from right to left: they and the digits beside them may be read in another order than they stand in"},
		"a\u05e9": {`"a\u05e9" mixes Hebrew with Latin letters`,
			"letters from right to left: they and the digits beside them may be read in another order than they stand in"},
		"a" + strings.Repeat(" ", 120) + "b": {"120 spaces in a row"},
		strings.Repeat("x\n", 500):           nil,
	} {
		if got := visible.Notes(text); !slices.Equal(got, want) {
			t.Errorf("%.40q: %q", text, got)
		}
	}
}
