package auth

import (
	"crypto"
	"crypto/sha256"
	"reflect"
	"sync"
)

// signatures remember which tokens a key has signed, because a PEP sends one token
// many times and to verify it is the dearest part of a request. That a key has signed
// some bytes is true for ever: whether the key is still good, and the token still
// valid, is asked each time. Tokens that nobody signed are not remembered, so nobody
// fills it who has no key.
type signatures struct{ Recent[crypto.PublicKey] }

// maxSignatures is how many are kept of each of two generations.
const maxSignatures = 4096

// by reports whether a key has signed the token of that digest, and has verify find it out where that
// is not known.
func (s *signatures) by(key any, sum Digest, verify func() bool) bool {
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

// Digest is the SHA-256 of a token, or of another text.
type Digest [sha256.Size]byte

// Recent keeps what was found out about tokens, or other texts, by their digests: at least the newest, and at most twice as many.
// The zero Recent keeps nothing yet.
type Recent[V any] struct {
	mu       sync.Mutex
	now, old map[Digest]V
}

// Get is what was found out, if that is known.
func (r *Recent[V]) Get(sum Digest) (v V, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if v, ok = r.now[sum]; !ok {
		v, ok = r.old[sum]
	}
	return v, ok
}

// Put keeps what was found out, and of the others at least most.
func (r *Recent[V]) Put(sum Digest, v V, most int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.now) >= most || r.now == nil {
		r.now, r.old = map[Digest]V{}, r.now
	}
	r.now[sum] = v
}
