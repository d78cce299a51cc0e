// Package lock holds the accepted definitions of tools. Strangers write definitions, and change them without notice: the
// gateway compares the file with the present list of a server.
//
// Begin with [Read] and [Compare]. [ParseTool] makes a tool of a definition, and is the one place where its digest is made.
// [Follow] keeps a file's content as it changes.
//
// The package asks no server, and decides nothing: it lists differences.
package lock

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
)

// File has the locked servers, by the operator's names of them.
type File struct{ Servers map[string]Server }

// Server has the texts of a server that a model reads.
type Server struct {
	// Instructions are the server's; "" is none.
	Instructions string
	// Tools are its tools, by its own names.
	Tools map[string]Tool
}

// Tool is a definition of a tool that can be read in one way only. [ParseTool] makes one.
type Tool struct {
	name, digest string
	definition   evaluation.Object
}

// Limits of a file and its parts. A server that has more cannot be locked.
const (
	mostFile    = 64 << 20 // bytes
	mostServers = 100
	mostTools   = 1000 // of a server, which is as many as a gateway lists
	// MostInstructions is the size of a server's instructions in bytes.
	MostInstructions = 64 << 10
)

var definitionLimits = evaluation.Limits{Body: 256 << 10, Depth: 64, Values: 20_000}

// ParseTool reads a definition.
func ParseTool(definition []byte) (Tool, error) {
	d, err := evaluation.ParseWithNulls(definition, definitionLimits)
	if err != nil {
		return Tool{}, fmt.Errorf("the definition: %w", err)
	}
	name, _ := d.Get("name")
	if name.Kind() != evaluation.String || name.Text() == "" {
		return Tool{}, errors.New("the definition has no name")
	}
	text, ok := d.Value().AppendCanonical(nil)
	if !ok {
		return Tool{}, errors.New("the definition has a number that is too large to be compared")
	}
	return Tool{name.Text(), digest(text), d}, nil
}

// Name is the server's own name of the tool.
func (t Tool) Name() string { return t.name }

// Digest is base64url of the SHA-256 of the canonical definition, as it stands in questions.
func (t Tool) Digest() string { return t.digest }

// Definition is the whole definition.
func (t Tool) Definition() evaluation.Object { return t.definition }

// Text is the definition in JSON, the same for all ways of writing it.
func (t Tool) Text() jsontext.Value { return canonical(t.definition) }

// body is the digest of all but the name.
func (t Tool) body() string {
	return digest(canonical(t.definition.Without(func(name string) bool { return name == "name" })))
}

// canonical is the one text of a definition, or of a part of one: ParseTool has seen that it can be written.
func canonical(o evaluation.Object) []byte {
	text, _ := o.Value().AppendCanonical(nil)
	return text
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// Of is a server with these instructions and tools.
func Of(instructions string, tools []Tool) (Server, error) {
	s := Server{instructions, map[string]Tool{}}
	for _, t := range tools {
		if _, twice := s.Tools[t.name]; twice {
			return Server{}, fmt.Errorf("the server lists two tools by the name %q", t.name)
		}
		s.Tools[t.name] = t
	}
	return s, s.check()
}

// check finds values that no file can hold.
func (s Server) check() error {
	switch {
	case len(s.Instructions) > MostInstructions:
		return fmt.Errorf("the instructions have more than %d bytes", MostInstructions)
	case len(s.Tools) > mostTools:
		return fmt.Errorf("there are more than %d tools", mostTools)
	}
	return nil
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
