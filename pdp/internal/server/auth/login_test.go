package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"policy-service/evaluation"
	"policy-service/pdp/pdptest/clock"
)

const loginClient, loginNonce = "console", "n-0S6_WzA2Mj"

// loginDesk is a service with a console, whose issuer answers on a port.
type loginDesk struct {
	*Authenticator
	keys     APIKeys
	clock    *clock.Clock
	provider *provider
	signer   signer
	config   OIDC
}

func newLoginDesk(t *testing.T, grants ...ClaimGrant) *loginDesk {
	t.Helper()
	d := &loginDesk{clock: clock.New(), signer: newSigner(t, "1", jose.RS256)}
	d.provider = newProvider(t, httptest.NewServer, d.signer)
	d.config = OIDC{Issuer: d.provider.URL, ClientID: loginClient, Principal: &PrincipalClaim{Type: "User", Claim: "email"}, Grants: grants}
	d.keys = open(t, t.TempDir(), d.clock)
	d.Authenticator = &Authenticator{Keys: d.keys}
	d.reconfigure(t)
	return d
}

// reconfigure makes what config says count.
func (d *loginDesk) reconfigure(t *testing.T) {
	t.Helper()
	console, err := NewConsole(d.config, d.Console, JWTOptions{Now: d.clock.Now})
	must(t, err)
	d.Authenticator = &Authenticator{Keys: d.Keys, JWT: d.JWT, Console: console}
}

func groupGrant(value, permissions, tenants string) ClaimGrant {
	g := ClaimGrant{Claim: "groups", Value: value, Tenants: strings.Fields(tenants)}
	for p := range strings.FieldsSeq(permissions) {
		g.Permissions = append(g.Permissions, Permission(p))
	}
	return g
}

// idClaims are those of an ID token of alice's, with some changed; nil takes one away.
func (d *loginDesk) idClaims(changes map[string]any) map[string]any {
	all := map[string]any{"iss": d.provider.URL, "aud": loginClient, "nonce": loginNonce, "email": "alice@example.com", "groups": "approvers"}
	for name, value := range changes {
		all[name] = value
	}
	return claims(d.clock, all)
}

func (d *loginDesk) idToken(t *testing.T, changes map[string]any) string {
	t.Helper()
	return d.signer.token(t, d.idClaims(changes), nil)
}

func (d *loginDesk) login(t *testing.T, changes map[string]any) Login {
	t.Helper()
	l, err := d.LogInByToken(t.Context(), d.idToken(t, changes), loginNonce)
	if err != nil {
		t.Fatalf("%v: %v", changes, err)
	}
	return l
}

// asks is who a request with a login comes from.
func (d *loginDesk) asks(l Login, change ...func(*http.Request)) (Caller, error) {
	r := httptest.NewRequest(http.MethodGet, "/v1/me", nil)
	r = r.WithContext(l.Context(r.Context()))
	for _, c := range change {
		c(r)
	}
	return d.Authenticate(r)
}

func mustRefuseLogin(t *testing.T, name string, caller Caller, err error) {
	t.Helper()
	refusal := (*Refusal)(nil)
	if !errors.As(err, &refusal) || refusal.Kind != ErrUnauthenticated || !strings.Contains(refusal.Detail, "; ") || fmt.Sprintf("%+v", caller) != fmt.Sprintf("%+v", Caller{}) {
		t.Errorf("%s: got %+v, %v; want it refused", name, caller, err)
	}
}

func TestLoginByKey(t *testing.T) {
	t.Parallel()
	d := newLoginDesk(t, groupGrant("approvers", "approve", "acme"))
	secret := addApprover(t, d.keys, "mia", mia)
	l, err := d.LogInByKey(secret)
	must(t, err)
	if text := fmt.Sprintf("%#v", l); strings.Contains(text, secret[len(secret)-20:]) || !l.Ends().IsZero() {
		t.Errorf("the login is %s and ends %v; want no secret, and no end of its own", text, l.Ends())
	}
	caller, err := d.asks(l)
	if want := (evaluation.Way{Via: evaluation.ViaConsole}); err != nil || caller.Name != "key:mia" || caller.Principal != mia || !caller.May(Approve) || caller.Way != want {
		t.Errorf("got %+v, %v", caller, err)
	}
	for name, change := range map[string]func(*http.Request){
		"with Authorization":       func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+secret) },
		"with empty Authorization": func(r *http.Request) { r.Header["Authorization"] = []string{} },
		"with Approver-Token":      func(r *http.Request) { r.Header.Set(ApproverToken, d.idToken(t, nil)) },
		"of nobody":                func(r *http.Request) { *r = *r.WithContext(Login{}.Context(r.Context())) },
		"of another key's hash": func(r *http.Request) {
			other := l
			other.keyHash[0]++
			*r = *r.WithContext(other.Context(r.Context()))
		},
		"of an unknown key": func(r *http.Request) {
			other := l
			other.keyID = "unknown"
			*r = *r.WithContext(other.Context(r.Context()))
		},
	} {
		caller, err := d.asks(l, change)
		mustRefuseLogin(t, name, caller, err)
	}
	must(t, d.keys.Revoke("mia"))
	caller, err = d.asks(l)
	mustRefuseLogin(t, "revoked between two requests", caller, err)
	_, err = d.LogInByKey(secret)
	mustRefuseLogin(t, "login with a revoked key", Caller{}, err)
}

// A key that another process revokes ends the login within the second in which it ends everywhere.
func TestLoginEndsWithAKeyRevokedElsewhere(t *testing.T) {
	t.Parallel()
	dir, c := t.TempDir(), clock.New()
	d := &loginDesk{Authenticator: &Authenticator{Keys: open(t, dir, c)}}
	command := open(t, dir, c)
	secret := addApprover(t, command, "mia", mia)
	c.Advance(checkAtMost)
	l, err := d.LogInByKey(secret)
	must(t, err)
	must(t, command.Revoke("mia"))
	c.Advance(checkAtMost)
	caller, err := d.asks(l)
	mustRefuseLogin(t, "revoked elsewhere", caller, err)
}

func TestKeysThatLogNobodyIn(t *testing.T) {
	t.Parallel()
	d := newLoginDesk(t, groupGrant("approvers", "approve", "acme"))
	good := addApprover(t, d.keys, "mia", mia)
	gateway, err := d.keys.Add(KeySpec{Name: "gateway", Grant: Grant{Permissions: []Permission{Decide, Relay}}})
	must(t, err)
	for name, secret := range map[string]string{
		"nothing": "", "a gateway's": gateway, "cut": good[:len(good)-1], "of other bytes": good[:len(good)-1] + "*",
		"with a space": " " + good, "an id": KeyID(good), "a token": d.idToken(t, nil),
	} {
		l, err := d.LogInByKey(secret)
		mustRefuseLogin(t, name, Caller{}, err)
		caller, err := d.asks(l)
		mustRefuseLogin(t, name+", its login", caller, err)
	}
	none := &loginDesk{Authenticator: &Authenticator{}}
	_, err = none.LogInByKey(good)
	mustRefuseLogin(t, "without keys", Caller{}, err)
	_, err = none.LogInByToken(t.Context(), d.idToken(t, nil), loginNonce)
	mustRefuseLogin(t, "without an issuer", Caller{}, err)
	l := d.login(t, nil)
	caller, err := none.asks(l)
	mustRefuseLogin(t, "of an issuer, without one", caller, err)
	caller, err = none.asks(Login{})
	mustRefuseLogin(t, "of nobody, without credentials", caller, err)
}

func TestLoginByToken(t *testing.T) {
	t.Parallel()
	d := newLoginDesk(t, groupGrant("approvers", "approve", "acme"))
	for name, changes := range map[string]map[string]any{
		"plain":             nil,
		"a list of groups":  {"groups": []string{"staff", "approvers"}},
		"azp":               {"azp": loginClient},
		"several audiences": {"aud": []string{"other", loginClient}, "azp": loginClient},
		"typ of Keycloak":   {"typ": "ID"},
		"a long list":       {"groups": append(strings.Fields(strings.Repeat("g ", 300)), "approvers")},
	} {
		l := d.login(t, changes)
		caller, err := d.asks(l)
		if err != nil || caller.Name != "jwt:"+d.provider.URL+"#alice" || caller.Principal != (Principal{"User", "alice@example.com"}) ||
			caller.Way != (evaluation.Way{Via: evaluation.ViaConsole}) || !caller.May(Approve) || !caller.Serves("acme") || caller.Serves("default") || caller.AllTenants {
			t.Errorf("%s: got %+v, %v", name, caller, err)
		}
		if text := fmt.Sprintf("%+v", l); strings.Contains(text, loginNonce) {
			t.Errorf("%s: the login is %s, and keeps what nobody reads", name, text)
		}
	}
	l := d.login(t, nil)
	if want := d.clock.Now().Add(longestLogin); !l.Ends().Equal(want) {
		t.Errorf("it ends %v, want %v", l.Ends(), want)
	}
	d.clock.Advance(longestLogin - 1)
	if _, err := d.asks(l); err != nil {
		t.Errorf("before its end: %v", err)
	}
	d.clock.Advance(1)
	caller, err := d.asks(l)
	mustRefuseLogin(t, "after its end", caller, err)
}

func TestIDTokensThatAreRefused(t *testing.T) {
	t.Parallel()
	d := newLoginDesk(t, groupGrant("approvers", "approve", "acme"))
	d.login(t, nil) // or all of what follows would show nothing
	stranger := newStranger(t, jose.RS256)
	elliptic := newSigner(t, "2", jose.ES256)
	d.provider.set(func() { d.provider.keys = append(d.provider.keys, elliptic) })
	public := asJSON(t, d.signer.public())
	with := func(name string, value any) string { return d.idToken(t, map[string]any{name: value}) }
	for name, token := range map[string]string{
		"nothing":                    "",
		"alg none":                   unsigned(t, d.idClaims(nil), "none") + ".",
		"HS256 with the public key":  sign(t, jose.SigningKey{Algorithm: jose.HS256, Key: jose.JSONWebKey{Key: public, KeyID: "1"}}, d.idClaims(nil), nil),
		"PS256, which is not listed": signer{"1", jose.PS256, d.signer.private}.token(t, d.idClaims(nil), nil),
		"ES256, which is not listed": elliptic.token(t, d.idClaims(nil), nil),
		"signed by a stranger":       stranger.token(t, d.idClaims(nil), header{"jwk": stranger.public()}),
		"typ of an access token":     d.signer.token(t, d.idClaims(nil), header{"typ": "at+jwt"}),
		"typ of a logout token":      d.signer.token(t, d.idClaims(nil), header{"typ": "logout+jwt"}),
		"an access token by a claim": with("typ", "Bearer"),
		"by another claim":           with("token_use", "access"),
		"without a nonce":            with("nonce", nil),
		"an empty nonce":             with("nonce", ""),
		"another nonce":              with("nonce", loginNonce+"x"),
		"a nonce that is a list":     with("nonce", []string{loginNonce}),
		"another client":             with("aud", "other"),
		"no client":                  with("aud", nil),
		"another azp":                with("azp", "other"),
		"azp is a list":              with("azp", []string{loginClient}),
		"azp is null":                signText(t, d.signer, strings.Replace(string(asJSON(t, d.idClaims(nil))), "{", `{"azp":null,`, 1)),
		"audiences without azp":      with("aud", []string{loginClient, "other"}),
		"another issuer":             with("iss", testIssuer),
		"expired":                    with("exp", d.clock.Now().Add(-clockSkew-time.Second).Unix()),
		"no exp":                     with("exp", nil),
		"not valid yet":              with("nbf", d.clock.Now().Add(clockSkew+time.Second).Unix()),
		"no sub":                     with("sub", nil),
		"sub of two lines":           with("sub", "a\nb"),
		"groups twice":               signText(t, d.signer, strings.Replace(string(asJSON(t, d.idClaims(nil))), "{", `{"groups":"staff",`, 1)),
		"no UTF-8":                   signText(t, d.signer, strings.Replace(string(asJSON(t, d.idClaims(nil))), "approvers", "approvers\xff", 1)),
		"too large":                  with("filler", strings.Repeat("x", maxIDToken)),
	} {
		l, err := d.LogInByToken(t.Context(), token, loginNonce)
		mustRefuseLogin(t, name, Caller{}, err)
		caller, err := d.asks(l)
		mustRefuseLogin(t, name+", its login", caller, err)
	}
	for name, token := range map[string]string{"an empty nonce": d.idToken(t, nil), "two empty ones": with("nonce", ""), "none at all": with("nonce", nil)} {
		_, err := d.LogInByToken(t.Context(), token, "")
		mustRefuseLogin(t, name+" wanted", Caller{}, err)
	}
}

// What somebody may do is what the configuration in force says, and a login by what is configured no more is none.
func TestLoginsFollowTheConfiguration(t *testing.T) {
	t.Parallel()
	d := newLoginDesk(t, groupGrant("approvers", "approve", "acme"))
	l := d.login(t, map[string]any{"groups": []string{"approvers", "auditors"}})
	fetched := d.provider.fetches.Load()
	d.config.Grants = []ClaimGrant{groupGrant("auditors", "log.read", "default")}
	d.config.Principal = &PrincipalClaim{Type: "Person", Claim: "email"}
	d.reconfigure(t)
	caller, err := d.asks(l)
	if err != nil || caller.May(Approve) || !caller.May(LogRead) || caller.Serves("acme") || !caller.Serves("default") || caller.Principal.Type != "Person" {
		t.Errorf("got %+v, %v; want what the new grants say", caller, err)
	}
	d.config.Grants = []ClaimGrant{groupGrant("nobody", "log.read", "default")}
	d.reconfigure(t)
	if caller, err := d.asks(l); err != nil || len(caller.Permissions)+len(caller.Tenants) > 0 || caller.AllTenants || caller.Name == "" {
		t.Errorf("got %+v, %v; want somebody who may do nothing", caller, err)
	}
	d.login(t, nil)
	if n := d.provider.fetches.Load(); n != fetched {
		t.Errorf("the keys were fetched again: %d times, and %d before", n, fetched)
	}
	for name, change := range map[string]func(){
		"another client": func() { d.config.ClientID = "other" },
		"another issuer": func() { d.config.Issuer, d.config.ClientID = testIssuer, loginClient },
	} {
		change()
		d.reconfigure(t)
		caller, err := d.asks(l)
		mustRefuseLogin(t, name, caller, err)
	}
	d.Authenticator = &Authenticator{Keys: d.Keys}
	caller, err = d.asks(l)
	mustRefuseLogin(t, "no issuer", caller, err)
}

// A token by which somebody logs in opens nothing else, whoever else it is for.
func TestIDTokensAreNoBearerTokens(t *testing.T) {
	t.Parallel()
	d := newLoginDesk(t, groupGrant("approvers", "approve", "acme"))
	key, err := d.keys.Add(KeySpec{Name: "gateway", Grant: Grant{Tenants: []string{"*"}, Permissions: []Permission{Relay}}})
	must(t, err)
	ask := func(authorization, approver string) (Caller, error) {
		r := httptest.NewRequest(http.MethodGet, "/v1/approvals", nil)
		r.Header.Set("Authorization", "Bearer "+authorization)
		if approver != "" {
			r.Header.Set(ApproverToken, approver)
		}
		return d.Authenticate(r)
	}
	audiences := map[string]any{
		"the client": loginClient, "the service, too": []string{loginClient, testAudience}, "the gateway, too": []string{"gateway", loginClient},
	}
	for name, audience := range audiences {
		token := d.idToken(t, map[string]any{"aud": audience, "azp": loginClient})
		d.JWT = nil
		for _, approver := range []string{"", token} {
			caller, err := ask(token, approver)
			mustRefuseLogin(t, name+", without auth.jwt", caller, err)
		}
		entry, relayed := decider("RS256"), decider("RS256")
		entry.Issuer, relayed.Issuer = d.provider.URL, d.provider.URL
		relayed.Audience, relayed.Principal, relayed.Permissions, relayed.RelayedBy = "gateway", d.config.Principal, []Permission{Approve}, []string{"gateway"}
		if d.JWT, err = NewJWT([]JWTIssuer{entry, relayed}, JWTOptions{Now: d.clock.Now}); err != nil {
			t.Fatal(err)
		}
		caller, err := ask(token, "")
		mustRefuseLogin(t, name, caller, err)
		caller, err = ask(key, token)
		mustRefuseLogin(t, name+" beside a key", caller, err)
	}
	// And those for the service alone are good there still, and log nobody in.
	bearer := d.idToken(t, map[string]any{"aud": testAudience})
	if caller, err := ask(bearer, ""); err != nil || !caller.May(Decide) || caller.Way != (evaluation.Way{}) {
		t.Errorf("got %+v, %v", caller, err)
	}
	_, err = d.LogInByToken(t.Context(), bearer, loginNonce)
	mustRefuseLogin(t, "a token for the service", Caller{}, err)
}

func TestLoginsWhileKeysCannotBeRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := newLoginDesk(t, groupGrant("approvers", "approve", "acme"))
	d.keys = open(t, dir, d.clock)
	d.Keys = d.keys
	secret := addApprover(t, d.keys, "mia", mia)
	byKey, err := d.LogInByKey(secret)
	must(t, err)
	byToken := d.login(t, nil)
	must(t, os.WriteFile(filepath.Join(dir, KeyFile), []byte("{"), 0o600))
	d.clock.Advance(checkAtMost)
	for name, l := range map[string]Login{"key": byKey, "token": byToken} {
		caller, err := d.asks(l)
		mustRefuseLogin(t, name, caller, err)
	}
	_, err = d.LogInByKey(secret)
	mustRefuseLogin(t, "login by key", Caller{}, err)
	_, err = d.LogInByToken(context.Background(), d.idToken(t, nil), loginNonce)
	mustRefuseLogin(t, "login by token", Caller{}, err)
}

func TestVotesOfLoginsStayInForce(t *testing.T) {
	t.Parallel()
	d := newLoginDesk(t, groupGrant("approvers", "approve", "acme"), groupGrant("auditors", "log.read", "*"))
	name := "jwt:" + d.provider.URL + "#alice"
	if !d.InForce("acme", name) || d.InForce("default", name) || d.InForce("acme", "jwt:"+testIssuer+"#alice") || d.RelayInForce("acme", name, "key:gateway") {
		t.Error("votes do not count as the grants say")
	}
	if !(&Authenticator{Console: d.Console}).Configured() {
		t.Error("a console does not close the door")
	}
	d.config.Grants = d.config.Grants[1:]
	d.reconfigure(t)
	if d.InForce("acme", name) {
		t.Error("a vote counts that nobody may cast any more")
	}
}
