package approvals_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
	"policy-service/evaluation/capability"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/inside/auth"
	"policy-service/pdp/pdptest/inside/server"
)

var capabilityFiles = map[string]string{
	"a.cedar": `@id("held") permit(principal is agent, action == Action::"tool.invoke", resource is tool) when { context.pdp.capability.held };
@id("both") @obligation("ask") permit(principal, action == Action::"tool.invoke", resource == tool::"b:both") when { context.pdp.capability.held };
@id("grants") permit(principal == agent::"bot", action == Action::"capability.grant", resource is tool);
@id("people") @obligation("ask") permit(principal, action == Action::"capability.grant", resource == tool::"b:danger");
@id("never") forbid(principal, action == Action::"capability.grant", resource == tool::"b:never");
@id("hands_on") permit(principal is agent, action == Action::"capability.delegate", resource is tool);
@id("leads") permit(principal == user::"mia", action == Action::"approval.decide", resource is Approval);`,
	"obligations.yaml": `ask: {type: approval_required, properties: {template: owner, timeout: 10m, valid_for: 5m}}`,
	"entities/e.json":  `[{"uid":{"type":"user","id":"mia"},"attrs":{},"parents":[]}]`,
}

// agent is a program with a key that asks for capabilities and shows them.
type agent struct {
	*desk
	client *authzenclient.Client
	holder *capability.Holder
}

func openAgent(t *testing.T, options ...pdptest.Option) *agent {
	t.Helper()
	a := &agent{desk: openDeskOn(t, capabilityFiles, options...)}
	a.client = a.pep(authzenclient.WithKey(a.key["agents"]))
	a.holder = holderOf(t, 1)
	return a
}

func holderOf(t *testing.T, seed byte) *capability.Holder {
	t.Helper()
	h, err := capability.NewHolder(ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(rune(seed)), ed25519.SeedSize))))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func (a *agent) request(uses int, tools ...string) capability.Ask {
	return capability.Ask{
		Tenant: "default", Holder: evaluation.Ref{Type: "agent", ID: "bot"}, Audience: "b", Tools: tools, Duration: time.Hour, MaxUses: uses,
	}
}

// granted asks for a capability that no person has to approve.
func (a *agent) granted(uses int, tools ...string) approvals.Grant {
	a.t.Helper()
	g, err := approvals.AskCapability(a.t.Context(), a.client, "", a.holder, a.request(uses, tools...))
	a.must(err)
	if !g.Granted || g.Token == "" || g.Expires.Sub(a.clock()) > time.Hour {
		a.t.Fatalf("got %s", g.JSON)
	}
	return g
}

func invoke(tool, arguments string) evaluation.Request {
	q, err := evaluation.ParseObject([]byte(`{"arguments":`+arguments+`}`), evaluation.DefaultLimits())
	if err != nil {
		panic(err)
	}
	return evaluation.Request{
		Subject: evaluation.Entity{Type: "agent", ID: "bot"}, Action: evaluation.Action{Name: "tool.invoke"},
		Resource: evaluation.Entity{Type: "tool", ID: tool}, Context: q,
	}
}

// A capability permits what it covers, each call by a proof of its own, and as often as it says.
func TestCapabilityShown(t *testing.T) {
	t.Parallel()
	a := openAgent(t)
	g := a.granted(2, "restart")
	call, show := invoke("b:restart", `{"target":"staging","none":null}`), authzenclient.WithCapability(g.Token, a.holder)
	if d := a.client.Evaluate(t.Context(), call); d.Permitted() || d.Reason() != "capability_required" {
		t.Errorf("without it: %v", d)
	}
	if e := a.client.Enforce(t.Context(), call, nil, show); !e.Permitted() {
		t.Errorf("with it: %v, %s", e, e.Decision().Context())
	}
	if d := a.client.Evaluate(t.Context(), invoke("b:other", `{}`), show); d.Permitted() || !strings.Contains(string(d.Context()), "tool_not_covered") {
		t.Errorf("another tool: %s", d.Context())
	}
	if d := a.client.Evaluate(t.Context(), call, show); !d.Permitted() {
		t.Errorf("with it, again: %s", d.Context())
	}
	if d := a.client.Evaluate(t.Context(), call, show); d.Permitted() || !strings.Contains(string(d.Context()), "used_up") {
		t.Errorf("a third time: %s", d.Context())
	}
}

// The session that a question says stays with it, and the capability counts in that one alone.
func TestCapabilityOfASession(t *testing.T) {
	t.Parallel()
	a := openAgent(t)
	ask := a.request(0, "restart")
	ask.Channel.Session = "ws-17"
	g, err := approvals.AskCapability(t.Context(), a.client, "", a.holder, ask)
	if err != nil || !g.Granted {
		t.Fatalf("got %+v, %v", g, err)
	}
	call, show := invoke("b:restart", `{"target":"staging"}`), authzenclient.WithCapability(g.Token, a.holder)
	if d := a.client.Evaluate(t.Context(), call, show); d.Permitted() || !strings.Contains(string(d.Context()), "channel_mismatch") {
		t.Errorf("in no session: %s", d.Context())
	}
	observed, err := evaluation.NewObject(map[string]any{"channel": map[string]any{"session": "ws-17"}})
	if err != nil {
		t.Fatal(err)
	}
	call.Context = call.Context.With("capability", observed.Value())
	if d := a.client.Evaluate(t.Context(), call, show); !d.Permitted() {
		t.Errorf("in its session: %s", d.Context())
	}
}

// A token can be encrypted to a key, and is what it would be once it is decrypted with that key, and no other.
func TestCapabilityEncrypted(t *testing.T) {
	t.Parallel()
	a := openAgent(t)
	mine, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	a.must(err)
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	a.must(err)
	ask := a.request(0, "restart")
	ask.EncryptTo, err = capability.NewKey(mine.Public())
	a.must(err)
	g, err := approvals.AskCapability(t.Context(), a.client, "", a.holder, ask)
	a.must(err)
	if _, refusal := capability.ParseToken(g.Token); !g.Granted || !g.Encrypted || refusal == nil {
		t.Fatalf("got %s", g.JSON)
	}
	if _, err := g.Unseal(other); err == nil {
		t.Error("another key decrypts it")
	}
	g, err = g.Unseal(mine)
	a.must(err)
	if e := a.client.Enforce(t.Context(), invoke("b:restart", `{}`), nil, authzenclient.WithCapability(g.Token, a.holder)); !e.Permitted() || g.Encrypted || g.Expires.IsZero() {
		t.Errorf("%v, %+v", e, g)
	}
}

// What a holder hands on is bound to the other's key, and counts for both.
func TestCapabilityDelegated(t *testing.T) {
	t.Parallel()
	a := openAgent(t)
	ask := a.request(2, "restart")
	ask.MaxDepth = 1
	g, err := approvals.AskCapability(t.Context(), a.client, "", a.holder, ask)
	a.must(err)
	to := a.request(0, "restart")
	to.Holder.ID, to.Key, to.Duration = "helper", holderOf(t, 2).Key(), time.Minute
	if _, err := approvals.DelegateCapability(t.Context(), a.client, g.ID, nil, to); err == nil || a.count("POST /v1/capabilities/") != 0 {
		t.Errorf("without a holder: %v", err)
	}
	child, err := approvals.DelegateCapability(t.Context(), a.client, g.ID, a.holder, to)
	a.must(err)
	if !child.Granted || child.MaxUses != 2 {
		t.Fatalf("got %s", child.JSON)
	}
	call := invoke("b:restart", `{}`)
	call.Subject.ID = "helper"
	for _, want := range []bool{true, true, false} {
		if e := a.client.Enforce(t.Context(), call, nil, authzenclient.WithCapability(child.Token, holderOf(t, 2))); e.Permitted() != want {
			t.Errorf("%v, %s", e, e.Decision().Context())
		}
	}
}

// What cannot be shown is not asked, and no error repeats it.
func TestCapabilityNotShown(t *testing.T) {
	t.Parallel()
	a := openAgent(t)
	g := a.granted(0, "restart")
	before := a.count("POST /access")
	for name, c := range map[string]struct {
		show authzenclient.AskOption
		call evaluation.Request
	}{
		"another key":          {authzenclient.WithCapability(g.Token, holderOf(t, 2)), invoke("b:restart", `{}`)},
		"no key":               {authzenclient.WithCapability(g.Token, nil), invoke("b:restart", `{}`)},
		"no token":             {authzenclient.WithCapability("eyJ.secret.x", a.holder), invoke("b:restart", `{}`)},
		"arguments in a list":  {authzenclient.WithCapability(g.Token, a.holder), invoke("b:restart", `["staging"]`)},
		"a number of no proof": {authzenclient.WithCapability(g.Token, a.holder), invoke("b:restart", `{"n":9007199254740993}`)},
	} {
		e := a.client.Enforce(t.Context(), c.call, nil, c.show)
		wantNone(t, e, authzenclient.NotAsked, "")
		if says := e.Err().Error(); strings.Contains(says, "eyJ") || strings.Contains(says, "staging") {
			t.Errorf("%s: %s", name, says)
		}
	}
	if asked := a.count("POST /access") - before; asked != 0 {
		t.Errorf("asked %d times", asked)
	}
}

// A nonce costs one more question, once, and once more after a restart.
func TestCapabilityNonce(t *testing.T) {
	t.Parallel()
	required := func(c *server.Config) { c.Capabilities.Nonce = "required" }
	a := openAgent(t, required)
	show, call := authzenclient.WithCapability(a.granted(0, "restart").Token, a.holder), invoke("b:restart", `{}`)
	for n, want := range []int{2, 1, 2} {
		if n == 2 {
			a.close()
			a.open(pdptest.Bundle(capabilityFiles), required)
		}
		before := a.count("POST /access")
		if d := a.client.Evaluate(t.Context(), call, show); !d.Permitted() || a.count("POST /access")-before != want {
			t.Errorf("call %d: %s, after %d questions, want %d", n, d.Context(), a.count("POST /access")-before, want)
		}
	}
}

// A PEP shows a proof that its caller made. It is asked once, as it is: what is wrong with it is for the caller.
func TestCapabilityOfACaller(t *testing.T) {
	t.Parallel()
	a := openAgent(t, func(c *server.Config) { c.Capabilities.Nonce = "required" })
	g, call, nonce := a.granted(0, "restart"), invoke("b:restart", `{}`), ""
	var last string
	for n, want := range []string{"nonce_required", "", "proof_replayed"} {
		if n < 2 {
			proof, err := a.holder.Prove(capability.Claim{Capability: g.ID, Audience: "b", Tool: "b:restart", IssuedAt: a.client.Link().Now(), Nonce: nonce})
			a.must(err)
			last = proof
		}
		before := a.count("POST /access")
		d := a.client.Evaluate(t.Context(), call, authzenclient.ShowCapability(evaluation.CapabilityShown{Token: g.Token, Proof: last}))
		var said struct {
			Capability evaluation.CapabilityAnswer `json:"capability"`
		}
		a.must(json.Unmarshal(d.Context(), &said))
		if d.Permitted() != (want == "") || said.Capability.Reason != want || a.count("POST /access")-before != 1 {
			t.Errorf("proof %d: %s, after %d questions; want %q", n, d.Context(), a.count("POST /access")-before, want)
		}
		nonce = said.Capability.Nonce
	}
}

// People approve a whole grant, and a use.
func TestCapabilityApproved(t *testing.T) {
	t.Parallel()
	a := openAgent(t)
	for _, says := range []string{"approve", "deny"} {
		var asked []evaluation.Approval
		g, err := approvals.RequestCapability(t.Context(), a.client, "", a.holder, a.request(0, "danger"), func(w evaluation.Approval) {
			asked = append(asked, w)
			a.decides(says, w.ID)
		})
		if len(asked) != 1 || asked[0].Status != "pending" || g.Granted != (says == "approve") || (err == nil) != g.Granted {
			t.Errorf("%s: got %+v, %v; asked %v", says, g, err, asked)
		}
		if err != nil && fmt.Sprint(err) != "authzen await: not approved: the request is denied" {
			t.Error(err)
		}
	}
	g := a.granted(1, "both")
	a.on = []func(){func() {
		_, shown := a.person("GET", "/v1/approvals", "")
		kept, err := os.ReadFile(filepath.Join(a.data, "approvals.db"))
		a.must(err)
		if signature := g.Token[strings.LastIndex(g.Token, "."):]; strings.Contains(shown, signature) || strings.Contains(string(kept), signature) {
			t.Errorf("the token is kept, or shown: %s", shown)
		}
		a.says("approve")()
	}}
	e := approvals.Enforce(t.Context(), a.client, invoke("b:both", `{"n":1}`), nil, approvals.WithCapability(g.Token, a.holder))
	if !e.Permitted() {
		t.Errorf("got %v, %s", e, e.Decision().Context())
	}
	if e := a.client.Enforce(t.Context(), invoke("b:both", `{"n":1}`), nil, authzenclient.WithCapability(g.Token, a.holder)); e.Permitted() {
		t.Errorf("its only use was spent, and it permits: %v", e)
	}
}

// A no of the policies is an answer, and a key that may not ask gets an error.
func TestCapabilityRefused(t *testing.T) {
	t.Parallel()
	a := openAgent(t)
	g, err := approvals.RequestCapability(t.Context(), a.client, "", a.holder, a.request(0, "never", "restart"), nil)
	if err != nil || g.Granted || g.Token != "" || fmt.Sprint(g.Refused) != "[b:never]" {
		t.Errorf("got %+v, %v", g, err)
	}
	_, err = approvals.RequestCapability(t.Context(), a.pep(), "", a.holder, a.request(0, "restart"), nil)
	if err == nil || !strings.Contains(err.Error(), "status 403") || strings.Contains(err.Error(), "eyJ") {
		t.Errorf("got %v", err)
	}
	_, err = approvals.AskCapability(t.Context(), a.client, "", a.holder, a.request(0))
	if err == nil || !strings.Contains(err.Error(), "not asked") {
		t.Errorf("got %v", err)
	}
}

// withAgents puts a server where the example of the page about capabilities looks for one, with that page's policies.
func withAgents() (stop func(), err error) {
	const url, address = "http://127.0.0.1:8247", "127.0.0.1:8247"
	data, err := os.MkdirTemp("", "agents")
	stop = func() { _ = os.RemoveAll(data) }
	if err != nil {
		return stop, err
	}
	keys, err := auth.OpenKeys(data)
	if err != nil {
		return stop, err
	}
	key, err := keys.Add(auth.KeySpec{Name: "agents", Grant: auth.Grant{Tenants: []string{"*"}, Permissions: []auth.Permission{auth.Decide, auth.Capability}}})
	if err != nil {
		return stop, err
	}
	addr, stopServer, err := pdptest.Serve(pdptest.Bundle(map[string]string{"a.cedar": `
@id("capability-suffices")
permit (principal is agent, action == Action::"tool.invoke", resource is tool) when { context.pdp.capability.held };
@id("capability-granted")
permit (principal == agent::"agent-a", action == Action::"capability.grant", resource == tool::"agent-b:restart");`}), func(c *server.Config) { c.Data, c.PublicURL = data, url })
	stop = func() {
		stopServer()
		_ = os.RemoveAll(data)
	}
	if err != nil {
		return stop, err
	}
	pdptest.Redirect(address, addr)
	return stop, os.Setenv("AGENTS_KEY", key)
}
