package verify_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"policy-service/pdp/decisionlog"
	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/pdptest/night"
)

// firstRelease is the commit of which the verifier must go on to verify what is written
// now: auditors have it.
const firstRelease = "5f3b7dc"

// olderProgram writes a log as the first release did, or verifies one.
const olderProgram = `package main

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"policy-service/pdp/decisionlog"
	"policy-service/pdp/decisionlog/verify"
)

func main() {
	if len(os.Args) == 2 {
		report := verify.Directory(os.Args[1], verify.Options{})
		fmt.Println(report.Code, report.Problem)
		os.Exit(int(report.Code))
	}
	ctx := context.Background()
	l, err := decisionlog.Open(os.Args[1], decisionlog.Options{})
	from, _ := strconv.Atoi(os.Args[2])
	for n := from; n < from+20 && err == nil; n++ {
		entry := decisionlog.Entry{ID: fmt.Sprint(n), Kind: decisionlog.KindDecision, Decision: &decisionlog.Decision{Allow: true}}
		if _, err = l.Append(ctx, []decisionlog.Entry{entry}); err == nil && n%5 == 4 {
			err = l.Rotate(ctx)
		}
	}
	if err == nil {
		err = l.Redact(ctx, fmt.Sprint(from+7), "asked for")
	}
	if err == nil {
		err = l.Close()
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}
`

// older builds the program from the history of this checkout. Where there is none, as in
// a shallow clone, the test cannot be done.
func older(t *testing.T) (run, refuses func(args ...string)) {
	t.Helper()
	out, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		t.Skipf("this is no checkout of git, so there is no older verifier: %v; run it in a clone", err)
	}
	top := strings.TrimSpace(string(out))
	if err := exec.Command("git", "-C", top, "cat-file", "-e", firstRelease+"^{commit}").Run(); err != nil {
		t.Skipf("this checkout does not have commit %s, so there is no older verifier; run git fetch --unshallow", firstRelease)
	}
	dir := t.TempDir()
	archive := exec.Command("git", "-C", top, "archive", firstRelease, "go.mod", "go.sum", "pdp", "evaluation", "obligations", "schemas")
	unpack := exec.Command("tar", "x", "-C", dir)
	if unpack.Stdin, err = archive.StdoutPipe(); err == nil {
		err = unpack.Start()
	}
	check(t, err)
	check(t, archive.Run())
	check(t, unpack.Wait())
	check(t, os.Mkdir(filepath.Join(dir, "older"), 0o700))
	check(t, os.WriteFile(filepath.Join(dir, "older", "main.go"), []byte(olderProgram), 0o600))
	program := filepath.Join(t.TempDir(), "older")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", program, "./older") // with -trimpath it is built once
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the older verifier: %v\n%s", err, out)
	}
	run = func(args ...string) {
		t.Helper()
		if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
			t.Errorf("older %q: %v\n%s", args, err, out)
		}
	}
	refuses = func(args ...string) {
		t.Helper()
		out, err := exec.Command(program, args...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "format") {
			t.Errorf("older %q does not refuse the format: %v\n%s", args, err, out)
		}
	}
	return run, refuses
}

// TestOlderVerifier: the verifier of the first release verifies what is written now, and a log
// that programs of both wrote in turns. It knows no journal, so it refuses a log that a crash
// left: a journal may have records of that.
func TestOlderVerifier(t *testing.T) {
	night.Whole(t, "it builds a program from the history")
	run, refuses := older(t)
	holds := func(data string, undigested int) {
		t.Helper()
		run(data)
		if r := verify.Directory(data, verify.Options{}); !r.Verified() || len(r.Files.Undigested) != undigested {
			t.Errorf("%v: %+v", r.Problem, r)
		}
	}
	data, crashed := t.TempDir(), t.TempDir()
	real(t, data)
	holds(data, 0)
	l, err := decisionlog.Open(data, decisionlog.Options{On: decisionlog.Hooks{Rotate: func(uint64, time.Duration) {
		check(t, os.CopyFS(crashed, os.DirFS(data))) // the writer waits, so the digest is not on record
	}}})
	check(t, err)
	appendReal(t, l, 200, 210)
	check(t, l.Rotate(t.Context()))
	check(t, l.Close())
	holds(data, 0)
	check(t, os.Chmod(filepath.Join(crashed, decisionlog.KeyFile), 0o600))
	refuses(crashed)
	refuses(crashed, "500") // which would write to it
	if r := verify.Directory(crashed, verify.Options{}); !r.Verified() || len(r.Files.Undigested) != 1 {
		t.Errorf("%v: %+v", r.Problem, r)
	}
	check(t, openReal(t, crashed).Close())
	holds(crashed, 0)

	both := t.TempDir()
	for turn := range 3 {
		run(both, fmt.Sprint(100*turn))
		holds(both, 0)
		l := openReal(t, both)
		appendReal(t, l, 100*turn, 100*turn+30)
		check(t, l.Rotate(t.Context()))
		check(t, l.Redact(t.Context(), "", id(100*turn+5), "asked for"))
		check(t, l.Close())
		holds(both, 0)
	}
}
