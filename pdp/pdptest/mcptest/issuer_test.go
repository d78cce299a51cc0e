package mcptest

import (
	"net/http"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
)

// Tokens of both algorithms are good for who finds the keys by the issuer's name, and for nobody else's audience or clock.
func TestIssuer(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	clock := func() time.Time { return now }
	i := NewIssuer(t, "https://mcp.example.com/mcp", clock)
	provider, err := oidc.NewProvider(t.Context(), i.URL)
	if err != nil {
		t.Fatal(err)
	}
	verifier := func(audience string, clock func() time.Time) *oidc.IDTokenVerifier {
		return provider.Verifier(&oidc.Config{ClientID: audience, Now: clock, SupportedSigningAlgs: []string{"ES256", "RS256"}})
	}
	for _, by := range []jose.SignatureAlgorithm{jose.ES256, jose.RS256} {
		token := i.Sign(t, by, Claims{"sub": "bob", "client_id": nil})
		claims, err := verifier(i.Audience, clock).Verify(t.Context(), token)
		if err != nil || claims.Subject != "bob" {
			t.Errorf("%s: %v, %v", by, claims, err)
		}
		if _, err := verifier("https://other.example.com", clock).Verify(t.Context(), token); err == nil {
			t.Errorf("%s: good for another audience", by)
		}
		if _, err := verifier(i.Audience, func() time.Time { return now.Add(2 * time.Hour) }).Verify(t.Context(), token); err == nil {
			t.Errorf("%s: good for ever", by)
		}
		if _, err := verifier(i.Audience, clock).Verify(t.Context(), token[:len(token)-4]+"AAAA"); err == nil {
			t.Errorf("%s: good with another signature", by)
		}
	}
	if other := NewIssuer(t, i.Audience, clock); other.URL == i.URL {
		t.Error("two issuers have one name")
	}
	answer, err := http.Get(i.URL + "/nosuch")
	if err != nil || answer.StatusCode != http.StatusNotFound {
		t.Errorf("%v, %v", answer, err)
	}
}
