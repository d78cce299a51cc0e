package auth

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-jose/go-jose/v4"
)

// maxKeys bounds what one token without a key id can make us try.
const maxKeys = 100

// parseKeys reads a JWK Set (RFC 7517). Keys that cannot be used are passed
// over, as the RFC asks: a new kind of key must not take the others down.
func parseKeys(content []byte) ([]jose.JSONWebKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(content, &set); err != nil || set.Keys == nil {
		return nil, errors.New("it is no JWK Set")
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("it has more than %d keys", maxKeys)
	}
	keys := []jose.JSONWebKey{}
	for _, raw := range set.Keys {
		if key, ok := parseKey(raw); ok {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// parseKey takes public keys alone: a shared secret must not verify, and a private key that is shown to us proves nothing
// any more.
func parseKey(raw json.RawMessage) (key jose.JSONWebKey, ok bool) {
	var secret struct{ D, K, Priv json.RawMessage }
	if json.Unmarshal(raw, &secret) != nil || secret.D != nil || secret.K != nil || secret.Priv != nil {
		return key, false
	}
	if key.UnmarshalJSON(raw) != nil || !key.Valid() || !key.IsPublic() {
		return key, false
	}
	if public, isRSA := key.Key.(*rsa.PublicKey); isRSA && public.N.BitLen() < 2048 {
		return key, false
	}
	return key, key.Use == "" || key.Use == "sig"
}

// fits is for the keys that a token may have been signed with. A token without
// key id may be of any.
func fits(id, algorithm string) func(jose.JSONWebKey) bool {
	return func(key jose.JSONWebKey) bool {
		return (id == "" || key.KeyID == id) &&
			(key.Algorithm == "" || key.Algorithm == algorithm) &&
			kindFits(key.Key, algorithm)
	}
}

func kindFits(key any, algorithm string) bool {
	switch key := key.(type) {
	case *rsa.PublicKey:
		return algorithm[:2] == "RS" || algorithm[:2] == "PS"
	case ed25519.PublicKey:
		return algorithm == string(jose.EdDSA)
	case *ecdsa.PublicKey:
		return algorithm == string(curveAlgorithms[key.Curve])
	}
	return false
}

var curveAlgorithms = map[elliptic.Curve]jose.SignatureAlgorithm{
	elliptic.P256(): jose.ES256, elliptic.P384(): jose.ES384, elliptic.P521(): jose.ES512,
}
