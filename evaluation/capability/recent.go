package capability

import "sync"

// recent remembers the latest findings. The zero value remembers nothing yet.
type recent[K comparable, V any] struct {
	mu       sync.Mutex // guards the following
	now, old map[K]V
}

// mostRecent is how many are remembered, of each of two generations.
const mostRecent = 2048

func (r *recent[K, V]) get(k K) (v V, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if v, ok = r.now[k]; !ok {
		v, ok = r.old[k]
	}
	return v, ok
}

func (r *recent[K, V]) put(k K, v V) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.now) >= mostRecent || r.now == nil {
		r.now, r.old = map[K]V{}, r.now
	}
	r.now[k] = v
}
