package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

// TestBuild builds as the Makefile does, twice and in two places of the disk: the binary is static, the same both
// times, and says that it does not know its commit, because it is built here without the repository.
func TestBuild(t *testing.T) {
	if testing.Short() {
		t.Skip("the program is built without the race detector")
	}
	one, other := staticBinary(t), staticBinary(t)
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

// staticBinary builds what `make build` builds, but that it never looks at the repository around the tests.
func staticBinary(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "policy-service")
	command := strings.Replace(makeBuild(t), "-o bin/policy-service", "-buildvcs=false -o "+name, 1)
	sh := exec.CommandContext(t.Context(), "sh", "-c", command)
	sh.Dir = "../.."
	if out, err := sh.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return name
}

// makeBuild is the command by which the Makefile builds.
func makeBuild(t *testing.T) string {
	t.Helper()
	needProgram(t, "make")
	return strings.TrimSpace(runMake(t, "-n", "build"))
}

func fileSum(t *testing.T, name string) [sha256.Size]byte {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(content)
}
