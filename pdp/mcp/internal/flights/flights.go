// Package flights keeps the requests of one client that are under way, by their ids, so that the client can cancel them. It
// does not know the purpose of a request.
//
// Begin with [Flights.Begin] and [Flights.End]. A notifications/cancelled of the client goes to [Flights.Cancel].
package flights

import (
	"context"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/rpc"
)

// Flights are the requests of one client that are under way. The zero Flights hold no request. Methods may be called
// concurrently.
type Flights struct {
	mu  sync.Mutex
	all map[rpc.ID]context.CancelFunc
}

// Begin adds a request. It is not ok if a request with that id is under way.
func (f *Flights) Begin(id rpc.ID, cancel context.CancelFunc) (ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all[id] != nil {
		return false
	}
	if f.all == nil {
		f.all = map[rpc.ID]context.CancelFunc{}
	}
	f.all[id] = cancel
	return true
}

// End removes a request that has its answer: its id is free.
func (f *Flights) End(id rpc.ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.all, id)
}

// Cancel cancels the request of this client with the id in text. It ignores ids of other requests.
func (f *Flights) Cancel(text jsontext.Value) {
	id, ok := rpc.ReadID(text)
	f.mu.Lock()
	defer f.mu.Unlock()
	if cancel := f.all[id]; ok && cancel != nil {
		cancel()
	}
}

// CancelAll cancels all requests.
func (f *Flights) CancelAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, cancel := range f.all {
		cancel()
	}
}

// Any reports whether a request is under way.
func (f *Flights) Any() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.all) > 0
}
