package auth

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"policy-service/pdp/pdptest/clock"
)

// A refusal says what kind of credential was not good, so that it can be counted.
func TestRefusalsSayWhichCredential(t *testing.T) {
	t.Parallel()
	c := clock.New()
	keys := open(t, t.TempDir(), c)
	key := add(t, keys, "pep")
	j, _ := fromFile(t, c, newSigner(t, "1", jose.ES256))
	m, err := NewMTLS([]MTLSRule{{SAN: "pep.example", Grant: Grant{Tenants: []string{"default"}, Permissions: []Permission{Decide}}}}, nil)
	must(t, err)
	a := &Authenticator{Keys: keys, JWT: j, MTLS: m}
	shown := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{}}}
	for header, want := range map[string]Credential{
		"":                          ByNone,
		"Bearer " + key + "x":       ByKey,
		basic("pep", key):           ByKey,
		"Bearer " + stranger(t, c):  ByToken,
		"Bearer x.y.z":              ByToken,
		"Digest " + key:             ByOther,
		"Bearer " + key + ", Basic": ByOther,
		"a certificate":             ByCertificate,
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		switch header {
		case "":
		case "a certificate":
			r.TLS = shown
		default:
			r.Header.Set("Authorization", header)
		}
		_, err := a.Authenticate(r)
		var refusal *Refusal
		if !errors.As(err, &refusal) || refusal.Credential != want {
			t.Errorf("%s: got %+v, want %s", header, refusal, want)
		}
	}
}

// stranger is a token that an unknown key signed.
func stranger(t *testing.T, c *clock.Clock) string {
	t.Helper()
	return newSigner(t, "2", jose.ES256).token(t, claims(c, nil), nil)
}
