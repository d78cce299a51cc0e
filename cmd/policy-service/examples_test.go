package main

import (
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"policy-service/cmd/policy-service/internal/cli"
)

// leaves are the commands that --help lists.
func leaves(t *testing.T) []*kong.Node {
	t.Helper()
	parser, err := newParser(&commands{}, cli.Streams{Out: io.Discard, Err: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	return parser.Model.Leaves(true)
}

// TestExamples: every command has examples and help that shows them, and every example is of a command, and parses as it.
func TestExamples(t *testing.T) {
	t.Parallel()
	left := maps.Clone(examples)
	for _, leaf := range leaves(t) {
		path := leaf.Path()
		lines := examples[path]
		delete(left, path)
		if len(lines) == 0 {
			t.Errorf("%s has no example: add one to examples.go", path)
			continue
		}
		for _, line := range lines {
			words := strings.Fields(strings.ReplaceAll(line, "'", "")) // as a shell reads what has no spaces
			if words[0] != "policy-service" {
				t.Errorf("%q", line)
			}
			if _, command := parsed(t, words[1:]); command != path {
				t.Errorf("%q is an example of %s, and not of %s", line, command, path)
			}
		}
		out := help(t, strings.Fields(path)...)
		if want := "\nExamples:\n  " + strings.Join(lines, "\n  ") + "\n"; !strings.HasSuffix(out, want) {
			t.Errorf("%s --help does not end with its examples:\n%s", path, out)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(left)) {
		t.Errorf("there is no command %s to have examples", path)
	}
}

// TestExamplesOfGroups: the help of several commands together shows one of each.
func TestExamplesOfGroups(t *testing.T) {
	if out := help(t, "keys"); strings.Count(out, "\n  policy-service keys ") != 4 {
		t.Error(out)
	}
	if out := help(t, "log", "key"); !strings.HasSuffix(out, examples["log key print"][0]+"\n  "+examples["log key rotate"][0]+"\n") {
		t.Error(out)
	}
}

// help is what --help of a command prints. The parser ends the program after that: here it panics.
func help(t *testing.T, command ...string) (text string) {
	t.Helper()
	var out strings.Builder
	parser, err := newParser(&commands{}, cli.Streams{Out: &out, Err: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	parser.Exit = func(code int) { panic(code) }
	defer func() {
		if code := recover(); code != 0 {
			t.Errorf("%v ends with %v", command, code)
		}
		text = out.String()
	}()
	_, err = parser.Parse(append(command, "--help"))
	t.Error(err)
	return ""
}
