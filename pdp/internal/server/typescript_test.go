package server_test

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"policy-service/pdp"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/night"
	"policy-service/pdp/pdptest/npm"
)

// TestHolderInTypeScript: an agent in TypeScript is granted a capability and proves its calls; that the page for agents shows
// the very program is a test of evaluation/capability.
func TestHolderInTypeScript(t *testing.T) {
	t.Parallel()
	night.Npm(t)
	dir := npm.Install(t, "jose", os.DirFS("../../../evaluation/capability/testdata/ts"))
	npm.Compile(t, dir)
	c := openCounterOn(t, pdp.Source(pdptest.Bundle(map[string]string{"a.cedar": `
@id("held") permit(principal is agent, action == Action::"tool.invoke", resource is tool) when { context.pdp.capability.held };
@id("grants") permit(principal == agent::"agent-a", action == Action::"capability.grant", resource == tool::"agent-b:restart");
`})), func(config *server.Config) { config.Program.PDP.Now, config.Capabilities.Nonce = time.Now, "required" })
	c.welcome("platform", "", auth.Decide, auth.Capability)
	run := exec.CommandContext(t.Context(), "node", "agent.js", c.URL, strings.TrimPrefix(c.key["platform"], "Bearer "))
	var failure bytes.Buffer
	run.Dir, run.Stderr = dir, &failure
	out, err := run.Output()
	want := `granted true agent-b:restart
token of agent-a for agent-b
first call nonce_required
with its nonce allowed
once more proof_replayed
another target argument_refused
`
	if err != nil || string(out) != want {
		t.Errorf("%v: got\n%s\n%s\nwant\n%s", err, out, failure.String(), want)
	}
}
