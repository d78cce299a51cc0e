package capability

import (
	"crypto/ecdsa"
	"errors"

	"github.com/go-jose/go-jose/v4"

	"policy-service/evaluation"
)

// maxSealed bounds a token that is encrypted: in base64 it is a third longer.
const maxSealed = 2 * MaxToken

// Seal encrypts a token to a key of P-256, as a JWE in its compact form (RFC 7516), with ECDH-ES and A256GCM.
func (k Key) Seal(token string) (string, error) {
	if k.p256 == nil {
		return "", errors.New("tokens are encrypted to a key of P-256, and this is none")
	}
	options := new(jose.EncrypterOptions).WithContentType(TypeToken)
	e, err := jose.NewEncrypter(jose.A256GCM, jose.Recipient{Algorithm: jose.ECDH_ES, Key: k.p256}, options)
	if err != nil {
		return "", err
	}
	o, err := e.Encrypt([]byte(token))
	if err != nil {
		return "", err
	}
	return o.CompactSerialize()
}

// Unseal decrypts the text of [Key.Seal].
func Unseal(sealed string, key *ecdsa.PrivateKey) (token string, err error) {
	if len(sealed) > maxSealed || key == nil {
		return "", errors.New("there is no key, or the token is too large")
	}
	o, err := jose.ParseEncryptedCompact(sealed, []jose.KeyAlgorithm{jose.ECDH_ES}, []jose.ContentEncryption{jose.A256GCM})
	if err == nil {
		var text []byte
		if text, err = o.Decrypt(key); err == nil {
			return string(text), nil
		}
	}
	return "", errors.New("the token cannot be decrypted; it was encrypted to another key, or is no JWE of ECDH-ES and A256GCM")
}

// sealKey is the member encrypt_to, the zero Key if it is left out.
func (r *reader) sealKey(o evaluation.Object) (k Key) {
	const name = "encrypt_to"
	if _, there := o.Get(name); !there {
		return k
	}
	o = r.object(o, false, name)
	for member, only := range map[string]string{"use": "enc", "alg": string(jose.ECDH_ES)} {
		v, there := o.Get(member)
		r.want(!there || v.Text() == only, "not "+only, name, member)
	}
	k, err := keyOf(o.Without(func(member string) bool { return member == "use" || member == "alg" }))
	r.want(err == nil && k.p256 != nil, "not a public key of P-256", name)
	return k
}
