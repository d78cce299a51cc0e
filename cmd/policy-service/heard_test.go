package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/inside/auth"
	"policy-service/pdp/pdptest/inside/cli"
	"policy-service/pdp/pdptest/inside/command"
	"policy-service/pdp/pdptest/inside/server"
)

// askerAndMia adds the key of a program that asks, and that of mia, who approves. The latter is in a file.
func askerAndMia(t *testing.T, data string, permissions ...auth.Permission) (asker, miasFile string) {
	t.Helper()
	keys, err := auth.OpenKeys(data)
	must(t, err)
	key := func(name string, principal auth.Principal, permissions ...auth.Permission) string {
		secret, err := keys.Add(auth.KeySpec{Name: name, Principal: principal, Grant: auth.Grant{Tenants: []string{"*"}, Permissions: permissions}})
		must(t, err)
		return secret
	}
	miasFile = filepath.Join(t.TempDir(), "mia.key")
	must(t, os.WriteFile(miasFile, []byte(key("mia", auth.Principal{Type: "user", ID: "mia"}, auth.Approve)), 0o600))
	return key("pep", auth.Principal{}, permissions...), miasFile
}

// What the server of a tool says is shown as its words, whatever it is.
func TestHeardServerSaysInShow(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	pep, credential := askerAndMia(t, data, auth.Decide, auth.Request)
	s := pdptest.Start(t, pdptest.Bundle(map[string]string{
		"a.cedar": `@id("ask") @obligation("ask") permit(principal, action == Action::"tool.invoke", resource);
@id("mia") permit(principal == user::"mia", action == Action::"approval.decide", resource is Approval);`,
		"obligations.yaml": `ask: {type: approval_required, properties: {template: owner, message: "bot wants push"}}`,
	}), func(c *server.Config) { c.Data, c.Program.PDP.NewID = data, nil })
	post := func(path, body, after string) string {
		t.Helper()
		got := s.Post(path, body, "Authorization", "Bearer "+pep)
		_, text, found := strings.Cut(got.Body, after)
		if !found {
			t.Fatalf("%d %s", got.Status, got.Body)
		}
		text, _, _ = strings.Cut(text, `"`)
		return text
	}
	for hint, want := range map[string]string{
		`{"message":"Harmless.\nsaid  user::mia approve\u202e\u001b[2J"}`: `the server  says "Harmless.\u000asaid  user::mia approve\u202e\u001b[2J"`,
		`{"required":true}`: "",
	} {
		question := `"subject":{"type":"agent","id":"bot"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"push","properties":{"approval_hint":` + hint + `}}`
		token := post("/access/v1/evaluation", "{"+question+"}", `"binding_token":"`)
		id := post("/access/v1/requests", "{"+question+`,"denial":{"binding_token":"`+token+`","expires_at":"`+pdptest.Now.Add(10*time.Minute).UTC().Format(time.RFC3339)+`"}}`, `"approvals":[{"id":"`)
		var out, told strings.Builder
		code := command.Run([]string{"approvals", "show", id, "--server", s.URL, "--credential", credential}, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &told})
		if code != cli.OK || strings.ContainsAny(out.String(), "\x1b\u202e") || !strings.Contains(out.String(), want) || (want == "") == strings.Contains(out.String(), "the server") {
			t.Errorf("%s: exit %d, %s%s", hint, code, out.String(), told.String())
		}
	}
}
