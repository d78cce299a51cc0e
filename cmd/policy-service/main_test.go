package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/rogpeppe/go-internal/testscript"

	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/browsertest"
	"policy-service/pdp/pdptest/filetree"
	"policy-service/pdp/pdptest/inside/cli"
	"policy-service/pdp/pdptest/inside/command"
	"policy-service/pdp/pdptest/inside/decisionlog"
	"policy-service/pdp/pdptest/inside/format"
	"policy-service/pdp/pdptest/inside/record"
)

// patience is how long a test waits for anything before it fails: longer than any machine
// stands still.
const patience = time.Minute

func TestMain(m *testing.M) {
	testscript.Main(browsing{m}, map[string]func(){"policy-service": main, "wiki-mcp-server": wikiServer, "edited-mcp-server": editedServer, "listed-mcp-server": listedServer, "echo-mcp-server": echoServer, "name-server": nameServer, "on-terminal": onTerminal})
}

// onTerminal runs a command on the terminal of its script. It ends once what the command wrote is read: a terminal has no room
// for so much behind it. Testscript drops what is not read when the command ends.
func onTerminal() {
	terminal, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		log.Fatal(err)
	}
	command := exec.Command(os.Args[1], os.Args[2:]...)
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, terminal, terminal
	if err := command.Run(); err != nil && command.ProcessState == nil {
		log.Fatal(err)
	}
	if _, err := terminal.Write(bytes.Repeat([]byte(" "), 1<<18)); err != nil {
		log.Fatal(err)
	}
	os.Exit(command.ProcessState.ExitCode())
}

// browsing ends the browser after the tests, if one was started, and removes the program, if it was built.
type browsing struct{ *testing.M }

func (b browsing) Run() int {
	defer func() { _ = os.RemoveAll(builtIn) }() // of "" it removes nothing
	return browsertest.Main(b.M)
}

// TestScript runs the transcripts in testdata/script. Besides testscript's own
// commands there are: batch DIR, await FILE, signal NAME, ask METHOD PATH [BODYFILE], hold FILE, and
// code N COMMAND, because here exit 1 and exit 2 mean different things. $SCHEMAS are those of the repository. $CERT and
// $KEY are a certificate for this machine, $CA is who signed it; credential FILE says what
// ask authenticates with.
//
// It takes half a minute of CPU: that is hundreds of processes. Nothing runs beside it but transcripts, so that they can change the
// working directory.
func TestScript(t *testing.T) {
	here, bundle, disk := cwd(t), starter(t), onDisk(t)
	t.Cleanup(func() {
		must(t, os.Chdir(here))
	})
	authority := pdptest.NewAuthority(t)
	cert, key := authority.Server() // once: each call writes the same files anew, and transcripts run side by side
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority.Pool}}}
	t.Cleanup(client.CloseIdleConnections)
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join(here, "testdata/script"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("STARTER", bundle)
			e.Setenv("DISK", disk)
			e.Setenv("SCHEMAS", bundle+"/../../schemas")
			e.Setenv("GORACE", os.Getenv("GORACE")) // see make race
			e.Setenv("CERT", cert)
			e.Setenv("KEY", key)
			e.Setenv("CA", authority.File)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"await":  await,
			"signal": signalServer,
			"ask":    asker(client),
			"code":   code,
			"credential": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Setenv("AUTHORIZATION", strings.TrimSpace(ts.ReadFile(args[0])))
			},
			"hold":  hold,
			"batch": batch,
		},
	})
}

// starter is the directory of a bundle of the checkout, for a program that a test starts.
func starter(t *testing.T) string {
	t.Helper()
	filetree.Checkout(t)
	return cwd(t) + "/../../policies/starter"
}

func cwd(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	must(t, err)
	return dir
}

// poll tries until it succeeds.
func poll(ts *testscript.TestScript, what string, try func() bool) {
	ts.Check(untilDone(context.Background(), what, func() (bool, error) { return try(), nil }))
}

// until asks again and again, for as long as a test has patience.
func until(t *testing.T, what string, done func() (bool, error)) {
	t.Helper()
	must(t, untilDone(t.Context(), what, done))
}

func untilDone(ctx context.Context, what string, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := done(); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		} else if ok {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: not within %v", what, patience)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// await FILE waits until a file exists; await FILE TEXT until it holds a text.
func await(ts *testscript.TestScript, _ bool, args []string) {
	poll(ts, strings.Join(args, " "), func() bool {
		content, err := os.ReadFile(ts.MkAbs(args[0]))
		return err == nil && (len(args) == 1 || strings.Contains(string(content), args[1]))
	})
}

var signals = map[string]syscall.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP}

// batch DIR appends a batch, b1, to the log of a data directory that nobody runs on: of its
// two items the second inherits.
func batch(ts *testscript.TestScript, _ bool, args []string) {
	l, err := decisionlog.Open(ts.MkAbs(args[0]), decisionlog.Options{})
	ts.Check(err)
	item := func(id string, inherits ...string) record.Entry {
		return record.Entry{ID: id, Kind: format.KindDecision, Tenant: "default", Inherits: inherits, Request: &record.Request{
			Subject: jsontext.Value(`{"type":"user","id":"bob"}`), Action: jsontext.Value(`{"name":"read"}`), Resource: jsontext.Value(`{"type":"doc","id":"plan"}`),
		}, Decision: &record.Decision{Allow: len(inherits) > 0}}
	}
	err = l.Append(context.Background(), []record.Entry{
		{ID: "b1", Kind: format.KindBatch, Tenant: "default", Request: &record.Request{Subject: jsontext.Value(`{"properties":{"team":"blue"}}`), Context: jsontext.Value(`{"purpose":"payroll"}`)}},
		item("b1.0"), item("b1.1", "subject", "context"),
	})
	ts.Check(errors.Join(err, l.Close()))
}

// signal NAME signals the command in the background.
func signalServer(ts *testscript.TestScript, _ bool, args []string) {
	for _, command := range ts.BackgroundCmds() {
		ts.Check(command.Process.Signal(signals[args[0]]))
	}
}

// asker makes ask METHOD PATH [BODYFILE [TEXT]], which asks the server whose address
// is in the file addr, and prints status and body; with TEXT it asks until the answer
// holds it. $SCHEME may be https, and $AUTHORIZATION is sent where it is set.
func asker(client *http.Client) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, _ bool, args []string) {
		url := cmp.Or(ts.Getenv("SCHEME"), "http") + "://" + strings.TrimSpace(ts.ReadFile("addr")) + args[1]
		body := ""
		if len(args) > 2 && args[2] != "-" {
			body = ts.ReadFile(args[2])
		}
		var answer string
		poll(ts, strings.Join(args, " "), func() bool {
			r, err := http.NewRequest(args[0], url, strings.NewReader(body))
			ts.Check(err)
			r.Header.Set("Content-Type", "application/json")
			if args[1] == "/mcp" {
				r.Header.Set("Accept", "application/json, text/event-stream")
			}
			if credential := ts.Getenv("AUTHORIZATION"); credential != "" {
				r.Header.Set("Authorization", credential)
			}
			w, err := client.Do(r)
			ts.Check(err)
			content, err := io.ReadAll(w.Body)
			ts.Check(err)
			_ = w.Body.Close()
			answer = fmt.Sprintf("%d %s\n", w.StatusCode, content)
			return len(args) < 4 || strings.Contains(answer, args[3])
		})
		_, _ = io.WriteString(ts.Stdout(), answer)
	}
}

// hold FILE writes an address of this machine to a file, which is given to nobody else
// until the transcript ends: a server that is started again finds it free. The socket that
// holds it does not listen, and so lets one that asks for this very port have it.
func hold(ts *testscript.TestScript, _ bool, args []string) {
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	ts.Check(err)
	syscall.CloseOnExec(socket)
	ts.Defer(func() { _ = syscall.Close(socket) })
	ts.Check(syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1))
	ts.Check(syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	at, err := syscall.Getsockname(socket)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), fmt.Appendf(nil, "127.0.0.1:%d\n", at.(*syscall.SockaddrInet4).Port), 0o600))
}

// code N COMMAND runs a command that must exit with N. To start this program takes most of the time of a short command, so
// where nothing depends on it the command runs in this process. With exec it has a process of its own.
func code(ts *testscript.TestScript, _ bool, args []string) {
	got := 0
	if args[1] == "policy-service" && runsInside(args[2:]) {
		got = inside(ts, args[2:])
	} else {
		err := ts.Exec(args[1], args[2:]...)
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			got = exit.ExitCode()
		} else if err != nil {
			ts.Fatalf("%v", err)
		}
	}
	if fmt.Sprint(got) != args[0] {
		ts.Fatalf("exit %d, want %s", got, args[0])
	}
}

// runsInside is true of commands that read neither the standard input nor the transcript's environment, and change nothing of
// their process.
func runsInside(args []string) bool {
	commands := []string{"access", "approvals", "bench", "capabilities", "check", "conformance", "eval", "health", "keys", "log", "mcp", "test"}
	return len(args) > 0 && slices.Contains(commands, args[0]) && !slices.Contains(args, "-")
}

// workplace has the working directory of this process, which a transcript takes for a command at a time.
var workplace sync.Mutex

func inside(ts *testscript.TestScript, args []string) int {
	workplace.Lock()
	defer workplace.Unlock()
	ts.Check(os.Chdir(ts.MkAbs(".")))
	return int(command.Run(args, cli.Streams{In: strings.NewReader(""), Out: ts.Stdout(), Err: ts.Stderr()}))
}

// writeFile writes a file, and makes the directories that it stands in.
func writeFile(t *testing.T, file, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(file), 0o700))
	must(t, os.WriteFile(file, []byte(text), 0o600))
}
