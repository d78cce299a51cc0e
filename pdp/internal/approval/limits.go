package approval

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"policy-service/pdp/internal/pace"
)

// limiter bounds how many questions callers put to people: how many wait, and how many come in a minute. The rates are
// those of this process.
type limiter struct {
	most     Limits
	mu       sync.Mutex // guards the rates
	subjects pace.Buckets[owner]
	callers  pace.Buckets[owner]
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
	caller := bucket(&l.callers, r.asker(), l.most.NewPerMinutePerCaller, now)
	if wait := pace.Wait(caller, now); wait > 0 {
		return &LimitError{RetryAfter: wait, OfCaller: true}
	}
	subject := bucket(&l.subjects, r.owner(), l.most.NewPerMinutePerSubject, now)
	if !subject.AllowN(now, 1) {
		return &LimitError{RetryAfter: pace.Wait(subject, now)}
	}
	caller.AllowN(now, 1)
	return nil
}

// laterOn is when to try again if a person must decide before. When that will be is not known.
const laterOn = time.Minute

// bucket is the bucket of an owner. If there is no room for one, it is shared with others of the tenant.
func bucket(of *pace.Buckets[owner], o owner, perMinute int, now time.Time) *rate.Limiter {
	return of.Of(o, owner{tenant: o.tenant}, now, float64(perMinute)/60, perMinute) // no subject is without a type
}
