package gate

import (
	"context"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/rpc"
)

// flights are the requests of one client that are under way, by their ids. The zero flights are none.
type flights struct {
	mu  sync.Mutex
	all map[rpc.ID]context.CancelFunc
}

// begin notes a request. It is not ok if there is one with that id.
func (f *flights) begin(id rpc.ID, cancel context.CancelFunc) bool {
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

func (f *flights) end(id rpc.ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.all, id)
}

// cancel gives up a request of this client. Others it does not know.
func (f *flights) cancel(text jsontext.Value) {
	id, ok := rpc.ReadID(text)
	f.mu.Lock()
	defer f.mu.Unlock()
	if cancel := f.all[id]; ok && cancel != nil {
		cancel()
	}
}

// cancelAll gives up all of them.
func (f *flights) cancelAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, cancel := range f.all {
		cancel()
	}
}

func (f *flights) any() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.all) > 0
}
