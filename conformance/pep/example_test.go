package pep

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"policy-service/pdp/pdptest/filetree"
)

const example = "../../evaluation/coaz/sdkpep/example"

// The example of our own library, an MCP server of the official SDK that is its own PEP, passes both plans in both eras,
// with questions about the methods that the binding forgot. It takes some seconds: the go command builds the example, which
// is then asked a thousand messages.
func TestSDKExamplePasses(t *testing.T) {
	cases, err := Cases(planNames()...)
	if err != nil {
		t.Fatal(err)
	}
	if testing.Short() {
		cases = quick(cases)
	}
	filetree.Checkout(t)
	bin := filepath.Join(t.TempDir(), "example")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", bin, example).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b := openBench(t)
	r, err := b.judgeAll(t.Context(), Target{URL: startExample(t, bin, b.Wiring), Resource: stubResource, Timeout: patience}.complete(), cases)
	if err != nil {
		t.Fatal(err)
	}
	if !r.OK() {
		t.Error(report(t, r))
	}
	eras := map[string]bool{}
	for _, one := range r.Results {
		eras[one.Plan] = true
	}
	if len(eras) != 4 {
		t.Errorf("it was judged in %v", eras)
	}
}

// startExample starts the example on a bench, and returns its URL once it answers.
func startExample(t *testing.T, bin string, w Wiring) (url string) {
	t.Helper()
	dir := t.TempDir()
	tools, err := Tools()
	if err != nil {
		t.Fatal(err)
	}
	offer, address := filepath.Join(dir, "tools.json"), filepath.Join(dir, "address")
	if err := os.WriteFile(offer, tools, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "--listen", "127.0.0.1:0", "--addr-file", address, "--pdp", w.PDP, "--issuer", w.Issuer,
		"--resource", stubResource, "--offer", offer, "--report", w.Report)
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the example ends with %v", err)
		}
	})
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(patience); ; {
		if text, err := os.ReadFile(address); err == nil {
			return "http://" + strings.TrimSpace(string(text)) + mcpPath
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("the example does not start")
		}
	}
}
