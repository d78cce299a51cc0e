package server_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/pdp"
	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/auth/keys"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/clock"
	"policy-service/pdp/pdptest/night"
)

// counter is where programs ask and people answer: a server with a PEP or two, some
// people, and a clock that goes when it is told to.
type counter struct {
	*pdptest.Server
	*clock.Clock
	t    testing.TB
	data string
	key  map[string]string
}

const approvalPolicies = `
@id("ask") @obligation("ask") permit(principal, action == Action::"tool.invoke", resource in group::"guarded");
@id("two") @obligation("two") permit(principal, action == Action::"tool.invoke", resource in group::"double");
@id("thrice") @obligation("thrice") permit(principal, action == Action::"tool.invoke", resource in group::"thrice");
@id("plain") @obligation("approval_required") permit(principal, action == Action::"tool.invoke", resource in group::"plain");
@id("blocked") forbid(principal, action == Action::"tool.invoke", resource) when { context has arguments.blocked && context.arguments.blocked };
@id("leads") permit(principal in team::"leads", action == Action::"approval.decide", resource is Approval) when { resource.template != "nobody" };
`

const approvalObligations = `
ask: {type: approval_required, properties: {template: owner, message: "${principal.id} wants ${resource.id}", timeout: 10m, valid_for: 5m, delegable: true}}
two: {type: approval_required, properties: {template: pair, quorum: 2}}
thrice: {type: approval_required, properties: {template: owner, uses: 3}}
`

const approvalEntities = `[
{"uid":{"type":"tool","id":"push"},"attrs":{},"parents":[{"type":"group","id":"guarded"}]},
{"uid":{"type":"tool","id":"stop"},"attrs":{},"parents":[{"type":"group","id":"double"}]},
{"uid":{"type":"tool","id":"list"},"attrs":{},"parents":[{"type":"group","id":"thrice"}]},
{"uid":{"type":"tool","id":"old"},"attrs":{},"parents":[{"type":"group","id":"plain"}]},
{"uid":{"type":"user","id":"mia"},"attrs":{"identities":[{"__entity":{"type":"user","id":"mia.admin"}}]},"parents":[{"type":"team","id":"leads"}]},
{"uid":{"type":"user","id":"mia.admin"},"attrs":{},"parents":[{"type":"team","id":"leads"}]},
{"uid":{"type":"user","id":"noah"},"attrs":{},"parents":[{"type":"team","id":"leads"}]},
{"uid":{"type":"user","id":"zoe"},"attrs":{},"parents":[{"type":"team","id":"leads"}]},
{"uid":{"type":"user","id":"eve"},"attrs":{},"parents":[]},
{"uid":{"type":"agent","id":"helper"},"attrs":{"identities":[{"__entity":{"type":"user","id":"noah"}}]},"parents":[]}]`

// approvalFiles is the bundle, with what is to be added to its files.
func approvalFiles(more ...string) map[string]string {
	files := map[string]string{
		"a.cedar": approvalPolicies, "obligations.yaml": approvalObligations, "entities/e.json": approvalEntities, "bundle.yaml": "volatile: [trace]\n",
		"tenants/acme/a.cedar": `@id("acme") permit(principal is agent, action == Action::"read", resource);`,
	}
	for n := 0; n+1 < len(more); n += 2 {
		files[more[n]] += more[n+1]
	}
	return files
}

func openCounter(t testing.TB, options ...pdptest.Option) *counter {
	t.Helper()
	return openCounterOn(t, pdptest.Bundle(approvalFiles()), options...)
}

func openCounterOn(t testing.TB, source pdp.Source, options ...pdptest.Option) *counter {
	t.Helper()
	c := &counter{t: t, data: t.TempDir(), Clock: clock.At(pdptest.Now)}
	c.key = counterKeys.into(t, c.data, func(data string) map[string]string {
		c := &counter{t: t, data: data, key: map[string]string{}}
		all := []string{"*"}
		c.grant("pep", all, "", auth.Decide)
		c.grant("other-pep", all, "", auth.Decide)
		c.grant("explainer", all, "", auth.Decide, auth.Explain)
		c.grant("explaining-asker", all, "", auth.Decide, auth.Request, auth.Explain)
		c.grant("gateway", all, "", auth.Decide, auth.Search, auth.Request, auth.Explain)
		c.grant("auditor", all, "", auth.LogRead)
		c.grant("operator", all, "", auth.LogAdmin, auth.LogRead)
		c.grant("searcher", all, "", auth.Search)
		c.grant("asker", all, "", auth.Decide, auth.Request)
		c.grant("other-asker", all, "", auth.Decide, auth.Request)
		c.grant("acme-asker", []string{"acme"}, "", auth.Decide, auth.Request)
		for _, person := range []string{"mia", "mia.admin", "noah", "zoe", "eve"} {
			c.grant(person, all, `user::"`+person+`"`, auth.Approve)
		}
		c.grant("acme-lead", []string{"acme"}, `user::"zoe"`, auth.Approve)
		c.grant("helper", all, `agent::"helper"`, auth.Approve, auth.Decide)
		c.grant("both", all, `user::"zoe"`, auth.Approve, auth.Decide, auth.Request)
		return c.key
	})
	c.open(source, options...)
	return c
}

// keyring has a file of keys, made once: each key that is added is a file written to the disk.
type keyring struct {
	once  sync.Once
	files files
	key   map[string]string
}

// into puts the keys into a data directory, and returns them by their names. The first time add makes them.
func (k *keyring) into(t testing.TB, data string, add func(data string) map[string]string) map[string]string {
	t.Helper()
	k.once.Do(func() {
		dir := t.TempDir()
		k.key = add(dir)
		made, err := readFiles(dir)
		must(t, err)
		k.files = made
	})
	for name, content := range k.files {
		must(t, os.WriteFile(filepath.Join(data, name), content, 0o600))
	}
	return maps.Clone(k.key)
}

var counterKeys keyring

func (c *counter) grant(name string, tenants []string, principal string, permissions ...auth.Permission) {
	c.t.Helper()
	apiKeys, err := keys.Open(c.data)
	must(c.t, err)
	spec := keys.Spec{Name: name, Grant: auth.Grant{Tenants: tenants, Permissions: permissions}}
	if principal != "" {
		spec.Principal, err = auth.ParsePrincipal(principal)
		must(c.t, err)
	}
	key, err := apiKeys.Add(spec)
	must(c.t, err)
	c.key[name] = "Bearer " + key
}

func (c *counter) open(source pdp.Source, options ...pdptest.Option) {
	c.t.Helper()
	own := func(config *server.Config) {
		config.Data, config.Program.PDP.Now, config.Program.PDP.NewID = c.data, c.Now, nil
		server.TuneElapsed(config, c.Elapsed)
	}
	c.Server = pdptest.Start(c.t, source, append([]pdptest.Option{own}, options...)...)
	c.Client = describedClient(c.t)
}

// ownClient is a client with connections of its own, for many requests at once.
func ownClient() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
}

// describedClient is a client whose exchanges must be as the OpenAPI document says.
func describedClient(t testing.TB) *http.Client {
	own := ownClient()
	return &http.Client{Transport: describing{pdptest.NewOpenAPI(t).RoundTrip(own.Transport), own}}
}

type describing struct {
	http.RoundTripper
	own *http.Client
}

// CloseIdleConnections is for a stop, which waits for connections that are left.
func (d describing) CloseIdleConnections() { d.own.CloseIdleConnections() }

// comes waits for what comes of time that has passed, which is worked off at once.
func (c *counter) comes(what string, so func() bool) {
	c.t.Helper()
	stop := c.WorkOff()
	defer stop()
	eventually(c.t, what, so)
}

func (c *counter) do(who, method, path, body string, header ...string) (int, string) {
	c.t.Helper()
	status, text, _ := c.sent(who, method, path, body, header...)
	return status, text
}

// reply is the answer to a request.
type reply struct {
	status int
	text   string
}

func (c *counter) reply(who, method, path, body string, header ...string) (r reply) {
	c.t.Helper()
	r.status, r.text = c.do(who, method, path, body, header...)
	return r
}

// is checks the status, and that the text has some parts.
func (r reply) is(t *testing.T, name string, status int, parts ...string) {
	t.Helper()
	if r.status != status {
		t.Errorf("%s: got %d %s, want %d", name, r.status, r.text, status)
	}
	has(t, r.text, parts...)
}

// has checks that a text has some parts.
func has(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in %s", part, text)
		}
	}
}

// sent is do with the id of the decision, if the answer is one.
func (c *counter) sent(who, method, path, body string, header ...string) (status int, text, decision string) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.URL+path, strings.NewReader(body))
	must(c.t, err)
	r.Header.Set("Authorization", c.key[who])
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for n := 0; n+1 < len(header); n += 2 {
		r.Header.Set(header[n], header[n+1])
	}
	answer, err := c.Client.Do(r)
	must(c.t, err)
	defer func() { _ = answer.Body.Close() }()
	read, err := io.ReadAll(answer.Body)
	must(c.t, err)
	return answer.StatusCode, string(read), answer.Header.Get("X-Decision-Id")
}

// told is the native answer.
type told struct {
	Allow       bool            `json:"allow"`
	Reason      string          `json:"reason"`
	Obligations map[string]bool `json:"obligations"`
	Approval    *struct {
		ID         string    `json:"id"`
		Status     string    `json:"status"`
		ExpiresAt  time.Time `json:"expires_at"`
		StatusURL  string    `json:"status_url"`
		RetryAfter int       `json:"retry_after"`
	} `json:"approval"`
}

// may reports whether a PEP that does what it is told goes ahead.
func (a told) may() bool { return a.Allow && len(a.Obligations) == 0 }

// passes checks that the call goes through, and isStopped that it does not.
func (a told) passes(t *testing.T, name string) {
	t.Helper()
	if !a.may() {
		t.Errorf("%s: got %+v", name, a)
	}
}

func (a told) isStopped(t *testing.T, name string) {
	t.Helper()
	if a.may() {
		t.Errorf("%s: it goes through: %+v", name, a)
	}
}

func (c *counter) asks(who, body string, header ...string) (a told) {
	c.t.Helper()
	status, text := c.do(who, "POST", "/v1/authorize", body, header...)
	if status != http.StatusOK {
		c.t.Errorf("%s\ngot %d %s", body, status, text)
		return a
	}
	must(c.t, json.Unmarshal([]byte(text), &a))
	return a
}

// tool is a question about a tool, with members of its context.
func tool(id, context string) string {
	return fmt.Sprintf(`{"tenant_id":"default","actor":{"actor_id":"bot","actor_type":"agent"},"action":"tool.invoke","resource":{"type":"tool","id":%q},"context":{%s}}`, id, context)
}

const (
	push  = `"arguments":{"branch":"main","n":7}`
	again = push + `,"justification":"approved"`
)

type shown struct {
	ID        string `json:"id"`
	Status    string `json:"status"`
	Version   int    `json:"version"`
	Message   string `json:"message"`
	Approvals int    `json:"approvals"`
	Used      int    `json:"used"`
	Continued int    `json:"continued"`
	Said      []struct {
		By string `json:"by"`
	} `json:"said"`
}

// says has somebody do something about a request, and wants a status.
func (c *counter) says(who, id, what, body string, want int) (s shown) {
	c.t.Helper()
	status, text := c.do(who, "POST", "/v1/approvals/"+id+"/"+what, body)
	if status != want {
		c.t.Errorf("%s says %s %s: got %d %s, want %d", who, what, body, status, text, want)
	}
	if status == http.StatusOK {
		must(c.t, json.Unmarshal([]byte(text), &s))
	}
	return s
}

func (c *counter) sees(who, id string) (s shown, status int) {
	c.t.Helper()
	status, text := c.do(who, "GET", "/v1/approvals/"+id, "")
	if status == http.StatusOK {
		must(c.t, json.Unmarshal([]byte(text), &s))
	}
	return s, status
}

// stands checks the status of the approval that is asked for, and that the call does not go through.
func (a told) stands(t *testing.T, name, status string) {
	t.Helper()
	if a.may() || a.Approval == nil || a.Approval.Status != status {
		t.Errorf("%s: got %+v, want %s", name, a, status)
	}
}

// is checks the status of an approval request.
func (s shown) is(t *testing.T, name, status string) {
	t.Helper()
	if s.Status != status {
		t.Errorf("%s: got %+v, want %s", name, s, status)
	}
}

// stands checks the status of an approval request, and how often it was used if that is given.
func (c *counter) stands(t *testing.T, name, who, id, status string, used ...int) {
	t.Helper()
	if got, _ := c.sees(who, id); got.Status != status || len(used) > 0 && got.Used != used[0] {
		t.Errorf("%s: got %+v, want %s %v", name, got, status, used)
	}
}

const (
	yes = `{"decision":"approve","reason":"fine"}`
	no  = `{"decision":"deny","reason":"not today"}`
)

// approved has a question asked and approved.
func (c *counter) approved(who ...string) (id string) {
	c.t.Helper()
	first := c.asks("pep", tool("push", push))
	if first.may() || first.Approval == nil || first.Approval.Status != "pending" {
		c.t.Fatalf("got %+v", first)
	}
	for _, one := range append(who, "mia")[:max(1, len(who))] {
		c.says(one, first.Approval.ID, "decision", yes, http.StatusOK)
	}
	return first.Approval.ID
}

func (c *counter) inbox(who, query string) (items []shown, next string) {
	c.t.Helper()
	status, text := c.do(who, "GET", "/v1/approvals"+query, "")
	if status != http.StatusOK {
		c.t.Fatalf("%s: got %d %s", query, status, text)
	}
	var page struct {
		Items []shown `json:"items"`
		Next  string  `json:"next"`
	}
	must(c.t, json.Unmarshal([]byte(text), &page))
	return page.Items, page.Next
}

// log is what is on record, each step of an approval by its name; the log verifies.
func (c *counter) log() (steps []string, spent int) {
	c.t.Helper()
	_, text := c.do("auditor", "GET", "/v1/log/export", "")
	if report := verify.Export(strings.NewReader(text), verify.Options{}); !report.Verified() {
		c.t.Errorf("the log does not verify: %+v", report)
	}
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		var r struct {
			Kind       string `json:"kind"`
			Event      string `json:"event"`
			Decision   bool   `json:"decision"`
			Discharged []struct {
				Approval string `json:"approval"`
			} `json:"discharged"`
		}
		if json.Unmarshal([]byte(line), &r) != nil {
			continue
		}
		if r.Kind == "approval" {
			steps = append(steps, r.Event)
		}
		if r.Kind == format.KindDecision && r.Decision {
			spent += len(r.Discharged)
		}
	}
	return steps, spent
}

// People are told what of that which they see is not bound.
func TestUnboundIsSaid(t *testing.T) {
	t.Parallel()
	c := openCounterOn(t, pdptest.Bundle(approvalFiles(
		"a.cedar", `@id("some") @obligation("some") permit(principal, action == Action::"tool.invoke", resource in group::"some");`,
		"obligations.yaml", "some: {type: approval_required, properties: {template: owner, material: [subject, context.arguments]}}\n",
		"entities/f.json", `[{"uid":{"type":"tool","id":"some"},"attrs":{},"parents":[{"type":"group","id":"some"}]}]`)))
	for question, want := range map[string]string{
		tool("push", push): ``,
		tool("push", push+`,"trace":"x","why":"y","supported_obligations":[]`):                                           `"unbound":["context.trace"],`,
		tool("push", `"approved":{"n":7},"access_request":"a","evaluation_id":"b"`):                                      `"resource":{"type":"tool","id":"push"}},"decision":`,
		tool("push", `"n":7,"justification":"a dry run"`):                                                                `"justification":{"justification":"a dry run"},`,
		tool("push", `"other":1,"justification":"approved"`):                                                             `"context":{"other":1}},`,
		strings.Replace(tool("some", push+`,"trace":"x","why":"y"`), `"id":"some"`, `"id":"some","labels":{"a":"b"}`, 1): `"unbound":["context.trace","context.why","resource.properties"],`,
	} {
		id := c.asks("pep", question).Approval.ID
		_, text := c.do("mia", "GET", "/v1/approvals/"+id, "")
		if strings.Contains(text, "unbound") != strings.Contains(want, "unbound") || !strings.Contains(text, want) {
			t.Errorf("got %s\nwant %s", text, want)
		}
	}
}

// Somebody asks, somebody else approves, the same question is asked again, and goes
// through once.
func TestApproval(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	first := c.asks("pep", tool("push", push))
	if !first.Allow || !first.Obligations["approval_required"] || first.Approval == nil || first.Approval.Status != "pending" ||
		!first.Approval.ExpiresAt.Equal(pdptest.Now.Add(10*time.Minute)) || first.Approval.StatusURL != c.URL+"/v1/approvals/"+first.Approval.ID {
		t.Fatalf("got %+v", first)
	}
	id := first.Approval.ID
	if joined := c.asks("pep", tool("push", push)); joined.Approval.ID != id || joined.may() {
		t.Errorf("got %+v", joined)
	}
	items, _ := c.inbox("mia", "")
	if len(items) != 1 || items[0].ID != id || items[0].Message != "bot wants push" {
		t.Errorf("got %+v", items)
	}
	if items, _ := c.inbox("eve", ""); len(items) != 0 {
		t.Errorf("eve sees %+v", items)
	}
	if got := c.says("mia", id, "decision", yes, 200); got.Status != "approved" || got.Version != 2 {
		t.Errorf("got %+v", got)
	}
	if told := c.asks("pep", tool("push", push)); told.may() || told.Approval.Status != "approved" || told.Approval.ID != id {
		t.Errorf("who does not present it: %+v", told)
	}
	c.asks("pep", tool("push", again)).passes(t, "it is approved, and does not go through")
	after := c.asks("pep", tool("push", again))
	if after.may() || after.Approval.ID == id || after.Approval.Status != "pending" {
		t.Errorf("once is once: %+v", after)
	}
	c.stands(t, "the answer", "pep", id, "used_up", 1)
	if shown := c.asks("pep", tool("push", again+`,"approval_id":"`+id+`"`)); shown.may() || shown.Approval.ID != id || shown.Approval.Status != "used_up" {
		t.Errorf("who shows it is told what became of it: %+v", shown)
	}
	if steps, spent := c.log(); strings.Join(steps, " ") != "filed approve approved used used_up filed" || spent != 1 {
		t.Errorf("on record: %d %v", spent, steps)
	}
}

// Whatever is sent, it goes through with an approval of exactly this only.
func TestApprovalAttacks(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	id := c.approved()
	refused := func(name, who, body string, header ...string) {
		t.Helper()
		c.asks(who, body, header...).isStopped(t, name)
	}
	change := func(old, new string) string {
		body := strings.Replace(tool("push", again), old, new, 1)
		if body == tool("push", again) {
			t.Fatalf("%s changes nothing", old)
		}
		return body
	}
	refused("another argument", "pep", change(`"main"`, `"master"`))
	refused("one more", "pep", change(`"n":7`, `"n":7,"force":true`))
	refused("a string for a number", "pep", change(`7`, `"7"`))
	refused("another subject", "pep", change(`"bot"`, `"bat"`))
	refused("another type of subject", "pep", change(`"agent"`, `"user"`))
	refused("another tenant", "pep", change(`"default"`, `"acme"`))
	refused("another tool", "pep", tool("stop", again))
	refused("another PEP", "other-pep", tool("push", again))
	refused("another PEP, with the id", "other-pep", tool("push", again+`,"approval_id":"`+id+`"`))
	refused("a guessed id", "pep", tool("push", again+`,"approval_id":"01900000-0000-7000-8000-000000000000"`))
	refused("an id that is none", "pep", tool("push", again+`,"approval":{"id":"x"}`))
	refused("the word alone, of something else", "pep", tool("push", `"justification":"approved"`))
	refused("only said", "pep", tool("push", push+`,"approved":true,"evaluation_id":"`+id+`"`))
	refused("said everywhere", "pep", change(`"actor_id"`, `"approved":true,"actor_id"`))
	refused("to be explained", "explainer", tool("push", again), "X-Explain", "true")
	refused("on whose behalf", "pep", tool("push", again+`,"on_behalf_of":[{"type":"user","id":"eve"}]`))
	presented := push + `,"approval":{"id":"` + id + `"}`
	itemsAre(t, "in a batch", "---", c.program("pep").batch("", wants("stop", presented), wants("push", presented+`,"force":true`), wants("read", presented)))
	c.stands(t, "a mismatch burned it", "mia", id, "approved", 0)
	// Another way to write the same is the same.
	c.asks("pep", strings.NewReplacer(`"branch":"main","n":7`, `"n":70e-1,"branch":"\u006dain"`).Replace(tool("push", again+`,"trace":"x","nothing":null`))).passes(t, "another way to write it is another request")
	refused("replay", "pep", tool("push", again))
	refused("replay with the id", "pep", tool("push", again+`,"approval_id":"`+id+`"`))
	// Large numbers differ where a float would not tell them apart; 1.0 and 1 do not.
	ask := func(n string) told {
		return c.asks("pep", tool("push", `"justification":"approved","arguments":{"n":`+n+`}`))
	}
	c.says("mia", ask("9007199254740992").Approval.ID, "decision", yes, 200)
	if ask("9007199254740993").may() || !ask("9007199254740992.0").may() {
		t.Error("9007199254740992 and 9007199254740993 are one number")
	}
}

func TestApprovalEnds(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	id := c.approved()
	c.Advance(5 * time.Minute)
	c.asks("pep", tool("push", again+`,"approval_id":"`+id+`"`)).stands(t, "at its end", "expired")
	id = c.approved()
	c.says("eve", id, "revoke", ``, 404)
	c.says("pep", id, "revoke", ``, 403)
	c.says("pep", id, "cancel", ``, 409)
	c.says("noah", id, "revoke", `{"reason":"changed my mind"}`, 200)
	c.asks("pep", tool("push", again+`,"approval_id":"`+id+`"`)).stands(t, "revoked", "revoked")
	c.says("noah", id, "revoke", ``, 409)
	first := c.asks("pep", tool("push", push))
	c.says("mia", first.Approval.ID, "cancel", ``, 403)
	c.says("other-pep", first.Approval.ID, "cancel", ``, 404)
	c.says("pep", first.Approval.ID, "cancel", ``, 200)
	c.says("mia", first.Approval.ID, "decision", yes, 409)
	first = c.asks("pep", tool("push", push))
	c.says("mia", first.Approval.ID, "decision", no, 200)
	c.says("noah", first.Approval.ID, "decision", yes, 409)
	c.asks("pep", tool("push", again+`,"approval_id":"`+first.Approval.ID+`"`)).stands(t, "denied", "denied")
	first = c.asks("pep", tool("push", push))
	c.Advance(10 * time.Minute)
	c.says("mia", first.Approval.ID, "decision", yes, 409)
	first = c.asks("pep", tool("push", push))
	c.says("mia", first.Approval.ID, "decision", `{"decision":"approve","reason":"today","version":7}`, 409)
	c.says("mia", first.Approval.ID, "decision", `{"decision":"approve","reason":"today","valid_until":"2020-01-01T00:00:00Z"}`, 400)
	until := c.Now().Add(time.Minute).Format(time.RFC3339)
	c.says("mia", first.Approval.ID, "decision", `{"decision":"approve","reason":"today","version":1,"valid_until":"`+until+`"}`, 200)
	c.Advance(time.Minute)
	c.asks("pep", tool("push", again)).isStopped(t, "it outlived what the approver said")
}

func TestQuorum(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	id := c.asks("pep", tool("stop", push)).Approval.ID
	c.says("mia", id, "decision", yes, 200).is(t, "the answer", "pending")
	c.says("mia", id, "decision", yes, 409)
	c.says("mia.admin", id, "decision", yes, 409) // the same person, by another name
	c.asks("pep", tool("stop", again)).isStopped(t, "one of two is not enough")
	c.says("zoe", id, "decision", yes, 200).is(t, "the answer", "approved")
	c.asks("pep", tool("stop", again)).passes(t, "two of two are enough")
	uses := c.asks("pep", tool("list", push)).Approval.ID
	c.says("mia", uses, "decision", yes, 200)
	for n := range 4 {
		if got := c.asks("pep", tool("list", again)).may(); got != (n < 3) {
			t.Errorf("use %d: %v", n+1, got)
		}
	}
}

// Nobody answers for themselves: not directly, not through an agent, a delegate, a second
// name, or a chain.
func TestSelfApproval(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	as := func(actor, typ, context string) string {
		return strings.NewReplacer(`"bot"`, `"`+actor+`"`, `"actor_type":"agent"`, `"actor_type":"`+typ+`"`).Replace(tool("push", context))
	}
	for name, test := range map[string]struct {
		body, who string
		barred    bool
	}{
		"directly":             {as("mia", "user", push), "mia", true},
		"by another name":      {as("mia", "user", push), "mia.admin", true},
		"the other way round":  {as("mia.admin", "user", push), "mia", true},
		"through an agent":     {as("helper", "agent", push), "noah", true},
		"an agent named by id": {as("bot", "agent", push+`,"agent":"helper"`), "noah", true},
		"an agent in the call": {as("bot", "agent", push+`,"agent":{"type":"agent","id":"helper"}`), "noah", true},
		"the chain":            {as("bot", "agent", push+`,"on_behalf_of":[{"type":"user","id":"zoe"}]`), "zoe", true},
		"somebody else":        {as("helper", "agent", push), "zoe", false},
	} {
		t.Run(name, func(t *testing.T) {
			id := c.asks("pep", test.body).Approval.ID
			if !test.barred {
				c.says(test.who, id, "decision", yes, 200)
				return
			}
			c.says(test.who, id, "decision", yes, 404) // it is not there for them
			if items, _ := c.inbox(test.who, "?limit=200"); strings.Contains(fmt.Sprint(items), id) {
				t.Error("it is offered to them")
			}
		})
	}
	own := c.asks("helper", strings.Replace(tool("push", push), `"bot"`, `"helper"`, 1)).Approval.ID
	c.says("helper", own, "decision", yes, 403) // who asked sees it, and has no say
	own = c.asks("both", tool("push", push)).Approval.ID
	c.says("both", own, "decision", yes, 403) // whoever has the credential that asked
	c.says("zoe", own, "decision", yes, 404)  // nor whom that credential is of, by another
	c.says("noah", own, "decision", yes, 200)
	id := c.asks("pep", as("bot", "agent", `"on_behalf_of":[{"type":"user","id":"eve"}]`)).Approval.ID
	c.says("mia", id, "decision", `{"decision":"delegate","reason":"away","to":"user::\"eve\""}`, 400)
	c.says("mia", id, "decision", `{"decision":"delegate","reason":"away","to":"user::\"mia\""}`, 400)
	c.says("mia", id, "decision", `{"decision":"delegate","reason":"away","to":"eve"}`, 400)
	c.says("mia", id, "decision", `{"decision":"delegate","reason":"away"}`, 400)
}

func TestDelegation(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	id := c.asks("pep", tool("push", push)).Approval.ID
	c.says("eve", id, "decision", yes, 404)
	c.says("mia", id, "decision", `{"decision":"delegate","reason":"away","to":"user::\"eve\""}`, 200)
	c.says("mia", id, "decision", yes, 403)
	if items, _ := c.inbox("eve", ""); len(items) != 1 || items[0].ID != id {
		t.Errorf("eve sees %+v", items)
	}
	c.says("eve", id, "decision", yes, 200)
	c.asks("pep", tool("push", again)).passes(t, "what a delegate approved does not count")
	two := c.asks("pep", tool("stop", push)).Approval.ID
	c.says("mia", two, "decision", `{"decision":"delegate","reason":"away","to":"user::\"eve\""}`, 409) // its terms do not let them
	id = c.asks("pep", tool("push", push)).Approval.ID
	c.says("mia", id, "decision", `{"decision":"delegate","reason":"away","to":"user::\"eve\""}`, 200)
	c.says("mia.admin", id, "decision", yes, 404) // the same person, who said nothing by this name
}

// Whose it is not, for them it is not there.
func TestApprovalsAreNobodyElses(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	id := c.asks("pep", tool("push", push)).Approval.ID
	for who, want := range map[string]int{"pep": 200, "mia": 200, "eve": 404, "other-pep": 404, "auditor": 404, "acme-lead": 404} {
		if _, status := c.sees(who, id); status != want {
			t.Errorf("%s: got %d, want %d", who, status, want)
		}
	}
	c.says("acme-lead", id, "decision", yes, 404)
	c.says("pep", id, "decision", yes, 403)
	if items, _ := c.inbox("acme-lead", ""); len(items) > 0 {
		t.Errorf("got %+v", items)
	}
	acme := strings.Replace(tool("push", push), `"default"`, `"acme"`, 1)
	theirs := c.asks("pep", acme).Approval.ID
	if items, _ := c.inbox("acme-lead", ""); len(items) != 1 || items[0].ID != theirs {
		t.Errorf("got %+v", items)
	}
	for _, who := range []string{"pep", "other-pep", "auditor"} {
		c.reply(who, "GET", "/v1/approvals", "").is(t, who, 403)
	}
	if status, _ := c.do("", "GET", "/v1/approvals", ""); status != 401 {
		t.Error(status)
	}
}

// Where nobody can be asked, or nobody is to be, nothing is filed.
func TestNothingIsFiled(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	for name, got := range map[string]told{
		"without a template":   c.asks("pep", tool("old", push)),
		"not wanted":           c.asks("pep", tool("push", push), "X-Approval", "none"),
		"to be explained":      c.asks("explainer", tool("push", push), "X-Explain", "true"),
		"nobody could read it": c.asks("pep", tool("push", `"arguments":{"x":"`+strings.Repeat("x", 70<<10)+`"}`)),
		"a deny":               c.asks("pep", tool("push", `"arguments":{"blocked":true}`)),
	} {
		if got.may() || got.Approval != nil || !got.Obligations["approval_required"] && name != "a deny" {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := c.asks("pep", tool("push", `"agent":7`)); got.may() || got.Approval != nil || len(got.Obligations) > 0 {
		t.Errorf("nobody knows who: %+v", got)
	}
	c.reply("pep", "POST", "/v1/authorize", tool("push", `"on_behalf_of":"eve"`)).is(t, "nobody knows for whom", http.StatusBadRequest, "/context/on_behalf_of")
	question := `{"subject":{"type":"agent","id":"bot"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"push"}}`
	c.do("pep", "POST", evaluationPath, question)
	c.do("pep", "POST", "/access/v1/evaluations", strings.TrimSuffix(question, "}")+`,"evaluations":[{}]}`)
	c.nobodyIsAsked(t)
}

// Of two who would spend the same use, one does, whoever is first and in whatever form
// each of them asks.
func TestOneUseIsSpentOnce(t *testing.T) {
	t.Parallel()
	rounds := night.Cases(1000)
	c := openCounter(t, func(config *server.Config) { config.Approvals.NewPerMinutePerSubject = 1_000_000 })
	c.Client = ownClient()
	p := c.program("pep")
	round := func(n int) {
		context := fmt.Sprintf(`"arguments":{"round":%d}`, n)
		id := c.asks("pep", tool("push", context)).Approval.ID
		c.says("mia", id, "decision", yes, 200)
		forms := []func() bool{
			func() bool {
				return c.asks("pep", tool("push", context+`,"justification":"approved"`), "X-Approval", "none").may()
			},
			func() bool { return p.evaluates(wants("push", context+`,"approval":{"id":"`+id+`"}`)).Decision },
		}
		var both sync.WaitGroup
		var allowed [2]bool
		for i := range allowed {
			form := forms[(n/(1+i))%2] // all four pairs in turn
			both.Go(func() { allowed[i] = form() })
		}
		both.Wait()
		if allowed[0] == allowed[1] {
			t.Errorf("round %d: %v", n, allowed)
		}
	}
	const atOnce = 10 // who shares the disk's time
	var all sync.WaitGroup
	for first := range atOnce {
		all.Go(func() {
			for n := first; n < rounds; n += atOnce {
				round(n)
			}
		})
	}
	all.Wait()
	if _, spent := c.log(); spent != rounds {
		t.Errorf("%d rounds, %d on record", rounds, spent)
	}
}

// The policies in force decide again: a forbid wins, and what was approved for fewer
// people counts no more.
func TestApprovalUnderOtherPolicies(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeAll(t, dir, approvalFiles())
	c := openCounterOn(t, pdp.Dir(dir))
	under := func(more ...string) {
		t.Helper()
		for name, text := range approvalFiles(more...) {
			must(t, os.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), []byte(text), 0o600))
		}
		must(t, c.Reload(t.Context()))
	}
	id := c.approved()
	under("a.cedar", `forbid(principal, action, resource in group::"guarded");`)
	if c.asks("pep", tool("push", again)).Allow {
		t.Error("a forbid does not win")
	}
	under("a.cedar", `forbid(principal, action, resource) when { context.pdp.approved };`)
	if c.asks("pep", tool("push", again)).Allow {
		t.Error("a forbid of what is approved does not win")
	}
	must(t, os.WriteFile(filepath.Join(dir, "a.cedar"), []byte(strings.Replace(approvalPolicies, `@obligation("ask")`, `@obligation("two")`, 1)), 0o600))
	must(t, c.Reload(t.Context()))
	if got := c.asks("pep", tool("push", again+`,"approval_id":"`+id+`"`)); got.may() || got.Approval.ID == id {
		t.Errorf("one approved, two must: %+v", got)
	}
	under()
	c.stands(t, "a deny burned it", "pep", id, "approved", 0)
	c.asks("pep", tool("push", again)).passes(t, "as it was approved, it does not go through")
	// Who may decide no more has no voice, and neither has what they said before.
	id = c.asks("pep", tool("stop", push)).Approval.ID
	c.says("mia", id, "decision", yes, 200)
	under("a.cedar", `forbid(principal == user::"mia", action == Action::"approval.decide", resource);`)
	c.says("noah", id, "decision", yes, 200).is(t, "who may decide no more still counts", "pending")
	c.says("zoe", id, "decision", yes, 200).is(t, "the answer", "approved")
	c.revoke("zoe")
	c.asks("pep", tool("stop", again)).stands(t, "without zoe only noah is left", "pending")
	// Nobody names a person whom a policy forbids to decide.
	toEve := `{"decision":"delegate","reason":"away","to":"user::\"eve\""}`
	under()
	id = c.asks("pep", tool("push", push)).Approval.ID
	c.says("mia", id, "decision", toEve, 200)
	under("a.cedar", `forbid(principal == user::"eve", action, resource);`)
	c.says("eve", id, "decision", yes, 404)
	id = c.asks("pep", tool("push", `"arguments":{"branch":"other"}`)).Approval.ID
	c.says("mia", id, "decision", toEve, 400)
}

// Each limit of what waits is that of the configuration.
func TestApprovalLimits(t *testing.T) {
	t.Parallel()
	c := openCounter(t, func(config *server.Config) {
		config.Approvals = server.ApprovalsConfig{MaxPendingPerSubject: 2, MaxPendingPerTenant: 3, MaxPendingPerCaller: 3, NewPerMinutePerSubject: 4}
	})
	for n, test := range []struct{ who, actor, want string }{
		{"pep", "bot", "pending"},
		{"pep", "bot", "pending"},
		{"pep", "bot", "refused"}, // the subject has two
		{"other-pep", "bat", "pending"},
		{"other-pep", "cat", "refused"}, // the tenant has three
	} {
		body := strings.Replace(tool("push", fmt.Sprintf(`"arguments":{"n":%d}`, n)), `"bot"`, `"`+test.actor+`"`, 1)
		c.asks(test.who, body).stands(t, fmt.Sprint(n), test.want)
	}
}
