package approval

import (
	"time"

	"golang.org/x/time/rate"
)

// rates bound how many new approval requests come of each subject, or of each caller,
// in a minute: a bucket for each, which is forgotten when it is full again, because a new one is the
// same. The writer alone uses it.
type rates struct {
	perMinute int
	of        map[owner]*rate.Limiter
	swept     time.Time
}

func newRates(perMinute int) rates {
	return rates{perMinute: perMinute, of: map[owner]*rate.Limiter{}}
}

// mostRates bounds the memory of the buckets: a caller can name as many subjects as it
// likes. Those for whom there is no room share one with the others of their tenant.
const mostRates = 10_000

// take takes one of an owner's, or says how long it takes until there is one.
func (r *rates) take(o owner, now time.Time) (wait time.Duration, ok bool) {
	if r.bucket(o, now).AllowN(now, 1) {
		return 0, true
	}
	return r.wait(o, now), false
}

// wait is how long it takes until an owner can take one; 0 is that it can now.
func (r *rates) wait(o owner, now time.Time) time.Duration {
	bucket := r.bucket(o, now)
	missing := 1 - bucket.TokensAt(now)
	return time.Duration(max(0, missing) / float64(bucket.Limit()) * float64(time.Second))
}

func (r *rates) bucket(o owner, now time.Time) *rate.Limiter {
	if r.of[o] == nil && len(r.of) >= mostRates {
		r.sweep(now)
	}
	if r.of[o] == nil && len(r.of) >= mostRates {
		o = owner{tenant: o.tenant} // no subject is without a type
	}
	if r.of[o] == nil {
		r.of[o] = rate.NewLimiter(rate.Limit(float64(r.perMinute)/60), r.perMinute)
	}
	return r.of[o]
}

// sweep goes through all of them, so it is done once a second at most.
func (r *rates) sweep(now time.Time) {
	if passed := now.Sub(r.swept); passed >= 0 && passed < time.Second {
		return
	}
	r.swept = now
	for o, bucket := range r.of {
		if bucket.TokensAt(now) >= float64(bucket.Burst()) {
			delete(r.of, o)
		}
	}
}
