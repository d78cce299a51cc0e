package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/textproto"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// languageServer is the program as an editor starts it.
type languageServer struct {
	t    *testing.T
	to   io.Writer
	from *bufio.Reader
}

func (l *languageServer) send(m map[string]any) {
	l.t.Helper()
	m["jsonrpc"] = "2.0"
	text, err := json.Marshal(m)
	if err == nil {
		_, err = fmt.Fprintf(l.to, "Content-Length: %d\r\n\r\n%s", len(text), text)
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

// until reads messages up to one that holds a text.
func (l *languageServer) until(text string) string {
	l.t.Helper()
	for {
		header, err := textproto.NewReader(l.from).ReadMIMEHeader()
		if err != nil {
			l.t.Fatal(err)
		}
		n, err := strconv.Atoi(header.Get("Content-Length"))
		if err != nil {
			l.t.Fatal(err)
		}
		body := make([]byte, n)
		if _, err := io.ReadFull(l.from, body); err != nil {
			l.t.Fatal(err)
		}
		if strings.Contains(string(body), text) {
			return string(body)
		}
	}
}

// An editor drives the program: what is not saved gets its diagnostic, garbage ends nothing, and exit ends it with 0.
func TestLanguageServer(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a bundle") // whose URI has a %20
	must(t, os.CopyFS(dir, os.DirFS(starter(t))))
	program := exec.CommandContext(t.Context(), "policy-service", "lsp", "--stdio")
	to, err := program.StdinPipe()
	must(t, err)
	from, err := program.StdoutPipe()
	must(t, err)
	var said strings.Builder
	program.Stderr = &said
	must(t, program.Start())
	l := &languageServer{t, to, bufio.NewReader(from)}
	if _, err := io.WriteString(to, "garbage\r\n\r\nContent-Length: 3\r\n\r\n{]}"); err != nil {
		t.Fatal(err)
	}
	l.until("-32700")
	l.send(map[string]any{"id": 1, "method": "initialize", "params": map[string]any{"processId": nil, "rootUri": nil, "capabilities": map[string]any{}}})
	l.until(`"completionProvider"`)
	l.send(map[string]any{"method": "initialized", "params": map[string]any{}})
	begun := time.Now()
	uri := "file://" + strings.ReplaceAll(filepath.ToSlash(dir), " ", "%20") + "/people.cedar"
	l.send(map[string]any{"method": "textDocument/didOpen", "params": map[string]any{"textDocument": map[string]any{
		"uri": uri, "languageId": "cedar", "version": 1, "text": `permit (principal is Usr, action, resource);`}}})
	if got := l.until(`"severity":1`); !strings.Contains(got, uri) || !strings.Contains(got, "Usr") {
		t.Errorf("got %s", got)
	}
	l.send(map[string]any{"id": 3, "method": "textDocument/codeAction", "params": map[string]any{"textDocument": map[string]any{"uri": uri},
		"range": map[string]any{"start": map[string]any{"line": 0, "character": 24}, "end": map[string]any{"line": 0, "character": 24}}}})
	if got := l.until(`"id":3`); !strings.Contains(got, `"title":"Write User"`) || !strings.Contains(got, `"isPreferred":true`) {
		t.Errorf("got %s", got)
	}
	t.Logf("the diagnostic came after %v", time.Since(begun))
	l.send(map[string]any{"id": 2, "method": "shutdown"})
	l.until(`"id":2`)
	l.send(map[string]any{"method": "exit"})
	if err := program.Wait(); err != nil || said.Len() > 0 {
		t.Errorf("it ended with %v and said %q", err, &said)
	}
}
