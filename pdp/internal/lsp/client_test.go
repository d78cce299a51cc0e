package lsp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
)

// patience is how long a test waits for an answer: longer than any machine stands still.
const patience = time.Minute

// editor is the other side: it speaks with a server as an editor does.
type editor struct {
	t     *testing.T
	dir   string
	to    io.WriteCloser
	heard chan message
	ended chan error
	ids   int
}

// begin starts a server for a bundle with these files, and greets it.
func begin(t *testing.T, files map[string]string) *editor {
	t.Helper()
	e := &editor{t: t, dir: t.TempDir(), heard: make(chan message, 64), ended: make(chan error, 1)}
	for name, text := range files {
		path := filepath.Join(e.dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	in, to := io.Pipe()
	from, out := io.Pipe()
	e.to = to
	go func() {
		e.ended <- Serve(t.Context(), in, out, Options{Rest: time.Millisecond})
		_ = out.Close()
	}()
	go func() {
		defer close(e.heard)
		w := wire{in: bufio.NewReader(from)}
		for {
			m, err := w.read()
			if err != nil {
				return
			}
			e.heard <- *m
		}
	}()
	t.Cleanup(func() { _ = to.Close() })
	e.ask("initialize", map[string]any{}, nil)
	return e
}

func (e *editor) raw(text string) {
	e.t.Helper()
	if _, err := io.WriteString(e.to, text); err != nil {
		e.t.Fatal(err)
	}
}

func (e *editor) send(m map[string]any) {
	e.t.Helper()
	m["jsonrpc"] = "2.0"
	text, err := json.Marshal(m)
	if err != nil {
		e.t.Fatal(err)
	}
	e.raw(fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(text), text))
}

func (e *editor) notify(method string, params any) {
	e.t.Helper()
	e.send(map[string]any{"method": method, "params": params})
}

// next is the next message that is of interest.
func (e *editor) next(is func(message) bool) message {
	e.t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case m, more := <-e.heard:
			if !more {
				e.t.Fatal("the server has ended")
			}
			if is(m) {
				return m
			}
		case <-timeout:
			e.t.Fatal("no answer")
		}
	}
}

// ask asks, and reads the answer. The error is that of the answer.
func (e *editor) ask(method string, params, result any) *fault {
	e.t.Helper()
	e.ids++
	id := fmt.Sprint(e.ids)
	e.send(map[string]any{"id": e.ids, "method": method, "params": params})
	m := e.next(func(m message) bool { return string(m.ID) == id })
	if m.Error == nil && result != nil {
		if err := json.Unmarshal(m.Result, result); err != nil {
			e.t.Fatalf("%s: %v", m.Result, err)
		}
	}
	return m.Error
}

func (e *editor) uri(file string) string { return uriOf(e.dir, file) }

func (e *editor) open(file, text string) {
	e.t.Helper()
	e.notify("textDocument/didOpen", map[string]any{"textDocument": map[string]any{"uri": e.uri(file), "languageId": "cedar", "version": 1, "text": text}})
}

func (e *editor) change(file, text string) {
	e.t.Helper()
	e.notify("textDocument/didChange", map[string]any{"textDocument": map[string]any{"uri": e.uri(file), "version": 2}, "contentChanges": []any{map[string]any{"text": text}}})
}

// clean waits until nothing is wrong with a file.
func (e *editor) clean(file string) {
	e.t.Helper()
	e.diagnostics(file, func(all []diagnostic) bool { return len(all) == 0 })
}

// wrong waits until something is wrong with a file, and returns what.
func (e *editor) wrong(file string) []diagnostic {
	e.t.Helper()
	return e.diagnostics(file, func(all []diagnostic) bool { return len(all) > 0 })
}

func (e *editor) diagnostics(file string, are func([]diagnostic) bool) (all []diagnostic) {
	e.t.Helper()
	e.next(func(m message) bool {
		var p diagnosticsParams
		if m.Method != "textDocument/publishDiagnostics" || json.Unmarshal(m.Params, &p) != nil || p.URI != e.uri(file) {
			return false
		}
		all = p.Diagnostics
		return are(all)
	})
	return all
}

// marked is a text without its mark ¦, and the position where that stood.
func marked(text string) (string, position) {
	at := strings.Index(text, "¦")
	text = strings.Replace(text, "¦", "", 1)
	return text, rangeOf(text, at, at).Start
}

// under opens a file with a mark in it, and asks about the mark.
func (e *editor) under(method, file, text string, result any) {
	e.t.Helper()
	text, at := marked(text)
	e.open(file, text)
	if bad := e.ask(method, map[string]any{"textDocument": map[string]any{"uri": e.uri(file)}, "position": at}, result); bad != nil {
		e.t.Fatal(bad)
	}
}
