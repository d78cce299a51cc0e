package console_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/auth/keys"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/clock"
)

// pagesBundle: whatever an agent does with a tool, a lead has to agree; what is done with "big" needs two of them.
const pagesBundle = `
-- tools.cedar --
@id("production-who") @obligation("ask-lead")
permit (principal, action, resource is Tool) unless { resource == Tool::"big" };
@id("production-big") @obligation("ask-two")
permit (principal, action, resource == Tool::"big");
@id("leads-decide")
permit (principal is User, action == Action::"approval.decide", resource is Approval)
when { [User::"alice", User::"frank", User::"mia"].contains(principal) };
-- obligations.yaml --
ask-lead: {type: approval_required, properties: {template: team-lead, timeout: 4h, valid_for: 15m, rounds: 3, delegable: true,
  message: "${principal.id} wants to use ${resource.id}."}}
ask-two: {type: approval_required, properties: {template: production, timeout: 4h, valid_for: 15m, quorum: 2,
  message: "${principal.id} wants to use ${resource.id}."}}
-- bundle.yaml --
types: {user: User, agent: Agent, tool: Tool}
`

// pages is a server with a console, where people look at pages.
type pages struct {
	*pdptest.Server
	*clock.Clock
	t      testing.TB
	keys   *keys.Keys
	secret map[string]string
}

func openPages(t *testing.T, more ...string) *pages {
	t.Helper()
	return openPagesWith(t, func(*pages, *server.Config) {}, more...)
}

// openPagesWith is openPages of a server that is prepared otherwise.
func openPagesWith(t testing.TB, prepare func(*pages, *server.Config), more ...string) *pages {
	t.Helper()
	p := &pages{t: t, secret: map[string]string{}, Clock: clock.At(pdptest.Now)}
	data := t.TempDir()
	var err error
	p.keys, err = keys.Open(data)
	p.must(err)
	p.key("gateway", auth.Principal{}, auth.Decide)
	p.key("operator", auth.Principal{}, auth.LogAdmin)
	p.key("asker", auth.Principal{}, auth.Decide, auth.Request)
	for _, who := range []string{"alice", "frank", "mia", "eve", "lena"} {
		p.key(who, auth.Principal{Type: "User", ID: who}, auth.Approve)
	}
	p.Server = pdptest.Start(t, pdptest.Txtar(pagesBundle+strings.Join(more, "")), func(c *server.Config) {
		c.Data, c.Program.PDP.Now, c.Program.PDP.NewID = data, p.Now, nil
		c.Console = &server.ConsoleConfig{
			PublicURL: "http://localhost/pdp/console", Session: server.SessionConfig{Max: 8 * time.Hour, Idle: 30 * time.Minute},
		}
		prepare(p, c)
	})
	return p
}

func (p *pages) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *pages) key(name string, principal auth.Principal, permissions ...auth.Permission) {
	p.t.Helper()
	secret, err := p.keys.Add(keys.Spec{Name: name, Principal: principal, Grant: auth.Grant{Tenants: []string{"*"}, Permissions: permissions}})
	p.must(err)
	p.secret[name] = secret
}

// asks has an agent ask for a tool, and returns the id of what waits then.
func (p *pages) asks(tool, context string) (id string) {
	p.t.Helper()
	body := fmt.Sprintf(`{"tenant_id":"default","actor":{"actor_id":"agent-release","actor_type":"agent"},
		"action":"tool.invoke","resource":{"type":"tool","id":%q},"context":%s}`, tool, context)
	return p.filed(body)
}

func (p *pages) filed(body string) string {
	p.t.Helper()
	got := p.Post("/v1/authorize", body, "Authorization", "Bearer "+p.secret["gateway"])
	var told struct {
		Approval struct {
			ID     string `json:"id"`
			Status string `json:"status"`
		} `json:"approval"`
	}
	p.must(json.Unmarshal([]byte(got.Body), &told))
	if told.Approval.Status != "pending" {
		p.t.Fatalf("%d %s", got.Status, got.Body)
	}
	return told.Approval.ID
}

// person is somebody with a browser of their own.
type person struct {
	*pages
	client http.Client
}

func (p *pages) logIn(who string) *person {
	p.t.Helper()
	jar, err := cookiejar.New(nil)
	p.must(err)
	one := &person{p, http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	got := one.post("/console/login", url.Values{"key": {p.secret[who]}})
	if got.Status != http.StatusSeeOther {
		p.t.Fatalf("the login of %s: %d %s", who, got.Status, got.Body)
	}
	return one
}

func (p *person) do(method, path, body string) pdptest.Response {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), method, p.URL+strings.TrimPrefix(path, "/pdp"), strings.NewReader(body))
	p.must(err)
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer, err := p.client.Do(r)
	p.must(err)
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	p.must(err)
	return pdptest.Response{Status: answer.StatusCode, Header: answer.Header, Body: string(text)}
}

func (p *person) get(path string) pdptest.Response {
	p.t.Helper()
	return p.do(http.MethodGet, path, "")
}

func (p *person) post(path string, form url.Values) pdptest.Response {
	p.t.Helper()
	return p.do(http.MethodPost, path, form.Encode())
}

// page is a page that must be there.
func (p *person) page(path string) string {
	p.t.Helper()
	got := p.get(path)
	if got.Status != http.StatusOK {
		p.t.Fatalf("%s: %d %s", path, got.Status, got.Body)
	}
	return got.Body
}

var hiddenFields = regexp.MustCompile(`<form method="post" action="([^"]*)"[^>]*>\s*<input type="hidden" name="token" value="([^"]*)"><input type="hidden" name="version" value="([^"]*)">(?:<input type="hidden" name="shown" value="([^"]*)">)?`)

// form is a form of a page by the end of its path, with the fields that nobody sees.
func (p *person) form(body, end string) (path string, fields url.Values) {
	p.t.Helper()
	for _, m := range hiddenFields.FindAllStringSubmatch(body, -1) {
		if strings.HasSuffix(m[1], end) {
			return m[1], url.Values{"token": {m[2]}, "version": {m[3]}, "shown": {m[4]}}
		}
	}
	p.t.Fatalf("there is no form %s in\n%s", end, body)
	return "", nil
}

// says sends the form of a page as a person would.
func (p *person) says(body, end string, fields ...string) pdptest.Response {
	p.t.Helper()
	path, form := p.form(body, end)
	for n := 0; n < len(fields); n += 2 {
		form.Set(fields[n], fields[n+1])
	}
	return p.post(path, form)
}

// plain is what a page says, without elements and with one space where there were several.
func plain(html string) string {
	_, html, _ = strings.Cut(html, "<main")
	text := regexp.MustCompile(`<[^>]*>`).ReplaceAllString(html, " ")
	text = strings.NewReplacer("&#34;", `"`, "&lt;", "<", "&gt;", ">", "&amp;", "&", "&#39;", "'").Replace(text)
	return strings.Join(strings.Fields(text), " ")
}

func has(t testing.TB, text string, want ...string) {
	t.Helper()
	for _, part := range want {
		if !strings.Contains(text, part) {
			t.Errorf("there is no %q in\n%s", part, text)
		}
	}
}

func hasNot(t testing.TB, text string, never ...string) {
	t.Helper()
	for _, part := range never {
		if strings.Contains(text, part) {
			t.Errorf("there is %q in\n%s", part, text)
		}
	}
}

const push = `{"arguments":{"branch":"main","repository":"shop"},"justification":"Release 1.4"}`

// A person approves in two requests, and the page says what it says until then.
func TestPageOfRequest(t *testing.T) {
	t.Parallel()
	p := openPages(t)
	id := p.asks("github.push_code", push)
	p.Advance(19 * time.Minute)
	alice := p.logIn("alice")
	list := alice.page("/console/approvals")
	has(t, plain(list), "Mine to decide 1 Said by me Done", "agent/agent-release tool.invoke tool/github.push_code",
		"agent-release wants to use github.push_code. 19 min ago 3 h 41 min left approvals: 0 of 1 default · team-lead")
	has(t, list, `href="/pdp/console/approvals/`+id+`" data-row`, `<span class="badge" data-badge>`)

	body := alice.page("/console/approvals/" + id)
	has(t, plain(body), "Waits for you 3 h 41 min left 0 of 1 approvals default · team-lead",
		"agent-release wants to use github.push_code. (written by the policy, which may quote the request)",
		"Who agent/agent-release through key:gateway",
		"Does tool.invoke with tool/github.push_code",
		`Arguments Name Value branch " main " repository " shop "`,
		`Says " Release 1.4 " — written by whoever asks —`,
		"Binds exactly this, once, and up to 3 follow-up questions within 15 min, for 15 min after it is approved", "Why asked ask-lead ( obligations.yaml:1:1 ), from production-who ( tools.cedar:1:1 )")
	has(t, body, "<title>(1) Request "+id, `<button name="decision" value="approve"`, `<button name="decision" value="deny"`, `<button name="decision" value="delegate">`)
	hasNot(t, plain(body), "Revoke", "You cannot", "The last time")

	got := alice.says(body, "/decision", "decision", "approve", "reason", "as agreed")
	if got.Status != http.StatusSeeOther || got.Header.Get("Location") != "/pdp/console/approvals/"+id {
		t.Fatalf("%d %v %s", got.Status, got.Header, got.Body)
	}
	body = alice.page(got.Header.Get("Location"))
	has(t, plain(body), "Approved 15 min left 1 of 1 approvals", `User::"alice" approved`, "by console: as agreed", "Revoke")
	hasNot(t, body, `value="approve"`, `value="deny"`)

	got = alice.says(body, "/revoke", "reason", "")
	body = alice.page(got.Header.Get("Location"))
	has(t, plain(body), "Revoked 1 of 1 approvals")
	hasNot(t, body, "<button name", `/revoke"`)
}
