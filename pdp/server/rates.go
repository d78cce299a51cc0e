package server

import (
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// rates bound how often each caller may ask: a bucket for each, which is forgotten when
// it is full again, because a new one is the same.
type rates struct {
	every Rate
	some  map[string]Rate // of those that have their own
	now   func() time.Time

	mu     sync.Mutex // guards what follows
	of     map[string]*rate.Limiter
	shared map[string]*rate.Limiter // by rule, for callers for whom there is no room
	swept  time.Time
}

// mostRates bounds the memory of the buckets. Callers are known by their credentials,
// but an issuer can name as many subjects as it likes.
const mostRates = 10_000

func newRates(config RateLimit, now func() time.Time) *rates {
	r := &rates{every: config.Rate, some: map[string]Rate{}, now: now, of: map[string]*rate.Limiter{}, shared: map[string]*rate.Limiter{}}
	for _, c := range config.Callers {
		r.some[c.Caller] = c.Rate
	}
	return r
}

func (r Rate) bucket() *rate.Limiter {
	burst := r.Burst
	if burst == 0 {
		burst = r.PerSecond
	}
	return rate.NewLimiter(rate.Limit(r.PerSecond), int(burst))
}

// take takes one from a caller's bucket, or says how long it takes until there is one.
func (r *rates) take(caller string) (wait time.Duration, ok bool) {
	bucket, now := r.bucket(caller), r.now()
	if bucket == nil || bucket.AllowN(now, 1) {
		return 0, true
	}
	missing := 1 - bucket.TokensAt(now)
	return time.Duration(missing / float64(bucket.Limit()) * float64(time.Second)), false
}

// more takes what a request turned out to cost besides. It is not refused for that, but
// the next ones wait until it is made good.
func (r *rates) more(caller string, n int) {
	bucket, now := r.bucket(caller), r.now()
	if bucket == nil {
		return
	}
	for n > 0 {
		part := min(n, bucket.Burst())
		bucket.ReserveN(now, part)
		n -= part
	}
}

// bucket is nil where there is no limit.
func (r *rates) bucket(caller string) *rate.Limiter {
	rule, of := r.rule(caller)
	if of.PerSecond == 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if bucket := r.of[caller]; bucket != nil {
		return bucket
	}
	if len(r.of) >= mostRates {
		r.sweep()
	}
	buckets, name := r.of, caller
	if len(r.of) >= mostRates {
		buckets, name = r.shared, rule
	}
	if buckets[name] == nil {
		buckets[name] = of.bucket()
	}
	return buckets[name]
}

// rule finds the rate by the name of a caller, or by that of its issuer, and otherwise
// takes the one for all, which has no name.
func (r *rates) rule(caller string) (name string, of Rate) {
	if own, ok := r.some[caller]; ok {
		return caller, own
	}
	issuer, _, _ := strings.Cut(caller, "#")
	if own, ok := r.some[issuer]; ok && strings.HasPrefix(caller, "jwt:") {
		return issuer, own
	}
	return "", r.every
}

// sweep forgets the buckets that are full. It goes through all of them, so it is done
// once a second at most.
func (r *rates) sweep() {
	now := r.now()
	if now.Sub(r.swept) < time.Second {
		return
	}
	r.swept = now
	for caller, bucket := range r.of {
		if bucket.TokensAt(now) >= float64(bucket.Burst()) {
			delete(r.of, caller)
		}
	}
}
