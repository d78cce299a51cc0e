package mcp_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
	"policy-service/pdp/internal/mcp"
	pdpserver "policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/auth/keys"
	"policy-service/pdp/internal/server/config"
	"policy-service/pdp/pdptest/mcptest"
)

// vault is a world whose tools are called with capabilities. "kept" needs one, "waits" needs one and a person's approval, and
// "free" none.
type vault struct{ *world }

const vaultPolicies = `
@id("kept") permit (principal is agent, action == Action::"tool.invoke", resource == tool::"rec:kept") when { context.pdp.capability.held };
@id("waits") @obligation("second-person") permit (principal is agent, action == Action::"tool.invoke", resource == tool::"rec:waits") when { context.pdp.capability.held };
@id("agrees") @obligation("confirm") permit (principal is agent, action == Action::"tool.invoke", resource == tool::"rec:agrees") when { context.pdp.capability.held };
@id("otherwise") permit (principal, action in [Action::"rec:kept", Action::"tools/call"], resource);
@id("grants") permit (principal is agent, action == Action::"capability.grant", resource is tool);
@id("requests") permit (principal is agent, action == Action::"tool.request", resource == tool::"rec:fulfilled") when { context.pdp.capability.held };
@id("fulfils") permit (principal == user::"mia", action in [Action::"tool.fulfil", Action::"tool.invoke"], resource == tool::"rec:fulfilled");
`

func newVault(t testing.TB, of land) *vault {
	t.Helper()
	if of.answers.Tools == "" {
		of.answers.Tools = definitions("kept", "other", "waits", "agrees", "fulfilled", "free")
	}
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
	h := holderOf(v.t, seed)
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
	p := v.granted(jsontext.Value(got.Body), h)
	p.server = ask.Audience
	return p
}

// granted is the capability in an answer, with the key that it is bound to.
func (v *vault) granted(answer jsontext.Value, h *capability.Holder) purse {
	v.t.Helper()
	var said struct{ ID, Token string }
	orFail(v.t, json.Unmarshal(answer, &said, json.MatchCaseInsensitiveNames(true)))
	return purse{vault: v, holder: h, id: said.ID, token: said.Token, server: "rec"}
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

// lacks fails unless a call was refused for want of a capability, for that reason, or has run if the reason is "".
func (a echo) lacks(t testing.TB, want string, of ...any) {
	t.Helper()
	if reason(a) != want || a.ran() != (want == "") {
		t.Errorf("%v %s, want %q", of, a, want)
	}
}

// did fails unless the server has got so many calls, and the capability was used so often.
func (p purse) did(calls, used int) {
	p.t.Helper()
	if len(p.executed()) != calls || p.used() != used {
		p.t.Errorf("the server got %q, and it was used %d times", p.executed(), p.used())
	}
}

func counted(n int) func(*capability.Ask) { return func(a *capability.Ask) { a.MaxUses = n } }

// judged is on how many decisions about calls is a capability on record, held or refused.
func (v *vault) judged() int {
	v.t.Helper()
	return v.recorded(func(line string) bool {
		return strings.Contains(line, `"kind":"decision"`) && !strings.Contains(line, `"capability.grant"`) && strings.Contains(line, `"capability":{`)
	})
}

// recorded is how many lines of the decision log are so.
func (v *vault) recorded(is func(line string) bool) (n int) {
	v.t.Helper()
	for line := range strings.Lines(v.api("auditor", http.MethodGet, "/v1/log/export", "").Body) {
		if is(line) {
			n++
		}
	}
	return n
}

// TestCapabilityCalls: refused, granted, called, called again, revoked, refused. Nothing of it reaches the server, or a log. The story
// capability has what a refusal says.
func TestCapabilityCalls(t *testing.T) {
	inEras(t, func(t *testing.T, era string) {
		w := newVault(t, land{})
		v := w.speaker(era, nil)
		v.call("kept", `{"n":1}`).lacks(t, "missing")
		p := w.grant("agent-release", 1, counted(5), "kept")
		proofs := []string{p.proof("kept", `{"n":1}`), p.proof("kept", `{"n":1}`)}
		for n, proof := range proofs {
			v.shows(p.token, proof).call("kept", `{"n":1}`).runs(t, "with one:")
			p.did(n+1, n+1)
		}
		// as 001 prints it, by the id of the capability
		v.meta = ""
		claim := p.claim("kept", `{}`)
		claim.ID = "unique-random-value"
		asPrinted := `{"name":"kept","arguments":{},"capability":"` + p.id + `","proof":{"timestamp":` + inText(claim.IssuedAt.UTC().Format(time.RFC3339)) +
			`,"nonce":"unique-random-value","signature":` + inText(p.prove(claim)) + `}}`
		v.ask("tools/call", asPrinted).runs(t, "as 001 has it:")
		p.did(3, 3)
		p.revoke()
		v.shows(p.token, p.proof("kept", `{"n":1}`)).call("kept", `{"n":1}`).lacks(t, "revoked")
		p.did(3, 3)
		secrets := append(proofs, p.token, p.id, p.prove(claim))
		for _, g := range w.rec.Got() {
			for _, secret := range secrets {
				if strings.Contains(string(g.Body), secret) || strings.Contains(string(g.Body), "proof") || strings.Contains(string(g.Body), "capability") {
					t.Errorf("the server got %s", g.Body)
				}
			}
		}
		for _, secret := range secrets {
			if strings.Contains(w.logs.String(), secret) {
				t.Error("a token, a proof or an id is in the gateway's log")
			}
		}
	})
}

// revoke ends a capability.
func (p purse) revoke() {
	p.t.Helper()
	if got := p.api("warden", http.MethodPost, "/v1/capabilities/"+p.id+"/revoke", `{"reason":"done"}`); got.Status != http.StatusOK {
		p.t.Fatalf("revoked: %d %s", got.Status, got.Body)
	}
}

// TestCapabilityOfANamedGateway: a gateway whose key has a name at the PDP takes tokens and ids with a proof for that name, and with no
// other. Proofs of its own are for it, too, once the PDP has said it.
func TestCapabilityOfANamedGateway(t *testing.T) {
	inEras(t, func(t *testing.T, era string) {
		const name = "https://gw1.example.com"
		w := newVault(t, land{change: func(c *mcp.Config) { c.Capabilities.HolderKey = mcp.HolderKeyGateway }})
		apiKeys, err := keys.Open(w.data)
		orFail(t, err)
		key, err := apiKeys.Add(keys.Spec{Name: "gw1", Grant: auth.Grant{
			Audiences: []string{name}, Tenants: []string{"*"}, Permissions: []auth.Permission{auth.Decide, auth.Search, auth.Relay, auth.Capability},
		}})
		orFail(t, err)
		w.config.PDP.KeyFile = secretFile(t, key)
		named, claims := w.replica(), mcptest.Claims{"client_id": "agent-a"}
		var v *visitor
		mcptest.Until(t, "the PDP knows the key", func() bool {
			v = named.stranger(era, w.issuer.Token(t, claims))
			_, began := v.tryBegin()
			return began && v.ask("capabilities/list", `{}`).ran()
		})
		p, calls := w.grant("agent-a", 1, nil, "kept"), 0
		proof := func(audience string) string {
			c := p.claim("kept", `{"n":1}`)
			c.Audience = audience
			return p.prove(c)
		}
		for _, shown := range []string{p.token, p.id} {
			v.shows(shown, proof(name)).call("kept", `{"n":1}`).runs(t, "for its name:")
			calls++
			for _, other := range []string{"rec", siegeResource, "https://gw2.example.com"} {
				got := v.shows(shown, proof(other)).call("kept", `{"n":1}`)
				if got.lacks(t, "proof_wrong_audience", "for", other); !strings.Contains(got.text, `"audience":"`+name+`"`) {
					t.Errorf("for %s: nobody knows for whom it has to be: %s", other, got)
				}
			}
		}
		v.meta = ""
		kept := w.granted(v.ask("capabilities/request", `{"tools":["kept"]}`).result, nil)
		if got := v.ask("capabilities/validate", `{"capability":`+inText(kept.token)+`,"name":"kept","arguments":{"n":1}}`); !strings.Contains(got.text, `"active":true`) {
			t.Errorf("validated: %s", got)
		}
		fresh := w.replica().visitor(era, claims) // which has not asked yet
		for n, v := range []*visitor{v, fresh, fresh} {
			v.meta = `,"io.policy-service/capability":` + inText([]string{kept.token, kept.token, kept.id}[n])
			before := w.judged()
			v.call("kept", `{"n":1}`).runs(t, "by a key that the gateway keeps, call", n)
			if calls++; w.judged()-before != []int{1, 2, 1}[n] {
				t.Errorf("call %d: the PDP was asked %d times", n, w.judged()-before)
			}
		}
		p.did(calls, 0)
	})
}

// dpop is a proof of RFC 9449.
const dpop = "eyJ0eXAiOiJkcG9wK2p3dCIsImFsZyI6IkVkRFNBIn0.eyJodG0iOiJQT1NUIn0.AAAA"

// TestCapabilityThreats: what is shown where it does not belong is refused for exactly that reason. Nothing is forwarded, no use
// is spent, and the PDP hears of it only where it alone can judge.
func TestCapabilityThreats(t *testing.T) {
	inEras(t, func(t *testing.T, era string) {
		w := newVault(t, land{files: map[string]string{
			"tenants/acme/a.cedar": `@id("acme") permit (principal is agent, action == Action::"capability.grant", resource is tool);`,
		}})
		limited := func(a *capability.Ask) {
			only, err := evaluation.NewObject(map[string]any{"constraint_type": "exact", "value": "staging"})
			orFail(t, err)
			c, err := capability.ParseConstraint(only.Value())
			orFail(t, err)
			a.Arguments, a.MaxUses = capability.Arguments{"target": c}, 2
		}
		p := w.grant("agent-release", 1, limited, "kept")
		thief := w.grant("agent-thief", 2, limited, "kept")
		acme := w.grant("agent-release", 1, func(a *capability.Ask) { a.Tenant = "acme" }, "kept")
		elsewhere := w.grant("agent-release", 1, func(a *capability.Ask) { a.Audience = "rec2" }, "kept")
		const good = `{"target":"staging"}`
		type shot struct {
			who             mcptest.Claims
			tool, arguments string
			token, proof    string
		}
		claimed := func(change func(*capability.Claim)) string {
			c := p.claim("kept", good)
			change(&c)
			return p.prove(c)
		}
		for _, test := range []struct {
			name, want string
			asked      int // of the PDP
			change     func(s *shot)
		}{
			{"at the connection of another agent", "wrong_holder", 0, func(s *shot) { s.who = mcptest.Claims{"client_id": "agent-thief"} }},
			{"at the connection of the person", "wrong_holder", 0, func(s *shot) { s.who = mcptest.Claims{"client_id": nil} }},
			{"with the key of the thief", "proof_invalid", 0, func(s *shot) {
				var err error
				s.proof, err = thief.holder.Prove(p.claim("kept", good))
				orFail(t, err)
			}},
			{"of another tenant", "bad_signature", 0, func(s *shot) { s.token, s.proof = acme.token, acme.proof("kept", good) }},
			{"of another server", "wrong_audience", 0, func(s *shot) { s.token, s.proof = elsewhere.token, elsewhere.proof("kept", good) }},
			{"for another tool", "tool_not_covered", 0, func(s *shot) {
				s.tool, s.proof = "other", claimed(func(c *capability.Claim) { c.Tool = "rec:other" })
			}},
			{"with an argument that it does not cover", "argument_refused", 0, func(s *shot) {
				s.arguments, s.proof = `{"target":"production"}`, p.proof("kept", `{"target":"production"}`)
			}},
			{"with another argument than was proved", "proof_wrong_call", 0, func(s *shot) { s.proof = p.proof("kept", `{"target":"stagin"}`) }},
			{"with one more argument, which is null", "argument_refused", 0, func(s *shot) { s.arguments = `{"target":"staging","x":null}` }},
			{"with the proof of another tool", "proof_wrong_call", 0, func(s *shot) {
				s.proof = claimed(func(c *capability.Claim) { c.Tool = "rec:other" })
			}},
			{"with the proof of another capability", "proof_wrong_call", 0, func(s *shot) {
				s.proof = claimed(func(c *capability.Claim) { c.Capability = thief.id })
			}},
			{"with a proof for the gateway", "proof_wrong_audience", 1, func(s *shot) {
				s.proof = claimed(func(c *capability.Claim) { c.Audience = siegeResource })
			}},
			{"with an old proof", "proof_stale", 0, func(s *shot) {
				s.proof = claimed(func(c *capability.Claim) { c.IssuedAt = w.now().Add(-2 * time.Minute) })
			}},
			{"with a proof from the future", "proof_stale", 0, func(s *shot) {
				s.proof = claimed(func(c *capability.Claim) { c.IssuedAt = w.now().Add(time.Minute) })
			}},
			{"with a proof of DPoP", "proof_invalid", 0, func(s *shot) { s.proof = dpop }},
			{"by its id, with a proof of DPoP", "proof_invalid", 1, func(s *shot) { s.token, s.proof = p.id, dpop }},
			{"by an id that there is not", "bad_signature", 1, func(s *shot) { s.token = "cap_0199f3a27c1e7d3a8f00c3b2a1908f7e" }},
			{"with another signature", "bad_signature", 0, func(s *shot) { s.token = p.token[:strings.LastIndex(p.token, ".")] + "." + strings.Repeat("A", 86) }},
			{"with a proof in place of the token", "malformed", 0, func(s *shot) { s.token = s.proof }},
			{"too large", "too_large", 0, func(s *shot) { s.token = strings.Repeat("a", capability.MaxToken+1) }},
			{"with too large a proof", "proof_invalid", 0, func(s *shot) { s.proof = strings.Repeat("a", capability.MaxProof+1) }},
		} {
			s := shot{tool: "kept", arguments: good, token: p.token, proof: p.proof("kept", good)}
			test.change(&s)
			asked := w.judged()
			got := w.visitor(era, s.who).shows(s.token, s.proof).call(s.tool, s.arguments)
			got.lacks(t, test.want, test.name)
			if test.want == "argument_refused" && !strings.Contains(got.text, `"argument":"`) {
				t.Errorf("%s: nobody knows which: %s", test.name, got)
			}
			if s.proof == dpop && !strings.Contains(got.text, "DPoP says nothing about the tool and its arguments") {
				t.Errorf("%s: nobody knows why: %s", test.name, got)
			}
			if now := w.judged(); now != asked+test.asked {
				t.Errorf("%s: the PDP has judged it %d times", test.name, now-asked)
			}
		}
		p.did(0, 0)
		thief.did(0, 0)
		v, proof := w.visitor(era, nil), p.proof("kept", good)
		for n, want := range []string{"", "proof_replayed"} {
			v.shows(p.token, proof).call("kept", good).lacks(t, want, "with one proof, call", n)
		}
		v.shows(p.token, p.proof("kept", good)).call("kept", good)
		v.shows(p.token, p.proof("kept", good)).call("kept", good).lacks(t, "used_up", "a third use of two:")
		p.did(2, 2)
		w.advance(time.Hour)
		v = w.visitor(era, nil) // the token of the client has expired, too
		v.shows(acme.token, acme.proof("kept", good)).call("kept", good).lacks(t, "bad_signature", "of another tenant, and expired:")
		v.shows(elsewhere.token, elsewhere.proof("kept", good)).call("kept", good).lacks(t, "expired")
	})
}

// TestCapabilityUnreadable: a capability that cannot be read is refused, and never passed over.
func TestCapabilityUnreadable(t *testing.T) {
	t.Parallel()
	w := newVault(t, land{})
	p := w.grant("agent-release", 1, nil, "free")
	stamp := w.now().UTC().Format(time.RFC3339)
	object := func(stamp, nonce, more string) string {
		c := p.claim("free", `{}`)
		c.ID = "unique-random-value"
		return `"capability":` + inText(p.token) + `,"proof":{"timestamp":` + inText(stamp) + `,"nonce":` + inText(nonce) + `,"signature":` + inText(p.prove(c)) + more + `}`
	}
	const inMeta = `"_meta":{"io.policy-service/capability":`
	for members, want := range map[string]string{
		inMeta + `7}`:    "malformed",
		inMeta + `null}`: "malformed",
		inMeta + `""}`:   "malformed",
		inMeta + `{}}`:   "malformed",
		inMeta + inText(p.token) + `,"io.policy-service/proof":{}}`:   "proof_invalid",
		inMeta + inText(p.token) + `,"io.policy-service/proof":null}`: "proof_invalid",
		inMeta + inText(p.token) + `}`:                                "proof_missing",
		`"_meta":{"io.policy-service/proof":"x"}`:                     "missing",
		`"proof":"x"`:        "missing",
		`"capability":["x"]`: "malformed",
		`"capability":` + inText(p.token) + `,` + inMeta + `"x"}`:                                "malformed",
		`"capability":"x","proof":"x","_meta":{"io.policy-service/proof":"x"}`:                   "malformed",
		`"capability":` + inText(p.token) + `,"proof":[]`:                                        "proof_invalid",
		object(w.now().Add(5*time.Second).UTC().Format(time.RFC3339), "unique-random-value", ""): "proof_invalid",
		object(stamp, "another-random-value", ""):                                                "proof_invalid",
		object("now", "unique-random-value", ""):                                                 "proof_invalid",
		object(stamp, "unique-random-value", `,"more":1`):                                        "proof_invalid",
	} {
		for _, method := range []string{"tools/call", "tools/request"} {
			w.visitor("legacy", nil).ask(method, `{"name":"free","arguments":{},`+members+`}`).lacks(t, want, method, members)
		}
	}
	w.untouched(t)
}

// TestCapabilityAndApproval: a call that needs both waits with its proof. However it goes on, there is one forward, one use and
// one spent approval.
func TestCapabilityAndApproval(t *testing.T) {
	t.Parallel()
	const arguments = `{"n":1}`
	for _, test := range []struct {
		era, how string
		tool     string
		channels []string
		wait     time.Duration
	}{
		{"legacy", "held", "waits", []string{"wait"}, 25 * time.Second},
		{"modern", "held", "waits", []string{"wait"}, 25 * time.Second},
		{"legacy", "anew", "waits", []string{"wait"}, 100 * time.Millisecond},
		{"modern", "anew", "waits", []string{"wait"}, 100 * time.Millisecond},
		{"legacy", "by a form", "agrees", []string{"form"}, 25 * time.Second},
		{"modern", "by a form, with the same proof", "agrees", []string{"form"}, 25 * time.Second},
		{"modern", "by a form, with a fresh proof", "agrees", []string{"form"}, 25 * time.Second},
	} {
		t.Run(test.era+" "+test.how, func(t *testing.T) {
			t.Parallel()
			w := newVault(t, land{change: askedBy(test.wait, test.channels...)})
			p := w.grant("agent-release", 1, counted(1), test.tool)
			first := p.proof(test.tool, arguments)
			v := w.client(test.era).shows(p.token, first)
			var got echo
			switch test.how {
			case "held":
				done := v.waits(test.tool, arguments).ended
				id := w.asks(test.tool)
				w.advance(5 * time.Minute) // people take longer than a proof is good for
				w.approve("mia", id)
				got = <-done
			case "anew":
				if got = v.call(test.tool, arguments); got.code() != -32001 {
					t.Fatalf("nobody is asked: %s", got)
				}
				w.approve("mia", w.asks(test.tool))
				v.call(test.tool, arguments).lacks(t, "proof_replayed", "a new call with the proof of another:")
				got = v.shows(p.token, p.proof(test.tool, arguments)).call(test.tool, arguments)
			default:
				d := v.dialogue(test.tool, arguments)
				w.advance(5 * time.Minute)
				if test.how == "by a form, with a fresh proof" {
					v.shows(p.token, p.proof(test.tool, arguments))
				}
				d.answer(v, saysYes)
				got = d.end()
			}
			approval := w.approvals(test.tool)[0]
			if !got.ran() || approval.Used != 1 {
				t.Errorf("%s; the approval was used %d times", got, approval.Used)
			}
			p.did(1, 1)
			if shown := w.api("gateway", http.MethodGet, "/v1/approvals/"+approval.ID, "").Body; strings.Contains(shown, p.id) || strings.Contains(shown, "proof") {
				t.Errorf("people see %s", shown)
			}
			if again := v.shows(p.token, first).call(test.tool, arguments); !strings.HasPrefix(reason(again), "proof_") && reason(again) != "used_up" {
				t.Errorf("again with the first proof: %s", again)
			}
			v.shows(p.token, p.proof(test.tool, arguments)).call(test.tool, arguments).lacks(t, "used_up", "again with a fresh proof:")
			p.did(1, 1)
		})
	}
}

// TestCapabilityHybrid: a restricted agent needs a capability and a fulfilment. What it shows is spent with the fulfilment, once,
// and is in no message about its request; who fulfils it needs none.
func TestCapabilityHybrid(t *testing.T) {
	inEras(t, func(t *testing.T, era string) {
		w := newVault(t, land{change: askedBy(100*time.Millisecond, "wait")})
		const arguments, request = `{"n":1}`, `{"name":"fulfilled","arguments":{"n":1}}`
		restricted := func() *visitor { return w.visitor(era, mcptest.Claims{"sub": "bob", "client_id": "restricted"}) }
		agent := restricted()
		agent.ask("tools/request", request).lacks(t, "missing")
		p := w.grant("restricted", 1, counted(2), "fulfilled")
		thief := w.grant("agent-thief", 2, nil, "fulfilled")
		agent.shows(thief.token, thief.proof("fulfilled", arguments)).ask("tools/request", request).lacks(t, "wrong_holder")
		id := agent.shows(p.token, p.proof("fulfilled", arguments)).requests("fulfilled", arguments)
		p.did(0, 0)
		w.advance(5 * time.Minute)
		agent = restricted()
		last := p.proof("fulfilled", arguments)
		if got := agent.shows(p.token, last).fetches(id, "fulfilled", arguments); pendingID(got) == "" {
			t.Errorf("it does not wait: %s", got)
		}
		mia := w.visitor(era, mcptest.Claims{"sub": "mia", "client_id": nil})
		mia.fulfils(id, "restricted", "fulfilled", arguments).runs(t)
		p.did(1, 1)
		if got := agent.fetches(id, "fulfilled", arguments); !got.ran() || pendingID(got) != "" {
			t.Errorf("what came of it: %s", got)
		}
		if got := agent.ask("tools/request", request); got.fault != nil {
			t.Errorf("requested again: %s", got) // that its proof was taken before only the PDP knows
		} else if again := mia.fulfils(pendingID(got), "restricted", "fulfilled", arguments); again.ran() {
			t.Errorf("a second call with one proof: %s", again)
		} else {
			agent.fetches(pendingID(got), "fulfilled", arguments).lacks(t, "proof_replayed", "its requester:")
		}
		// one that is revoked meanwhile
		id = agent.shows(p.token, p.proof("fulfilled", arguments)).requests("fulfilled", arguments)
		p.revoke()
		mia.fulfils(id, "restricted", "fulfilled", arguments).refused(t, -32001, "", "", "revoked:")
		agent.fetches(id, "fulfilled", arguments).lacks(t, "revoked")
		p.did(1, 1)
		if seen := w.judged(); seen < 2 {
			t.Errorf("the capability is on record %d times", seen)
		}
		for _, secret := range []string{p.token, last} {
			if strings.Contains(mia.heard.String(), secret) || strings.Contains(w.logs.String(), secret) {
				t.Error("a token or a proof is in the gateway's log, or was told to who fulfils")
			}
		}
	})
}

// TestCapabilityNonce: a client gets the nonce that its next proof needs, with a refusal and with a result.
func TestCapabilityNonce(t *testing.T) {
	inEras(t, func(t *testing.T, era string) {
		w := newVault(t, land{serve: func(c *pdpserver.Config) { c.Capabilities.Nonce = "required" }})
		p, v := w.grant("agent-release", 1, counted(2), "kept"), w.visitor(era, nil)
		got := v.shows(p.token, p.proof("kept", `{}`)).call("kept", `{}`)
		got.lacks(t, "nonce_required")
		for range 2 {
			claim := p.claim("kept", `{}`)
			if got.fault != nil {
				claim.Nonce = textOf(t, got.fault.Data, "nonce")
			} else {
				claim.Nonce = textOf(t, got.result, "io.policy-service/nonce")
			}
			got = v.shows(p.token, p.prove(claim)).call("kept", `{}`)
			got.runs(t)
		}
		p.did(2, 2)
	})
}

// TestCapabilityOtherwise: where the PDP takes no capability, one that is shown is refused, and where one is required, a call
// that shows none. In neither case is the PDP asked about the call.
func TestCapabilityOtherwise(t *testing.T) {
	t.Parallel()
	const declares = `[{"name":"kept","inputSchema":{"type":"object","x-authzen-mapping":{"evaluation":{"subject":{"type":"user","id":"$token.sub"},"action":{"name":"read"},"resource":{"type":"public","id":"1"}}}}}]`
	for name, test := range map[string]struct {
		change func(*mcp.Config)
		want   string
		shows  bool
	}{
		"coaz":     {func(c *mcp.Config) { c.Ask = mcp.AskCOAZ }, "not_asked", true},
		"tool":     {func(c *mcp.Config) { c.Ask = mcp.AskTool }, "not_asked", true},
		"declared": {func(c *mcp.Config) { c.Declared = mcp.DeclaredInstead }, "not_asked", true},
		"mapped": {func(c *mcp.Config) {
			c.Mappings = map[string]config.Object{"tools/call rec:kept": config.Object(`{"evaluation":{"subject":{"type":"agent","id":"$token.client_id"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"rec:kept"}}}`)}
		}, "not_asked", true},
		"required": {ofServer(func(u *mcp.UpstreamConfig) { u.Capability = mcp.CapabilityRequired }), "missing", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newVault(t, land{change: test.change, answers: mcptest.Answers{Tools: declares}})
			p := w.grant("agent-release", 1, nil, "kept")
			for _, era := range eras {
				v := w.visitor(era, nil)
				if test.shows {
					v.shows(p.token, p.proof("kept", `{}`))
				}
				v.call("kept", `{}`).lacks(t, test.want, era)
			}
			w.untouched(t)
			if w.judged() != 0 {
				t.Error("the PDP has judged it")
			}
		})
	}
}
