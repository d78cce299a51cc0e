package server_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation/capability"
	"policy-service/pdp/server/auth"
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
