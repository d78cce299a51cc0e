package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"policy-service/pdp/decisionlog"
	"policy-service/pdp/server/door"
)

// retention drops what the decision log need not keep any more, beside everything
// else: no decision waits for it but for moments of the log's writer.
type retention struct {
	once func(context.Context) error
	keep func() decisionlog.Retention
	log  *slog.Logger
	wake chan struct{}
}

const (
	// retainEvery is how often records are looked at for their age, also where no
	// segment is sealed.
	retainEvery = time.Hour
	// retainAgain is when a run that failed is tried again; each further one that
	// fails doubles it, up to retainEvery.
	retainAgain = time.Minute
)

// newRetention prepares the log's options for what is configured.
func (s *Server) newRetention(o *decisionlog.Options) {
	s.config.DecisionLog.Retain.segments(o)
	keep := func() decisionlog.Retention { return s.live.Load().config.DecisionLog.Retain.bounds() }
	if tune := s.config.Program.tuneLog; tune != nil {
		tuned := keep()
		tune(o, &tuned)
		keep = func() decisionlog.Retention { return tuned }
	}
	once := func(ctx context.Context) error { return s.retain(ctx, keep()) }
	s.retention = &retention{once: once, keep: keep, log: s.log, wake: make(chan struct{}, 1)}
	o.OnAged = s.retention.look
	told := o.OnRotate
	o.OnRotate = func(segment uint64, kept time.Duration) { // by the writer, who must not wait
		if told != nil {
			told(segment, kept)
		}
		s.retention.look()
	}
}

// look has it look now, or again where it is looking already.
func (r *retention) look() {
	select {
	case r.wake <- struct{}{}:
	default: // it will look at this, too
	}
}

// run looks at the start, after each segment that was sealed, when one has become old
// enough that somebody may write again, after a new configuration, and every hour.
func (r *retention) run(ctx context.Context) {
	again := retainAgain
	for {
		wait, wake := retainEvery, r.wake
		if err := r.once(ctx); err == nil {
			again = retainAgain
		} else if ctx.Err() == nil {
			r.log.Error("retention failed, and records are kept longer than configured; it is tried again; see to the disk of the data directory",
				"error", err, "again_in", again)
			// What fails may itself have sealed a segment: that is no reason to hurry.
			wait, wake = again, nil
			again = min(2*again, retainEvery)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		case <-wake:
			timer.Stop()
		}
	}
}

// boundCallers has the log bound what callers put on record, by the configuration in force.
func (s *Server) boundCallers(ctx context.Context) error {
	if s.retention == nil {
		return nil
	}
	return s.decisions.Limit(ctx, s.retention.keep())
}

// roomOnRecord refuses a caller of which nothing more can be put on record now.
func (s *Server) roomOnRecord(caller string) error {
	var none *decisionlog.RoomError
	if s.decisions != nil && errors.As(s.decisions.Room(caller), &none) {
		return noRoom(none)
	}
	return nil
}

// noRoom says to the outside that nothing more can be put on record.
func noRoom(none *decisionlog.RoomError) *door.Problem {
	status, detail := http.StatusTooManyRequests, "this caller has put as much on record lately as one caller may; ask again after Retry-After seconds"
	switch none.Bound {
	case decisionlog.BoundIssuer:
		detail = "the subjects of this caller's issuer together have put as much on record lately as they may; ask again after Retry-After seconds"
	case decisionlog.BoundAll:
		status, detail = http.StatusServiceUnavailable, "the decision log is full of records that are too young to be dropped, so nothing is decided; ask again after Retry-After seconds"
	}
	return door.TooMany(string(none.Bound), none.RetryAfter, status, detail)
}

func (s *Server) retain(ctx context.Context, keep decisionlog.Retention) error {
	if keep == (decisionlog.Retention{}) {
		return nil
	}
	s.audit.LetExportsPass(ctx)
	done, err := s.decisions.Retain(ctx, keep, s.now())
	s.telemetry.Log.Retained(done, err)
	if err == nil && len(done.Segments) > 0 {
		if s.approvals != nil {
			s.approvals.remark(ctx)
		}
		s.log.Info("retention dropped records", "segments", len(done.Segments), "records", done.Records, "freed", done.Freed)
	}
	return err
}
