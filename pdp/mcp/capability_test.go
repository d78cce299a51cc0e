package mcp_test

import (
	"crypto/ed25519"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/mcptest"
)

// vault is a world whose tools are called with capabilities. "kept" needs one, "waits" needs one and a person's approval, and
// "free" none.
type vault struct{ *world }

const vaultPolicies = `
@id("kept") permit (principal is agent, action == Action::"tool.invoke", resource == tool::"rec:kept") when { context.pdp.capability.held };
@id("waits") @obligation("second-person") permit (principal is agent, action == Action::"tool.invoke", resource == tool::"rec:waits") when { context.pdp.capability.held };
@id("grants") permit (principal is agent, action == Action::"capability.grant", resource is tool);
@id("requests") permit (principal is agent, action == Action::"tool.request", resource == tool::"rec:fulfilled") when { context.pdp.capability.held };
@id("fulfils") permit (principal == user::"mia", action in [Action::"tool.fulfil", Action::"tool.invoke"], resource == tool::"rec:fulfilled");
`

func newVault(t testing.TB, of land) *vault {
	t.Helper()
	of.answers.Tools = definitions("kept", "other", "waits", "fulfilled", "free")
	if of.files == nil {
		of.files = map[string]string{}
	}
	of.files["capability.cedar"] = vaultPolicies
	of.slower = 100
	v := &vault{newPeople(t, of)}
	v.advance(2 * time.Minute) // proofs need no nonce any more
	return v
}

// purse is a capability of an agent, with the key of its holder.
type purse struct {
	*vault
	holder    *capability.Holder
	id, token string
	server    string
}

// asks has an agent granted a capability. Seed makes its key.
func (v *vault) grant(agent string, seed byte, change func(*capability.Ask), tools ...string) purse {
	v.t.Helper()
	h, err := capability.NewHolder(ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(rune(seed)), ed25519.SeedSize))))
	orFail(v.t, err)
	ask := capability.Ask{Tenant: "default", Holder: evaluation.Ref{Type: "agent", ID: agent}, Audience: "rec", Tools: tools, Duration: time.Hour}
	if change != nil {
		change(&ask)
	}
	by := v.pdp.URL
	if ask.Tenant != "default" {
		by += "/tenants/" + ask.Tenant
	}
	orFail(v.t, h.Request(&ask, by, v.now()))
	body, err := json.Marshal(ask)
	orFail(v.t, err)
	got := v.api("wallet", http.MethodPost, "/v1/capabilities", string(body))
	if got.Status != http.StatusCreated {
		v.t.Fatalf("granted: %d %s", got.Status, got.Body)
	}
	p := purse{vault: v, holder: h, server: ask.Audience}
	var said struct{ ID, Token string }
	orFail(v.t, json.Unmarshal([]byte(got.Body), &said, json.MatchCaseInsensitiveNames(true)))
	p.id, p.token = said.ID, said.Token
	return p
}

// claim is what a proof of a call of a tool says.
func (p purse) claim(tool, arguments string) capability.Claim {
	p.t.Helper()
	o, err := evaluation.ParseWithNulls([]byte(arguments), evaluation.DefaultLimits())
	orFail(p.t, err)
	return capability.Claim{Capability: p.id, Audience: p.server, Tool: p.server + ":" + tool, Arguments: o, IssuedAt: p.now()}
}

func (p purse) prove(c capability.Claim) string {
	p.t.Helper()
	proof, err := p.holder.Prove(c)
	orFail(p.t, err)
	return proof
}

// proof is a good proof of a call.
func (p purse) proof(tool, arguments string) string {
	p.t.Helper()
	return p.prove(p.claim(tool, arguments))
}

// shows has a client show a token and a proof with what it sends.
func (v *visitor) shows(token, proof string) *visitor {
	v.meta = `,"io.policy-service/capability":` + inText(token) + `,"io.policy-service/proof":` + inText(proof)
	return v
}

// used is how often a capability was used.
func (p purse) used() int {
	p.t.Helper()
	got := p.api("warden", http.MethodGet, "/v1/capabilities/"+p.id, "")
	var said struct {
		Used int `json:"used"`
	}
	orFail(p.t, json.Unmarshal([]byte(got.Body), &said))
	return said.Used
}

// reason is data.code of a refusal for want of a capability, "" if it is no such refusal.
func reason(a echo) string {
	var d struct {
		Type, Code string
	}
	if a.code() != -32003 || json.Unmarshal(a.fault.Data, &d, json.MatchCaseInsensitiveNames(true)) != nil || d.Type != "tool_call_blocked" {
		return ""
	}
	return d.Code
}

func counted(n int) func(*capability.Ask) { return func(a *capability.Ask) { a.MaxUses = n } }

var _ = []any{mcp.CapabilityRequired, mcptest.Claims{}, slices.Contains[[]int], jsontext.Value{}}

// TestCapabilityCalls: refused, granted, called, called again, revoked, refused; nothing of it reaches the server.
func TestCapabilityCalls(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			w := newVault(t, land{})
			v := w.visitor(era, nil)
			got := v.call("kept", `{"n":1}`)
			want := `{"type":"tool_call_blocked","reason":"Missing capability token","suggestion":"Request capability first using capabilities/request",` +
				`"code":"missing","next_action":"request","audience":"rec","tool":"kept","id":"rec:kept"}`
			if got.code() != -32003 || got.fault.Message != "Invalid or missing capability token" || string(got.fault.Data) != want {
				t.Errorf("without one: %s", got)
			}
			p := w.grant("agent-release", 1, counted(5), "kept")
			for n := range 2 {
				if got := v.shows(p.token, p.proof("kept", `{"n":1}`)).call("kept", `{"n":1}`); !got.ran() || p.used() != n+1 {
					t.Errorf("with one: %s, used %d", got, p.used())
				}
			}
		})
	}
}
