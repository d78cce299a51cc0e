package server_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
)

// listed are the ids of all pages of a list, and the number of pages.
func (w *wallet) listed(who, query string) (ids []string, pages int) {
	w.t.Helper()
	for next := ""; ; pages++ {
		status, text := w.do(who, "GET", "/v1/capabilities"+query+next, "")
		var page struct {
			Items []struct {
				ID string `json:"id"`
			} `json:"items"`
			Next string `json:"next"`
		}
		if status != http.StatusOK {
			w.t.Fatalf("%s lists %s: %d %s", who, query, status, text)
		}
		must(w.t, json.Unmarshal([]byte(text), &page))
		for _, one := range page.Items {
			ids = append(ids, one.ID)
		}
		if next = "&cursor=" + page.Next; page.Next == "" {
			return ids, pages + 1
		}
	}
}

// worldOf grants capabilities to two holders with two keys, in two tenants, by two programs. Their names begin with the
// program and the tenant.
func worldOf(w *wallet) (ids map[string]string) {
	w.welcome("purse", "", auth.Capability)
	ids = map[string]string{}
	ask := func(name, who, tenant, agent string, key byte, tools ...string) {
		w.as, w.holder = who, newHolder(w.t, key)
		ids[name] = w.asksFor(http.StatusCreated, func(a *capability.Ask) { a.Tenant, a.Holder.ID = tenant, agent }, tools...).ID
	}
	ask("wallet default 1", "wallet", "default", "bot", 1, "read")
	ask("purse default 2", "purse", "default", "bot", 2, "read")
	ask("wallet acme 1", "wallet", "acme", "bot", 1, "read")
	ask("purse acme 2", "purse", "acme", "bot2", 2, "read", "write")
	ask("wallet default 3", "wallet", "default", "bot:2", 1, "read")
	w.as, w.holder = "", newHolder(w.t, 1)
	return ids
}

// TestCapabilityList: each caller sees the capabilities that it asked for, and an admin those of its tenants, and no other.
func TestCapabilityList(t *testing.T) {
	t.Parallel()
	w := openWallet(t)
	ids := worldOf(w)
	key1 := w.holder.Key().Thumbprint()
	for name, of := range map[string]struct {
		tenants     []string
		permissions []auth.Permission
	}{
		"acme-warden":    {[]string{"acme"}, []auth.Permission{auth.CapabilityAdmin}},
		"default-wallet": {[]string{"default"}, []auth.Permission{auth.Capability}},
		"two":            {[]string{"acme", "default"}, []auth.Permission{auth.CapabilityAdmin}},
	} {
		w.grant(name, of.tenants, "", of.permissions...)
		w.until(name, func(status int) bool { return status != http.StatusUnauthorized })
	}
	w.reply("warden", "POST", "/v1/capabilities/"+ids["purse default 2"]+"/revoke", `{"reason":"x"}`).is(t, "revoke", 200)
	for _, test := range []struct {
		who, query string
		want       []string
	}{
		{"warden", "?limit=2", []string{"wallet default 1", "purse default 2", "wallet acme 1", "purse acme 2", "wallet default 3"}},
		{"wallet", "?limit=1", []string{"wallet default 1", "wallet acme 1", "wallet default 3"}},
		{"wallet", "?tenant=acme", []string{"wallet acme 1"}},
		{"purse", "?limit=200", []string{"purse default 2", "purse acme 2"}},
		{"acme-warden", "?limit=50", []string{"wallet acme 1", "purse acme 2"}},
		{"acme-warden", "?tenant=default", nil},
		{"acme-warden", "?tenant=nosuch", nil},
		{"default-wallet", "?limit=50", nil},
		{"two", "?tenant=acme", []string{"wallet acme 1", "purse acme 2"}},
		{"warden", "?holder=agent:bot2", []string{"purse acme 2"}},
		{"warden", "?tenant=default&holder=agent:bot:2", []string{"wallet default 3"}},
		{"warden", "?jkt=" + key1, []string{"wallet default 1", "wallet acme 1", "wallet default 3"}},
		{"warden", "?tenant=acme&jkt=" + key1, []string{"wallet acme 1"}},
		{"warden", "?audience=c", nil},
		{"warden", "?audience=b&state=revoked", []string{"purse default 2"}},
		{"warden", "?state=active&holder=agent:bot", []string{"wallet default 1", "wallet acme 1"}},
	} {
		var want []string
		for _, name := range test.want {
			want = append(want, ids[name])
		}
		got, pages := w.listed(test.who, test.query)
		if slices.Sort(want); !slices.Equal(slices.Sorted(slices.Values(got)), want) || test.query == "?limit=2" && pages < 3 {
			t.Errorf("%s lists %s: got %v in %d pages, want %v", test.who, test.query, got, pages, want)
		}
	}
	for range 3 {
		w.asksFor(http.StatusCreated, nil, "read")
	}
	if got := w.reply("acme-warden", "GET", "/v1/capabilities?tenant=default&limit=1", ""); got.text != `{"items":[],"next":""}` {
		t.Errorf("of another tenant: %s", got.text) // not even a cursor
	}
	w.reply("pep", "GET", "/v1/capabilities", "").is(t, "without a permission", 403, "the permission capability")
	w.reply("two", "GET", "/v1/capabilities", "").is(t, "of two tenants", 400, "the parameter tenant")
	for query, part := range map[string]string{
		"holder=bot": "the parameter holder", "holder=:bot": "the parameter holder", "holder=agent:": "the parameter holder",
		"state=gone": "the parameter state", "limit=0": "the parameter limit", "wait=1s": "there is no parameter wait",
	} {
		w.reply("warden", "GET", "/v1/capabilities?"+query, "").is(t, query, 400, part)
	}
}

// TestCapabilityRevokeMany: those that fit all that is given are revoked, in one tenant, and no call shows one of them.
func TestCapabilityRevokeMany(t *testing.T) {
	t.Parallel()
	w := openWallet(t)
	ids := worldOf(w)
	w.Advance(time.Minute)
	key1 := w.holder.Key().Thumbprint()
	for _, test := range []struct {
		which string
		want  int
	}{
		{`"audience":"c"`, 0},
		{`"holder":{"type":"agent","id":"bot2"}`, 0}, // it is in the other tenant
		{`"holder":{"type":"agent","id":"bot:2"},"jkt":"` + key1 + `","audience":"b"`, 1},
		{`"holder":{"type":"agent","id":"bot:2"}`, 0},
		{`"jkt":"` + key1 + `"`, 1},
		{`"all":true`, 1},
		{`"all":true`, 0},
	} {
		body := `{"tenant_id":"default","reason":"stolen",` + test.which + `}`
		w.reply("warden", "POST", "/v1/capabilities/revoke", body).is(t, test.which, 200, fmt.Sprintf(`{"revoked":%d}`, test.want))
	}
	var revoked []string
	for _, name := range []string{"wallet default 1", "purse default 2", "wallet default 3"} {
		revoked = append(revoked, ids[name])
	}
	if got, _ := w.listed("warden", "?state=revoked"); !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(revoked))) {
		t.Errorf("revoked are %v, want %v", got, revoked)
	}
	g := granted{ID: ids["wallet default 1"], Token: ids["wallet default 1"]}
	w.is("revoked", w.call(g, "b:read"))
	_, text := w.do("auditor", "GET", "/v1/log/export", "")
	has(t, text, `"by":"key:warden","reason":"stolen"`)

	for body, pointer := range map[string]string{
		`{"tenant_id":"default","reason":"x"}`:                                                    "/all",
		`{"tenant_id":"default","reason":"x","all":false}`:                                        "/all",
		`{"tenant_id":"default","reason":"x","all":true,"audience":"b"}`:                          "/all",
		`{"tenant_id":"default","reason":"x","holder":{"type":"agent"}}`:                          "/holder/id",
		`{"tenant_id":"default","reason":"x","holder":{"type":"agent","id":"a","properties":{}}}`: "/holder/properties",
		`{"tenant_id":"default","reason":"x","jkt":""}`:                                           "/jkt",
		`{"tenant_id":"default","all":true}`:                                                      "/reason",
		`{"tenant_id":"default","reason":"x","all":true,"state":"active"}`:                        "/state",
	} {
		w.reply("warden", "POST", "/v1/capabilities/revoke", body).is(t, body, 400, `"pointer":"`+pointer+`"`)
	}
	everything := `{"tenant_id":"%s","reason":"x","all":true}`
	w.grant("acme-warden", []string{"acme"}, "", auth.CapabilityAdmin)
	w.until("acme-warden", func(status int) bool { return status != http.StatusUnauthorized })
	w.reply("wallet", "POST", "/v1/capabilities/revoke", fmt.Sprintf(everything, "acme")).is(t, "who may only ask", 403)
	w.reply("acme-warden", "POST", "/v1/capabilities/revoke", fmt.Sprintf(everything, "default")).is(t, "another tenant", 403)
	w.reply("warden", "POST", "/v1/capabilities/revoke", `{"reason":"x","all":true}`).is(t, "no tenant", 403)
	w.reply("acme-warden", "POST", "/v1/capabilities/revoke", fmt.Sprintf(everything, "acme")).is(t, "its own", 200, `{"revoked":2}`)
}

// onRecord are the lines of the decision log that have some text.
func (w *wallet) onRecord(with string) (lines []string) {
	w.t.Helper()
	_, text := w.do("auditor", "GET", "/v1/log/export", "")
	for line := range strings.SplitSeq(text, "\n") {
		if strings.Contains(line, with) {
			lines = append(lines, line)
		}
	}
	return lines
}

// TestCapabilityValidate: what is checked is not spent, and nothing of it is on record.
func TestCapabilityValidate(t *testing.T) {
	t.Parallel()
	w := openWallet(t)
	w.Advance(time.Minute)
	g := w.asksFor(http.StatusCreated, func(a *capability.Ask) { a.MaxUses = 1 }, "read")
	before := len(w.onRecord(`"id":`))
	s := w.call(g, "b:read")
	body := s.body(t)
	validated := func(name, body string, parts ...string) {
		t.Helper()
		w.reply("pep", "POST", "/v1/capabilities/validate", body).is(t, name, 200, parts...)
	}
	whole := fmt.Sprintf(`{"active":true,"id":%q,"uses_left":1,"expires":%q}`, g.ID, g.Expires.Format(time.RFC3339))
	for range 3 {
		validated("a good one", body, whole)
	}
	stale := w.call(g, "b:read")
	stale.claim.IssuedAt = w.Now().Add(-61 * time.Second)
	for name, spoilt := range map[string]string{
		"proof_stale":         stale.body(t),
		"proof_wrong_call":    strings.Replace(body, `"staging"`, `"production"`, 1),
		"tool_not_covered":    strings.Replace(body, `"b:read"`, `"b:write"`, 1),
		"wrong_holder":        strings.Replace(body, `"bot"`, `"bot2"`, 1),
		"bad_signature":       strings.Replace(body, `"default"`, `"acme"`, 1),
		"proof_invalid":       strings.Replace(body, `"proof":"`, `"proof":"x`, 1),
		"argument_unprovable": strings.Replace(body, `{"target":"staging","n":7}`, `"rm"`, 1),
	} {
		validated(name, spoilt, `"active":false`, `"reason":"`+name+`"`, `"next_action":"`)
	}
	if after := len(w.onRecord(`"id":`)); after != before {
		t.Errorf("of what was checked %d records were made", after-before)
	}
	for name, of := range map[string]struct {
		who, body string
		status    int
		part      string
	}{
		"none shown":       {"pep", tool("b:read", ""), 400, `"pointer":"/context/capability"`},
		"half of one":      {"pep", strings.Replace(body, `"capability":{`, `"capability":{"x":1,`, 1), 400, `"pointer":"/context/capability/x"`},
		"another tenant":   {"pep", strings.Replace(body, `"default"`, `"nosuch"`, 1), 403, "tenant_id"},
		"may not decide":   {"warden", body, 403, "the permission decide"},
		"no JSON":          {"pep", "{", 400, ""},
		"not of the shape": {"pep", "{}", 400, `"pointer"`},
	} {
		w.reply(of.who, "POST", "/v1/capabilities/validate", of.body).is(t, name, of.status, of.part)
	}

	w.is("allow", shot{tenant: s.tenant, agent: s.agent, tool: s.tool, arguments: s.arguments, token: s.token, by: s.by, claim: s.claim})
	w.reply("wallet", "POST", "/v1/authorize", body).is(t, "the proof again", 200, `"allow":false`)
	validated("one without a use", w.call(g, "b:read").body(t), `{"active":false,"reason":"used_up","next_action":"request"}`)
	free := w.asksFor(http.StatusCreated, nil, "read")
	validated("one that is not counted", w.call(free, "b:read").body(t), fmt.Sprintf(`{"active":true,"id":%q,"expires":`, free.ID))
	w.reply("warden", "POST", "/v1/capabilities/"+free.ID+"/revoke", `{"reason":"x"}`).is(t, "revoke", 200)
	validated("a revoked one", w.call(free, "b:read").body(t), `"active":false`, `"reason":"revoked"`)
}

// TestCapabilityFlood: requests count before they are decided, whatever the answers are. One too many is on no record, and
// asks nobody.
func TestCapabilityFlood(t *testing.T) {
	t.Parallel()
	w := openWallet(t, func(c *server.Config) { c.Capabilities.NewPerMinutePerHolder = 3 })
	w.asksFor(http.StatusOK, nil, "secret")
	w.asksFor(http.StatusOK, nil, "secret")
	w.asksFor(http.StatusAccepted, nil, "danger")
	before := len(w.onRecord(`"id":`))
	for _, tool := range []string{"secret", "danger2", "read"} {
		w.asksFor(http.StatusTooManyRequests, nil, tool)
	}
	if after := len(w.onRecord(`"id":`)); after != before {
		t.Errorf("of what was refused %d records were made", after-before)
	}
	w.reply("mia", "GET", "/v1/approvals", "").is(t, "people are asked once", 200, "danger")
	if _, text := w.do("mia", "GET", "/v1/approvals", ""); strings.Contains(text, "danger2") {
		t.Errorf("people are asked: %s", text)
	}
	a := capability.Ask{Tenant: "default", Holder: evaluation.Ref{Type: "agent", ID: "bot"}, Audience: "b", Tools: []string{"read"}}
	must(t, w.holder.Request(&a, issuer, w.Now()))
	body, err := json.Marshal(a)
	must(t, err)
	got := w.Post("/v1/capabilities", string(body), "Authorization", w.key["wallet"])
	if got.Status != http.StatusTooManyRequests || got.Header.Get("Retry-After") != "20" {
		t.Errorf("got %d, to be tried again after %q", got.Status, got.Header.Get("Retry-After"))
	}
	w.asksFor(http.StatusCreated, func(a *capability.Ask) { a.Holder.ID = "bot2" }, "read")
	w.Advance(20 * time.Second)
	if got := w.Post("/v1/capabilities", string(body), "Authorization", w.key["wallet"]); got.Status != http.StatusCreated {
		t.Errorf("the proof was spent by a refusal: %d %s", got.Status, got.Body)
	}
}

// renews asks to renew a capability of agent bot.
func (w *wallet) renews(g granted, want int, change func(*capability.Ask), tools ...string) granted {
	w.t.Helper()
	w.at = "/v1/capabilities/" + g.ID + "/renew"
	defer func() { w.at = "" }()
	return w.asksFor(want, change, tools...)
}

// TestCapabilityRenew: a renewed capability has the same id, other times, and the uses that it had. An older token of it is
// worth no more than either.
func TestCapabilityRenew(t *testing.T) {
	t.Parallel()
	w := openWallet(t)
	w.Advance(time.Minute)
	uses := func(n int) func(*capability.Ask) { return func(a *capability.Ask) { a.MaxUses = n } }

	old := w.asksFor(http.StatusCreated, nil, "read")
	w.Advance(30 * time.Minute)
	longer := w.renews(old, http.StatusCreated, nil, "read")
	if longer.ID != old.ID || longer.Token == old.Token || !longer.Expires.Equal(old.Expires.Add(30*time.Minute)) {
		t.Errorf("it was %+v, and is %+v", old, longer)
	}
	w.is("allow", w.call(longer, "b:read"))
	w.is("allow", w.call(old, "b:read"))
	w.Advance(30 * time.Minute)
	w.is("expired", w.call(old, "b:read"))
	w.reply("pep", "POST", "/v1/capabilities/validate", w.call(old, "b:read").body(t)).is(t, "the old text", 200, `"active":false,"reason":"expired"`)
	w.is("allow", w.call(longer, "b:read"))
	byID := longer
	byID.Token = longer.ID
	w.is("allow", w.call(byID, "b:read"))

	old = w.asksFor(http.StatusCreated, nil, "read") // which is not counted
	counted := w.renews(old, http.StatusCreated, uses(1), "read")
	w.is("allow", w.call(old, "b:read"))
	w.is("used_up", w.call(old, "b:read"))
	w.is("used_up", w.call(counted, "b:read"))
	w.renews(old, http.StatusConflict, uses(1), "read")

	old = w.asksFor(http.StatusCreated, uses(3), "read")
	w.is("allow", w.call(old, "b:read"))
	for _, n := range []int{0, 1, 4} {
		has(t, w.renews(old, http.StatusBadRequest, uses(n), "read").text, `"pointer":"/max_uses"`)
	}
	w.renews(old, http.StatusCreated, uses(2), "read")
	w.is("allow", w.call(old, "b:read"))
	w.is("used_up", w.call(old, "b:read"))

	old = w.asksFor(http.StatusCreated, nil, "read")
	w.renews(old, http.StatusCreated, func(a *capability.Ask) { a.Duration = time.Minute }, "read")
	w.Advance(time.Minute)
	w.is("expired", w.call(old, "b:read"))

	old = w.asksFor(http.StatusCreated, nil, "read")
	w.renews(old, http.StatusCreated, func(a *capability.Ask) {
		a.Duration, a.ValidFrom, a.ValidUntil = 0, w.Now().Add(time.Hour), w.Now().Add(2*time.Hour)
	}, "read")
	w.is("not_yet_valid", w.call(old, "b:read"))

	short := w.asksFor(http.StatusCreated, nil, "short") // policies grant an hour of it
	denied := w.renews(short, http.StatusOK, func(a *capability.Ask) { a.Duration = 2 * time.Hour }, "short")
	if denied.Granted || !slices.Equal(denied.Refused, []string{"b:short"}) {
		t.Errorf("%+v", denied)
	}
	w.reply("wallet", "GET", "/v1/capabilities/"+short.ID, "").is(t, "it is what it was", 200, `"state":"active"`, short.Expires.Format(time.RFC3339))

	w.Advance(time.Minute)
	for n := range 8 {
		w.renews(short, http.StatusCreated, nil, "short")
		if w.Advance(time.Second); n == 0 {
			w.reply("warden", "POST", "/v1/capabilities/"+short.ID+"/return", `{"reason":"x"}`).is(t, "return", 403)
		}
	}
	has(t, w.renews(short, http.StatusConflict, nil, "short").text, "renewed 8 times")
	if n := len(w.onRecord(`"event":"renewed"`)); n != 13 {
		t.Errorf("on record are %d renewals", n)
	}
	w.reply("wallet", "POST", "/v1/capabilities/"+longer.ID+"/return", `{"reason":"x"}`).is(t, "return", 200)
	has(t, w.renews(longer, http.StatusConflict, nil, "read").text, "returned")
}

// TestCapabilityRenewsTheSame: what a capability is for cannot be changed by a renewal, and it is renewed by callers that see it.
func TestCapabilityRenewsTheSame(t *testing.T) {
	t.Parallel()
	w := openWallet(t)
	w.welcome("purse", "", auth.Capability)
	w.welcome("issuer", "", auth.Capability, auth.CapabilityAdmin)
	constrained := func(a *capability.Ask) {
		staging, err := capability.ParseConstraint(textValue(t, "staging"))
		must(t, err)
		a.Arguments = capability.Arguments{"target": staging}
	}
	g := w.asksFor(http.StatusCreated, constrained, "read", "write")
	for pointer, change := range map[string]func(*capability.Ask){
		"/holder":    func(a *capability.Ask) { a.Holder.ID = "bot2" },
		"/audience":  func(a *capability.Ask) { a.Audience = "b:b" },
		"/tools":     func(a *capability.Ask) { a.Tools = []string{"read", "write", "admin"} },
		"/arguments": func(a *capability.Ask) { a.Arguments = nil },
	} {
		has(t, w.renews(g, http.StatusBadRequest, func(a *capability.Ask) { constrained(a); change(a) }, "read", "write").text, `"pointer":"`+pointer+`"`)
	}
	w.holder = newHolder(t, 2)
	has(t, w.renews(g, http.StatusBadRequest, constrained, "read", "write").text, `"pointer":"/key"`)
	w.holder = newHolder(t, 1)
	w.renews(g, http.StatusNotFound, func(a *capability.Ask) { constrained(a); a.Tenant = "acme" }, "read", "write")
	w.renews(granted{ID: "cap_0199f3a27c1e7d3a8f00c3b2a1908f7e"}, http.StatusNotFound, constrained, "read", "write")
	w.as = "purse"
	w.renews(g, http.StatusNotFound, constrained, "read", "write")
	w.as = "warden"
	w.renews(g, http.StatusForbidden, constrained, "read", "write")
	w.as, w.away = "issuer", true
	unproved := w.renews(g, http.StatusBadRequest, constrained, "read", "write").text
	has(t, unproved, `"pointer":"/proof"`, `Sign the request with its key, and send that as proof"`)
	w.as, w.away = "", false
	w.renews(g, http.StatusCreated, constrained, "read", "write")
}

// TestCapabilityRenewedByPeople: people are asked anew, and their approval renews once.
func TestCapabilityRenewedByPeople(t *testing.T) {
	t.Parallel()
	w := openWallet(t)
	approved := func(waits granted) func(*capability.Ask) {
		w.says("mia", waits.Approval.ID, "decision", `{"decision":"approve","reason":"yes"}`, http.StatusOK)
		return func(a *capability.Ask) { a.ApprovalID = waits.Approval.ID }
	}
	first := approved(w.asksFor(http.StatusAccepted, nil, "danger"))
	g := w.asksFor(http.StatusCreated, first, "danger")
	w.Advance(time.Minute)
	has(t, w.renews(g, http.StatusAccepted, first, "danger").text, `"status":"used_up"`) // what has granted it renews nothing
	again := approved(w.renews(g, http.StatusAccepted, nil, "danger"))
	renewed := w.renews(g, http.StatusCreated, again, "danger")
	if !renewed.Expires.Equal(g.Expires.Add(time.Minute)) {
		t.Errorf("it was %+v, and is %+v", g, renewed)
	}
	w.Advance(time.Minute)
	if lost := w.renews(g, http.StatusCreated, again, "danger"); lost.Token != renewed.Token {
		t.Errorf("whose answer was lost gets %+v, and got %+v", lost, renewed)
	}
	if n := len(w.onRecord(`"event":"renewed"`)); n != 1 {
		t.Errorf("on record are %d renewals", n)
	}
}

// TestCapabilityUnproved: an admin has a capability granted to a holder that is away, for longer than others are. The record
// and people say that there was no proof of the key.
func TestCapabilityUnproved(t *testing.T) {
	t.Parallel()
	w := openWallet(t)
	w.welcome("issuer", "", auth.Capability, auth.CapabilityAdmin)
	const days = 24 * time.Hour
	long := func(a *capability.Ask) { a.Duration = 100 * days }
	w.away = true
	has(t, w.asksFor(http.StatusBadRequest, long, "read").text, `"pointer":"/proof"`, "proof_missing: ", "send that as proof; only a credential that has the permission capability.admin")
	w.as = "warden"
	w.asksFor(http.StatusForbidden, long, "read")
	w.as = "issuer"
	w.asksFor(http.StatusOK, long, "secret")
	g := w.asksFor(http.StatusCreated, long, "read")
	if !g.Expires.Equal(w.Now().Add(90*days)) || !slices.Equal(g.Narrowed, []string{"duration"}) {
		t.Errorf("without a proof: %+v", g)
	}
	until := w.Now().Add(50 * days) // so people read the same of both requests
	far := func(a *capability.Ask) { a.Duration, a.ValidUntil = 0, until }
	waits := w.asksFor(http.StatusAccepted, far, "danger")
	_, text := w.do("mia", "GET", "/v1/approvals/"+waits.Approval.ID, "")
	has(t, text, "bot may call danger of b until "+until.Format(time.RFC3339), "of which no proof was shown")
	w.says("mia", waits.Approval.ID, "decision", `{"decision":"approve","reason":"yes"}`, http.StatusOK)
	presents := func(a *capability.Ask) { far(a); a.ApprovalID = waits.Approval.ID }

	w.away = false
	if other := w.asksFor(http.StatusAccepted, presents, "danger"); other.Approval.ID == waits.Approval.ID {
		t.Error("an approval of a request without a proof is one of a request with it")
	}
	proved := w.asksFor(http.StatusCreated, long, "read")
	if !proved.Expires.Equal(w.Now().Add(days)) {
		t.Errorf("with a proof: %+v", proved)
	}
	w.away = true
	danger := w.asksFor(http.StatusCreated, presents, "danger")
	w.away = false
	for _, test := range []struct {
		of    granted
		shown bool
	}{{g, false}, {danger, false}, {proved, true}} {
		for _, line := range w.onRecord(`"event":"granted"`) {
			if strings.Contains(line, test.of.ID) && strings.Contains(line, `"unproved":true`) == test.shown {
				t.Errorf("a proof was shown: %v, and on record is %s", test.shown, line)
			}
		}
	}
	w.Advance(89 * days)
	w.is("allow", w.call(g, "b:read"))
	w.holder = newHolder(t, 2)
	w.is("proof_invalid", w.call(g, "b:read"))
}

// TestCapabilityMetadata: what the server says of itself says where to ask for a capability, to those who can.
func TestCapabilityMetadata(t *testing.T) {
	t.Parallel()
	w := openWallet(t)
	for _, point := range []string{"", "/tenants/acme"} {
		w.reply("", "GET", metadataPath+point, "").is(t, point, 200,
			`"capability_endpoint":"`+issuer+`/v1/capabilities"`, `"capability_policies":true`, `,"urn:policy-service:capability:tool-capability"]`)
	}
}
