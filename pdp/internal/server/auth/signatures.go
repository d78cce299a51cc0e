package auth

import (
	"crypto"
	"reflect"

	"policy-service/evaluation/recent"
)

// signatures remember which tokens a key has signed, because a PEP sends one token
// many times and to verify it is the dearest part of a request. That a key has signed
// some bytes is true for ever: whether the key is still good, and the token still
// valid, is asked each time. Tokens that nobody signed are not remembered, so nobody
// fills it who has no key.
type signatures struct{ recent.Texts[crypto.PublicKey] }

// maxSignatures is how many are kept of each of two generations.
const maxSignatures = 4096

// by reports whether a key has signed the token of that digest, and has verify find it out where that
// is not known.
func (s *signatures) by(key any, sum recent.Digest, verify func() bool) bool {
	public, comparable := key.(interface{ Equal(crypto.PublicKey) bool })
	if signer, known := s.Get(sum); known && comparable && (reflect.TypeOf(key).Comparable() && key == signer || public.Equal(signer)) {
		return true
	}
	if !verify() {
		return false
	}
	s.Put(sum, key, maxSignatures)
	return true
}
