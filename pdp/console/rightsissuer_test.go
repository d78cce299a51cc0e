package console_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/go-json-experiment/json"

	"policy-service/pdp/server/auth"
)

const rightsClient = "console"

// rightsIssuer is an OpenID provider where whoever comes is whom the test says.
type rightsIssuer struct {
	*httptest.Server
	t      testing.TB
	now    func() time.Time
	signer jose.Signer
	public jose.JSONWebKeySet

	mu    sync.Mutex
	codes map[string]rightsCode
}

// rightsCode is what a code stands for: who has logged in, and what the console asked for.
type rightsCode struct {
	sub    string
	groups []string
	asked  url.Values
}

func openRightsIssuer(t testing.TB, now func() time.Time) *rightsIssuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	rightsMust(t, err)
	i := &rightsIssuer{t: t, now: now, codes: map[string]rightsCode{}}
	i.public.Keys = []jose.JSONWebKey{{Key: key.Public(), KeyID: "1", Algorithm: "RS256", Use: "sig"}}
	i.signer, err = jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: key, KeyID: "1"}}, nil)
	rightsMust(t, err)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		i.answer(w, map[string]any{
			"issuer": i.URL, "authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token", "jwks_uri": i.URL + "/jwks",
			"response_types_supported": []string{"code"}, "subject_types_supported": []string{"public"}, "id_token_signing_alg_values_supported": []string{"RS256"},
		})
	})
	mux.HandleFunc("GET /jwks", func(w http.ResponseWriter, _ *http.Request) { i.answer(w, i.public) })
	mux.HandleFunc("POST /token", i.token)
	i.Server = httptest.NewServer(mux)
	t.Cleanup(i.Close)
	return i
}

func (i *rightsIssuer) answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.MarshalWrite(w, v); err != nil {
		i.t.Error(err)
	}
}

func (i *rightsIssuer) token(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	code, ok := i.codes[r.FormValue("code")]
	delete(i.codes, r.FormValue("code"))
	i.mu.Unlock()
	proof := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	if !ok || base64.RawURLEncoding.EncodeToString(proof[:]) != code.asked.Get("code_challenge") || r.FormValue("redirect_uri") != code.asked.Get("redirect_uri") {
		http.Error(w, `{"error":"invalid_grant"}`, http.StatusBadRequest)
		return
	}
	now := i.now()
	idToken, err := jwt.Signed(i.signer).Claims(map[string]any{
		"iss": i.URL, "aud": rightsClient, "sub": code.sub, "groups": code.groups, "nonce": code.asked.Get("nonce"),
		"iat": jwt.NewNumericDate(now), "exp": jwt.NewNumericDate(now.Add(time.Hour)),
	}).Serialize()
	if err != nil {
		i.t.Error(err)
	}
	i.answer(w, map[string]any{"access_token": "none", "token_type": "Bearer", "id_token": idToken})
}

// config is the provider as a console knows it. The grants are those of [rightsPeople].
func (i *rightsIssuer) config() *auth.OIDC {
	grant := func(group string, tenant string, permissions ...auth.Permission) auth.ClaimGrant {
		return auth.ClaimGrant{Claim: "groups", Value: group, Permissions: permissions, Tenants: []string{tenant}}
	}
	return &auth.OIDC{
		Issuer: i.URL, ClientID: rightsClient, Principal: &auth.PrincipalClaim{Type: "user", Claim: "sub"},
		Grants: []auth.ClaimGrant{
			grant("approvers", "default", auth.Approve), grant("auditors", "default", auth.LogRead), grant("acme", "acme", auth.Approve),
		},
	}
}

// logIn has a person log in, who goes to the provider and comes back.
func (i *rightsIssuer) logIn(b *rightsWeb, p rightsPerson) rightsPage {
	i.t.Helper()
	sent := b.get("/login/oidc")
	to, found := strings.CutPrefix(sent.location, "/authorize?")
	asked, err := url.ParseQuery(to)
	if sent.status != http.StatusSeeOther || !found || err != nil || asked.Get("client_id") != rightsClient || asked.Get("code_challenge_method") != "S256" {
		i.t.Fatalf("the browser is sent to %d %s", sent.status, sent.location)
	}
	code := fmt.Sprintf("code-%s-%s", p.principal, rand.Text())
	i.mu.Lock()
	i.codes[code] = rightsCode{p.principal, p.groups, asked}
	i.mu.Unlock()
	return b.get("/login/callback?" + url.Values{"state": {asked.Get("state")}, "code": {code}}.Encode())
}
