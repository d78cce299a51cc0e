// Package casetest holds the pages of a suite to its cases, in tests: [Page] the page that says how a case is written,
// and [Rows] gives the rows of the page that says which sentence each case shows.
package casetest

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// Page holds a page to cases: its only block of YAML shows some of them as they are asked, and every name stands on it as
// code. Expand makes the cases of what is shown.
func Page[C any](t *testing.T, file string, all []C, expand func(shown *yaml.Node) ([]C, error), names ...string) {
	t.Helper()
	page := read(t, file)
	_, block, _ := strings.Cut(page, "```yaml\n")
	block, _, found := strings.Cut(block, "```")
	if !found || strings.Count(page, "```yaml\n") != 1 {
		t.Fatalf("%s: there is not one block of YAML", file)
	}
	var shown []yaml.Node
	if err := yaml.Unmarshal([]byte(block), &shown); err != nil || len(shown) == 0 {
		t.Fatalf("%s: no case is shown: %v", file, err)
	}
	for n := range shown {
		cases, err := expand(&shown[n])
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, c := range cases {
			if !slices.ContainsFunc(all, func(other C) bool { return reflect.DeepEqual(c, other) }) {
				t.Errorf("%s: there is no such case: %+v", file, c)
			}
		}
	}
	for _, name := range names {
		if !strings.Contains(page, "`"+name+"`") {
			t.Errorf("%s: %s is not explained", file, name)
		}
	}
}

// Keys are the names that YAML gives the fields of a struct, and of those in it.
func Keys(of reflect.Type) (keys []string) {
	for field := range of.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		switch {
		case options == "inline":
			keys = append(keys, Keys(field.Type)...)
		case name != "":
			keys = append(keys, name)
		default:
			keys = append(keys, strings.ToLower(field.Name))
		}
	}
	return keys
}

// Row is a requirement: where it stands, what it says, and what shows it.
type Row struct{ Section, Says, Shown string }

// Rows are the rows of a page's tables whose first column is called section. Each must say what shows it.
func Rows(t *testing.T, file string) (all []Row) {
	t.Helper()
	for line := range strings.Lines(read(t, file)) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") || strings.HasPrefix(line, "| section |") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if len(cells) != 3 || strings.TrimSpace(cells[2]) == "" {
			t.Errorf("%s: %d cells, want 3 that say something: %s", file, len(cells), line)
			continue
		}
		all = append(all, Row{strings.TrimSpace(cells[0]), strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2])})
	}
	return all
}

var quoted = regexp.MustCompile("`([^`]+)`")

// Names are what stands as code in what shows a requirement: names of cases, or patterns of [path.Match].
func (r Row) Names() (names []string) {
	for _, found := range quoted.FindAllStringSubmatch(r.Shown, -1) {
		names = append(names, found[1])
	}
	return names
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
