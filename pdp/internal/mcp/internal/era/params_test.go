package era_test

import (
	"testing"

	"policy-service/pdp/internal/mcp/internal/era"
)

// TestWithoutUnknown goes through each request that a gateway sends on: what no revision has there does not go on.
func TestWithoutUnknown(t *testing.T) {
	all := `"name":"n","arguments":{"x":1.0},"uri":"u","cursor":"c","level":"l","ref":{"type":"t","name":"n","uri":"u","title":"T","x":1},"argument":{"name":"n","value":"v","x":1},"context":{"arguments":{},"x":1},"task":{},"requestState":"s","inputResponses":{},"mine":1,"_meta":{"x":1}`
	for _, c := range []struct{ method, revision, want string }{
		{"tools/call", "2025-11-25", `"name":"n","arguments":{"x":1.0}`},
		{"tools/call", "2026-07-28", `"name":"n","arguments":{"x":1.0}`},
		{"prompts/get", "2024-11-05", `"name":"n","arguments":{"x":1.0}`},
		{"prompts/list", "2026-07-28", `"cursor":"c"`},
		{"resources/list", "2025-11-25", `"cursor":"c"`},
		{"resources/templates/list", "2025-11-25", `"cursor":"c"`},
		{"resources/read", "2025-06-18", `"uri":"u"`},
		{"resources/subscribe", "2025-06-18", `"uri":"u"`},
		{"resources/unsubscribe", "2025-06-18", `"uri":"u"`},
		{"logging/setLevel", "2025-06-18", `"level":"l"`},
		{"completion/complete", "2025-03-26", `"ref":{"type":"t","name":"n","uri":"u"},"argument":{"name":"n","value":"v"}`},
		{"completion/complete", "2025-06-18", `"ref":{"type":"t","name":"n","uri":"u","title":"T"},"argument":{"name":"n","value":"v"},"context":{"arguments":{}}`},
		{"completion/complete", "2026-07-28", `"ref":{"type":"t","name":"n","uri":"u","title":"T"},"argument":{"name":"n","value":"v"},"context":{"arguments":{}}`},
	} {
		got := era.WithoutUnknown(c.method, c.revision, object(t, "{"+all+"}"), func(member string) bool { return member == "mine" })
		if want := "{" + c.want + `,"mine":1,"_meta":{"x":1}}`; string(got.Value()) != want {
			t.Errorf("%s of %s: %s", c.method, c.revision, got.Value())
		}
	}
	if got := era.WithoutUnknown("notifications/mine", "2025-11-25", object(t, "{"+all+"}"), nil); string(got.Text()) != "{"+all+"}" {
		t.Errorf("a method that is not MCP's: %s", got.Text())
	}
}
