// Package pace bounds how often each of many may ask. Start with the zero [Buckets].
package pace

import (
	"time"

	"golang.org/x/time/rate"
)

// Most is how many keys have a bucket at most: one caller can name as many subjects as it likes.
const Most = 10_000

// Buckets has a bucket for each key, which is forgotten when it is full again, because a new one is the same. Its owner
// locks it.
type Buckets[K comparable] struct {
	of    map[K]*rate.Limiter
	swept time.Time
}

// Of is the bucket of a key. If there is no room for one more, it is that of the shared key.
func (b *Buckets[K]) Of(key, shared K, now time.Time, perSecond float64, burst int) *rate.Limiter {
	if b.of[key] == nil && len(b.of) >= Most {
		b.sweep(now)
	}
	if b.of[key] == nil && len(b.of) >= Most {
		key = shared
	}
	if b.of == nil {
		b.of = map[K]*rate.Limiter{}
	}
	if b.of[key] == nil {
		b.of[key] = rate.NewLimiter(rate.Limit(perSecond), burst)
	}
	return b.of[key]
}

// sweep goes through all of them, so it is done once a second at most.
func (b *Buckets[K]) sweep(now time.Time) {
	if passed := now.Sub(b.swept); passed >= 0 && passed < time.Second {
		return
	}
	b.swept = now
	for key, bucket := range b.of {
		if bucket.TokensAt(now) >= float64(bucket.Burst()) {
			delete(b.of, key)
		}
	}
}

// Wait is how long it takes until there is one in a bucket; 0 if there is one now.
func Wait(bucket *rate.Limiter, now time.Time) time.Duration {
	missing := 1 - bucket.TokensAt(now)
	return time.Duration(max(0, missing) / float64(bucket.Limit()) * float64(time.Second))
}
