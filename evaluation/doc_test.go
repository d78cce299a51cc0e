package evaluation_test

import (
	"encoding/json"
	"fmt"
	"go/parser"
	"go/token"
	"strings"
	"testing"

	"policy-service/evaluation"
)

// The native request of an MCP gateway is an AuthZEN request in another order; this is the other order.
func ExampleRequest_MarshalJSON() {
	body := []byte(`{ "tenant_id": "tenant-xyz",
	  "actor": {"actor_id": "agent-workflow-123", "actor_type": "agent", "roles": ["workflow_orchestrator"], "department_id": "dept-eng"},
	  "action": "tool.invoke",
	  "resource": {"type": "tool", "id": "jira-server-1:create_ticket",
	               "labels": {"category": "sensitive", "integration": "jira", "impact": "write"}},
	  "purpose": "Resolve user issue #555",
	  "context": {"workflow_id": "wf-abc", "agent_invocation_id": "inv-789", "param_summary": "Creating ticket for server outage"} }`)
	request, err := evaluation.DecodeNative(body, evaluation.DefaultLimits())
	if err != nil {
		fmt.Println(err)
		return
	}
	text, err := json.MarshalIndent(request, "", "  ")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("in tenant", request.Tenant)
	fmt.Println(string(text))
	// Output:
	// in tenant tenant-xyz
	// {
	//   "subject": {
	//     "type": "agent",
	//     "id": "agent-workflow-123",
	//     "properties": {
	//       "department_id": "dept-eng",
	//       "roles": [
	//         "workflow_orchestrator"
	//       ]
	//     }
	//   },
	//   "action": {
	//     "name": "tool.invoke"
	//   },
	//   "resource": {
	//     "type": "tool",
	//     "id": "jira-server-1:create_ticket",
	//     "properties": {
	//       "labels": {
	//         "category": "sensitive",
	//         "impact": "write",
	//         "integration": "jira"
	//       }
	//     }
	//   },
	//   "context": {
	//     "agent_invocation_id": "inv-789",
	//     "param_summary": "Creating ticket for server outage",
	//     "purpose": "Resolve user issue #555",
	//     "workflow_id": "wf-abc"
	//   }
	// }
}

// TestMappingTable reads the table in the package comment and asks the decoders whether each of its rows is true.
func TestMappingTable(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "doc.go", nil, parser.ParseComments|parser.PackageClauseOnly)
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for line := range strings.Lines(file.Doc.Text()) {
		left, right, isRow := strings.Cut(strings.TrimRight(line, "\n"), "  ")
		if !strings.HasPrefix(line, "\t") || !isRow || strings.Contains(line, "POST") {
			continue
		}
		natives, authzens := strings.Split(strings.TrimSpace(left), ", "), strings.Split(strings.TrimSpace(right), ", ")
		switch {
		case left == "\ttenant_id":
			checkTenant(t)
			checked++
		case left == "\tactor, its other members":
			checkRow(t, "actor.anything", authzens[0]+".anything")
			checked++
		case len(natives) != len(authzens):
			t.Errorf("a row of the table that is not understood here: %q", line)
		default:
			for i := range natives {
				checkRow(t, natives[i], authzens[i])
				checked++
			}
		}
	}
	if checked != 10 {
		t.Errorf("%d rows of the table were checked, and not 10", checked)
	}
}

func checkTenant(t *testing.T) {
	t.Helper()
	native, err := decodeNative(shapes["native"].body, evaluation.DefaultLimits())
	if err != nil || native.Tenant != "t1" {
		t.Errorf("tenant_id gives tenant %q, %v", native.Tenant, err)
	}
	authzen, err := evaluation.DecodeAuthZEN([]byte(shapes["AuthZEN"].body), "t1", evaluation.DefaultLimits())
	if err != nil || authzen.Tenant != "t1" {
		t.Errorf("the tenant in the URL gives tenant %q, %v", authzen.Tenant, err)
	}
}

// checkRow asks both ways with a value at the row's two places, and compares what was understood.
func checkRow(t *testing.T, native, authzen string) {
	t.Helper()
	var value any = map[string]any{"some": "value"}
	if strings.Contains("actor.actor_type actor.actor_id action resource.type resource.id purpose", native) {
		value = "some value"
	}
	const nativeBody = `{"tenant_id":"default","actor":{"actor_type":"u","actor_id":"1"},"action":"a","resource":{"type":"r","id":"2"},"context":{}}`
	const authzenBody = `{"subject":{"type":"u","id":"1","properties":{}},"action":{"name":"a"},"resource":{"type":"r","id":"2","properties":{}},"context":{}}`
	asked, err := decodeNative(replaced(t, nativeBody, pointerOf(native), value, false), evaluation.DefaultLimits())
	if err != nil {
		t.Errorf("%s: %v", native, err)
	}
	same, err := decodeAuthZEN(replaced(t, authzenBody, pointerOf(authzen), value, false), evaluation.DefaultLimits())
	if err != nil {
		t.Errorf("%s: %v", authzen, err)
	}
	if !equal(asked, same) {
		t.Errorf("%s is not %s:\n%+v\n%+v", native, authzen, asked, same)
	}
	if evaluation.Native.Pointer(pointerOf(authzen)) != pointerOf(native) {
		t.Errorf("an error at %s is not reported at %s", authzen, native)
	}
}

// equal reports whether two requests ask one question, in whichever shape.
func equal(a, b evaluation.Request) bool {
	same := func(a, b evaluation.Entity) bool {
		return a.Type == b.Type && a.ID == b.ID && a.Properties.Value().Equal(b.Properties.Value())
	}
	return a.Tenant == b.Tenant && same(a.Subject, b.Subject) && same(a.Resource, b.Resource) &&
		a.Action.Name == b.Action.Name && a.Action.Properties.Value().Equal(b.Action.Properties.Value()) && a.Context.Value().Equal(b.Context.Value())
}

func pointerOf(path string) string { return "/" + strings.ReplaceAll(path, ".", "/") }
