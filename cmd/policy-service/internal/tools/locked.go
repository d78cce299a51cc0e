package tools

import (
	"maps"
	"os"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/cmd/policy-service/internal/cli"
	"policy-service/evaluation"
	"policy-service/pdp/mcp/lock"
	"policy-service/pdp/spelling"
)

// tools are those that are locked.
type tools struct {
	file lock.File
	all  map[string]*tool // by server:name
	ids  []string         // sorted
}

// tool is a locked tool.
type tool struct {
	server, name  string
	id            string // server:name, as questions have it
	pointer       string // of its definition in the lock
	definition    evaluation.Object
	input, output evaluation.Object
}

func newTools(f lock.File) *tools {
	all := &tools{file: f, all: map[string]*tool{}}
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

// meant is what to try if there is no tool of an id.
func (t *tools) meant(id, otherwise string) string {
	if near, ok := spelling.Nearest(id, t.ids); ok {
		return "did you mean " + near + "?"
	}
	return otherwise
}

// whose is what to try if a tool is named without its server.
func (t *tools) whose(name string) string {
	of := slices.DeleteFunc(t.sorted(), func(t *tool) bool { return t.name != name })
	if len(of) == 1 {
		return "did you mean " + of[0].id + "?"
	}
	return "write the name of its upstream in front"
}

func pointerTo(tokens ...string) string {
	var p jsontext.Pointer
	for _, token := range tokens {
		p = p.AppendToken(token)
	}
	return string(p)
}

// place gives every finding in the lock its line: that of its pointer, or of the nearest above it.
func (k *checker) place() {
	text, err := os.ReadFile(k.lockFile)
	if err != nil {
		return // it has been read before: whoever took it away since learns no lines
	}
	var at []int // in k.all
	var pointers []string
	for n, f := range k.all {
		if f.pointer != "" {
			at, pointers = append(at, n), append(pointers, f.pointer)
		}
	}
	for i, offset := range offsets(text, pointers) {
		k.all[at[i]].line, k.all[at[i]].column = cli.Position(text, offset)
	}
}
