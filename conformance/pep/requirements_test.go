package pep

import (
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

var quoted = regexp.MustCompile("`([^`]+)`")

// The page names only cases that there are, all of them, and each of its rows says something.
func TestRequirements(t *testing.T) {
	text, err := os.ReadFile("REQUIREMENTS.md")
	if err != nil {
		t.Fatal(err)
	}
	all, err := load()
	if err != nil {
		t.Fatal(err)
	}
	named, rows := map[string]bool{}, 0
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") || strings.HasPrefix(line, "| section |") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if rows++; len(cells) != 3 || strings.TrimSpace(cells[2]) == "" {
			t.Errorf("%d cells, want 3 that say something: %s", len(cells), line)
			continue
		}
		for _, name := range quoted.FindAllStringSubmatch(cells[2], -1) {
			if strings.HasPrefix(name[1], "--") {
				continue // a flag
			}
			found := false
			for _, c := range all {
				if ok, err := path.Match(name[1], c.ID); err != nil {
					t.Error(err)
				} else if ok {
					found, named[c.ID] = true, true
				}
			}
			if !found {
				t.Errorf("no case is called %s: %s", name[1], line)
			}
		}
	}
	for _, c := range all {
		if !named[c.ID] {
			t.Errorf("%s shows nothing that the page says: %s", c.ID, c.Title)
		}
	}
	if rows < 80 {
		t.Errorf("only %d rows", rows)
	}
}
