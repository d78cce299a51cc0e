package door

import (
	"cmp"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// rates limits how often each caller may ask. Each caller has a bucket, which is forgotten when it is full again: a
// new bucket is the same.
type rates struct {
	every Rate
	own   map[string]Rate // of callers and issuers that have their own
	now   func() time.Time

	mu      sync.Mutex // guards the rest
	buckets map[string]*rate.Limiter
	shared  map[string]*rate.Limiter // by rule, of callers that find no room for a bucket of their own
	swept   time.Time
}

// mostRates limits the memory of the buckets. Callers are known by their credentials, but an issuer can name as many
// subjects as it likes.
const mostRates = 10_000

// newRates makes no bucket yet: a caller gets one with its first request.
func newRates(config RateLimit, now func() time.Time) *rates {
	r := &rates{
		every:   config.Rate,
		own:     map[string]Rate{},
		now:     now,
		buckets: map[string]*rate.Limiter{},
		shared:  map[string]*rate.Limiter{},
	}
	for _, c := range config.Callers {
		r.own[c.Caller] = c.Rate
	}
	return r
}

func (r Rate) bucket() *rate.Limiter {
	return rate.NewLimiter(rate.Limit(r.PerSecond), int(cmp.Or(r.Burst, r.PerSecond)))
}

// take takes one request from a caller's bucket, or says how long it takes until there is one in it.
func (r *rates) take(caller string) (wait time.Duration, ok bool) {
	bucket, now := r.bucket(caller), r.now()
	if bucket == nil || bucket.AllowN(now, 1) {
		return 0, true
	}
	missing := 1 - bucket.TokensAt(now)
	return time.Duration(missing / float64(bucket.Limit()) * float64(time.Second)), false
}

// more takes the further cost of a request. The request itself is not refused for that, but the next ones
// wait until the bucket has recovered.
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

// bucket is a caller's bucket; nil if there is no limit.
func (r *rates) bucket(caller string) *rate.Limiter {
	rule, limit := r.rule(caller)
	if limit.PerSecond == 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if bucket := r.buckets[caller]; bucket != nil {
		return bucket
	}
	if len(r.buckets) >= mostRates {
		r.sweep()
	}
	buckets, name := r.buckets, caller
	if len(r.buckets) >= mostRates {
		buckets, name = r.shared, rule
	}
	if buckets[name] == nil {
		buckets[name] = limit.bucket()
	}
	return buckets[name]
}

// rule finds the rate of a caller: its own, or that of its issuer, or the rate for all, which has no name.
func (r *rates) rule(caller string) (name string, limit Rate) {
	if own, ok := r.own[caller]; ok {
		return caller, own
	}
	issuer, _, _ := strings.Cut(caller, "#")
	if own, ok := r.own[issuer]; ok && strings.HasPrefix(caller, "jwt:") {
		return issuer, own
	}
	return "", r.every
}

// sweep forgets the buckets that are full. It looks at all of them, and so runs at most once a second.
func (r *rates) sweep() {
	now := r.now()
	if now.Sub(r.swept) < time.Second {
		return
	}
	r.swept = now
	for caller, bucket := range r.buckets {
		if bucket.TokensAt(now) >= float64(bucket.Burst()) {
			delete(r.buckets, caller)
		}
	}
}
