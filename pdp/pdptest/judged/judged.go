// Package judged makes no promise: it is for the tests of this module alone. It lets tests run programs of others that
// judge our decision log: judge, which joins torchwood and Tessera, and litewitness and witnessctl of torchwood. The
// module of pdp/pdptest/judges pins them, and ours does not require them.
package judged

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"policy-service/pdp/pdptest/filetree"
	"policy-service/pdp/pdptest/night"
)

// Program is the path of a program of that module: "judge", "litewitness" or "witnessctl". The go command keeps the
// build; the first time takes half a minute.
func Program(t testing.TB, name string) string {
	t.Helper()
	return ProgramOf(t, "judges", name)
}

// ProgramOf is the path of a program of a module below pdp/pdptest.
func ProgramOf(t testing.TB, module, name string) string {
	t.Helper()
	night.Other(t, module)
	filetree.Checkout(t)
	one, _ := programs.LoadOrStore(module+" "+name, sync.OnceValues(func() (string, error) { return build(module, name) }))
	path, err := one.(func() (string, error))()
	if err != nil {
		t.Fatalf("%s could not be built: %v", name, err)
	}
	return path
}

var programs sync.Map

// build builds a program, unless the process that started this one has: to find it built takes seconds, too.
func build(module, name string) (string, error) {
	built := "JUDGED_" + module + "_" + name
	if path := os.Getenv(built); path != "" {
		return path, nil
	}
	root, err := filetree.Top()
	if err != nil {
		return "", err
	}
	tool := exec.Command("go", "tool", "-C", filepath.Join(root, "pdp", "pdptest", module), "-n", name)
	tool.Env = append(os.Environ(), "GOFLAGS=-trimpath", "GOWORK=off", "CGO_ENABLED=0") // as make has it, under the race detector, too
	path, err := output(tool)
	if err == nil {
		err = os.Setenv(built, path)
	}
	return path, err
}

// Judge runs judge, and returns its output: see its package for the arguments. An error is a refusal, and its reason.
func Judge(t testing.TB, args ...string) (said string, err error) {
	t.Helper()
	program := Program(t, "judge")
	command := exec.CommandContext(t.Context(), program, args...)
	command.WaitDelay = time.Second
	said, err = output(command)
	if failed := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &failed) || failed.ExitCode() != 1) {
		t.Fatal(err)
	}
	return said, err
}

// refusal is an exit with its reason.
type refusal struct {
	*exec.ExitError
	reason string
}

func (r refusal) Error() string { return r.reason }
func (r refusal) Unwrap() error { return r.ExitError }

func output(command *exec.Cmd) (string, error) {
	out, err := command.Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		err = refusal{failed, strings.TrimSpace(string(failed.Stderr))}
	}
	return strings.TrimSpace(string(out)), err
}
