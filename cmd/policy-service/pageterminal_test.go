package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// loopback is the address that pages name. The test has another one for each page, of the 16 million that mean this
// machine, so that every page can have its server on port 8180, and pages are read side by side.
const loopback = "127.0.0.1"

// parallelPage lets other pages be read at the same time, where each can have an address of its own.
func parallelPage(t *testing.T) {
	if runtime.GOOS == "linux" {
		t.Parallel()
	}
}

func ownLoopback() string {
	if runtime.GOOS != "linux" {
		return loopback
	}
	var b [3]byte
	_, _ = rand.Read(b[:])
	return fmt.Sprintf("127.%d.%d.%d", 1+b[0]%254, b[1], 1+b[2]%254)
}

// A terminal is one shell in a directory like a checkout, into which a page is typed, beside the server of `make run`.
type terminal struct {
	dir, address string
	shell        []string // what runs it, "sh" if empty
	typed        int
	deaf         bool   // a command did not end, so that none can follow
	follows      string // why people approve what the links that are shown lead to, "" if nobody follows them
	input        io.WriteCloser
	output       *bufio.Reader
}

func newTerminal(t *testing.T, p page, bin string) *terminal {
	t.Helper()
	m := &terminal{dir: t.TempDir(), address: ownLoopback()}
	if strings.Contains(p.text, "policy-service doctor") {
		m.dir = onDisk(t)
	}
	for _, name := range []string{"policies", "conformance"} {
		must(t, os.CopyFS(filepath.Join(m.dir, name), os.DirFS(filepath.Join(root, name))))
	}
	m.serve(t, bin)
	m.open(t, bin)
	return m
}

// onDisk returns a directory for one test of which doctor does not say that it is memory: one of t.TempDir may be.
func onDisk(t *testing.T) (dir string) {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "policy-service-")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	return dir
}

// serve is the other terminal, in which `make run` was typed.
func (m *terminal) serve(t *testing.T, bin string) {
	t.Helper()
	address := m.address + ":8180"
	server := exec.Command(filepath.Join(bin, "policy-service"), "serve", "--policies", "policies/starter", "--data", ".data", "--listen", address)
	var log bytes.Buffer
	server.Dir, server.Stdout, server.Stderr = m.dir, &log, &log
	must(t, server.Start())
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(patience, func() { _ = server.Process.Kill() })
		defer kill.Stop()
		if err := server.Wait(); err != nil {
			t.Errorf("serve after SIGTERM: %v\n%s", err, &log)
		}
	})
	m.await(t, address)
}

// open starts the shell. It ends with the test, and so does everything that it started.
func (m *terminal) open(t *testing.T, bin string) {
	t.Helper()
	read, write, err := os.Pipe()
	must(t, err)
	shell := append(m.shell, "sh")
	sh := exec.Command(shell[0], shell[1:]...)
	sh.Dir, sh.Stdout, sh.Stderr = m.dir, write, write
	sh.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "LC_ALL=C.UTF-8", "TZ=UTC")
	sh.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	m.input, err = sh.StdinPipe()
	if err == nil {
		err = sh.Start()
	}
	must(t, err)
	_ = write.Close()
	m.output = bufio.NewReader(read)
	t.Cleanup(func() {
		// A shell that takes no more commands is ended with all that it started.
		if _, alive := m.run(t, `jobs -p >.jobs; for job in $(cat .jobs); do kill "$job"; done; wait`, patience); !alive {
			_ = syscall.Kill(-sh.Process.Pid, syscall.SIGKILL)
		}
		_ = m.input.Close()
		_ = sh.Wait()
		_ = read.Close()
	})
}

// waits is what a command ends with where its reader waits for something that happens by itself, such as a reload.
var waits = regexp.MustCompile(`(\A|; )sleep \d+\z`)

// read types the whole page. How long such a wait takes on this machine nobody knows: the command after it is typed
// until it shows what the page says.
func (m *terminal) read(t *testing.T, p page, steps []step) {
	t.Helper()
	k, patient := newKnown(p.examples()), false
	for _, s := range steps {
		command, err := k.spell(waits.ReplaceAllString(s.command, ""))
		if err != nil {
			t.Errorf("%s:%d: %v", p.path, s.line, err)
			continue
		}
		for deadline := time.Now().Add(patience); ; {
			shown, alive := m.enter(t, command)
			if !alive {
				t.Fatalf("%s:%d: this command ended the shell, or takes too long:\n$ %s", p.path, s.line, command)
			}
			if k.fits(s.want, shown) {
				m.follow(t, command, shown)
				break
			}
			if !patient || time.Now().After(deadline) {
				t.Errorf("%s:%d:\n$ %s\nshows\n%s\nand the page says\n%s", p.path, s.line, command, shown, s.want)
				break
			}
		}
		patient = waits.MatchString(s.command)
	}
	if left := k.unlearned(); len(left) > 0 && !t.Failed() {
		t.Errorf("%s: no output shows these examples: %s", p.path, left)
	}
}

// enter types a command, and waits for the server that it starts, if it does, until that answers: so does a reader.
func (m *terminal) enter(t *testing.T, command string) (shown string, alive bool) {
	t.Helper()
	shown, alive = m.run(t, command, patience)
	line := strings.ReplaceAll(command, "\\\n", "")
	if alive && regexp.MustCompile(`(?m)policy-service (serve|mcp-gateway) .*&$`).MatchString(line) {
		m.await(t, m.listens(t, line))
	}
	return shown, alive
}

// run types a command, and returns what the terminal shows of it. A last newline is added where it is missing, as in an
// answer over HTTP.
func (m *terminal) run(t *testing.T, command string, limit time.Duration) (shown string, alive bool) {
	t.Helper()
	if m.deaf {
		return "", false
	}
	m.typed++
	script := filepath.Join(m.dir, fmt.Sprintf(".typed-%d", m.typed))
	must(t, os.WriteFile(script, []byte(strings.ReplaceAll(command, loopback, m.address)+"\n"), 0o600))
	end := fmt.Sprintf("end of command %d, %s", m.typed, rand.Text())
	type outcome struct {
		shown string
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		var text strings.Builder
		for {
			line, err := m.output.ReadString('\n')
			if err != nil || line == end+"\n" {
				done <- outcome{text.String(), err}
				return
			}
			if !strings.HasPrefix(line, "go: downloading ") { // of a machine that has not got a module yet
				text.WriteString(line)
			}
		}
	}()
	// The shell reads the command from a file, so that what the command reads is not the next command.
	_, err := fmt.Fprintf(m.input, "command . '%s' </dev/null; status=$?; printf '\\n%%s\\n' '%s'; (exit $status)\n", script, end)
	if err != nil {
		m.deaf = true
		return "", false
	}
	select {
	case o := <-done:
		m.deaf = o.err != nil
		shown = strings.TrimSuffix(strings.ReplaceAll(o.shown, m.address, loopback), "\n")
		if shown != "" && !strings.HasSuffix(shown, "\n") {
			shown += "\n"
		}
		return shown, o.err == nil
	case <-time.After(limit):
		m.deaf = true
		return "", false
	}
}

// must types a command that has to succeed.
func (m *terminal) must(t *testing.T, command string) string {
	t.Helper()
	shown, alive := m.run(t, command, patience)
	status, _ := m.run(t, "echo $?", patience)
	if !alive || status != "0\n" {
		t.Fatalf("$ %s\n%s", command, shown)
	}
	return shown
}

// await waits until a server answers.
func (m *terminal) await(t *testing.T, address string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		address = "localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
	}
	client := &http.Client{Transport: transport}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		for _, scheme := range []string{"http", "https"} {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+address+"/livez", nil)
			must(t, err)
			answer, err := client.Do(request)
			if err == nil {
				_ = answer.Body.Close()
			}
			// A server that speaks TLS answers 400 to plain HTTP.
			if err == nil && answer.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("nothing answers at %s", address)
		}
	}
}

// listens is where the server of the command listens: by the command, or by the file of its configuration.
func (m *terminal) listens(t *testing.T, command string) string {
	t.Helper()
	address := loopback + ":8180"
	if file := regexp.MustCompile(`--config[ =](\S+)`).FindStringSubmatch(command); file != nil {
		where, _ := m.run(t, "pwd", patience)
		text, _ := os.ReadFile(filepath.Join(strings.TrimSpace(where), file[1]))
		if listen := regexp.MustCompile(`(?m)^listen: *"?([^"\s]+)`).FindSubmatch(text); listen != nil {
			address = string(listen[1])
		}
	}
	if flag := regexp.MustCompile(`--listen[ =](\S+)`).FindStringSubmatch(command); flag != nil {
		address = flag[1]
	}
	if strings.HasPrefix(address, "unix:") {
		said, _ := m.run(t, "echo "+address, patience) // with what stands in variables
		return strings.TrimSpace(said)
	}
	return strings.ReplaceAll(address, loopback, m.address)
}
