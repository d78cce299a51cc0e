// Package toolschema writes a Cedar schema of MCP tools: what arguments each of them takes, so that policies over
// context.arguments are checked when they are loaded and decide about typed values.
//
// Begin with [Generate]. It is a function of the tools alone: the same tools in any order are the same text.
//
// The rule behind all types is that a call that the tool's own schema permits is not refused because of ours. What Cedar
// cannot say, or says only of some values, is left out. A member that is left out is dropped before policies see it. Four
// types take less than JSON Schema does, because without them there would be no numbers and no times: Long, decimal,
// datetime and ipaddr. The text says so, and [Schema.Notes] lists where.
//
// The package reads definitions that others wrote. It resolves no reference outside of a definition, and whatever it writes
// of theirs is escaped.
package toolschema

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"policy-service/evaluation"
)

// Tool is a tool as its server lists it.
type Tool struct {
	Server, Name string
	Definition   evaluation.Object
}

// id is the name of the tool in questions.
func (t *Tool) id() string { return t.Server + ":" + t.Name }

// Options describe the questions of a gateway besides the arguments.
type Options struct {
	// Whole has the text declare all that a gateway asks about, so that it is a schema by itself. Otherwise the text is the
	// part of the tools, and the author's schema beside it declares the types and tool.invoke.
	Whole bool
	// People and Agents are the types of principals. Nil is user, and agent.
	People, Agents []string
	// Properties are the claims that policies see as properties of a principal. Nil is roles and department_id.
	Properties []string
	// Labels are the names of the labels that the operator gives to tools.
	Labels []string
	// Said are members of the context that clients say and policies read. Each is an optional string.
	Said []string
}

// Note is something of a tool's definition that the schema does not say as it is.
type Note struct {
	Server, Tool string
	Pointer      string // into the definition
	// Narrow says that the value is typed, and that the type takes less than the definition does. Otherwise it is left out.
	Narrow bool
	Why    string
}

// String is a line for people. It is not escaped.
func (n Note) String() string { return n.Server + ":" + n.Tool + " " + n.text() }

func (n Note) text() string {
	what := "left out: "
	if n.Narrow {
		what = "takes less: "
	}
	return what + n.Pointer + ": " + n.Why
}

// Schema is the result for some tools.
type Schema struct {
	Text  string
	Notes []Note
}

// The limits of a schema. A bundle takes a file of a MiB, and 250,000 types and references in all its schema.
const (
	maxText     = 1 << 20
	argueText   = 900 << 10 // arguments are left out beyond
	maxTypes    = 200_000
	typesOfTool = 40 // of an action besides its arguments
	maxName     = 256
)

// Generate writes the schema of tools.
func Generate(tools []Tool, o Options) (*Schema, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	tools = slices.SortedFunc(slices.Values(tools), func(a, b Tool) int {
		return cmp.Or(strings.Compare(a.Server, b.Server), strings.Compare(a.Name, b.Name))
	})
	g := generator{Options: o}
	g.header(tools)
	if o.Whole {
		g.whole()
	}
	g.line(shared)
	for n, t := range tools {
		if n == 0 || tools[n-1].Server != t.Server {
			g.line("\naction %s in %s;", quoted(groupOf(t.Server)), quoted(anyTool))
		}
		g.line("")
		if why := nameless(tools, n); why != "" {
			note := Note{Server: t.Server, Tool: t.Name, Pointer: "/name", Why: why}
			g.notes = append(g.notes, note)
			g.comment(note.String())
			continue
		}
		g.tool(&t)
	}
	if g.Len() > maxText {
		return nil, fmt.Errorf("the schema of %d tools has more than the %d bytes that a bundle takes in a file; hide the tools that nobody uses, or lock fewer servers in one file", len(tools), maxText)
	}
	return &Schema{Text: g.String(), Notes: g.notes}, nil
}

const anyTool = "tool.invoke"

func groupOf(server string) string { return server + ":*" }

// nameless says why a tool cannot have an action. It is "" if it can.
func nameless(sorted []Tool, n int) string {
	t := sorted[n]
	same := func(i int) bool {
		return i >= 0 && i < len(sorted) && sorted[i].Server == t.Server && sorted[i].Name == t.Name
	}
	switch {
	case same(n - 1), same(n + 1):
		return "another tool of the server has the same name"
	case t.id() == groupOf(t.Server):
		return "the group of the server's tools is called so"
	case t.Name == "" || len(t.id()) > maxName:
		return fmt.Sprintf("a name has at most %d bytes here, with the server's, and is not empty", maxName)
	}
	return ""
}

// generator writes the text of a schema. All text of others goes through comment or quoted.
type generator struct {
	Options
	strings.Builder
	notes []Note
	types int
}

// maxNotes is how many notes about a tool stand in the text.
const maxNotes = 20

func (g *generator) tool(t *Tool) {
	r := reader{tool: t, noted: map[Note]bool{}}
	arguments := r.arguments()
	text, optional := strings.ReplaceAll(arguments.text, "\n", "\n    "), !arguments.needed
	if g.types += typesOfTool; g.types+r.types > maxTypes || g.Len()+len(text) > argueText {
		text, optional = "{}", true
		r.notes = []Note{r.noteAt("/inputSchema", "the schema of all tools is as large as a bundle takes without it")}
	} else {
		g.types += r.types
	}
	g.notes = append(g.notes, r.notes...)
	for n, note := range r.notes {
		if n == maxNotes {
			g.line("// and %d more", len(r.notes)-n)
			break
		}
		g.comment(note.text())
	}
	context := g.context()
	context[requester] = g.requester()
	g.action(quoted(t.id())+" in "+quoted(groupOf(t.Server)), "tool", context, "    arguments"+mark(optional)+": "+text+",\n")
}

// typeName is a name of a type as Cedar has them. reserved are words that are none.
var (
	typeName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(::[A-Za-z_][A-Za-z0-9_]*)*$`)
	reserved = []string{"true", "false", "if", "then", "else", "in", "is", "like", "has", "__cedar"}
	// keywords have a meaning in a schema. Some readers take them for a name, and some do not.
	keywords = append([]string{"namespace", "type", "entity", "action", "appliesTo", "principal", "resource", "context", "attributes", "tags", "enum",
		"Set", "Long", "String", "Bool", "Boolean", "Record", "Entity", "Extension", "ipaddr", "decimal", "datetime", "duration"}, reserved...)
)

func (o *Options) complete() error {
	if o.People == nil {
		o.People = []string{"user"}
	}
	if o.Agents == nil {
		o.Agents = []string{"agent"}
	}
	if o.Properties == nil {
		o.Properties = []string{"roles", "department_id"}
	}
	for _, names := range []*[]string{&o.People, &o.Agents, &o.Properties, &o.Labels, &o.Said} {
		*names = slices.Compact(slices.Sorted(slices.Values(*names)))
	}
	for _, name := range o.principals() {
		if !typeName.MatchString(name) || o.Whole && strings.Contains(name, "::") || slices.ContainsFunc(strings.Split(name, "::"), isKeyword) || slices.Contains(ownTypes, name) {
			return fmt.Errorf("%q is no type of principals that this schema can have; write a name of letters, digits and _ for it in the configuration", name)
		}
	}
	for _, name := range slices.Concat(o.Said, o.Properties, o.Labels) {
		if name == "" || len(name) > maxName {
			return fmt.Errorf("a name of a member has between 1 and %d bytes", maxName)
		}
	}
	for _, name := range o.Said {
		if slices.Contains(notSaid, name) || evaluation.Protocol(name) {
			return fmt.Errorf("%q is no member of the context that a client says; name one that it says in _meta, in io.policy-service/context", name)
		}
	}
	return nil
}

// principals are all types of principals, sorted.
func (o *Options) principals() []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(o.People, o.Agents))))
}

// anybody is the type of an entity whose own type is not known.
const anybody = "{type: String, id: String}"

// chain is the type of the context's on_behalf_of. Only where all people are of one type can it be a set of them.
func (o *Options) chain() string {
	if len(o.People) == 1 {
		return "Set<" + o.People[0] + ">"
	}
	return "Set<" + anybody + ">"
}

// requester is the type of the context's requester. Where all agents are of one type, people request no tools: they call them.
func (o *Options) requester() string {
	if len(o.Agents) == 1 {
		return o.Agents[0]
	}
	return anybody
}

func isKeyword(name string) bool { return slices.Contains(keywords, name) }

// ownTypes are the types of our own questions.
var ownTypes = []string{"tool", "mcp_server", "resource", "prompt", "Approval", "ToolCallPdp"}

// notSaid are members of the context that no client says in this way.
var notSaid = []string{"action", "agent", "arguments", "capability", "declared", "on_behalf_of", "pdp", "purpose", requester}

// requester says for whom a call of a tool fulfils a request.
const requester = evaluation.RequesterMember

// context are the members of a context in our questions, besides the arguments.
func (o *Options) context() map[string]string {
	all := map[string]string{"on_behalf_of": o.chain(), "purpose": "String"}
	for _, name := range o.Said {
		all[name] = "String"
	}
	return all
}
