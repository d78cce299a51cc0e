package gate

import (
	"encoding/json"
	"sync"

	"policy-service/pdp/mcp/internal/arguments"
	"policy-service/pdp/mcp/lock"
)

// schemas are the inputSchemas of locked tools, each compiled once: as they are locked, and not as some server lists them for
// some client. What is no longer locked goes with the file in which it was.
type schemas struct {
	members arguments.Members

	mu   sync.Mutex
	file *lock.File
	all  map[string]compiledSchema // by the digest of the tool's definition
}

type compiledSchema struct {
	schema *arguments.Schema
	err    error
}

// of is the schema of a tool that is as the file has it locked.
func (s *schemas) of(file *lock.File, server, name string) (*arguments.Schema, error) {
	t := file.Servers[server].Tools[name]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != file {
		s.file, s.all = file, map[string]compiledSchema{}
	}
	made, ok := s.all[t.Digest()]
	if !ok {
		made.schema, made.err = s.compile(t)
		s.all[t.Digest()] = made
	}
	return made.schema, made.err
}

func (s *schemas) compile(t lock.Tool) (*arguments.Schema, error) {
	schema, ok := t.Definition().Lookup("inputSchema")
	if !ok {
		return arguments.Compile(nil, s.members)
	}
	text, err := json.Marshal(schema)
	if err != nil {
		return nil, err
	}
	return arguments.Compile(text, s.members)
}
