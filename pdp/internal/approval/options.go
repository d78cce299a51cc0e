package approval

import (
	"cmp"
	"context"
	"time"

	"github.com/google/uuid"

	"policy-service/pdp/internal/ledger"
)

// Options configure a [Store]. Key and all that has to do with the log
// must be given.
type Options struct {
	// Now is the clock. NewID names approvals and the records of their steps: ids sort
	// by when they were made. The default is UUIDv7.
	Now   func() time.Time
	NewID func() string
	// Engine keeps the approvals, the file in the data directory unless it is given; and Origin is the name of the log here,
	// if others write to the engine, too.
	Engine ledger.Engine
	Origin string
	// Generation is how often what others write to the engine was put back from a copy, 0 if there are no others.
	Generation uint64
	// Behind is how far the clock here may be behind that of another process that writes to the engine, at most: nil is not
	// at all. Room refuses, unless it is nil, what is filed anew.
	Behind func() time.Duration
	Room   func() error
	// Key is a secret of 32 bytes. A value that was not written with it counts for nothing, in the
	// file and in the log.
	Key []byte
	// Record puts a step on record and returns when it is durable. After a crash or a
	// failure it gets the same step again, with the same id, unless Recorded knows the step.
	// Its context does not end: a step that is handed over half is in doubt.
	Record func(context.Context, Step) error
	// Recorded reports whether the record of a step or of a decision is durable. An error
	// means that this cannot be known now; false, that the record is not there and will not be.
	Recorded func(id string) (bool, error)
	// Withdraw puts a withdrawal on record, once for each decision, and returns when the record is durable.
	Withdraw func(context.Context, Withdrawal) error
	// Attest reads the step of a record, if the log vouches for the record now. Of the record of
	// a decision that used an approval it is a step without a name, as Steps has it. Not found
	// means that the record is gone.
	Attest func(ctx context.Context, record string) (s Step, found bool, err error)
	// Prove is a record of the log with its proof, and Verify reads the step of such a record of another origin as Attest
	// does. Its error means that nothing follows from the record. They are needed if Origin is.
	Prove  func(ctx context.Context, record string) (p Proof, found bool, err error)
	Verify func(Proof) (Step, error)
	// Lost are the other origins whose logs will never say anything any more; nil is none.
	Lost func(context.Context) ([]string, error)
	// Steps reads the records in the log of some approvals from a size of the log on, in the order
	// of the log and by the ids of the approvals: their steps, and a step without a name for
	// each decision that used one. The approvals in the steps need only the fields that a step changes.
	Steps func(ctx context.Context, from uint64, ids map[string]bool) (map[string][]Step, error)
	// Size is how many records the log has.
	Size func() uint64
	// InForce reports whether a credential may still approve in a tenant, with the caller that
	// relayed it if there was one; the default is always. SamePerson reports whether two names
	// in a tenant are of one person; the default is that equal names are.
	InForce    func(tenant, caller, gateway string) bool
	SamePerson func(tenant, a, b string) bool
	Limits     Limits
	// Retain is how long approvals are kept after they ended: 30 days. The log still has
	// their steps.
	Retain time.Duration
	// Silent says that no system receives events of approvals. Then none is ever due.
	Silent bool
	// OnError gets the failures that no caller gets.
	OnError func(error)
}

// Limits bound how many questions callers put to people.
type Limits struct {
	MaxPendingPerSubject   int // of a subject in a tenant: 200
	MaxPendingPerTenant    int // 10,000
	MaxPendingPerCaller    int // of a caller in a tenant: half of those of the tenant
	NewPerMinutePerSubject int // 60
	NewPerMinutePerCaller  int // of a caller in a tenant: ten times those of a subject
	MaxShown               int // bytes of a request as it is shown: 64 KiB
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
	if o.InForce == nil {
		o.InForce = func(_, _, _ string) bool { return true }
	}
	if o.SamePerson == nil {
		o.SamePerson = func(_, a, b string) bool { return a == b }
	}
	o.Retain = cmp.Or(o.Retain, 30*24*time.Hour)
	o.Limits.MaxPendingPerSubject = cmp.Or(o.Limits.MaxPendingPerSubject, 200)
	o.Limits.MaxPendingPerTenant = cmp.Or(o.Limits.MaxPendingPerTenant, 10_000)
	o.Limits.MaxPendingPerCaller = cmp.Or(o.Limits.MaxPendingPerCaller, max(1, o.Limits.MaxPendingPerTenant/2))
	o.Limits.NewPerMinutePerSubject = cmp.Or(o.Limits.NewPerMinutePerSubject, 60)
	o.Limits.NewPerMinutePerCaller = cmp.Or(o.Limits.NewPerMinutePerCaller, 10*o.Limits.NewPerMinutePerSubject)
	o.Limits.MaxShown = cmp.Or(o.Limits.MaxShown, 64<<10)
	return o
}
