// Package flights keeps the requests of one client that are under way, by their ids, so that the client can cancel them. It
// does not know the purpose of a request.
//
// Begin with [Flights.Begin] and [Flights.End]. A notifications/cancelled of the client goes to [Flights.Cancel].
package flights

import (
	"context"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/rpc"
)

// Flights are requests of one client that are under way; the zero Flights hold none. Methods may be called concurrently.
type Flights struct {
	all sync.Map // a context.CancelFunc for each rpc.ID
}

// Begin adds a request. It is not ok if a request with that id is under way.
func (f *Flights) Begin(id rpc.ID, cancel context.CancelFunc) (ok bool) {
	_, busy := f.all.LoadOrStore(id, cancel)
	return !busy
}

// End removes a request that has its answer: its id is free.
func (f *Flights) End(id rpc.ID) { f.all.Delete(id) }

// Cancel cancels the request of this client with the id in text. It ignores ids of other requests.
func (f *Flights) Cancel(text jsontext.Value) {
	id, ok := rpc.ReadID(text)
	if cancel, begun := f.all.Load(id); ok && begun {
		cancel.(context.CancelFunc)()
	}
}

// CancelAll cancels all requests.
func (f *Flights) CancelAll() {
	for _, cancel := range f.all.Range {
		cancel.(context.CancelFunc)()
	}
}

// Any reports whether a request is under way.
func (f *Flights) Any() bool {
	for range f.all.Range {
		return true
	}
	return false
}
