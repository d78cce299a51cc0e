package pdptest

import (
	"crypto/ed25519"
	"crypto/rand"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/go-json-experiment/json"
)

// Issuer signs tokens by EdDSA, with a key of its own.
type Issuer struct {
	// File holds its key set, as auth.jwt takes it in jwks_file.
	File string

	t      testing.TB
	signer jose.Signer
}

// NewIssuer makes an issuer, whose file lasts as long as the test.
func NewIssuer(t testing.TB) *Issuer {
	t.Helper()
	i := &Issuer{t: t, File: filepath.Join(t.TempDir(), "jwks.json")}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	i.must(err)
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: public, KeyID: "1", Algorithm: "EdDSA", Use: "sig"}}})
	i.must(err)
	i.must(os.WriteFile(i.File, set, 0o600))
	i.signer, err = jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: jose.JSONWebKey{Key: private, KeyID: "1"}}, nil)
	i.must(err)
	return i
}

// Token is a token with all of the claims, each a struct or a map.
func (i *Issuer) Token(claims ...any) string {
	i.t.Helper()
	b := jwt.Signed(i.signer)
	for _, c := range claims {
		b = b.Claims(c)
	}
	token, err := b.Serialize()
	i.must(err)
	return token
}

func (i *Issuer) must(err error) {
	i.t.Helper()
	if err != nil {
		i.t.Fatal(err)
	}
}
