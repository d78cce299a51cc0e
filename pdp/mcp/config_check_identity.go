package mcp

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"policy-service/evaluation"
	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/server/auth"

	"policy-service/pdp/server/config"
)

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

func sortedNames[V any](of map[string]V) []string {
	names := make([]string, 0, len(of))
	for name := range of {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
