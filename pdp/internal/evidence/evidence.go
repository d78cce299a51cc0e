// Package evidence keeps off the record what a guess at a masked value can be held against: a hash of that value, or a
// signature over such a hash. Begin with [Of]: a [Text] has no written form, and only a [Key] gives it one. [Key.Hash] makes
// a keyed hash of it, and [Key.Seal] a sealed text that only who has the key can open.
//
// The package reads no file: its callers own the keys.
package evidence

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Text is a text that a guess can be held against. JSON writes it as an empty object, and package fmt as an ellipsis, so
// that no record, log or message shows one by mistake.
type Text struct{ text string }

// Of makes a Text.
func Of(text string) Text { return Text{text} }

// Format implements [fmt.Formatter].
func (Text) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "…") }

// Key writes the Texts of one tenant, as they stand on record. A nil Key leaves them out, which is "".
type Key struct {
	secret []byte
	tenant string
}

const (
	keySize = 32
	// Prefix is what a keyed hash begins with.
	Prefix = "keyed:"
	// MostSealed bounds the texts that are sealed together, in bytes.
	MostSealed = 8 << 10
)

// NewKey derives the key of a tenant from a secret of 32 bytes. What one tenant's key wrote says nothing about another's.
func NewKey(secret []byte, tenant string) (*Key, error) {
	if len(secret) != keySize {
		return nil, errors.New("the secret of evidence must have 32 bytes")
	}
	return &Key{secret, tenant}, nil
}

func (k *Key) derive(use string) ([]byte, error) {
	return hkdf.Key(sha256.New, k.secret, nil, "policy-service evidence "+use+" "+k.tenant, keySize)
}

// aead returns a cipher that makes a random nonce itself, and puts it in front of the text.
func (k *Key) aead() (cipher.AEAD, error) {
	key, err := k.derive("seal")
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// Plain writes a text as it is. Its caller knows that nothing which the text is made of is masked.
func (k *Key) Plain(t Text) string {
	if k == nil {
		return ""
	}
	return t.text
}

// Hash returns the keyed hash of a text: the same for the same text of a tenant, so that records can be joined by it.
func (k *Key) Hash(t Text) string {
	if k == nil {
		return ""
	}
	key, err := k.derive("hash")
	if err != nil {
		return ""
	}
	mac := hmac.New(sha256.New, key)
	_, _ = io.WriteString(mac, t.text) // never fails
	return Prefix + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// Seal seals texts together for the record of an id. Texts of more than [MostSealed] bytes are left out.
func (k *Key) Seal(record string, texts ...Text) string {
	if k == nil {
		return ""
	}
	plain := make([]string, len(texts))
	for n, t := range texts {
		plain[n] = t.text
	}
	text, err := json.Marshal(plain)
	if err != nil || len(text) > MostSealed {
		return ""
	}
	aead, err := k.aead()
	if err != nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(aead.Seal(nil, nil, text, []byte(record)))
}

// Open opens what [Key.Seal] sealed for the same record.
func (k *Key) Open(record, sealed string) (texts []string, err error) {
	aead, err := k.aead()
	if err != nil {
		return nil, err
	}
	text, err := base64.RawURLEncoding.DecodeString(sealed)
	if err == nil {
		text, err = aead.Open(nil, nil, text, []byte(record))
	}
	if err != nil {
		return nil, errors.New("this evidence was sealed with another key, or for another record")
	}
	return texts, json.Unmarshal(text, &texts)
}
