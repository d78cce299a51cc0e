package identity_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/pdptest/clock"
	"policy-service/pdp/pdptest/mcptest"
)

const resource = "https://mcp.example.com/mcp"

// provider is an issuer that publishes its keys over HTTP.
type provider struct {
	*httptest.Server
	t     testing.TB
	clock *clock.Clock
	key   *ecdsa.PrivateKey
	mu    sync.Mutex
}

func newProvider(t testing.TB, c *clock.Clock) *provider {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	p := &provider{t: t, clock: c, key: key}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q}`, p.URL, p.URL+"/keys")
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{p.public()}})
	})
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

func (p *provider) public() jose.JSONWebKey {
	p.mu.Lock()
	defer p.mu.Unlock()
	return jose.JSONWebKey{Key: p.key.Public(), KeyID: "1", Algorithm: "ES256", Use: "sig"}
}

func (p *provider) issuer() identity.Issuer {
	return identity.Issuer{Issuer: p.URL, Algorithms: []string{"ES256"}}
}

var must = mcptest.Must

type claims map[string]any

// claims are good ones, with some changed; nil takes one away.
func (p *provider) claims(changes claims) claims {
	all := claims{"iss": p.URL, "aud": resource, "sub": "alice", "client_id": "desktop", "exp": p.clock.Now().Add(5 * time.Minute).Unix()}
	maps.Copy(all, changes)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	return all
}

func (p *provider) token(changes claims) string { return p.sign(p.key, nil, p.claims(changes)) }

type header map[jose.HeaderKey]any

func (p *provider) sign(key crypto.Signer, extra header, all claims) string {
	p.t.Helper()
	return p.signWith(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "1"}}, extra, text(p.t, all))
}

func (p *provider) signWith(key jose.SigningKey, extra header, payload []byte) string {
	p.t.Helper()
	signer, err := jose.NewSigner(key, &jose.SignerOptions{ExtraHeaders: extra})
	must(p.t, err)
	signed, err := signer.Sign(payload)
	must(p.t, err)
	token, err := signed.CompactSerialize()
	must(p.t, err)
	return token
}

// writeKeys writes an issuer's jwks_file.
func writeKeys(t testing.TB, p *provider) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "jwks.json")
	must(t, os.WriteFile(name, text(t, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{p.public()}}), 0o600))
	return name
}

func text(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	must(t, err)
	return b
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// gate is a server that lets in whom an identity knows.
type gate struct {
	*httptest.Server
	t    testing.TB
	mu   sync.Mutex
	last *identity.Principal
}

func newGate(t testing.TB, o identity.Options) *gate {
	t.Helper()
	if o.Resource == "" {
		o.Resource = resource
	}
	i, err := identity.New(o)
	must(t, err)
	g := &gate{t: t}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, challenge := i.Authenticate(r)
		g.mu.Lock()
		defer g.mu.Unlock()
		g.last = p
		if (p == nil) == (challenge == nil) {
			t.Errorf("got %v and %v; want exactly one of them", p, challenge)
		}
		if challenge != nil {
			w.Header().Set("WWW-Authenticate", challenge.Header)
			w.WriteHeader(challenge.Status)
			_, _ = io.WriteString(w, challenge.Detail)
		}
	}))
	t.Cleanup(g.Close)
	return g
}

// answer is the response to a client.
type answer struct {
	status            int
	challenge, detail string
}

// send sends a request, and returns for whom it is.
func (g *gate) send(query string, headers http.Header) (*identity.Principal, answer) {
	g.t.Helper()
	r, err := http.NewRequestWithContext(g.t.Context(), http.MethodPost, g.URL+"/mcp"+query, http.NoBody)
	must(g.t, err)
	maps.Copy(r.Header, headers)
	w, err := g.Client().Do(r)
	must(g.t, err)
	defer func() { _ = w.Body.Close() }()
	body, err := io.ReadAll(w.Body)
	must(g.t, err)
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.last, answer{w.StatusCode, w.Header.Get("WWW-Authenticate"), string(body)}
}

// bearer sends a token as it should be sent.
func (g *gate) bearer(token string) (*identity.Principal, answer) {
	g.t.Helper()
	return g.send("", http.Header{"Authorization": {"Bearer " + token}})
}

// holder is for whom a token is, which must be a good one.
func (g *gate) holder(token string) *identity.Principal {
	g.t.Helper()
	p, answer := g.bearer(token)
	if p == nil {
		g.t.Fatal(answer)
	}
	return p
}

// newProviderAndGate makes an issuer, and a server that takes its tokens.
func newProviderAndGate(t testing.TB) (*provider, *gate) {
	t.Helper()
	p := newProvider(t, clock.New())
	return p, newGate(t, identity.Options{Issuers: []identity.Issuer{p.issuer()}, Now: p.clock.Now})
}
