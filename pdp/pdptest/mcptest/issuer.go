package mcptest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"
)

// Issuer publishes its keys and signs access tokens. All issuers of a process share their keys, so that a token of one is
// another's but for its claims.
type Issuer struct {
	// URL is the issuer's name, below which its metadata and keys are served.
	URL string
	// Audience is for whom its tokens are.
	Audience string

	now func() time.Time

	mu     sync.Mutex
	signed []string
}

// Signed are all tokens so far.
func (i *Issuer) Signed() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.signed)
}

// Claims are those of a token that differ from a good one's; nil takes a claim away.
type Claims map[string]any

var signers = sync.OnceValues(func() (keys [2]crypto.Signer, err error) {
	if keys[0], err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return keys, err
	}
	keys[1], err = rsa.GenerateKey(rand.Reader, 2048)
	return keys, err
})

// The algorithms that an issuer signs by; each is the id of its key, too.
var algorithms = [2]jose.SignatureAlgorithm{jose.ES256, jose.RS256}

// NewIssuer serves until the test ends. Its tokens are for audience, and good by the clock now.
func NewIssuer(t testing.TB, audience string, now func() time.Time) *Issuer {
	t.Helper()
	i := &Issuer{Audience: audience, now: now}
	set := i.keys(t)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/.well-known/openid-configuration", "/.well-known/oauth-authorization-server":
			_ = json.MarshalWrite(w, map[string]any{
				"issuer": i.URL, "jwks_uri": i.URL + "/keys", "authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token",
				"response_types_supported": []string{"code"}, "subject_types_supported": []string{"public"},
				"id_token_signing_alg_values_supported": algorithms,
			})
		case "/keys":
			_, _ = w.Write(set)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(s.Close)
	i.URL = s.URL
	return i
}

func (i *Issuer) keys(t testing.TB) []byte {
	t.Helper()
	keys, err := signers()
	if err != nil {
		t.Fatal(err)
	}
	var set jose.JSONWebKeySet
	for n, key := range keys {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: key.Public(), KeyID: string(algorithms[n]), Algorithm: string(algorithms[n]), Use: "sig"})
	}
	text, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// KeysFile writes its keys into a file, for who is not to fetch them.
func (i *Issuer) KeysFile(t testing.TB) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "jwks.json")
	if err := os.WriteFile(name, i.keys(t), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// Token is an access token of alice's agent, signed by ES256.
func (i *Issuer) Token(t testing.TB, c Claims) string {
	t.Helper()
	return i.Sign(t, jose.ES256, c)
}

// Sign is an access token of alice's agent, signed by ES256 or RS256.
func (i *Issuer) Sign(t testing.TB, by jose.SignatureAlgorithm, c Claims) string {
	t.Helper()
	keys, err := signers()
	if err != nil {
		t.Fatal(err)
	}
	key := jose.JSONWebKey{Key: keys[0], KeyID: string(by)}
	if by == jose.RS256 {
		key.Key = keys[1]
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: by, Key: key}, (&jose.SignerOptions{}).WithType("at+jwt"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(i.claims(c))
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(text)
	if err != nil {
		t.Fatal(err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.signed = append(i.signed, token)
	return token
}

func (i *Issuer) claims(change Claims) Claims {
	now := i.now().Unix()
	c := Claims{
		"iss": i.URL, "aud": i.Audience, "sub": "alice", "client_id": "agent-release",
		"iat": now - 10, "exp": now + 3600, "jti": "token-1",
	}
	maps.Copy(c, change)
	maps.DeleteFunc(c, func(_ string, v any) bool { return v == nil })
	return c
}
