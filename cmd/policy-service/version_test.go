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

	"policy-service/pdp/pdptest/filetree"
	"policy-service/pdp/pdptest/inside/version"
	"policy-service/pdp/pdptest/night"
)

// TestBuild builds as the Makefile does: the binary is static, and says that it does not know its commit, because it is built
// here without the repository.
//
// To link the program takes seconds.
func TestBuild(t *testing.T) {
	t.Parallel()
	one := filepath.Join(built(t), "policy-service")
	info, err := buildinfo.ReadFile(one)
	must(t, err)
	for _, want := range []debug.BuildSetting{{Key: "-trimpath", Value: "true"}, {Key: "CGO_ENABLED", Value: "0"}} {
		if !slices.Contains(info.Settings, want) {
			t.Errorf("it is not built with %s=%s", want.Key, want.Value)
		}
	}
	for _, args := range [][]string{{"version"}, {"--version"}, {"--version", "serve"}} {
		out, err := exec.CommandContext(t.Context(), one, args...).Output()
		if err != nil || !strings.HasPrefix(string(out), "policy-service "+version.Next+"-dev, commit unknown: it was built without the repository, go1.") {
			t.Errorf("%v: %s %v", args, out, err)
		}
	}
}

// TestBuildsAreTheSame builds in another place of the disk, too.
func TestBuildsAreTheSame(t *testing.T) {
	night.Whole(t, "it links the program once more")
	other := t.TempDir()
	must(t, build(other))
	if fileSum(t, filepath.Join(built(t), "policy-service")) != fileSum(t, filepath.Join(other, "policy-service")) {
		t.Error("two builds of the same differ")
	}
}

// built is a directory with the program as a file. The first test that needs it builds it; TestMain removes it.
func built(t *testing.T) (dir string) {
	t.Helper()
	filetree.Checkout(t)
	needProgram(t, "make")
	must(t, buildOnce())
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
func build(dir string, flags ...string) error {
	command, err := makeBuild()
	if err != nil {
		return err
	}
	command = strings.Replace(command, "-o bin/policy-service", strings.Join(append(flags, "-buildvcs=false -o '"+filepath.Join(dir, "policy-service")+"'"), " "), 1)
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
	must(t, err)
	return sha256.Sum256(content)
}
