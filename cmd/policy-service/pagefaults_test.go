package main

import (
	"slices"
	"strings"
	"testing"
)

// TestPageRulesFindFaults shows each rule of pages a page that breaks it.
func TestPageRulesFindFaults(t *testing.T) {
	const good = "# Page\n\n* [Ask](#ask)\n\n## Ask\n\n```console\n$ echo a\na\n```\n"
	with := func(text string) string { return good + "\n" + text + "\n" }
	for _, c := range []struct{ text, problem string }{
		{good, ""},
		{with(strings.Repeat("ä", maxColumns+1)), "x.md:12: 121 columns"},
		{with(strings.Repeat("ä", maxColumns)), ""},
		{with("## Answer"), "lacks #answer"},
		{strings.Replace(good, "* [Ask](#ask)\n", "* [B](#b)\n* [Ask](#ask)\n\n", 1) + "\n## B\n", "x.md:14: the table of contents lacks #b"},
		{"# Page\n", "has no headings"},
		{"# Page\n\n* [Ask](#ask)\n\n## Ask\n", "executed blocks: false"},
		{with("```text\n$ echo b\n```"), "a picture shows a command"},
		{with("```go\nx\n```"), `tagged "go"`},
		{with("```yaml\nx\n```"), `tagged "yaml"`},
		{with("```json\n{}\n```"), `tagged "json"`},
		{with("```sh\nrm -r x\n```"), "executed by no test"},
		{with("```sh\nmake no-such-target\n```"), "no-such-target"},
		{with("[a](../x)"), "a link to ../x"},
		{with("[a](README.md#no-such-heading)"), "README.md has no such heading"},
		{with("[a](#no-such-heading)"), "x.md has no such heading"},
		{with("[a](Makefile#run)"), "only pages have anchors"},
		{with("[a](README.md#start), [b](https://example.com/#x), `[c](#d)`"), ""},
		{with("```console\n$ date\n…\n```"), "fits any"},
		{with("```console\n$ cat x | sed s/a/b/\n```"), "a filter behind a pipe"},
		{with("```console\n$ grep -c a x\n```"), "grep -o and grep -c"},
		{with("```console\n$ grep -i -ho a x\n```"), "grep -o and grep -c"},
		{with("```console\n$ make >/dev/null\n```"), "nobody sees"},
		{with("```console\n$ ask() { curl $1; }\n```"), "a function hides"},
		{with("```console\n$ serve --listen 127.0.0.1:0 &\n```"), "port 0"},
		{with("```console\n$ touch x; sleep 1; cat x\n```"), "sleeps at the end"},
		{with("```console\n$ sleep 1\n$ curl -sS -o /dev/null -w '%{http_code}' x; grep a x; sed s/a/b/ x >y\n```"), ""},
	} {
		p := newPage(t, "x.md", c.text)
		problems := slices.Concat(p.widths(), p.contents(), p.blockProblems(), p.links(t), p.habits(t))
		if c.problem == "" && len(problems) > 0 || c.problem != "" && !strings.Contains(strings.Join(problems, "\n"), c.problem) {
			t.Errorf("of\n%s\nthe rules say %q, and should say %q", c.text[max(0, len(c.text)-300):], problems, c.problem)
		}
	}
}

func TestPageSteps(t *testing.T) {
	p := newPage(t, "x.md", "```console\n$ cat <<'EOF'\n> a\n>\n> b\n> EOF\na\n\nb\n$ true\n```\n")
	want := []step{{"cat <<'EOF'\na\n\nb\nEOF", "a\n\nb\n", 2}, {"true", "", 10}}
	if steps := p.steps(t); !slices.Equal(steps, want) {
		t.Errorf("%+v", steps)
	}
}

func TestPagesCollide(t *testing.T) {
	one := func(path, command string) page { return newPage(t, path, "```console\n$ "+command+"\n```\n") }
	a := one("a.md", "policy-service serve --data a --listen 127.0.0.1:8181 &")
	for _, c := range []struct {
		other page
		found int
	}{
		{one("b.md", "policy-service serve --data b --listen 127.0.0.1:8182 &"), 0},
		{one("b.md", "policy-service serve --data a --listen 127.0.0.1:8181 &"), 2},
		{one("b.md", "echo 'listen: 127.0.0.1:8181' >config.yaml"), 1},
		{one("b.md", "policy-service serve --listen 127.0.0.1:8180 &"), 1},
	} {
		if problems := collisions(t, []page{a, c.other}); len(problems) != c.found {
			t.Errorf("%s: %q", c.other.text, problems)
		}
	}
}
