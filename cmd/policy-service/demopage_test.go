package main

import (
	"bufio"
	"bytes"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"policy-service/pdp/pdptest/browsertest"
	"policy-service/pdp/pdptest/night"
)

// withNode tags the transcripts that need `make mcp-demo`, and with it what npm installs.
const withNode = "console node"

// TestDemo types `make mcp-demo` in a checkout, and then what pdp/mcp/README.md, pdp/mcp/ASK.md and pdp/mcp/MESSAGES.md show beside
// it. With what npm installed there, it runs what deploy/compose runs.
func TestDemo(t *testing.T) {
	night.Npm(t)
	p := readPage(t, "pdp/mcp/README.md")
	m := &terminal{dir: t.TempDir(), address: ownLoopback()}
	m.checkout(t, "Makefile", "policies", "pdp/mcp/examples", "pdp/pdptest/mcptest/node", "cmd/policy-service/deploy/compose")
	bin := filepath.Join(m.dir, "bin")
	must(t, os.CopyFS(bin, os.DirFS(built(t))))
	m.demonstrate(t, "mcp-demo", "make mcp-try")
	m.await(t, m.address+":8311")
	m.open(t, bin)
	t.Run("page", func(t *testing.T) { m.read(t, p, p.stepsOf(t, withNode)) })
	t.Run("people", func(t *testing.T) { m.beside(t, bin, "pdp/mcp/ASK.md") })
	t.Run("messages", func(t *testing.T) { m.beside(t, bin, "pdp/mcp/MESSAGES.md") })
	t.Run("compose", func(t *testing.T) { m.compose(t) })
}

// beside types a page into another terminal. Where that shows a link into the console, somebody opens it and approves.
func (m *terminal) beside(t *testing.T, bin, path string) {
	t.Helper()
	other := &terminal{dir: m.dir, address: m.address, follows: "as agreed"}
	other.open(t, bin)
	p := readPage(t, path)
	other.read(t, p, p.stepsOf(t, withNode))
}

// follow has the person whose key or token is in a command open the link that it shows, and approve there.
func (m *terminal) follow(t *testing.T, command, shown string) {
	t.Helper()
	link := regexp.MustCompile(`(?m)^open:? +(http://[^/\s]+)(/console/approvals/\S+)$`).FindStringSubmatch(shown)
	whose := regexp.MustCompile(` (\w+)\.(?:key|token)\b`).FindStringSubmatch(command)
	if m.follows == "" || link == nil || whose == nil {
		return
	}
	key, alive := m.run(t, "cat "+whose[1]+".key", patience)
	if !alive || key == "" {
		t.Fatalf("%s has no key", whose[1])
	}
	b := browsertest.Open(t, strings.ReplaceAll(link[1], loopback, m.address))
	b.Goto(link[2])
	b.Type(strings.TrimSpace(key))
	b.Loads(func() { b.Press("Enter") })
	b.Type(m.follows)
	b.Loads(func() { b.Click("button", "Approve") })
	// The server may end before the browser does: a page that hears of news would ask it again.
	b.Loads(func() { b.Click("button", "Log out") })
}

// checkout copies these files into the terminal's directory. What listens there, listens at the terminal's address.
func (m *terminal) checkout(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		err := fs.WalkDir(os.DirFS(root), name, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(filepath.Join(root, path))
			if err != nil {
				return err
			}
			to := filepath.Join(m.dir, path)
			if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
				return err
			}
			return os.WriteFile(to, bytes.ReplaceAll(text, []byte(loopback), []byte(m.address)), 0o644)
		})
		must(t, err)
	}
}

// demonstrate is the other terminal, in which `make TARGET` was typed. It returns what that shows up to a line. The program is
// built already. Ctrl-C ends all that it started.
func (m *terminal) demonstrate(t *testing.T, target, last string) (shown string) {
	t.Helper()
	read, write, err := os.Pipe()
	must(t, err)
	demo := exec.Command("make", "-o", "build", target)
	demo.Dir, demo.Stdout, demo.Stderr, demo.Env = m.dir, write, write, withoutMake()
	demo.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must(t, demo.Start())
	_ = write.Close()
	output := bufio.NewReader(read)
	for line := ""; !strings.Contains(line, last); shown += line {
		if line, err = output.ReadString('\n'); err != nil {
			t.Fatalf("make %s does not say what to type next: %v", target, demo.Wait())
		}
		t.Log(line)
	}
	// The output ends when the last of them has ended.
	rest := make(chan []byte, 1)
	go func() {
		text, _ := io.ReadAll(output)
		rest <- text
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-demo.Process.Pid, syscall.SIGINT)
		select {
		case text := <-rest:
			if t.Failed() {
				t.Logf("make %s:\n%s", target, text)
			}
		case <-time.After(patience):
			t.Errorf("something of make %s goes on after Ctrl-C", target)
			_ = syscall.Kill(-demo.Process.Pid, syscall.SIGKILL)
		}
		_ = demo.Wait()
		_ = read.Close()
	})
	return shown
}
