package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"policy-service/pdp/pdptest/inside/cli"
	"policy-service/pdp/pdptest/inside/command"
	"policy-service/pdp/pdptest/inside/process"
)

// What stands in deploy/ is for machines that no test has: no cluster and no systemd. What can be held without
// them is held here and in the files beside this one: that it says what was meant, to the programs it is for and
// to this program.

// parsed is a command line as the program itself reads it, and the command's path, as "keys add".
func parsed(t *testing.T, args []string) (c command.Line, path string) {
	t.Helper()
	parser, err := command.NewParser(&c, cli.Streams{Out: io.Discard, Err: io.Discard})
	must(t, err)
	context, err := parser.Parse(args)
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return c, strings.TrimPrefix(context.Selected().Path(), "policy-service ")
}

// nobody is the user of the image and of the manifests.
const nobody = 65534

// stopsWithin is what a stop takes at most: requests are drained, then sinks and the record of the stop have 5 s each.
const stopsWithin = process.Drain + 10*time.Second

func deployed(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("deploy", name))
	must(t, err)
	return content
}
