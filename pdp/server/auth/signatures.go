package auth

import (
	"crypto"
	"crypto/sha256"
	"sync"
)

// signatures remember which tokens a key has signed, because a PEP sends one token
// many times and to verify it is the dearest part of a request. That a key has signed
// some bytes is true for ever: whether the key is still good, and the token still
// valid, is asked each time. Tokens that nobody signed are not remembered, so nobody
// fills it who has no key.
type signatures struct {
	mu       sync.Mutex
	now, old map[[sha256.Size]byte]crypto.PublicKey
}

// maxSignatures is how many are kept of each of two generations.
const maxSignatures = 4096

// by reports whether a key has signed a token, and has verify find it out where that
// is not known.
func (s *signatures) by(key any, token string, verify func() bool) bool {
	public, comparable := key.(interface{ Equal(crypto.PublicKey) bool })
	if !comparable {
		return verify()
	}
	sum := sha256.Sum256([]byte(token))
	if signer := s.signer(sum); signer != nil && public.Equal(signer) {
		return true
	}
	if !verify() {
		return false
	}
	s.remember(sum, key)
	return true
}

func (s *signatures) signer(sum [sha256.Size]byte) crypto.PublicKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	if signer, ok := s.now[sum]; ok {
		return signer
	}
	return s.old[sum]
}

func (s *signatures) remember(sum [sha256.Size]byte, key crypto.PublicKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.now) >= maxSignatures || s.now == nil {
		s.now, s.old = map[[sha256.Size]byte]crypto.PublicKey{}, s.now
	}
	s.now[sum] = key
}
