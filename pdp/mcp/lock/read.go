package lock

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/plainfile"
	"policy-service/pdp/visible"
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
// edited by hand has not been accepted.
func Parse(text []byte) (File, error) {
	if len(text) > mostFile {
		return File{}, &Error{Line: 1, Column: 1, Detail: fmt.Sprintf("it has more than %d bytes", mostFile), Try: "lock fewer tools"}
	}
	r := &reader{text: text, in: jsontext.NewDecoder(bytes.NewReader(text))}
	f, err := r.file()
	if err != nil {
		return File{}, err
	}
	if want := f.Text(); !bytes.Equal(text, want) {
		at := 0
		for at < min(len(text), len(want)) && text[at] == want[at] {
			at++
		}
		return File{}, r.wrongAt(at, "", "from here on it is not as it was written: sorted, indented by two spaces, with what cannot be seen escaped", again)
	}
	return f, nil
}

func quoted(name string) string { return visible.Quoted(strconv.Quote(name)) }

// reader goes through the text, and knows where it is.
type reader struct {
	text []byte
	in   *jsontext.Decoder
}

// wrong is an error at the place that was read last.
func (r *reader) wrong(try, format string, args ...any) error {
	return r.wrongAt(int(r.in.InputOffset()), string(r.in.StackPointer()), fmt.Sprintf(format, args...), try)
}

func (r *reader) wrongAt(offset int, pointer, detail, try string) error {
	before := r.text[:min(offset, len(r.text))]
	return &Error{
		Line: 1 + bytes.Count(before, []byte("\n")), Column: 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]),
		Pointer: visible.Quoted(pointer), Detail: detail, Try: try,
	}
}

// broken is an error of the decoder.
func (r *reader) broken(err error) error {
	var e *jsontext.SyntacticError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return r.wrongAt(len(r.text), "", "it ends too early", again)
	case !errors.As(err, &e):
		return r.wrong(again, "it is no JSON")
	case errors.Is(err, jsontext.ErrDuplicateName):
		return r.wrongAt(int(e.ByteOffset), string(e.JSONPointer), "the name is there twice", again)
	}
	return r.wrongAt(int(e.ByteOffset), string(e.JSONPointer), "it is no JSON: git marks what it could not merge; an editor may have cut something off", again)
}

func (r *reader) file() (f File, err error) {
	seen := 0
	err = r.object(func(name string) (err error) {
		seen++
		switch name {
		case "version":
			return r.version()
		case "servers":
			f.Servers, err = entries(r, mostServers, "servers", r.server)
			return err
		}
		return r.wrong(again, "%s is no member of a lock: it has version and servers", quoted(name))
	})
	if err != nil {
		return f, err
	}
	if _, err := r.in.ReadToken(); err != io.EOF {
		return f, r.wrong(again, "something follows the lock")
	}
	if seen != 2 {
		return f, r.wrongAt(0, "", "it lacks version or servers", again)
	}
	return f, nil
}

func (r *reader) version() error {
	v, err := r.in.ReadValue()
	if err != nil {
		return r.broken(err)
	}
	if string(v) != fmt.Sprint(version) {
		return r.wrong("use the release of policy-service that wrote it, or a newer one", "the version of the file is not %d, which is what this release reads", version)
	}
	return nil
}

func (r *reader) server(string) (s Server, err error) {
	err = r.object(func(name string) (err error) {
		switch name {
		case "instructions":
			s.Instructions, err = r.string()
		case "tools":
			s.Tools, err = entries(r, mostTools, "tools", r.tool)
		default:
			err = r.wrong(again, "%s is no member of a server: it has instructions and tools", quoted(name))
		}
		return err
	})
	if err == nil && s.Tools == nil {
		err = r.wrong(again, "the server lacks tools")
	}
	if err == nil && s.check() != nil {
		err = r.wrong(again, "%s", s.check())
	}
	return s, err
}

func (r *reader) tool(called string) (t Tool, err error) {
	digest := ""
	err = r.object(func(name string) (err error) {
		switch name {
		case "digest":
			digest, err = r.string()
		case "definition":
			t, err = r.definition()
		default:
			err = r.wrong(again, "%s is no member of a tool: it has digest and definition", quoted(name))
		}
		return err
	})
	switch {
	case err != nil:
		return t, err
	case t.name == "" || t.name != called:
		return t, r.wrong(again, "the definition is missing, or it is of a tool with another name")
	case t.digest != digest:
		return t, r.wrong(again, "the digest is missing, or it is not that of the definition: one of them was edited")
	}
	return t, nil
}

func (r *reader) definition() (Tool, error) {
	v, err := r.in.ReadValue()
	if err != nil {
		return Tool{}, r.broken(err)
	}
	t, err := ParseTool(v)
	if err == nil {
		return t, nil
	}
	var e *evaluation.Error
	if errors.As(err, &e) {
		return t, r.wrongAt(int(r.in.InputOffset())-len(v), string(r.in.StackPointer())+e.Pointer, "the definition cannot be used: "+visible.Quoted(e.Detail), again)
	}
	return t, r.wrong(again, "%s", visible.Quoted(err.Error()))
}

func (r *reader) string() (string, error) {
	token, err := r.in.ReadToken()
	switch {
	case err != nil:
		return "", r.broken(err)
	case token.Kind() != '"':
		return "", r.wrong(again, "it is not a text")
	}
	return token.String(), nil
}

// object reads an object, and has each of its members read.
func (r *reader) object(member func(name string) error) error {
	token, err := r.in.ReadToken()
	switch {
	case err != nil:
		return r.broken(err)
	case token.Kind() != '{':
		return r.wrong(again, "it is not an object")
	}
	for r.in.PeekKind() != '}' {
		token, err := r.in.ReadToken()
		if err != nil {
			return r.broken(err)
		}
		if err := member(token.String()); err != nil {
			return err
		}
	}
	if _, err = r.in.ReadToken(); err != nil {
		return r.broken(err)
	}
	return nil
}

// entries reads an object whose members are named by people.
func entries[V any](r *reader, most int, what string, read func(name string) (V, error)) (map[string]V, error) {
	all, last := map[string]V{}, ""
	err := r.object(func(name string) (err error) {
		switch {
		case len(all) > 0 && strings.Compare(last, name) > 0:
			return r.wrong(again, "%s stands behind %s: %s are sorted by name", quoted(name), quoted(last), what)
		case len(all) == most:
			return r.wrong("lock fewer", "there are more than %d %s", most, what)
		}
		all[name], err = read(name)
		last = name
		return err
	})
	return all, err
}
