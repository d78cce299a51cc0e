package console

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"

	"github.com/go-json-experiment/json"
)

// sealer encrypts what a browser keeps and must neither read nor change. Its key is of this process alone: a restart
// ends the logins that wait for a provider.
type sealer struct{ aead cipher.AEAD }

func newSealer() (*sealer, error) {
	block, err := aes.NewCipher(randomBytes(32))
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	return &sealer{aead}, err
}

// purpose is bound to what is sealed: nothing that is sealed for another purpose opens.
var purpose = []byte("login")

func (s *sealer) seal(p pending) string {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // texts and a time are JSON
	}
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, text, purpose))
}

func (s *sealer) open(sealed string) (p pending, ok bool) {
	text, err := base64.RawURLEncoding.Strict().DecodeString(sealed)
	if err != nil {
		return p, false
	}
	if text, err = s.aead.Open(nil, nil, text, purpose); err != nil || json.Unmarshal(text, &p) != nil {
		return pending{}, false
	}
	return p, true
}
