package approval

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// limiter bounds how many questions callers put to people: how many wait, and how many come in a minute. The rates are
// those of this process.
type limiter struct {
	most     Limits
	mu       sync.Mutex // guards the rates
	subjects rates
	callers  rates
}

// full refuses one more of those that wait.
func (l *limiter) full(n counts) error {
	switch {
	case n.caller >= l.most.MaxPendingPerCaller:
		return &LimitError{RetryAfter: laterOn, OfCaller: true}
	case n.subject >= l.most.MaxPendingPerSubject, n.tenant >= l.most.MaxPendingPerTenant:
		return &LimitError{RetryAfter: laterOn}
	}
	return nil
}

// take lets an approval request in, or refuses it with a [LimitError].
func (l *limiter) take(r *ApprovalRequest, now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	// The rate of the caller is looked at before its subject gets a bucket: a caller that
	// names ever new subjects would leave no buckets to others. It is taken after that of the
	// subject: a subject that asks too often takes nothing from others with the same gateway.
	if wait := l.callers.wait(r.asker(), now); wait > 0 {
		return &LimitError{RetryAfter: wait, OfCaller: true}
	}
	if wait, ok := l.subjects.take(r.owner(), now); !ok {
		return &LimitError{RetryAfter: wait}
	}
	l.callers.take(r.asker(), now)
	return nil
}

// laterOn is when to try again if a person must decide before. When that will be is not known.
const laterOn = time.Minute

// rates bound how many new approval requests come of each subject, or of each caller,
// in a minute: a bucket for each, which is forgotten when it is full again, because a new one is the
// same.
type rates struct {
	perMinute int
	of        map[owner]*rate.Limiter
	swept     time.Time
}

func newRates(perMinute int) rates {
	return rates{perMinute: perMinute, of: map[owner]*rate.Limiter{}}
}

// mostRates bounds the memory of the buckets: a caller can name as many subjects as it
// likes. If there is no room for a subject, it shares a bucket with others of its tenant.
const mostRates = 10_000

// take takes one request of an owner, or returns how long it takes until there is one.
func (r *rates) take(o owner, now time.Time) (wait time.Duration, ok bool) {
	if r.bucket(o, now).AllowN(now, 1) {
		return 0, true
	}
	return r.wait(o, now), false
}

// wait is how long it takes until an owner can take a request; 0 if it can now.
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
