// Package lsp is a language server for the files of a bundle. [Serve] speaks with one editor.
//
//	wire.go       frames of JSON-RPC; other bytes are passed over
//	protocol.go   the parts of the protocol that are used
//	lsp.go        the answers to messages
//	workspace.go  the open documents, their bundles, and the problems of those
//	cursor.go     the word under the cursor
//	answers.go    the answers about it
//	uses.go       the names that a file defines and uses; usesschema.go those of a schema; members.go the owners of attributes
//	places.go     where those stand in a bundle
//	mend.go       the edits that mend problems
//	text.go       places in a text, as each side counts them
//
// The problems of a bundle are those of [pdp.Check] and [pdp.Examples], with the texts that the editor has not saved yet, so
// policy-service check finds the same. Nothing is written: the editor gets the edits.
package lsp

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
)

// Options of a server. The zero value is ready to use.
type Options struct {
	// Now is the clock of [pdp.Check]; the default is time.Now.
	Now func() time.Time
	// Rest is how long an author must rest before a bundle is checked; the default is 150 ms.
	Rest time.Duration
}

// ErrNoShutdown is the error of an editor that goes without saying so.
var ErrNoShutdown = errors.New("the editor ended without a shutdown")

// Serve answers an editor until it says exit, or its stream ends.
func Serve(ctx context.Context, in io.Reader, out io.Writer, o Options) error {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Rest == 0 {
		o.Rest = 150 * time.Millisecond
	}
	s := &server{wire: wire{in: bufio.NewReader(in), out: out}, options: o}
	s.workspace = newWorkspace(s)
	var checks sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer checks.Wait()
	defer cancel()
	checks.Go(func() { s.workspace.run(ctx) })
	for {
		m, err := s.wire.read()
		var bad *fault
		switch {
		case errors.As(err, &bad):
			err = s.wire.answer(nil, nil, bad)
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return ErrNoShutdown
		case err == nil && m.Method == "exit":
			if s.state != ending {
				return ErrNoShutdown
			}
			return nil
		case err == nil:
			err = s.take(m)
		}
		if err != nil {
			return err
		}
	}
}

type server struct {
	wire      wire
	options   Options
	workspace *workspace
	state     state
}

// state is how far an editor has come.
type state uint8

const (
	greeting state = iota // it has not said initialize
	working
	ending // it has said shutdown
)

// take takes one message. The error is that of the wire.
func (s *server) take(m *message) error {
	if m.Method == "" {
		return nil // an answer: nothing was asked
	}
	result, err := s.handle(m)
	if len(m.ID) == 0 {
		return nil // a notification has no answer
	}
	return s.wire.answer(m.ID, result, err)
}

// handle executes a message. The result nil is the null of JSON.
func (s *server) handle(m *message) (any, error) {
	switch {
	case m.Method == "initialize":
		s.state = working
		return abilities, nil
	case s.state == greeting:
		return nil, &fault{notInitialized, "the first request is initialize"}
	case s.state == ending:
		return nil, &fault{invalidRequest, "after shutdown only exit comes"}
	}
	if m.Method == "shutdown" { // whatever its parameters are
		s.state = ending
		return nil, nil
	}
	do, known := methods[m.Method]
	if !known {
		return nil, &fault{unknownMethod, "this method is not known"}
	}
	var p params
	if err := json.Unmarshal([]byte(cmp.Or(string(m.Params), "null")), &p); err != nil {
		return nil, &fault{invalidParams, "these are no parameters of " + m.Method}
	}
	return do(s.workspace, &p, p.TextDocument.URI), nil
}

// methods are those that work on the files.
var methods = map[string]func(w *workspace, p *params, uri string) any{
	"textDocument/didOpen": func(w *workspace, p *params, uri string) any {
		w.set(uri, p.TextDocument.Version, p.TextDocument.Text)
		return nil
	},
	"textDocument/didChange": func(w *workspace, p *params, uri string) any {
		if n := len(p.ContentChanges); n > 0 {
			w.set(uri, p.TextDocument.Version, p.ContentChanges[n-1].Text)
		}
		return nil
	},
	"textDocument/didSave":    func(w *workspace, _ *params, uri string) any { w.touch(uri); return nil },
	"textDocument/didClose":   func(w *workspace, _ *params, uri string) any { w.forget(uri); return nil },
	"textDocument/hover":      func(w *workspace, p *params, uri string) any { return w.hover(uri, p.Position) },
	"textDocument/completion": func(w *workspace, p *params, uri string) any { return w.complete(uri, p.Position) },
	"textDocument/definition": func(w *workspace, p *params, uri string) any { return w.find(uri, p.Position, true, false) },
	"textDocument/references": func(w *workspace, p *params, uri string) any {
		return w.find(uri, p.Position, p.Context.IncludeDeclaration, true)
	},
	"textDocument/documentSymbol": func(w *workspace, _ *params, uri string) any { return w.symbols(uri) },
	"textDocument/codeAction":     func(w *workspace, p *params, _ string) any { return w.actions(p) },
	"textDocument/formatting":     func(w *workspace, _ *params, uri string) any { return w.format(uri) },
}
