package mcp_test

import (
	"crypto/ed25519"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
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
	"policy-service/pdp/pdptest/mcptest"
)

// asked is what a client with a key of its own asks for.
type asked struct {
	terms  string // members of params
	holder *capability.Holder
	proof  string
}

func holderOf(t testing.TB, seed byte) *capability.Holder {
	t.Helper()
	h, err := capability.NewHolder(ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(rune(seed)), ed25519.SeedSize))))
	orFail(t, err)
	return h
}

// proves makes the request for a tool of rec, with a proof by the key.
func (v *vault) proves(h *capability.Holder, issuer, agent, tool string) asked {
	v.t.Helper()
	ask := capability.Ask{Holder: evaluation.Ref{Type: "agent", ID: agent}, Audience: "rec", Tools: []string{tool}, Duration: time.Hour}
	orFail(v.t, h.Request(&ask, issuer, v.now()))
	return asked{`"tools":["` + tool + `"],"duration":3600`, h, ask.Proof}
}

// wants sends a request, with key and proof in _meta or in params.
func (v *visitor) wants(a asked, inMeta bool) echo {
	v.s.t.Helper()
	key, err := json.Marshal(a.holder.Key())
	orFail(v.s.t, err)
	v.meta = ""
	params := `{` + a.terms + `,"key":` + string(key) + `,"proof":` + inText(a.proof) + `}`
	if inMeta {
		params = `{` + a.terms + `}`
		v.meta = `,"io.policy-service/key":` + string(key) + `,"io.policy-service/proof":` + inText(a.proof)
	}
	got := v.ask("capabilities/request", params)
	v.meta = ""
	return got
}

// issuer is the one that an introduction names.
func (v *visitor) issuer() string {
	v.s.t.Helper()
	_, after, _ := strings.Cut(v.s.greeting(v.era).text, `"io.policy-service/capabilities":`)
	return textOf(v.s.t, jsontext.Value(after), "issuer")
}

// TestCapabilityAsked: a client finds out for whom its proof has to be, is granted what it asks for, and calls with it. Of what is
// not its own, nothing is granted.
func TestCapabilityAsked(t *testing.T) {
	inEras(t, func(t *testing.T, era string) {
		w := newVault(t, land{})
		v, eve := w.visitor(era, mcptest.Claims{"client_id": "agent-a"}), w.visitor(era, mcptest.Claims{"sub": "eve", "client_id": "agent-e"})
		h, issuer := holderOf(t, 1), v.issuer()
		for n, inMeta := range []bool{true, false} {
			a := w.proves(h, issuer, "agent-a", "kept")
			got := v.wants(a, inMeta)
			p := w.granted(got.result, h)
			token, refusal := capability.ParseToken(p.token)
			if refusal != nil || token.Holder != (evaluation.Ref{Type: "agent", ID: "agent-a"}) || token.Key.Thumbprint() != h.Key().Thumbprint() ||
				token.Issuer != issuer || textOf(t, got.result, "audience") != "rec" || !strings.HasSuffix(p.token, "."+textOf(t, got.result, "signature")) || strings.Contains(got.text, "holder_key") {
				t.Errorf("granted %s: %+v, %v", got, token, refusal)
			}
			v.shows(p.token, p.proof("kept", `{"n":1}`)).call("kept", `{"n":1}`).runs(t, "called with it:")
			if got := v.shows(p.token, "").call("kept", `{}`); reason(got) == "" {
				t.Errorf("without a proof: %s", got)
			}
			v.meta = ""
			// Whoever overhears the request gets nothing by it.
			eve.wants(a, n == 0).refused(t, -32602, "", "proof_replayed", "overheard:")
		}
		a, b := holderOf(t, 2), holderOf(t, 3)
		for name, test := range map[string]struct {
			of   asked
			code string
		}{
			"a proof for another issuer":    {w.proves(a, "https://elsewhere.example.com", "agent-a", "kept"), "proof_wrong_audience"},
			"a proof of another request":    {asked{terms: `"tools":["free"],"duration":3600`, holder: a, proof: w.proves(a, issuer, "agent-a", "kept").proof}, "proof_wrong_call"},
			"a proof of a shorter duration": {asked{terms: `"tools":["kept"],"duration":3601`, holder: a, proof: w.proves(a, issuer, "agent-a", "kept").proof}, "proof_wrong_call"},
			"a proof by another key":        {asked{terms: `"tools":["kept"],"duration":3600`, holder: b, proof: w.proves(a, issuer, "agent-a", "kept").proof}, "proof_invalid"},
			"a proof that is none":          {asked{terms: `"tools":["kept"],"duration":3600`, holder: b, proof: "x.y.z"}, "proof_invalid"},
		} {
			got := v.wants(test.of, true)
			var data struct{ Type, Code, Audience string }
			if got.fault == nil || json.Unmarshal(got.fault.Data, &data, json.MatchCaseInsensitiveNames(true)) != nil || data.Code != test.code || data.Audience != issuer || data.Type != "proof_required" {
				t.Errorf("%s: %s", name, got)
			}
		}
		// A key that somebody binds to their own name is of no use to others.
		p := w.granted(eve.wants(w.proves(h, issuer, "agent-e", "kept"), true).result, h)
		v.shows(p.token, p.proof("kept", `{}`)).call("kept", `{}`).lacks(t, "wrong_holder", "of another:")
		v.meta = ""
		for _, line := range []string{"eyJ", h.Key().Thumbprint()} {
			if strings.Contains(w.logs.String(), line) {
				t.Errorf("the log has %s", line)
			}
		}
	})
}

// TestCapabilityNotOffered: where the PDP grants none, or is asked otherwise, there is no such method, and no list speaks of it. A
// gateway whose credential may not ask says so to its operator.
func TestCapabilityNotOffered(t *testing.T) {
	t.Parallel()
	methods := []string{"capabilities/request", "capabilities/validate", "capabilities/revoke", "capabilities/list"}
	for _, era := range eras {
		v := newSiege(t, camp{}).visitor(era, nil)
		coaz := newVault(t, land{change: func(c *mcp.Config) { c.Ask = "tool" }}).visitor(era, nil)
		for _, method := range methods {
			for _, v := range []*visitor{v, coaz} {
				if got := v.ask(method, `{}`); got.code() != -32601 {
					t.Errorf("%s: %s: %s", era, method, got)
				}
			}
		}
		if got := v.ask("tools/list", `{}`).text + v.s.greeting(era).text; strings.Contains(got, "policy-service/tool\"") || strings.Contains(got, "io.policy-service/capabilities") {
			t.Errorf("%s: %s", era, got)
		}
	}
	w := newVault(t, land{change: func(c *mcp.Config) { c.Capabilities.HolderKey = mcp.HolderKeyGateway }})
	w.addKey(w.siege, "poor", "", auth.Decide, auth.Search, auth.Request, auth.Relay)
	w.config.PDP.KeyFile = secretFile(t, w.keys["poor"])
	poor := w.replica().stranger("modern", w.issuer.Token(t, nil))
	got := echo{}
	mcptest.Until(t, "the PDP knows the key", func() bool {
		got = poor.ask("capabilities/request", `{"tools":["kept"]}`)
		return strings.Contains(w.logs.String(), "status 403")
	})
	if got.code() != -32603 || !strings.Contains(got.fault.Message, "may not ask for capabilities") || !strings.Contains(w.logs.String(), "lacks the permission capability") {
		t.Errorf("without the permission: %s", got)
	}
}

// countingBatches counts the batches that the PDP is asked.
type countingBatches struct {
	http.RoundTripper
	n atomic.Int64
}

func (c *countingBatches) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/access/v1/evaluations") {
		c.n.Add(1)
	}
	return c.RoundTripper.RoundTrip(r)
}

// TestCapabilityUnused: a list asks what needs a capability only while the PDP says that policies look at capabilities. Until the
// gateway hears of new policies, a list shows a tool that needs one as before, and its call is refused.
func TestCapabilityUnused(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		batches := &countingBatches{RoundTripper: mcp.NewTransport()}
		w := newPeople(t, land{deps: mcp.Deps{Transport: batches}, answers: mcptest.Answers{Tools: definitions("free", "kept")}, slower: 1e6, files: map[string]string{
			"kept.cedar": `@id("kept") permit (principal, action == Action::"tool.invoke", resource == tool::"rec:kept");`,
		}})
		v := w.visitor(era, nil)
		shows := func(kept string, questions int64) {
			t.Helper()
			before := batches.n.Load()
			got := v.ask("tools/list", `{}`)
			for tool, need := range map[string]string{"free": "optional", "kept": kept} {
				if said := `{"id":"rec:` + tool + `","audience":"rec","capability":"` + need + `"}`; !strings.Contains(got.text, said) {
					t.Errorf("%s: not %s in %s", era, said, got)
				}
			}
			if asked := batches.n.Load() - before; asked != questions {
				t.Errorf("%s: the PDP is asked %d batches, want %d", era, asked, questions)
			}
		}
		v.call("free", `{}`) // opens the server
		shows("optional", 1)
		w.rule("kept.cedar", `@id("kept") permit (principal, action == Action::"tool.invoke", resource == tool::"rec:kept") when { context.pdp.capability.held };`)
		v.call("kept", `{}`).lacks(t, "missing", era)
		w.advance(time.Minute)
		shows("required", 2)
	}
}

// TestCapabilityFlood: who asks too often is refused before the PDP is asked, whatever client it is through, and others of the same
// client are not. What the PDP refuses for its own limits is told alike.
func TestCapabilityFlood(t *testing.T) {
	t.Parallel()
	w := newVault(t, land{
		change: func(c *mcp.Config) { c.Capabilities.HolderKey, c.Capabilities.PerMinute = mcp.HolderKeyGateway, 3 },
		serve:  func(c *pdpserver.Config) { c.Capabilities.NewPerMinutePerHolder = 2 },
	})
	const ask = `{"tools":["kept"]}`
	one, other := w.visitor("legacy", nil), w.visitor("modern", mcptest.Claims{"client_id": "agent-o"})
	mia, noah := w.visitor("legacy", mcptest.Claims{"sub": "mia"}), w.visitor("legacy", mcptest.Claims{"sub": "noah"})
	for n, v := range []*visitor{one, other} {
		v.ask("capabilities/request", ask).runs(t, "request", n)
	}
	if got := one.ask("capabilities/request", ask); !got.limited() || strings.Contains(got.text, "per_minute") {
		t.Errorf("more than the PDP grants a person: %s", got)
	}
	granted := func(line string) bool {
		return strings.Contains(line, `"capability.grant"`) && strings.Contains(line, "rec:kept")
	}
	before := w.recorded(granted)
	for _, v := range []*visitor{one, other} {
		if got := v.ask("capabilities/request", ask); !got.limited() || !strings.Contains(got.text, `"limit":"capabilities.per_minute"`) {
			t.Errorf("too often: %s", got)
		}
	}
	if after := w.recorded(granted); after != before {
		t.Errorf("the PDP was asked %d times", after-before)
	}
	for n, v := range []*visitor{mia, noah, mia, noah} {
		v.ask("capabilities/request", ask).runs(t, "request of another", n)
	}
}

// TestCapabilitiesOfPersons: a person with 200 clients, one of them that of another person, has one person's share of capabilities at
// the PDP. The other one is granted as many, and calls with them.
func TestCapabilitiesOfPersons(t *testing.T) {
	inEras(t, func(t *testing.T, era string) {
		w := newVault(t, land{
			change: func(c *mcp.Config) { c.Capabilities.HolderKey, c.Capabilities.PerMinute = mcp.HolderKeyGateway, 1000 },
			serve: func(c *pdpserver.Config) {
				c.Capabilities.MaxLivePerHolder, c.Capabilities.NewPerMinutePerHolder = 3, 1000
			},
		})
		const ask = `{"tools":["kept"]}`
		alice, eve := w.visitor(era, mcptest.Claims{"client_id": "app"}), w.visitor(era, mcptest.Claims{"sub": "eve", "client_id": "app"})
		alice.ask("capabilities/request", ask).runs(t, "the first of alice")
		granted := 0
		for n := range map[string]int{"modern": 200, "legacy": 8}[era] { // a person has no 200 sessions
			v := eve
			if n > 2 {
				v = w.visitor(era, mcptest.Claims{"sub": "eve", "client_id": fmt.Sprint("app", n)})
			}
			if got := v.ask("capabilities/request", ask); got.ran() {
				granted++
			} else if !got.limited() {
				t.Fatalf("request %d: %s", n, got)
			}
		}
		if granted != 3 {
			t.Errorf("%d are granted of eve", granted)
		}
		var p purse
		for n := range 2 {
			got := alice.ask("capabilities/request", ask)
			got.runs(t, "alice, of the same client, request", n)
			p = w.granted(got.result, nil)
		}
		if got := alice.ask("capabilities/request", ask); !got.limited() {
			t.Errorf("a fourth of alice: %s", got)
		}
		alice.meta = `,"io.policy-service/capability":` + inText(p.token)
		alice.call("kept", `{}`).runs(t, "alice calls:")
		eve.meta = alice.meta
		if got := eve.call("kept", `{}`); reason(got) == "" {
			t.Errorf("eve calls with what alice has: %s", got)
		}
	})
}

// TestCapabilityOfServers: tools are asked for by the names that the client knows, or by their ids, of one server at a time.
func TestCapabilityOfServers(t *testing.T) {
	t.Parallel()
	w := newVault(t, land{change: func(c *mcp.Config) {
		c.Capabilities.HolderKey = mcp.HolderKeyGateway
		c.Upstreams["other"] = c.Upstreams["rec"]
	}, files: map[string]string{"more.cedar": `@id("all") permit (principal is agent, action == Action::"capability.grant", resource);`}})
	v := w.visitor("modern", nil)
	for params, want := range map[string]string{
		`{"tools":["rec__kept","rec:free"]}`:          `"tools":["rec__kept","rec__free"]|"tool_ids":["rec:kept","rec:free"],"audience":"rec"`,
		`{"tools":["kept"],"audience":"other"}`:       `"tools":["other__kept"]|"tool_ids":["other:kept"],"audience":"other"`,
		`{"tools":"*","audience":"other"}`:            `"tools":["*"]|"tool_ids":["other:*"],"audience":"other"`,
		`{"tools":["*"],"audience":"other"}`:          `"tool_ids":["other:*"]`,
		`{"tools":["kept"]}`:                          `name it as audience`,
		`{"tools":["rec__kept","other__kept"]}`:       `of several servers`,
		`{"tools":["rec__kept"],"audience":"other"}`:  `of several servers`,
		`{"tools":["other:kept"],"audience":"rec"}`:   `of several servers`,
		`{"tools":["third:kept"],"audience":"third"}`: `name it as audience`,
		`{"tools":[]}`:                                   `no tools`,
		`{"tools":["rec:x*"]}`:                           `/tools/0`,
		`{"tools":["rec__kept"],"max_uses":"5"}`:         `/max_uses`,
		`{"tools":["rec__kept"],"arguments":[1]}`:        `/arguments`,
		`{"tools":["rec__kept"],"key":"k"}`:              `/key`,
		`{"tools":["rec__kept"],"Max_Uses":5}`:           `/Max_Uses`,
		`{"tools":["rec__kept"],"tenant_id":"acme"}`:     `/tenant_id`,
		`{"tools":["rec__kept"],"context":{"person":1}}`: `/context`,
	} {
		got := v.ask("capabilities/request", params)
		for part := range strings.SplitSeq(want, "|") {
			if !strings.Contains(got.text, part) || got.ran() != strings.HasPrefix(want, `"tool`) {
				t.Errorf("%s: %s, without %s", params, got, part)
			}
		}
	}
	// What was granted for all tools of a server is of no other server.
	p := w.granted(v.ask("capabilities/request", `{"tools":"*","audience":"other"}`).result, nil)
	v.meta = `,"io.policy-service/capability":` + inText(p.token)
	v.call("rec__kept", `{}`).lacks(t, "wrong_audience", "at another server:")
}

// TestCapabilityOwed: what is owed for a grant is done before the client has it. If it cannot be done, the capability is given back.
func TestCapabilityOwed(t *testing.T) {
	t.Parallel()
	audit := filepath.Join(t.TempDir(), "audit.log")
	w := newVault(t, land{
		change: func(c *mcp.Config) {
			c.Capabilities.HolderKey, c.Obligations.Log = mcp.HolderKeyGateway, &mcp.LogConfig{File: audit}
		},
		files: map[string]string{
			"owed.cedar":       `@id("owed") @obligation("note") permit (principal, action == Action::"capability.grant", resource == tool::"rec:free");`,
			"obligations.yaml": peopleObligations + "note: {type: log, properties: {level: info, event: granted}}\n",
		},
	})
	apiKeys, err := keys.Open(w.data)
	orFail(t, err)
	key, err := apiKeys.Add(keys.Spec{Name: "registered", Grant: auth.Grant{
		Tenants: []string{"*"}, Permissions: []auth.Permission{auth.Decide, auth.Capability}, Obligations: []string{"log"},
	}})
	orFail(t, err)
	w.config.PDP.KeyFile = secretFile(t, key)
	var v *visitor
	mcptest.Until(t, "the PDP knows the key", func() bool {
		v = w.replica().stranger("modern", w.issuer.Token(t, nil))
		return v.ask("capabilities/list", `{}`).ran()
	})
	v.ask("capabilities/request", `{"tools":["free"]}`).runs(t, "owed:")
	noted, err := os.ReadFile(audit)
	if err != nil || !strings.Contains(string(noted), `"granted"`) {
		t.Errorf("noted: %s, %v", noted, err)
	}
	before := string(v.ask("capabilities/list", `{}`).result)
	orFail(t, os.Remove(audit))
	orFail(t, os.Mkdir(audit, 0o700))
	if got := v.ask("capabilities/request", `{"tools":["free"]}`); got.code() != -32001 || strings.Contains(got.text, "token") {
		t.Errorf("what is owed cannot be done: %s", got)
	}
	if after := string(v.ask("capabilities/list", `{}`).result); after != before {
		t.Errorf("there is %s, was %s", after, before)
	}
}

// TestCapabilityOverheard: who shows the capability of another with a request for a tool, which the PDP judges at its fulfilment
// alone, is not told what becomes of it.
func TestCapabilityOverheard(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		w := newVault(t, land{change: askedBy(100*time.Millisecond, "wait")})
		owner, eve := w.visitor(era, mcptest.Claims{"client_id": "agent-a"}), w.speaker(era, mcptest.Claims{"sub": "eve", "client_id": "agent-e"})
		id := textOf(t, owner.wants(w.proves(holderOf(t, 1), owner.issuer(), "agent-a", "kept"), true).result, "id")
		ear := eve.listens()
		ear.welcomed()
		eve.shows(id, "x.y.z").requests("fulfilled", `{"n":1}`)
		owner.ask("capabilities/revoke", `{"id":`+inText(id)+`}`).runs(t, era, "given back:")
		eve.meta = ""
		eve.call("kept", `{}`)
		ear.next("notifications/tool_call_blocked") // and nothing before
	}
}

// TestCapabilityOfAnotherTenant: an agent of one tenant does not give back what the agent of the same name has in another.
func TestCapabilityOfAnotherTenant(t *testing.T) {
	t.Parallel()
	w := newVault(t, land{files: map[string]string{"tenants/acme/a.cedar": `@id("acme") permit (principal is agent, action == Action::"capability.grant", resource is tool);`}})
	claims := mcptest.Claims{"client_id": "agent-a"}
	owner := w.visitor("modern", claims)
	got := owner.wants(w.proves(holderOf(t, 1), owner.issuer(), "agent-a", "kept"), true)
	id := `{"id":` + inText(textOf(t, got.result, "id")) + `}`
	w.config.PDP.Tenant = "acme"
	there := w.replica().stranger("modern", w.issuer.Token(t, claims))
	there.ask("capabilities/revoke", id).refused(t, -32602, "", "no such capability of yours", "of another tenant:")
	owner.ask("capabilities/revoke", id).runs(t, "at home:")
}

// sessionID is what a greeting says of the session, "" for nothing.
func (v *visitor) sessionID(got echo) string {
	v.s.t.Helper()
	_, after, _ := strings.Cut(got.text, `"io.policy-service/capabilities":`)
	var one struct {
		Session string `json:"session"`
	}
	orFail(v.s.t, json.UnmarshalDecode(jsontext.NewDecoder(strings.NewReader(after)), &one))
	return one.Session
}

// TestCapabilityOfSession: what is asked for in a session counts in that one alone, also after another gateway has taken it over. The
// modern era has none.
func TestCapabilityOfSession(t *testing.T) {
	t.Parallel()
	w := newVault(t, land{change: func(c *mcp.Config) { c.Capabilities.HolderKey = mcp.HolderKeyGateway }, files: map[string]string{
		"terms.cedar":      `@id("bound") @obligation("bound") permit (principal is agent, action == Action::"capability.grant", resource == tool::"rec:other");`,
		"obligations.yaml": peopleObligations + "bound: {type: capability_terms, properties: {channel: session}}\n",
	}})
	const ask = `{"tools":["kept"],"max_depth":1,"channel":"session"}`
	v, other := w.visitor("legacy", nil), w.visitor("legacy", nil)
	p := w.granted(v.ask("capabilities/request", ask).result, nil)
	if read, refusal := capability.ParseToken(p.token); refusal != nil || read.Session == "" || read.MaxDepth != 1 {
		t.Fatalf("granted %+v, %v", read, refusal)
	}
	shows := `,"io.policy-service/capability":`
	worth := `{"capability":` + inText(p.token) + `,"name":"kept","arguments":{}}`
	v.meta, other.meta = shows+inText(p.token), shows+inText(p.token)
	modern, replica := w.visitor("modern", nil), w.replica().stranger("legacy", v.token)
	modern.meta, replica.meta, replica.session = v.meta, v.meta, v.session
	for name, test := range map[string]struct {
		who  *visitor
		want string
	}{"the session": {v, ""}, "another session": {other, "channel_mismatch"}, "no session": {modern, "channel_mismatch"}, "another gateway": {replica, ""}} {
		test.who.call("kept", `{}`).lacks(t, test.want, name)
		test.who.meta = shows + inText(p.id) // which the PDP alone can check
		test.who.call("kept", `{}`).lacks(t, test.want, name, "by its id")
		test.who.meta = ""
		if got := test.who.ask("capabilities/validate", worth); strings.Contains(got.text, "channel_mismatch") != (test.want != "") || !got.ran() {
			t.Errorf("%s, validated: %s", name, got)
		}
	}
	modern.ask("capabilities/request", ask).refused(t, -32602, "", "leave channel out, or ask and call in a session", "in the modern era:")
	v.ask("capabilities/request", `{"tools":["kept"],"channel":"tls"}`).refused(t, -32602, "", "/channel", "another channel:")
	if got := v.ask("capabilities/request", `{"tools":["other"]}`); got.code() != -32001 || !strings.Contains(got.text, `"suggestion":"ask with \"channel\": \"session\""`) {
		t.Errorf("policies want one: %s", got)
	}
	v.ask("capabilities/request", `{"tools":["other"],"channel":"session"}`).runs(t, "policies have one:")
	// A client with a key of its own is told for what its proof has to be.
	mine := w.stranger("legacy", v.token)
	greeted := mine.ask("initialize", `{"protocolVersion":"2025-11-25","clientInfo":{"name":"siege","version":"1"},"capabilities":{}}`)
	session := mine.sessionID(greeted)
	if session == "" || mine.sessionID(modern.ask("server/discover", `{}`)) != "" {
		t.Errorf("the session is %q", session)
	}
	mine.session = greeted.header.Get("Mcp-Session-Id")
	h, issuer := holderOf(t, 1), v.issuer()
	proved := capability.Ask{Holder: evaluation.Ref{Type: "agent", ID: "agent-release"}, Audience: "rec", Tools: []string{"kept"}, Channel: capability.Channel{Session: session}}
	orFail(t, h.Request(&proved, issuer, w.now()))
	own := asked{`"tools":["kept"],"channel":"session"`, h, proved.Proof}
	if got := v.wants(own, false); !strings.Contains(got.text, "proof_wrong_call") {
		t.Errorf("asked in another session: %s", got)
	}
	p = w.granted(mine.wants(own, false).result, h)
	for name, test := range map[string]struct {
		who  *visitor
		want string
	}{"its own": {mine, ""}, "another": {v, "channel_mismatch"}} {
		test.who.shows(p.token, p.proof("kept", `{}`)).call("kept", `{}`).lacks(t, test.want, "with a key, in session:", name)
	}
	for _, secret := range []string{session, v.session} {
		if strings.Contains(w.logs.String(), secret) {
			t.Error("a session is in the gateway's log")
		}
	}
}
