package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/server/audit"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/door"
)

// retention drops the records that the decision log need not keep any more, and finishes redactions that failed half
// way. It runs beside everything else: decisions wait for it only in short moments of the log's writer.
type retention struct {
	once func(context.Context) error
	keep func() decisionlog.Retention
	log  *slog.Logger
	wake chan struct{}
}

const (
	// retainEvery is how often it runs, even if no segment is sealed.
	retainEvery = time.Hour
	// retainAgain is when a run that failed is tried again. Each further failure doubles it, up to retainEvery.
	retainAgain = time.Minute
)

// newRetention makes the retention of a log that is not open yet, and prepares the log's options for it.
func (d *decisionLog) newRetention(o *decisionlog.Options, readers *audit.Audit) *retention {
	keep := func() decisionlog.Retention { return d.live.Load().config.DecisionLog.Retain.bounds() }
	// for tests: their retention replaces that of the configuration
	if tune := d.config.Program.tuneLog; tune != nil {
		tuned := keep()
		tune(o, &tuned)
		keep = func() decisionlog.Retention { return tuned }
	}
	r := &retention{keep: keep, log: d.base.log, wake: make(chan struct{}, 1)}
	r.once = func(ctx context.Context) error {
		readers.LetExportsPass(ctx)
		done, err := d.Retain(ctx, keep(), d.now()) // without a retention it finishes what failed half way
		d.telemetry.Log.Retained(done, err)
		if err == nil && len(done.Segments) > 0 {
			d.base.log.Info("retention dropped records", "segments", len(done.Segments), "records", done.Records, "freed", done.Freed)
		}
		return err
	}
	o.On.Aged = r.runSoon
	rotated := o.On.Rotate
	o.On.Rotate = func() { // the log's writer calls it, so it must not wait
		rotated()
		r.runSoon()
	}
	return r
}

// runSoon runs it now, or again if it is running already.
func (r *retention) runSoon() {
	select {
	case r.wake <- struct{}{}:
	default: // the next run is due already
	}
}

// run drops records at the start, after each segment that was sealed, when enough has become old for a refused caller
// to write again, when the log can be written again, after a new configuration, and every hour.
func (r *retention) run(ctx context.Context) {
	again := retainAgain
	for {
		wait, wake := retainEvery, r.wake
		if err := r.once(ctx); err == nil {
			again = retainAgain
		} else if ctx.Err() == nil {
			advice := "see to the disk of the data directory"
			if errors.Is(err, record.ErrDamaged) {
				advice = "run policy-service log verify, keep the file as evidence, put back a copy that verifies, and start again"
			}
			r.log.Error("retention failed, and records are kept longer than configured; it is tried again; "+advice,
				"error", err, "again_in", again)
			// What fails may itself have sealed a segment: that is no reason to hurry.
			wait, wake = again, nil
			again = min(2*again, retainEvery)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		case <-wake:
		}
	}
}

// limitCallers has the log limit what callers put on record, by the configuration in force.
func (d *decisionLog) limitCallers(ctx context.Context) error {
	return d.Limit(ctx, d.retention.keep())
}

// reconfigured has a new configuration count.
func (d *decisionLog) reconfigured(ctx context.Context) {
	if err := d.limitCallers(context.WithoutCancel(ctx)); err != nil {
		d.base.log.Error("callers are bounded by what decision_log.retain said before; see to the disk of the data directory, and restart", "error", err)
	}
	d.retention.runSoon()
}

// room refuses a caller if nothing more of it can be put on record now. Without a log there is always room.
func (d *decisionLog) room(caller *auth.Caller) error {
	if d == nil {
		return nil
	}
	payer := caller.Name
	if caller.May(auth.Relay) { // whom it asks for is not known yet
		payer = decisionlog.ForPerson(payer, "")
	}
	var none *decisionlog.RoomError
	if errors.As(d.Log.Room(payer), &none) { // any other error is that of the write to come
		return noRoom(none)
	}
	return nil
}

// noRoom is the problem that nothing more can be put on record.
func noRoom(none *decisionlog.RoomError) *door.Problem {
	status, detail := http.StatusTooManyRequests, "this caller has put as much on record lately as one caller may; ask again after Retry-After seconds"
	switch none.Bound {
	case decisionlog.BoundPerson:
		detail = "the one for whom this caller asks has put as much on record lately as one person may, and others have not; ask again for them after Retry-After seconds"
	case decisionlog.BoundIssuer:
		detail = "the subjects of this caller's issuer together have put as much on record lately as they may; ask again after Retry-After seconds"
	case decisionlog.BoundAll:
		status, detail = http.StatusServiceUnavailable, "the decision log is full of records that are too young to be dropped, so nothing is decided; ask again after Retry-After seconds"
	}
	return door.TooMany(string(none.Bound), none.RetryAfter, status, detail)
}
