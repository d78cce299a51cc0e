package mcp_test

import (
	"strings"
	"testing"
	"time"

	"policy-service/pdp"
	"policy-service/pdp/internal/mcp"
	pdpserver "policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/mcptest"
	"policy-service/policies"
)

// passage is a way from a client to an upstream.
type passage struct {
	name     string            // of the upstream
	upstream string            // its URL,
	command  []string          // or its command line,
	env      map[string]string // with these variables
	policies string            // the bundle that decides, by its name in package policies; without it everything is permitted
}

// permitAll is a bundle that permits everything.
var permitAll = pdptest.Bundle(map[string]string{"all.cedar": `@id("all") permit (principal, action, resource);`, "bundle.yaml": "allow_trivial: true\n"})

// through puts a gateway into the passage. It returns the URL for clients, and what they send as Authorization.
func through(t testing.TB, p passage) (at, authorization string) {
	t.Helper()
	source, identity := permitAll, mcp.IdentityConfig{Static: &mcp.StaticConfig{Sub: "alice", ClientID: "agent-1"}}
	const resource = "http://127.0.0.1:8181/mcp"
	if p.policies != "" {
		files, err := policies.Named(p.policies)
		orFail(t, err)
		issuer := mcptest.NewIssuer(t, resource, time.Now)
		source, authorization = pdp.FS(files), "Bearer "+issuer.Token(t, nil)
		identity = mcp.IdentityConfig{Issuers: []mcp.IssuerConfig{{Issuer: issuer.URL, Algorithms: []string{"ES256"}, JWKSFile: issuer.KeysFile(t)}}}
	}
	upstream := mcp.UpstreamConfig{URL: p.upstream, Command: p.command, Env: p.env, ServerRequests: relayed}
	g := gateway(t, pdptest.Start(t, source, open).URL, upstream, func(c *mcp.Config) {
		c.Identity, c.Upstreams = identity, map[string]mcp.UpstreamConfig{p.name: c.Upstreams["partner"]}
	})
	return serve(t, g), authorization
}

// open lets everybody ask, as a PDP on loopback without keys does.
func open(c *pdpserver.Config) { c.Program.PDP.Now = time.Now }

type logged struct{ t testing.TB }

func (l *logged) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}
