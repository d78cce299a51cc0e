package capability

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"policy-service/evaluation"
	"policy-service/pdp/internal/ledger"
	"policy-service/pdp/internal/pace"
)

// Options configure a [Store]. Key and all that has to do with the log must be given.
type Options struct {
	// Now is the clock. NewID makes ids, which sort by when they were made. The default is UUIDv7.
	Now   func() time.Time
	NewID func() string
	// Engine keeps the capabilities, the file in the data directory unless it is given; and Origin is the name of the log
	// here, if others write to the engine, too.
	Engine ledger.Engine
	Origin string
	// Generation is how often what others write to the engine was put back from a copy, 0 if there are no others.
	Generation uint64
	// Behind is how far the clock here may be behind that of another process that writes to the engine, at most: nil is not
	// at all. Room refuses, unless it is nil, what is granted anew.
	Behind func() time.Duration
	Room   func() error
	// Key is the service's key of approvals: 32 bytes, of which the keys of this store are derived. A value that was not
	// written with it counts for nothing, in the file and in the log.
	Key []byte
	// Record puts a step on record and returns when it is durable. After a crash or a failure it gets the same step again,
	// with the same id, unless Recorded knows the step. Its context does not end.
	Record func(context.Context, Step) error
	// Recorded reports whether the record of a step or of a decision is durable. An error means that this cannot be known
	// now; false, that the record is not there and will not be.
	Recorded func(id string) (bool, error)
	// Withdraw puts a withdrawal on record, once for each decision, and returns when the record is durable.
	Withdraw func(context.Context, Withdrawal) error
	// Attest reads the step of a record, if the log vouches for the record now. Not found means that the record is gone.
	Attest func(ctx context.Context, record string) (s Step, found bool, err error)
	// Prove is a record of the log with its proof, and Verify reads the step of such a record of another origin as Attest
	// does. Its error means that nothing follows from the record. They are needed if Origin is.
	Prove  func(ctx context.Context, record string) (p Proof, found bool, err error)
	Verify func(Proof) (Step, error)
	// Lost are the other origins whose logs will never say anything any more; nil is none.
	Lost func(context.Context) ([]string, error)
	// Steps reads the records in the log of some capabilities from a size of the log on, in the order of the log and by the
	// ids of the capabilities: their steps, and a step without a name for each decision that used, granted or renewed one.
	// The capabilities in the steps need only ID, Version and State.
	Steps func(ctx context.Context, from uint64, ids map[string]bool) (map[string][]Step, error)
	// Size is how many records the log has.
	Size   func() uint64
	Limits Limits
	// Retain is how long capabilities are kept after they ended: 30 days. The log still has their steps.
	Retain time.Duration
	// OnError gets the failures that no caller gets.
	OnError func(error)
}

// Limits bound how many capabilities there are, and how many are asked for at once.
type Limits struct {
	MaxLivePerHolder      int // of an owner in a tenant, which [OwnerOf] returns: 100
	MaxLivePerTenant      int // 100,000, and half of it of one holder, whatever its persons
	NewPerMinutePerHolder int // requests for an owner in a tenant, granted or not: 60
}

// withDefaults fills in the defaults.
func (o Options) withDefaults() Options {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.NewID == nil {
		o.NewID = func() string { return uuid.Must(uuid.NewV7()).String() }
	}
	if o.OnError == nil {
		o.OnError = func(error) {}
	}
	o.Retain = cmp.Or(o.Retain, 30*24*time.Hour)
	o.Limits.MaxLivePerHolder = cmp.Or(o.Limits.MaxLivePerHolder, 100)
	o.Limits.MaxLivePerTenant = cmp.Or(o.Limits.MaxLivePerTenant, 100_000)
	o.Limits.NewPerMinutePerHolder = cmp.Or(o.Limits.NewPerMinutePerHolder, 60)
	return o
}

// laterOn is when to try again if a capability must end before. When that will be is not known.
const laterOn = time.Minute

// owner is an owner in a tenant, as [OwnerOf] returns it.
type owner struct {
	tenant string
	evaluation.Ref
}

// rates bound how many capabilities are asked for each owner in a minute. They are those of this process.
type rates struct {
	perMinute int
	mu        sync.Mutex // guards owners
	owners    pace.Buckets[owner]
}

// take lets one in, or refuses it with a [LimitError]. If there is no room for a bucket of an owner, it shares one with
// others of its tenant.
func (r *rates) take(o owner, now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	bucket := r.owners.Of(o, owner{tenant: o.tenant}, now, float64(r.perMinute)/60, r.perMinute) // no owner is empty
	if !bucket.AllowN(now, 1) {
		return &LimitError{RetryAfter: pace.Wait(bucket, now)}
	}
	return nil
}
