package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/pdptest/memorydisk"
)

// TestEmptyRoot: the static binary needs nothing of a system. It runs as an ordinary user in a root that is mounted
// read-only and holds the binary, a bundle and a data directory, no /proc, no /dev, no /etc, with an empty environment.
func TestEmptyRoot(t *testing.T) {
	t.Parallel()
	root := emptyRoot(t, filepath.Join(built(t), "policy-service"))
	if err := os.WriteFile(filepath.Join(root, "file"), nil, 0o600); !errors.Is(err, syscall.EROFS) {
		t.Fatalf("the root can be written to: %v", err)
	}
	server := inRoot(t, root, "serve", "--policies", "/policies", "--data", "/data/state", "--listen", "127.0.0.1:0", "--addr-file", "/data/addr")
	var output bytes.Buffer
	server.Stdout, server.Stderr = &output, &output
	must(t, server.Start())
	addr := awaitAddr(t, server, filepath.Join(root, "data/addr"), &output)

	const question = `{"subject":{"type":"user","id":"alice"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"tickets:create_ticket"}}`
	r, err := http.Post("http://"+addr+"/access/v1/evaluation", "application/json", strings.NewReader(question))
	must(t, err)
	answer, err := io.ReadAll(r.Body)
	_ = r.Body.Close()
	if err != nil || string(answer) != `{"decision":true}` {
		t.Errorf("%d %s %v", r.StatusCode, answer, err)
	}
	if out, err := inRoot(t, root, "health", "--ready", "--url", "http://"+addr).CombinedOutput(); err != nil || string(out) != "ready\n" {
		t.Errorf("health: %s %v", out, err)
	}
	out, _ := inRoot(t, root, "doctor", "--policies", "/policies", "--data", "/data/state", "--listen", addr).CombinedOutput()
	if !strings.Contains(string(out), addr+" is in use, and a server is running on /data/state\n") || strings.Contains(string(out), "bites  data") {
		t.Errorf("doctor: %s", out)
	}

	must(t, server.Process.Signal(syscall.SIGTERM))
	if err := server.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v\n%s", err, &output)
	}
	if report := verify.Directory(filepath.Join(root, "data/state"), verify.Options{}); !report.Verified() {
		t.Errorf("%v: %v", report.Code, report.Problem)
	}
}

// emptyRoot is a root that cannot be written to, but for /data below it.
func emptyRoot(t *testing.T, binary string) string {
	t.Helper()
	root := t.TempDir()
	memorydisk.Mount(t, root, "size=256m,mode=0755", unix.MS_NODEV|unix.MS_NOSUID)
	for _, err := range []error{
		// Another process writes it: what this one starts meanwhile would still have it open, and a file that is open
		// for writing cannot be executed.
		exec.Command("cp", binary, filepath.Join(root, "policy-service")).Run(),
		os.CopyFS(filepath.Join(root, "policies"), os.DirFS(starter(t))),
		os.Mkdir(filepath.Join(root, "data"), 0o755),
	} {
		must(t, err)
	}
	memorydisk.Mount(t, filepath.Join(root, "data"), "size=256m,mode=0700,uid=65534,gid=65534", unix.MS_NODEV|unix.MS_NOSUID|unix.MS_NOEXEC)
	must(t, unix.Mount("", root, "", unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NODEV|unix.MS_NOSUID, ""))
	return root
}

// inRoot is a command of the binary in a root, as an ordinary user without groups and without an environment.
func inRoot(t *testing.T, root string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, "/policy-service", args...)
	cmd.Dir, cmd.Env = "/", []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	return cmd
}
