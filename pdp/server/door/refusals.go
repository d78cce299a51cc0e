package door

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// Refusals counts the requests that were refused because there were too many. The operator's log gets one line for
// each limit and minute: a line for each request would let a flood fill it.
type Refusals struct {
	mu     sync.Mutex
	counts map[string]int // by limit, since the last lines
}

// refusalsEvery is how often the counts are logged.
const refusalsEvery = time.Minute

func (r *Refusals) add(limit string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts == nil {
		r.counts = map[string]int{}
	}
	r.counts[limit]++
}

// Counts is how many were refused by each limit since the last report.
func (r *Refusals) Counts() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.counts)
}

// report logs the counts, and begins again at zero.
func (r *Refusals) report(log *slog.Logger) {
	r.mu.Lock()
	counts := r.counts
	r.counts = nil
	r.mu.Unlock()
	for _, limit := range slices.Sorted(maps.Keys(counts)) {
		log.Warn("refused, because there were too many", "limit", limit, "count", counts[limit])
	}
}

// run reports until ctx ends, and once more then.
func (r *Refusals) run(ctx context.Context, log *slog.Logger) {
	tick := time.NewTicker(refusalsEvery)
	defer tick.Stop()
	defer r.report(log)
	for {
		select {
		case <-tick.C:
			r.report(log)
		case <-ctx.Done():
			return
		}
	}
}
