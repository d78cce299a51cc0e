package toolschema

import (
	"fmt"
	"maps"
	"strings"
)

// session are the actions about what a client does besides calling tools, by what they are about.
var session = []struct {
	resource, names string
	also            map[string]string // of the context
}{
	{"mcp_server", "server/discover tools/list resources/list resources/templates/list prompts/list subscriptions/listen", nil},
	{"mcp_server", "initialize", map[string]string{"protocol_version": "String"}},
	{"mcp_server", "logging/setLevel", map[string]string{"level": "String"}},
	{"resource", "resources/read resources/subscribe resources/unsubscribe", nil},
	{"prompt", "prompts/get", nil},
	{"prompt, resource", "completion/complete", nil},
}

// ofTool are the attributes of a tool in questions, but for its labels. The annotations are the server's word.
const ofTool = `  // The digest of the definition, and if it is the one that is locked.
  digest?: String,
  pinned?: Bool,
  // What the server says of the tool itself. Nobody has checked it.
  annotations?: {title?: String, readOnlyHint?: Bool, destructiveHint?: Bool, idempotentHint?: Bool, openWorldHint?: Bool},
  approval_hint?: {required: Bool, mode?: String, timeout?: Long, message?: String},
`

// whole writes the declarations that an author has otherwise in a schema of his own.
func (w *writer) whole(o Options) {
	w.line("")
	w.line("// Who asks, with claims of the token.")
	for _, name := range o.principals() {
		w.line("entity %s = {", name)
		for _, claim := range o.Properties {
			switch claim {
			case "roles":
				w.line("  roles?: Set<String>,")
			case "department_id":
				w.line("  department_id?: String,")
			default:
				w.line("  // %s?: …, left out: what type the claim has, only you know", bare(claim))
			}
		}
		w.line("};")
	}
	w.line("")
	w.line("entity tool = {")
	w.WriteString(ofTool)
	if len(o.Labels) > 0 {
		all := make([]string, len(o.Labels))
		for n, name := range o.Labels {
			all[n] = bare(name) + "?: String"
		}
		w.line("  // The operator's.")
		w.line("  labels?: {%s},", strings.Join(all, ", "))
	}
	w.line("};")
	w.line("")
	w.line("entity mcp_server;")
	w.line("entity resource;")
	w.line("entity prompt;")
	w.line("")
	w.line("// All tools. It is the action of no question itself.")
	w.line("action %s;", quoted(anyTool))
	w.requests(o)
	w.session(o)
	w.line("")
	w.line("// A request that waits for people, and their deciding about it.")
	people := ""
	if len(o.People) == 1 {
		people = fmt.Sprintf(", subject?: %s, chain?: %s", o.People[0], o.chain())
	}
	w.line("entity Approval = {template: String, action: String, resource: tool%s};", people)
	w.line("action \"approval.decide\" appliesTo {")
	w.line("  principal: [%s],", strings.Join(o.People, ", "))
	w.line("  resource: Approval,")
	w.line("  context: {pdp: ToolCallPdp, via: String, gateway?: String, client?: %s},", anybody)
	w.line("};")
}

// session writes the actions of a session.
func (w *writer) session(o Options) {
	w.line("")
	w.line("// What clients do besides.")
	for _, s := range session {
		var names []string
		for _, name := range strings.Fields(s.names) {
			names = append(names, quoted(name))
		}
		context := contextOf(o)
		maps.Copy(context, s.also)
		w.action(strings.Join(names, ", "), o, "["+s.resource+"]", context, "")
	}
}

// requests writes the actions of those who request a tool, and of those who do it for them. Behind the latter stand agents
// and people alike.
func (w *writer) requests(o Options) {
	w.line("")
	w.line("// Requests for tools. Both are about any tool, so that no policy sees the arguments: those are in the question about")
	w.line("// the tool itself, which comes beside tool.fulfil.")
	request, fulfil := contextOf(o), contextOf(o)
	request["reason"] = "String"
	fulfil["on_behalf_of"], fulfil[requester] = "Set<"+anybody+">", o.requester()
	w.action(quoted("tool.request"), o, "tool", request, "")
	w.action(quoted("tool.fulfil"), o, "tool", fulfil, "")
}
