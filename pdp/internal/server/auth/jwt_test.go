package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"policy-service/pdp/pdptest/clock"
)

// signer is a key of an issuer in a test.
type signer struct {
	id        string
	algorithm jose.SignatureAlgorithm
	private   crypto.Signer
}

// ourRSA and strangersRSA are the RSA keys of these tests: to make one takes as long as a thousand of another kind.
var ourRSA, strangersRSA = sync.OnceValues(newRSA), sync.OnceValues(newRSA)

func newRSA() (crypto.Signer, error) { return rsa.GenerateKey(rand.Reader, 2048) }

// newStranger has another key than newSigner, by the id of its key.
func newStranger(t testing.TB, algorithm jose.SignatureAlgorithm) signer {
	t.Helper()
	if algorithm != jose.RS256 {
		return newSigner(t, "1", algorithm)
	}
	private, err := strangersRSA()
	must(t, err)
	return signer{"1", jose.RS256, private}
}

func newSigner(t testing.TB, id string, algorithm jose.SignatureAlgorithm) signer {
	t.Helper()
	var private crypto.Signer
	var err error
	switch algorithm {
	case jose.EdDSA:
		_, private, err = ed25519.GenerateKey(rand.Reader)
	case jose.RS256, jose.PS256:
		private, err = ourRSA()
	default:
		private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	must(t, err)
	return signer{id, algorithm, private}
}

func (s signer) public() jose.JSONWebKey {
	return jose.JSONWebKey{Key: s.private.Public(), KeyID: s.id, Algorithm: string(s.algorithm), Use: "sig"}
}

type header map[jose.HeaderKey]any

func (s signer) token(t testing.TB, claims map[string]any, extra header) string {
	t.Helper()
	return sign(t, jose.SigningKey{Algorithm: s.algorithm, Key: jose.JSONWebKey{Key: s.private, KeyID: s.id}}, claims, extra)
}

func sign(t testing.TB, key jose.SigningKey, claims map[string]any, extra header) string {
	t.Helper()
	j, err := jose.NewSigner(key, &jose.SignerOptions{ExtraHeaders: extra})
	must(t, err)
	signed, err := j.Sign(asJSON(t, claims))
	must(t, err)
	token, err := signed.CompactSerialize()
	must(t, err)
	return token
}

func asJSON(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	must(t, err)
	return b
}

const testIssuer, testAudience = "https://issuer.example", "pdp"

// claims are good ones, with some changed; nil takes one away.
func claims(c *clock.Clock, changes map[string]any) map[string]any {
	all := map[string]any{
		"iss": testIssuer, "aud": testAudience, "sub": "alice", "exp": c.Now().Add(time.Minute).Unix(), "iat": c.Now().Unix(),
	}
	maps.Copy(all, changes)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	return all
}

func writeJWKS(t testing.TB, name string, signers ...signer) {
	t.Helper()
	set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}
	for _, s := range signers {
		set.Keys = append(set.Keys, s.public())
	}
	must(t, os.WriteFile(name, asJSON(t, set), 0o600))
}

func decider(algorithms ...string) JWTIssuer {
	return JWTIssuer{
		Issuer: testIssuer, Audience: testAudience, Algorithms: algorithms,
		Grant: Grant{Tenants: []string{"acme"}, Permissions: []Permission{Decide}},
	}
}

// fromFile verifies with the keys of some signers.
func fromFile(t testing.TB, c *clock.Clock, signers ...signer) (*JWT, string) {
	t.Helper()
	issuer := decider("RS256", "ES256", "EdDSA")
	issuer.JWKSFile = filepath.Join(t.TempDir(), "jwks.json")
	writeJWKS(t, issuer.JWKSFile, signers...)
	j, err := NewJWT([]JWTIssuer{issuer}, JWTOptions{Now: c.Now})
	must(t, err)
	return j, issuer.JWKSFile
}

func TestTokensThatAreGood(t *testing.T) {
	t.Parallel()
	c := clock.New()
	for _, algorithm := range []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.EdDSA} {
		s := newSigner(t, "1", algorithm)
		j, _ := fromFile(t, c, s)
		nameless := s
		nameless.id = ""
		for name, token := range map[string]string{
			"plain":                  s.token(t, claims(c, nil), nil),
			"typ JWT":                s.token(t, claims(c, nil), header{"typ": "JWT"}),
			"typ of RFC 9068":        s.token(t, claims(c, nil), header{"typ": "application/at+JWT"}),
			"several audiences":      s.token(t, claims(c, map[string]any{"aud": []string{"other", testAudience}}), nil),
			"just expired":           s.token(t, claims(c, map[string]any{"exp": c.Now().Add(-clockSkew).Unix()}), nil),
			"from a clock ahead":     s.token(t, claims(c, map[string]any{"nbf": c.Now().Add(clockSkew).Unix()}), nil),
			"without key id":         nameless.token(t, claims(c, nil), nil),
			"claims of no interest":  s.token(t, claims(c, map[string]any{"groups": []int{1}, "act": map[string]any{}}), nil),
			"exp with a fraction":    s.token(t, claims(c, map[string]any{"exp": float64(c.Now().Unix()) + 9.5}), nil),
			"exp in the far future":  s.token(t, claims(c, map[string]any{"exp": 1e11}), nil),
			"iat is not of interest": s.token(t, claims(c, map[string]any{"iat": nil}), nil),
		} {
			caller, err := j.Verify(t.Context(), token)
			if err != nil || caller.Name != "jwt:https://issuer.example#alice" || !caller.Serves("acme") || caller.Serves("default") || !caller.May(Decide) {
				t.Errorf("%s, %s: got %+v, %v", algorithm, name, caller, err)
			}
		}
	}
}

func TestTokensThatAreNotGood(t *testing.T) {
	t.Parallel()
	c := clock.New()
	s := newSigner(t, "1", jose.RS256)
	j, _ := fromFile(t, c, s)
	with := func(changes map[string]any) string { return s.token(t, claims(c, changes), nil) }
	seconds := func(d time.Duration) int64 { return c.Now().Add(d).Unix() }
	der, err := x509.MarshalPKIXPublicKey(s.private.Public())
	must(t, err)
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	good := with(nil)
	parts := strings.Split(good, ".")
	stranger := newStranger(t, jose.RS256)
	own := stranger.public()
	for name, token := range map[string]string{
		"expired":                    with(map[string]any{"exp": seconds(-clockSkew - time.Second)}),
		"missing exp":                with(map[string]any{"exp": nil}),
		"no claims":                  strings.Join([]string{parts[0], "e30", parts[2]}, "."),
		"exp is text":                with(map[string]any{"exp": "tomorrow"}),
		"wrong audience":             with(map[string]any{"aud": "other"}),
		"missing audience":           with(map[string]any{"aud": nil}),
		"audience of a longer name":  with(map[string]any{"aud": testAudience + "2"}),
		"wrong issuer":               with(map[string]any{"iss": testIssuer + "/"}),
		"missing issuer":             with(map[string]any{"iss": nil}),
		"missing sub":                with(map[string]any{"sub": nil}),
		"empty sub":                  with(map[string]any{"sub": ""}),
		"sub is a number":            with(map[string]any{"sub": 7}),
		"sub of two lines":           with(map[string]any{"sub": "a\nb"}),
		"nbf in the future":          with(map[string]any{"nbf": seconds(clockSkew + time.Second)}),
		"iat in the future":          with(map[string]any{"iat": seconds(clockSkew + time.Second)}),
		"alg none":                   unsigned(t, claims(c, nil), "none") + ".",
		"alg None":                   unsigned(t, claims(c, nil), "None") + "." + parts[2],
		"alg missing":                encode([]byte(`{"kid":"1"}`)) + "." + parts[1] + "." + parts[2],
		"HS256 with the public key":  sign(t, jose.SigningKey{Algorithm: jose.HS256, Key: jose.JSONWebKey{Key: public, KeyID: "1"}}, claims(c, nil), nil),
		"HS256 with its DER":         sign(t, jose.SigningKey{Algorithm: jose.HS256, Key: jose.JSONWebKey{Key: der, KeyID: "1"}}, claims(c, nil), nil),
		"an algorithm not listed":    signer{"1", jose.PS256, s.private}.token(t, claims(c, nil), nil),
		"signed by a stranger":       stranger.token(t, claims(c, nil), nil),
		"with the stranger's key":    stranger.token(t, claims(c, nil), header{"jwk": own, "jku": "http://127.0.0.1:1/jwks"}),
		"an unknown key id":          signer{"2", jose.RS256, s.private}.token(t, claims(c, nil), nil),
		"unknown crit":               s.token(t, claims(c, nil), header{"crit": []string{"exp"}, "exp": 1}),
		"crit that go-jose knows":    s.token(t, claims(c, nil), header{"crit": []string{"b64"}, "b64": true}),
		"typ of a logout token":      s.token(t, claims(c, nil), header{"typ": "logout+jwt"}),
		"typ of an event":            s.token(t, claims(c, nil), header{"typ": "secevent+jwt"}),
		"typ is no text":             s.token(t, claims(c, nil), header{"typ": 1}),
		"no signature":               parts[0] + "." + parts[1] + ".",
		"signature of another token": strings.Join([]string{parts[0], strings.Split(with(map[string]any{"sub": "bob"}), ".")[1], parts[2]}, "."),
		"cut":                        good[:len(good)-1],
		"two parts":                  parts[0] + "." + parts[1],
		"five parts":                 good + "." + parts[1] + "." + parts[2],
		"no JSON":                    encode([]byte("x")) + "." + parts[1] + "." + parts[2],
		"not base64":                 "!!!." + parts[1] + "." + parts[2],
		"a member twice":             twice(t, s, c),
		"empty":                      "",
	} {
		caller, err := j.Verify(t.Context(), token)
		if refusal := (*Refusal)(nil); !errors.As(err, &refusal) || !errors.Is(err, ErrUnauthenticated) || refusal.Challenge != challengeInvalid {
			t.Errorf("%s: got %+v, %v; want it refused with a challenge", name, caller, err)
		}
	}
	if _, err := j.Verify(t.Context(), good); err != nil {
		t.Errorf("the good one: %v", err)
	}
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func unsigned(t *testing.T, claims map[string]any, algorithm string) string {
	t.Helper()
	return encode(asJSON(t, map[string]string{"alg": algorithm, "kid": "1"})) + "." + encode(asJSON(t, claims))
}

// twice is a well signed token in which two readers would see two subjects.
func twice(t *testing.T, s signer, c *clock.Clock) string {
	t.Helper()
	return signText(t, s, strings.Replace(string(asJSON(t, claims(c, nil))), `{`, `{"sub":"bob",`, 1))
}

// signText is a token with claims that no encoder would write.
func signText(t *testing.T, s signer, text string) string {
	t.Helper()
	j, err := jose.NewSigner(jose.SigningKey{Algorithm: s.algorithm, Key: jose.JSONWebKey{Key: s.private, KeyID: s.id}}, nil)
	must(t, err)
	signed, err := j.Sign([]byte(text))
	must(t, err)
	token, err := signed.CompactSerialize()
	must(t, err)
	return token
}

func TestTwoAudiencesOfOneIssuer(t *testing.T) {
	t.Parallel()
	c, s := clock.New(), newSigner(t, "1", jose.ES256)
	file := filepath.Join(t.TempDir(), "jwks.json")
	writeJWKS(t, file, s)
	reader, writer := decider("ES256"), decider("ES256")
	reader.JWKSFile, writer.JWKSFile = file, file
	writer.Audience, writer.Permissions = "logs", []Permission{LogRead}
	j, err := NewJWT([]JWTIssuer{reader, writer}, JWTOptions{Now: c.Now})
	must(t, err)
	for audience, want := range map[any]Permission{testAudience: Decide, "logs": LogRead} {
		if caller, err := j.Verify(t.Context(), s.token(t, claims(c, map[string]any{"aud": audience}), nil)); err != nil || !caller.May(want) {
			t.Errorf("%s: got %+v, %v", audience, caller, err)
		}
	}
	both := s.token(t, claims(c, map[string]any{"aud": []string{"logs", testAudience}}), nil)
	if caller, err := j.Verify(t.Context(), both); err != nil || !caller.May(Decide) {
		t.Errorf("both: got %+v, %v; want the first of the configuration", caller, err)
	}
}

// What does one token cost, with a key at hand?
func BenchmarkVerifyToken(b *testing.B) {
	for _, algorithm := range []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.EdDSA} {
		b.Run(string(algorithm), func(b *testing.B) {
			c, s := clock.New(), newSigner(b, "1", algorithm)
			j, _ := fromFile(b, c, s)
			token := s.token(b, claims(c, nil), nil)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := j.Verify(b.Context(), token); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
