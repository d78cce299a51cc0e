package lock

import (
	"fmt"

	"github.com/go-json-experiment/json"
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
