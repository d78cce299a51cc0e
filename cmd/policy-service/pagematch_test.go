package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// What a page expects is what a terminal shows, but for two things that nobody can know beforehand:
//
//	…         is one string of JSON, one number or one word: never a line, an object or an array. Several spaces before it are
//	          any: a number stands at the right of its column
//	examples  are values that the page lists in a comment. The first output that shows one says what it is in this run.
//	          From then on it is that in every output, and in every command.
const (
	anyWord  = `[^\s"{}\[\],]+`
	anyValue = `(?:"(?:[^"\\\n]|\\.)*"|` + anyWord + `)`
)

// known are the examples of a page, with what they are in this run; those that are not known yet are empty.
type known map[string]string

func newKnown(examples []string) known {
	k := known{}
	for _, e := range examples {
		k[e] = ""
	}
	return k
}

// spell puts what is known into a command.
func (k known) spell(command string) (string, error) {
	for example, value := range k {
		if value == "" && strings.Contains(command, example) {
			return "", fmt.Errorf("no output above shows %s, of which this command makes use", example)
		}
		if value != "" {
			command = strings.ReplaceAll(command, example, value)
		}
	}
	return command, nil
}

// fits says whether output is what the page wants, and learns the examples that it shows.
func (k known) fits(want, output string) bool {
	pattern, learns := k.pattern(want)
	match := pattern.FindStringSubmatch(output)
	if match == nil {
		return false
	}
	learned := map[string]string{}
	for n, example := range learns {
		value := match[n+1]
		if before, twice := learned[example]; twice && before != value {
			return false
		}
		learned[example] = value
	}
	for example, value := range learned {
		k[example] = value
	}
	return true
}

// pattern is what output must match as a whole. Its groups are, one after the other, the examples that it learns.
func (k known) pattern(want string) (pattern *regexp.Regexp, learns []string) {
	words := []string{"…"}
	for example := range k {
		words = append(words, regexp.QuoteMeta(example))
	}
	var text strings.Builder
	rest := want
	for _, at := range regexp.MustCompile(strings.Join(words, "|")).FindAllStringIndex(want, -1) {
		begin := at[0] - (len(want) - len(rest))
		before := rest[:begin]
		if left := strings.TrimRight(before, " "); want[at[0]:at[1]] == "…" && len(before) > len(left)+1 {
			text.WriteString(regexp.QuoteMeta(left) + " +")
		} else {
			text.WriteString(regexp.QuoteMeta(before))
		}
		rest = want[at[1]:]
		switch word := want[at[0]:at[1]]; {
		case word == "…":
			text.WriteString(anyValue)
		case k[word] == "":
			text.WriteString("(" + anyWord + ")")
			learns = append(learns, word)
		default:
			text.WriteString(regexp.QuoteMeta(k[word]))
		}
	}
	text.WriteString(regexp.QuoteMeta(rest))
	return regexp.MustCompile(`\A` + text.String() + `\z`), learns
}

// unlearned are the examples that no output showed.
func (k known) unlearned() (all []string) {
	for example, value := range k {
		if value == "" {
			all = append(all, example)
		}
	}
	return all
}

// saysNothing is true of expected output of which a line leaves everything open.
func saysNothing(want string) bool {
	for line := range strings.Lines(want) {
		if strings.Contains(line, "…") && !regexp.MustCompile(`[\pL\pN]`).MatchString(line) {
			return true
		}
	}
	return false
}

func TestPageOutputFits(t *testing.T) {
	for _, c := range []struct {
		want, output string
		fits         bool
	}{
		{"allow\n", "allow\n", true},
		{"allow\n", "deny\n", false},
		{"allow\n", "allow\nallow\n", false},
		{`{"id":…}`, `{"id":"a \"b\", c"}`, true},
		{`{"id":"…"}`, `{"id":"0198"}`, true},
		{`{"id":"2026…"}`, `{"id":"2026-11-21T10:00:00Z"}`, true},
		{`{"n":…}`, `{"n":-1.5e3}`, true},
		{`{"n":…}`, `{"n":{}}`, false},
		{`{"n":…}`, `{"n":{"a":1}}`, false},
		{`{"n":…}`, `{"n":[1]}`, false},
		{`{"n":…}`, `{"n":[]}`, false},
		{`{"n":…}`, `{"n":1,"m":2}`, false},
		{`{…}`, `{"n":1}`, false},
		{"until …\n", "until 2026-11-21T10:00:00Z\n", true},
		{"until …\n", "until the 21st\n", false},
		{"until …\n", "until\n", false},
		{"  … c\n", " 100 c\n", true},
		{" … c\n", "  100 c\n", false},
		{"a … c\n", "a b\nb c\n", false},
		{"a\n…\nc\n", "a\nb b\nc\n", false},
		{"…", `"one` + "\n" + `two"`, false},
	} {
		if fits := newKnown(nil).fits(c.want, c.output); fits != c.fits {
			t.Errorf("%q fits %q: %t", c.output, c.want, fits)
		}
	}
}

func TestPageExamples(t *testing.T) {
	k := newKnown([]string{"id-1", "id-2"})
	if _, err := k.spell("show id-1"); err == nil {
		t.Error("a command makes use of an example that nothing has shown")
	}
	if k.fits("id-1 and id-1\n", "x and y\n") {
		t.Error("one example is two values")
	}
	if !k.fits(`{"id":"id-1"}`, `{"id":"x.y"}`) {
		t.Error("an example is not learned")
	}
	if k.fits(`{"id":"id-1"}`, `{"id":"xzy"}`) {
		t.Error("what was learned is forgotten, or is a pattern")
	}
	if command, err := k.spell("show id-1"); err != nil || command != "show x.y" {
		t.Errorf("%q, %v", command, err)
	}
	if left := k.unlearned(); len(left) != 1 || left[0] != "id-2" {
		t.Errorf("not learned: %q", left)
	}
}

func TestPageSaysNothing(t *testing.T) {
	for want, nothing := range map[string]bool{"…\n": true, "{\"…\":…}\n": true, "…\n…\n": true, "a\n…\n": true, "": false, "psk_…\n": false, "{}\n": false} {
		if saysNothing(want) != nothing {
			t.Errorf("%q says nothing: %t", want, !nothing)
		}
	}
}
