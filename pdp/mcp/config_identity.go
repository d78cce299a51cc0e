package mcp

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	"policy-service/evaluation"
	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/server/auth"
	"policy-service/pdp/server/config"
)

// IdentityConfig says for whom requests are.
type IdentityConfig struct {
	// Issuers are believed. Without one there is Static.
	Issuers []IssuerConfig `yaml:"issuers" min:"1" doc:"Issuers whose access tokens the gateway takes."`
	// SubjectClaim and AgentClaim are names of claims, or JSON Pointers into them.
	SubjectClaim string `yaml:"subject_claim" default:"sub" doc:"The claim that says who the person is: a name, or a JSON Pointer such as /act/sub."`
	AgentClaim   string `yaml:"agent_claim" default:"client_id" doc:"The claim that says which agent asks: a name, or a JSON Pointer."`
	// Properties are claims that policies see.
	Properties []string `yaml:"properties" doc:"The claims that policies see as properties of the person. roles and department_id unless given."`
	Scopes     []string `yaml:"scopes" min:"1" doc:"The scopes that clients are told to ask for. Whether a token has them, nobody looks: policies decide. None unless given."`
	// Static is the identity of everybody, where only one person can come.
	Static *StaticConfig `yaml:"static" doc:"The one identity of every request, without a token: for --stdio, and for a gateway on loopback that only you use. It takes the place of issuers."`
}

// IssuerConfig is an issuer of access tokens.
type IssuerConfig struct {
	Issuer     string   `yaml:"issuer" required:"yes" doc:"The claim iss of the tokens, byte for byte. OIDC discovery begins at this address."`
	Audience   string   `yaml:"audience" doc:"What the claim aud of the tokens must contain, if that is not resource."`
	Algorithms []string `yaml:"algorithms" required:"yes" min:"1" enum:"RS256,RS384,RS512,PS256,PS384,PS512,ES256,ES384,ES512,EdDSA" doc:"The signature algorithms that the gateway accepts."`
	JWKSFile   string   `yaml:"jwks_file" doc:"The issuer's public keys, as a JWK Set. A changed file takes effect without a restart. Without it, the keys come by OIDC discovery."`
	// Tenant, the types and IDPrefix keep the people of several issuers apart.
	Tenant      string `yaml:"tenant" doc:"The tenant whose policies decide about holders of these tokens, in place of pdp.tenant."`
	SubjectType string `yaml:"subject_type" doc:"The type of the entity that a person is to policies. user unless given."`
	AgentType   string `yaml:"agent_type" doc:"The type of the entity that an agent is to policies. agent unless given."`
	IDPrefix    string `yaml:"id_prefix" doc:"What the ids of people and agents of this issuer begin with in policies. Nothing unless given."`
}

// StaticConfig is an identity that no token says.
type StaticConfig struct {
	Sub      string `yaml:"sub" required:"yes" doc:"Who the person is."`
	ClientID string `yaml:"client_id" doc:"Which agent asks. Without it the person asks alone."`
	Issuer   string `yaml:"iss" doc:"Whose name sub is: the issuer by whose tokens the same person decides about approvals, so that nobody approves what their own agent wants. resource unless given."`
}

func (i IdentityConfig) check(m *config.Reading, c *Config) {
	host, _, err := net.SplitHostPort(c.Listen)
	switch {
	case i.Static == nil && len(i.Issuers) == 0:
		m.Addf("identity", "identity says nothing of who may come; list issuers of tokens, or write static: {sub: NAME} if only you can come")
	case i.Static != nil && len(i.Issuers) > 0:
		m.Addf("identity.static", "identity has both static and issuers; keep one of them")
	case i.Static != nil && i.Static.Sub == "":
		m.Addf("identity.static", "identity.static has no sub; write who the person is")
	case i.Static != nil && err == nil && !auth.IsLoopbackName(host):
		m.Addf("identity.static", "identity.static would make everybody who reaches %q the same person; listen on loopback, or list issuers instead", c.Listen)
	}
	for n, issuer := range i.Issuers {
		if err := issuer.check(); err != nil {
			m.Addf(fmt.Sprintf("identity.issuers[%d]", n), "identity.issuers[%d]: %w", n, err)
		}
	}
	if n, err := identity.Apart(c.identityOptions()); err != nil {
		m.Addf(fmt.Sprintf("identity.issuers[%d]", n), "identity.issuers[%d]: %w", n, err)
	}
}

func (i IssuerConfig) check() error {
	switch {
	case i.Issuer == "" || strings.Contains(i.Issuer, "#"):
		return errors.New("issuer is missing or has a fragment; write it as in the claim iss of the tokens")
	case len(i.Algorithms) == 0:
		return errors.New("algorithms is missing; list those the issuer signs with, such as RS256 or ES256")
	case i.Tenant != "" && !evaluation.IsTenantName(i.Tenant):
		return errors.New("tenant is no name of a tenant; write it as the directory is called")
	}
	if i.JWKSFile == "" {
		if err := overTLS(i.Issuer); err != nil {
			return fmt.Errorf("issuer %w, or use jwks_file", err)
		}
	}
	return nil
}

func sortedNames[V any](of map[string]V) []string { return slices.Sorted(maps.Keys(of)) }
