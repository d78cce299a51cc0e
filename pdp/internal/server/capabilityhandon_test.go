package server_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/capability"
	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/clock"
	"policy-service/pdp/pdptest/night"
)

const handsOn = capabilityPolicies + `
@id("hands_all_on") permit(principal is agent, action == Action::"capability.delegate", resource == server::"b");
@id("hands_on_by_people") @obligation("ask") permit(principal is agent, action == Action::"capability.delegate", resource is tool) when { context.pdp.resource.id like "b:danger*" };
@id("not_to") forbid(principal, action == Action::"capability.delegate", resource) when { context.action.to.id == "stranger" };
`

// relay is a wallet whose agent hands capabilities on to the agents child and grandchild.
type relay struct {
	*wallet
	keys map[string]*capability.Holder
}

func openRelay(t *testing.T, options ...pdptest.Option) *relay {
	t.Helper()
	files := capabilityFiles()
	files["a.cedar"] = handsOn
	w := &relay{wallet: openWalletOn(t, pdptest.Bundle(files), options...)}
	w.keys = map[string]*capability.Holder{"bot": w.holder, "child": newHolder(t, 11), "grandchild": newHolder(t, 12), "stranger": newHolder(t, 13)}
	w.Advance(time.Minute)
	return w
}

func deep(n int) func(*capability.Ask) { return func(a *capability.Ask) { a.MaxDepth = n } }

// handed asks that the holder from hands a capability on to the agent to, and returns the status.
func (w *relay) handed(g granted, from, to string, change func(*capability.Ask), tools ...string) (status int, text string) {
	w.t.Helper()
	a := capability.Ask{
		Tenant: "default", Holder: evaluation.Ref{Type: "agent", ID: to}, Key: w.keys[to].Key(), Audience: "b", Tools: tools,
	}
	if change != nil {
		change(&a)
	}
	must(w.t, w.keys[from].HandOn(&a, g.ID, issuer, w.Now()))
	body, err := json.Marshal(a)
	must(w.t, err)
	return w.do("wallet", "POST", "/v1/capabilities/"+g.ID+"/delegate", string(body))
}

// hands is handed, with a status that it wants.
func (w *relay) hands(want int, g granted, from, to string, change func(*capability.Ask), tools ...string) (child granted) {
	w.t.Helper()
	status, text := w.handed(g, from, to, change, tools...)
	if status != want {
		w.t.Fatalf("%s hands on to %s: %d %s, want %d", from, to, status, text, want)
	}
	if child.text = text; status < 300 {
		must(w.t, json.Unmarshal([]byte(text), &child))
	}
	return child
}

// by is a call with a capability of an agent.
func (w *relay) by(agent string, g granted, tool string) shot {
	s := w.call(g, tool)
	s.agent, s.by = agent, w.keys[agent]
	return s
}

// TestCapabilityHandedOn: a holder hands on less than it has, and who gets it once more. Each calls by its own key, what it
// has, and no more than all before it; and what stops one stops all that was made from it.
func TestCapabilityHandedOn(t *testing.T) {
	t.Parallel()
	w := openRelay(t)
	root := w.asksFor(http.StatusCreated, func(a *capability.Ask) {
		a.MaxDepth, a.MaxUses = 2, 10
		a.Arguments = capability.Arguments{"target": constraintOf(t, `"staging"`), "*": constraintOf(t, `{"constraint_type":"wildcard"}`)}
	}, "read", "write")
	child := w.hands(201, root, "bot", "child", func(a *capability.Ask) { a.MaxDepth, a.Duration, a.MaxUses = 2, 5*time.Minute, 5 }, "read")
	token, refusal := capability.ParseToken(child.Token)
	if refusal != nil || token.Parent != root.ID || token.Depth != 1 || token.MaxDepth != 2 || len(token.Layers) != 2 || token.Grantor.ID != "bot" ||
		token.Holder.ID != "child" || !token.Expires.Before(root.Expires) || child.ExpiresIn != 300 || child.MaxUses != 5 {
		t.Errorf("the child is %+v", token)
	}
	last := w.hands(201, child, "child", "grandchild", nil, "read")
	if token, _ := capability.ParseToken(last.Token); token.Depth != 2 || len(token.Layers) != 3 || !token.Expires.Equal(child.Expires) || token.MaxUses != 5 {
		t.Errorf("the grandchild is %+v", token)
	}
	if a := w.is("allow", w.by("child", child, "b:read")); *a.Capability.UsesLeft != 4 {
		t.Errorf("%d uses are left", *a.Capability.UsesLeft)
	}
	if a := w.is("allow", w.by("grandchild", last, "b:read")); *a.Capability.UsesLeft != 3 {
		t.Errorf("%d uses are left", *a.Capability.UsesLeft) // of the child, which has fewest
	}
	other := w.by("grandchild", last, "b:read")
	other.arguments = `{"target":"production"}` // what the first of all bound
	w.is("argument_refused", other)
	w.is("tool_not_covered", w.by("child", child, "b:write"))
	stolen := w.by("bot", child, "b:read")
	w.is("wrong_holder", stolen)
	stolen.agent = "child"
	w.is("proof_invalid", stolen)               // who handed it on has not its key
	stolen = w.by("grandchild", root, "b:read") // nor who got it that of the parent
	stolen.agent = "bot"
	w.is("proof_invalid", stolen)
	for id, used := range map[string]int{root.ID: 2, child.ID: 2, last.ID: 1} {
		w.reply("warden", "GET", "/v1/capabilities/"+id, "").is(t, "its uses", 200, fmt.Sprintf(`"used":%d`, used))
	}
	w.reply("warden", "GET", "/v1/capabilities/"+last.ID, "").is(t, "the last", 200, `"parent":"`+child.ID+`","depth":2,"max_depth":2`, `"tools":["b:read"]`)
	if ids, _ := w.listed("warden", "?ancestor="+root.ID); len(ids) != 2 {
		t.Errorf("made from the first are %v", ids)
	}
	for _, id := range []string{child.ID, last.ID} {
		for _, line := range w.onRecord(`"event":"granted"`) {
			if strings.Contains(line, `"capability":"`+id+`"`) && !strings.Contains(line, `"ancestors":[`) {
				t.Errorf("on record is no ancestor: %s", line)
			}
		}
	}
	renewal := capability.Ask{Tenant: "default", Holder: evaluation.Ref{Type: "agent", ID: "grandchild"}, Audience: "b", Tools: []string{"read"}}
	must(t, w.keys["grandchild"].Request(&renewal, issuer, w.Now()))
	body, err := json.Marshal(renewal)
	must(t, err)
	w.reply("wallet", "POST", "/v1/capabilities/"+last.ID+"/renew", string(body)).is(t, "renew", 409, "handed on")

	w.reply("warden", "POST", "/v1/capabilities/"+child.ID+"/revoke", `{"reason":"x"}`).is(t, "revoke", 200)
	w.is("revoked", w.by("grandchild", last, "b:read"))
	w.reply("warden", "GET", "/v1/capabilities/"+last.ID, "").is(t, "nothing is spent", 200, `"used":1`)
	w.reply("warden", "GET", "/v1/capabilities/"+root.ID, "").is(t, "nothing is spent", 200, `"used":2`)
	w.is("allow", w.by("bot", root, "b:read"))
	has(t, w.hands(409, child, "child", "grandchild", nil, "read").text, "revoked")
	again := w.hands(201, root, "bot", "child", nil, "read")
	w.is("allow", w.by("child", again, "b:read"))
	w.reply("wallet", "POST", "/v1/capabilities/"+root.ID+"/return", `{"reason":"x"}`).is(t, "return", 200)
	w.is("revoked", w.by("child", again, "b:read"))
}

// TestCapabilityHandedOnNarrower has holders try to hand on more than they have (row 21), or what is not theirs (rows 22 and
// 23). Nothing is minted.
func TestCapabilityHandedOnNarrower(t *testing.T) {
	t.Parallel()
	w := openRelay(t)
	root := w.asksFor(http.StatusCreated, func(a *capability.Ask) { a.MaxDepth, a.MaxUses = 1, 5 }, "read")
	for name, of := range map[string]struct {
		change func(*capability.Ask)
		tools  []string
		at     string
	}{
		"another tool":    {nil, []string{"read", "write"}, "tools"},
		"all tools":       {nil, []string{"*"}, "tools"},
		"longer":          {func(a *capability.Ask) { a.Duration = 2 * time.Hour }, []string{"read"}, "duration"},
		"until later":     {func(a *capability.Ask) { a.ValidUntil = root.Expires.Add(time.Second) }, []string{"read"}, "duration"},
		"more uses":       {uses(6), []string{"read"}, "max_uses"},
		"deeper":          {deep(2), []string{"read"}, "max_depth"},
		"another server":  {func(a *capability.Ask) { a.Audience = "people" }, []string{"read"}, "audience"},
		"bound elsewhere": {inSession("ws-1"), []string{"read"}, "channel"},
	} {
		has(t, w.hands(409, root, "bot", "child", of.change, of.tools...).text, "not_narrower", `"pointer":"/`+of.at+`"`, name[:0])
	}
	child := w.hands(201, root, "bot", "child", nil, "read")
	if child.MaxUses != 5 || !strings.Contains(child.text, `"narrowed":["max_uses"]`) {
		t.Errorf("it has %s", child.text)
	}
	has(t, w.hands(409, child, "child", "grandchild", nil, "read").text, `"pointer":"/max_depth"`)
	plain := w.asksFor(http.StatusCreated, nil, "read")
	has(t, w.hands(409, plain, "bot", "child", nil, "read").text, `"pointer":"/max_depth"`)
	bound := w.asksFor(http.StatusCreated, func(a *capability.Ask) {
		inSession("ws-1")(a)
		a.MaxDepth = 1
	}, "read")
	for _, session := range []string{"", "ws-1"} { // in which its holder alone is
		has(t, w.hands(409, bound, "bot", "child", inSession(session), "read").text, `"pointer":"/channel"`)
	}
	if denied := w.hands(200, root, "bot", "stranger", nil, "read"); denied.Granted || len(denied.Refused) != 1 {
		t.Errorf("to a stranger: %s", denied.text)
	}
	for _, tenant := range []string{"acme", "default"} {
		w.reply("wallet", "POST", "/v1/capabilities/cap_nosuch/delegate", `{"tenant_id":"`+tenant+`"}`).is(t, "no capability", 404)
	}
	proof := func(name, want string, make func(a *capability.Ask)) {
		t.Helper()
		a := capability.Ask{Tenant: "default", Holder: evaluation.Ref{Type: "agent", ID: "child"}, Key: w.keys["child"].Key(), Audience: "b", Tools: []string{"read"}}
		make(&a)
		body, err := json.Marshal(a)
		must(t, err)
		w.reply("wallet", "POST", "/v1/capabilities/"+root.ID+"/delegate", string(body)).is(t, name, 400, want)
	}
	hand := func(by, parent string) func(a *capability.Ask) {
		return func(a *capability.Ask) { must(t, w.keys[by].HandOn(a, parent, issuer, w.Now())) }
	}
	proof("by the key of who is to get it", "proof_invalid", hand("child", root.ID))
	proof("for another parent", "proof_wrong_call", hand("bot", plain.ID))
	proof("no proof", "proof_missing", func(*capability.Ask) {})
	proof("to another key", "proof_wrong_call", func(a *capability.Ask) { hand("bot", root.ID)(a); a.Key = w.keys["stranger"].Key() })
	proof("to another holder", "proof_wrong_call", func(a *capability.Ask) { hand("bot", root.ID)(a); a.Holder.ID = "grandchild" })
	proof("for another depth", "proof_wrong_call", func(a *capability.Ask) { hand("bot", root.ID)(a); a.MaxDepth = 1 })
	proof("to have one for itself", "proof_wrong_call", func(a *capability.Ask) {
		own := *a
		own.Holder.ID = "bot"
		must(t, w.holder.Request(&own, issuer, w.Now()))
		a.Proof = own.Proof
	})
	a := capability.Ask{Tenant: "default", Holder: evaluation.Ref{Type: "agent", ID: "child"}, Key: w.keys["child"].Key(), Audience: "b", Tools: []string{"read"}}
	hand("bot", root.ID)(&a)
	body, err := json.Marshal(a)
	must(t, err)
	w.reply("wallet", "POST", "/v1/capabilities/"+root.ID+"/delegate", string(body)).is(t, "once", 201)
	w.reply("wallet", "POST", "/v1/capabilities/"+root.ID+"/delegate", string(body)).is(t, "twice", 400, "proof_replayed")
	w.reply("wallet", "POST", "/v1/capabilities", string(body)).is(t, "as a grant", 400, "proof_invalid")
	if ids, _ := w.listed("warden", "?ancestor="+root.ID); len(ids) != 2 {
		t.Errorf("handed on are %v", ids)
	}

	w.welcome("purse", "", auth.Capability, auth.Decide)
	w.reply("purse", "POST", "/v1/capabilities/"+root.ID+"/delegate", string(body)).is(t, "one of others", 404)
	w.welcome("own", `agent::"bot"`, auth.Capability)
	w.welcome("others", `agent::"child"`, auth.Capability)
	hand("bot", root.ID)(&a)
	body, err = json.Marshal(a)
	must(t, err)
	w.reply("others", "POST", "/v1/capabilities/"+root.ID+"/delegate", string(body)).is(t, "one of another principal", 404)
	w.reply("own", "POST", "/v1/capabilities/"+root.ID+"/delegate", string(body)).is(t, "its own", 201)
}

// TestCapabilityHandedOnByPeople: people read who hands on what to whom, and are asked as for a grant; the child of their
// approval is one.
func TestCapabilityHandedOnByPeople(t *testing.T) {
	t.Parallel()
	w := openRelay(t)
	waits := w.asksFor(http.StatusAccepted, deep(2), "danger")
	w.reply("mia", "GET", "/v1/approvals/"+waits.Approval.ID, "").is(t, "of the first", 200, "who may hand it on, 2 deep", `"max_depth":2`)
	w.says("mia", waits.Approval.ID, "decision", `{"decision":"approve","reason":"x"}`, http.StatusOK)
	root := w.asksFor(http.StatusCreated, func(a *capability.Ask) { a.MaxDepth, a.ApprovalID = 2, waits.Approval.ID }, "danger")
	asked := w.hands(202, root, "bot", "child", uses(3), "danger")
	w.reply("mia", "GET", "/v1/approvals/"+asked.Approval.ID, "").is(t, "what people read", 200,
		"Open-ended in arguments: bot hands on to child that child may call danger of b for 10 min, 3 times, with any arguments; held by key "+w.keys["child"].Key().Thumbprint(),
		`"name":"capability.delegate"`, `"to":{"id":"child","type":"agent"}`)
	w.says("mia", asked.Approval.ID, "decision", `{"decision":"approve","reason":"x"}`, http.StatusOK)
	presents := func(a *capability.Ask) { a.ApprovalID, a.MaxUses = asked.Approval.ID, 3 }
	w.hands(202, root, "bot", "grandchild", presents, "danger") // to whom nobody agreed
	child := w.hands(201, root, "bot", "child", presents, "danger")
	w.is("allow", w.by("child", child, "b:danger"))
	if same := w.hands(201, root, "bot", "child", presents, "danger"); same.ID != child.ID {
		t.Errorf("the approval made %s, too", same.ID)
	}
}

// TestCapabilityHandedOnOnce: 64 calls at once by parent, child and grandchild have no more uses than the parent, and each use
// is on record.
func TestCapabilityHandedOnOnce(t *testing.T) {
	t.Parallel()
	w := openRelay(t)
	const most = 7
	root := w.asksFor(http.StatusCreated, func(a *capability.Ask) { a.MaxDepth, a.MaxUses = 2, most }, "read")
	child := w.hands(201, root, "bot", "child", deep(2), "read")
	last := w.hands(201, child, "child", "grandchild", nil, "read")
	shots := make([]string, 64)
	for n := range shots {
		switch n % 3 {
		case 0:
			shots[n] = w.by("bot", root, "b:read").body(t)
		case 1:
			shots[n] = w.by("child", child, "b:read").body(t)
		default:
			shots[n] = w.by("grandchild", last, "b:read").body(t)
		}
	}
	if got := w.atOnce(func(n int) (string, string) { return authorizePath, shots[n] }); got[authorizePath] != most {
		t.Errorf("%d calls were allowed, of %d", got[authorizePath], most)
	}
	w.reply("warden", "GET", "/v1/capabilities/"+root.ID, "").is(t, "the first", 200, `"state":"used_up"`, fmt.Sprintf(`"used":%d`, most))
	w.is("used_up", w.by("child", child, "b:read"))
	w.is("used_up", w.by("grandchild", last, "b:read"))
}

// TestCapabilityHandedOnSwept: what is handed on is asked about again as any grant is; and one whose parent is suspended is
// refused, and again active with it.
func TestCapabilityHandedOnSwept(t *testing.T) {
	t.Parallel()
	w := &relay{wallet: nil}
	e := openEdited(t)
	w.wallet = e.wallet
	w.keys = map[string]*capability.Holder{"bot": w.holder, "child": newHolder(t, 11)}
	e.under(handsOn)
	w.Advance(time.Minute)
	root := w.asksFor(http.StatusCreated, deep(1), "read")
	child := w.hands(201, root, "bot", "child", nil, "read")
	e.under(handsOn + `@id("no") forbid(principal, action == Action::"capability.delegate", resource);`)
	w.becomes(child, "suspended")
	w.is("suspended", w.by("child", child, "b:read"))
	w.is("allow", w.by("bot", root, "b:read"))
	e.under(handsOn + `@id("no") forbid(principal, action == Action::"capability.grant", resource);`)
	w.becomes(root, "suspended")
	w.becomes(child, "active")
	w.is("suspended", w.by("child", child, "b:read"))
	e.under(handsOn)
	w.becomes(root, "active")
	w.is("allow", w.by("child", child, "b:read"))
}

// TestCapabilityHandedOnLimits: a holder that hands on counts for itself, and takes nothing of what others may have.
func TestCapabilityHandedOnLimits(t *testing.T) {
	t.Parallel()
	w := openRelay(t, func(c *server.Config) { c.Capabilities.MaxLivePerHolder = 3 })
	root := w.asksFor(http.StatusCreated, deep(1), "read")
	for range 2 {
		w.hands(201, root, "bot", "child", nil, "read")
	}
	w.hands(429, root, "bot", "child", nil, "read")
	was := w.holder
	w.holder = w.keys["child"]
	w.asksFor(http.StatusCreated, func(a *capability.Ask) { a.Holder.ID = "child" }, "read")
	w.holder = was
	w.asksFor(http.StatusTooManyRequests, nil, "read")
}

// TestCapabilityHandedOnByAKilledServer kills a server at random moments while capabilities are handed on. Each that counts has
// its decision and its step on record, with its ancestors, and each decision on record made one that counts.
func TestCapabilityHandedOnByAKilledServer(t *testing.T) {
	t.Parallel()
	killedUnderHandOn(t, night.Cases(5))
}

// TestSoakCapabilityHandedOnByAKilledServer does it more often.
func TestSoakCapabilityHandedOnByAKilledServer(t *testing.T) {
	night.Soaks(t)
	killedUnderHandOn(t, 100)
}

func killedUnderHandOn(t *testing.T, rounds int) {
	t.Helper()
	c := &counter{t: t, data: t.TempDir(), key: map[string]string{}, Clock: clock.At(pdptest.Now)}
	c.grant("wallet", []string{"*"}, "", auth.Decide, auth.Capability)
	c.grant("warden", []string{"*"}, "", auth.CapabilityAdmin)
	c.grant("auditor", []string{"*"}, "", auth.LogRead)
	k := &killing{wallet: wallet{counter: c, holder: newHolder(t, 1)}, answered: map[string]string{}}
	w := &relay{wallet: &k.wallet, keys: map[string]*capability.Holder{"bot": k.holder, "child": newHolder(t, 11)}}
	var roots []granted
	for range rounds {
		kill, killed := k.start()
		k.Advance(sinceStart)
		root := k.asksFor(http.StatusCreated, func(a *capability.Ask) { a.MaxDepth, a.MaxUses, a.Duration = 1, 1000, 10*time.Hour }, "read")
		roots = append(roots, root)
		k.left = 1 + rand.IntN(20)
		var callers sync.WaitGroup
		for range 4 {
			callers.Go(func() {
				for k.handsOn(root, w.keys["child"].Key()) {
				}
				kill()
			})
		}
		callers.Wait()
		if killed(); t.Failed() {
			return
		}
	}
	k.open(capabilityBundle(), func(config *server.Config) { config.PublicURL = issuer }, withoutLimits)
	k.Advance(sinceStart)
	counts := map[string]string{}
	for _, root := range roots {
		ids, _ := k.listed("warden", "?state=active&ancestor="+root.ID)
		for _, id := range ids {
			counts[id] = root.ID
		}
		if n := len(ids); n > 0 {
			w.is("allow", w.by("child", granted{ID: ids[n-1], Token: ids[n-1]}, "b:read"))
			w.reply("warden", "GET", "/v1/capabilities/"+root.ID, "").is(t, "its uses", 200, `"used":1`)
		}
	}
	_, text := k.do("auditor", "GET", "/v1/log/export", "")
	if report := verify.Export(strings.NewReader(text), verify.Options{}); !report.Verified() {
		t.Errorf("the log does not verify: %+v", report)
	}
	decided, stepped := map[string]string{}, map[string]string{}
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		r, err := record.Parse([]byte(line))
		must(t, err)
		var details struct {
			Capability string   `json:"capability"`
			Ancestors  []string `json:"ancestors"`
		}
		switch c := r.Capability; {
		case c != nil && c.Grants && len(c.Ancestors) == 1:
			decided[c.ID] = c.Ancestors[0]
		case r.Kind == format.KindCapability && r.Event == "granted":
			if must(t, json.Unmarshal(r.Details, &details)); len(details.Ancestors) == 1 {
				stepped[details.Capability] = details.Ancestors[0]
			}
		}
	}
	if !maps.Equal(counts, decided) || !maps.Equal(counts, stepped) {
		t.Errorf("what counts is\n%v, decided was\n%v, and on record are the steps of\n%v", counts, decided, stepped)
	}
	for id := range k.answered {
		if counts[id] == "" {
			t.Errorf("%s was answered, and does not count", id)
		}
	}
	t.Logf("%d were handed on, and %d answered", len(counts), len(k.answered))
}

// handsOn hands a capability on to agent child, and reports whether the server goes on.
func (k *killing) handsOn(root granted, to capability.Key) bool {
	a := capability.Ask{Tenant: "default", Holder: evaluation.Ref{Type: "agent", ID: "child"}, Key: to, Audience: "b", Tools: []string{"read"}, Duration: time.Hour}
	must(k.t, k.holder.HandOn(&a, root.ID, issuer, k.Now()))
	body, err := json.Marshal(a)
	must(k.t, err)
	r, err := http.NewRequestWithContext(k.t.Context(), "POST", k.URL+"/v1/capabilities/"+root.ID+"/delegate", bytes.NewReader(body))
	must(k.t, err)
	r.Header.Set("Authorization", k.key["wallet"])
	r.Header.Set("Content-Type", "application/json")
	answer, err := k.Client.Do(r)
	var g granted
	if err == nil {
		read, failed := io.ReadAll(answer.Body)
		if err = errors.Join(failed, answer.Body.Close()); err == nil {
			err = json.Unmarshal(read, &g)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		return false
	}
	if !g.Granted {
		k.t.Errorf("not handed on: %d", answer.StatusCode)
		return false
	}
	k.answered[g.ID] = root.ID
	k.left--
	return k.left > 0
}

// TestCapabilityHandedOnOffline: what stops a capability stops, in the status list, what was made from it.
func TestCapabilityHandedOnOffline(t *testing.T) {
	t.Parallel()
	w := openRelay(t, lastingLists)
	root := w.asksFor(http.StatusCreated, func(a *capability.Ask) { a.Offline, a.MaxDepth = true, 1 }, "read")
	child := w.hands(201, root, "bot", "child", offline, "read")
	online := w.asksFor(http.StatusCreated, deep(1), "read")
	has(t, w.hands(201, online, "bot", "child", offline, "read").text, `"verify":"online"`, `"narrowed":["offline"]`)
	b := w.beside(authzenclient.WithKey(strings.TrimPrefix(w.key["wallet"], "Bearer ")))
	try := func() (code string) {
		for n := 0; n < 2 && (n == 0 || code == "nonce_required"); n++ {
			s := b.shot(child, "b:read")
			s.agent, s.by = "child", w.keys["child"]
			code = b.send(s)
		}
		return code
	}
	if code := try(); code != "" {
		t.Errorf("it is refused: %s", code)
	}
	w.reply("warden", "POST", "/v1/capabilities/"+root.ID+"/revoke", `{"reason":"x"}`).is(t, "revoke", 200)
	eventually(t, "it is refused", func() bool { return try() == "revoked" })
}
