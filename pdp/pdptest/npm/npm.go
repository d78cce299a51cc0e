// Package npm installs programs of others for tests: what a package-lock.json pins, byte for byte, and nothing else.
//
// Begin with [Install]. No script of a package runs. A test that calls it calls night.Npm first.
package npm

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"testing"
)

// Install writes files into a directory of the test's own, and installs there what their package-lock.json pins. The test
// fails where that cannot be done.
func Install(t testing.TB, what string, files fs.FS) (dir string) {
	t.Helper()
	if _, err := exec.LookPath("npm"); err != nil {
		Without(t, what, err.Error())
	}
	dir = t.TempDir()
	if err := os.CopyFS(dir, files); err != nil {
		t.Fatal(err)
	}
	install := exec.CommandContext(t.Context(), "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", "--loglevel=error")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		Without(t, what, "npm ci: "+err.Error()+"\n"+string(out))
	}
	return dir
}

// Compile compiles the TypeScript of what was installed in dir, as its tsconfig.json says. A mistake in its types fails the test.
func Compile(t testing.TB, dir string) {
	t.Helper()
	compile := exec.CommandContext(t.Context(), "node", "node_modules/typescript/bin/tsc")
	compile.Dir = dir
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("tsc: %v\n%s", err, out)
	}
}

// Answers runs the script run.mjs of what was installed in dir: it reads a case a line, and writes an answer a line. There must
// be an answer to each.
func Answers[Case, Answer any](t testing.TB, dir string, cases []Case) (all []Answer) {
	t.Helper()
	var in bytes.Buffer
	for _, c := range cases {
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		in.Write(append(text, '\n'))
	}
	run := exec.CommandContext(t.Context(), "node", "run.mjs")
	run.Dir, run.Stdin, run.Stderr = dir, &in, os.Stderr
	out, err := run.Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var a Answer
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			t.Fatal(err)
		}
		all = append(all, a)
	}
	if len(all) != len(cases) {
		t.Fatalf("%d answers to %d cases", len(all), len(cases))
	}
	return all
}

// Without fails a test that lacks the programs that it compares with.
func Without(t testing.TB, what, why string) {
	t.Helper()
	t.Fatalf("no %s: %s; try to install nodejs and npm", what, why)
}
