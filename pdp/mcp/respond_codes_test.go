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

// has fails for each member that one value has and another lacks, or has of another kind or with another text. Of those in vary
// the text may be another.
func has(t testing.TB, at string, got, want jsontext.Value, vary ...string) {
	t.Helper()
	var members map[string]jsontext.Value
	switch {
	case got.Kind() != want.Kind():
		t.Errorf("%s is %s, want %s", at, got, want)
	case want.Kind() == '{':
		orFail(t, json.Unmarshal(want, &members))
		var own map[string]jsontext.Value
		orFail(t, json.Unmarshal(got, &own))
		for name, v := range members {
			if own[name] == nil {
				t.Errorf("%s lacks %s: %s", at, name, got)
				continue
			}
			has(t, at+"/"+name, own[name], v, vary...)
		}
	case strings.Contains(" "+strings.Join(vary, " ")+" ", " "+at[strings.LastIndexByte(at, '/')+1:]+" "):
	case !sameJSON(string(got), string(want)):
		t.Errorf("%s is %s, want %s", at, got, want)
	}
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
				printed := func(name string) jsontext.Value {
					var m struct {
						Error struct {
							Data jsontext.Value `json:"data"`
						} `json:"error"`
						Params jsontext.Value `json:"params"`
						Result jsontext.Value `json:"result"`
					}
					orFail(t, json.Unmarshal(payloadOf(t, name), &m))
					for _, v := range []jsontext.Value{m.Error.Data, m.Params, m.Result} {
						if v != nil {
							return v
						}
					}
					return nil
				}
				waits := func(arguments string) (id string) {
					t.Helper()
					got := agent.call("dangerous_operation", arguments)
					if got.code() != required || !strings.HasPrefix(got.fault.Message, "Authorization required") {
						t.Fatalf("%s, want %d", got, required)
					}
					has(t, "data", got.fault.Data, printed("000-authorization-required"), "id", "expiresAt", "reason")
					return w.asks("dangerous_operation")
				}
				// rules sends the decision as it is printed, about this approval and by the time of today.
				rules := func(id, decision, reason string) {
					t.Helper()
					var members map[string]any
					orFail(t, json.Unmarshal(printed("000-authorization-respond"), &members))
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
				if got := agent.call("dangerous_operation", `{"target":"production"}`); !got.ran() {
					t.Errorf("%s", got)
				}
				w.ran("dangerous_operation", `{"target":"production"}`)

				over := agent.at(w.patient()).ahead("dangerous_operation", `{"target":"production"}`)
				id := w.asks("dangerous_operation")
				rules(id, "deny", "User denied authorization")
				got := <-over
				if got.code() != denied || got.fault.Message != "Authorization denied" || got.kind() != "authorization_denied" || !strings.Contains(string(got.fault.Data), `"authorizationId":"`+id+`"`) {
					t.Errorf("%s, want %d", got, denied)
				}
				has(t, "data", got.fault.Data, printed("000-authorization-denied"))
				if era == "modern" && got.code() == -32002 {
					t.Errorf("a code that this revision does not have: %s", got)
				}
				w.ran("dangerous_operation", `{"target":"production"}`)
			})
		}
	}
}
