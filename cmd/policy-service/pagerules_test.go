package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// What no page may do, and what each has to have. pagefaults_test.go shows each rule a page that breaks it.

func TestPageRules(t *testing.T) {
	all := pages(t)
	for path, reader := range readers {
		if !slices.ContainsFunc(all, func(p page) bool { return p.path == path }) {
			t.Errorf("there is no page %s for this reader: %s", path, reader)
		}
	}
	for path, why := range unexecuted {
		if !slices.ContainsFunc(all, func(p page) bool { return p.path == path }) {
			t.Errorf("no page %s needs an excuse (%s)", path, why)
		}
	}
	for path, tags := range elsewhere {
		for tag, where := range tags {
			blocks := readPage(t, path).blocks
			if !slices.ContainsFunc(blocks, func(b block) bool { return b.tag == tag }) {
				t.Errorf("%s has no block tagged %s for %s", path, tag, where)
			}
		}
	}
	commands := 0
	for _, p := range all {
		t.Run(p.path, func(t *testing.T) {
			for _, problem := range slices.Concat(p.widths(), p.contents(), p.blockProblems(), p.links(t), p.habits(t)) {
				t.Error(problem)
			}
		})
		commands += len(p.steps(t))
	}
	t.Logf("%d pages with %d commands", len(all), commands)
	for _, problem := range collisions(t, all) {
		t.Error(problem)
	}
}

// widths are the lines of prose that are too wide.
func (p page) widths() (problems []string) {
	for n, line := range p.prose() {
		if columns := utf8.RuneCountInString(line); columns > maxColumns && !strings.HasPrefix(line, "|") {
			problems = append(problems, fmt.Sprintf("%s:%d: %d columns, and prose may have %d", p.path, n, columns, maxColumns))
		}
	}
	return problems
}

// contents are the headings that the table of contents lacks. It stands before the first of them.
func (p page) contents() (problems []string) {
	if _, excused := withoutContents[p.path]; excused {
		return nil
	}
	rest := strings.Join(slices.Collect(p.frontOf(2)), "\n")
	sections := 0
	for _, h := range p.headings() {
		if h.level != 2 {
			continue
		}
		sections++
		_, after, listed := strings.Cut(rest, "(#"+h.anchor+")")
		if !listed {
			problems = append(problems, fmt.Sprintf("%s:%d: the table of contents lacks #%s, or has it in another order", p.path, h.line, h.anchor))
			continue
		}
		rest = after
	}
	if sections == 0 {
		problems = append(problems, p.path+" has no headings")
	}
	return problems
}

// blockProblems lets nothing onto a page that looks like an example and is executed by nobody.
func (p page) blockProblems() (problems []string) {
	executed := false
	for _, b := range p.blocks {
		switch {
		case b.tag == "console", elsewhere[p.path][b.tag] != "":
			executed = true
		case b.tag == "text":
			for n, line := range b.lines {
				if strings.HasPrefix(line, "$ ") {
					problems = append(problems, fmt.Sprintf("%s:%d: a picture shows a command: make it a console block", p.path, b.line+1+n))
				}
			}
		case b.tag == "sh":
			problems = append(problems, p.shProblems(b)...)
		default:
			problems = append(problems, fmt.Sprintf("%s:%d: a block tagged %q is executed by no test", p.path, b.line, b.tag))
		}
	}
	if _, excused := unexecuted[p.path]; executed == excused {
		problems = append(problems, fmt.Sprintf("%s has executed blocks: %t; it is in the list of those without: %t", p.path, executed, excused))
	}
	return problems
}

func (p page) shProblems(b block) (problems []string) {
	for n, line := range b.lines {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "make" {
			problems = append(problems, fmt.Sprintf("%s:%d: %q is executed by no test: make it a console block", p.path, b.line+1+n, line))
			continue
		}
		if _, err := makeOutput(append([]string{"-n"}, words[1:]...)...); err != nil {
			problems = append(problems, fmt.Sprintf("%s:%d: %q: %v", p.path, b.line+1+n, line, err))
		}
	}
	return problems
}

// links are those that lead nowhere. What is on other machines is not looked at.
func (p page) links(t *testing.T) (problems []string) {
	t.Helper()
	for n, line := range p.prose() {
		for _, link := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(regexp.MustCompile("`[^`]*`").ReplaceAllString(line, ""), -1) {
			if problem := p.link(t, link[1]); problem != "" {
				problems = append(problems, fmt.Sprintf("%s:%d: %s", p.path, n, problem))
			}
		}
	}
	return problems
}

func (p page) link(t *testing.T, target string) (problem string) {
	t.Helper()
	if strings.Contains(target, "://") {
		return ""
	}
	path, anchor, hasAnchor := strings.Cut(target, "#")
	to := p
	if path != "" {
		path = filepath.Join(filepath.Dir(p.path), path)
		_, err := os.Stat(filepath.Join(root, path))
		if !filepath.IsLocal(path) { // it may exist beside this checkout
			err = errors.New("it leaves the repository")
		}
		if err != nil {
			return fmt.Sprintf("a link to %s: %v", target, err)
		}
		if !hasAnchor {
			return ""
		}
		if !strings.HasSuffix(path, ".md") {
			return fmt.Sprintf("a link to %s: only pages have anchors", target)
		}
		to = readPage(t, path)
	}
	if !slices.ContainsFunc(to.headings(), func(h heading) bool { return h.anchor == anchor }) {
		return fmt.Sprintf("a link to %s: %s has no such heading", target, to.path)
	}
	return ""
}

// untyped is what nobody types who reads an answer: it hides from the reader what the test cannot foresee, or waits
// where a reader looks.
var untyped = map[string]*regexp.Regexp{
	"a filter behind a pipe hides what is answered": regexp.MustCompile(`\| *(sed|cut|tr|awk)\b`),
	"grep -o and grep -c hide what is answered":     regexp.MustCompile(`\bgrep( -\w+)* -\w*[oc]`),
	"nobody sees what goes to /dev/null":            regexp.MustCompile(`[12&]?> */dev/null`),
	"a function hides what is asked":                regexp.MustCompile(`(?m)^\w+ *\(\) *\{`),
	"only a test needs --addr-file, or port 0":      regexp.MustCompile(`--addr-file|127\.0\.0\.1:0\b`),
	"a reader does not wait for a file":             regexp.MustCompile(`until +test|while +!`),
}

// habits are the commands of the page that nobody would type, and expected output that says nothing.
func (p page) habits(t *testing.T) (problems []string) {
	t.Helper()
	for _, s := range slices.Concat(p.steps(t), p.stepsOf(t, withNode)) {
		if strings.Contains(waits.ReplaceAllString(s.command, ""), "sleep ") {
			problems = append(problems, fmt.Sprintf("%s:%d: a reader sleeps at the end of a command, before the one that shows what came", p.path, s.line))
		}
		for why, pattern := range untyped {
			if pattern.MatchString(s.command) {
				problems = append(problems, fmt.Sprintf("%s:%d: %s", p.path, s.line, why))
			}
		}
		if saysNothing(s.want) {
			problems = append(problems, fmt.Sprintf("%s:%d: this expected output fits any: %q", p.path, s.line, s.want))
		}
	}
	slices.Sort(problems)
	return problems
}

// collisions are what two pages use that a reader of both would have once: the port of a server, or its data directory.
func collisions(t *testing.T, all []page) (problems []string) {
	t.Helper()
	users := map[string]string{"127.0.0.1:8180": "make run", "--data .data": "make run"}
	for _, p := range all {
		for _, s := range p.steps(t) {
			for _, used := range regexp.MustCompile(`--data \S+|listen:? 127\.0\.0\.1:\d+`).FindAllString(s.command, -1) {
				used = regexp.MustCompile(`listen:? `).ReplaceAllString(used, "")
				if user := cmp.Or(users[used], p.path); user != p.path {
					problems = append(problems, fmt.Sprintf("%s:%d: %s is that of %s: readers of both would have to choose", p.path, s.line, used, user))
				}
				users[used] = p.path
			}
		}
	}
	return problems
}
