package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/inside/plainfile"
	"policy-service/pdp/pdptest/night"
)

// hupRounds is how often the configuration changes: in four rounds each way of a change and of a refusal comes.
func hupRounds() int { return max(4, night.Cases(16)) }

// TestSIGHUPUnderLoad has the configuration change again and again while PEPs ask: who is
// in every one is never refused, who is only in those that are refused is never let in,
// and each change counts once the service says so.
//
// In each of its rounds the server reads its configuration twice under load, which takes a second or two together.
func TestSIGHUPUnderLoad(t *testing.T) {
	t.Parallel()
	h := newHUP(t)
	done := make(chan struct{})
	var clients sync.WaitGroup
	var asked atomic.Int64
	for name, legal := range map[string][]int{"stays": {200}, "even": {200, 401}, "odd": {200, 401}, "never": {401}} {
		client := h.client(name)
		for range 2 {
			clients.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
					}
					asked.Add(1)
					if got := h.ask(client); got != legal[0] && got != legal[len(legal)-1] {
						t.Errorf("%s got %d", name, got)
						return
					}
				}
			})
		}
	}
	for round := 1; round <= hupRounds(); round++ {
		h.round(round)
	}
	close(done)
	clients.Wait()
	t.Logf("%d requests in %d rounds", asked.Load(), hupRounds())
	h.stop()
}

// hup is a server whose configuration file is written anew.
type hup struct {
	t         *testing.T
	authority *pdptest.Authority
	file      string
	data      string
	addr      string
	fixed     string // what every file begins with
	server    *exec.Cmd
	stderr    *bufio.Scanner
	clients   map[string]*http.Client
}

func newHUP(t *testing.T) *hup {
	t.Helper()
	dir := t.TempDir()
	h := &hup{t: t, authority: pdptest.NewAuthority(t), file: filepath.Join(dir, "c.yaml"), data: filepath.Join(dir, "data"), clients: map[string]*http.Client{}}
	cert, key := h.authority.Server()
	h.fixed = fmt.Sprintf("policies: %s\ndata: %s\nlisten: 127.0.0.1:0\ntls: {cert_file: %s, key_file: %s, client_ca_file: %s}\n", starter(t), h.data, cert, key, h.authority.File)
	h.write("", "stays", "even")
	h.server = exec.CommandContext(t.Context(), "policy-service", "serve", "--config", h.file)
	h.server.Stdout = io.Discard
	told, err := h.server.StderrPipe()
	must(t, err)
	must(t, h.server.Start())
	t.Cleanup(func() { _ = h.server.Process.Kill() })
	h.stderr = bufio.NewScanner(told)
	_, addr, _ := strings.Cut(h.await("msg=serving "), "address=")
	h.addr, _, _ = strings.Cut(addr, " ")
	return h
}

// write writes a file that lets PEPs in, and says more.
func (h *hup) write(more string, names ...string) {
	h.t.Helper()
	var b bytes.Buffer
	b.WriteString(h.fixed + more + "auth:\n  mtls:\n")
	for _, name := range names {
		fmt.Fprintf(&b, "    - {san: %s, tenants: [default], permissions: [decide]}\n", name)
	}
	if err := plainfile.Publish(h.file, b.Bytes()); err != nil {
		h.t.Fatal(err)
	}
}

func (h *hup) await(text string) string {
	h.t.Helper()
	for h.stderr.Scan() {
		if strings.Contains(h.stderr.Text(), text) {
			return h.stderr.Text()
		}
	}
	h.t.Fatalf("the server ended without %q", text)
	return ""
}

func (h *hup) signal() {
	h.t.Helper()
	if err := h.server.Process.Signal(syscall.SIGHUP); err != nil {
		h.t.Fatal(err)
	}
}

// round has a configuration refused, and the next one taken.
func (h *hup) round(n int) {
	h.t.Helper()
	bad, why := "public_url: https://pdp.example\n", "what changed in public_url counts after a restart only"
	if n%4 < 2 {
		bad, why = "lisen: x\n", "unknown key"
	}
	h.write(bad, "stays", "never")
	h.signal()
	h.await("configuration refused")
	h.await(why)

	in, out := "even", "odd"
	if n%2 == 1 {
		in, out = out, in
	}
	h.write("", "stays", in)
	h.signal()
	h.await("configuration in force")
	for name, want := range map[string]int{in: 200, out: 401} {
		if got := h.ask(h.client(name)); got != want {
			h.t.Errorf("round %d: %s got %d, want %d", n, name, got, want)
		}
	}
}

// client has the certificate of a PEP, and keeps its connections.
func (h *hup) client(name string) *http.Client {
	if h.clients[name] == nil {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: h.authority.Pool, Certificates: []tls.Certificate{h.authority.Client(name)}}}
		h.t.Cleanup(transport.CloseIdleConnections)
		h.clients[name] = &http.Client{Transport: transport, Timeout: patience}
	}
	return h.clients[name]
}

func (h *hup) ask(client *http.Client) int {
	const question = `{"subject":{"type":"user","id":"alice"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"tickets:create_ticket"}}`
	r, err := client.Post("https://"+h.addr+"/access/v1/evaluation", "application/json", strings.NewReader(question))
	if err != nil {
		h.t.Error(err)
		return 0
	}
	_, _ = io.Copy(io.Discard, r.Body)
	_ = r.Body.Close()
	return r.StatusCode
}

// stop stops the server, and counts what of all this is on record.
func (h *hup) stop() {
	h.t.Helper()
	for _, client := range h.clients { // a connection that was made and not used would have the server wait 5 s
		client.CloseIdleConnections()
	}
	if err := h.server.Process.Signal(syscall.SIGTERM); err != nil {
		h.t.Fatal(err)
	}
	for h.stderr.Scan() { // to its end, or it could not write
	}
	if err := h.server.Wait(); err != nil {
		h.t.Fatal(err)
	}
	if report := verify.Directory(h.data, verify.Options{}); !report.Verified() {
		h.t.Errorf("the log does not verify: %+v", report)
	}
	records, err := exec.CommandContext(h.t.Context(), "policy-service", "log", "export", "--data", h.data).Output()
	if err != nil {
		h.t.Fatal(err)
	}
	for event, want := range map[string]int{"configuration": hupRounds() + 1, "configuration_refused": hupRounds()} {
		if got := bytes.Count(records, []byte(`"event":"`+event+`"`)); got != want {
			h.t.Errorf("%d records of %s, want %d", got, event, want)
		}
	}
}
