package auth

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"
)

// JWTIssuer is an issuer of bearer tokens that is believed, with the permissions of the holders of its tokens.
type JWTIssuer struct {
	// Issuer is the claim iss, byte for byte, and where discovery begins.
	Issuer string `yaml:"issuer" required:"yes" doc:"The claim iss of the tokens, byte for byte. OIDC discovery begins at this address."`
	// Audience must be in the claim aud: a token made for another service is no token for us.
	Audience string `yaml:"audience" required:"yes" doc:"What the claim aud of the tokens must contain."`
	// JWKSFile holds the keys; without it they come by OIDC discovery.
	JWKSFile string `yaml:"jwks_file" doc:"The issuer's public keys, as a JWK Set. A changed file takes effect without a restart. Without it, the keys come by OIDC discovery."`
	// Algorithms are the signatures taken. There is no default: the token alone must never choose.
	Algorithms []string `yaml:"algorithms" required:"yes" min:"1" doc:"The signature algorithms that the service accepts: RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512, EdDSA."`
	// Principal is the claim that names the entity of a token's holder; nil is none.
	Principal *PrincipalClaim `yaml:"principal" doc:"Which entity the holder of a token is to policies. The permission approve needs it."`
	// RelayedBy are the keys beside which alone a token counts. People give such tokens to programs
	// that are not theirs, so by itself one is good for nothing here.
	RelayedBy []string `yaml:"relayed_by" min:"1" doc:"The names of the API keys with the permission relay that bring such tokens, if audience is that of a gateway. The token counts in Approver-Token beside one of these keys, and nowhere else. permissions is [approve] then."`
	// Exchange is set if the tokens are good for a capability at the token endpoint, and for nothing else.
	Exchange *Exchange `yaml:"exchange" doc:"The tokens are exchanged for capabilities at POST /v1/token, and count nowhere else. permissions is [capability] then, and principal is the holder."`
	Grant    `yaml:",inline"`
	// Grants stand in place of Permissions and Tenants: permissions that depend on claims.
	Grants []ClaimGrant `yaml:"grants" min:"1" instead:"permissions,tenants" doc:"What the holder of a token may do, by what its claims say, in place of permissions and tenants. All that match count, each in its own tenants. Whom none matches may do nothing."`
}

// publicKeyAlgorithms are those whose verifier cannot sign. With the others every reader of the key, which is public, can
// make tokens.
var publicKeyAlgorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

func (i JWTIssuer) check() error {
	if i.Issuer == "" || strings.Contains(i.Issuer, "#") || strings.ContainsFunc(i.Issuer, unprintable) {
		return errors.New("issuer is missing or holds '#'; write it as in the claim iss of the tokens")
	}
	if i.Audience == "" {
		return errors.New("audience is missing; write what the issuer puts into the claim aud of tokens for this service")
	}
	if len(i.Algorithms) == 0 {
		return errors.New("algorithms is missing; list those the issuer signs with, such as RS256 or ES256")
	}
	for _, name := range i.Algorithms {
		if !slices.Contains(publicKeyAlgorithms, jose.SignatureAlgorithm(name)) {
			return fmt.Errorf("the algorithm %q is not taken; try RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512 or EdDSA", name)
		}
	}
	if i.JWKSFile == "" {
		if u, err := checkFetchable(i.Issuer); err != nil {
			return fmt.Errorf("issuer: %w", err)
		} else if u.RawQuery != "" {
			return errors.New("issuer: it has a query, to which discovery adds no path; use jwks_file")
		}
	}
	if err := i.Principal.check(); err != nil {
		return err
	}
	if i.Grants != nil {
		return cmp.Or(i.checkGrants(), i.checkRelayed(), i.checkExchange())
	}
	if i.Principal == nil && i.approves() {
		return errors.New("permissions has approve, and nothing says who approves; add principal: {type: User, claim: sub}, or take approve out")
	}
	return cmp.Or(i.Grant.check(), i.onlyKeysRelay(), i.checkRelayed(), i.checkExchange())
}

// checkGrants checks an entry whose permissions depend on claims.
func (i JWTIssuer) checkGrants() error {
	switch {
	case len(i.Grants) == 0:
		return errors.New("grants is empty, and no token would be good for anything; list some, or write permissions and tenants")
	case i.Permissions != nil || i.Tenants != nil:
		return errors.New("grants stands in place of permissions and tenants; leave these out, or leave grants out")
	}
	return cmp.Or(i.checkRegistered(), checkGrants(i.Grants, i.Principal))
}

// Lets reports whether an issuer's tokens, or some of them, let their holders do something in a tenant.
func (i JWTIssuer) Lets(tenant string, p Permission) bool {
	return i.Grant.Lets(tenant, p) || slices.ContainsFunc(i.Grants, func(g ClaimGrant) bool { return g.grant().Lets(tenant, p) })
}

// checkRelayed checks an entry whose tokens only a gateway brings. Such a token is good for votes through that gateway, and
// a permission that never counts is a mistake.
func (i JWTIssuer) checkRelayed() error {
	if i.RelayedBy == nil {
		return nil
	}
	if len(i.RelayedBy) == 0 {
		return errors.New("relayed_by is empty; list the names of the API keys that bring these tokens, or leave it out")
	}
	for n, name := range i.RelayedBy {
		if !IsName(name) || strings.HasPrefix(name, KeyPrefix) || slices.Contains(i.RelayedBy[:n], name) {
			return errors.New("relayed_by has what is no name of an API key, or a name twice; write each name as given to policy-service keys add")
		}
	}
	if !i.permitsOnly(Approve) {
		return errors.New("relayed_by is given, and such a token is good for approving alone; write permissions: [approve]")
	}
	return nil
}

// permitsOnly reports whether all tokens of an entry permit one thing alone.
func (i JWTIssuer) permitsOnly(p Permission) bool {
	only := []Permission{p}
	if i.Grants == nil {
		return slices.Equal(i.Permissions, only)
	}
	return !slices.ContainsFunc(i.Grants, func(g ClaimGrant) bool { return !slices.Equal(g.Permissions, only) })
}

// relayed reports whether tokens of the entry count only beside a key.
func (i JWTIssuer) relayed() bool { return i.RelayedBy != nil }

// same reports whether two would claim the same tokens.
func (i JWTIssuer) same(other JWTIssuer) bool {
	return i.Issuer == other.Issuer && i.Audience == other.Audience
}

// checkFetchable refuses addresses for which a machine on the way could answer.
func checkFetchable(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err == nil && u.Host != "" && u.User == nil && u.Fragment == "" &&
		(u.Scheme == "https" || u.Scheme == "http" && IsLoopbackName(u.Hostname())) {
		return u, nil
	}
	return nil, errors.New("keys are fetched over https only, or http on loopback; write such an address, or use jwks_file")
}
