// Package flights knows the requests of one client that are under way, by their ids, so that the client can give them up. It
// knows nothing of what they are for.
//
// Begin with [Flights.Begin] and [Flights.End]; what a client says by notifications/cancelled is for [Flights.Cancel].
package flights

import (
	"context"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/rpc"
)

// Flights are the requests of one client that are under way. The zero Flights are none. Methods may be called side by side.
type Flights struct {
	mu  sync.Mutex
	all map[rpc.ID]context.CancelFunc
}

// Begin notes a request. It is not ok if there is one with that id.
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

// End notes that a request has its answer: its id is free.
func (f *Flights) End(id rpc.ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.all, id)
}

// Cancel gives up a request of this client, whose id is that text. Others it does not know.
func (f *Flights) Cancel(text jsontext.Value) {
	id, ok := rpc.ReadID(text)
	f.mu.Lock()
	defer f.mu.Unlock()
	if cancel := f.all[id]; ok && cancel != nil {
		cancel()
	}
}

// CancelAll gives up all of them.
func (f *Flights) CancelAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, cancel := range f.all {
		cancel()
	}
}

// Any reports whether something is under way.
func (f *Flights) Any() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.all) > 0
}
