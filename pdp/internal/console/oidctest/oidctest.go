// Package oidctest has an OpenID provider for tests, which answers on a port of loopback. Start with [Start]. It holds
// its client to what the code flow with PKCE demands, and a test can have it answer as no provider should.
package oidctest

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"maps"
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
)

// Client is the client_id that the provider knows.
const Client = "console"

// Provider is an OpenID provider with one client. [Provider.Change] changes its fields.
type Provider struct {
	// URL is the issuer.
	URL string
	// Person is the claims of whoever logs in next, such as sub.
	Person map[string]any
	// Secret is that of the client; "" is a public client.
	Secret string
	// Now is the clock.
	Now func() time.Time
	// Metadata changes what discovery answers; nil changes nothing.
	Metadata func(map[string]any)
	// Claims changes those of an ID token before it is signed; nil changes nothing.
	Claims func(map[string]any)
	// Token answers in place of the token endpoint; nil is the endpoint.
	Token http.HandlerFunc

	t       testing.TB
	changes sync.RWMutex // guards what stands above: it is read while a request is answered
	mu      sync.Mutex   // guards what follows
	codes   map[string]code
	asked   map[string]int // requests, by path
}

// code is an authorization code that was not exchanged yet.
type code struct {
	nonce, challenge, redirect string
	person                     map[string]any
}

// key is of all providers of a process: to make one takes a while.
var key = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })

// Start runs a provider until the test ends.
func Start(t testing.TB, now func() time.Time) *Provider {
	t.Helper()
	p := &Provider{t: t, Now: now, Person: map[string]any{"sub": "alice"}, codes: map[string]code{}, asked: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", p.discovery)
	mux.HandleFunc("GET /authorize", p.authorize)
	mux.HandleFunc("POST /token", p.token)
	mux.HandleFunc("GET /jwks", p.jwks)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.asked[r.URL.Path]++
		p.mu.Unlock()
		p.changes.RLock()
		defer p.changes.RUnlock()
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	p.URL = server.URL
	return p
}

// Change changes the provider while nobody is answered.
func (p *Provider) Change(change func(*Provider)) {
	p.changes.Lock()
	defer p.changes.Unlock()
	change(p)
}

// Asked is how often a path was asked for.
func (p *Provider) Asked(path string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[path]
}

func (p *Provider) discovery(w http.ResponseWriter, _ *http.Request) {
	about := map[string]any{
		"issuer": p.URL, "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token",
		"jwks_uri": p.URL + "/jwks", "response_types_supported": []string{"code"}, "subject_types_supported": []string{"public"},
		"id_token_signing_alg_values_supported": []string{"RS256"}, "authorization_response_iss_parameter_supported": true,
	}
	if p.Metadata != nil {
		p.Metadata(about)
	}
	p.answer(w, about)
}

// authorize logs the person in without a question, and sends the browser back with a code.
func (p *Provider) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	scopes := strings.Fields(q.Get("scope"))
	if q.Get("client_id") != Client || q.Get("response_type") != "code" || len(scopes) == 0 || scopes[0] != "openid" ||
		q.Get("code_challenge_method") != "S256" || len(q.Get("code_challenge")) != 43 ||
		len(q.Get("state")) < 22 || len(q.Get("nonce")) < 22 {
		http.Error(w, "not a request of a careful client", http.StatusBadRequest)
		return
	}
	to, err := url.Parse(q.Get("redirect_uri"))
	if err != nil {
		http.Error(w, "redirect_uri", http.StatusBadRequest)
		return
	}
	to.RawQuery = url.Values{"state": {q.Get("state")}, "code": {p.Code(q)}, "iss": {p.URL}}.Encode()
	http.Redirect(w, r, to.String(), http.StatusFound)
}

// Code is a code for the query of a request to authorize.
func (p *Provider) Code(q url.Values) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := rand.Text()
	p.codes[text] = code{q.Get("nonce"), q.Get("code_challenge"), q.Get("redirect_uri"), maps.Clone(p.Person)}
	return text
}

// token exchanges a code, once.
func (p *Provider) token(w http.ResponseWriter, r *http.Request) {
	if p.Token != nil {
		p.Token(w, r)
		return
	}
	p.mu.Lock()
	c, known := p.codes[r.PostFormValue("code")]
	delete(p.codes, r.PostFormValue("code"))
	p.mu.Unlock()
	sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	if !known || r.PostFormValue("grant_type") != "authorization_code" || r.PostFormValue("redirect_uri") != c.redirect ||
		base64.RawURLEncoding.EncodeToString(sum[:]) != c.challenge || !p.isClient(r) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"error":"invalid_grant"}`))
		return
	}
	claims := maps.Clone(c.person)
	maps.Copy(claims, map[string]any{
		"iss": p.URL, "aud": Client, "nonce": c.nonce, "iat": p.Now().Unix(), "exp": p.Now().Add(5 * time.Minute).Unix(),
	})
	if p.Claims != nil {
		p.Claims(claims)
	}
	p.answer(w, map[string]any{"access_token": rand.Text(), "token_type": "Bearer", "expires_in": 300, "id_token": p.Sign(claims)})
}

func (p *Provider) isClient(r *http.Request) bool {
	id, secret, basic := r.BasicAuth()
	if !basic {
		return r.PostFormValue("client_id") == Client && r.PostFormValue("client_secret") == p.Secret
	}
	id, err := url.QueryUnescape(id) // RFC 6749, 2.3.1
	secret, err2 := url.QueryUnescape(secret)
	return err == nil && err2 == nil && id == Client && secret == p.Secret
}

// Sign makes a token of claims.
func (p *Provider) Sign(claims map[string]any) string {
	private, err := key()
	if err != nil {
		p.t.Error(err)
		return ""
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: private, KeyID: "1"}}, nil)
	if err != nil {
		p.t.Error(err)
		return ""
	}
	token, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		p.t.Error(err)
	}
	return token
}

func (p *Provider) jwks(w http.ResponseWriter, _ *http.Request) {
	private, err := key()
	if err != nil {
		p.t.Error(err)
		return
	}
	p.answer(w, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: private.Public(), KeyID: "1", Algorithm: "RS256", Use: "sig"}}})
}

func (p *Provider) answer(w http.ResponseWriter, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		p.t.Error(err)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text)
}
