package main

import (
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// A page is a file of Markdown in the repository. Its blocks are what stands between fences, and its prose is the rest.
type (
	page struct {
		path   string // from the root of the repository
		text   string
		blocks []block
	}
	block struct {
		tag   string
		line  int // of the opening fence
		lines []string
	}
	// A step is one command of a console block, with the output that the page promises.
	step struct {
		command, want string
		line          int
	}
	heading struct {
		level  int
		anchor string
		line   int
	}
)

func readPage(t *testing.T, path string) page {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	must(t, err)
	return newPage(t, path, string(text))
}

func newPage(t *testing.T, path, text string) page {
	t.Helper()
	p := page{path: path, text: text}
	inside := false
	for n, line := range p.lines() {
		tag, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && !inside:
			p.blocks = append(p.blocks, block{tag: tag, line: n})
			inside = true
		case fence:
			inside = false
		case inside:
			last := &p.blocks[len(p.blocks)-1]
			last.lines = append(last.lines, line)
		}
	}
	if inside {
		t.Fatalf("%s:%d: this block is not closed", path, p.blocks[len(p.blocks)-1].line)
	}
	return p
}

// lines are all lines of the page, by their numbers from 1 on.
func (p page) lines() iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		n := 0
		for line := range strings.Lines(p.text) {
			if n++; !yield(n, strings.TrimSuffix(line, "\n")) {
				return
			}
		}
	}
}

// prose are the lines outside blocks, by their numbers.
func (p page) prose() iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		inside := false
		for n, line := range p.lines() {
			if strings.HasPrefix(line, "```") {
				inside = !inside
				continue
			}
			if !inside && !yield(n, line) {
				return
			}
		}
	}
}

// frontOf is the prose before the first heading of that level.
func (p page) frontOf(level int) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, line := range p.prose() {
			if strings.HasPrefix(line, strings.Repeat("#", level)+" ") || !yield(line) {
				return
			}
		}
	}
}

// headings have the anchors that GitHub gives them.
func (p page) headings() (all []heading) {
	seen := map[string]int{}
	for n, line := range p.prose() {
		level := len(line) - len(strings.TrimLeft(line, "#"))
		text, found := strings.CutPrefix(strings.TrimLeft(line, "#"), " ")
		if level == 0 || !found {
			continue
		}
		anchor := anchorOf(text)
		seen[anchor]++
		if again := seen[anchor] - 1; again > 0 {
			anchor += "-" + strconv.Itoa(again)
		}
		all = append(all, heading{level: level, anchor: anchor, line: n})
	}
	return all
}

func anchorOf(heading string) string {
	heading = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(heading, "$1")
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, strings.TrimSpace(heading))
}

// steps are the commands of all transcripts, in the order of the page, but for those that need Node.
func (p page) steps(t *testing.T) (all []step) {
	t.Helper()
	return p.stepsOf(t, "console")
}

func (p page) stepsOf(t *testing.T, tag string) (all []step) {
	t.Helper()
	for _, b := range p.blocks {
		if b.tag != tag {
			continue
		}
		var current *step
		for n, line := range b.lines {
			command, isCommand := strings.CutPrefix(line, "$ ")
			more, isMore := strings.CutPrefix(line+" ", "> ") // an empty line of a here-document ends in no space
			more = strings.TrimSuffix(more, " ")
			switch {
			case isCommand:
				all = append(all, step{command: command, line: b.line + 1 + n})
				current = &all[len(all)-1]
			case current == nil:
				t.Fatalf("%s:%d: a transcript begins with a line that begins with %q", p.path, b.line, "$ ")
			case isMore && current.want == "":
				current.command += "\n" + more
			default:
				current.want += line + "\n"
			}
		}
	}
	return all
}

// examples are the values that stand for those that a run gives, as a comment of the page lists them.
func (p page) examples() (all []string) {
	for _, comment := range regexp.MustCompile(`(?s)<!-- examples:(.*?)-->`).FindAllStringSubmatch(p.text, -1) {
		all = append(all, strings.Fields(comment[1])...)
	}
	return all
}
