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

	t   testing.TB
	key jose.SigningKey
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
	i.key = jose.SigningKey{Algorithm: jose.EdDSA, Key: jose.JSONWebKey{Key: private, KeyID: "1"}}
	return i
}

// Token is a token with all of the claims, each a struct or a map.
func (i *Issuer) Token(claims ...any) string { return i.Typed("", claims...) }

// Typed is a token with a header typ, "" for none.
func (i *Issuer) Typed(typ string, claims ...any) string {
	i.t.Helper()
	options := &jose.SignerOptions{}
	if typ != "" {
		options.WithType(jose.ContentType(typ))
	}
	signer, err := jose.NewSigner(i.key, options)
	i.must(err)
	b := jwt.Signed(signer)
	for _, c := range claims {
		b = b.Claims(c)
	}
	token, err := b.Serialize()
	i.must(err)
	return token
}

// Public is the public key.
func (i *Issuer) Public() ed25519.PublicKey {
	return i.key.Key.(jose.JSONWebKey).Key.(ed25519.PrivateKey).Public().(ed25519.PublicKey)
}

func (i *Issuer) must(err error) {
	i.t.Helper()
	if err != nil {
		i.t.Fatal(err)
	}
}
