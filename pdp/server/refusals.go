package server

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// refusals tell the log how many were refused for being one too many, and not of each:
// a line for each is what a flood would like.
type refusals struct {
	mu     sync.Mutex
	counts map[string]int // by limit, since they were told last
}

// tellRefusals is how often.
const tellRefusals = time.Minute

func (r *refusals) add(limit string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts == nil {
		r.counts = map[string]int{}
	}
	r.counts[limit]++
}

// tell says what there is to say, once.
func (r *refusals) tell(log *slog.Logger) {
	r.mu.Lock()
	counts := r.counts
	r.counts = nil
	r.mu.Unlock()
	for _, limit := range slices.Sorted(maps.Keys(counts)) {
		log.Warn("refused, because there were too many", "limit", limit, "count", counts[limit])
	}
}

// run tells until the server stops, and a last time then.
func (r *refusals) run(log *slog.Logger) func(context.Context) {
	return func(ctx context.Context) {
		tick := time.NewTicker(tellRefusals)
		defer tick.Stop()
		defer r.tell(log)
		for {
			select {
			case <-tick.C:
				r.tell(log)
			case <-ctx.Done():
				return
			}
		}
	}
}
