package ask

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/evaluation/coaz"
	"policy-service/pdp/internal/mcp/lock"
)

// Tool is a tool of an upstream as a gateway lists it. [Asker.Tool] makes one.
type Tool struct {
	// Server and Name are the upstream's name and the tool's own; Shown is the name that clients use.
	Server, Name, Shown string
	// Definition is the whole definition as it came.
	Definition jsontext.Value
	// Labels are the operator's: the tool's, and those of its server.
	Labels map[string]string
	// Digest is base64url of the SHA-256 of the canonical definition.
	Digest string

	resource evaluation.Entity // as our own questions have it
	declared *coaz.Mapping     // nil if the tool declares none, or it counts for nothing
	operator *coaz.Mapping     // nil if there is none for it
	any      bool              // it stands for any tool of its server
}

// hintLimits bound the part of a definition that is in each question: lists ask about many tools at once.
var hintLimits = evaluation.Limits{Body: 8 << 10, Depth: 10, Values: 256}

// Tool reads a definition, and compiles its mappings: when tools are listed, and not when they are called. A
// tool for which it gives an error can neither be listed nor called. Labels are the operator's for this tool.
func (a *Asker) Tool(server, shown string, definition jsontext.Value, labels map[string]string) (*Tool, error) {
	read, err := lock.ParseTool(definition)
	if err != nil {
		return nil, err
	}
	d := read.Definition()
	t := &Tool{
		Server: server, Name: read.Name(), Shown: shown, Definition: bytes.Clone(definition),
		Labels: map[string]string{}, Digest: read.Digest(),
	}
	maps.Copy(t.Labels, a.o.Labels[server])
	maps.Copy(t.Labels, labels)
	id := server + ":" + t.Name
	if t.resource, err = t.entity(id, d); err != nil {
		return nil, fmt.Errorf("what the definition says of the tool: %w", err)
	}
	t.operator = cmp.Or(a.ofTools[id], a.operator[toolsCall])
	if a.o.Declared == Ignore {
		return t, nil
	}
	if t.declared, err = a.binding.Parse(a.readable(d)); err != nil {
		return nil, err
	}
	return t, nil
}

// Pinned is the tool, with whether it is as it is locked in questions about it.
func (t *Tool) Pinned(pinned bool) *Tool {
	as := *t
	said, _ := evaluation.NewObject(map[string]any{"pinned": pinned}) // which cannot fail
	as.resource.Properties = said.Beside(t.resource.Properties)
	return &as
}

// readable is a definition without the mappings of dialects that are not read.
func (a *Asker) readable(d evaluation.Object) evaluation.Object {
	if !slices.Contains(a.o.Dialects, coaz.SEP) {
		d = d.Without(func(name string) bool { return name == "coaz" })
	}
	if schema, ok := d.Get("inputSchema"); ok && !slices.Contains(a.o.Dialects, coaz.AuthZEN) {
		d = d.With("inputSchema", schema.Object().Without(func(name string) bool { return name == "x-authzen-mapping" }).Value())
	}
	return d
}

func (t *Tool) entity(id string, d evaluation.Object) (evaluation.Entity, error) {
	properties := map[string]any{"digest": t.Digest}
	if len(t.Labels) > 0 {
		properties["labels"] = anyOf(t.Labels)
	}
	if annotations, _ := d.Get("annotations"); annotations.Kind() == evaluation.Map {
		properties["annotations"] = annotations
	}
	if hint, ok := d.Get("authorization"); ok {
		properties[evaluation.HintMember] = hintOf(hint)
	}
	o, err := evaluation.NewObject(properties)
	if err != nil {
		return evaluation.Entity{}, err
	}
	text, err := o.MarshalJSON()
	if err != nil {
		return evaluation.Entity{}, err
	}
	if _, err := evaluation.ParseObject(text, hintLimits); err != nil {
		return evaluation.Entity{}, err
	}
	return evaluation.Entity{Type: "tool", ID: id, Properties: o}, nil
}

// mostHint is how much of a server's own words is in a question.
const mostHint = 500

// hintOf is a server's own word on whether its tool wants an approval, in a form that policies can rely on. It is untrusted
// and can only ask for more: an unknown value reads as required.
func hintOf(v evaluation.Value) map[string]any {
	hint := map[string]any{"required": v.Kind() != evaluation.Map}
	if required, ok := v.Object().Get("required"); ok && !(required.Kind() == evaluation.Bool && !required.True()) {
		hint["required"] = true
	}
	if mode, ok := v.Object().Get("mode"); ok {
		switch mode.Text() {
		case "user_approval", "automatic", "delegated":
			hint["mode"] = mode.Text()
		default:
			hint["required"] = true
		}
	}
	if timeout, ok := v.Object().Get("timeout"); ok {
		if n, whole := timeout.Scaled(0); whole && n > 0 {
			hint["timeout"] = n
		} else {
			hint["required"] = true
		}
	}
	if message, _ := v.Object().Get("message"); message.Kind() == evaluation.String {
		hint["message"] = line(message.Text(), mostHint)
	}
	return hint
}
