package signing

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/go-jose/go-jose/v4"
)

// Set is a set of keys that does not change. The current key signs; the current and the previous key verify.
type Set struct {
	key  ed25519.PrivateKey
	keys []jose.JSONWebKey // public, the one that signs first
	jwks []byte
}

// newSet makes a set of a key that signs and the previous key, which may be nil.
func newSet(key ed25519.PrivateKey, before ed25519.PublicKey) (*Set, error) {
	s := &Set{key: key}
	for _, public := range []ed25519.PublicKey{key.Public().(ed25519.PublicKey), before} {
		if public == nil {
			continue
		}
		jwk := jose.JSONWebKey{Key: public, Algorithm: string(jose.EdDSA), Use: "sig"}
		id, err := jwk.Thumbprint(crypto.SHA256)
		if err != nil {
			return nil, err
		}
		jwk.KeyID = base64.RawURLEncoding.EncodeToString(id)
		s.keys = append(s.keys, jwk)
	}
	var err error
	s.jwks, err = json.Marshal(jose.JSONWebKeySet{Keys: s.keys})
	return s, err
}

// KeyID is the id of the key that signs: its thumbprint (RFC 7638, SHA-256), which is the same everywhere.
func (s *Set) KeyID() string { return s.keys[0].KeyID }

// JWKS is the public keys as a JWK Set (RFC 7517), the one that signs first. The
// caller must not change it.
func (s *Set) JWKS() []byte { return s.jwks }

// Sign returns a JWS in its compact form, with alg, kid and typ in its header. The
// same key, payload and typ give the same bytes.
func (s *Set) Sign(payload []byte, typ string) (jws string, err error) {
	key := jose.SigningKey{Algorithm: jose.EdDSA, Key: jose.JSONWebKey{Key: s.key, KeyID: s.KeyID()}}
	signer, err := jose.NewSigner(key, new(jose.SignerOptions).WithType(jose.ContentType(typ)))
	if err != nil {
		return "", err
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		return "", err
	}
	return signed.CompactSerialize()
}

// Verify returns the payload if one of the keys signed it for this typ. The caller checks if the payload still counts.
func (s *Set) Verify(jws, typ string) (payload []byte, err error) {
	signed, err := jose.ParseSignedCompact(jws, []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil {
		return nil, errors.New("this is no JWS signed with EdDSA")
	}
	// Without this check, white space and the unused bits at the end of base64 would give one JWS many texts.
	if same, err := signed.CompactSerialize(); err != nil || same != jws {
		return nil, errors.New("this JWS is written otherwise than it was signed")
	}
	header := signed.Signatures[0].Protected
	if got, _ := header.ExtraHeaders[jose.HeaderType].(string); got != typ {
		return nil, fmt.Errorf("this was signed for another purpose than %s", typ)
	}
	for _, key := range s.keys {
		if key.KeyID != header.KeyID {
			continue
		}
		if payload, err = signed.Verify(key); err != nil {
			return nil, errors.New("the signature is not by the key it names")
		}
		return payload, nil
	}
	return nil, errors.New("this was signed by a key that is not, or no longer, one of ours")
}

// The file holds a JWK Set (RFC 7517) of one or two Ed25519 keys (RFC 8037), as in
//
//	{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"…","alg":"EdDSA","use":"sig","x":"…","d":"…"},
//	         {"kty":"OKP","crv":"Ed25519","kid":"…","alg":"EdDSA","use":"sig","x":"…"}]}
//
// The first key, alone with its private half d, signs; the second is the one
// before it. kid is the thumbprint of the key. It may grow by members of a key,
// which older versions pass over, and by keys, which they refuse rather than
// forget at the next rotation.
func (s *Set) encode() []byte {
	keys := jose.JSONWebKeySet{Keys: slices.Clone(s.keys)}
	keys.Keys[0].Key = s.key
	content, err := json.Marshal(keys)
	if err != nil {
		panic(err) // Ed25519 keys have a JSON form
	}
	return append(content, '\n')
}

// parse reads what encode wrote. No error quotes the file.
func parse(content []byte) (*Set, error) {
	var file jose.JSONWebKeySet
	if err := json.Unmarshal(content, &file); err != nil {
		return nil, errors.New("it is no JWK Set")
	}
	if len(file.Keys) < 1 || len(file.Keys) > 2 {
		return nil, errors.New("it must hold one key or two")
	}
	key, ok := file.Keys[0].Key.(ed25519.PrivateKey)
	if !ok || !bytes.Equal(key, ed25519.NewKeyFromSeed(key.Seed())) {
		return nil, errors.New("its first key must be a whole Ed25519 key")
	}
	var before ed25519.PublicKey
	if len(file.Keys) == 2 {
		if before, ok = file.Keys[1].Key.(ed25519.PublicKey); !ok {
			return nil, errors.New("its second key must be the public half of an Ed25519 key")
		}
	}
	set, err := newSet(key, before)
	if err != nil {
		return nil, err
	}
	for i := range file.Keys {
		if file.Keys[i].KeyID != set.keys[i].KeyID {
			return nil, errors.New("a kid in it is not the thumbprint of its key")
		}
	}
	return set, nil
}
