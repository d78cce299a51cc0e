package auth

import (
	"strings"
	"testing"
)

// TestExchangeConfig: an entry whose tokens are exchanged says what they are and whom they name, and permits nothing else.
func TestExchangeConfig(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*JWTIssuer)
		want   string
	}{
		"good":                         {func(*JWTIssuer) {}, ""},
		"good, of a person":            {func(i *JWTIssuer) { i.Principal.Claim, i.Exchange.Person = "client_id", "User" }, ""},
		"good, by groups":              {byGroup(Capability), ""},
		"good, of SPIFFE":              {func(i *JWTIssuer) { *i.Exchange = Exchange{Kind: SVID, TrustDomain: "example.org"} }, ""},
		"no kind":                      {func(i *JWTIssuer) { i.Exchange.Kind = "" }, "exchange.kind is none"},
		"an unknown kind":              {func(i *JWTIssuer) { i.Exchange.Kind = "saml" }, "exchange.kind is none"},
		"another permission":           {func(i *JWTIssuer) { i.Permissions = []Permission{Capability, Decide} }, "write permissions: [capability]"},
		"another permission, by group": {byGroup(Decide), "write permissions: [capability]"},
		"no principal":                 {func(i *JWTIssuer) { i.Principal = nil }, "add principal"},
		"beside relayed_by":            {func(i *JWTIssuer) { i.RelayedBy, i.Permissions = []string{"gw"}, []Permission{Approve} }, "exchange and relayed_by"},
		"no trust domain":              {func(i *JWTIssuer) { i.Exchange.Kind = SVID }, "exchange.trust_domain"},
		"a trust domain in capitals":   {func(i *JWTIssuer) { *i.Exchange = Exchange{Kind: SVID, TrustDomain: "Example.org"} }, "exchange.trust_domain"},
		"a trust domain of no SVIDs":   {func(i *JWTIssuer) { i.Exchange.TrustDomain = "example.org" }, "exchange.trust_domain"},
		"another claim of an SVID": {func(i *JWTIssuer) {
			*i.Exchange, i.Principal.Claim = Exchange{Kind: SVID, TrustDomain: "example.org", Person: "User"}, "who"
		}, "write sub"},
		"no person":           {func(i *JWTIssuer) { i.Principal.Claim = "client_id" }, "exchange.person is the type"},
		"a person who is sub": {func(i *JWTIssuer) { i.Exchange.Person = "User" }, "exchange.person is the type"},
		"a person of no type": {func(i *JWTIssuer) { i.Principal.Claim, i.Exchange.Person = "client_id", "a b" }, "exchange.person is no type"},
	} {
		i := JWTIssuer{
			Issuer: "https://issuer.example", Audience: "pdp", Algorithms: []string{"EdDSA"},
			Principal: &PrincipalClaim{Type: "Agent", Claim: "sub"}, Exchange: &Exchange{Kind: AccessToken},
			Grant: Grant{Tenants: []string{"*"}, Permissions: []Permission{Capability}},
		}
		test.change(&i)
		_, err := NewJWT([]JWTIssuer{i}, JWTOptions{})
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

func byGroup(p Permission) func(*JWTIssuer) {
	return func(i *JWTIssuer) {
		i.Grant, i.Grants = Grant{}, []ClaimGrant{{Claim: "groups", Value: "x", Permissions: []Permission{p}, Tenants: []string{"*"}}}
	}
}

// TestIsSPIFFE: a SPIFFE ID is of a workload in the very trust domain.
func TestIsSPIFFE(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{
		"/a": true, "/ns/a-b/sa/c_d.e": true, "/...": true, "/..a": true, "/.a": true, "/a..": true,
		"": false, "/": false, "/a/": false, "//a": false, "/.": false, "/..": false, "/a/../b": false, "/a b": false, "/a%20": false,
		"/a?b": false, "/a#b": false, "/é": false, ":8080/a": false, ".evil/a": false, "/a\n": false,
	} {
		if got := isSPIFFE("spiffe://example.org"+path, "example.org"); got != want {
			t.Errorf("%q: got %v", path, got)
		}
	}
}
