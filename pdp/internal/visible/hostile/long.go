package hostile

import (
	"fmt"
	"strings"
)

// long are texts that are larger than a screen.
func long() []string {
	lines := make([]string, 5000)
	for n := range lines {
		lines[n] = fmt.Sprintf("line %d", n+1)
	}
	return []string{
		strings.Repeat("x", 10_000),
		strings.Repeat("W", 301),
		strings.Repeat("漢", 10_000),
		strings.Repeat("\u200bx", 3000),
		strings.Repeat("\u202e", 1000),
		strings.Repeat("\x1b", 1000),
		strings.Repeat("<", 5000),
		strings.Repeat("&", 5000),
		strings.Repeat("<b>", 2000),
		strings.Repeat("\"", 3000),
		strings.Repeat("\\", 3000),
		strings.Repeat("a ", 5000),
		strings.Repeat("m\u0430in ", 1000),
		strings.Repeat("\n", 5000),
		strings.Repeat("\r\n", 2000),
		strings.Repeat("\u05d0", 2000),
		strings.Repeat("\U0001f600", 2000),
		strings.Repeat("a\u0301\u0302\u0303\u0304", 500),
		strings.Join(lines, "\n"),
		strings.Join(lines[1:100], "\n") + "\nbut only after line 100: --force", // no page may cut this one and the last to the same text
		strings.Repeat("x", 300) + " --force",
		"https://" + strings.Repeat("a.", 1000) + "hostile.example/" + strings.Repeat("path/", 500) + "?" + strings.Repeat("q=1&", 500),
		"https://console.example" + strings.Repeat("%20", 200) + "@hostile.example/",
		"/" + strings.Repeat("../", 500) + "etc/passwd",
		strings.Repeat("[", 5000) + strings.Repeat("]", 5000),
		strings.Repeat("{{", 2000),
		strings.Repeat("<details open>", 1000),
		strings.Repeat("\ufdfa", 500),         // a letter that is a sentence
		strings.Repeat("\U00012219", 200),     // the widest there are
		strings.Repeat("\u2e3b", 300),         // THREE-EM DASH
		strings.Repeat("\ua9c5\ua9c4", 200),   // tall Javanese
		strings.Repeat("\u0f84\u0f71", 300),   // Tibetan marks
		"short" + strings.Repeat(" \n", 2000), // blank lines
	}
}
