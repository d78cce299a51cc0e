package document

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// A problem quotes no more of a key than a name has: the line is for the log.
func TestMapQuotesTheBeginningOfAKey(t *testing.T) {
	for key, want := range map[string]string{
		"key":                               `"key"`,
		strings.Repeat("k", 64):             `"` + strings.Repeat("k", 64) + `"`,
		strings.Repeat("k", 100_000):        `"` + strings.Repeat("k", 64) + `"…`,
		"x" + strings.Repeat("\u00fc", 100): `"x` + strings.Repeat("\u00fc", 63) + `"…`,
	} {
		var problems Problems
		text := "? " + key + "\n: 1\n"
		root, ok := Read("f.yaml", []byte(text+text), &problems)
		if !ok {
			t.Fatal(problems)
		}
		m := Map{File: "f.yaml", Problems: &problems, Known: map[string]func(*yaml.Node){"mode": nil}}
		m.Read(root)
		if len(problems) != 2 || problems[0].Message != "unknown key "+want || problems[1].Message != "the key "+want+" occurs twice" {
			t.Errorf("want %s: %.300s", want, problems)
		}
	}
}

// TestAnIndentationIsNamedByItsLine: the line that is wrong is named, and not that at which its block begins.
func TestAnIndentationIsNamedByItsLine(t *testing.T) {
	for text, want := range map[string]string{
		"types:\n  user: User\n doc: Doc\n":                     "f.yaml:3:2",
		"a:\n    b: 1\n    c:\n      d: 2\n  e: 3\n":            "f.yaml:5:3",
		"- name: x\n  decision: allow\n request: {}\n":          "f.yaml:3:2",
		"a:\n  - b: 1\n    c: 2\n   d: 3\n":                     "f.yaml:4:4",
		"text: |\n   one\n  two\nkeys:\n   a: 1\n  b: 2\n":      "f.yaml:6:3",
		"# a comment\na:\n\n   b: 1\n  # another\n  c: 2\nd: 3": "f.yaml:6:3",
	} {
		var problems Problems
		if _, ok := Read("f.yaml", []byte(text), &problems); ok || len(problems) != 1 || !strings.HasPrefix(problems[0].String(), want+": ") {
			t.Errorf("%q: got %s, want %s", text, problems, want)
		}
	}
}
