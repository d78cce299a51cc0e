package rates

import (
	"context"
	"sync"
	"time"
)

// Bill charges a key for the work that one message of it causes. The message itself has paid for its being relayed to a server,
// and for fewer than 32 questions.
type Bill struct {
	of  *Limiter
	key string

	mu        sync.Mutex
	paid      float64   // without what the bucket got back since
	at        time.Time // of the last payment
	questions int
	relayed   bool
}

// eachOfQuestions is the number of questions that count as one more message.
const eachOfQuestions = 32

type billKey struct{}

// WithBill returns a context for the work on one message of a key. A nil limiter charges nothing.
func (l *Limiter) WithBill(ctx context.Context, key string) context.Context {
	if l == nil {
		return ctx
	}
	return context.WithValue(ctx, billKey{}, &Bill{of: l, key: key, paid: 1, at: l.options.Now()})
}

// BillOf returns the bill of the message that is worked on, nil if there is none.
func BillOf(ctx context.Context) *Bill {
	b, _ := ctx.Value(billKey{}).(*Bill)
	return b
}

// Pay charges for more work, and waits until other messages of the key owe nothing. It is not ok if that takes too long: then the
// work must not be done, and after is when the message can come again. A nil bill costs nothing.
func (b *Bill) Pay(ctx context.Context, more int) (after time.Duration, ok bool) {
	if b == nil || more == 0 {
		return 0, true
	}
	b.mu.Lock()
	now := b.of.options.Now()
	b.paid = max(0, b.paid-now.Sub(b.at).Seconds()*float64(b.of.options.Rate))
	b.at = now
	had := b.paid
	b.paid += float64(more)
	b.mu.Unlock()
	if after, ok = b.of.pay(ctx, b.key, had, more); !ok {
		b.mu.Lock()
		b.paid = max(0, b.paid-float64(more)) // the work is not done
		b.mu.Unlock()
	}
	return after, ok
}

// Ask pays for questions that are about to be asked.
func (b *Bill) Ask(ctx context.Context, questions int) (after time.Duration, ok bool) {
	if b == nil {
		return 0, true
	}
	b.mu.Lock()
	before := b.questions / eachOfQuestions
	b.questions += questions
	more := b.questions/eachOfQuestions - before
	b.mu.Unlock()
	return b.Pay(ctx, more)
}

// Relay notes that the message is relayed to a server. Each time but the first is charged.
func (b *Bill) Relay() {
	if b == nil {
		return
	}
	b.mu.Lock()
	again := b.relayed
	b.relayed = true
	b.mu.Unlock()
	if again {
		b.of.Charge(b.key, 1)
	}
}
