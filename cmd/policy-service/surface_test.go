package main

import (
	"flag"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"policy-service/pdp/pdptest/inside/cli"
	"policy-service/pdp/pdptest/inside/command"
	"policy-service/pdp/pdptest/inside/config"
	"policy-service/pdp/pdptest/inside/mcp"
	"policy-service/pdp/pdptest/inside/server"
)

var updateSurface = flag.Bool("update-surface", false, "add what is new of commands, flags and keys to testdata/surface.txt")

const (
	surfaceFile = "testdata/surface.txt"
	needed      = "needed: " // begins a line about a flag or an argument that has to be there
)

// gone are the lines of testdata/surface.txt that are taken no more, with a command line that has one, and what the program
// says of it: what to write instead. An entry stays for as long as a version that had the line can be upgraded.
var gone = map[string]struct{ run, says string }{}

// surface is what scripts and files of operators have: commands with their flags and arguments, the values of which a flag
// or a key takes one, keys, and environment variables.
func surface(t *testing.T) []string {
	t.Helper()
	all := map[string]bool{}
	add := func(line, enum string) {
		all[line] = true
		for _, value := range strings.Split(enum, ",") {
			all[line+"="+value] = true
		}
	}
	parser, err := command.NewParser(&command.Line{}, cli.Streams{Out: io.Discard, Err: io.Discard})
	must(t, err)
	for _, leaf := range parser.Model.Leaves(false) { // also those that no help shows
		path := "policy-service " + leaf.Path()
		all[path] = true
		var one []string // one of each of these is needed: the first stands for all
		for _, f := range leaf.Flags {
			add(path+" --"+f.Name, f.Enum)
			if f.Short != 0 {
				all[path+" -"+string(f.Short)] = true
			}
			if f.Required && !slices.ContainsFunc(f.Xor, func(x string) bool { return slices.Contains(one, x) }) {
				all[needed+path+" --"+f.Name] = true
			}
			one = append(one, f.Xor...)
			for _, variable := range f.Envs {
				all["variable "+variable] = true
			}
		}
		for _, a := range leaf.Positional {
			add(path+" "+strings.ToUpper(a.Name), a.Enum)
			if a.Required {
				all[needed+path+" "+strings.ToUpper(a.Name)] = true
			}
		}
	}
	keys := func(of string, keys []config.Key) {
		for _, k := range keys {
			add(of+" "+k.Path, strings.Join(k.Enum, ","))
			all["variable "+k.Variable] = true
			if k.Required {
				all[needed+of+" "+k.Path] = true
			}
		}
	}
	keys("key", server.ConfigForm.Keys())
	keys("gateway-key", mcp.Form.Keys())
	maps.DeleteFunc(all, func(line string, _ bool) bool { return strings.HasSuffix(line, "=") || line == "variable " })
	return slices.Sorted(maps.Keys(all))
}

// broken are the lines of before that are neither taken now nor gone, and what must be there now and need not be before.
func broken(before, now []string) (all []string) {
	for _, line := range before {
		if _, known := gone[line]; !known && !slices.Contains(now, line) && !strings.HasPrefix(line, needed) {
			all = append(all, line)
		}
	}
	for _, line := range now {
		what, must := strings.CutPrefix(line, needed)
		whole := what[:max(0, strings.LastIndexAny(what, " ."))] // the command, or the section of a key
		old := slices.ContainsFunc(before, func(b string) bool {
			return b == whole || strings.HasPrefix(b, whole+".") || strings.HasPrefix(b, whole+" ")
		})
		if must && old && !slices.Contains(before, line) {
			all = append(all, line)
		}
	}
	return all
}

// TestSurface: each command line and key that a version took is taken by the later ones, or the program says what to write.
// What is new may be anything; -update-surface adds it.
func TestSurface(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(surfaceFile)
	must(t, err)
	before, now := strings.Split(strings.TrimSpace(string(text)), "\n"), surface(t)
	if *updateSurface {
		all := slices.Concat(before, now)
		slices.Sort(all)
		must(t, os.WriteFile(surfaceFile, []byte(strings.TrimSpace(strings.Join(slices.Compact(all), "\n"))+"\n"), 0o644))
	}
	for _, line := range broken(before, now) {
		t.Errorf("%s: scripts and files of before do not work any more; take it still, or write into gone what the program says of it", line)
	}
	for line, is := range gone {
		if !slices.Contains(before, line) || slices.Contains(now, line) {
			t.Errorf("%s never was, or is not gone", line)
		}
		says(t, cli.Failed, is.run, is.says)
	}
	for _, was := range []string{"policy-service serve --nosuch", "key nosuch", "policy-service log export --format=nosuch", "variable NOSUCH"} {
		if got := broken(append(slices.Clone(before), was), now); !slices.Contains(got, was) {
			t.Errorf("it is not missed: %s", was)
		}
	}
	for _, is := range []string{needed + "policy-service serve --nosuch", needed + "key tls.nosuch", needed + "policy-service check NOSUCH"} {
		if got := broken(before, append(slices.Clone(now), is)); !slices.Contains(got, is) {
			t.Errorf("it is not missed: %s", is)
		}
	}
}
