package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
)

// TestBuild builds as the Makefile does, twice and in two places of the disk: the binary is static, the same both
// times, and says that it does not know its commit, because it is built here without the repository.
//
// It links the program once more, which takes seconds.
func TestBuild(t *testing.T) {
	t.Parallel()
	one, again := filepath.Join(built(t), "policy-service"), t.TempDir()
	if err := build(again); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(again, "policy-service")
	info, err := buildinfo.ReadFile(one)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []debug.BuildSetting{{Key: "-trimpath", Value: "true"}, {Key: "CGO_ENABLED", Value: "0"}} {
		if !slices.Contains(info.Settings, want) {
			t.Errorf("it is not built with %s=%s", want.Key, want.Value)
		}
	}
	if fileSum(t, one) != fileSum(t, other) {
		t.Error("two builds of the same differ")
	}
	for _, args := range [][]string{{"version"}, {"--version"}, {"--version", "serve"}} {
		out, err := exec.CommandContext(t.Context(), one, args...).Output()
		if err != nil || !strings.HasPrefix(string(out), "policy-service (devel), commit unknown: it was built without the repository, go1.") {
			t.Errorf("%v: %s %v", args, out, err)
		}
	}
}

// built is a directory with the program as a file. The first test that needs it builds it; TestMain removes it.
func built(t *testing.T) (dir string) {
	t.Helper()
	needProgram(t, "make")
	if err := buildOnce(); err != nil {
		t.Fatal(err)
	}
	return builtIn
}

var (
	builtIn   string
	buildOnce = sync.OnceValue(func() (err error) {
		if builtIn, err = os.MkdirTemp("", "policy-service-"); err != nil {
			return err
		}
		return build(builtIn)
	})
)

// makeBuild is the command by which the Makefile builds: its last, after what it says.
func makeBuild() (string, error) {
	commands, err := makeOutput("-n", "build")
	commands = strings.TrimSpace(commands)
	return commands[strings.LastIndex(commands, "\n")+1:], err
}

// build builds what `make build` builds, but that it never looks at the repository around the tests.
func build(dir string) error {
	command, err := makeBuild()
	if err != nil {
		return err
	}
	command = strings.Replace(command, "-o bin/policy-service", "-buildvcs=false -o '"+filepath.Join(dir, "policy-service")+"'", 1)
	sh := exec.Command("sh", "-c", command)
	sh.Dir, sh.Env = root, withoutMake()
	if out, err := sh.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", command, err, out)
	}
	return nil
}

func fileSum(t *testing.T, name string) [sha256.Size]byte {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(content)
}
