package approval

import "sync"

// News tell who waits that something they wait for has changed, and of nothing else: what
// is done in one tenant has nobody look who waits for another.
type News struct {
	// C has one while there is something that was not received yet.
	C     <-chan struct{}
	c     chan struct{}
	of    func(tenant, id string) bool
	store *Store
}

// listeners are those who are told.
type listeners struct {
	mu  sync.Mutex
	all map[*News]bool
}

// News are of those approvals of which of says so by tenant and id; of must be quick. Who
// looks after this returned misses nothing that was on record by then or comes after it.
func (s *Store) News(of func(tenant, id string) bool) *News {
	c := make(chan struct{}, 1)
	n := &News{C: c, c: c, of: of, store: s}
	s.listeners.mu.Lock()
	defer s.listeners.mu.Unlock()
	if s.listeners.all == nil {
		s.listeners.all = map[*News]bool{}
	}
	s.listeners.all[n] = true
	return n
}

// Close ends them.
func (n *News) Close() {
	n.store.listeners.mu.Lock()
	defer n.store.listeners.mu.Unlock()
	delete(n.store.listeners.all, n)
}

// news are told when a change counts.
func (l *listeners) news(tenant, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n := range l.all {
		if !n.of(tenant, id) {
			continue
		}
		select {
		case n.c <- struct{}{}:
		default: // what it has is not received yet
		}
	}
}
