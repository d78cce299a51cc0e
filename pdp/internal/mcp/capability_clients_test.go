package mcp_test

import (
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/pdptest/mcptest"
)

// storyParams and storyResult are 001's capabilities/request, as a client of the SDK has them.
type storyParams struct {
	sdk.ParamsBase
	Tools      []string       `json:"tools"`
	Duration   int            `json:"duration"`
	MaxUses    int            `json:"max_uses"`
	Reason     string         `json:"reason"`
	Key        capability.Key `json:"key"`
	Proof      string         `json:"proof"`
	ApprovalID string         `json:"approval_id,omitempty"`
}

type storyResult struct {
	sdk.ResultBase
	Token     string   `json:"token"`
	Tools     []string `json:"tools"`
	Expires   string   `json:"expires"`
	Signature string   `json:"signature"`
	ID        string   `json:"id"`
}

const requests001 = "capabilities/request"

// TestCapabilityStory001: a client of others, in both eras: denied, told what to do, asked, a person agrees, granted, called, called
// again, revoked, refused.
func TestCapabilityStory001(t *testing.T) {
	t.Parallel()
	for n, denials := range []mcp.Denials{"error", mcp.DenialsResult, "error", mcp.DenialsResult} {
		era := eras[n/2]
		t.Run(era+" "+string(denials), func(t *testing.T) {
			t.Parallel()
			w := newVault(t, land{change: func(c *mcp.Config) { c.Denials = denials }, files: map[string]string{
				"story.cedar": `@id("story") @obligation("second-person") permit (principal is agent, action == Action::"capability.grant", resource == tool::"rec:kept");`,
			}})
			client := w.sdkClient(era, sdk.ClientOptions{}, func(c *sdk.Client) {
				orFail(t, sdk.AddSendingCustomMethod[*storyParams, *storyResult](c, requests001))
			})
			p := purse{vault: w, holder: holderOf(t, 1), server: "rec"}
			arguments := map[string]any{"target": "staging"}
			calls := func(meta sdk.Meta) echoed {
				t.Helper()
				result, err := client.CallTool(t.Context(), &sdk.CallToolParams{Meta: meta, Name: "kept", Arguments: arguments})
				return echoed{sdkAnswer(t, result, err)}
			}
			refused := func(got echoed, why string) {
				t.Helper()
				if denials == mcp.DenialsResult {
					if why = "Invalid or missing capability token: " + why; !strings.Contains(string(got.Result), why) || !strings.Contains(string(got.Result), `"isError":true`) {
						t.Errorf("%+v, want %s", got, why)
					}
					return
				}
				// The SDK takes -32003 for its own "client is closing", and shows the message alone; it goes on all the same.
				if !strings.HasSuffix(got.Message, "Invalid or missing capability token") || len(got.Result) > 0 {
					t.Errorf("%+v", got)
				}
			}
			shows := func() sdk.Meta {
				return sdk.Meta{"io.policy-service/capability": p.token, "io.policy-service/proof": p.proof("kept", `{"target":"staging"}`)}
			}
			refused(calls(nil), "Missing capability token. Request capability first using capabilities/request")
			asks := func(approval string) (*storyResult, echoed) {
				t.Helper()
				ask := capability.Ask{Holder: evaluation.Ref{Type: "agent", ID: "agent-release"}, Audience: "rec", Tools: []string{"kept"}, Duration: time.Hour, MaxUses: 5}
				orFail(t, p.holder.Request(&ask, w.visitor(era, nil).issuer(), w.now()))
				got, err := sdk.CallCustomMethod[*storyParams, *storyResult](t.Context(), client, requests001, &storyParams{
					Tools: ask.Tools, Duration: 3600, MaxUses: 5, Reason: "Need to perform maintenance task", Key: ask.Key, Proof: ask.Proof, ApprovalID: approval,
				})
				if err != nil {
					return nil, echoed{sdkAnswer(t, nil, err)}
				}
				return got, echoed{}
			}
			_, waits := asks("")
			id := waits.said("approval_id")
			if waits.Code != -32001 || waits.said("type") != "authorization_required" || id == "" {
				t.Fatalf("a person has to agree: %+v", waits)
			}
			if _, still := asks(id); still.said("approval_id") != id {
				t.Errorf("before a person agrees: %+v", still)
			}
			w.approve("mia", id)
			granted, no := asks(id)
			if no.Code != 0 || granted == nil || len(granted.Tools) != 1 || granted.Tools[0] != "kept" || !strings.HasSuffix(granted.Token, "."+granted.Signature) {
				t.Fatalf("granted %+v, %+v", granted, no)
			}
			p.id, p.token = granted.ID, granted.Token
			for n := range 2 {
				if got := calls(shows()); got.Code != 0 || len(got.Result) == 0 || p.used() != n+1 {
					t.Errorf("call %d: %+v, used %d", n, got, p.used())
				}
			}
			used := shows()
			calls(used)
			refused(calls(used), "Proof of possession was used before")
			p.revoke()
			if refused(calls(shows()), "Token revoked"); len(w.executed()) != 3 {
				t.Errorf("the server got %q", w.executed())
			}
		})
	}
}

// echoed is an answer that a client shows.
type echoed struct{ mcptest.Answer }

// said is a member of the data of an error.
func (e echoed) said(name string) string {
	var data map[string]any
	_ = json.Unmarshal(e.Data, &data)
	s, _ := data[name].(string)
	return s
}
