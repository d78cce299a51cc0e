// Package npm makes no promise: it is for the tests of this module alone. It installs programs of others for tests:
// what a package-lock.json pins, byte for byte, and nothing else.
//
// Begin with [Install]. No script of a package runs. A test that calls it calls night.Npm first.
package npm

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// Install writes files into a directory of the test's own, beside the packages that their package-lock.json pins: see [Keep].
// The test fails where that cannot be done.
func Install(t testing.TB, what string, files fs.FS) (dir string) {
	t.Helper()
	if _, err := exec.LookPath("npm"); err != nil {
		Without(t, what, err.Error())
	}
	dir = t.TempDir()
	if err := os.CopyFS(dir, files); err != nil {
		t.Fatal(err)
	}
	if err := link(files, dir); err != nil {
		Without(t, what, err.Error())
	}
	return dir
}

// link puts the packages that files pin into a directory.
func link(files fs.FS, dir string) error {
	installed, err := Keep(files)
	if err != nil {
		return err
	}
	return os.Symlink(filepath.Join(installed, "node_modules"), filepath.Join(dir, "node_modules"))
}

func ci(ctx context.Context, dir string) error {
	install := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", "--loglevel=error")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci: %w\n%s", err, out)
	}
	return nil
}

// Keep installs the packages that the package-lock.json of files pins into a directory of the user's cache. It stays there for
// later tests of the same packages. Nothing may be written there.
func Keep(files fs.FS) (dir string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	all := filepath.Join(cache, "policy-service-gate", "installed")
	if err := os.MkdirAll(all, 0o755); err != nil {
		return "", err
	}
	fresh, err := os.MkdirTemp(all, "part-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(fresh) }()
	sum := sha256.New()
	for _, name := range []string{"package.json", "package-lock.json"} {
		text, err := fs.ReadFile(files, name)
		if err == nil {
			err = os.WriteFile(filepath.Join(fresh, name), text, 0o644)
		}
		if err != nil {
			return "", err
		}
		_, _ = sum.Write(text)
	}
	dir = filepath.Join(all, hex.EncodeToString(sum.Sum(nil)))
	now := time.Now()
	if os.Chtimes(dir, now, now) == nil {
		return dir, nil
	}
	forget(all, now.AddDate(0, 0, -30))
	if err := ci(context.Background(), fresh); err != nil {
		return "", err
	}
	if err := os.Rename(fresh, dir); err != nil && !errors.Is(err, fs.ErrExist) { // another process may have been first
		return "", err
	}
	return dir, nil
}

// forget removes installed packages that were not used since.
func forget(all string, since time.Time) {
	entries, _ := os.ReadDir(all)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.ModTime().Before(since) {
			_ = os.RemoveAll(filepath.Join(all, e.Name()))
		}
	}
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
