package main

import (
	"crypto/ed25519"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/inside/auth"
	"policy-service/pdp/pdptest/inside/cli"
	"policy-service/pdp/pdptest/inside/command"
	"policy-service/pdp/pdptest/inside/server"
)

// The commands show a whole grant in the sentence of the service, whose beginning says what is open-ended: a list shows no
// more than that of a message.
func TestGrantInShowAndList(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	pep, credential := askerAndMia(t, data, auth.Decide, auth.Capability)
	const issuer = "https://pdp.example"
	s := pdptest.Start(t, pdptest.Bundle(map[string]string{
		"a.cedar": `@id("ask") @obligation("ask") permit(principal, action == Action::"capability.grant", resource);
@id("mia") permit(principal == user::"mia", action == Action::"approval.decide", resource is Approval);`,
		"obligations.yaml": `ask: {type: approval_required, properties: {template: owner, message: "not this"}}`,
	}), func(c *server.Config) { c.Data, c.PublicURL, c.Program.PDP.NewID = data, issuer, nil })
	holder, err := capability.NewHolder(ed25519.NewKeyFromSeed([]byte(strings.Repeat("k", ed25519.SeedSize))))
	must(t, err)
	ask := capability.Ask{
		Tenant: "default", Holder: evaluation.Ref{Type: "agent", ID: "agent-a"}, Audience: "agent-b", Tools: []string{"*"}, Duration: time.Hour,
	}
	must(t, holder.Request(&ask, issuer, pdptest.Now))
	body, err := json.Marshal(ask)
	must(t, err)
	got := s.Post("/v1/capabilities", string(body), "Authorization", "Bearer "+pep)
	id := regexp.MustCompile(`"approval":\{"id":"([^"]+)"`).FindStringSubmatch(got.Body)
	if id == nil {
		t.Fatalf("%d %s", got.Status, got.Body)
	}
	for line, want := range map[string]string{
		"show " + id[1]: "Open-ended in tools, uses and arguments: agent-a may call all tools of agent-b for 1 h, any number of times, with any arguments; held by key " + holder.Key().Thumbprint(),
		"list":          "Open-ended in tools, uses and arguments: agent-a…",
	} {
		var out, told strings.Builder
		args := append([]string{"approvals"}, strings.Fields(line+" --server "+s.URL+" --credential "+credential)...)
		code := command.Run(args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &told})
		text := strings.ReplaceAll(out.String(), "\n            ", "") // a long row goes on below
		if code != cli.OK || !strings.Contains(text, want) || strings.Contains(text, "not this") {
			t.Errorf("%s: exit %d, %s%s; want %s", line, code, text, told.String(), want)
		}
	}
}
