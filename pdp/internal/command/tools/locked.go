package tools

import (
	"maps"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/internal/mcp/lock"
	"policy-service/pdp/internal/spelling"
)

// tools are those of a lock.
type tools struct {
	file    lock.File
	servers []string         // sorted
	all     map[string]*tool // by server:name
	ids     []string         // sorted
}

// tool is a locked tool.
type tool struct {
	server, name  string
	id            string // server:name, as questions have it
	pointer       string // of its definition in the lock
	definition    evaluation.Object
	input, output evaluation.Object // the schemas
}

func newTools(f lock.File) *tools {
	all := &tools{file: f, servers: slices.Sorted(maps.Keys(f.Servers)), all: map[string]*tool{}}
	for server, s := range f.Servers {
		for name, locked := range s.Tools {
			d := locked.Definition()
			input, _ := d.Get("inputSchema")
			output, _ := d.Get("outputSchema")
			t := &tool{
				server: server, name: name, id: server + ":" + name, definition: d, input: input.Object(), output: output.Object(),
				pointer: pointerTo("servers", server, "tools", name, "definition"),
			}
			all.all[t.id] = t
		}
	}
	all.ids = slices.Sorted(maps.Keys(all.all))
	return all
}

// sorted are all tools by server and name.
func (t *tools) sorted() []*tool {
	all := make([]*tool, len(t.ids))
	for n, id := range t.ids {
		all[n] = t.all[id]
	}
	return all
}

// has reports whether tools of a server are locked.
func (t *tools) has(server string) bool { return slices.Contains(t.servers, server) }

// namesOf are the names of the tools of a server.
func (t *tools) namesOf(server string) []string {
	return slices.Sorted(maps.Keys(t.file.Servers[server].Tools))
}

func pointerTo(tokens ...string) string {
	var p jsontext.Pointer
	for _, token := range tokens {
		p = p.AppendToken(token)
	}
	return string(p)
}

// meant is advice about a name that does not exist: the nearest one, or otherwise.
func meant(name string, among []string, otherwise string) string {
	if near, ok := spelling.Nearest(name, among); ok {
		return "did you mean " + near + "?"
	}
	return otherwise
}
