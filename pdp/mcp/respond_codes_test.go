package mcp_test

import (
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/mcptest"
)

// payloadOf is the payload of a message as its design prints it.
func payloadOf(t *testing.T, name string) jsontext.Value {
	t.Helper()
	var envelope struct {
		Payload jsontext.Value `json:"payload"`
	}
	orFail(t, json.Unmarshal(printed(t, name), &envelope))
	return envelope.Payload
}

// productionBundle asks user-1 about what agent-a wants to do to production.
func productionBundle() map[string]string {
	return map[string]string{
		"bundle.yaml":          "allow_trivial: true\n",
		"obligations.yaml":     `ask: {type: approval_required, properties: {template: production, message: "Tool requires user approval for production operations", timeout: 5m}}` + "\n",
		"entities/user-1.json": `[{"uid":{"type":"user","id":"user-1"},"attrs":{},"parents":[]}]`,
		"all.cedar": `@id("connect") permit (principal, action, resource) unless { resource is tool || action == Action::"approval.decide" };
@id("ask") @obligation("ask")
permit (principal, action == Action::"tool.invoke", resource == tool::"rec:dangerous_operation");
@id("user-1") permit (principal == user::"user-1", action == Action::"approval.decide", resource is Approval);`,
	}
}

// The messages of an approval through a running gateway have all that their design prints, under the codes of the era and of the
// dialect: a call that waits, the decision, and what comes of it.
func TestRespondCodes(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		for _, errors := range []mcp.ErrorCodes{"coaz", "mcpx", "sep"} {
			t.Run(era+" "+string(errors), func(t *testing.T) {
				t.Parallel()
				w := newPeople(t, land{
					bundle:  productionBundle(),
					answers: mcptest.Answers{Tools: `[{"name":"dangerous_operation","inputSchema":{"type":"object"}}]`},
					change: func(c *mcp.Config) {
						hasten(c)
						c.Errors = errors
					},
				})
				agent := w.visitor(era, mcptest.Claims{"sub": "mia", "client_id": "agent-a"})
				user := w.visitor(era, mcptest.Claims{"sub": "user-1", "client_id": nil})
				required, denied := -32001, -32001
				switch {
				case errors == "sep":
					required, denied = -32401, -32401
				case errors == "mcpx" && era == "legacy":
					denied = -32002
				}
				var printed struct {
					Error struct {
						Data jsontext.Value `json:"data"`
					} `json:"error"`
					Params map[string]any `json:"params"`
				}
				isAsPrinted := func(name string, got jsontext.Value, changes ...string) {
					t.Helper()
					orFail(t, json.Unmarshal(payloadOf(t, name), &printed))
					for _, fault := range notAsPrinted("data", with(t, printed.Error.Data, changes...), got) {
						t.Errorf("%s: %s; it is %s", name, fault, got)
					}
				}
				waits := func(arguments string) (id string) {
					t.Helper()
					got := agent.call("dangerous_operation", arguments)
					if got.code() != required || !strings.HasPrefix(got.fault.Message, "Authorization required") {
						t.Fatalf("%s, want %d", got, required)
					}
					isAsPrinted("000-authorization-required", got.fault.Data, "reason", "a person must approve this call")
					return w.asks("dangerous_operation")
				}
				// rules sends the decision as it is printed, about this approval and by the time of today.
				rules := func(id, decision, reason string) {
					t.Helper()
					orFail(t, json.Unmarshal(payloadOf(t, "000-authorization-respond"), &printed))
					members := printed.Params
					members["authorizationId"], members["decision"], members["reason"] = id, decision, reason
					delete(members, "validUntil")
					if decision == "approve" {
						members["validUntil"] = w.now().Add(time.Hour).UTC().Format(time.RFC3339)
					}
					text, err := json.Marshal(members)
					orFail(t, err)
					unheard(t, user.utters(respondMethod, string(text)))
				}
				rules(waits(`{"target":"production"}`), "approve", "Approved for maintenance window")
				agent.call("dangerous_operation", `{"target":"production"}`).runs(t)
				w.ran("dangerous_operation", `{"target":"production"}`)

				over := agent.at(w.patient()).ahead("dangerous_operation", `{"target":"production"}`)
				id := w.asks("dangerous_operation")
				rules(id, "deny", "User denied authorization")
				got := <-over
				if got.code() != denied || got.fault.Message != "Authorization denied" || got.kind() != "authorization_denied" || !strings.Contains(string(got.fault.Data), `"authorizationId":"`+id+`"`) {
					t.Errorf("%s, want %d", got, denied)
				}
				isAsPrinted("000-authorization-denied", got.fault.Data)
				if era == "modern" && got.code() == -32002 {
					t.Errorf("a code that this revision does not have: %s", got)
				}
				w.ran("dangerous_operation", `{"target":"production"}`)
			})
		}
	}
}
