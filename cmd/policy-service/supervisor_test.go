package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// supervisor is a socket as systemd has one. An address that begins with @ is in no file system.
func supervisor(t *testing.T, address string) *net.UnixConn {
	t.Helper()
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	must(t, err)
	t.Cleanup(func() { _ = socket.Close() })
	must(t, socket.SetReadDeadline(time.Now().Add(patience)))
	return socket
}

func heard(t *testing.T, socket *net.UnixConn, want string) {
	t.Helper()
	message := make([]byte, 100)
	n, err := socket.Read(message)
	if string(message[:n]) != want || err != nil {
		t.Errorf("heard %q and not %q (%v)", message[:n], want, err)
	}
}

// TestSupervisor: service and gateway say to what started them that they answer, and that they end.
func TestSupervisor(t *testing.T) {
	t.Parallel()
	gatewayFile := filepath.Join(t.TempDir(), "gateway.yaml")
	must(t, os.WriteFile(gatewayFile, []byte("resource: http://127.0.0.1:8181/mcp\nidentity: {static: {sub: alice}}\nupstreams: {wiki: {url: \"http://127.0.0.1:9/mcp\", allow_networks: [127.0.0.0/8]}}\n"), 0o600))
	kinds := []string{"file"}
	if runtime.GOOS == "linux" { // it alone has abstract addresses
		kinds = append(kinds, "abstract")
	}
	for name, args := range map[string][]string{
		"serve":       {"serve", "--policies", starter(t)},
		"mcp-gateway": {"mcp-gateway", "--config", gatewayFile, "--pdp-policies", starter(t)},
	} {
		for _, kind := range kinds {
			t.Run(name+" "+kind, func(t *testing.T) {
				t.Parallel()
				dir, err := os.MkdirTemp("", "s") // a short one: an address has 108 bytes
				must(t, err)
				t.Cleanup(func() { _ = os.RemoveAll(dir) })
				address := filepath.Join(dir, "socket")
				if kind == "abstract" {
					address = "@" + address
				}
				socket := supervisor(t, address)
				server, addr := supervised(t, address, dir, args)
				if heard(t, socket, "READY=1"); t.Failed() {
					t.Fatal(server.Stderr)
				}
				answer, err := http.Get("http://" + addr() + "/livez")
				if err != nil || answer.StatusCode != http.StatusOK {
					t.Fatalf("it says that it answers: %v %v", answer, err)
				}
				_ = answer.Body.Close()
				_, err = terminate(server)
				must(t, err)
				heard(t, socket, "STOPPING=1")
			})
		}
	}
}

// TestNoSupervisor: an address at which nothing hears is told in the log, and keeps nothing from starting.
func TestNoSupervisor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server, _ := supervised(t, filepath.Join(dir, "nothing"), dir, []string{"serve", "--policies", starter(t)})
	awaitAddr(t, server, filepath.Join(dir, "addr"), server.Stderr)

	_, err := terminate(server)
	must(t, err)
	if log := fmt.Sprint(server.Stderr); strings.Count(log, "the supervisor does not hear") != 2 {
		t.Error(log)
	}
}

// supervised starts a process with the address of a supervisor; its own address is there as soon as it answers.
func supervised(t *testing.T, address, dir string, args []string) (server *exec.Cmd, addr func() string) {
	t.Helper()
	file := filepath.Join(dir, "addr")
	server = exec.Command("policy-service", append(args, "--listen", "127.0.0.1:0", "--addr-file", file)...)
	server.Env = append(os.Environ(), "NOTIFY_SOCKET="+address)
	server.Stderr = new(bytes.Buffer)
	must(t, server.Start())
	t.Cleanup(func() {
		if err := server.Process.Kill(); !errors.Is(err, os.ErrProcessDone) {
			_ = server.Wait()
		}
	})
	return server, func() string {
		line, err := os.ReadFile(file)
		must(t, err)
		return strings.TrimSpace(string(line))
	}
}
