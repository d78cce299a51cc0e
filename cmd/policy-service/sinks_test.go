package main

import (
	"bufio"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestServeOutlivesItsReader pipes records into a program that ends: decisions go on.
//
// It takes 5 s: that long a stop waits for a sink.
func TestServeOutlivesItsReader(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "c.yaml")
	must(t, os.WriteFile(file, []byte("decision_log: {sinks: {stdout: {}}}\n"), 0o600))
	server := exec.CommandContext(t.Context(), "policy-service", "serve", "--policies", starter(t), "--data", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0", "--config", file)
	out, err := server.StdoutPipe()
	must(t, err)
	told, err := server.StderrPipe()
	must(t, err)
	must(t, server.Start())
	defer func() { _ = server.Process.Kill() }()
	stderr := bufio.NewScanner(told)
	await := func(text string) string {
		t.Helper()
		for stderr.Scan() {
			if strings.Contains(stderr.Text(), text) {
				return stderr.Text()
			}
		}
		t.Fatalf("the server ended without %q", text)
		return ""
	}
	_, addr, _ := strings.Cut(await("msg=serving "), "address=")
	addr, _, _ = strings.Cut(addr, " ")
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil { // a record, or a checkpoint
		t.Error(err)
	}
	must(t, out.Close())
	for range 2 {
		if ids := ask(http.DefaultClient, addr, false); len(ids) != 1 {
			t.Fatalf("got %v", ids)
		}
	}
	await("a sink does not take records")
	if ids := ask(http.DefaultClient, addr, false); len(ids) != 1 {
		t.Fatalf("got %v", ids)
	}
	must(t, server.Process.Signal(syscall.SIGTERM))
	await("a sink left records out")
	for stderr.Scan() { // to its end, before Wait closes the pipe
	}
	if err := server.Wait(); err != nil {
		t.Error(err)
	}
}
