package server_test

import (
	"cmp"
	"crypto/ed25519"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
	"policy-service/pdp"
	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/decisionlog/record"
	records "policy-service/pdp/internal/decisionlog/recorder"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/signing"
	"policy-service/pdp/pdptest"
)

const capabilityPolicies = `
@id("held") permit(principal is agent, action == Action::"tool.invoke", resource is tool) when { context.pdp.capability.held };
@id("never") forbid(principal, action == Action::"tool.invoke", resource == tool::"b:never");
@id("grants") permit(principal is agent, action == Action::"capability.grant", resource is tool) when { context.pdp.resource.id like "b:*" };
@id("grants_all") permit(principal is agent, action == Action::"capability.grant", resource == server::"b");
@id("grants_all_by_people") @obligation("ask") permit(principal is agent, action == Action::"capability.grant", resource == server::"people");
@id("grants_by_people") @obligation("ask") permit(principal is agent, action == Action::"capability.grant", resource is tool) when { context.pdp.resource.id like "b:danger*" };
@id("asks") @obligation("ask") permit(principal is agent, action == Action::"tool.invoke", resource is tool) when { context.pdp.capability.held && context.pdp.resource.id == "b:both" };
@id("leads") permit(principal in team::"leads", action == Action::"approval.decide", resource is Approval);
@id("not_long") forbid(principal, action == Action::"capability.grant", resource == tool::"b:short") when { context.action.seconds > 3600 };
@id("hands_on") permit(principal is agent, action == Action::"capability.delegate", resource is tool) when { context.pdp.resource.id like "b:*" && context.action.to.type == "agent" };
@id("not_granted") forbid(principal, action == Action::"capability.grant", resource == tool::"b:secret");
`

// wallet is where an agent asks for capabilities and shows them.
type wallet struct {
	*counter
	holder  *capability.Holder
	options []pdptest.Option
	n       int
	as      string // who asks for capabilities: wallet unless it is set
	source  pdp.Source
	at      string // where: /v1/capabilities unless it is set
	away    bool   // the holder is away, and makes no proof
}

// openWallet starts a server whose PEP asks for agents, with people who approve.
func openWallet(t *testing.T, options ...pdptest.Option) *wallet {
	t.Helper()
	return openWalletOn(t, capabilityBundle(), options...)
}

func openWalletOn(t testing.TB, source pdp.Source, options ...pdptest.Option) *wallet {
	t.Helper()
	w := &wallet{holder: newHolder(t, 1), options: append(options, func(c *server.Config) { c.PublicURL = issuer }), source: source}
	w.counter = openCounterOn(t, source, w.options...)
	c := w.counter
	c.welcome("wallet", "", auth.Decide, auth.Capability)
	c.welcome("warden", "", auth.CapabilityAdmin)
	return w
}

// issuer is the address that tokens are by, also after a restart.
const issuer = "https://pdp.example"

func capabilityBundle() pdp.Source { return pdptest.Bundle(capabilityFiles()) }

func capabilityFiles() map[string]string {
	return map[string]string{
		"a.cedar": capabilityPolicies, "obligations.yaml": approvalObligations, "entities/e.json": capabilityEntities,
		"tenants/acme/a.cedar": `@id("acme") permit(principal is agent, action == Action::"tool.invoke", resource) when { context.pdp.capability.held };`,
	}
}

// restart stops the server, has something done to its data directory, and starts it again.
func (w *wallet) restart(meanwhile func()) {
	w.t.Helper()
	must(w.t, w.Stop(w.t.Context()))
	meanwhile()
	w.open(w.source, w.options...)
}

const capabilityEntities = `[{"uid":{"type":"user","id":"mia"},"attrs":{},"parents":[{"type":"team","id":"leads"}]}]`

// newHolder has a key that is made of one byte.
func newHolder(t testing.TB, seed byte) *capability.Holder {
	t.Helper()
	h, err := capability.NewHolder(ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(rune(seed)), ed25519.SeedSize))))
	must(t, err)
	return h
}

// granted is the answer to a request for a capability.
type granted struct {
	text      string    // of the answer
	Granted   bool      `json:"granted"`
	ID        string    `json:"id"`
	Token     string    `json:"token"`
	Expires   time.Time `json:"expires"`
	ExpiresIn int       `json:"expires_in"`
	MaxUses   int       `json:"max_uses"`
	Narrowed  []string  `json:"narrowed"`
	Refused   []string  `json:"refused"`
	Approval  *struct {
		ID string `json:"id"`
	} `json:"approval"`
}

// asking is a request for a capability for agent bot, with its proof.
func (w *wallet) asking(change func(*capability.Ask), tools ...string) capability.Ask {
	w.t.Helper()
	a := capability.Ask{
		Tenant: "default", Holder: evaluation.Ref{Type: "agent", ID: "bot"}, Audience: "b", Tools: tools, Duration: time.Hour,
	}
	if change != nil {
		change(&a)
	}
	by := issuer
	if a.Tenant != "default" {
		by += "/tenants/" + a.Tenant
	}
	must(w.t, w.holder.Request(&a, by, w.Now()))
	if w.away {
		a.Proof = ""
	}
	return a
}

// uses has a capability count its uses.
func uses(n int) func(*capability.Ask) { return func(a *capability.Ask) { a.MaxUses = n } }

// asksFor asks for a capability for agent bot.
func (w *wallet) asksFor(want int, change func(*capability.Ask), tools ...string) (g granted) {
	w.t.Helper()
	body, err := json.Marshal(w.asking(change, tools...))
	must(w.t, err)
	status, text := w.do(cmp.Or(w.as, "wallet"), "POST", cmp.Or(w.at, "/v1/capabilities"), string(body))
	if status != want {
		w.t.Fatalf("asked for %v: %d %s, want %d", tools, status, text, want)
	}
	if g.text = text; status < 300 {
		must(w.t, json.Unmarshal([]byte(text), &g))
	}
	return g
}

// shot is a call that shows a capability. Each of its parts can be changed.
type shot struct {
	tenant, agent, tool, arguments, token, more string
	claim                                       capability.Claim
	gateway                                     string // that shows it: wallet unless it is set
	proof                                       string // in place of one that is made
	by                                          *capability.Holder
}

// call is a good call of a tool with a capability.
func (w *wallet) call(g granted, tool string) shot {
	w.n++
	return shot{
		tenant: "default", agent: "bot", tool: tool, arguments: `{"target":"staging","n":7}`, token: g.Token, by: w.holder,
		claim: capability.Claim{Capability: g.ID, Audience: "b", Tool: tool, IssuedAt: w.Now(), ID: fmt.Sprintf("proof-%012d", w.n)},
	}
}

// proved is the call with its proof, if it has none yet.
func (s shot) proved(t testing.TB) shot {
	t.Helper()
	var err error
	if s.claim.Arguments.Len() == 0 {
		s.claim.Arguments = objectOf(t, s.arguments)
	}
	if s.proof == "" {
		s.proof, err = s.by.Prove(s.claim)
		must(t, err)
	}
	return s
}

// body is the call in the native form.
func (s shot) body(t testing.TB) string {
	t.Helper()
	s = s.proved(t)
	return fmt.Sprintf(`{"tenant_id":%q,"actor":{"actor_id":%q,"actor_type":"agent"},"action":"tool.invoke","resource":{"type":"tool","id":%q},"context":{"arguments":%s,"capability":{"token":%q,"proof":%q}%s}}`,
		s.tenant, s.agent, s.tool, s.arguments, s.token, s.proof, s.more)
}

// worth is what an answer says of the capability.
type worth struct {
	Allow      bool            `json:"allow"`
	Reason     string          `json:"reason"`
	Owes       map[string]bool `json:"obligations"`
	Capability struct {
		ID       string `json:"id"`
		UsesLeft *int   `json:"uses_left"`
		Reason   string `json:"reason"`
		Audience string `json:"audience"`
		Nonce    string `json:"nonce"`
	} `json:"capability"`
	Approval struct {
		ID string `json:"id"`
	} `json:"approval"`
}

// shoot makes a call, and returns what became of it in one word: allow, or why not.
func (w *wallet) shoot(s shot) (string, worth) {
	w.t.Helper()
	status, text := w.do(cmp.Or(s.gateway, "wallet"), "POST", "/v1/authorize", s.body(w.t))
	var a worth
	if status != http.StatusOK {
		return fmt.Sprint(status), a
	}
	must(w.t, json.Unmarshal([]byte(text), &a))
	switch {
	case a.Allow && len(a.Owes) > 0:
		return "wait", a
	case a.Allow:
		return "allow", a
	case a.Capability.Reason != "":
		return a.Capability.Reason, a
	case a.Reason != "":
		return a.Reason, a
	}
	return "deny", a
}

// is checks what becomes of a call.
func (w *wallet) is(want string, s shot) worth {
	w.t.Helper()
	got, a := w.shoot(s)
	if got != want {
		w.t.Errorf("got %s, %+v; want %s", got, a, want)
	}
	return a
}

// TestCapabilityStory: denied, asked, approved, granted, called, called again, revoked, refused; all of it on record.
func TestCapabilityStory(t *testing.T) {
	t.Parallel()
	w := openWallet(t)
	w.Advance(time.Minute) // proofs need no nonce any more
	const tool = "b:dangerous_operation"
	none := fmt.Sprintf(`{"tenant_id":"default","actor":{"actor_id":"bot","actor_type":"agent"},"action":"tool.invoke","resource":{"type":"tool","id":%q}}`, tool)
	status, text := w.do("wallet", "POST", "/v1/authorize", none)
	if want := `{"allow":false,"reason":"capability_required","capability":{"audience":"b","tools":["b:dangerous_operation"],"next_action":"request"}}`; status != 200 || text != want {
		t.Fatalf("got %d %s\nwant %s", status, text, want)
	}

	waits := w.asksFor(http.StatusAccepted, nil, "dangerous_operation")
	if waits.Granted || waits.Token != "" || waits.Approval == nil {
		t.Fatalf("%+v", waits)
	}
	presents := func(a *capability.Ask) { a.ApprovalID = waits.Approval.ID }
	if g := w.asksFor(http.StatusAccepted, presents, "dangerous_operation"); g.Granted || g.Approval.ID != waits.Approval.ID {
		t.Errorf("before anybody has approved: %+v", g)
	}
	w.says("mia", waits.Approval.ID, "decision", `{"decision":"approve","reason":"maintenance"}`, http.StatusOK)
	other := w.asksFor(http.StatusAccepted, func(a *capability.Ask) { presents(a); a.Duration = 2 * time.Hour }, "dangerous_operation")
	if other.Granted || other.Approval.ID == waits.Approval.ID {
		t.Errorf("an approval of an hour is none of two: %+v", other)
	}
	g := w.asksFor(http.StatusCreated, presents, "dangerous_operation")
	if lost := w.asksFor(http.StatusCreated, presents, "dangerous_operation"); lost.ID != g.ID || lost.Token != g.Token {
		t.Errorf("whose answer was lost gets another: %+v, %+v", g, lost)
	}

	if a := w.is("allow", w.call(g, tool)); a.Capability.ID != g.ID || a.Capability.UsesLeft != nil {
		t.Errorf("%+v", a)
	}
	w.is("allow", w.call(g, tool))
	w.is("tool_not_covered", w.call(g, "b:read"))
	w.reply("warden", "POST", "/v1/capabilities/"+g.ID+"/revoke", `{"reason":"enough"}`).is(t, "revoke", 200, `"state":"revoked"`)
	w.is("revoked", w.call(g, tool))
	w.reply("wallet", "GET", "/v1/capabilities/"+g.ID, "").is(t, "state", 200, `"state":"revoked"`, `"tools":["b:dangerous_operation"]`)
	w.reply("pep", "GET", "/v1/capabilities/"+g.ID, "").is(t, "whose it is not", 404)
	w.asksFor(http.StatusOK, nil, "secret")

	_, text = w.do("auditor", "GET", "/v1/log/export", "")
	if report := verify.Export(strings.NewReader(text), verify.Options{}); !report.Verified() {
		t.Errorf("the log does not verify: %+v", report)
	}
	found := ""
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		r, err := record.Parse([]byte(line))
		switch {
		case err != nil:
		case r.Kind == "capability":
			found += " " + r.Event
		case r.Capability != nil && r.Capability.Held:
			p := r.Capability.Proof
			claim := capability.Proof{
				Capability: r.Capability.ID, Audience: p.Audience, Tool: p.Tool, Arguments: string(p.Arguments), IssuedAt: time.Unix(p.IssuedAt, 0),
				ID: p.ID, Nonce: p.Nonce, Algorithm: p.Algorithm, Signature: string(p.Signature),
			}
			if !claim.VerifiedBy(w.holder.Key()) || p.Key != w.holder.Key().Thumbprint() {
				t.Errorf("the signature of the holder is not on record: %+v", p)
			}
			found += " held"
		case r.Capability != nil && r.Capability.Reason != "":
			found += " " + r.Capability.Reason
		case r.Reason == "capability_required":
			found += " required"
		}
	}
	if want := " required granted held held tool_not_covered revoked revoked"; found != want {
		t.Errorf("on record:%s\nwant     %s", found, want)
	}
}

// TestCapabilityAttacks: one thing is changed of a call that is good otherwise. It is denied for exactly that reason, and the
// good call that follows is allowed: nothing was spent.
func TestCapabilityAttacks(t *testing.T) {
	t.Parallel()
	w := openWallet(t)
	counted := func(a *capability.Ask) {
		a.MaxUses = 1
		staging, err := capability.ParseConstraint(textValue(t, "staging"))
		must(t, err)
		wild, err := evaluation.NewObject(map[string]any{"constraint_type": "wildcard"})
		must(t, err)
		others, err := capability.ParseConstraint(wild.Value())
		must(t, err)
		a.Arguments = capability.Arguments{"target": staging, "*": others}
	}
	thief := newHolder(t, 2)
	w.Advance(30 * time.Second)
	for _, test := range []struct {
		name   string
		change func(*shot)
		want   string
	}{
		{"without a proof", func(s *shot) { s.proof = " " }, "proof_invalid"},
		{"a proof by the thief's key", func(s *shot) { s.by = thief }, "proof_invalid"},
		{"another audience", func(s *shot) { s.claim.Audience = "https://gateway.example" }, "proof_wrong_audience"},
		{"a proof for another tool", func(s *shot) { s.claim.Tool = "b:other" }, "proof_wrong_call"},
		{"a proof for another capability", func(s *shot) { s.claim.Capability = "cap_other" }, "proof_wrong_call"},
		{"another argument than was proved", func(s *shot) {
			s.claim.Arguments = objectOf(t, `{"target":"staging","n":8}`)
		}, "proof_wrong_call"},
		{"null beside what was proved", func(s *shot) {
			s.claim.Arguments, s.arguments = objectOf(t, s.arguments), `{"target":"staging","n":7,"x":null}`
		}, "proof_wrong_call"},
		{"an argument outside the constraint", func(s *shot) { s.arguments = `{"target":"production","n":7}` }, "argument_refused"},
		{"a number that no double holds", func(s *shot) {
			s.claim.Arguments, s.arguments = objectOf(t, s.arguments), `{"target":"staging","n":9007199254740993}`
		}, "argument_unprovable"},
		{"arguments that are no object", func(s *shot) {
			s.claim.Arguments, s.arguments = objectOf(t, `{"target":"staging","n":7}`), `["rm","-rf"]`
		}, "argument_unprovable"},
		{"arguments that are text", func(s *shot) {
			s.claim.Arguments, s.arguments = objectOf(t, `{"target":"staging","n":7}`), `"rm -rf"`
		}, "argument_unprovable"},
		{"another tool", func(s *shot) { s.tool, s.claim.Tool = "b:red", "b:red" }, "tool_not_covered"},
		{"another tool by another case", func(s *shot) { s.tool, s.claim.Tool = "b:Read", "b:Read" }, "tool_not_covered"},
		{"another holder", func(s *shot) { s.agent = "bot2" }, "wrong_holder"},
		{"another tenant", func(s *shot) { s.tenant = "acme" }, "bad_signature"},
		{"one bit of the token", func(s *shot) { s.token = s.token[:len(s.token)-4] + "AAAA" }, "bad_signature"},
		{"white space", func(s *shot) { s.token += "\n" }, "bad_signature"},
		{"an id that there is not", func(s *shot) { s.token = "cap_0199f3a27c1e7d3a8f00c3b2a1908f7e" }, "bad_signature"},
		{"no token", func(s *shot) { s.token = "" }, "malformed"},
		{"a large token", func(s *shot) { s.token = strings.Repeat("a", 9000) }, "too_large"},
		{"a proof as a token", func(s *shot) {
			var err error
			s.token, err = s.by.Prove(s.claim)
			must(t, err)
		}, "bad_signature"},
		{"a proof that is too old", func(s *shot) { s.claim.IssuedAt = w.Now().Add(-61 * time.Second) }, "proof_stale"},
		{"a proof that is to come", func(s *shot) { s.claim.IssuedAt = w.Now().Add(11 * time.Second) }, "proof_stale"},
		{"a proof from before the start", func(s *shot) { s.claim.IssuedAt = pdptest.Now.Add(5 * time.Second) }, "nonce_required"},
		{"a good one", func(s *shot) {}, "allow"},
	} {
		g := w.asksFor(http.StatusCreated, counted, "read")
		s := w.call(g, "b:read")
		test.change(&s)
		if got, a := w.shoot(s); got != test.want {
			t.Errorf("%s: got %s, %+v; want %s", test.name, got, a, test.want)
		}
		if test.want == "allow" {
			if got, _ := w.shoot(w.call(g, "b:read")); got != "used_up" {
				t.Errorf("the second use of one: %s", got)
			}
		} else if got, a := w.shoot(w.call(g, "b:read")); got != "allow" {
			t.Errorf("%s: the good call after it: %s, %+v", test.name, got, a)
		}
		w.do("warden", "POST", "/v1/capabilities/"+g.ID+"/revoke", `{"reason":"done"}`)
		w.Advance(time.Second)
	}
}

// TestCapabilityRefusedOnRecord: the record of a call whose capability was refused has its id if it is one of the tenant: a
// signature of ours or the store says so. The answer has none, and the record is decided again as it was.
func TestCapabilityRefusedOnRecord(t *testing.T) {
	t.Parallel()
	w := openWallet(t)
	w.Advance(time.Minute)
	g := w.asksFor(http.StatusCreated, func(a *capability.Ask) { a.Arguments = capability.Arguments{} }, "read")
	acme := w.asksFor(http.StatusCreated, func(a *capability.Ask) { a.Tenant = "acme" }, "read")
	gone := w.asksFor(http.StatusCreated, nil, "read")
	good := func() shot { s := w.call(g, "b:read"); s.arguments = "{}"; return s }
	byID := func(s shot, id string) shot { s.token = id; return s }
	spent := good().proved(t)
	w.is("allow", spent)
	bundle, problems := pdp.Load(w.source)
	if bundle == nil {
		t.Fatal(problems)
	}
	check := func(name, want string, s shot, id string) {
		t.Helper()
		status, answer, decision := w.sent("wallet", "POST", authorizePath, s.body(t))
		record, err := record.Resolve([]byte(w.onRecord(decision)[0]), record.Record{})
		must(t, err)
		if c := record.Capability; status != 200 || c == nil || c.ID != id || c.Reason != want || c.Held || c.Proof != nil {
			t.Errorf("%s: on record is %+v of %d %s, want %q refused as %s", name, c, status, answer, id, want)
		}
		if strings.Contains(answer, `"id"`) {
			t.Errorf("%s: %s", name, answer)
		}
		call, err := records.CallOf(&record, bundle, evaluation.DefaultLimits())
		must(t, err)
		if call.Capability.ID != id {
			t.Errorf("%s: it is decided again with %+v", name, call.Capability)
		}
		d, err := pdp.Of(bundle, pdp.Options{}).Evaluate(t.Context(), call)
		must(t, err)
		if d.Allow || d.Reason != evaluation.CapabilityInvalid || d.Capability.Reason != want || d.Capability.ID != "" {
			t.Errorf("%s: decided again it is %+v, %+v", name, d, d.Capability)
		}
	}
	refused := w.call(g, "b:read") // which has arguments
	check("an argument", "argument_refused", refused, g.ID)
	check("an argument, by its id", "argument_refused", byID(refused, g.ID), g.ID)
	check("a proof once more", "proof_replayed", spent, g.ID)
	wrong := good()
	wrong.claim.Tool = "b:other"
	check("a proof of another call", "proof_wrong_call", wrong, g.ID)
	check("another tool", "tool_not_covered", w.call(g, "b:other"), g.ID)

	cut := good()
	cut.token = cut.token[:len(cut.token)-4] + "AAAA"
	check("a signature that is not ours", "bad_signature", cut, "")
	check("no such id", "bad_signature", byID(good(), "cap_0199f3a27c1e7d3a8f00c3b2a1908f7e"), "")
	check("a token of another tenant", "bad_signature", w.call(acme, "b:read"), "")
	check("an id of another tenant", "bad_signature", byID(w.call(acme, "b:read"), acme.ID), "")

	w.is("allow", w.call(gone, "b:read")) // so the service remembers the token
	for _, id := range []string{g.ID, gone.ID, acme.ID} {
		w.reply("warden", "POST", "/v1/capabilities/"+id+"/revoke", `{"reason":"done"}`).is(t, "revoke", 200)
	}
	check("revoked", "revoked", good(), g.ID)
	check("revoked, remembered", "revoked", w.call(gone, "b:read"), gone.ID)
	check("revoked, by its id", "revoked", byID(good(), g.ID), g.ID)
	check("an id that was revoked in another tenant", "bad_signature", byID(w.call(acme, "b:read"), acme.ID), "")
	w.restart(func() {})
	check("revoked, after a restart", "revoked", good(), g.ID)

	// Its grant, one call and eight refusals.
	w.reply("auditor", "GET", "/v1/log/export?kind=decision&capability="+g.ID, "").is(t, "what names it", 200, `"records":10,`)
}

// TestCapabilityAfterRotation: a token counts while one of the two newest keys has signed it. Its id has no signature: the
// store and the holder's key vouch for it, so what ends it is to take it back. A stolen signing key makes no capability here.
func TestCapabilityAfterRotation(t *testing.T) {
	t.Parallel()
	w := openWallet(t)
	w.Advance(time.Minute)
	g := w.asksFor(http.StatusCreated, nil, "read")
	stolen, err := signing.Open(w.data, slog.New(slog.DiscardHandler))
	must(t, err)
	payload, err := stolen.Verify(g.Token, capability.TypeToken)
	must(t, err)
	token, refusal := capability.ParseClaims(payload)
	if refusal != nil {
		t.Fatal(refusal)
	}
	thief := newHolder(t, 2)
	forged := func(id string) shot {
		token.ID, token.Key = id, thief.Key()
		claims, err := token.Claims()
		must(t, err)
		s := w.call(g, "b:read")
		s.token, err = stolen.Sign(claims, capability.TypeToken)
		must(t, err)
		s.by, s.claim.Capability = thief, id
		return s
	}
	w.is("bad_signature", forged("cap_0199f3a27c1e7d3a8f00c3b2a1908f7e"))
	w.is("proof_invalid", forged(g.ID))

	byID := func() shot { s := w.call(g, "b:read"); s.token = g.ID; return s }
	w.is("allow", w.call(g, "b:read"))
	for _, want := range []string{"allow", "bad_signature"} {
		kid, err := signing.Rotate(w.data)
		must(t, err)
		eventually(t, "the new key is in force", func() bool {
			_, keys := w.do("wallet", "GET", "/.well-known/jwks.json", "")
			return strings.Contains(keys, kid)
		})
		w.is(want, w.call(g, "b:read"))
		w.is("allow", byID())
	}
	w.is("allow", w.call(w.asksFor(http.StatusCreated, nil, "read"), "b:read"))
	w.reply("warden", "POST", "/v1/capabilities/revoke", `{"tenant_id":"default","reason":"theft","all":true}`).is(t, "all", 200, `{"revoked":2}`)
	w.is("revoked", byID())
}

// TestCapabilityIsForCalls: a capability is for calls of tools, and for no other action on them, nor for other resources.
func TestCapabilityIsForCalls(t *testing.T) {
	t.Parallel()
	w := openWallet(t)
	w.Advance(time.Minute)
	g := w.asksFor(http.StatusCreated, nil, "read")
	for old, changed := range map[string]string{`"tool.invoke"`: `"tool.list"`, `"type":"tool"`: `"type":"file"`} {
		body := strings.Replace(w.call(g, "b:read").body(t), old, changed, 1)
		w.reply("wallet", "POST", "/v1/authorize", body).is(t, changed, 200, `"allow":false`, `"reason":"tool_not_covered"`)
	}
}

// atOnce sends 64 requests at once, and counts the answers that allow, by their paths.
func (w *wallet) atOnce(request func(n int) (path, body string)) map[string]int {
	var wait sync.WaitGroup
	var mu sync.Mutex
	allows := map[string]int{}
	for n := range 64 {
		path, body := request(n)
		wait.Go(func() {
			if _, answer := w.do("wallet", "POST", path, body); strings.Contains(answer, `"allow":true`) || strings.Contains(answer, `"decision":true`) {
				mu.Lock()
				allows[path]++
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	return allows
}

func textValue(t testing.TB, text string) evaluation.Value {
	t.Helper()
	v, err := evaluation.Text(text)
	must(t, err)
	return v
}

func objectOf(t testing.TB, text string) evaluation.Object {
	t.Helper()
	o, err := evaluation.ParseWithNulls([]byte(text), evaluation.DefaultLimits())
	must(t, err)
	return o
}

// TestCapabilityOnce: of 64 equal requests one is allowed, and of 64 different ones as many as there are uses.
func TestCapabilityOnce(t *testing.T) {
	t.Parallel()
	w := openWallet(t)
	all := func(body func() string) int {
		return w.atOnce(func(int) (string, string) { return authorizePath, body() })[authorizePath]
	}
	w.Advance(time.Minute)
	g := w.asksFor(http.StatusCreated, nil, "read")
	same := w.call(g, "b:read").body(t)
	if n := all(func() string { return same }); n != 1 {
		t.Errorf("one proof: %d allows", n)
	}
	w.reply("wallet", "POST", "/v1/authorize", same).is(t, "the proof once more", 200, `"reason":"proof_replayed"`)
	few := w.asksFor(http.StatusCreated, uses(3), "read")
	if n := all(func() string { return w.call(few, "b:read").body(t) }); n != 3 {
		t.Errorf("three uses: %d allows", n)
	}
	w.is("used_up", w.call(few, "b:read"))

	// By its id, and denied by a policy: nothing is used.
	one := w.asksFor(http.StatusCreated, uses(1), "read", "never")
	byID := w.call(one, "b:never")
	byID.token = one.ID
	w.is("deny", byID)
	byID = w.call(one, "b:read")
	byID.token = one.ID
	w.is("allow", byID)

	// A restart takes no proof twice.
	before := w.call(g, "b:read")
	body := before.body(t)
	w.is("allow", before)
	w.restart(func() {})
	if got := w.reply("wallet", "POST", "/v1/authorize", body); !strings.Contains(got.text, `"nonce_required"`) {
		t.Errorf("after a restart: %+v", got)
	}
	again := w.call(g, "b:read")
	_, a := w.shoot(again)
	again = w.call(g, "b:read")
	again.claim.Nonce = a.Capability.Nonce
	w.is("allow", again)
	w.is("used_up", w.call(few, "b:read"))
}

// TestCapabilityAndApprovalServed: a call that needs a capability and an approval keeps its proof while a person decides, and
// spends both at once.
func TestCapabilityAndApprovalServed(t *testing.T) {
	t.Parallel()
	w := openWallet(t)
	w.Advance(time.Minute)
	g := w.asksFor(http.StatusCreated, uses(1), "both")
	s := w.call(g, "b:both").proved(t)
	a := w.is("wait", s)
	w.is("proof_replayed", s) // without the approval it is any call
	w.signed("while it waits", 0)
	w.Advance(9 * time.Minute)
	w.says("mia", a.Approval.ID, "decision", `{"decision":"approve","reason":"yes"}`, http.StatusOK)
	w.Advance(2 * time.Minute) // after the time that people had, and within the time that the approval has
	s.more = fmt.Sprintf(`,"approval_id":%q`, a.Approval.ID)
	other := s
	other.more = `,"trace":1` + s.more // another question
	w.is("proof_stale", other)
	w.is("allow", s)
	w.signed("approved", 1)
	if got, _ := w.shoot(s); got == "allow" {
		t.Error("the proof was taken a third time")
	}
	w.is("used_up", w.call(g, "b:both"))
}

// TestCapabilityAsShown: people see what will be granted, and nothing else is granted by their approval, whatever the policy
// binds approvals to.
func TestCapabilityAsShown(t *testing.T) {
	t.Parallel()
	w := openWallet(t)
	until := w.Now().Add(2 * time.Hour)
	asked := func(a *capability.Ask) {
		staging, err := capability.ParseConstraint(textValue(t, "staging"))
		must(t, err)
		a.Duration, a.ValidUntil, a.MaxUses, a.Arguments = 0, until, 5, capability.Arguments{"target": staging}
	}
	g := w.asksFor(http.StatusAccepted, asked, "danger1", "danger2") // whose messages would differ
	_, text := w.do("mia", "GET", "/v1/approvals/"+g.Approval.ID, "")
	sentence := fmt.Sprintf(`"message":"bot may call danger1 and danger2 of b until %s, 5 times, where target = \"staging\"; held by key %s`,
		until.UTC().Format(time.RFC3339), w.holder.Key().Thumbprint())
	has(t, text, sentence)
	w.says("mia", g.Approval.ID, "decision", `{"decision":"approve","reason":"yes"}`, http.StatusOK)
	w.Advance(20 * time.Second) // what is left of the time is less, and the same was asked
	by := func(change func(*capability.Ask)) func(*capability.Ask) {
		return func(a *capability.Ask) { asked(a); a.ApprovalID = g.Approval.ID; change(a) }
	}
	for name, change := range map[string]func(*capability.Ask){
		"later":         func(a *capability.Ask) { a.ValidUntil = until.Add(time.Hour) },
		"from later on": func(a *capability.Ask) { a.ValidFrom = until.Add(-time.Hour) },
		"more uses":     func(a *capability.Ask) { a.MaxUses = 6 },
		"no constraint": func(a *capability.Ask) { a.Arguments = nil },
		"another tool":  func(a *capability.Ask) { a.Tools = []string{"danger1", "danger3"} },
	} {
		if other := w.asksFor(http.StatusAccepted, by(change), "danger1", "danger2"); other.Approval.ID == g.Approval.ID {
			t.Errorf("%s: %+v", name, other)
		}
	}
	w.asksFor(http.StatusCreated, by(func(*capability.Ask) {}), "danger1", "danger2")

	far := func(a *capability.Ask) {
		a.Duration, a.ValidFrom, a.ValidUntil = 0, w.Now().Add(1000*time.Hour), w.Now().Add(1001*time.Hour)
	}
	w.asksFor(http.StatusBadRequest, far, "read")
	large := func(a *capability.Ask) { a.Properties = objectOf(t, `{"x":"`+strings.Repeat("x", 40<<10)+`"}`) }
	w.asksFor(http.StatusRequestEntityTooLarge, large, "read", "write")
}

// TestCapabilityAskedForItself: a credential with a principal asks for that holder alone, and one without the permission for
// nobody.
func TestCapabilityAskedForItself(t *testing.T) {
	t.Parallel()
	w := openWallet(t)
	w.welcome("itself", `agent::"bot"`, auth.Capability)
	w.welcome("namesake", `user::"bot"`, auth.Capability)
	for who, want := range map[string]int{"itself": http.StatusCreated, "namesake": http.StatusForbidden, "pep": http.StatusForbidden, "warden": http.StatusForbidden} {
		w.as = who
		w.asksFor(want, nil, "read")
		if who == "itself" {
			w.asksFor(http.StatusForbidden, func(a *capability.Ask) { a.Holder.ID = "bot2" }, "read")
			w.asksFor(http.StatusForbidden, func(a *capability.Ask) { a.Holder.Type = "user" }, "read")
		}
	}
}

// TestCapabilityAudiences: a proof for one gateway is refused by another one, which spends nothing, and is good at its own.
func TestCapabilityAudiences(t *testing.T) {
	t.Parallel()
	w := openWallet(t)
	for _, name := range []string{"gw1", "gw2"} {
		w.key[name] = addKey(t, w.data, name, auth.Grant{
			Tenants: []string{"*"}, Permissions: []auth.Permission{auth.Decide}, Audiences: []string{"https://" + name + ".example", "both"},
		})
		w.until(name, func(status int) bool { return status != http.StatusUnauthorized })
	}
	w.Advance(time.Minute)
	g := w.asksFor(http.StatusCreated, uses(3), "read")
	left := 3
	for _, test := range []struct{ audience, at, instead string }{
		{"https://gw1.example", "gw2", "gw1"},
		{"https://gw1.example", "wallet", "gw1"}, // which has no name of its own
		{"b", "gw1", "wallet"},
	} {
		s := w.call(g, "b:read")
		s.claim.Audience = test.audience
		s = s.proved(t)
		s.gateway = test.at
		want := map[string]string{"gw1": "https://gw1.example", "gw2": "https://gw2.example", "wallet": "b"}[test.at]
		if a := w.is("proof_wrong_audience", s); a.Capability.Audience != want {
			t.Errorf("at %s a proof has to be for %q, want %q", test.at, a.Capability.Audience, want)
		}
		s.gateway, left = test.instead, left-1
		if a := w.is("allow", s); a.Capability.UsesLeft == nil || *a.Capability.UsesLeft != left {
			t.Errorf("%+v: something was spent at %s: %+v, want %d uses", test, test.at, a, left)
		}
	}
	g = w.asksFor(http.StatusCreated, nil, "read")
	for _, at := range []string{"gw1", "gw2"} {
		s := w.call(g, "b:read")
		s.claim.Audience, s.gateway = "both", at
		w.is("allow", s)
	}
}

// TestCapabilityExplained: an explained call takes no proof, and none of it is on record: whoever reads it there could show it.
func TestCapabilityExplained(t *testing.T) {
	t.Parallel()
	w := openWallet(t)
	w.Advance(time.Minute)
	g := w.asksFor(http.StatusCreated, uses(1), "read")
	s := w.call(g, "b:read").proved(t)
	w.reply("explainer", "POST", authorizePath, s.body(t), "X-Explain", "true").is(t, "explained", 200, `"allow":true`, `"enforceable":false`)
	w.signed("explained", 0)
	w.is("allow", s)
	w.signed("called", 1)
}

// signed checks how many records have what a holder signed.
func (w *wallet) signed(name string, want int) {
	w.t.Helper()
	_, text := w.do("auditor", "GET", "/v1/log/export", "")
	if got := strings.Count(text, `"jti":`); got != want {
		w.t.Errorf("%s: %d records have a proof, want %d", name, got, want)
	}
}

// TestCapabilityNonces: where each proof needs a nonce, each answer has the next one, and none is good for another key.
func TestCapabilityNonces(t *testing.T) {
	t.Parallel()
	w := openWallet(t, func(c *server.Config) { c.Capabilities.Nonce = "required" })
	w.Advance(time.Minute)
	g := w.asksFor(http.StatusCreated, nil, "read")
	a := w.is("nonce_required", w.call(g, "b:read"))
	with := func(nonce string) shot {
		s := w.call(g, "b:read")
		s.claim.Nonce = nonce
		return s
	}
	a = w.is("allow", with(a.Capability.Nonce))
	w.is("allow", with(a.Capability.Nonce))
	w.holder = newHolder(t, 2)
	other := w.asksFor(http.StatusCreated, nil, "read")
	s := w.call(other, "b:read")
	s.claim.Nonce = a.Capability.Nonce
	w.is("nonce_required", s)
	w.Advance(6 * time.Minute)
	w.holder = newHolder(t, 1)
	w.is("nonce_required", with(a.Capability.Nonce))
}

// TestCapabilitiesClosed: if the file cannot be opened, whoever shows a capability gets an error, and all others an answer.
func TestCapabilitiesClosed(t *testing.T) {
	t.Parallel()
	w := openWallet(t)
	g := w.asksFor(http.StatusCreated, nil, "read")
	body := w.call(g, "b:read").body(t)
	w.restart(func() {
		must(t, os.WriteFile(filepath.Join(w.data, "capabilities.db"), []byte("no database"), 0o600))
	})
	w.reply("wallet", "POST", "/v1/authorize", body).is(t, "shown", http.StatusServiceUnavailable)
	w.reply("wallet", "POST", "/v1/authorize", tool("b:read", "")).is(t, "not shown", 200, `"reason":"capability_required"`)
	w.reply("wallet", "GET", "/readyz", "").is(t, "ready", 200, `degraded`)
	w.reply("wallet", "GET", "/v1/capabilities", "").is(t, "list", 503, `"the capabilities cannot be opened; the operator finds the reason in the service's log"`)
}
