// Package recent remembers what was found out about texts, so that a text that comes often is not looked into each time.
// Start with the zero [Texts].
//
// It forgets in the order in which texts came, and keeps digests in the place of texts. Whether what was found out still
// counts, it does not know: its caller asks.
package recent

import (
	"crypto/sha256"
	"sync"
)

// Digest is the SHA-256 of a text.
type Digest [sha256.Size]byte

// Texts keeps what was found out about texts, by their digests: at least the newest, and at most twice as many. The zero value
// keeps nothing yet.
type Texts[V any] struct {
	mu       sync.Mutex
	now, old map[Digest]V
}

// Get is what was found out, if that is known.
func (r *Texts[V]) Get(sum Digest) (v V, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if v, ok = r.now[sum]; !ok {
		v, ok = r.old[sum]
	}
	return v, ok
}

// Put keeps what was found out, and of the others at least most.
func (r *Texts[V]) Put(sum Digest, v V, most int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.now) >= most || r.now == nil {
		r.now, r.old = map[Digest]V{}, r.now
	}
	r.now[sum] = v
}
