package upstream

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"
)

// backoff keeps a server that fails from being started again and again. It is by principal: no principal can keep others waiting.
type backoff struct {
	now func() time.Time

	mu       sync.Mutex
	failures map[string]failure
}

type failure struct {
	times int
	last  time.Time
}

const (
	firstBackoff = 100 * time.Millisecond
	mostBackoff  = 30 * time.Second
	// forgetFailures is how long after its last failure a server is as good as one that never failed.
	forgetFailures = 5 * time.Minute
	mostFailures   = 4096
	// mostWait is the longest wait for a server. A client that would wait for longer is refused at once.
	mostWait = 500 * time.Millisecond
)

// failed notes that a server did not start, or ended by itself.
func (b *backoff) failed(principal string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	f, known := b.failures[principal]
	if now.Sub(f.last) > forgetFailures {
		f.times = 0
	}
	if !known && len(b.failures) >= mostFailures {
		maps.DeleteFunc(b.failures, func(_ string, f failure) bool { return now.Sub(f.last) > forgetFailures })
	}
	if b.failures == nil || !known && len(b.failures) >= mostFailures {
		b.failures = map[string]failure{} // so many fail that waiting helps none of them
	}
	b.failures[principal] = failure{f.times + 1, now}
}

// left is how long a principal has to wait.
func (b *backoff) left(principal string) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	f, known := b.failures[principal]
	now := b.now()
	if !known || now.Sub(f.last) > forgetFailures {
		return 0
	}
	delay := min(firstBackoff<<min(f.times-1, 16), mostBackoff)
	return f.last.Add(delay).Sub(now)
}

// wait waits until a server may be started for a principal, if that is soon.
func (b *backoff) wait(ctx context.Context, principal string) error {
	for left := b.left(principal); left > 0; left = b.left(principal) {
		if left > mostWait {
			return fmt.Errorf("it is tried again in %v", left.Round(time.Second/10))
		}
		if err := pause(ctx, left); err != nil {
			return err
		}
	}
	return ctx.Err()
}
