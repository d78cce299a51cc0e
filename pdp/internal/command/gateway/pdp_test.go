package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
	"policy-service/obligations"
	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/pdptest/mcptest"
)

// inside is a PDP as it is in a gateway's process, and the way to it.
type inside struct {
	*authzenclient.Client
	embedded
	bundle string
	data   string
	log    *safeLog
}

// safeLog is read while it is written.
type safeLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *safeLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *safeLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// insideFiles are a bundle whose types are not called as in questions.
var insideFiles = map[string]string{
	"bundle.yaml": "namespace: Corp\ntypes: {user: Person, agent: Agent, tool: Tool}\nallow_trivial: true\nallow_self_approval: [confirm]\n",
	"mail.cedar": `@id("mail") @obligation("confirm") permit (principal, action == Corp::Action::"tool.invoke", resource == Corp::Tool::"wiki:mail");
@id("wipe") @obligation("second-person") permit (principal, action == Corp::Action::"tool.invoke", resource == Corp::Tool::"wiki:wipe");
@id("the-person") permit (principal is Corp::Person, action == Corp::Action::"approval.decide", resource is Corp::Approval)
when { resource.chain.contains(principal) && context.via == "form" && context.gateway == "key:mcp-gateway" };
`,
	"obligations.yaml": `confirm: {type: approval_required, properties: {template: confirm, message: "as ${principal.id}"}}
second-person: {type: approval_required, properties: {template: second-person, message: "as ${principal.id}"}}
`,
}

func startInside(t *testing.T, told mcp.Config, fixed string) inside {
	t.Helper()
	dir := t.TempDir()
	orFail(t, os.MkdirAll(filepath.Join(dir, "tenants", "acme"), 0o700))
	for name, text := range insideFiles {
		orFail(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	told.Resource, told.Upstreams = insideResource, map[string]mcp.UpstreamConfig{"wiki": {Command: []string{"true"}}}
	told.PDP.Embedded = &mcp.EmbeddedConfig{Policies: dir, Data: t.TempDir()}
	mcp.Form.SetDefaults(&told)
	log := &safeLog{}
	pdp, err := embed(t.Context(), told, mcp.Deps{Logger: slog.New(slog.NewTextHandler(log, nil)), FixedToken: fixed}, nil)
	orFail(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		orFail(t, pdp.stop(ctx))
	})
	return inside{embedded: pdp, bundle: dir, data: told.PDP.Embedded.Data, log: log}.of(t, "default")
}

// of is the same PDP as a tenant has it.
func (p inside) of(t *testing.T, tenant string) inside {
	t.Helper()
	client, err := authzenclient.New(mcp.EmbeddedURL, authzenclient.WithTenant(tenant), authzenclient.WithHTTPClient(&http.Client{Transport: p.transport}), authzenclient.WithRetries(0),
		authzenclient.WithTimeout(time.Minute))
	orFail(t, err)
	p.Client = client
	return p
}

const insideResource = "http://127.0.0.1:8181/mcp"

func orFail(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// asks files what bot wants for the person of an issuer.
func (p inside) asks(t *testing.T, tool, id, issuer, sub string) (approval string) {
	t.Helper()
	members, err := evaluation.NewObject(map[string]any{
		"arguments": map[string]any{"to": "all"}, "on_behalf_of": []any{map[string]any{"type": "user", "id": id}}, "person": evaluation.PersonOf(issuer, sub),
	})
	orFail(t, err)
	denied := p.Enforce(t.Context(), evaluation.Request{
		Subject: evaluation.Entity{Type: "agent", ID: "bot"}, Action: evaluation.Action{Name: "tool.invoke"},
		Resource: evaluation.Entity{Type: "tool", ID: "wiki:" + tool}, Context: members,
	}, obligations.Handlers{})
	standing, err := approvals.Ask(t.Context(), p.Client, denied, approvals.JoinEqual())
	orFail(t, err)
	return standing.Approvals()[0]
}

const yes = `{"action":"accept","content":{"approve":true}}`

// says has somebody answer with a token. It says what the approval request is then, or the status of the refusal.
func (p inside) says(t *testing.T, approval, token, answer string) (status string, refused int) {
	t.Helper()
	as, err := approvals.PersonWith(token)
	orFail(t, err)
	status, err = approvals.Respond(t.Context(), p.Client, approval, as, []byte(answer))
	var failure *authzenclient.Error
	if errors.As(err, &failure) {
		if strings.Contains(err.Error(), token) {
			t.Errorf("the token is in %v", err)
		}
		return "", failure.Status
	}
	orFail(t, err)
	return status, 0
}

// A second gateway with the same data says what to do, and the first one goes on.
func TestSecondGatewayOfOneDataSaysWhatToDo(t *testing.T) {
	t.Parallel()
	who := mcp.IdentityConfig{Static: &mcp.StaticConfig{Sub: "alice", ClientID: "bot"}}
	p := startInside(t, mcp.Config{Identity: who}, "a-token")
	told := mcp.Config{Identity: who, Resource: insideResource, Upstreams: map[string]mcp.UpstreamConfig{"wiki": {Command: []string{"true"}}}}
	told.PDP.Embedded = &mcp.EmbeddedConfig{Policies: p.bundle, Data: p.data}
	mcp.Form.SetDefaults(&told)
	_, err := embed(t.Context(), told, mcp.Deps{FixedToken: "another", Logger: slog.New(slog.DiscardHandler)}, nil)
	if err == nil || !strings.Contains(err.Error(), p.data) || !strings.Contains(err.Error(), "pdp.url") {
		t.Errorf("got %v", err)
	}
	p.asks(t, "mail", "alice", insideResource, "alice")
}

// The person of identity.static is known by one secret, and by nothing else.
func TestEmbeddedFixedPerson(t *testing.T) {
	t.Parallel()
	const secret = "S3CRETofthisprocessalone"
	p := startInside(t, mcp.Config{Identity: mcp.IdentityConfig{Static: &mcp.StaticConfig{Sub: "alice", ClientID: "bot"}}}, secret)
	mail := p.asks(t, "mail", "alice", insideResource, "alice")
	for _, token := range []string{secret[1:], secret + "a", strings.ToLower(secret), "x"} {
		if status, refused := p.says(t, mail, token, yes); refused != http.StatusUnauthorized {
			t.Errorf("%q: %s, %d", token, status, refused)
		}
	}
	as, err := approvals.PersonWith(secret)
	orFail(t, err)
	if form, err := approvals.Form(t.Context(), p.Client, mail, as, ""); err != nil || !strings.Contains(string(form), "as bot") {
		t.Errorf("%s, %v", form, err)
	}
	if status, refused := p.says(t, mail, secret, yes); status != "approved" {
		t.Errorf("%s, %d", status, refused)
	}
	// It is her own agent's request, so she is not a second person.
	wipe := p.asks(t, "wipe", "alice", insideResource, "alice")
	if form, err := approvals.Form(t.Context(), p.Client, wipe, as, ""); err == nil {
		t.Errorf("she is shown %s", form)
	}
	if status, refused := p.says(t, wipe, secret, yes); refused != http.StatusNotFound {
		t.Errorf("%s, %d", status, refused)
	}
	// Nobody else's agent's request is hers.
	other := p.asks(t, "mail", "bob", insideResource, "bob")
	if status, refused := p.says(t, other, secret, yes); refused != http.StatusNotFound {
		t.Errorf("%s, %d", status, refused)
	}
	if log := p.log.String(); strings.Contains(log, secret) || strings.Count(log, NobodyElse) != 1 || !strings.Contains(log, "obligations=second-person") {
		t.Errorf("the log:\n%s", log)
	}
}

// The person says something by a form, and by nothing else; and the gateway says nothing for them.
func TestEmbeddedFormsAlone(t *testing.T) {
	t.Parallel()
	const secret = "S3CRETofthisprocessalone"
	p := startInside(t, mcp.Config{Identity: mcp.IdentityConfig{Static: &mcp.StaticConfig{Sub: "alice", ClientID: "bot"}}}, secret)
	at := "/v1/approvals/" + p.asks(t, "mail", "alice", insideResource, "alice")
	const question = `{"subject":{"type":"agent","id":"bot"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"wiki:mail"}}`
	for name, test := range map[string]struct{ token, path, body string }{
		"a question of theirs":     {secret, "/access/v1/evaluation", question},
		"a vote as by the console": {secret, at + "/decision", `{"decision":"approve","reason":"x"}`},
		"what is taken back":       {secret, at + "/cancel", `{}`},
		"the gateway's own answer": {"", at + "/response", yes},
		"the gateway's own vote":   {"", at + "/decision", `{"decision":"approve","reason":"x"}`},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost"+test.path, strings.NewReader(test.body))
		orFail(t, err)
		r.Header.Set("Content-Type", "application/json")
		if test.token != "" {
			r.Header.Set("Approver-Token", test.token)
		}
		answer, err := p.transport.RoundTrip(r)
		orFail(t, err)
		body, err := io.ReadAll(answer.Body)
		orFail(t, err)
		if answer.StatusCode != http.StatusForbidden || strings.Contains(string(body), secret) {
			t.Errorf("%s: %d %s", name, answer.StatusCode, body)
		}
	}
	if status, refused := p.says(t, strings.TrimPrefix(at, "/v1/approvals/"), secret, yes); status != "approved" {
		t.Errorf("%s, %d", status, refused)
	}
}

// What people cannot approve is said of each bundle for which it is true, once.
func TestEmbeddedBundlesAreLookedAt(t *testing.T) {
	t.Parallel()
	p := startInside(t, mcp.Config{Identity: mcp.IdentityConfig{Static: &mcp.StaticConfig{Sub: "alice"}}}, "secret")
	settings := filepath.Join(p.bundle, "bundle.yaml")
	for n, test := range []struct {
		more string
		said int
	}{{"", 1}, {"volatile: [x]\n", 1}, {"allow", 1}, {"", 2}} {
		text := insideFiles["bundle.yaml"] + test.more
		if test.more == "allow" {
			text = strings.Replace(insideFiles["bundle.yaml"], "[confirm]", "[confirm, second-person]", 1)
		}
		orFail(t, os.WriteFile(settings, []byte(text), 0o600))
		orFail(t, p.reload(t.Context()))
		if got := strings.Count(p.log.String(), NobodyElse); got != test.said {
			t.Errorf("%d: said %d times, want %d:\n%s", n, got, test.said, p.log)
		}
	}
}

// Without a secret there is no person.
func TestEmbeddedNoFixedToken(t *testing.T) {
	t.Parallel()
	p := startInside(t, mcp.Config{Identity: mcp.IdentityConfig{Static: &mcp.StaticConfig{Sub: "alice", ClientID: "bot"}}}, "")
	mail := p.asks(t, "mail", "alice", insideResource, "alice")
	for _, token := range []string{"x", "alice"} {
		if status, refused := p.says(t, mail, token, yes); refused != http.StatusUnauthorized {
			t.Errorf("%s, %d", status, refused)
		}
	}
}

// The people of issuers are known by tokens that the gateway takes: each as policies know the person of a question.
func TestEmbeddedPeopleOfIssuers(t *testing.T) {
	t.Parallel()
	issuer, stranger := mcptest.NewIssuer(t, insideResource, time.Now), mcptest.NewIssuer(t, insideResource, time.Now)
	p := startInside(t, mcp.Config{Identity: mcp.IdentityConfig{
		SubjectClaim: "/corp/name",
		Issuers:      []mcp.IssuerConfig{{Issuer: issuer.URL, Algorithms: []string{"ES256"}, IDPrefix: "corp-"}},
	}}, "")
	named := func(sub, name string) mcptest.Claims {
		return mcptest.Claims{"sub": sub, "corp": map[string]any{"name": name}}
	}
	with := func(all mcptest.Claims, name string, value any) mcptest.Claims {
		all[name] = value
		return all
	}
	good := issuer.Token(t, named("7", "alice"))
	mail := p.asks(t, "mail", "corp-alice", issuer.URL, "7")
	past := time.Now().Add(-time.Hour).Unix()
	for name, token := range map[string]string{
		"another issuer":    stranger.Token(t, named("7", "alice")),
		"another audience":  issuer.Token(t, with(named("7", "alice"), "aud", "https://other.example/mcp")),
		"expired":           issuer.Token(t, with(named("7", "alice"), "exp", past)),
		"just expired":      issuer.Token(t, with(named("7", "alice"), "exp", time.Now().Add(-time.Second).Unix())),
		"bound to a key":    issuer.Token(t, with(named("7", "alice"), "cnf", map[string]any{"jkt": "x"})),
		"no such claim":     issuer.Token(t, mcptest.Claims{"sub": "7"}),
		"cut":               good[:len(good)-2],
		"without signature": good[:strings.LastIndex(good, ".")+1],
	} {
		if status, refused := p.says(t, mail, token, yes); refused != http.StatusUnauthorized {
			t.Errorf("%s: %s, %d", name, status, refused)
		}
	}
	for name, token := range map[string]string{
		"somebody else":          issuer.Token(t, named("8", "bob")),
		"without the prefix":     issuer.Token(t, named("9", "corp-alice")),
		"another name":           issuer.Token(t, named("7", "bob")),
		"the same sub elsewhere": issuer.Token(t, with(named("alice", "x"), "name", "alice")),
	} {
		if status, refused := p.says(t, mail, token, yes); refused != http.StatusNotFound {
			t.Errorf("%s: %s, %d", name, status, refused)
		}
	}
	if status, refused := p.says(t, mail, issuer.Token(t, named("7", strings.Repeat("a", 1000))), yes); refused != http.StatusForbidden {
		t.Errorf("a name that no policy could say: %s, %d", status, refused)
	}
	if status, refused := p.says(t, mail, good, yes); status != "approved" {
		t.Errorf("%s, %d", status, refused)
	}
	wipe := p.asks(t, "wipe", "corp-alice", issuer.URL, "7")
	// Another entity of the same person is not a second person: R20.
	for name, token := range map[string]string{"alice": good, "alice by another name": issuer.Token(t, named("7", "alice2"))} {
		if status, refused := p.says(t, wipe, token, yes); refused != http.StatusNotFound {
			t.Errorf("%s: %s, %d", name, status, refused)
		}
	}
	if strings.Contains(p.log.String(), good) {
		t.Error("the token is in the log")
	}
}

// A person is one in the tenant of their issuer, whatever they are called.
func TestEmbeddedPeopleOfTenants(t *testing.T) {
	t.Parallel()
	here, there := mcptest.NewIssuer(t, insideResource, time.Now), mcptest.NewIssuer(t, insideResource, time.Now)
	p := startInside(t, mcp.Config{Identity: mcp.IdentityConfig{Issuers: []mcp.IssuerConfig{
		{Issuer: here.URL, Algorithms: []string{"ES256"}}, {Issuer: there.URL, Algorithms: []string{"ES256"}, Tenant: "acme"},
	}}}, "")
	mail, abroad := p.asks(t, "mail", "alice", here.URL, "alice"), p.of(t, "acme").asks(t, "mail", "alice", there.URL, "alice")
	for approval, other := range map[string]*mcptest.Issuer{mail: there, abroad: here} {
		if status, refused := p.says(t, approval, other.Token(t, nil), yes); refused != http.StatusNotFound {
			t.Errorf("%s, %d", status, refused)
		}
	}
	if status, refused := p.says(t, mail, here.Token(t, nil), yes); status != "approved" {
		t.Errorf("%s, %d", status, refused)
	}
	if status, refused := p.of(t, "acme").says(t, abroad, there.Token(t, nil), yes); status != "approved" {
		t.Errorf("%s, %d", status, refused)
	}
}
