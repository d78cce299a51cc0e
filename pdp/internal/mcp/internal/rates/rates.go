// Package rates limits how often each key may ask: a principal, or a principal and a tool.
//
// Begin with [New] and [Limiter.Admit]; [Limiter.Hold] limits things that last, and a [Bill] charges for what a message causes.
// A limiter keeps a bounded number of keys. It forgets one only when its bucket is full again and nothing of it runs, so that no
// key gains by being forgotten. While all places are taken, new keys wait; no account takes many of them by its keys, and by the
// tools that they name.
package rates

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"maps"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Options are the bounds of each key.
type Options struct {
	// Rate is how many a second, and Burst how many at once after a rest.
	Rate  rate.Limit
	Burst int
	// Concurrent is how many may run at a time; 0 is any number.
	Concurrent int
	// ToolRate and ToolBurst are those of each tool. Without ToolRate a tool has no bound of its own; without ToolBurst its
	// burst is one second's worth.
	ToolRate  rate.Limit
	ToolBurst int
	// Holds are how many things of a kind one key may hold at a time.
	Holds map[string]int
	// Keys is how many buckets are kept; 0 is 100,000, of some 300 bytes each.
	Keys int
	// Now is the clock; nil is [time.Now], which does not go back.
	Now func() time.Time
}

// Limiter holds all keys to the same bounds.
type Limiter struct {
	options Options

	mu     sync.Mutex
	now    time.Time // of the call that holds the lock
	meters map[name]*meter
	owned  map[string]int // by account, the number of meters that Admit has made
	swept  time.Time      // when meters were last forgotten
}

// name names a meter: of a key, of a tool for the key, or of the things of a kind that the key holds.
type name struct{ key, tool, holds string }

type meter struct {
	bucket  *rate.Limiter
	account string // "" if Admit has not made it
	running int
	tools   int // meters of tools for the key, which are forgotten before it
}

const (
	usualKeys = 100_000
	// busy is when to try again if other calls must make room first.
	busy = time.Second
	// maxFull bounds how long a key is remembered.
	maxFull = 24 * time.Hour
	// mostOwned is how many meters one account may have, of its keys and of the tools that they name. Nobody knows yet whether
	// there is such a tool: with names that it invents, by many keys, an account would take all places.
	mostOwned = 1001
)

// New makes a limiter.
func New(o Options) (*Limiter, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Keys = cmp.Or(o.Keys, usualKeys)
	if o.ToolRate > 0 && o.ToolBurst == 0 {
		o.ToolBurst = max(1, int(math.Ceil(math.Min(float64(o.ToolRate), math.MaxInt32))))
	}
	switch {
	case !(o.Rate > 0) || o.Burst < 1:
		return nil, errors.New("rate or burst is missing or negative; write both, such as rate: 10/s and burst: 50")
	case max(fills(o.Rate, o.Burst), fills(o.ToolRate, o.ToolBurst)) > maxFull.Seconds():
		return nil, errors.New("the rate takes longer than a day to fill the burst; write a higher rate, or a lower burst")
	}
	return &Limiter{options: o, meters: map[name]*meter{}, owned: map[string]int{}}, nil
}

// fills is how many seconds an empty bucket takes to fill.
func fills(r rate.Limit, burst int) float64 {
	if !(r > 0) {
		return 0
	}
	return float64(burst) / float64(r)
}

// Admit asks if a key of an account may do one thing more now, with a tool if there is one. Where it may, release ends that thing, and
// must be called; more calls do nothing. Where not, nothing is taken from any bucket, and retryAfter is when to try again.
func (l *Limiter) Admit(account, key, tool string) (release func(), retryAfter time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = l.options.Now()
	whole, wait := l.meter(account, name{key: key}, l.options.Rate, l.options.Burst)
	if wait > 0 {
		return nothing, wait, false
	}
	if l.options.Concurrent > 0 && whole.running >= l.options.Concurrent {
		return nothing, busy, false
	}
	whole.running++ // so that to make room for its tool does not forget it
	if tool != "" && l.options.ToolRate > 0 {
		part, wait := l.meter(account, name{key: key, tool: short(tool)}, l.options.ToolRate, l.options.ToolBurst)
		if wait > 0 {
			whole.running--
			return nothing, wait, false
		}
		part.bucket.AllowN(l.now, 1)
	}
	whole.bucket.AllowN(l.now, 1)
	return l.release(whole), 0, true
}

// mostOwed bounds for how long a key is kept waiting for what it was charged.
const mostOwed = time.Minute

// Charge takes more from a key's bucket than its admission did, once the costs are known. If the bucket has less, the key owes
// the rest, and is not admitted until that is back.
func (l *Limiter) Charge(key string, more int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = l.options.Now()
	m, _ := l.meter("", name{key: key}, l.options.Rate, l.options.Burst)
	if m == nil || l.options.Rate == rate.Inf {
		return
	}
	l.take(m, more)
}

// take takes from the bucket of a meter, also what it has not. Beyond [mostOwed] nothing is owed.
func (l *Limiter) take(m *meter, more int) {
	most := int(m.bucket.TokensAt(l.now) + float64(l.options.Rate)*mostOwed.Seconds())
	for more = min(more, most); more > 0; more -= l.options.Burst {
		m.bucket.ReserveN(l.now, min(more, l.options.Burst))
	}
}

// mostWait bounds for how long work waits for a key's bucket.
const mostWait = 2 * time.Second

// pay takes more from a key's bucket, of which the same work has already had some, and waits until other work owes nothing. It is
// not ok if that takes too long or ctx ends: then the work must not go on, and after is when to try again.
func (l *Limiter) pay(ctx context.Context, key string, had float64, more int) (after time.Duration, ok bool) {
	wait, ok := l.reserve(key, had, more)
	if wait <= 0 || !ok {
		return wait, ok
	}
	due := time.NewTimer(wait)
	defer due.Stop()
	select {
	case <-due.C:
		return 0, true
	case <-ctx.Done():
		return busy, false
	}
}

// Owes reports whether more was taken from a key's bucket than it had.
func (l *Limiter) Owes(key string) bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.meters[name{key: key}]
	return m != nil && l.options.Rate != rate.Inf && m.bucket.TokensAt(l.options.Now()) < 0
}

func (l *Limiter) reserve(key string, had float64, more int) (wait time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = l.options.Now()
	m, _ := l.meter("", name{key: key}, l.options.Rate, l.options.Burst)
	switch {
	case l.options.Rate == rate.Inf:
		return 0, true
	case m == nil:
		return busy, false
	}
	lacks := min(had+float64(more), float64(l.options.Burst)) - had - m.bucket.TokensAt(l.now) // work may cost more than a full bucket
	if wait = time.Duration(lacks / float64(l.options.Rate) * float64(time.Second)); wait > mostWait {
		return wait, false
	}
	l.take(m, more)
	return wait, true
}

// Hold asks if a key may hold one thing more of a kind. Such things count beside what is admitted, and take nothing from any
// bucket. Release ends it, as that of [Limiter.Admit] does.
func (l *Limiter) Hold(key, kind string) (release func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = l.options.Now()
	m, wait := l.meter("", name{key: key, holds: kind}, rate.Inf, 1)
	if wait > 0 || m.running >= l.options.Holds[kind] {
		return nothing, false
	}
	m.running++
	return l.release(m), true
}

func nothing() {}

// short is a tool's name, or a digest of a longer one: clients choose the names in their requests.
func short(tool string) string {
	if len(tool) <= 128 {
		return tool
	}
	sum := sha256.Sum256([]byte(tool))
	return string(sum[:])
}

// release returns the function that ends an admitted thing. Further calls of that function do nothing.
func (l *Limiter) release(m *meter) func() {
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		m.running--
	})
}

// meter returns the meter of a name, and how long until its bucket has one. A key has its own meter before those of its tools. With
// an account, a new meter is one of those that the account may have.
func (l *Limiter) meter(account string, n name, r rate.Limit, burst int) (*meter, time.Duration) {
	m := l.meters[n]
	if m == nil {
		if l.forget(); len(l.meters) >= l.options.Keys {
			return nil, busy
		}
		if account != "" {
			if l.owned[account] >= mostOwned {
				return nil, busy
			}
			l.owned[account]++
		}
		if n.tool != "" {
			l.meters[name{key: n.key}].tools++
		}
		m = &meter{bucket: rate.NewLimiter(r, burst), account: account}
		l.meters[n] = m
	}
	if r == rate.Inf {
		return m, 0
	}
	// Less than a nanosecond is none, to the bucket too.
	if wait := time.Duration((1 - m.bucket.TokensAt(l.now)) / float64(r) * float64(time.Second)); wait > 0 {
		return m, wait + time.Nanosecond
	}
	return m, 0
}

// forget forgets meters with full buckets of which nothing runs, once a second at most: it goes through all of them.
func (l *Limiter) forget() {
	if l.now.Sub(l.swept) < busy {
		return
	}
	l.swept = l.now
	maps.DeleteFunc(l.meters, func(n name, m *meter) bool {
		rests := m.running == 0 && m.tools == 0 && (m.bucket.Limit() == rate.Inf || m.bucket.TokensAt(l.now) >= float64(m.bucket.Burst()))
		if rests && n.tool != "" {
			l.meters[name{key: n.key}].tools--
		}
		if rests && m.account != "" {
			if l.owned[m.account]--; l.owned[m.account] == 0 {
				delete(l.owned, m.account)
			}
		}
		return rests
	})
}
