package people

import (
	"sync"
	"time"
)

// recent keeps what was found out last, by keys and with the times. The zero recent keeps nothing yet.
type recent[K comparable, V any] struct {
	mu          sync.Mutex
	now, before map[K]found[V]
}

type found[V any] struct {
	value V
	at    time.Time
}

// get returns what was found out less than so long ago.
func (r *recent[K, V]) get(key K, now time.Time, within time.Duration) (value V, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept, ok := r.now[key]
	if !ok {
		kept, ok = r.before[key]
	}
	return kept.value, ok && now.Sub(kept.at) < within
}

// put keeps what is found out now, and of the rest at least most.
func (r *recent[K, V]) put(key K, value V, now time.Time, most int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now == nil || len(r.now) >= most {
		r.now, r.before = map[K]found[V]{}, r.now
	}
	r.now[key] = found[V]{value, now}
}
