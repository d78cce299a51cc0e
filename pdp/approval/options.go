package approval

import (
	"cmp"
	"context"
	"time"

	"github.com/google/uuid"
)

// Options are what a [Store] takes from outside. Record and Recorded must be given.
type Options struct {
	// Now is the clock. NewID names approvals and the records of their steps: ids sort
	// by when they were made. The default is UUIDv7.
	Now   func() time.Time
	NewID func() string
	// Record puts a step on record and returns when it is durable. After a crash or a
	// failure it is handed the same step again, with the same id, where Recorded does
	// not know of it. Its context does not end: a step half handed over is in doubt.
	Record func(context.Context, Step) error
	// Recorded says whether a record of that id, of a step or of a decision, is durable.
	// An error means that nobody can tell now; false, that it is not and will not be.
	Recorded func(id string) (bool, error)
	Limits   Limits
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
	NewPerMinutePerSubject int // 60
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
	o.Retain = cmp.Or(o.Retain, 30*24*time.Hour)
	o.Limits.MaxPendingPerSubject = cmp.Or(o.Limits.MaxPendingPerSubject, 200)
	o.Limits.MaxPendingPerTenant = cmp.Or(o.Limits.MaxPendingPerTenant, 10_000)
	o.Limits.NewPerMinutePerSubject = cmp.Or(o.Limits.NewPerMinutePerSubject, 60)
	o.Limits.MaxShown = cmp.Or(o.Limits.MaxShown, 64<<10)
	return o
}
