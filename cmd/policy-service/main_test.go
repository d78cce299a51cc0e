package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/rogpeppe/go-internal/testscript"

	"policy-service/pdp/console/browsertest"
	"policy-service/pdp/decisionlog"
	"policy-service/pdp/pdptest"
)

// patience is how long a test waits for anything before it fails: longer than any machine
// stands still.
const patience = time.Minute

func TestMain(m *testing.M) {
	testscript.Main(browsing{m}, map[string]func(){"policy-service": main, "wiki-mcp-server": wikiServer, "edited-mcp-server": editedServer, "listed-mcp-server": listedServer})
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
func TestScript(t *testing.T) {
	authority := pdptest.NewAuthority(t)
	cert, key := authority.Server() // once: each call writes the same files anew, and transcripts run side by side
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority.Pool}}}
	t.Cleanup(client.CloseIdleConnections)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("STARTER", starter(t))
			e.Setenv("SCHEMAS", starter(t)+"/../../schemas")
			e.Setenv("GORACE", os.Getenv("GORACE")) // see make race
			e.Setenv("GOMAXPROCS", "1")             // a process that lasts a moment starts for a sixth less
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

func starter(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return dir + "/../../policies/starter"
}

// poll tries until it succeeds.
func poll(ts *testscript.TestScript, what string, try func() bool) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !try() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			ts.Fatalf("%s: not within %v", what, patience)
		}
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
	item := func(id string, inherits ...string) decisionlog.Entry {
		return decisionlog.Entry{ID: id, Kind: decisionlog.KindDecision, Tenant: "default", Inherits: inherits, Request: &decisionlog.Request{
			Subject: jsontext.Value(`{"type":"user","id":"bob"}`), Action: jsontext.Value(`{"name":"read"}`), Resource: jsontext.Value(`{"type":"doc","id":"plan"}`),
		}, Decision: &decisionlog.Decision{Allow: len(inherits) > 0}}
	}
	err = l.Append(context.Background(), []decisionlog.Entry{
		{ID: "b1", Kind: decisionlog.KindBatch, Tenant: "default", Request: &decisionlog.Request{Subject: jsontext.Value(`{"properties":{"team":"blue"}}`), Context: jsontext.Value(`{"purpose":"payroll"}`)}},
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

// code N COMMAND runs a command that must exit with N.
func code(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if fmt.Sprint(got) != args[0] {
		ts.Fatalf("exit %d, want %s", got, args[0])
	}
}

// writeFile writes a file, and makes the directories that it stands in.
func writeFile(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
