package main

import (
	"io"
	"maps"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"policy-service/pdp/pdptest/inside/cli"
	"policy-service/pdp/pdptest/inside/command"
)

// leaves are the commands that --help lists.
func leaves(t *testing.T) []*kong.Node {
	t.Helper()
	parser, err := command.NewParser(&command.Line{}, cli.Streams{Out: io.Discard, Err: io.Discard})
	must(t, err)
	return parser.Model.Leaves(true)
}

// TestExamples: every command has an example that its help shows, and every example is of a command, and parses as it.
func TestExamples(t *testing.T) {
	t.Parallel()
	left := maps.Clone(command.Examples)
	for _, leaf := range leaves(t) {
		path := leaf.Path()
		line := command.Examples[path]
		delete(left, path)
		words := strings.Fields(strings.ReplaceAll(line, "'", "")) // as a shell reads what has no spaces
		if len(words) == 0 || words[0] != "policy-service" {
			t.Errorf("%s has the example %q: write one into examples.go", path, line)
			continue
		}
		if _, command := parsed(t, words[1:]); command != path {
			t.Errorf("%q is an example of %s, and not of %s", line, command, path)
		}
		if out := help(t, strings.Fields(path)...); !strings.HasSuffix(out, "\nExamples:\n  "+line+"\n") {
			t.Errorf("%s --help does not end with its example:\n%s", path, out)
		}
	}
	if len(left) > 0 {
		t.Errorf("there are no commands to have the examples %v", left)
	}
	// The help of several commands together shows one of each.
	if out := help(t, "log", "key"); !strings.HasSuffix(out, "\nExamples:\n  "+command.Examples["log key print"]+"\n  "+command.Examples["log key rotate"]+"\n") {
		t.Error(out)
	}
}

// help is what --help of a command prints. The parser ends the program after that: here it panics.
func help(t *testing.T, path ...string) (text string) {
	t.Helper()
	var out strings.Builder
	parser, err := command.NewParser(&command.Line{}, cli.Streams{Out: &out, Err: io.Discard})
	must(t, err)
	parser.Exit = func(code int) { panic(code) }
	defer func() {
		if code := recover(); code != 0 {
			t.Errorf("%v ends with %v", path, code)
		}
		text = out.String()
	}()
	_, err = parser.Parse(append(path, "--help"))
	t.Error(err)
	return ""
}
