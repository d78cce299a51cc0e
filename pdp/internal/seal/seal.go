// Package seal makes values that clients keep for a server and cannot read, change, or use for anything but what they were
// made for: for a gateway session ids, states of requests, ids of requests that go to a client; for a console the login
// that waits for a provider.
//
// Begin with [Open], or with [Fresh] if there are no key files, and [Ring.Seal]. [SealJSON] seals a Go value until it
// expires. Gateways with the same key files open each other's values.
package seal

import (
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strings"
)

// Purpose is the use of a value. A value of one purpose opens for no other.
type Purpose uint8

// The purposes there are. Their numbers are part of the sealed text: new ones come at the end.
const (
	// Session is the id of a session of the legacy era.
	Session Purpose = iota + 1
	// RequestState is the state of a request that a client is to repeat.
	RequestState
	// Cursor is where a list goes on.
	Cursor
	// RequestID is the id of a request that goes to a client.
	RequestID
	// Subscription is a set of resources that a client listens to.
	Subscription
	// Login is a login that a provider has yet to answer.
	Login
	// Approval is the value that a client keeps while people decide about its call: the state of the call, and the names by which it
	// answers what a person was shown. An upstream's are RequestState and RequestID.
	Approval
	// ToolRequest is the id of a request for a tool.
	ToolRequest
	// HolderKey is the key of a holder of capabilities, which is derived, and sealed nowhere.
	HolderKey
	// KeptToolRequest is a request for a tool that gateways keep at the PDP.
	KeptToolRequest
)

// A sealed value is base64url without padding of
//
//	key id (1 byte) ‖ nonce (12) ‖ AES-256-GCM of the value ‖ tag (16)
//
// The key id is the first byte of a digest of the key, so that it says which key to try; two keys may have the same. What
// is authenticated beside the value is not in it:
//
//	version ‖ 0 ‖ purpose (1 byte) ‖ length and text of the resource ‖ length and bytes of the binding
//
// with lengths as unsigned varints. Another form gets another version, and then no old value opens: a value lives for as
// long as a session, and is asked for again. A key is good for 2³² values, which are more than a gateway seals in a year.
const version = "policy-service/mcp/seal/1"

const (
	nonceAndTag = 12 + 16
	// MaxValue is the largest value that can be sealed, of any purpose but [KeptToolRequest]: clients send these.
	MaxValue = 64 << 10
	// MaxKept is the largest [KeptToolRequest], which no client has. Its sealed text has 256 KiB: the PDP takes no more.
	MaxKept = 192<<10 - 1 - nonceAndTag
)

// most is the size of the largest value of a purpose.
func (p Purpose) most() int {
	if p == KeptToolRequest {
		return MaxKept
	}
	return MaxValue
}

// ErrTooLarge is why a value cannot be sealed.
var ErrTooLarge = errors.New("the value is too large to be sealed")

// Seal seals a value. Opening it needs the same purpose and the same binding, such as the key of a principal.
func (r *Ring) Seal(purpose Purpose, binding, value []byte) (string, error) {
	if len(value) > purpose.most() {
		return "", ErrTooLarge
	}
	first := r.current()[0]
	sealed := first.aead.Seal(nil, nil, value, r.beside(purpose, binding))
	return base64.RawURLEncoding.EncodeToString(append([]byte{first.id}, sealed...)), nil
}

// Open opens a text that [Ring.Seal] made, with one of these keys, for the same resource, purpose and binding. Of the texts that
// could stand for the same bytes only that one opens: two texts for one value would be two values to whoever counts them.
func (r *Ring) Open(purpose Purpose, binding []byte, text string) (value []byte, ok bool) {
	if len(text) > base64.RawURLEncoding.EncodedLen(1+nonceAndTag+purpose.most()) || strings.ContainsAny(text, "\r\n") { // which the decoder passes over
		return nil, false
	}
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(sealed) == 0 {
		return nil, false
	}
	for _, k := range r.current() {
		if k.id != sealed[0] {
			continue
		}
		if value, err := k.aead.Open(nil, nil, sealed[1:], r.beside(purpose, binding)); err == nil {
			return value, true
		}
	}
	return nil, false
}

// beside is the additional authenticated data of a value.
func (r *Ring) beside(purpose Purpose, binding []byte) []byte {
	b := make([]byte, 0, len(version)+2+2*binary.MaxVarintLen64+len(r.resource)+len(binding))
	b = append(append(b, version...), 0, byte(purpose))
	b = append(binary.AppendUvarint(b, uint64(len(r.resource))), r.resource...)
	return append(binary.AppendUvarint(b, uint64(len(binding))), binding...)
}

// key is one key of a ring.
type key struct {
	id   byte
	aead cipher.AEAD // makes a random nonce itself, and puts it in front of the text
	root []byte      // of derived keys
}

// Derive makes 32 secret bytes for a purpose and a binding, from each key: the first are those to use from now on, and the
// others were before. Gateways with the same key files derive the same. By none of them is another found, nor the key.
func (r *Ring) Derive(purpose Purpose, binding []byte) (all [][]byte, err error) {
	for _, k := range r.current() {
		one, err := hkdf.Expand(sha256.New, k.root, string(r.beside(purpose, binding)), keySize)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}
