package server_test

import (
	"fmt"
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
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/auth/keys"
	"policy-service/pdp/pdptest"
)

// edited is a wallet whose policies are files that change.
type edited struct {
	*wallet
	dir string
}

func openEdited(t *testing.T, options ...pdptest.Option) edited {
	t.Helper()
	dir := t.TempDir()
	writeAll(t, dir, capabilityFiles())
	w := openWalletOn(t, pdp.Dir(dir), options...)
	w.Advance(time.Minute)
	return edited{w, dir}
}

// under brings other policies into force.
func (e edited) under(policies string) {
	e.t.Helper()
	must(e.t, os.WriteFile(filepath.Join(e.dir, "a.cedar"), []byte(policies), 0o600))
	must(e.t, e.Reload(e.t.Context()))
}

// stateOf is the state of a capability.
func (w *wallet) stateOf(g granted) string {
	w.t.Helper()
	_, text := w.do("wallet", "GET", "/v1/capabilities/"+g.ID, "")
	var is struct {
		State string `json:"state"`
	}
	must(w.t, json.Unmarshal([]byte(text), &is))
	return is.State
}

// becomes waits for a sweep.
func (w *wallet) becomes(g granted, want string) {
	w.t.Helper()
	eventually(w.t, g.ID+" is "+want, func() bool { return w.stateOf(g) == want })
}

const noMore = `@id("no_more") forbid(principal, action == Action::"capability.grant", resource == tool::"b:read");`

// TestCapabilitySweep: what the policies would not grant any more is suspended at once, and active again once they would. The
// approval of people is taken as given.
func TestCapabilitySweep(t *testing.T) {
	t.Parallel()
	w := openEdited(t)
	read, write := w.asksFor(http.StatusCreated, nil, "read"), w.asksFor(http.StatusCreated, nil, "write")
	waits := w.asksFor(http.StatusAccepted, nil, "danger")
	w.says("mia", waits.Approval.ID, "decision", `{"decision":"approve","reason":"maintenance"}`, http.StatusOK)
	approved := w.asksFor(http.StatusCreated, func(a *capability.Ask) { a.ApprovalID = waits.Approval.ID }, "danger")
	gone := w.asksFor(http.StatusCreated, nil, "read")
	w.reply("warden", "POST", "/v1/capabilities/"+gone.ID+"/revoke", `{"reason":"enough"}`).is(t, "revoke", 200)

	w.under(capabilityPolicies + noMore) // a forbid is added
	w.becomes(read, "suspended")
	w.is("suspended", w.call(read, "b:read"))
	w.is("allow", w.call(write, "b:write"))
	w.is("allow", w.call(approved, "b:danger"))
	w.under(capabilityPolicies)
	w.becomes(read, "active")
	w.is("allow", w.call(read, "b:read"))
	if got := w.stateOf(gone); got != "revoked" {
		t.Errorf("one that was revoked is %s", got)
	}

	w.under(strings.Replace(capabilityPolicies, `@id("grants") permit`, `@id("grants") forbid`, 1)) // a permit is taken away
	w.becomes(read, "suspended")
	w.becomes(write, "suspended")
	w.becomes(approved, "suspended")
	w.under(strings.Replace(capabilityPolicies, `@id("grants")`, `@id("grants") @obligation("ask")`, 1)) // people are to be asked
	w.becomes(approved, "active")
	w.is("allow", w.call(approved, "b:danger"))
	w.is("suspended", w.call(write, "b:write"))

	w.restart(func() {
		must(t, os.WriteFile(filepath.Join(w.dir, "a.cedar"), []byte(capabilityPolicies+noMore), 0o600))
	})
	w.becomes(write, "active")
	w.becomes(read, "suspended")

	_, text := w.do("auditor", "GET", "/v1/log/export", "")
	found := ""
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		r, err := record.Parse([]byte(line))
		if err != nil || r.Kind != "capability" || !strings.Contains(line, read.ID) || r.Event != "suspended" && r.Event != "resumed" {
			continue
		}
		if found += " " + r.Event; !strings.Contains(line, `"bundle":"h1:`) {
			t.Errorf("the policies are not on record: %s", line)
		}
	}
	if want := " suspended resumed suspended"; found != want {
		t.Errorf("on record:%s, want%s", found, want)
	}
}

// TestCapabilitySweptOnce: whatever policies came into force while capabilities were granted, those that came last decide
// what each of them is in the end.
func TestCapabilitySweptOnce(t *testing.T) {
	t.Parallel()
	w := openEdited(t)
	var all []granted
	var mu sync.Mutex
	for round := range 4 {
		var asking sync.WaitGroup
		answered := make(chan struct{}, 8)
		for n := range 8 {
			asking.Go(func() {
				g, status := w.tries(byte(10 + 8*round + n))
				answered <- struct{}{}
				if mu.Lock(); status == http.StatusCreated {
					all = append(all, g)
				}
				mu.Unlock()
			})
		}
		<-answered // on a busy machine the policies could come before all of them
		w.under(capabilityPolicies + noMore)
		asking.Wait()
		for _, g := range all {
			w.becomes(g, "suspended")
		}
		w.under(capabilityPolicies)
		for _, g := range all {
			w.becomes(g, "active")
		}
	}
	if len(all) == 0 {
		t.Error("nothing was granted: the test shows nothing")
	}
}

// tries asks for b:read with a key of its own.
func (w *wallet) tries(seed byte) (g granted, status int) {
	own := *w
	own.holder = newHolder(w.t, seed)
	status, text := w.do("wallet", "POST", "/v1/capabilities", string(own.asks("read")))
	must(w.t, json.Unmarshal([]byte(text), &g))
	return g, status
}

// TestCapabilityOfALargeRequest: what is within the limits of the server when it is asked can be asked again.
func TestCapabilityOfALargeRequest(t *testing.T) {
	t.Parallel()
	limits := evaluation.DefaultLimits()
	limits.Depth = 40
	w := openEdited(t, func(c *server.Config) { c.Program.Limits = limits })
	many, err := evaluation.ParseObject([]byte(`{"all":[1`+strings.Repeat(",1", 10_000)+`],"deep":`+strings.Repeat(`{"a":`, 30)+`1`+strings.Repeat(`}`, 30)+`}`), limits)
	must(t, err)
	a := w.asking(nil, "read") // which holds itself to the limits that a server has by default
	a.Properties = many
	body, err := json.Marshal(a)
	must(t, err)
	r := w.reply("wallet", "POST", "/v1/capabilities", string(body))
	r.is(t, "it is granted", 201)
	var g granted
	must(t, json.Unmarshal([]byte(r.text), &g))
	other := w.asksFor(http.StatusCreated, nil, "write")
	w.under(capabilityPolicies + strings.Replace(noMore, "b:read", "b:write", 1))
	w.becomes(other, "suspended") // so all were asked again
	if got := w.stateOf(g); got != "active" {
		t.Errorf("it is %s", got)
	}
}

// TestCapabilityTerms: policies bound what is granted, people see it bounded, and what is beyond later terms is suspended.
func TestCapabilityTerms(t *testing.T) {
	t.Parallel()
	w := openEdited(t)
	terms := func(minutes, uses int) {
		t.Helper()
		text := fmt.Sprintf("%sshort: {type: capability_terms, properties: {max_duration: %dm, max_uses: %d}}\n", approvalObligations, minutes, uses)
		must(t, os.WriteFile(filepath.Join(w.dir, "obligations.yaml"), []byte(text), 0o600))
		w.under(capabilityPolicies + `@id("short") @obligation("short") permit(principal is agent, action == Action::"capability.grant", resource is tool) when { context.pdp.resource.id like "b:*" };`)
	}
	terms(10, 3)
	g := w.asksFor(http.StatusCreated, nil, "read")
	if got := g.says(); got != "600 seconds, 3 uses, narrowed [duration max_uses]" {
		t.Errorf("granted: %s", got)
	}
	if got := w.asksFor(http.StatusCreated, func(a *capability.Ask) { a.Duration, a.MaxUses = time.Minute, 2 }, "read").says(); got != "60 seconds, 2 uses, narrowed []" {
		t.Errorf("granted within the terms: %s", got)
	}

	waits := w.asksFor(http.StatusAccepted, nil, "danger")
	w.reply("mia", "GET", "/v1/approvals/"+waits.Approval.ID, "").is(t, "what people see", 200, `"message":"Open-ended in arguments: bot may call danger of b for 10 min, 3 times, with any arguments`)
	w.says("mia", waits.Approval.ID, "decision", `{"decision":"approve","reason":"maintenance"}`, http.StatusOK)
	presents := func(a *capability.Ask) { a.ApprovalID = waits.Approval.ID }
	terms(20, 3) // people did not see that
	w.asksFor(http.StatusAccepted, presents, "danger")
	terms(10, 3)
	approved := w.asksFor(http.StatusCreated, presents, "danger")
	if got := approved.says(); got != "600 seconds, 3 uses, narrowed [duration max_uses]" {
		t.Errorf("granted by people: %s", got)
	}
	terms(5, 3)
	w.becomes(g, "suspended")
	w.becomes(approved, "suspended")
	terms(10, 3)
	w.becomes(g, "active")
	terms(10, 2)
	w.becomes(g, "suspended")
}

// TestCapabilityOwes: what is owed for a grant is in its answer, and is asked for again as it was declared then.
func TestCapabilityOwes(t *testing.T) {
	t.Parallel()
	w := openEdited(t)
	logs := strings.Replace(capabilityPolicies, `@id("grants")`, `@id("grants") @obligation("log")`, 1)
	w.under(logs)
	apiKeys, err := keys.Open(w.data)
	must(t, err)
	key, err := apiKeys.Add(keys.Spec{Name: "logger", Grant: auth.Grant{
		Tenants: []string{"*"}, Permissions: []auth.Permission{auth.Decide, auth.Capability}, Obligations: []string{"log"},
	}})
	must(t, err)
	w.key["logger"] = "Bearer " + key
	w.until("logger", func(status int) bool { return status != http.StatusUnauthorized })
	w.reply("wallet", "POST", "/v1/capabilities", string(w.asks("read"))).is(t, "it is not declared", 200, `"reason":"obligation_unsupported"`)
	r := w.reply("logger", "POST", "/v1/capabilities", string(w.asks("read")))
	r.is(t, "it is declared", 201, `"obligations":[{"id":"log","type":"log","properties":{}}]`)
	var g granted
	must(t, json.Unmarshal([]byte(r.text), &g))
	is := func() string { _, text := w.do("logger", "GET", "/v1/capabilities/"+g.ID, ""); return text }
	w.under(logs + noMore)
	eventually(t, "it is suspended", func() bool { return strings.Contains(is(), `"suspended"`) })
	w.under(logs)
	eventually(t, "it is active", func() bool { return strings.Contains(is(), `"active"`) })
}

// asks is the body of a request.
func (w *wallet) asks(tool string) []byte {
	body, err := json.Marshal(w.asking(nil, tool))
	must(w.t, err)
	return body
}

// says is how much was granted.
func (g granted) says() string {
	return fmt.Sprintf("%d seconds, %d uses, narrowed %v", g.ExpiresIn, g.MaxUses, g.Narrowed)
}

// TestCapabilityAndTime: policies that see the time are asked again without a change of them.
func TestCapabilityAndTime(t *testing.T) {
	t.Parallel()
	w := openEdited(t)
	w.under(capabilityPolicies + fmt.Sprintf(`@id("night") forbid(principal, action == Action::"capability.grant", resource == tool::"b:read")
		when { context.pdp.now >= datetime(%q) && context.pdp.now < datetime(%q) };`,
		w.Now().Add(10*time.Minute).UTC().Format(time.RFC3339), w.Now().Add(20*time.Minute).UTC().Format(time.RFC3339)))
	read, write := w.asksFor(http.StatusCreated, nil, "read"), w.asksFor(http.StatusCreated, nil, "write")
	w.Advance(10 * time.Minute)
	w.becomes(read, "suspended")
	if got := w.stateOf(write); got != "active" {
		t.Errorf("another is %s", got)
	}
	w.Advance(10 * time.Minute)
	w.becomes(read, "active")
}

// TestCapabilityAndExpiry: a capability ends when the access rule does that grants it.
func TestCapabilityAndExpiry(t *testing.T) {
	t.Parallel()
	w := openEdited(t)
	access := func(expires time.Duration) {
		t.Helper()
		text := fmt.Sprintf("owner: c\nmode: allowlist\nrules:\n- {agent: bot, tools: [read], expires: %s}\n", w.Now().Add(expires).UTC().Format(time.RFC3339))
		must(t, os.MkdirAll(filepath.Join(w.dir, "access"), 0o700))
		must(t, os.WriteFile(filepath.Join(w.dir, "access", "c.yaml"), []byte(text), 0o600))
		must(t, os.WriteFile(filepath.Join(w.dir, "bundle.yaml"), []byte("types: {agent: agent, tool: tool}\naccess: {capability: required}\n"), 0o600))
		w.under(capabilityPolicies)
	}
	access(20 * time.Minute)
	of := func(a *capability.Ask) { a.Audience = "c" }
	g := w.asksFor(http.StatusCreated, of, "read")
	if g.ExpiresIn > 1200 || g.ExpiresIn < 1100 || fmt.Sprint(g.Narrowed) != "[duration]" {
		t.Errorf("granted beyond the rule: %+v", g)
	}
}

// TestCapabilityRenewedByAnother: the policies are asked again as the caller that renewed a capability asked them, not as
// the one that had asked for it.
func TestCapabilityRenewedByAnother(t *testing.T) {
	t.Parallel()
	w := openEdited(t)
	w.welcome("boss", "", auth.Capability, auth.CapabilityAdmin)
	g := w.asksFor(http.StatusCreated, nil, "read")
	kept := w.asksFor(http.StatusCreated, nil, "read")
	w.as = "boss"
	w.renews(g, http.StatusCreated, nil, "read")
	w.under(capabilityPolicies + `@id("no_boss") forbid(principal, action == Action::"capability.grant", resource) when { context.pdp.caller == "key:boss" };`)
	w.becomes(g, "suspended")
	if got := w.stateOf(kept); got != "active" {
		t.Errorf("one that was not renewed is %s", got)
	}
}
