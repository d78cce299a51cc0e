package door

import (
	"cmp"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"policy-service/pdp/internal/pace"
)

// rates limits how often each caller may ask.
type rates struct {
	every Rate
	own   map[string]Rate // of callers and issuers that have their own
	now   func() time.Time

	mu      sync.Mutex // guards the buckets
	buckets pace.Buckets[bucketKey]
}

// newRates makes no bucket yet: a caller gets one with its first request.
func newRates(config RateLimit, now func() time.Time) *rates {
	r := &rates{every: config.Rate, own: map[string]Rate{}, now: now}
	for _, c := range config.Callers {
		r.own[c.Caller] = c.Rate
	}
	return r
}

// take takes one request from a caller's bucket, or says how long it takes until there is one in it.
func (r *rates) take(caller string) (wait time.Duration, ok bool) {
	now := r.now()
	bucket := r.bucket(caller, now)
	if bucket == nil || bucket.AllowN(now, 1) {
		return 0, true
	}
	return pace.Wait(bucket, now), false
}

// more takes the further cost of a request. The request itself is not refused for that, but the next ones
// wait until the bucket has recovered.
func (r *rates) more(caller string, n int) {
	now := r.now()
	bucket := r.bucket(caller, now)
	if bucket == nil {
		return
	}
	for n > 0 {
		part := min(n, bucket.Burst())
		bucket.ReserveN(now, part)
		n -= part
	}
}

// bucketKey is a caller, or a rule by which callers share a bucket.
type bucketKey struct {
	name   string
	shared bool
}

// bucket is a caller's bucket, or one that callers share by the same rule; nil if there is no limit. Callers are known by
// their credentials, but an issuer can name as many subjects as it likes.
func (r *rates) bucket(caller string, now time.Time) *rate.Limiter {
	rule, limit := r.rule(caller)
	if limit.PerSecond == 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.buckets.Of(bucketKey{name: caller}, bucketKey{rule, true}, now, float64(limit.PerSecond), int(cmp.Or(limit.Burst, limit.PerSecond)))
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
