package link

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/mcp/internal/arguments"
	"policy-service/pdp/internal/mcp/internal/ask"
	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/mcp/internal/upstream"
	"policy-service/pdp/internal/mcp/lock"
	"policy-service/pdp/internal/rpc"
)

// Each listing is compared with the lock, and is kept only for a short time. So a call notices a change since the list.

// Lock is the accepted state of servers. The zero Lock compares nothing.
type Lock struct {
	File *lock.Followed
	// Enforce hides tools that differ from the lock. Without it they are listed, and policies see the difference.
	Enforce bool
	// Arguments are the members that arguments of locked tools may have.
	Arguments arguments.Members
	// Record records a drift at the PDP, in a request with that id. Nil records nothing.
	Record func(ctx context.Context, d Drift, id string) error
}

// current returns the lock file, nil if nothing is compared.
func (l Lock) current() *lock.File {
	if l.File == nil {
		return nil
	}
	return l.File.Current()
}

// LetsPass reports whether a tool is not as it is locked, and may be called all the same.
func (g *Servers) LetsPass(t *Tool) bool {
	return t != nil && !t.Pinned && !g.o.Lock.Enforce && g.o.Lock.current() != nil
}

// locking is the part of a listing that is compared with the lock.
type locking struct {
	file *lock.File // nil if nothing is compared
	// compiled are all tools that can be decided about, including hidden ones, by the server's own names.
	compiled map[string]*Tool
	// other are tools that differ from the lock, and tools that cannot be decided about.
	other map[string]lock.Tool
}

func newLocking(file *lock.File) locking {
	return locking{file, map[string]*Tool{}, map[string]lock.Tool{}}
}

func (k *locking) pins(t *ask.Tool) bool {
	return k.file != nil && k.file.Servers[t.Server].Tools[t.Name].Digest() == t.Digest
}

// differs adds a definition to the comparison.
func (k *locking) differs(definition jsontext.Value) {
	if k.file == nil {
		return
	}
	if t, err := lock.ParseTool(definition); err == nil {
		k.other[t.Name()] = t
	}
}

// again notes a tool that is left out because another has a similar name. If the names are equal, it is unknown which tool a
// call would reach, and neither is compared.
func (k *locking) again(name string, definition jsontext.Value) {
	if _, noted := k.other[name]; !noted && k.compiled[name] == nil {
		k.differs(definition)
		return
	}
	delete(k.compiled, name)
	delete(k.other, name)
}

// admits adds a compiled tool to the comparison, and reports whether clients get it.
func (k *locking) admits(t *Tool, l Lock) bool {
	k.compiled[t.Name] = t
	if k.file == nil || t.Pinned {
		return true
	}
	k.differs(t.Definition)
	return !l.Enforce
}

// found returns the locked and the listed server, without the tools that the operator hides.
func (k *locking) found(s *Server, instructions string) (locked, found lock.Server) {
	locked = k.file.Servers[s.Name]
	locked.Tools = maps.Clone(locked.Tools)
	maps.DeleteFunc(locked.Tools, func(name string, _ lock.Tool) bool { return s.Hidden[name] })
	found = lock.Server{Instructions: instructions, Tools: maps.Clone(k.other)}
	for name, t := range k.compiled {
		if t.Pinned {
			found.Tools[name] = locked.Tools[name]
		}
	}
	return locked, found
}

// compare notes and reports the differences of a listing from the lock.
func (g *Servers) compare(l *Link, all *Listing) {
	if all.file == nil || all.file != g.o.Lock.current() { // the next listing will be compared
		return
	}
	locked, found := all.found(l.Server, instructionsOf(all.Of))
	g.note(l, all.file, lock.CompareServer(l.Server.Name, locked, found), true)
}

func instructionsOf(s upstream.Session) string {
	o, _ := rpc.ParseObject(s.Server())
	return o.GetString("instructions")
}

// Introduces returns the server's description of itself for clients, with the locked instructions.
func (l *Link) Introduces(s upstream.Session) jsontext.Value {
	g := l.of
	file := g.o.Lock.current()
	if file == nil {
		return s.Server()
	}
	o, err := rpc.ParseObject(s.Server())
	said := lock.Server{Instructions: o.GetString("instructions")}
	locked := lock.Server{Instructions: file.Servers[l.Server.Name].Instructions}
	if said.Instructions == locked.Instructions {
		return s.Server()
	}
	g.note(l, file, lock.CompareServer(l.Server.Name, locked, said), false)
	switch {
	case err != nil || !g.o.Lock.Enforce:
		return s.Server()
	case locked.Instructions == "":
		return o.Without(func(name string) bool { return name == "instructions" }).Value()
	}
	return o.With("instructions", rpc.String(locked.Instructions)).Value()
}

// Survey lists a server for the operator's own client. The list contains hidden tools, and tools that cannot be used.
func (g *Servers) Survey(ctx context.Context, s *Server, who *identity.Principal, info jsontext.Value) (lock.Server, error) {
	c := Client{Era: era.Modern, Version: era.ModernVersions[0], Info: info, Capabilities: rpc.Object{}.Value()}
	l := g.newLink(s, who, c)
	defer l.close()
	listed, err := g.fetch(ctx, l, who, c, &lock.File{}, nil)
	if err != nil {
		return lock.Server{}, err
	}
	return lock.Of(instructionsOf(listed.Of), slices.Collect(maps.Values(listed.other)))
}

// schemas holds the inputSchemas of locked tools, each compiled once. It uses the locked schema, not the one that a server
// lists for one client. A new lock file drops the old schemas.
type schemas struct {
	mu   sync.Mutex
	file *lock.File
	all  map[string]compiledSchema // by the digest of the tool's definition
}

type compiledSchema struct {
	schema *arguments.Schema
	err    error
}

// schema returns the schema of a tool that is as locked in the file; nil if its arguments go unjudged.
func (g *Servers) schema(file *lock.File, server, name string) (*arguments.Schema, error) {
	made, unjudged := g.schemas.made(file, file.Servers[server].Tools[name], g.o.Lock.Arguments)
	if unjudged != nil { // not while holding the mutex: a log may block
		g.o.Logger.Warn("the arguments of a tool are not held against its inputSchema", slog.Group("", "server", server), "tool", name, "why", unjudged)
	}
	return made.schema, made.err
}

// made compiles the schema of a tool once. The call that compiles it gets the reason if the arguments go unjudged.
func (s *schemas) made(file *lock.File, t lock.Tool, m arguments.Members) (made compiledSchema, unjudged error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != file {
		s.file, s.all = file, map[string]compiledSchema{}
	}
	made, ok := s.all[t.Digest()]
	if !ok {
		made.schema, unjudged, made.err = Schema(t, m)
		s.all[t.Digest()] = made
	}
	return made, unjudged
}

// Schema compiles the inputSchema of a locked tool. The arguments of a tool go unjudged if its schema cannot be compiled,
// unless arguments are closed: an operator who wants unlisted members refused gets no tool that accepts them.
func Schema(t lock.Tool, m arguments.Members) (schema *arguments.Schema, unjudged, err error) {
	var text []byte
	if v, ok := t.Definition().Lookup("inputSchema"); ok {
		if text, err = json.Marshal(v); err != nil {
			return nil, nil, err
		}
	}
	switch schema, err = arguments.Compile(text, m); {
	case err != nil && m != arguments.Closed:
		return nil, err, nil
	case err != nil:
		return nil, nil, err
	}
	return schema, nil, nil
}
