package mcptest

import (
	"bytes"
	"context"
	"net"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"policy-service/pdp/pdptest/port"
)

// Everything is the server of the SDK, in the version that go.mod pins, that has everything the conformance suite asks for.
type Everything struct{ binary string }

// BuildEverything builds it.
func BuildEverything(t testing.TB) Everything {
	t.Helper()
	e := Everything{filepath.Join(t.TempDir(), "everything-server")}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", e.binary, "github.com/modelcontextprotocol/go-sdk/conformance/everything-server")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	return e
}

// Start serves over HTTP until the test ends, and returns the URL. A server with sessions speaks the legacy era alone as
// its suite wants it; one without speaks both.
func (e Everything) Start(t testing.TB, sessions bool) (url string) {
	t.Helper()
	addr := port.Free(t)
	args := []string{"-http", addr}
	if sessions {
		args = append(args, "-stateless=false")
	}
	startServer(t, addr, exec.Command(e.binary, args...))
	return "http://" + addr
}

// Command is its command line for the standard streams.
func (e Everything) Command() []string { return []string{e.binary} }

// startServer starts a program and returns when it takes connections at its address.
func startServer(t testing.TB, addr string, c *exec.Cmd) {
	t.Helper()
	var said bytes.Buffer
	c.Stdout, c.Stderr = &said, &said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	t.Cleanup(func() {
		_ = c.Process.Kill()
		<-ended
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if conn, err := net.Dial("tcp", addr); err == nil {
			_ = conn.Close()
			return
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("%v ended: %v\n%s", c, err, said.Bytes())
		case <-ctx.Done():
			t.Fatalf("%v does not listen at %s", c, addr)
		case <-tick.C:
		}
	}
}
