package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/c2sp"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/mask"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/recorder"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/decisionlog/witness"
	"policy-service/pdp/internal/server/audit"
	"policy-service/pdp/internal/server/door"
	"policy-service/pdp/internal/server/sink"
	"policy-service/pdp/internal/version"
)

// decisionLog is the decision log of a server, from its opening to its end, with what fills it besides decisions. It is
// nil if the server keeps none; the methods that may be called then say so.
type decisionLog struct {
	*base
	*decisionlog.Log
	recorder  *recorder.Recorder
	bundles   *segment.Bundles
	events    *recorder.Events
	retention *retention
	witnesses *witness.Witnesses // nil without any
	rotated   atomic.Bool        // a segment has begun, without the keys yet
	restored  *restoredBefore    // what is to be recorded of a restore, nil for nothing
}

// newAudit makes the routes of the decision log. They have no log and no bundles until [openLog] opens them.
func (s *Server) newAudit() *audit.Audit {
	explains := newExplainer(func() *pdp.Bundle { return s.policies.Bundle() }, s.door.Options.Limits)
	options := audit.Options{
		Door:    s.door,
		Explain: explains.explain,
		Data:    s.config.Data,
		Mode:    s.config.DecisionLog.Mode,
		Tiles:   s.config.DecisionLog.Tiles,
		Mask:    func(ctx context.Context) *mask.Masker { return s.live.pinned(ctx).mask },
		InForce: func() audit.InForce {
			now := s.policies.Status()
			return audit.InForce{Digest: now.Digest, OnDisk: now.OnDisk, Unavailable: s.policies.Bundle().Unavailable()}
		},
		Backup: s.backUp,
		Reported: func(obligation string, status evaluation.ReceiptStatus) {
			s.telemetry.Decisions.Reported(obligation, status)
		},
	}
	if c := s.config.DecisionLog.Witnesses; c != nil {
		options.Witnessed = c.Required
		options.Cosigned = func() (segment.Checkpoint, error) { return s.decisions.witnesses.Checkpoint() }
	}
	return audit.New(options)
}

// openLog opens the decision log. Nothing can be decided before it returns, so no decision is missing from the log.
func openLog(ctx context.Context, b *base, to *audit.Audit) (d *decisionLog, err error) {
	if b.config.Data == "" {
		b.log.Info("no data directory is given: decisions are not recorded")
		return nil, nil
	}
	if b.config.Program.PDP.Recorder != nil {
		return nil, nil // the embedding program keeps its own record
	}
	if b.live.Load().mask, err = newMask(b.config); err != nil {
		return nil, err
	}
	d = &decisionLog{base: b, events: recorder.NewEvents(b.now, b.log)}
	if d.restored, err = readRestored(b.config.Data); err != nil {
		return nil, err
	}
	var policy *c2sp.Policy
	if c := b.config.DecisionLog.Witnesses; c != nil {
		if policy, err = c.Policy(); err != nil {
			return nil, err
		}
	}
	if d.bundles, err = segment.OpenBundles(b.config.Data); err != nil {
		return nil, fmt.Errorf("cannot make the directory for the files of bundles: %w; see to the permissions of the data directory", err)
	}
	out := &sink.Output{To: b.config.Program.Checkpoints}
	sinks, err := d.newSinks(ctx, out)
	if err != nil {
		return nil, err
	}
	checkpoints := sink.NewCheckpoints(out, b.log)
	b.lifetime.add("checkpoints", checkpoints.Stop) // after the log, which is closed with a last checkpoint
	segments := b.config.DecisionLog.Retain.segments()
	options := decisionlog.Options{
		SegmentAge:   segments.age,
		SegmentBytes: segments.bytes,
		Mode:         b.config.DecisionLog.Mode,
		Origin:       logName(&b.config),
		Now:          b.now,
		On: decisionlog.Hooks{
			Checkpoint: checkpoints.Take,
			State:      d.stateChanged,
			Failure:    d.failed,
			Commit:     b.telemetry.Log.Committed,
			Fill:       b.telemetry.Log.Filled,
			Rotate: func() { // the log's writer calls it, so it must not wait
				b.telemetry.Log.Rotated()
				d.rotated.Store(true)
				d.events.Wake()
			},
		},
		Index: true,
		Kinds: []string{format.KindApproval, format.KindCapability},
	}
	if c := b.config.DecisionLog.Witnesses; c != nil && c.Required {
		options.Refuse = func(now time.Time) error { return d.witnesses.Refuse(now) }
	}
	d.retention = d.newRetention(&options, to)
	d.Log, err = decisionlog.Open(b.config.Data, options)
	switch {
	case errors.Is(err, decisionlog.ErrLost):
		return nil, fmt.Errorf("cannot open the decision log: %w; copy the data directory, then see policy-service log recover --help", err)
	case errors.Is(err, segment.ErrLocked):
		return nil, fmt.Errorf("cannot serve from %s: %w; stop the server that runs there, or use another data directory", b.config.Data, segment.ErrLocked)
	case errors.Is(err, segment.ErrNewer), errors.Is(err, segment.ErrCut):
		return nil, fmt.Errorf("cannot open the decision log: %w", err)
	case errors.Is(err, record.ErrDamaged):
		return nil, fmt.Errorf("cannot open the decision log: %w; copy the data directory, and put back what is damaged, or see policy-service log begin --help", err)
	case err != nil:
		return nil, fmt.Errorf("cannot open the decision log: %w; the disk may be full", err)
	}
	b.lifetime.add("decision log", closing(d.Close))
	for _, tail := range d.Log.Unsigned() {
		b.log.Error("nothing says that the service wrote the last records of the decision log; they stay, and unsigned_tail names them; "+
			"if no older version and no restored file explains them, find out who can write to the data directory",
			"from", tail.From, "to", tail.To, "cause", tail.Cause)
	}
	if policy != nil {
		if err := d.openWitnesses(policy); err != nil {
			return nil, err
		}
	}
	if err := d.mayGoOn(ctx); err != nil {
		return nil, err
	}
	if err := d.limitCallers(ctx); err != nil {
		return nil, fmt.Errorf("cannot read whose the records of the decision log are: %w; see to the disk of the data directory", err)
	}
	if err := b.config.DecisionLog.Retain.doubtful(); err != nil {
		b.log.Warn(err.Error())
	}
	sinks.Start(d.Log)
	b.lifetime.add("sinks", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, b.config.Program.stopsWithin(sinksStopWithin))
		defer cancel()
		sinks.Stop(ctx)
		return nil
	})
	b.lifetime.add("record of the stop", d.recordStop)
	return d, d.begin(ctx, to)
}

// begin makes everything that goes on record go to the log, and records the start.
func (d *decisionLog) begin(ctx context.Context, to *audit.Audit) error {
	to.Log, to.Bundles, d.events.Log = d.Log, d.bundles, d.Log
	d.recorder = &recorder.Recorder{
		Log:   d.Log,
		Mask:  to.Mask,
		GoOn:  door.GoOn,
		Waits: door.EndShift,
	}
	program := map[string]any{"version": version.This().Version, "pid": os.Getpid()}
	start := recorder.Event{Name: format.EventStart, Details: program}
	configured := recorder.Event{Name: format.EventConfiguration, Details: ConfigForm.Values(d.config)}
	if err := d.events.Record(ctx, start, configured); err != nil {
		return fmt.Errorf("the start cannot be recorded: %w; see to the disk of the data directory", err)
	}
	if d.restored.goesOn() {
		return nil // etcd is asked before that is on record
	}
	return d.recordRestored(ctx)
}

// run does what the log needs beside decisions, until the stop.
func (d *decisionLog) run(k ownKeys) {
	if d == nil {
		return
	}
	d.events.Look = (&keyWatch{events: d.events, rotated: &d.rotated, signing: k.signing, keys: k.api}).look
	d.events.CatchUp() // the state before the first request is no change
	d.lifetime.background("events", d.events.Run)
	d.lifetime.background("retention", d.retention.run)
	if d.witnesses != nil {
		d.lifetime.background("witnesses", d.witnesses.Run)
	}
}

// sinksStopWithin is how long sinks may take at a stop to hand on the last records.
const sinksStopWithin = 5 * time.Second

// newSinks makes the sinks that are configured, and starts none.
func (d *decisionLog) newSinks(ctx context.Context, out *sink.Output) (*sink.Sinks, error) {
	sinks, err := sink.New(d.telemetry.Meter, d.log)
	if err != nil {
		return nil, err
	}
	on := d.config.DecisionLog.Sinks
	if on.Stdout != nil {
		sinks.Add(ctx, "stdout", on.Stdout.Queue, out.Send)
	}
	if on.OTLP != nil {
		send, err := sink.OTLP(ctx, d.telemetry, d.now)
		if err != nil {
			return nil, err
		}
		sinks.Add(ctx, "otlp", on.OTLP.Queue, send)
	}
	return sinks, nil
}

// stopWithin is how long a stop waits for its record, even if the time for the stop is over.
const stopWithin = 5 * time.Second

// recordStop records the stop as the last thing that happens. A disk that fails keeps no server from stopping as it was
// told to: the next start says that this one ended without a word.
func (d *decisionLog) recordStop(ctx context.Context) error {
	recorded := make(chan error, 1) // so that nothing waits if there is no receiver
	go func() { recorded <- d.events.Record(ctx, recorder.Event{Name: format.EventStop}) }()
	err := context.DeadlineExceeded
	select {
	case err = <-recorded:
	case <-time.After(stopWithin):
	}
	if err != nil {
		d.base.log.Error("the stop cannot be recorded", "error", err)
	}
	return nil
}

// Close closes the log. A disk that fails keeps no server from stopping.
func (d *decisionLog) Close() error {
	err := d.Log.Close()
	if errors.Is(err, segment.ErrUnavailable) {
		d.base.log.Error("the decision log cannot be closed in order", "error", err)
		return nil
	}
	return err
}

// soon records an event a moment later, if a log is kept.
func (d *decisionLog) soon(event recorder.Event) {
	if d != nil {
		d.events.Soon(event)
	}
}

// admit puts a bundle on record, and keeps its files, before anything is decided by it. Without a log it does nothing.
func (d *decisionLog) admit(b pdp.Incoming) error {
	if d == nil {
		return nil
	}
	if _, err := d.bundles.Put(b.Files); err != nil {
		return fmt.Errorf("its files cannot be kept: %w", err)
	}
	details := map[string]any{"bundle": b.Digest, "files": len(b.Files)}
	if len(b.Later) > 0 { // the digest is not that of the directory
		details["later"] = b.Later
	}
	loaded := recorder.Event{Name: format.EventBundleLoaded, Details: details}
	if err := d.events.Record(context.Background(), loaded); err != nil {
		return fmt.Errorf("it cannot be recorded: %w", err)
	}
	return nil
}

// stateChanged logs for the operator. The log's writer calls it, so it must not wait.
func (d *decisionLog) stateChanged(err error) {
	switch {
	case err == nil:
		d.base.log.Info("the decision log can be written again")
		d.events.Wake()
		d.retention.runSoon()
	case d.config.DecisionLog.Mode == decisionlog.BestEffort:
		d.base.log.Error("the decision log cannot be written; decisions are answered, and are missing from it until it can; see to the disk of the data directory", "error", err)
	default:
		d.base.log.Error("the decision log cannot be written; nothing is answered until it can; see to the disk of the data directory", "error", err)
	}
}

// failed logs a failure beside the log's writer.
func (d *decisionLog) failed(err error) {
	d.telemetry.Log.IndexFailed() // only queries take longer
	d.base.log.Warn("an index of the decision log cannot be made; queries are slow until it can, and it is tried again; see to the disk of the data directory", "error", err)
}

// receipts is the origin of the log if each answer has a record on disk before it leaves, and "" otherwise.
func (d *decisionLog) receipts() string {
	if d == nil || d.config.DecisionLog.Mode != decisionlog.Strict {
		return ""
	}
	return d.Log.Origin()
}

// logReadiness is the log's part of /readyz.
type logReadiness struct {
	Mode decisionlog.Mode `json:"mode"`
	OK   bool             `json:"ok"`
	// Error is why it cannot be written.
	Error string `json:"error,omitzero"`
	Size  uint64 `json:"size"`
	// Full is set if the records that are too young to be dropped take all the room there is.
	Full bool `json:"full,omitzero"`
	// Witnesses is absent without any.
	Witnesses *witness.Status `json:"witnesses,omitzero"`
}

// Ready implements [ready].
func (d *decisionLog) Ready(is *readiness) {
	if d == nil {
		return
	}
	status := d.Status()
	state := &logReadiness{Mode: status.Mode, OK: status.OK, Size: status.Size, Full: status.Full}
	if status.Err != nil {
		state.Error = status.Err.Error()
	}
	if d.witnesses != nil {
		now := d.witnesses.Status()
		state.Witnesses = &now
		if now.Missing || now.Conflict || now.Suspects() > 0 {
			is.degrade()
		}
		is.unavailable = is.unavailable || now.Missing && d.witnesses.Required
	}
	if is.Log = state; !state.OK {
		is.degrade()
	}
	is.unavailable = is.unavailable || state.Full || !state.OK && state.Mode != decisionlog.BestEffort
}
