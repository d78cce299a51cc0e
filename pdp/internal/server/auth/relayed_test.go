package auth

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"policy-service/evaluation"
	"policy-service/pdp/pdptest/clock"
)

// relay is a service that knows two gateways, a console, a PEP and the people of two issuers.
type relay struct {
	*Authenticator
	keys            APIKeys
	clock           *clock.Clock
	key             map[string]string
	issuer, another signer
}

const otherIssuer = "https://other.example"

// entries of auth.jwt: tokens for the service itself, and those that each gateway brings.
func newRelay(t *testing.T) *relay {
	t.Helper()
	dir := t.TempDir()
	r := &relay{
		clock:   clock.New(),
		key:     map[string]string{},
		issuer:  newSigner(t, "1", jose.ES256),
		another: newSigner(t, "2", jose.ES256),
	}
	r.keys = open(t, dir, r.clock)
	for name, spec := range map[string]KeySpec{
		"pep":       {},
		"gateway":   {Grant: Grant{Tenants: []string{"*"}, Permissions: []Permission{Decide, Search, Request, Relay}}},
		"gateway-b": {Grant: Grant{Tenants: []string{"*"}, Permissions: []Permission{Decide, Relay}}},
		"narrow":    {Grant: Grant{Tenants: []string{"acme"}, Permissions: []Permission{Relay}}},
		"console":   {Via: evaluation.ViaConsole, Grant: Grant{Tenants: []string{"*"}, Permissions: []Permission{Relay}}},
		"mia":       {Principal: mia, Grant: Grant{Permissions: []Permission{Approve}}},
	} {
		spec.Name = name
		secret, err := r.keys.Add(spec)
		must(t, err)
		r.key[name] = secret
	}
	file := filepath.Join(dir, "jwks.json")
	writeJWKS(t, file, r.issuer)
	otherFile := filepath.Join(dir, "other.json")
	writeJWKS(t, otherFile, r.another)
	entry := func(audience string, by ...string) JWTIssuer {
		return JWTIssuer{
			Issuer: testIssuer, Audience: audience, JWKSFile: file, Algorithms: []string{"ES256"}, RelayedBy: by,
			Principal: &PrincipalClaim{Type: "User", Claim: "sub"},
			Grant:     Grant{Tenants: []string{"default", "acme"}, Permissions: []Permission{Approve}},
		}
	}
	other := entry("gateway", "gateway")
	other.Issuer, other.JWKSFile = otherIssuer, otherFile
	j, err := NewJWT([]JWTIssuer{entry(testAudience), entry("gateway", "gateway", "console", "narrow"), entry("gateway-b", "gateway-b"), other},
		JWTOptions{Now: r.clock.Now})
	must(t, err)
	r.Authenticator = &Authenticator{Keys: r.keys, JWT: j}
	return r
}

// token is a token of alice's for some audiences.
func (r *relay) token(t *testing.T, changes map[string]any, audience ...string) string {
	t.Helper()
	all := map[string]any{"aud": audience}
	for name, value := range changes {
		all[name] = value
	}
	return r.issuer.token(t, claims(r.clock, all), nil)
}

func (r *relay) ask(authorization string, tokens ...string) (Caller, error) {
	q := httptest.NewRequest(http.MethodPost, "/", nil)
	if authorization != "" {
		q.Header.Set("Authorization", authorization)
	}
	for _, token := range tokens {
		q.Header.Add("approver-token", token)
	}
	return r.Authenticate(q)
}

// refusedAs reports whether nobody was found, with a text that quotes nothing.
func refusedAs(caller Caller, err, kind error, detail string) bool {
	return err != nil && errors.Is(err, kind) && strings.Contains(err.Error(), detail) && caller.Name == "" && len(caller.Permissions) == 0
}

func TestAPersonBesideAGateway(t *testing.T) {
	t.Parallel()
	r := newRelay(t)
	for _, test := range []struct {
		key, audience string
		way           evaluation.Way
		tenants       string
	}{
		{"gateway", "gateway", evaluation.Way{Via: evaluation.ViaForm, Gateway: "key:gateway"}, "default acme"},
		{"gateway-b", "gateway-b", evaluation.Way{Via: evaluation.ViaForm, Gateway: "key:gateway-b"}, "default acme"},
		{"console", "gateway", evaluation.Way{Via: evaluation.ViaConsole, Gateway: "key:console"}, "default acme"},
		{"narrow", "gateway", evaluation.Way{Via: evaluation.ViaForm, Gateway: "key:narrow"}, "acme"},
	} {
		caller, err := r.ask("Bearer "+r.key[test.key], r.token(t, nil, test.audience))
		if err != nil || caller.Name != "jwt:"+testIssuer+"#alice" || caller.Principal != (Principal{"User", "alice"}) || caller.Way != test.way ||
			!caller.May(Approve) || caller.May(Decide) || caller.May(Relay) || caller.AllTenants || strings.Join(caller.Tenants, " ") != test.tenants {
			t.Errorf("%s: got %+v, %v", test.key, caller, err)
		}
		// The key alone is the program, and says nothing.
		if alone, err := r.ask("Bearer " + r.key[test.key]); err != nil || alone.Name != "key:"+test.key || alone.Way != (evaluation.Way{}) || alone.May(Approve) || !alone.May(Relay) {
			t.Errorf("%s alone: got %+v, %v", test.key, alone, err)
		}
	}
	own, err := r.ask("Bearer " + r.token(t, nil, testAudience))
	if err != nil || own.Way != (evaluation.Way{}) || !own.May(Approve) {
		t.Errorf("by itself: got %+v, %v", own, err)
	}
}

// A person beside a gateway has the tenants that both have, and all only if both have all.
func TestTenantsBesideAGateway(t *testing.T) {
	t.Parallel()
	r := newRelay(t)
	for _, test := range []struct {
		key    string
		person []string
		want   []string // of default, acme and other
	}{
		{"gateway", []string{"*"}, []string{"default", "acme", "other"}},
		{"gateway", []string{"acme"}, []string{"acme"}},
		{"narrow", []string{"*"}, []string{"acme"}},
		{"narrow", []string{"acme", "other"}, []string{"acme"}},
		{"narrow", []string{"default"}, nil},
	} {
		r.JWT.issuers[1].Tenants = test.person
		caller, err := r.ask("Bearer "+r.key[test.key], r.token(t, nil, "gateway"))
		if err != nil || caller.AllTenants != (len(test.want) == 3) {
			t.Errorf("%s, %v: got %+v, %v", test.key, test.person, caller, err)
		}
		for _, tenant := range []string{"default", "acme", "other"} {
			want := slices.Contains(test.want, tenant)
			if caller.Serves(tenant) != want || r.RelayInForce(tenant, caller.Name, "key:"+test.key) != want {
				t.Errorf("%s, %v: %s is served %t", test.key, test.person, tenant, caller.Serves(tenant))
			}
		}
	}
}

// A token that was given to a gateway's client is no credential here, whatever else it is for.
func TestATokenForAGatewayByItself(t *testing.T) {
	t.Parallel()
	r := newRelay(t)
	for name, audience := range map[string][]string{
		"for the gateway":              {"gateway"},
		"for two gateways":             {"gateway", "gateway-b"},
		"for the service as well":      {testAudience, "gateway"},
		"for the service, and another": {"gateway-b", testAudience, "x"},
	} {
		token := r.token(t, nil, audience...)
		if caller, err := r.ask("Bearer " + token); !refusedAs(caller, err, ErrUnauthenticated, "the token is for a gateway") {
			t.Errorf("%s: got %+v, %v", name, caller, err)
		}
		for _, scheme := range []string{"Basic", "Token", "bearer,"} {
			if caller, err := r.ask(scheme + " " + token); err == nil {
				t.Errorf("%s, %s: got %+v", name, scheme, caller)
			}
		}
	}
}

// What is not a good token of a person beside a key that brings it is refused, and never passed over.
func TestWhatNoGatewayBrings(t *testing.T) {
	t.Parallel()
	r := newRelay(t)
	good, forB := r.token(t, nil, "gateway"), r.token(t, nil, "gateway-b")
	bearer := func(name string) string { return "Bearer " + r.key[name] }
	const keyed, header = "counts only beside Authorization: Bearer", "in the header Approver-Token, "
	id := KeyID(r.key["gateway"])
	basic := httptest.NewRequest(http.MethodGet, "/", nil)
	basic.SetBasicAuth(id, r.key["gateway"])
	past := r.clock.Now().Add(-time.Hour).Unix()
	stranger := newSigner(t, "1", jose.ES256)
	for name, test := range map[string]struct {
		authorization string
		tokens        []string
		kind          error
		detail        string
	}{
		"a key that does not relay":   {bearer("pep"), []string{good}, ErrForbidden, keyed},
		"an approver's key":           {bearer("mia"), []string{good}, ErrForbidden, keyed},
		"a token of one's own":        {"Bearer " + r.token(t, nil, testAudience), []string{good}, ErrForbidden, keyed},
		"the same token twice":        {"Bearer " + good, []string{good}, ErrUnauthenticated, "the token is for a gateway"},
		"no Authorization":            {"", []string{good}, ErrUnauthenticated, "this needs a credential"},
		"a wrong key":                 {bearer("gateway") + "x", []string{good}, ErrUnauthenticated, "the API key is not valid"},
		"Basic":                       {basic.Header.Get("Authorization"), []string{good}, ErrForbidden, keyed},
		"given twice":                 {bearer("gateway"), []string{good, good}, ErrUnauthenticated, header + "it is given more than once"},
		"given twice in one":          {bearer("gateway"), []string{good + "," + good}, ErrUnauthenticated, header + "it cannot be read"},
		"empty":                       {bearer("gateway"), []string{""}, ErrUnauthenticated, header + "it cannot be read"},
		"with its scheme":             {bearer("gateway"), []string{"Bearer " + good}, ErrUnauthenticated, header + "it cannot be read"},
		"a key of an approver":        {bearer("gateway"), []string{r.key["mia"]}, ErrUnauthenticated, header + "an API key is no token"},
		"the gateway's own key":       {bearer("gateway"), []string{r.key["gateway"]}, ErrUnauthenticated, header + "an API key is no token"},
		"a token for the service":     {bearer("gateway"), []string{r.token(t, nil, testAudience)}, ErrUnauthenticated, header + "the token is not for the gateway"},
		"another gateway's":           {bearer("gateway"), []string{forB}, ErrUnauthenticated, header + "the token is not for the gateway"},
		"beside another gateway":      {bearer("gateway-b"), []string{good}, ErrUnauthenticated, header + "the token is not for the gateway"},
		"for nobody here":             {bearer("gateway"), []string{r.token(t, nil, "x")}, ErrUnauthenticated, header + "the token is for another audience"},
		"expired":                     {bearer("gateway"), []string{r.token(t, map[string]any{"exp": past}, "gateway")}, ErrUnauthenticated, header + "the token has expired"},
		"without an end":              {bearer("gateway"), []string{r.token(t, map[string]any{"exp": nil}, "gateway")}, ErrUnauthenticated, header + "the token never expires"},
		"of nobody":                   {bearer("gateway"), []string{r.token(t, map[string]any{"sub": nil}, "gateway")}, ErrUnauthenticated, header + "the token does not say whose"},
		"of an issuer nobody knows":   {bearer("gateway"), []string{r.token(t, map[string]any{"iss": "https://evil.example"}, "gateway")}, ErrUnauthenticated, header + "the token is not valid here"},
		"of another issuer":           {bearer("gateway-b"), []string{r.another.token(t, claims(r.clock, map[string]any{"iss": otherIssuer, "aud": "gateway"}), nil)}, ErrUnauthenticated, header + "the token is not for the gateway"},
		"by another issuer's key":     {bearer("gateway"), []string{r.another.token(t, claims(r.clock, map[string]any{"aud": "gateway"}), nil)}, ErrUnauthenticated, header + "the token is not valid here"},
		"by nobody's key":             {bearer("gateway"), []string{stranger.token(t, claims(r.clock, map[string]any{"aud": "gateway"}), nil)}, ErrUnauthenticated, header + "the token is not valid here"},
		"unsigned":                    {bearer("gateway"), []string{strings.Join(strings.Split(good, ".")[:2], ".") + "."}, ErrUnauthenticated, header + "the token is not valid here"},
		"no token at all":             {bearer("gateway"), []string{"alice"}, ErrUnauthenticated, header + "the token is not valid here"},
		"a person's name":             {bearer("gateway"), []string{`User::"alice"`}, ErrUnauthenticated, header + "the token is not valid here"},
		"100 KB":                      {bearer("gateway"), []string{strings.Repeat("a", 100<<10)}, ErrUnauthenticated, header + "the token is not valid here"},
		"a good one, and then a name": {bearer("gateway"), []string{good, "alice"}, ErrUnauthenticated, header + "it is given more than once"},
	} {
		caller, err := r.ask(test.authorization, test.tokens...)
		if !refusedAs(caller, err, test.kind, test.detail) {
			t.Errorf("%s: got %+v, %v", name, caller, err)
			continue
		}
		var refused *Refusal
		if errors.As(err, &refused); strings.HasPrefix(test.detail, header) && !strings.Contains(refused.Challenge, `realm="Approver-Token"`) {
			t.Errorf("%s: the challenge is %s", name, refused.Challenge)
		}
	}
	// Nor does anything without credentials pass the header over.
	open := &Authenticator{}
	q := httptest.NewRequest(http.MethodGet, "http://localhost/", nil)
	q.Header.Set(ApproverToken, good)
	if caller, err := open.Authenticate(q); !refusedAs(caller, err, ErrForbidden, keyed) {
		t.Errorf("without credentials: got %+v, %v", caller, err)
	}
}

// A token for two gateways counts beside either, and for no third.
func TestATokenForTwoGateways(t *testing.T) {
	t.Parallel()
	r := newRelay(t)
	token := r.token(t, nil, "gateway-b", "gateway", testAudience)
	for name, counts := range map[string]bool{"gateway": true, "gateway-b": true, "console": true, "pep": false} {
		caller, err := r.ask("Bearer "+r.key[name], token)
		if (err == nil) != counts || counts && caller.Way.Gateway != "key:"+name {
			t.Errorf("beside %s: got %+v, %v", name, caller, err)
		}
	}
}

// What was said through a gateway counts while both may still say it.
func TestRelayInForce(t *testing.T) {
	t.Parallel()
	r := newRelay(t)
	const alice = "jwt:" + testIssuer + "#alice"
	for name, test := range map[string]struct {
		tenant, caller, gateway string
		want                    bool
	}{
		"as it was said":          {"default", alice, "key:gateway", true},
		"by the console":          {"acme", alice, "key:console", true},
		"in no tenant of the key": {"default", alice, "key:narrow", false},
		"in no tenant of hers":    {"other", alice, "key:gateway", false},
		"by a PEP":                {"default", alice, "key:pep", false},
		"by no key":               {"default", alice, "mtls:gateway", false},
		"by a key without a name": {"default", alice, "key:", false},
		"by nobody":               {"default", alice, "", false},
		"of nobody known":         {"default", "jwt:https://evil.example#alice", "key:gateway", false},
		"of a key":                {"default", "key:mia", "key:gateway", false},
		"of another's people":     {"default", "jwt:" + otherIssuer + "#alice", "key:gateway-b", false},
	} {
		if got := r.RelayInForce(test.tenant, test.caller, test.gateway); got != test.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
	if !r.InForce("default", alice) {
		t.Error("her own token may not approve")
	}
	onlyRelayed := &Authenticator{Keys: r.Keys, JWT: &JWT{issuers: r.JWT.issuers[1:]}}
	if onlyRelayed.InForce("default", alice) || !onlyRelayed.RelayInForce("default", alice, "key:gateway") {
		t.Error("where only a gateway brings her tokens, one counts without it, or not with it")
	}
	must(t, r.keys.Revoke("gateway"))
	if r.RelayInForce("default", alice, "key:gateway") || !r.RelayInForce("default", alice, "key:console") {
		t.Error("a revoked key relays, or its end took the other's")
	}
	if caller, err := r.ask("Bearer "+r.key["gateway"], r.token(t, nil, "gateway")); !refusedAs(caller, err, ErrUnauthenticated, "the API key is not valid") {
		t.Errorf("a revoked key brings a person: got %+v, %v", caller, err)
	}
}

func TestPersonsOfACaller(t *testing.T) {
	t.Parallel()
	of := evaluation.PersonOf
	entry := func(name, typ, claim string) issuer {
		return issuer{JWTIssuer: JWTIssuer{Issuer: name, Principal: &PrincipalClaim{Type: typ, Claim: claim}}}
	}
	known := &Authenticator{
		JWT:     &JWT{issuers: []issuer{entry("a", "User", "sub"), entry("b", "Agent", "sub"), entry("c", "User", "email"), {JWTIssuer: JWTIssuer{Issuer: "d"}}}},
		Console: &Console{tokens: &JWT{issuers: []issuer{entry("e", "User", "sub")}}},
	}
	alice := Principal{"User", "alice"}
	for _, test := range []struct {
		by     *Authenticator
		caller string
		entity Principal
		want   []string
	}{
		{&Authenticator{}, "jwt:" + testIssuer + "#alice#1", Principal{}, []string{of(testIssuer, "alice#1")}},
		{&Authenticator{}, "key:" + testIssuer + "#alice#1", alice, nil},
		{&Authenticator{}, "jwt:" + testIssuer, alice, nil},
		{&Authenticator{}, "mtls:alice", alice, nil},
		{&Authenticator{}, "", Principal{}, nil},
		{known, "key:k", alice, []string{of("a", "alice"), of("e", "alice")}},
		{known, "mtls:k", alice, []string{of("a", "alice"), of("e", "alice")}},
		{known, "key:k", Principal{"Agent", "bot"}, []string{of("b", "bot")}},
		{known, "jwt:c#1", alice, []string{of("c", "1"), of("a", "alice"), of("e", "alice")}},
		{known, "key:k", Principal{}, nil},
	} {
		if got := test.by.Persons(test.caller, test.entity); !slices.Equal(got, test.want) {
			t.Errorf("%s %s: got %s, want %s", test.caller, test.entity, got, test.want)
		}
	}
}

func TestUnbarred(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		issuer JWTIssuer
		want   bool
	}{
		{JWTIssuer{}, false},
		{JWTIssuer{Principal: &PrincipalClaim{"User", "sub"}, RelayedBy: []string{"gw"}}, false},
		{JWTIssuer{Principal: &PrincipalClaim{"User", "email"}, RelayedBy: []string{"gw"}}, true},
		{JWTIssuer{Principal: &PrincipalClaim{"User", "email"}, Grant: Grant{Permissions: []Permission{Approve}}}, true},
		{JWTIssuer{Principal: &PrincipalClaim{"User", "email"}, Grant: Grant{Permissions: []Permission{Decide}}}, false},
	} {
		if got := test.issuer.Unbarred(); (got != nil) != test.want {
			t.Errorf("%+v: got %v", test.issuer, got)
		}
	}
}

// Nothing that would let a token or a key say more than it should is a configuration.
func TestConfigurationsOfRelays(t *testing.T) {
	t.Parallel()
	entry := func(change func(*JWTIssuer)) JWTIssuer {
		i := JWTIssuer{
			Issuer: testIssuer, Audience: "gateway", Algorithms: []string{"ES256"}, JWKSFile: "nowhere", RelayedBy: []string{"gateway"},
			Principal: &PrincipalClaim{Type: "User", Claim: "sub"},
			Grant:     Grant{Tenants: []string{"*"}, Permissions: []Permission{Approve}},
		}
		change(&i)
		return i
	}
	for want, change := range map[string]func(*JWTIssuer){
		"":                                      func(*JWTIssuer) {},
		"relayed_by is empty":                   func(i *JWTIssuer) { i.RelayedBy = []string{} },
		"relayed_by has what is no name":        func(i *JWTIssuer) { i.RelayedBy = []string{"psk_gateway"} },
		"or a name twice":                       func(i *JWTIssuer) { i.RelayedBy = []string{"a", "a"} },
		"good for approving alone":              func(i *JWTIssuer) { i.Permissions = []Permission{Approve, Decide} },
		"relayed_by is given":                   func(i *JWTIssuer) { i.Permissions = []Permission{Decide} },
		"permissions has approve, and nothing":  func(i *JWTIssuer) { i.Principal = nil },
		"permissions has relay, which only API": func(i *JWTIssuer) { i.RelayedBy, i.Permissions = nil, []Permission{Decide, Relay} },
	} {
		if err := entry(change).check(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v", want, err)
		}
	}
	if _, err := NewMTLS([]MTLSRule{{SAN: "a", Grant: Grant{Tenants: []string{"*"}, Permissions: []Permission{Relay}}}}, nil); err == nil || !strings.Contains(err.Error(), "which only API keys have") {
		t.Errorf("a certificate relays: %v", err)
	}
}
