package lock

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/plainfile"
	"policy-service/pdp/internal/visible"
)

// Error is a mistake in a file, with its place and a remedy. It quotes only names of the file.
type Error struct {
	// File is its path; "" if the text is no file's.
	File         string
	Line, Column int
	// Pointer is the JSON Pointer of the mistake, escaped.
	Pointer     string
	Detail, Try string
}

func (e *Error) Error() string {
	where := fmt.Sprintf("%d:%d: ", e.Line, e.Column)
	if e.File != "" {
		where = e.File + ":" + where
	}
	if e.Pointer != "" {
		where += e.Pointer + ": "
	}
	return where + e.Detail + "; " + e.Try
}

// again is the remedy if a file is other than a command wrote it.
const again = "take back what was edited, or write the file again with: policy-service mcp lock --accept"

// Read reads a file.
func Read(path string) (File, error) {
	text, err := plainfile.Read(path, mostFile)
	if err != nil {
		return File{}, err
	}
	f, err := Parse(text)
	if e := (*Error)(nil); errors.As(err, &e) {
		e.File = path
	}
	return f, err
}

// Parse reads the content of a file. A file other than [File.Text] writes it is an error, of type [*Error]: a lock that was
// edited by hand has not been accepted. That comparison alone refuses other members, other digests and another order.
func Parse(text []byte) (File, error) {
	if len(text) > mostFile {
		return File{}, wrong(text, 0, "", fmt.Sprintf("it has more than %d bytes", mostFile), "lock fewer tools")
	}
	var said fileJSON
	if err := json.Unmarshal(text, &said); err != nil {
		return File{}, malformed(text, err)
	}
	switch {
	case said.Version == nil:
		return File{}, wrong(text, 0, "", "it lacks the version", again)
	case !bytes.Equal(said.Version, version):
		return File{}, wrong(text, 0, "/version", fmt.Sprintf("the version of the file is not %s, which is what this release reads", version),
			"use the release of policy-service that wrote it, or a newer one")
	case len(said.Servers) > mostServers:
		return File{}, wrong(text, 0, "/servers", fmt.Sprintf("there are more than %d servers", mostServers), "lock fewer")
	}
	f := File{Servers: make(map[string]Server, len(said.Servers))}
	for _, name := range sorted(said.Servers) {
		s, at, err := said.Servers[name].server(jsontext.Pointer("/servers").AppendToken(name))
		if err != nil {
			return File{}, wrong(text, 0, at, visible.Quoted(err.Error()), again)
		}
		f.Servers[name] = s
	}
	if want := f.Text(); !bytes.Equal(text, want) {
		at := 0
		for at < min(len(text), len(want)) && text[at] == want[at] {
			at++
		}
		return File{}, wrong(text, at, "", "from here on it is not as it was written: with the digest of each definition, sorted, indented by two spaces, with what cannot be seen escaped", again)
	}
	return f, nil
}

// server makes a server of the members at a pointer, and the digests anew. An error is at the returned pointer.
func (j serverJSON) server(at jsontext.Pointer) (s Server, where jsontext.Pointer, err error) {
	s = Server{j.Instructions, make(map[string]Tool, len(j.Tools))}
	for _, name := range sorted(j.Tools) {
		where := at.AppendToken("tools").AppendToken(name)
		text := j.Tools[name].Definition
		t, err := ParseTool(text)
		switch {
		case text == nil:
			err = errors.New("the definition is missing")
		case err == nil && t.name != name:
			err = errors.New("the definition is of a tool with another name")
		}
		if err != nil {
			return s, where, err
		}
		s.Tools[name] = t
	}
	return s, at, s.check()
}

// wrong is a mistake at a byte of the text.
func wrong(text []byte, offset int, pointer jsontext.Pointer, detail, try string) *Error {
	before := text[:min(offset, len(text))]
	return &Error{
		Line: 1 + bytes.Count(before, []byte("\n")), Column: 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]),
		Pointer: visible.Quoted(string(pointer)), Detail: detail, Try: try,
	}
}

func malformed(text []byte, err error) *Error {
	var syntax *jsontext.SyntacticError
	var form *json.SemanticError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return wrong(text, len(text), "", "it ends too early", again)
	case errors.As(err, &form):
		return wrong(text, int(form.ByteOffset), form.JSONPointer, "a lock has another value here", again)
	case !errors.As(err, &syntax):
		return wrong(text, 0, "", "it is no JSON", again)
	case errors.Is(err, jsontext.ErrDuplicateName):
		return wrong(text, int(syntax.ByteOffset), syntax.JSONPointer, "the name is there twice", again)
	}
	return wrong(text, int(syntax.ByteOffset), syntax.JSONPointer, "it is no JSON: git marks what it could not merge; an editor may have cut something off", again)
}

// version is of the format of the file.
//
// A file is one JSON object, indented by two spaces, with a line feed at its end:
//
//	{"version": 1, "servers": {NAME: {"instructions": TEXT, "tools": {NAME: {"digest": TEXT, "definition": {…}}}}}}
//
// Servers, tools and the members of definitions are sorted by name, the other members stand as above, and instructions are
// left out if there are none. Invisible characters are escaped, so that reviewers of the file read the same as a model.
// There is one way to write a file, and no other is read. Another member, anywhere but in a definition, needs another
// version: a reader that does not know a locked member must not take the rest for all.
var version = jsontext.Value("1")

// fileJSON, serverJSON and toolJSON are a file as it is written and read.
type fileJSON struct {
	Version jsontext.Value        `json:"version"`
	Servers map[string]serverJSON `json:"servers"`
}

type serverJSON struct {
	Instructions string              `json:"instructions,omitzero"`
	Tools        map[string]toolJSON `json:"tools"`
}

type toolJSON struct {
	Digest     string         `json:"digest"`
	Definition jsontext.Value `json:"definition"`
}

// Text is the content of the file.
func (f File) Text() []byte {
	all := fileJSON{Version: version, Servers: map[string]serverJSON{}}
	for name, s := range f.Servers {
		tools := map[string]toolJSON{}
		for name, t := range s.Tools {
			tools[name] = toolJSON{t.digest, t.Text()}
		}
		all.Servers[name] = serverJSON{s.Instructions, tools}
	}
	b, _ := json.Marshal(all, json.Deterministic(true), jsontext.AllowInvalidUTF8(true)) // what cannot be written cannot be read
	text := jsontext.Value(visible.Quoted(string(b)))
	_ = text.Indent(jsontext.WithIndent("  ")) // it is JSON
	return append(text, '\n')
}

// Write puts the file in the place of another one: a reader finds either the old one or the new one.
func (f File) Write(path string) error {
	text := f.Text()
	if _, err := Parse(text); err != nil { // it could not be read again
		return fmt.Errorf("it cannot be locked: %w", err)
	}
	return plainfile.Publish(path, text)
}
