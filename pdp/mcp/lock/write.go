package lock

import (
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/plainfile"
	"policy-service/pdp/visible"
)

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
const version = 1

// Text is the content of the file.
func (f File) Text() []byte {
	b := append([]byte(`{"version":`), strconv.Itoa(version)...)
	b = append(b, `,"servers":{`...)
	for i, name := range sorted(f.Servers) {
		b = f.Servers[name].append(appendName(b, i, name))
	}
	text := jsontext.Value(visible.Quoted(string(append(b, "}}"...))))
	_ = text.Indent(jsontext.WithIndent("  ")) // it is JSON
	return append(text, '\n')
}

func (s Server) append(b []byte) []byte {
	b = append(b, '{')
	if s.Instructions != "" {
		b = append(appendQuoted(append(b, `"instructions":`...), s.Instructions), ',')
	}
	b = append(b, `"tools":{`...)
	for i, name := range sorted(s.Tools) {
		t := s.Tools[name]
		b = append(appendName(b, i, name), `{"digest":`...)
		b = append(appendQuoted(b, t.digest), `,"definition":`...)
		b = append(append(b, t.Text()...), '}')
	}
	return append(b, "}}"...)
}

func appendName(b []byte, n int, name string) []byte {
	if n > 0 {
		b = append(b, ',')
	}
	return append(appendQuoted(b, name), ':')
}

func appendQuoted(b []byte, text string) []byte {
	b, _ = jsontext.AppendQuote(b, text) // invalid UTF-8 becomes U+FFFD
	return b
}

// Write puts the file in the place of another one: a reader finds either the old one or the new one.
func (f File) Write(path string) error {
	text := f.Text()
	if _, err := Parse(text); err != nil { // it could not be read again
		return fmt.Errorf("it cannot be locked: %w", err)
	}
	return plainfile.Publish(path, text)
}
