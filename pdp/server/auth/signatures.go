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
type signatures struct{ recent[crypto.PublicKey] }

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
	if signer, ok := s.get(sum); ok && public.Equal(signer) {
		return true
	}
	if !verify() {
		return false
	}
	s.put(sum, key, maxSignatures)
	return true
}

// recent keeps what was found out about texts, by their digests: at least the newest, and at most twice as many.
type recent[V any] struct {
	mu       sync.Mutex
	now, old map[[sha256.Size]byte]V
}

func (r *recent[V]) get(sum [sha256.Size]byte) (v V, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if v, ok = r.now[sum]; !ok {
		v, ok = r.old[sum]
	}
	return v, ok
}

func (r *recent[V]) put(sum [sha256.Size]byte, v V, most int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.now) >= most || r.now == nil {
		r.now, r.old = map[[sha256.Size]byte]V{}, r.now
	}
	r.now[sum] = v
}
