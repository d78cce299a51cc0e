package policies_test

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/policies"
)

// mcpWith is the bundle mcp with further files. What a file says that is there already comes behind it.
func mcpWith(t *testing.T, more map[string]string) pdp.Source {
	t.Helper()
	files, err := policies.Named("mcp")
	if err != nil {
		t.Fatal(err)
	}
	all := fstest.MapFS{}
	err = fs.WalkDir(files, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := fs.ReadFile(files, name)
		all[name] = &fstest.MapFile{Data: text}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range more {
		data := []byte(text)
		if there, ok := all[name]; ok {
			data = slices.Concat(there.Data, []byte("\n"), data)
		}
		all[name] = &fstest.MapFile{Data: data}
	}
	return pdp.FS(all)
}

func mcpDecider(t *testing.T, source pdp.Source) *pdp.PDP {
	t.Helper()
	bundle, problems := pdp.Load(source)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return pdp.Of(bundle, pdp.Options{})
}

// toolActions are actions as they are generated for tools: in a group of the server, and with the arguments of the tool.
const toolActions = `
action "files:*", "tickets:*" in [Action::"tool.invoke"];
action "files:read_text_file" in [Action::"files:*"] appliesTo {
  principal: [agent, user], resource: [tool],
  context: {on_behalf_of?: ToolCallBehalf, purpose?: String, requester?: agent, arguments: {path: String, head?: Long, tail?: Long}},
};
action "files:write_file" in [Action::"files:*"] appliesTo {
  principal: [agent, user], resource: [tool],
  context: {on_behalf_of?: ToolCallBehalf, purpose?: String, requester?: agent, arguments: {path: String, content: String}},
};
action "files:read_multiple_files" in [Action::"files:*"] appliesTo {
  principal: [agent, user], resource: [tool],
  context: {on_behalf_of?: ToolCallBehalf, purpose?: String, requester?: agent, arguments: {paths: Set<String>}},
};
action "files:list_allowed_directories" in [Action::"files:*"] appliesTo {
  principal: [agent, user], resource: [tool],
  context: {on_behalf_of?: ToolCallBehalf, purpose?: String, requester?: agent, arguments?: {}},
};
action "files:move_file" in [Action::"files:*"] appliesTo {
  principal: [agent, user], resource: [tool],
  context: {on_behalf_of?: ToolCallBehalf, purpose?: String, requester?: agent, arguments: {source: String, destination: String}},
};
action "tickets:get_ticket", "tickets:create_ticket", "tickets:delete_project" in [Action::"tickets:*"] appliesTo {
  principal: [agent, user], resource: [tool],
  context: {on_behalf_of?: ToolCallBehalf, purpose?: String, requester?: agent, arguments?: {}},
};
`

// The policies that are about all tools are about each one, where the action is called as the tool is: what was refused is
// refused, and what was permitted is, with the same obligations, unless the tool's own schema does not take its arguments.
func TestMCPByTool(t *testing.T) {
	t.Parallel()
	source := mcpWith(t, map[string]string{"schema.cedarschema": toolActions})
	if _, problems := pdp.Check(source, time.Now()); len(problems) > 0 {
		t.Fatal(problems)
	}
	decider := mcpDecider(t, source)
	examples, problems := pdp.Examples(source)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	allowed, refused := 0, 0
	for _, e := range examples {
		id := e.Call.Request.Resource.ID
		if e.Call.Request.Action.Name != "tool.invoke" || !strings.Contains(toolActions, `"`+id+`"`) {
			continue
		}
		e.Call.Request.Action.Name = id
		d, err := decider.Evaluate(t.Context(), e.Call)
		if err != nil {
			t.Fatal(err)
		}
		if d.Reason == evaluation.SchemaMismatch && e.Decision != "allow" {
			refused++
			continue
		}
		if !asExpected(e, d) {
			t.Errorf("%s:%d: %s, as %s: got %t %q %q %v", e.File, e.Line, e.Name, id, d.Allow, d.Reason, d.Determining, d.Obligations)
		}
		if d.Allow {
			allowed++
		} else {
			refused++
		}
	}
	if allowed < 10 || refused < 30 {
		t.Errorf("%d allowed, %d refused", allowed, refused)
	}
}

// The schema of the bundle refuses cc and bcc. That of the server takes them: where it counts, no mail goes.
func TestMCPMailByTool(t *testing.T) {
	t.Parallel()
	decider := mcpDecider(t, mcpWith(t, map[string]string{"schema.cedarschema": `
action "mail:*" in [Action::"tool.invoke"];
action "mail:send_email" in [Action::"mail:*"] appliesTo {
  principal: [agent, user], resource: [tool],
  context: {on_behalf_of?: ToolCallBehalf, purpose?: String, requester?: agent, arguments: {to: String, cc?: String, bcc?: Set<String>}},
};
`}))
	for _, also := range []string{``, `,"cc":"eve@example.org"`, `,"bcc":["eve@example.org"]`} {
		for action, allow := range map[string]bool{"tool.invoke": also == "", "mail:send_email": false} {
			q := mcpQuestion{`"type":"user","id":"alice"`, ``, "mail:send_email", `"write"`, `"mail"`, ``, `"arguments":{"to":"bob@example.com"` + also + `},`}
			request, err := evaluation.Decode([]byte(strings.Replace(q.body(), "tool.invoke", action, 1)), "default", evaluation.DefaultLimits())
			if err != nil {
				t.Fatal(err)
			}
			d, err := decider.Evaluate(t.Context(), pdp.Call{Request: request})
			if err != nil || d.Allow != allow {
				t.Errorf("%s%s: got %t %q, %v", action, also, d.Allow, d.Determining, err)
			}
		}
	}
}

// mcpQuestion is a question about a tool.
type mcpQuestion struct{ subject, behind, tool, impact, integration, said, arguments string }

func (q mcpQuestion) body() string {
	var labels []string
	if q.impact != "" {
		labels = append(labels, `"impact":`+q.impact)
	}
	if q.integration != "" {
		labels = append(labels, `"integration":`+q.integration)
	}
	return fmt.Sprintf(`{"subject":{%s},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":%q,"properties":{"labels":{%s}%s}},"context":{%s%s"supported_obligations":["approval_required"]}}`,
		q.subject, q.tool, strings.Join(labels, ","), q.said, q.behind, q.arguments)
}

// wants is what must hold of an allow.
func (q mcpQuestion) wants(d evaluation.Decision) (broken string) {
	var owed string
	for _, o := range d.Obligations {
		owed += o.ID
	}
	job := strings.Contains(q.subject, `"ci"`)
	tightened := strings.Contains(q.said, `"required":true`) || strings.Contains(q.said, `"readOnlyHint":false`) && q.impact == `"read"`
	switch {
	case strings.Contains(q.subject, "mallory") || strings.Contains(q.subject, "newcomer"):
		return "a stranger"
	case strings.Contains(q.subject, "desktop") && (!strings.Contains(q.behind, "alice") || strings.Contains(q.behind, "mallory")):
		return "an assistant for nobody"
	case !slices.Contains([]string{`"read"`, `"write"`, `"destroy"`}, q.impact) || q.integration == "":
		return "a tool without labels"
	case strings.Contains(q.said, `"pinned":false`) && q.impact != `"read"`:
		return "a changed tool that writes"
	case job && (q.impact != `"read"` || tightened):
		return "a job that does more than read"
	case q.impact == `"destroy"` && owed != "second-person":
		return "nobody else is asked"
	case (q.impact == `"write"` || q.impact == `"read"` && tightened) && owed != "confirm":
		return "the person is not asked"
	case q.integration == `"files"` && (q.arguments == "" || strings.Contains(q.arguments, "..")):
		return "no plain path"
	case q.integration == `"files"` && q.impact != `"read"` && !strings.Contains(q.arguments, "drafts/"):
		return "not below drafts/"
	}
	return ""
}

// What the bundle promises holds of every combination of what a request can say, also beside a permit that is as wide as can
// be, as far as a forbid promises it.
func TestMCPHolds(t *testing.T) {
	t.Parallel()
	ours := mcpDecider(t, mcpWith(t, nil))
	wide := mcpDecider(t, mcpWith(t, map[string]string{"wide.cedar": `@id("wide") permit (principal, action, resource);`}))
	forbidden := []string{"a stranger", "an assistant for nobody", "a tool without labels", "no plain path", "not below drafts/"}
	asked, allowed := 0, map[string]int{}
	for _, subject := range []string{`"type":"user","id":"alice"`, `"type":"user","id":"mallory"`, `"type":"agent","id":"desktop"`, `"type":"agent","id":"ci"`, `"type":"agent","id":"newcomer"`} {
		for _, behind := range []string{``, `"on_behalf_of":[{"type":"user","id":"alice"}],`, `"on_behalf_of":[{"type":"user","id":"alice"},{"type":"user","id":"mallory"}],`} {
			for _, impact := range []string{``, `"read"`, `"write"`, `"destroy"`, `"none"`} {
				for _, said := range []string{``, `,"pinned":false`, `,"pinned":true`, `,"annotations":{"readOnlyHint":true},"approval_hint":{"required":false}`, `,"approval_hint":{"required":true}`, `,"annotations":{"readOnlyHint":false}`} {
					for _, at := range []struct{ tool, integration, arguments string }{
						{"tickets:x", `"tickets"`, ``}, {"tickets:x", ``, ``},
						{"files:write_file", `"files"`, ``}, {"files:write_file", `"files"`, `"arguments":{"path":"a.md"},`},
						{"files:write_file", `"files"`, `"arguments":{"path":"drafts/a.md"},`}, {"files:write_file", `"files"`, `"arguments":{"path":"drafts/../a.md"},`},
					} {
						q := mcpQuestion{subject, behind, at.tool, impact, at.integration, said, at.arguments}
						request, err := evaluation.Decode([]byte(q.body()), "default", evaluation.DefaultLimits())
						if err != nil {
							t.Fatalf("%s: %v", q.body(), err)
						}
						asked++
						for name, decider := range map[string]*pdp.PDP{"ours": ours, "wide": wide} {
							d, err := decider.Evaluate(t.Context(), pdp.Call{Request: request})
							if err != nil {
								t.Fatal(err)
							}
							if !d.Allow {
								continue
							}
							allowed[name]++
							if broken := q.wants(d); broken != "" && (name == "ours" || slices.Contains(forbidden, broken)) {
								t.Fatalf("%s: %s\n%s\nallowed by %q, with %v", name, broken, q.body(), d.Determining, d.Obligations)
							}
						}
					}
				}
			}
		}
	}
	if allowed["ours"] < 50 || allowed["wide"] <= allowed["ours"] {
		t.Errorf("of %d questions were allowed: %v", asked, allowed)
	}
}
