package identity_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

const (
	noToken  = `Bearer resource_metadata="https://mcp.example.com/.well-known/oauth-protected-resource/mcp"`
	badToken = noToken + `, error="invalid_token"`
)

// forged are tokens that must not count, by the fault. TestTokensThatAreNotGood of auth has more that the verifier refuses.
func forged(t *testing.T, p *provider) map[string]string {
	t.Helper()
	stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	own := jose.JSONWebKey{Key: stranger.Public(), KeyID: "1", Algorithm: "ES256"}
	encrypter, err := jose.NewEncrypter(jose.A256GCM, jose.Recipient{Algorithm: jose.ECDH_ES, Key: p.key.Public()}, (&jose.EncrypterOptions{}).WithContentType("JWT"))
	must(t, err)
	nested, err := encrypter.Encrypt([]byte(p.token(nil)))
	must(t, err)
	jwe, err := nested.CompactSerialize()
	must(t, err)
	now := p.clock.Now()
	good, all := p.token(nil), p.claims(nil)
	parts := strings.Split(good, ".")
	named := func(kid string) string {
		return p.signWith(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: p.key, KeyID: kid}}, nil, text(t, all))
	}
	return map[string]string{
		"alg none":             encode([]byte(`{"alg":"none","kid":"1"}`)) + "." + parts[1] + ".",
		"foreign aud":          p.token(claims{"aud": "https://other.example.com/mcp"}),
		"foreign auds":         p.token(claims{"aud": []string{"https://other.example.com/mcp", resource + "2", resource + "//", "HTTPS://mcp.example.com/mcp"}}),
		"no aud":               p.token(claims{"aud": nil}),
		"aud is part of ours":  p.token(claims{"aud": "https://mcp.example.com"}),
		"other iss":            p.token(claims{"iss": "https://issuer.example"}),
		"iss with a slash":     p.token(claims{"iss": p.URL + "/"}),
		"expired":              p.token(claims{"exp": now.Add(-2 * time.Minute).Unix()}),
		"expires just now":     p.token(claims{"exp": now.Unix()}),
		"kid path traversal":   named("../../../../../../dev/null"),
		"kid SQL":              named("1' OR '1'='1"),
		"jwk of a stranger":    p.sign(stranger, header{"jwk": own}, all),
		"jku of a stranger":    p.sign(stranger, header{"jku": "http://127.0.0.1:1/keys"}, all),
		"x5u of a stranger":    p.sign(stranger, header{"x5u": "http://127.0.0.1:1/cert"}, all),
		"typ of a proof":       p.sign(p.key, header{"typ": "dpop+jwt"}, all),
		"an ID token":          p.token(claims{"nonce": "n"}),
		"bound to a key":       p.token(claims{"cnf": map[string]any{"jkt": "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"}}),
		"100 KB":               p.token(claims{"x": strings.Repeat("a", 100<<10)}),
		"100 KB of nothing":    strings.Repeat("a", 100<<10),
		"17 KiB":               p.token(claims{"x": strings.Repeat("a", 12800)}),
		"nested JWE":           jwe,
		"client_id is no text": p.token(claims{"client_id": 7}),
		"client_id is empty":   p.token(claims{"client_id": ""}),
		"two clients":          p.token(claims{"azp": "other"}),
		"JSON serialization":   `{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`,
		"an API key":           "psk_aaaaaaaa_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
		"no token":             "x",
	}
}

func TestTokensThatDoNotCount(t *testing.T) {
	p, g := newProviderAndGate(t)
	good := p.token(nil)
	bad := forged(t, p)
	for name, token := range bad {
		places(t, g, name, token, good)
		who, got := g.bearer(token)
		if who != nil || got.status != http.StatusUnauthorized || got.challenge != badToken || got.detail == "" || len(token) > 8 && strings.Contains(got.detail, token) {
			t.Errorf("%s: got %+v, %+v", name, who, got)
		}
	}
	places(t, g, "good", good, good)
	if who, got := g.bearer(good); who == nil || who.Subject != "alice" {
		t.Errorf("the good one: %+v", got)
	}
}

// places sends a token everywhere where none may be.
func places(t *testing.T, g *gate, name, token, good string) {
	t.Helper()
	in := url.Values{"access_token": {token}}.Encode()
	for place, request := range map[string]struct {
		query   string
		headers http.Header
		want    string
	}{
		"query":               {"?" + in, nil, badToken},
		"query beside header": {"?" + in, http.Header{"Authorization": {"Bearer " + good}}, badToken},
		"query in capitals":   {"?ACCESS_TOKEN=" + url.QueryEscape(token), http.Header{"Authorization": {"Bearer " + good}}, badToken},
		"query, escaped":      {"?a=1;%61ccess_token=" + url.QueryEscape(token), http.Header{"Authorization": {"Bearer " + good}}, badToken},
		"other query":         {"?token=" + url.QueryEscape(token), nil, noToken},
		"cookie":              {"", http.Header{"Cookie": {"access_token=" + token + "; Authorization=Bearer " + token}}, noToken},
		"doubled":             {"", http.Header{"Authorization": {"Bearer " + token, "Bearer " + good}}, badToken},
		"doubled, turned":     {"", http.Header{"Authorization": {"Bearer " + good, "Bearer " + token}}, badToken},
		"comma":               {"", http.Header{"Authorization": {"Bearer " + good + ",Bearer " + token}}, badToken},
		"comma and space":     {"", http.Header{"Authorization": {"Bearer " + token + ", Bearer " + good}}, badToken},
		"two in one":          {"", http.Header{"Authorization": {"Bearer " + good + " " + token}}, badToken},
		"tab":                 {"", http.Header{"Authorization": {"Bearer\t" + token}}, badToken},
		"DPoP":                {"", http.Header{"Authorization": {"DPoP " + token}}, badToken},
		"Basic":               {"", http.Header{"Authorization": {"Basic " + token}}, badToken},
		"no scheme":           {"", http.Header{"Authorization": {token}}, badToken},
		"empty":               {"", http.Header{"Authorization": {""}}, badToken},
		"empty Bearer":        {"", http.Header{"Authorization": {"Bearer "}}, badToken},
		"Proxy-Authorization": {"", http.Header{"Proxy-Authorization": {"Bearer " + token}}, noToken},
		"X-Access-Token":      {"", http.Header{"X-Access-Token": {token}, "X-Forwarded-Access-Token": {token}, "Approver-Token": {token}}, noToken},
		"none":                {"", nil, noToken},
	} {
		if who, got := g.send(request.query, request.headers); who != nil || got.status != http.StatusUnauthorized || got.challenge != request.want || got.detail == "" {
			t.Errorf("%s, in %s: got %+v, %+v", name, place, who, got)
		}
	}
}

// Whatever is wrong with a token that no issuer of ours signed, one text says so.
func TestStrangersLearnNothing(t *testing.T) {
	p, g := newProviderAndGate(t)
	stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	_, want := g.bearer(p.sign(stranger, nil, p.claims(claims{"iss": "https://issuer.example"})))
	for name, changes := range map[string]claims{
		"ours": nil, "foreign aud": {"aud": "x"}, "expired": {"exp": 1}, "not yet": {"nbf": 1e11}, "no sub": {"sub": nil}, "never expires": {"exp": nil}, "ID token": {"nonce": "n"}, "client": {"client_id": 7},
	} {
		if who, got := g.bearer(p.sign(stranger, nil, p.claims(changes))); who != nil || got != want {
			t.Errorf("%s: got %+v, %+v; want %+v", name, who, got, want)
		}
	}
	// An issuer's own people learn the fault.
	if _, got := g.bearer(p.token(claims{"exp": 1})); got == want {
		t.Errorf("got %+v", got)
	}
}

func TestATokenCountsUntilItExpiresAndNoLonger(t *testing.T) {
	p, g := newProviderAndGate(t)
	token := p.token(claims{"exp": p.clock.Now().Add(time.Minute).Unix()})
	for range 60 {
		if who, got := g.bearer(token); who == nil {
			t.Fatalf("got %+v", got)
		}
		p.clock.Advance(time.Second)
	}
	if who, got := g.bearer(token); who != nil || !strings.Contains(got.detail, "expired") {
		t.Errorf("got %+v, %+v", who, got)
	}
}
