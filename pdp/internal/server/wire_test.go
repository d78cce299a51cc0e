package server_test

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

	"policy-service/pdp"
	"policy-service/pdp/pdptest"
)

var update = flag.Bool("update", false, "write the answers into testdata/wire")

// patience is how long a test waits for what must come before it fails instead of hanging.
const patience = time.Minute

// bundle is the one that all tests of this package ask.
func bundle(t testing.TB) pdp.Source {
	t.Helper()
	archive, err := os.ReadFile("testdata/bundle.txtar")
	must(t, err)
	return pdptest.Txtar(string(archive))
}

// TestWire holds the whole wire behaviour in testdata/wire: NAME.request is sent
// as it stands, but with CRLF after each line of the header, and NAME.response
// is the status line, the headers that mean something, and the body, with one
// newline more. "Content-Length: auto" stands for the true length.
func TestWire(t *testing.T) {
	t.Parallel()
	goldens(t, "testdata/wire", func(t *testing.T) *pdptest.Server { return pdptest.Start(t, bundle(t)) })
}

// goldens runs the archives of a directory, each with a server of its own, so that
// ids count from 1.
func goldens(t *testing.T, dir string, start func(*testing.T) *pdptest.Server) {
	files, err := filepath.Glob(dir + "/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no goldens: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			golden(t, file, start(t).Addr())
		})
	}
}

func golden(t *testing.T, file, addr string) {
	archive, err := txtar.ParseFile(file)
	must(t, err)
	got := &txtar.Archive{Comment: archive.Comment}
	for _, f := range archive.Files {
		name, isRequest := strings.CutSuffix(f.Name, ".request")
		if !isRequest {
			continue
		}
		answer := []byte(exchange(t, addr, rawRequest(f.Data)))
		if want := find(archive, name+".response"); !*update && !bytes.Equal(want, answer) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, answer, want)
		}
		got.Files = append(got.Files, f, txtar.File{Name: name + ".response", Data: answer})
	}
	if *update {
		must(t, os.WriteFile(file, txtar.Format(got), 0o644))
	}
}

func find(archive *txtar.Archive, name string) []byte {
	for _, f := range archive.Files {
		if f.Name == name {
			return f.Data
		}
	}
	return nil
}

func rawRequest(text []byte) []byte {
	header, body, _ := strings.Cut(string(text), "\n\n")
	body = strings.TrimSuffix(body, "\n")
	header = strings.TrimSuffix(header, "\n")
	header = strings.Replace(header, "Content-Length: auto", fmt.Sprintf("Content-Length: %d", len(body)), 1)
	return []byte(strings.ReplaceAll(header, "\n", "\r\n") + "\r\n\r\n" + body)
}

// exchange sends bytes and returns the answer as the goldens hold it.
func exchange(t testing.TB, addr string, request []byte) string {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, patience)
	must(t, err)
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(patience))
	go func() { _, _ = conn.Write(request) }() // the answer may come before all is sent
	method, _, _ := strings.Cut(string(request), " ")
	answer, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("no answer to %.80q: %v", request, err)
	}
	body, err := io.ReadAll(answer.Body)
	must(t, err)
	_ = answer.Body.Close()
	// What net/http refuses before it is a request is all that may go without these.
	if answer.Header.Get("Cache-Control") != "" && !hardened(answer.Header) {
		t.Errorf("the answer to %.80q lacks a header of security: %v", request, answer.Header)
	}
	var b strings.Builder
	fmt.Fprintln(&b, answer.Proto, answer.Status)
	for _, name := range slices.Sorted(maps.Keys(answer.Header)) {
		switch name {
		case "Date", "Content-Length", "X-Content-Type-Options", "Content-Security-Policy":
			continue
		}
		for _, value := range answer.Header[name] {
			fmt.Fprintf(&b, "%s: %s\n", name, value)
		}
	}
	fmt.Fprintf(&b, "\n%s\n", body)
	return b.String()
}

func hardened(h http.Header) bool {
	return h.Get("X-Content-Type-Options") == "nosniff" && h.Get("Content-Security-Policy") == "default-src 'none'; frame-ancestors 'none'"
}
