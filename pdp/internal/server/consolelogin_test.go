package server_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"policy-service/pdp/approval/webhook"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/auth/keys"
	"policy-service/pdp/pdptest"
)

// A link to where people decide is for people: for those who may decide or have, and for the systems that tell them. The
// program that asked gets none, neither with its answer nor when it looks.
func TestConsoleLinks(t *testing.T) {
	t.Parallel()
	told := make(chan string, 2)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		told <- string(body)
	}))
	defer receiver.Close()
	file := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(file, bytes.Repeat([]byte("s"), 32), 0o600))
	c := openCounter(t, withConsole(server.ConsoleConfig{PublicURL: "https://pdp.example.com/pdp/console"}), func(config *server.Config) {
		config.Approvals.Webhooks = []webhook.Config{{URL: receiver.URL, SecretFile: file, Allow: []string{"127.0.0.1"}}}
	})
	_, answer := c.do("pep", "POST", "/v1/authorize", tool("push", push))
	id := c.asks("pep", tool("push", push)).Approval.ID
	link := `"link":"https://pdp.example.com/pdp/console/approvals/` + id + `"`
	has(t, <-told, link)
	see := func(who, path string) string {
		status, text := c.do(who, "GET", path, "")
		if status != http.StatusOK {
			t.Errorf("%s looks at %s: got %d %s", who, path, status, text)
		}
		return text
	}
	for _, path := range []string{"/v1/approvals", "/v1/approvals/" + id} {
		has(t, see("mia", path), link)
	}
	if text := see("pep", "/v1/approvals/"+id) + answer; strings.Contains(text, "pdp.example.com/pdp/console") || !strings.Contains(text, id) {
		t.Errorf("who asked is shown %s", text)
	}
	if _, text := c.do("mia", "POST", "/v1/approvals/"+id+"/decision", yes); !strings.Contains(text, link) {
		t.Errorf("who has decided is shown %s", text)
	}
	has(t, see("mia", "/v1/approvals/"+id), link)
	has(t, <-told, link)
}

// An MCP client that shows no forms leads the person who may decide to the console. Nobody else is told where that is.
func TestConsoleByElicitation(t *testing.T) {
	t.Parallel()
	c := openCounter(t, withConsole(server.ConsoleConfig{PublicURL: "https://pdp.example.com/pdp/console"}))
	id := c.asks("pep", tool("push", push)).Approval.ID
	shown := make(chan mcp.ElicitParams, 1)
	g := openGateway(t, "", func(p *mcp.ElicitParams) *mcp.ElicitResult {
		shown <- *p
		return &mcp.ElicitResult{Action: "accept"}
	})
	message := c.message("mia", id, "elicitation?form=url", http.StatusOK)
	g.elicit(t, message, id)
	got := <-shown
	if got.Mode != "url" || got.URL != "https://pdp.example.com/pdp/console/approvals/"+id || got.ElicitationID != id || !strings.Contains(got.Message, "push") {
		t.Errorf("got %+v", got)
	}
	c.message("pep", id, "elicitation?form=url", http.StatusForbidden)
	without := openCounter(t)
	without.message("mia", without.asks("pep", tool("push", push)).Approval.ID, "elicitation?form=url", http.StatusBadRequest)
}

// What opens the console opens nothing else, and ends with the key.
func TestConsoleSessionIsForPages(t *testing.T) {
	t.Parallel()
	c := openCounter(t, withConsole(server.ConsoleConfig{}))
	mia := c.consoleIn("mia")
	if got := consoleGet(t, mia, c.ConsoleURL()+"/approvals"); got.status != http.StatusOK {
		t.Fatalf("got %d %s", got.status, got.body)
	}
	id := c.asks("pep", tool("push", push)).Approval.ID
	for _, path := range []string{"/v1/approvals", "/v1/approvals/" + id, "/v1/me", "/v1/decisions"} {
		consoleGet(t, mia, c.URL+path).is(t, path+" with a cookie", http.StatusUnauthorized)
	}
	decide := consoleDo(t, mia, http.MethodPost, c.URL+"/v1/approvals/"+id+"/decision", strings.NewReader(yes), "Content-Type", "application/json", "Sec-Fetch-Site", "same-origin")
	if decide.status != http.StatusUnauthorized {
		t.Errorf("a cookie decides: got %d %s", decide.status, decide.body)
	}
	apiKeys, err := keys.Open(c.data)
	must(t, err)
	must(t, apiKeys.Revoke("mia"))
	eventually(t, "the session ends with its key", func() bool {
		return consoleGet(t, mia, c.ConsoleURL()+"/approvals").status == http.StatusSeeOther
	})
	c.stands(t, "it is", "pep", id, "pending")
}

// A server without credentials lets whoever is on its machine ask, and none of that through the console: who comes there
// may be anywhere, behind a proxy that says so or does not.
func TestConsoleLetsNobodyInWithoutCredentials(t *testing.T) {
	t.Parallel()
	s := pdptest.Start(t, pdptest.Bundle(approvalFiles()), withData(t.TempDir()), withConsole(server.ConsoleConfig{}))
	if got := s.Get("/v1/me"); got.Status != http.StatusOK {
		t.Fatalf("got %d %s", got.Status, got.Body)
	}
	for _, header := range [][]string{nil, {"X-Forwarded-For", "192.0.2.1"}, {"Authorization", "Bearer x"}} {
		got := consoleGet(t, consoleBrowser(nil), s.ConsoleURL()+"/approvals", header...)
		if got.status != http.StatusSeeOther || !strings.HasPrefix(got.where, "/console/login") {
			t.Errorf("%v: got %d to %q: %s", header, got.status, got.where, got.body)
		}
	}
}

// By whom people log in changes while the server runs. Sessions stay, and are judged by what is in force.
func TestConsoleReloadsItsIssuer(t *testing.T) {
	t.Parallel()
	c := openCounter(t, withConsole(server.ConsoleConfig{}))
	take := func(change func(*server.Config)) error {
		return c.Reconfigure(t.Context(), func() (server.Config, error) {
			config := server.Config{Listen: "127.0.0.1:0", Data: c.data, Console: &server.ConsoleConfig{}}
			change(&config)
			return config, nil
		})
	}
	offers := func(want bool) {
		t.Helper()
		got := consoleGet(t, consoleBrowser(nil), c.ConsoleURL()+"/login")
		if got.status != http.StatusOK || strings.Contains(got.body, "/console/login/oidc") != want {
			t.Errorf("got %d %s", got.status, got.body)
		}
	}
	mia := c.consoleIn("mia")
	offers(false)
	issuer := &auth.OIDC{
		Issuer:    "https://127.0.0.1:1/nobody",
		ClientID:  "console",
		Principal: &auth.PrincipalClaim{Type: "user", Claim: "sub"},
		Grants:    []auth.ClaimGrant{{Claim: "groups", Value: "leads", Permissions: []auth.Permission{auth.Approve}, Tenants: []string{"*"}}},
	}
	must(t, take(func(config *server.Config) { config.Console.OIDC = issuer }))
	offers(true)
	for _, change := range []func(*server.Config){
		func(config *server.Config) { config.Console = nil },
		func(config *server.Config) { config.Console.PublicURL = "https://pdp.example.com/console" },
		func(config *server.Config) { config.Console.Listen = "127.0.0.1:0" },
		func(config *server.Config) { config.Console.Session.Max = time.Hour },
	} {
		var restart *server.RestartError
		if err := take(change); !errors.As(err, &restart) || !strings.HasPrefix(restart.Keys[0], "console") {
			t.Errorf("got %v", err)
		}
	}
	broken := *issuer
	broken.Grants = nil
	if err := take(func(config *server.Config) { config.Console.OIDC = &broken }); err == nil || !strings.Contains(err.Error(), "grants is missing") {
		t.Errorf("got %v", err)
	}
	offers(true)
	must(t, take(func(*server.Config) {}))
	offers(false)
	consoleGet(t, mia, c.ConsoleURL()+"/approvals").is(t, "the session is gone", http.StatusOK)
}

// What a page asks the API is part of the page's trace, whoever's trace that is.
func TestConsoleInTraces(t *testing.T) {
	collected := newCollector(t)
	c := openCounter(t, withConsole(server.ConsoleConfig{}), server.Unhurried)
	mia := c.consoleIn("mia")
	if got := consoleGet(t, mia, c.ConsoleURL()+"/approvals", "Traceparent", traceparent); got.status != http.StatusOK {
		t.Fatalf("got %d %s", got.status, got.body)
	}
	stopAndWait(t, c.Server)
	spans := collected.trace(callersTrace)
	page, api := spans["GET /console/*"], spans["GET /v1/approvals"]
	if page.parent != callersSpan || page.id == "" || api.parent != page.id {
		t.Errorf("the page is %v, and what it asked %v", page, api)
	}
}
