package pep

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"maps"
	"net/http"
	"sync"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"
)

// issuer publishes keys, and signs access tokens with them: good ones, and ones that no PEP may take.
type issuer struct{ url string }

// keys are those of this process: two that the issuer publishes, and one that it does not.
var keys = sync.OnceValues(func() (k struct {
	ec, stranger *ecdsa.PrivateKey
	rsa          *rsa.PrivateKey
}, err error) {
	if k.ec, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return k, err
	}
	if k.stranger, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return k, err
	}
	k.rsa, err = rsa.GenerateKey(rand.Reader, 2048)
	return k, err
})

const (
	keysPath = "/keys"
	ecID     = "conformance-ec"
	rsaID    = "conformance-rsa"
)

func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/.well-known/openid-configuration", "/.well-known/oauth-authorization-server":
		writeJSON(w, http.StatusOK, object{
			"issuer": i.url, "jwks_uri": i.url + keysPath, "authorization_endpoint": i.url + "/authorize", "token_endpoint": i.url + "/token",
			"response_types_supported": []any{"code"}, "subject_types_supported": []any{"public"},
			"id_token_signing_alg_values_supported": []any{"ES256", "RS256"},
		})
	case keysPath:
		k, err := keys()
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		writeJSON(w, http.StatusOK, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{
			{Key: k.ec.Public(), KeyID: ecID, Algorithm: "ES256", Use: "sig"},
			{Key: k.rsa.Public(), KeyID: rsaID, Algorithm: "RS256", Use: "sig"},
		}})
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// sealed is how a token is closed: the header, and the function that signs it.
type sealed struct {
	header object
	sign   func(input []byte) ([]byte, error)
}

func byEC(key *ecdsa.PrivateKey, header object) sealed {
	return sealed{with(object{"alg": "ES256", "typ": "at+jwt", "kid": ecID}, header), func(input []byte) ([]byte, error) {
		digest := sha256.Sum256(input)
		r, s, err := ecdsa.Sign(rand.Reader, key, digest[:])
		if err != nil {
			return nil, err
		}
		signature := make([]byte, 64)
		r.FillBytes(signature[:32])
		s.FillBytes(signature[32:])
		return signature, nil
	}}
}

func byRSA(key *rsa.PrivateKey) sealed {
	return sealed{object{"alg": "RS256", "typ": "at+jwt", "kid": rsaID}, func(input []byte) ([]byte, error) {
		digest := sha256.Sum256(input)
		return rsa.SignPKCS1v15(nil, key, crypto.SHA256, digest[:])
	}}
}

// byPublic signs with published keys alone, for a PEP that takes the algorithm from the token.
func byPublic(key *rsa.PrivateKey) sealed {
	return sealed{object{"alg": "HS256", "typ": "at+jwt", "kid": rsaID}, func(input []byte) ([]byte, error) {
		public, err := x509.MarshalPKIXPublicKey(key.Public())
		if err != nil {
			return nil, err
		}
		mac := hmac.New(sha256.New, public)
		mac.Write(input)
		return mac.Sum(nil), nil
	}}
}

func unsigned(alg string) sealed {
	return sealed{object{"alg": alg, "typ": "at+jwt"}, func([]byte) ([]byte, error) { return nil, nil }}
}

// head is how each of its tokens begins.
func (s sealed) head() string {
	head, _ := json.Marshal(s.header, json.Deterministic(true))
	return base64.RawURLEncoding.EncodeToString(head)
}

// tokenHeads are how tokens begin that the issuer signed, and no other tokens.
func tokenHeads() []string { return []string{byEC(nil, nil).head() + ".", byRSA(nil).head() + "."} }

// token makes a token of claims.
func (s sealed) token(claims object) (string, error) {
	body, _ := json.Marshal(claims, json.Deterministic(true))
	input := s.head() + "." + base64.RawURLEncoding.EncodeToString(body)
	signature, err := s.sign([]byte(input))
	return input + "." + base64.RawURLEncoding.EncodeToString(signature), err
}

// with is a copy with other members; nil takes one away.
func with(o, change object) object {
	changed := maps.Clone(o)
	for name, v := range change {
		if changed[name] = v; v == nil {
			delete(changed, name)
		}
	}
	return changed
}
