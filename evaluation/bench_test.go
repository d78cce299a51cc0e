package evaluation_test

import (
	"testing"

	"policy-service/evaluation"
)

// Ordinary requests, in either shape, and a context with escapes.
const (
	nativeBody = `{ "tenant_id": "tenant-xyz",
  "actor": {"actor_id": "agent-workflow-123", "actor_type": "agent", "roles": ["workflow_orchestrator"], "department_id": "dept-eng"},
  "action": "tool.invoke",
  "resource": {"type": "tool", "id": "jira-server-1:create_ticket", "labels": {"category": "sensitive", "integration": "jira", "impact": "write"}},
  "purpose": "Resolve user issue #555",
  "context": {"workflow_id": "wf-abc", "agent_invocation_id": "inv-789", "param_summary": "Creating ticket for server outage"} }`
	authzenBody = `{"subject": {"type": "agent", "id": "agent-workflow-123", "properties": {"roles": ["workflow_orchestrator"], "department_id": "dept-eng"}},
  "action": {"name": "tool.invoke"},
  "resource": {"type": "tool", "id": "jira-server-1:create_ticket", "properties": {"labels": {"category": "sensitive", "integration": "jira", "impact": "write"}}},
  "context": {"purpose": "Resolve user issue #555", "workflow_id": "wf-abc", "agent_invocation_id": "inv-789", "param_summary": "Creating ticket for server outage"}}`
	escapedBody = `{"arguments": {"title": "A \"ticket\"", "body": "Line one\nLine two\n", "labels": ["a", "b"], "assignee": null}, "purpose": "caf\u00e9"}`
)

// How long does a body of an ordinary request take to decode, in either shape?
func BenchmarkDecode(b *testing.B) {
	limits := evaluation.DefaultLimits()
	authzen, native, escaped := []byte(authzenBody), []byte(nativeBody), []byte(escapedBody)
	for name, decode := range map[string]func() error{
		"AuthZEN": func() error { _, err := evaluation.DecodeAuthZEN(authzen, "", limits); return err },
		"native":  func() error { _, err := evaluation.DecodeNative(native, limits); return err },
		"escaped": func() error { _, err := evaluation.ParseObject(escaped, limits); return err },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := decode(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
