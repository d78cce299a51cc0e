// Package keyedmutex is a mutex for each key: a caller that holds one key keeps out others that want the same key, and
// no others. A caller gives up if its context ends. Start with the zero [Mutex].
//
// It does not put waiting callers in an order, and it keeps nothing about a key that is neither held nor waited for.
package keyedmutex

import (
	"context"
	"errors"
	"sync"
)

// ErrFull is returned if as many callers hold a key, or wait for it, as may.
var ErrFull = errors.New("too many wait for the same key")

// Mutex is a mutex for each key. The zero value is ready to use.
type Mutex struct {
	// Most is how many callers hold a key, or wait for it; 0 is any number. It is set before the first use.
	Most int

	mu   sync.Mutex
	keys map[string]*key
}

type key struct {
	held  chan struct{} // holds one value while the key is locked
	users int           // callers that hold the key or wait for it; guarded by Mutex.mu
}

// Lock waits until the key is free. The caller calls unlock once. The error is ErrFull, or that of ctx.
func (m *Mutex) Lock(ctx context.Context, name string) (unlock func(), err error) {
	k := m.join(name)
	if k == nil {
		return nil, ErrFull
	}
	select {
	case k.held <- struct{}{}:
		return func() { <-k.held; m.leave(name, k) }, nil
	case <-ctx.Done():
		m.leave(name, k)
		return nil, ctx.Err()
	}
}

// TryLock locks the key if it is free.
func (m *Mutex) TryLock(name string) (unlock func(), ok bool) {
	k := m.join(name)
	if k == nil {
		return nil, false
	}
	select {
	case k.held <- struct{}{}:
		return func() { <-k.held; m.leave(name, k) }, true
	default:
		m.leave(name, k)
		return nil, false
	}
}

// join counts a user of a key. It returns nil if there are as many as may be.
func (m *Mutex) join(name string) *key {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.keys[name]
	if k == nil {
		if m.keys == nil {
			m.keys = map[string]*key{}
		}
		k = &key{held: make(chan struct{}, 1)}
		m.keys[name] = k
	}
	if m.Most > 0 && k.users >= m.Most {
		return nil
	}
	k.users++
	return k
}

func (m *Mutex) leave(name string, k *key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k.users--; k.users == 0 {
		delete(m.keys, name)
	}
}
