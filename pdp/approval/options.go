package approval

import (
	"cmp"
	"context"
	"time"

	"github.com/google/uuid"
)

// Options are what a [Store] takes from outside. Key and all that has to do with the log
// must be given.
type Options struct {
	// Now is the clock. NewID names approvals and the records of their steps: ids sort
	// by when they were made. The default is UUIDv7.
	Now   func() time.Time
	NewID func() string
	// Key are 32 bytes that nobody else knows. What was not written with it counts for
	// nothing, in the file and in the log.
	Key []byte
	// Record puts a step on record and returns when it is durable. After a crash or a
	// failure it is handed the same step again, with the same id, where Recorded does
	// not know of it. Its context does not end: a step half handed over is in doubt.
	Record func(context.Context, Step) error
	// Recorded says whether a record of that id, of a step or of a decision, is durable.
	// An error means that nobody can tell now; false, that it is not and will not be.
	Recorded func(id string) (bool, error)
	// Attest is the step of that record, if the log vouches for it now; not found is that
	// there is none any more.
	Attest func(ctx context.Context, record string) (s Step, found bool, err error)
	// Steps are what the log has from a size of it on of some approvals, in its order, by
	// their ids: their steps, and for each decision that went by one a step without a
	// name. Of the approvals in them only what a step changes need be there.
	Steps func(ctx context.Context, from uint64, ids map[string]bool) (map[string][]Step, error)
	// Size is how many records the log has.
	Size func() uint64
	// Old is asked once, about the open approvals of a file of format 1: it returns the
	// steps of those for which the log vouches, in their order.
	Old func(ctx context.Context, open []Approval) (map[string][]Step, error)
	// InForce says whether a credential may still approve in a tenant, SamePerson whether
	// two names there are of one person. The defaults are always, and one name.
	InForce    func(tenant, caller string) bool
	SamePerson func(tenant, a, b string) bool
	Limits     Limits
	// Retain is how long final ones are kept: 30 days. The log has their steps still.
	Retain time.Duration
	// Silent is where nobody is to be told: then there is never anything untold.
	Silent bool
	// OnError is told what failed with nobody there to be told.
	OnError func(error)
}

// Limits bound what callers can have people asked.
type Limits struct {
	MaxPendingPerSubject   int // of a subject in a tenant: 200
	MaxPendingPerTenant    int // 10,000
	MaxPendingPerCaller    int // of a caller in a tenant: a quarter of those of the tenant
	NewPerMinutePerSubject int // 60
	NewPerMinutePerCaller  int // of a caller in a tenant: ten times those of a subject
	MaxShown               int // bytes of a request as it is shown: 64 KiB
}

// withDefaults fills in what is not set.
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
		o.InForce = func(_, _ string) bool { return true }
	}
	if o.SamePerson == nil {
		o.SamePerson = func(_, a, b string) bool { return a == b }
	}
	o.Retain = cmp.Or(o.Retain, 30*24*time.Hour)
	o.Limits.MaxPendingPerSubject = cmp.Or(o.Limits.MaxPendingPerSubject, 200)
	o.Limits.MaxPendingPerTenant = cmp.Or(o.Limits.MaxPendingPerTenant, 10_000)
	o.Limits.MaxPendingPerCaller = cmp.Or(o.Limits.MaxPendingPerCaller, max(1, o.Limits.MaxPendingPerTenant/4))
	o.Limits.NewPerMinutePerSubject = cmp.Or(o.Limits.NewPerMinutePerSubject, 60)
	o.Limits.NewPerMinutePerCaller = cmp.Or(o.Limits.NewPerMinutePerCaller, 10*o.Limits.NewPerMinutePerSubject)
	o.Limits.MaxShown = cmp.Or(o.Limits.MaxShown, 64<<10)
	return o
}
