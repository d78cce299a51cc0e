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
