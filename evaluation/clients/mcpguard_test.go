package clients_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"policy-service/conformance"
	"policy-service/conformance/pep"
	"policy-service/pdp/pdptest/night"
)

// TestMCPGuard has the plan coaz judge the example of the guard for MCP servers, in the era that its SDK speaks. No case fails,
// and none is advised.
func TestMCPGuard(t *testing.T) {
	t.Parallel()
	night.Npm(t)
	p := typescriptClient(t)
	bench, err := pep.Open(pep.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := bench.Close(); err != nil {
			t.Error(err)
		}
	}()
	const resource = "https://mcp.example.com/mcp"
	url := p.mcpServer(t, bench.Wiring, resource)
	r, err := bench.Judge(t.Context(), pep.Target{URL: url, Resource: resource, Eras: []pep.Era{pep.Legacy}, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if !r.OK() || r.Count(conformance.Advised) > 0 || r.Count(conformance.Passed) < 270 {
		var text strings.Builder
		if err := r.WriteText(&text); err != nil {
			t.Fatal(err)
		}
		t.Error(text.String())
	}
}

// mcpServer starts the example on a bench, and returns its URL once it answers.
func (p typescript) mcpServer(t *testing.T, w pep.Wiring, resource string) string {
	t.Helper()
	dir := t.TempDir()
	tools, err := pep.Tools()
	if err != nil {
		t.Fatal(err)
	}
	offer, address := filepath.Join(dir, "tools.json"), filepath.Join(dir, "address")
	if err := os.WriteFile(offer, tools, 0o600); err != nil {
		t.Fatal(err)
	}
	c := p.Command(t.Context(), p.Dir, "node", "examples/mcp-server.mjs", "--listen", "127.0.0.1:0", "--addr-file", address, "--pdp", w.PDP,
		"--issuer", w.Issuer, "--resource", resource, "--offer", offer, "--report", w.Report)
	c.Stdout, c.Stderr = t.Output(), t.Output()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM) // it may have ended before
		<-ended
	})
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if text, err := os.ReadFile(address); err == nil {
			return "http://" + strings.TrimSpace(string(text)) + "/mcp"
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("the server ended: %v", err)
		case <-tick.C:
		}
	}
}

// TestMCPPage finds the line of the example that the page shows. [TestTypeScriptPage] runs its program.
func TestMCPPage(t *testing.T) {
	t.Parallel()
	example, err := os.ReadFile("typescript/examples/mcp-server.mjs")
	if err != nil {
		t.Fatal(err)
	}
	shown := readTypeScriptPage(t, "MCP.md").blocks["js"]
	if len(shown) != 1 || !strings.Contains(string(example), strings.TrimSpace(shown[0])) {
		t.Errorf("the example has no %q", shown)
	}
}
