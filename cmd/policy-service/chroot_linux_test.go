package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"golang.org/x/sys/unix"

	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/memorydisk"
)

// TestEmptyRoot: the image needs nothing of a system. Its files run as an ordinary user in a root that is mounted read-only
// and holds besides them a bundle, a certificate and a data directory, no /proc and no /dev, with an empty environment.
func TestEmptyRoot(t *testing.T) {
	t.Parallel()
	authority := pdptest.NewAuthority(t)
	root := emptyRoot(t, authority)
	if err := os.WriteFile(filepath.Join(root, "file"), nil, 0o600); !errors.Is(err, syscall.EROFS) {
		t.Fatalf("the root can be written to: %v", err)
	}
	key, err := inRoot(t, root, "keys", "add", "--data", "/data/state", "--name", "gateway").Output()
	must(t, err)
	config := imageConfig(t, image(t))
	server := inRoot(t, root, append(config.Cmd, "--listen", "127.0.0.1:0", "--addr-file", "/data/addr")...)
	var output bytes.Buffer
	server.Stdout, server.Stderr = &output, &output
	must(t, server.Start())
	addr := awaitAddr(t, server, filepath.Join(root, "data/addr"), &output)

	const question = `{"subject":{"type":"user","id":"alice"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"tickets:create_ticket"}}`
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+addr+"/access/v1/evaluation", strings.NewReader(question))
	must(t, err)
	r.Header = http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer " + strings.TrimSpace(string(key))}}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority.Pool}, DisableKeepAlives: true}}
	w, err := client.Do(r)
	must(t, err)
	answer, err := io.ReadAll(w.Body)
	_ = w.Body.Close()
	if err != nil || string(answer) != `{"decision":true}` {
		t.Errorf("%d %s %v", w.StatusCode, answer, err)
	}
	health := config.Healthcheck.Test[2:]
	health[slices.Index(health, "--url")+1] = "https://" + addr
	if out, err := inRoot(t, root, append(health, "--ready")...).CombinedOutput(); err != nil || string(out) != "ready\n" {
		t.Errorf("health: %s %v", out, err)
	}
	out, _ := inRoot(t, root, "doctor", "--policies", "/policies", "--data", "/data/state", "--listen", addr, "--tls-cert", "/tls/tls.crt", "--tls-key", "/tls/tls.key").CombinedOutput()
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

// emptyRoot is a root with the files of the image, that cannot be written to, but for /data below it.
func emptyRoot(t *testing.T, authority *pdptest.Authority) string {
	t.Helper()
	root := t.TempDir()
	memorydisk.Mount(t, root, "size=256m,mode=0755", unix.MS_NODEV|unix.MS_NOSUID)
	// Another process writes them: what this one starts meanwhile would still have the binary open, and a file that is open
	// for writing cannot be executed.
	unpack := exec.Command("tar", "-x", "--numeric-owner", "-p", "-C", root)
	files := mutate.Extract(image(t))
	unpack.Stdin = files
	out, err := unpack.CombinedOutput()
	if err = errors.Join(err, files.Close(), os.CopyFS(filepath.Join(root, "policies"), os.DirFS(starter(t)))); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cert, key := authority.Server()
	must(t, os.Mkdir(filepath.Join(root, "tls"), 0o755))
	for name, from := range map[string]string{"tls.crt": cert, "tls.key": key} {
		content, err := os.ReadFile(from)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(root, "tls", name), content, 0o400))
		must(t, os.Chown(filepath.Join(root, "tls", name), nobody, nobody))
	}
	// A volume takes owner and mode from the image.
	data, err := os.Stat(filepath.Join(root, "data"))
	must(t, err)
	owner := data.Sys().(*syscall.Stat_t)
	options := fmt.Sprintf("size=256m,mode=%#o,uid=%d,gid=%d", data.Mode().Perm(), owner.Uid, owner.Gid)
	memorydisk.Mount(t, filepath.Join(root, "data"), options, unix.MS_NODEV|unix.MS_NOSUID|unix.MS_NOEXEC)
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
